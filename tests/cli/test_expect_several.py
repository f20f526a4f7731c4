"""`netsim expect` of several collectives: one table by collective and size."""

import csv
import json

import pytest

from netsim.results.row import COLUMNS
from tests.cli.command import netsim

SEVERAL = ("expect", "dgx-h100", "all_reduce,alltoall", "--sizes", "1M,16M")


def rows_of(text: str) -> list[list[str]]:
    """The words of the lines of a table that are rows."""
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


def test_the_table_of_two_collectives_has_the_lines_of_both_behind_their_names(capsys) -> None:
    table = netsim(capsys, *SEVERAL).out
    expected = []
    for collective in ("all_reduce", "alltoall"):
        single = netsim(capsys, "expect", "dgx-h100", collective, "--sizes", "1M,16M").out
        expected += [[collective, *words] for words in rows_of(single)]
    assert rows_of(table) == expected
    assert len(expected) == 4
    titles = table.splitlines()[1].split()
    assert titles[:3] == ["#", "collective", "size"]


def test_columns_stand_below_their_titles_beside_a_collective(capsys) -> None:
    lines = netsim(capsys, *SEVERAL).out.splitlines()
    title = next(line for line in lines if "busbw" in line)
    row = next(line for line in lines if line.startswith("  all_reduce"))
    assert row[title.index("size") :].startswith("1048576"[3:])
    assert row[: title.index("size") + 4].endswith("1048576")
    assert row[title.index("algorithm") :].startswith("Ring")
    assert row[title.index("bound by") - 1] == " "
    assert row[title.index("bound by")] != " "


def test_each_collective_has_its_own_mean(capsys) -> None:
    table = netsim(capsys, *SEVERAL).out
    for collective in ("all_reduce", "alltoall"):
        single = netsim(capsys, "expect", "dgx-h100", collective, "--sizes", "1M,16M").out
        mean = next(one for one in single.splitlines() if "Avg bus" in one).rpartition(": ")[2]
        line = next(one for one in table.splitlines() if f"bandwidth of {collective}" in one)
        assert line.rpartition(": ")[2] == mean


def test_programs_get_the_rows_of_all_collectives_in_one_table(capsys) -> None:
    rows = list(csv.DictReader(netsim(capsys, *SEVERAL, "--format", "csv").out.splitlines()))
    assert list(rows[0]) == list(COLUMNS)
    told = [(row["collective"], row["size_bytes"]) for row in rows]
    assert told == [
        (collective, size)
        for collective in ("all_reduce", "alltoall")
        for size in ("1048576", "16777216")
    ]
    values = json.loads(netsim(capsys, *SEVERAL, "--format", "json").out)
    assert [str(value["time_us"]) for value in values] == [row["time_us"] for row in rows]


def test_nccl_tests_has_one_log_for_each_collective(capsys) -> None:
    text = netsim(capsys, *SEVERAL, "--format", "nccl-tests").out
    parts = [
        netsim(
            capsys, "expect", "dgx-h100", collective, "--sizes", "1M,16M", "--format", "nccl-tests"
        ).out
        for collective in ("all_reduce", "alltoall")
    ]
    assert text == "".join(parts)


@pytest.mark.parametrize(
    "option",
    [
        ("--why", "1M"),
        ("--acceptance", "90%"),
        ("-J", "out.json"),
        ("--graph-out", "g.xml"),
        ("--tuner-out", "t.csv"),
        ("--nccl", "2.20,2.27"),
    ],
)
def test_what_goes_with_one_collective_says_so(capsys, tmp_path, monkeypatch, option) -> None:
    monkeypatch.chdir(tmp_path)
    found = netsim(capsys, *SEVERAL, *option)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(option[0])
    assert "goes with one collective only, got 2: all_reduce, alltoall" in found.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("all_reduce,", "a collective is missing beside a comma"),
        (",", "a collective is missing beside a comma"),
        ("all_reduce,alltoall,all_reduce", "all_reduce is named twice"),
        ("all_reduce,alltoal", "did you mean alltoall?"),
    ],
)
def test_mistakes_in_a_list_of_collectives_are_one_message(capsys, names, message) -> None:
    found = netsim(capsys, "expect", "dgx-h100", names, "--sizes", "1M")
    assert (found.code, found.out) == (2, "")
    assert message in found.err
    assert "Traceback" not in found.err


def test_assumptions_of_several_collectives_are_told_once(capsys) -> None:
    lines = netsim(capsys, *SEVERAL, "--nodes", "2").err.splitlines()
    assumed = [line for line in lines if line.startswith("assumed: NCCL")]
    assert len(assumed) == 1
    rounded = netsim(capsys, "expect", "dgx-h100", "all_reduce,alltoall", "--sizes", "1000").err
    assert "alltoall: rounded as nccl-tests rounds: 1000 B -> 896 B" in rounded
