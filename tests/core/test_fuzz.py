"""Damaged files are refused, never a bug: a sample of `python -m tests.fuzz`."""

from pathlib import Path

import pytest

from netsim.base.errors import NetsimError
from tests import fuzz


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    fuzz.make_runs(folder)
    return folder


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_no_damaged_file_ends_as_a_bug(runs: Path, kind: str) -> None:
    assert fuzz.bugs([kind], 8, 1, runs) == []


FOUND = {
    "smi": b"GPU0 GPU1\nlegend\n",
    "values": b"a,a\n1,2\n",
    "json log": b'{"config": {"devices": [{"rank": [1]}]}, "results": []}\n',
    "trace": b'{"traceEvents": [{"ph": "X", "name": "a", "pid": {}, "dur": 1, "ts": 2}]}',
    "table": b"size_bytes,root,oop_time_us\n8,--1,20\n",
}


@pytest.mark.parametrize("kind", FOUND)
def test_what_was_found_once_is_refused(runs: Path, kind: str) -> None:
    assert fuzz.broken(kind, FOUND[kind], runs) == ""


def test_the_check_sees_what_is_a_bug(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path) -> None:
        raise KeyError(path.name)

    def refuses(path: Path) -> None:
        raise NetsimError("no such thing")

    for reader, seen in ((fails, True), (refuses, False)):
        monkeypatch.setitem(fuzz.KINDS, "log", (reader, ("tests/data/logs/*.txt",), "x.log"))
        assert bool(fuzz.bugs(["log"], 1, 1, runs)) is seen
