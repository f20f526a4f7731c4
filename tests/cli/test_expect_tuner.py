"""Tuner tables: taken by `expect` and scenarios, and written from what simulating finds."""

import csv
from pathlib import Path

import pytest

from netsim.cli.tuner_table import merged
from netsim.nccl.communicator import TunerRule
from netsim.nccl.tuning import read_tuner
from tests.cli.command import netsim

ROWS = "allreduce,0,1048576,tree,ll,2,-1,-1\n"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(ROWS)


@pytest.mark.parametrize(
    "options", [("--tuner", "t.csv"), ("--env", "NCCL_TUNER_CONFIG_FILE=t.csv")]
)
def test_a_table_replaces_the_choice(capsys, options: tuple[str, str]) -> None:
    question = ("expect", "dgx-a100", "all_reduce", "--sizes", "1M,2M", "--format", "csv")
    found = rows(netsim(capsys, *question, *options).out)
    assert [(row["algorithm"], row["protocol"], row["channels"]) for row in found] == [
        ("Tree", "LL", "2"),
        ("Ring", "LL", "24"),
    ]
    plain = rows(netsim(capsys, *question).out)
    assert float(found[0]["time_us"]) > float(plain[0]["time_us"])
    assert found[1]["time_us"] == plain[1]["time_us"]
    assert found[0]["cell"] != plain[0]["cell"]  # another question
    why = netsim(capsys, "expect", "dgx-a100", "all_reduce", *options, "--why", "1M").out
    assert why.startswith(
        "all_reduce of 1048576 B on 8 ranks, 1 node: Tree LL (by the tuner), 2 of 24 channels"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "allreduce,0,1,trea,ll,-1,-1,-1\n",
            "t.csv:1: algorithm: expected one of Tree, Ring, "
            "CollNetDirect, CollNetChain, NVLS, NVLSTree, PAT, got 'trea' (did you mean Tree?)",
        ),
        ("# nothing\nallreduce,0,1\n", "t.csv:2: expected 8 to 10 columns, got 3"),
        (
            "allreduce,0,1M,tree,ll,-1,-1,-1\n",
            "t.csv:1: max_bytes: expected a whole number, got '1M'",
        ),
    ],
)
def test_mistakes_in_a_table_are_named_with_their_line(capsys, text: str, message: str) -> None:
    Path("t.csv").write_text(text)
    outcome = netsim(capsys, "expect", "dgx-a100", "all_reduce", "--tuner", "t.csv")
    assert (outcome.code, outcome.out, outcome.err) == (2, "", message + "\n")


def test_a_table_that_is_not_there(capsys) -> None:
    outcome = netsim(capsys, "expect", "dgx-a100", "all_reduce", "--tuner", "no.csv")
    assert (outcome.code, outcome.err) == (2, "no.csv: no such file\n")


@pytest.mark.slow
def test_what_is_written_is_the_fastest_of_all_that_can_run(capsys) -> None:
    question = ("expect", "dgx-a100", "all_reduce", "--sizes", "64K,4M")
    outcome = netsim(capsys, *question, "--tuner-out", "best.csv")
    assert outcome.code == 0
    rules = read_tuner(Path("best.csv"))
    assert [(rule.n_nodes, rule.n_ranks) for rule in rules] == [(1, 8)] * len(rules)
    assert rules[0].least_bytes == 2**16
    assert rules[-1].most_bytes == 2**22
    as_csv = (*question, "--format", "csv")
    tuned = [
        float(row["time_us"]) for row in rows(netsim(capsys, *as_csv, "--tuner", "best.csv").out)
    ]
    for algorithm in ("Ring", "Tree"):
        for protocol in ("LL", "LL128", "Simple"):
            forced = netsim(capsys, *as_csv, "--algo", algorithm, "--proto", protocol).out
            for best, row in zip(tuned, rows(forced), strict=True):
                assert best <= float(row["time_us"]) * 1.005


def test_lines_about_other_calls_are_kept(capsys) -> None:
    Path("t.csv").write_text(ROWS + "broadcast,0,9,ring,ll,-1,1,8\nallreduce,0,9,ring,ll,-1,1,8\n")
    netsim(capsys, "expect", "dgx-a100", "all_reduce", "--sizes", "8", "--tuner-out", "t.csv")
    rules = read_tuner(Path("t.csv"))
    assert [(rule.function, rule.n_ranks) for rule in rules] == [
        ("AllReduce", None),
        ("Broadcast", 8),
        ("AllReduce", 8),
    ]
    old = TunerRule("AllReduce", 0, 9, "Ring", "LL", None, 1, 8)
    new = TunerRule("AllReduce", 0, 9, "Tree", "LL", None, 1, 8)
    assert merged([old], [new]) == [new]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collective", "options", "message"),
    [
        ("alltoall", (), "--tuner-out: NCCL runs alltoall as sends and receives, without a choice"),
        ("all_reduce", ("--algo", "ring"), "--tuner-out: ring is a textbook algorithm, not NCCL's"),
        ("all_gather", ("--sizes", "8"), "--tuner-out: none of the sizes has any data"),
    ],
)
def test_where_there_is_nothing_to_tune(capsys, collective, options, message) -> None:
    outcome = netsim(capsys, "expect", "dgx-a100", collective, "--tuner-out", "x.csv", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines()[-1] == message
    assert not Path("x.csv").exists()
