"""What `run` says of its rows when it is over: what was approximated, dropped, and is best."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from netsim.results.row import Row
from netsim.sweep.summary import best_row, idle_axes
from tests.cli.command import netsim

SCENARIO = """\
name: said
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1KiB, 1MiB]}
outputs: [csv]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)


def test_rows_of_a_run_that_was_killed_are_not_dropped_without_a_word(capsys) -> None:
    assert "dropped" not in netsim(capsys, "run", "s.yaml", "-o", "out").err
    assert "dropped" not in netsim(capsys, "run", "s.yaml", "-o", "out").err  # it had ended
    Path("out/results.csv").unlink()
    again = netsim(capsys, "run", "s.yaml", "-o", "out").err
    assert "2 rows of a run that did not end are dropped (--resume keeps them)" in again


def test_what_is_approximated_is_told(capsys) -> None:
    assert "approximated" not in netsim(capsys, "run", "s.yaml", "-o", "out").err
    text = (
        "cluster: {machine: dgx-h100, nodes: 4}\nworkload: {collective: all_reduce, "
        "algorithm: Tree, sizes: [64KiB, 16MiB]}\noutputs: [csv]\n"
    )
    Path("t.yaml").write_text(text)
    done = netsim(capsys, "run", "t.yaml", "-o", "tree")
    table = Path("tree/results.csv").read_text()
    rows = [line for line in table.splitlines() if " of " in line]
    assert (f"{len(rows)} of 2 rows are approximate, within " in done.err) == bool(rows)


def row(name: str, time: float, seed: int = 1) -> Row:
    return Row(status="ok", size_bytes=8, time_us=time, axes={"network": name, "seed": seed})


def test_only_what_is_clearly_faster_beats_the_base_line() -> None:
    rows = [row("broken", 99.8), row("healthy", 100.0), row("slow", 120.0)]
    assert best_row(rows).axes["network"] == "broken"
    assert best_row(rows, {"network": "healthy"}).axes["network"] == "healthy"
    assert best_row([row("other", 98.0), *rows], {"network": "healthy"}).time_us == 98.0


def test_the_seed_in_the_middle_stands_for_a_cell() -> None:
    lucky = [row("lucky", time, seed) for seed, time in enumerate([50, 140, 150])]
    steady = [row("steady", time, seed) for seed, time in enumerate([99, 100, 101])]
    assert best_row([*lucky, *steady]).time_us == 100


def test_axes_without_effect_are_told_but_for_which_job_is_looked_at() -> None:
    found = []
    for axis in ("network", "job"):
        asked = SimpleNamespace(workload=SimpleNamespace(size_list=lambda: [8]))
        cells = [SimpleNamespace(id=a, axes={axis: a}, scenario=asked) for a in ("a", "b")]
        rows = [replace(row("healthy", 5.0), cell=name, axes={axis: name}) for name in ("a", "b")]
        found += [idle.axis for idle in idle_axes(cells, rows)]
        assert not idle_axes(cells, [rows[0], replace(rows[1], time_us=5.1)])
        assert not idle_axes(cells, rows[:1])  # of one value alone nothing is known
    assert found == ["network"]


def test_cells_that_time_different_collectives_have_no_best_one(capsys) -> None:
    text = SCENARIO + (
        "sweep:\n  variants:\n    what:\n"
        "      reduce: {workload.collective: all_reduce, workload.algorithm: ring}\n"
        "      gather: {workload.collective: all_gather, workload.algorithm: bruck}\n"
    )
    Path("two.yaml").write_text(text)
    done = netsim(capsys, "run", "two.yaml", "-o", "out")
    assert done.code == 0, done.err
    said = done.out + done.err
    assert "best at" not in said
    assert "they time different collectives (all_gather, all_reduce)" in said
