"""NCCL's graph XML on the command line: channels written, run again, changed and refused."""

import csv
from pathlib import Path

import pytest

from tests.cli.command import netsim

QUESTION = ("expect", "l40s-pcie-x8", "all_reduce", "--sizes", "64M", "--format", "csv")


def time_of(text: str) -> float:
    return float(next(csv.DictReader(text.splitlines()))["time_us"])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_channels_run_again_take_as_long(capsys) -> None:
    plain = time_of(netsim(capsys, *QUESTION).out)
    assert netsim(capsys, *QUESTION, "--graph-out", "g.xml").code == 0
    assert time_of(netsim(capsys, *QUESTION, "--graph", "g.xml").out) == plain
    as_variable = ("--env", "NCCL_GRAPH_FILE=g.xml")
    assert time_of(netsim(capsys, *QUESTION, *as_variable).out) == plain
    # Every second hop across the sockets: what NCCL's search avoids.
    text = Path("g.xml").read_text()
    ring = text[: text.index("</graph>")]
    lines = [line for line in ring.splitlines() if "<gpu" in line]
    swapped = [lines[place] for place in (0, 4, 1, 5, 2, 6, 3, 7)]
    for line, other in zip(lines, [f"@{number}" for number in range(8)], strict=True):
        ring = ring.replace(line, other, 1)
    for number, line in enumerate(swapped):
        ring = ring.replace(f"@{number}", line, 1)
    Path("worse.xml").write_text(ring + text[text.index("</graph>") :])
    assert time_of(netsim(capsys, *QUESTION, "--graph", "worse.xml").out) > 1.5 * plain


def test_a_file_of_another_machine_is_refused(capsys) -> None:
    netsim(capsys, *QUESTION, "--graph-out", "g.xml")
    outcome = netsim(capsys, "expect", "a10-pcie-x4", "all_reduce", "--graph", "g.xml")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == ("g.xml:8:7: gpu.dev: the node has the GPUs 0, 0x1, 0x2, 0x3, not 0x4\n")
    missing = netsim(capsys, "expect", "a10-pcie-x4", "all_reduce", "--graph", "no.xml")
    assert (missing.code, missing.err) == (2, "no.xml: no such file\n")


def test_textbook_algorithms_have_no_channels(capsys) -> None:
    outcome = netsim(capsys, *QUESTION, "--algo", "ring", "--graph-out", "g.xml")
    assert (outcome.code, Path("g.xml").exists()) == (2, False)
    assert outcome.err.endswith("--graph-out: ring is a textbook algorithm without channels\n")
