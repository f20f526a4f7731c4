"""Every reader takes a damaged file or refuses it with a message; none ends as a bug.

    pytest -m full tests/core/test_damaged_files.py                  # 300 files of each kind
    HYPOTHESIS_PROFILE=explore pytest -m full tests/core/test_damaged_files.py -k "log"  # others

`damaged_files.py` says what is read and how it is damaged.
"""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.base.errors import NetsimError
from tests.core.damaged_files import (
    KINDS,
    NUMBERS,
    TOKENS,
    Edit,
    Kind,
    contents_of,
    damaged,
    damaged_files,
    failure_of,
    run_command,
    write_runs,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_runs(folder)
    return folder


def check(kind: str, runs: Path, data: st.DataObject) -> None:
    """Fail with the edits of a file whose reader fails."""
    contents = contents_of(kind, runs)
    number, edits, kept_of_gzip = data.draw(damaged_files(contents))
    assert failure_of(kind, damaged(contents[number], edits, kept_of_gzip), runs) == ""


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(data=st.data())
def test_a_damaged_file_never_ends_as_a_bug(runs: Path, kind: str, data: st.DataObject) -> None:
    check(kind, runs, data)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=300)
@given(data=st.data())
def test_hundreds_of_damaged_files_never_end_as_a_bug(
    runs: Path, kind: str, data: st.DataObject
) -> None:
    check(kind, runs, data)


EARLIER_BUGS = {
    "smi": b"GPU0 GPU1\nlegend\n",
    "values": b"a,a\n1,2\n",
    "json log": b'{"config": {"devices": [{"rank": [1]}]}, "results": []}\n',
    "trace": b'{"traceEvents": [{"ph": "X", "name": "a", "pid": {}, "dur": 1, "ts": 2}]}',
    "table": b"size_bytes,root,oop_time_us\n8,--1,20\n",
}


@pytest.mark.parametrize("kind", EARLIER_BUGS)
def test_a_file_that_was_a_bug_once_is_refused(tmp_path: Path, kind: str) -> None:
    assert failure_of(kind, EARLIER_BUGS[kind], tmp_path) == ""


def fail(path: Path) -> None:
    raise KeyError(path.name)


def refuse(path: Path) -> None:
    raise NetsimError("no such thing")


def refuse_without_words(path: Path) -> None:
    raise NetsimError(" ")


@pytest.mark.parametrize(
    ("read", "failure"),
    [(fail, "KeyError"), (refuse, ""), (refuse_without_words, "an error without words")],
)
def test_an_error_of_another_kind_is_seen_as_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read, failure: str
) -> None:
    monkeypatch.setitem(KINDS, "log", Kind(read, (), "x.log"))
    seen = failure_of("log", b"", tmp_path)
    assert failure in seen
    assert bool(seen) is bool(failure)


def test_a_command_that_refuses_a_file_ends_with_exit_code_2(tmp_path: Path) -> None:
    assert run_command("run", str(tmp_path / "missing.yaml")) == 2
    assert run_command("list") == 0


@pytest.mark.parametrize(
    ("code", "message"), [(2, "netsim: a bug in netsim"), (2, ""), (3, "no such thing")]
)
def test_a_command_that_ends_otherwise_is_seen(
    monkeypatch: pytest.MonkeyPatch, code: int, message: str
) -> None:
    def end(_: object) -> None:
        print(message, file=sys.stderr)
        raise SystemExit(code)

    monkeypatch.setattr("netsim.cli.main", end)
    with pytest.raises(AssertionError, match=f"exit code {code}"):
        run_command("list")


def test_edits_are_made_from_the_last_place_to_the_first() -> None:
    edits = [Edit(1, 2, b"---"), Edit(4, 99, b"")]
    assert damaged(b"012345", edits) == b"0---23"
    assert damaged(b"012345", edits, 3) == b"\x1f\x8b\x08"


@settings(max_examples=200)
@given(data=st.data())
def test_drawn_edits_reach_lines_numbers_tokens_and_other_files(data: st.DataObject) -> None:
    contents = [b"size 12\ntime 3.5\n", b"other"]
    number, edits, _ = data.draw(damaged_files(contents))
    assert 1 <= len(edits) <= 4
    for edit in edits:
        assert 0 <= edit.start <= min(edit.stop, len(contents[number]))
        assert len(edit.replacement) <= max(200 + 17, *map(len, TOKENS), *map(len, NUMBERS))
