"""A cell's id is a hash of all that can change its rows: equal ids have equal rows.

Journals and caches are read by id, so a key that is missing in it returns the answer to another
question."""

import csv
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from netsim.scenario.cells import Cell, expand
from netsim.tasks.answer import answer, resolve_any
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim

BASE: dict[str, Any] = {
    "cluster": {"machine": "dgx-h100", "nodes": 2, "gpus_per_node": 2},
    "workload": {"collective": "all_reduce", "sizes": ["1MiB"]},
}
NOISE = {"launch": {"normal": {"mean": "1us", "sigma": "1us"}}}
CHANGES: list[tuple[str, Any]] = [
    ("exact", True),
    ("fold", "off"),
    ("limits", True),
    ("seed", 3),
    ("noise", NOISE),
    ("nccl.version", "2.19"),
    ("nccl.env", {"NCCL_MAX_NCHANNELS": "1"}),
    ("nccl.registration", "local"),
    ("launch", "single_process"),
    ("launch", {"host": "9us"}),
    ("cluster.nodes", 3),
    ("cluster.nics_per_node", 1),
    ("cluster.nic", "100Gbps"),
    ("cluster.fabric", {"kind": "leaf-spine"}),
    ("cluster.faults", [{"nic": "node0.nic0", "bandwidth": "50%"}]),
    ("cluster.overrides", [{"machine": {"gpu": {"memory_bandwidth": "1TB/s"}}}]),
    ("workload.algorithm", "Tree"),
    ("workload.protocol", "LL"),
    ("workload.dtype", "half"),
    ("workload.timing", "single"),
    ("workload.split", "MOD 2"),
    ("workload.ranks", [0, 2]),
]
HARMLESS: list[tuple[str, Any]] = [
    ("name", "another"),
    ("outputs", ["csv"]),
    ("prices", "default"),
    ("workload.sizes", ["1MiB", "2MiB"]),
]
NAMES = {"scenario", "axes"}


def cell_with(*changes: tuple[str, Any]) -> Cell:
    """The base cell with some keys changed."""
    scenario = yaml.safe_load(yaml.safe_dump(BASE))
    for key, value in changes:
        *path, last = key.split(".")
        section = scenario
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return expand(parse_source(yaml.safe_dump(scenario), "ids.yaml"))[0]


def row_of(cell: Cell) -> dict[str, Any]:
    """All columns of the row at 1 MiB but those that only repeat names."""
    row = asdict(answer(resolve_any(cell), 1 << 20))
    return {name: value for name, value in row.items() if name not in NAMES}


@pytest.mark.parametrize(("key", "value"), CHANGES, ids=[f"{k}={v}" for k, v in CHANGES])
def test_cells_that_differ_in_a_key_have_different_ids(key: str, value: Any) -> None:
    assert cell_with((key, value)).id != cell_with().id


@pytest.mark.parametrize(("key", "value"), HARMLESS, ids=[f"{k}={v}" for k, v in HARMLESS])
def test_keys_that_change_no_row_are_not_in_the_id(key: str, value: Any) -> None:
    changed, base = cell_with((key, value)), cell_with()
    assert changed.id == base.id
    assert row_of(changed) == row_of(base)


@pytest.mark.slow
def test_drawn_pairs_of_cells_with_equal_ids_have_equal_rows() -> None:
    every = [*CHANGES, *HARMLESS]
    rows: dict[str, dict[str, Any]] = {}
    for place, change in enumerate(every):
        for further in (every[(place + 1) % len(every)], every[(place + 7) % len(every)]):
            if further[0].partition(".")[0] == change[0].partition(".")[0]:
                continue
            cell = cell_with(change, further)
            row = row_of(cell)
            assert rows.setdefault(cell.id, row) == row


def test_a_trace_enters_the_id_with_its_contents(tmp_path) -> None:
    trace = tmp_path / "step.json"
    ids = []
    for contents in ("[1]", "[2]", "[1]"):
        trace.write_text(contents)
        ids.append(cell_with(("workload", {"trace": str(trace)})).id)
    assert ids[0] == ids[2] != ids[1]
    other = tmp_path / "same.json"
    other.write_text("[1]")
    assert cell_with(("workload", {"trace": str(other)})).id == ids[0]


APPROXIMATED = {
    "cluster": {"machine": "dgx-h100", "nodes": 16},
    "workload": {"collective": "all_reduce", "algorithm": "Tree", "sizes": ["64MiB"]},
    "outputs": ["csv"],
}


def first_row(folder: Path) -> dict[str, str]:
    """The first row of a folder's results."""
    with (folder / "results.csv").open(newline="") as stream:
        return next(csv.DictReader(stream))


@pytest.mark.slow
def test_a_cache_does_not_answer_an_exact_question_with_an_approximate_row(
    tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("NETSIM_CACHE", str(tmp_path / "rows.sqlite"))
    scenario = tmp_path / "approximated.yaml"
    scenario.write_text(yaml.safe_dump(APPROXIMATED))
    rows = {}
    for place, options in enumerate([("--cache",), ("--cache", "--exact"), ("--exact",)]):
        done = netsim(capsys, "run", scenario, "-o", tmp_path / str(place), *options)
        assert done.code == 0, done.err
        rows[options] = first_row(tmp_path / str(place))
    assert float(rows[("--cache",)]["approximation_pct"]) > 0
    assert rows[("--cache", "--exact")] == rows[("--exact",)]


def test_both_values_of_a_swept_exact_are_answered(tmp_path, capsys) -> None:
    scenario = tmp_path / "swept.yaml"
    sweep = {"exact": [False, True]}
    scenario.write_text(yaml.safe_dump({**BASE, "outputs": ["csv"], "sweep": sweep}))
    done = netsim(capsys, "run", scenario, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    lines = (tmp_path / "out" / "results.csv").read_text().splitlines()
    column = lines[0].split(",").index("cell")
    assert len({line.split(",")[column] for line in lines[1:]}) == 2
