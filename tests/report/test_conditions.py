"""Which axes of a sweep are the question and which are compared; sizes match as they were asked."""

import csv
from pathlib import Path

import pytest

from netsim.scenario.sweep import read_sweep
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim

SWEEP = """\
name: asked
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_gather, algorithm: ring, sizes: [1000000]}
sweep:
  cluster.graph.gpus: [3, 4]
  workload.algorithm: [ring, direct]
  zip: {workload.collective: [all_gather, reduce_scatter], seed: [1, 2]}
  variants:
    pods: {few: {cluster.nodes: 2}, many: {cluster.nodes: 4}}
    fabric: {one: {cluster.fabric.kind: rail-only}, two: {cluster.nodes: 4}}
"""


def conditions(text: str) -> list[str]:
    return read_sweep(parse_source(text, "asked.yaml")).conditions


def test_what_is_asked_is_a_condition_and_what_one_chooses_is_not() -> None:
    assert conditions(SWEEP) == ["cluster.graph.gpus", "workload.collective", "pods"]
    told = "report: {conditions: [fabric, workload.algorithm], choices: [pods]}\n"
    assert conditions(SWEEP + told) == [
        "cluster.graph.gpus",
        "workload.algorithm",
        "workload.collective",
        "fabric",
    ]
    assert conditions(SWEEP + "report: {conditions: [cluster.graph.kind]}\n") == conditions(SWEEP)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("report: {conditions: [cluster.nods]}", "cluster.nods is no axis of this sweep"),
        ("report: {condition: [workload.dtype]}", "report"),
        ("report: {choices: pods}", "report.choices: expected"),
        ("report: 3", "report: expected"),
    ],
)
def test_mistakes_of_the_section_have_one_message(tmp_path: Path, capsys, section, message) -> None:
    file = tmp_path / "asked.yaml"
    file.write_text(GPUS + section + "\n")
    done = netsim(capsys, "check", file)
    assert done.code == 2
    assert f"{file}:" in done.err
    assert message in done.err
    assert "Traceback" not in done.err


GPUS = """\
# How many GPUs?
name: asked
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_gather, algorithm: ring, sizes: [1000000, 2000001]}
sweep:
  cluster.graph.gpus: [3, 4]
  base: {cluster.graph.gpus: 4}
outputs: [csv]
"""


@pytest.mark.full
def test_rows_match_by_the_size_that_was_asked_for(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("asked.yaml").write_text(GPUS + "report: {choices: [cluster.graph.gpus]}\n")
    assert netsim(capsys, "run", "asked.yaml", "-o", "out").code == 0
    with Path("out/results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["size_asked"] for row in rows} == {"1000000", "2000001"}
    assert len({row["size_bytes"] for row in rows}) > 2
    lines = Path("out/comparison.csv").read_text().splitlines()
    assert len(lines) == 1 + len(rows)
    done = netsim(capsys, "diff", "out#3", "out#4")
    assert "1000000" in done.out
    assert "left out" not in done.err
    assert netsim(capsys, "report", "out", "--no-explain").code == 0
    text = Path("out/report.html").read_text()
    assert "Both choices are equal at 2000001 B within the uncertainty: 3 GPUs takes" in text
    assert "Left out" not in text


@pytest.mark.slow
def test_a_run_that_was_killed_has_a_report_that_says_what_is_missing(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("asked.yaml").write_text(GPUS)
    assert netsim(capsys, "run", "asked.yaml", "-o", "out").code == 0
    Path("out/results.csv").unlink()
    journal = Path("out/journal.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3]) + lines[3][:40])
    assert netsim(capsys, "report", "out", "--no-explain").code == 0
    text = Path("out/report.html").read_text()
    assert "1 of 4 rows is missing: the run did not finish" in text


@pytest.mark.slow
def test_after_a_run_choices_are_counted_under_each_condition(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    two = "  cluster.graph.gpus: [3, 4]\n  cluster.graph.bandwidth: [25GB/s, 50GB/s]\n"
    text = GPUS.replace("  cluster.graph.gpus: [3, 4]\n", two)
    Path("asked.yaml").write_text(text.replace("  base: {cluster.graph.gpus: 4}\n", ""))
    said = netsim(capsys, "run", "asked.yaml", "-o", "out").err
    assert "best under 2 of 2 conditions (gpus): bandwidth 50GB/s; netsim report" in said
