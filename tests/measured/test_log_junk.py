"""Files that are no logs: refused before their lines are looked at; and no log is refused so.

How long any bytes take is measured by `python -m tests.bench.junk`.
"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.base.errors import InputError
from netsim.measured import logs
from netsim.measured.logs import cleaned, header_in, info_in, parse_log, read_log, without_stamps
from tests.bench.junk import KINDS, junk

# The patterns as one would write them, which may take the square of the length of a line.
HEADER = re.compile(r"#\s*(?:\S+\s+)*?size\s+count\s+(?:\(elements\)\s+)?type\b(.*)")
INFO = re.compile(r"[A-Za-z][\w.\-]*:\d+:\d+ \[[-\d]+\] NCCL (?:INFO|WARN|TRACE)")
STAMP = re.compile(r"(?:\s+\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?)?Z?)+\s*$")
PARTS = st.sampled_from(
    [
        "#",
        " ",
        "  ",
        "\t",
        "\u2003",
        "size",
        "count",
        "type",
        "(elements)",
        "1",
        "12",
        "\u0663",
        "float",
        "half",
        "uint8",
        "bfloat16",
        "fp8_e4m3",
        "a",
        "node-1.x",
        "_",
        ":1:2 [0] NCCL INFO ",
        ":",
        "2024-01-02",
        " 2024-01-02 03:04:05.6",
        "T03:04:05Z",
        "\x1b[31m",
        "\x1b[0m",
        "é",
        "x" * 70,
        " " * 70,
        "\n",
    ]
)
TEXTS = st.lists(PARTS, max_size=12).map("".join)


@pytest.mark.parametrize("kind", KINDS)
def test_lines_of_junk_are_not_looked_at(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []
    monkeypatch.setattr(logs._Reader, "read", lambda _, *line: looked_at.append(line))
    path = tmp_path / "junk.log"
    path.write_bytes(junk(kind, 200_000))
    with pytest.raises(InputError, match="no table of nccl-tests or rccl-tests is in this file"):
        read_log(path)
    assert not looked_at


@given(TEXTS)
def test_what_may_be_a_row_or_a_header_is_looked_at(text: str) -> None:
    lines = [cleaned(line) for line in text.splitlines()]
    held = any(logs.CORE.search(line) or HEADER.search(line) for line in lines)
    try:
        logs._refuse_without_tables(text.encode(), "x")
    except InputError:
        assert not held


@given(TEXTS)
def test_lines_are_understood_as_plain_patterns_do(text: str) -> None:
    for line in text.split("\n"):
        plain, found = HEADER.search(line), header_in(line)
        assert (plain and plain.group(1)) == (found and found.group(1))
        named = INFO.search(line)
        assert info_in(line) == (named and named.start())


@pytest.mark.parametrize(
    "rest",
    [
        "1.5 2.5 2024-01-02",
        " 1 2 2024-01-02 03:04:05,678 2024-01-02T03:04:05Z ",
        "1 2024-1-2",
        "",
        "2024-01-02",
        " 1 03:04:05",
        " 1 2024-01-02 x",
        " 1 2024-01-02Z 2024-01-03 03:04:05Z",
    ],
)
def test_dates_behind_a_row_are_left_out(rest: str) -> None:
    assert without_stamps(" " + rest) == STAMP.sub("", " " + rest).split()


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("all_reduce_perf", "all_reduce"),
        ("all_reduce_perf_mpi", "all_reduce"),
        ("broadcast", "broadcast"),
    ],
)
def test_the_program_is_named_as_before(name: str, collective: str) -> None:
    (run,) = parse_log(f"# Collective test starting: {name}\n1024 256 float sum 1 1 1 0\n", "x")
    assert run.collective == collective


def test_numbers_of_any_length_are_no_bug() -> None:
    digits = "1" * 5000
    for line in (
        f"{digits} 1 float 1 1 1",
        f"# nThread {digits} nGpus 1",
        f"{digits} Bytes -> Algo",
    ):
        (run,) = parse_log(f"# size count type time algbw busbw\n8 2 float 1 1 1\n{line}\n", "x")
        assert len(run.rows) == 1


def test_a_cell_that_csv_cannot_hold_is_told() -> None:
    text = 'size_bytes,oop_time_us\n"' + "a" * 200_000
    with pytest.raises(InputError, match=r"^x:2: cannot be read: field larger than field limit"):
        parse_log(text, "x")


def test_brackets_without_end_are_told() -> None:
    with pytest.raises(InputError, match="x: this JSON cannot be read"):
        parse_log("[{" * 100_000, "x")
    with pytest.raises(InputError, match="x: this JSON cannot be read"):
        parse_log('[{"results": ' * 100_000, "x")
