"""Tables and progress on a terminal of 80 columns; files and pipes get all columns."""

import sys

import pytest

from netsim.cli import shown
from netsim.cli.expect import text_table
from netsim.results.row import Row
from tests.cli.command import netsim

EXPECT = ("expect", "dgx-h100", "all_reduce,alltoall", "--sizes", "1K,64M")
SWEEP = """cluster: {machine: dgx-h100, nodes: 2}
workload: {collective: all_reduce, sizes: [64MiB]}
sweep: {workload.algorithm: [ring, double-binary-tree], cluster.nic: [200Gbps, 400Gbps]}
outputs: [csv]
"""
STEP = """cluster: {machine: a100-pcie-x4}
workload:
  model: {layers: 2, hidden: 512, heads: 8, ffn: 2048, vocabulary: 50257, sequence: 512}
  batch: 16
  micro_batch: 4
  parallelism: {dp: 4, data: ddp}
sweep: {workload.replicas.bucket: [5MiB, 25MiB]}
outputs: [csv]
"""
JOBS = """cluster: {machine: dgx-h100, nodes: 4}
jobs:
  - {name: gradients, nodes: 2, workload: {collective: all_reduce, sizes: [1MiB]}}
  - {name: experts, nodes: 2, workload: {collective: alltoall, sizes: [1MiB]}}
sweep: {variants: {hosts: {each alone: , mixed: {jobs.0.placement: [0, 2]}}}}
outputs: [csv]
"""


@pytest.fixture
def terminal(monkeypatch, capsys):
    """Makes standard output a terminal of so many columns."""

    def of_width(columns: int) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))

    return of_width


def longest(text: str) -> int:
    """The characters of the longest line."""
    return max(map(len, text.splitlines()))


@pytest.mark.slow
@pytest.mark.parametrize("columns", [72, 80, 100, 132])
def test_expect_fits_a_narrow_terminal(capsys, terminal, columns) -> None:
    terminal(columns)
    narrow = netsim(capsys, *EXPECT).out
    assert longest(narrow) <= columns
    title = next(line for line in narrow.splitlines() if "busbw" in line).split()
    assert title[:6] == ["#", "collective", "size", "time", "busbw", "choice"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "titles"),
    [(SWEEP, ["busbw", "algorithm", "nic", "bound by"]), (STEP, ["step (ms)", "GB/GPU"])],
)
def test_run_fits_80_columns_and_keeps_the_axes(capsys, tmp_path, terminal, text, titles) -> None:
    scenario = tmp_path / "case.yaml"
    scenario.write_text(text)
    terminal(80)
    found = netsim(capsys, "run", str(scenario), "-o", str(tmp_path / "narrow"))
    assert found.code == 0, found.err
    narrow = found.out
    assert longest(narrow) <= 80
    for title in titles:
        assert title in narrow
    wide = netsim(capsys, "run", str(scenario), "--wide", "-o", str(tmp_path / "wide")).out
    assert longest(wide) > 80


@pytest.mark.slow
def test_jobs_beside_each_other_fit_80_columns(capsys, tmp_path, terminal) -> None:
    (tmp_path / "case.yaml").write_text(JOBS)
    terminal(80)
    found = netsim(capsys, "run", str(tmp_path / "case.yaml"), "-o", str(tmp_path / "out"))
    assert found.code == 0, found.err
    assert longest(found.out) <= 80


def test_wide_tables_and_those_in_pipes_are_the_same(capsys, terminal, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # what a shell may export, for a pipe of any width
    piped = netsim(capsys, *EXPECT).out
    assert longest(piped) > shown.FULL_WIDTH - 10
    terminal(80)
    assert netsim(capsys, *EXPECT, "--wide").out == piped
    terminal(shown.FULL_WIDTH)
    assert netsim(capsys, *EXPECT).out == piped


@pytest.mark.parametrize("names", [["all_reduce"], ["all_reduce", "alltoall"]])
def test_the_error_of_a_row_is_not_cut(names) -> None:
    row = Row(collective="all_reduce", size_bytes=8, status="error", error="reason " * 20 + "end")
    assert text_table(names, noise=False, width=80).line(row).endswith("end")
    assert shown.compact_line(row, {}, 80).endswith("end")
