"""A sweep over parts says what each part costs, and which parts the job cannot lose."""

import csv

import pytest
import yaml

from netsim.base.errors import InvariantError, StalledError
from netsim.scenario.cells import expand_all
from netsim.sweep import parts
from netsim.sweep import run as sweep
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim

TWO_LEAVES = {"kind": "leaf-spine", "nodes_per_leaf": 2, "nodes": 4, "routing": "static"}
CLUSTER = {
    "machine": "dgx-h100",
    "nodes": 4,
    "gpus_per_node": 2,
    "nics_per_node": 2,
    "fabric": TWO_LEAVES,
}


def scenario_of(faults: str, **sections: object) -> dict[str, object]:
    """A scenario that sweeps over the parts of a cluster."""
    sweep_section = {"faults": faults, **sections.pop("sweep", {})}  # type: ignore[dict-item]
    return {
        "cluster": CLUSTER,
        "workload": {"collective": "all_reduce", "sizes": ["1MiB", "16MiB"]},
        "sweep": sweep_section,
        "outputs": ["csv"],
        **sections,
    }


@pytest.fixture
def run(capsys, tmp_path):
    """Runs a scenario; returns the outcome and the rows of results.csv."""

    def of_scenario(scenario: dict[str, object], *options: str):
        file = tmp_path / "parts.yaml"
        file.write_text(yaml.safe_dump(scenario))
        found = netsim(capsys, "run", str(file), "-o", str(tmp_path / "out"), *options)
        results = tmp_path / "out" / "results.csv"
        text = results.read_text() if results.exists() else ""
        rows = list(csv.DictReader(text.splitlines()))
        return found, rows

    return of_scenario


def cost_lines(text: str) -> list[str]:
    """The lines about parts."""
    return [line for line in text.splitlines() if "healthy cluster" in line or "cannot run" in line]


@pytest.mark.slow
def test_a_sweep_over_switches_compares_each_with_the_healthy_cluster(run) -> None:
    found, rows = run(scenario_of("each switch"))
    assert found.code == 0
    assert "best at" not in found.err
    times = {
        row["axis:faults"]: float(row["time_us"]) for row in rows if row["size_bytes"] == "16777216"
    }
    assert {"healthy", "spine0"} <= set(times)
    extra = f"{times['spine0'] / times['healthy'] - 1:.0%}".replace("%", " %")
    compared, lost = cost_lines(found.err)
    assert compared.startswith("compared with the healthy cluster at 16 MiB (")
    assert f"most costs spine0, spine1 ({extra} more time), least spine2, spine3" in compared
    assert times["spine2"] == pytest.approx(times["healthy"])
    assert lost.startswith("it cannot run with one of these at fault (2 of 6): leaf0, leaf1: ")
    assert "NIC" in lost


def test_a_part_that_the_job_cannot_lose_is_a_row_with_its_reason(run) -> None:
    _, rows = run(scenario_of("each leaf"))
    by_part = {row["axis:faults"]: row for row in rows}
    assert list(by_part) == ["healthy", "leaf0", "leaf1"]
    assert by_part["healthy"]["status"] == "ok"
    for leaf in ("leaf0", "leaf1"):
        assert by_part[leaf]["status"] == "invalid"
        assert "NIC" in by_part[leaf]["error"]


@pytest.mark.slow
def test_a_sweep_whose_healthy_cell_is_wrong_is_refused(run) -> None:
    scenario = scenario_of("each leaf", sweep={"workload.algorithm": ["ring", "Rung"]})
    found, rows = run(scenario)
    assert (found.code, rows) == (2, [])
    assert "Rung" in found.err
    found, rows = run(scenario, "--skip-invalid")
    assert found.code == 0
    assert {row["axis:workload.algorithm"] for row in rows if row["status"] == "ok"} == {"ring"}


def stall_at(monkeypatch, part: str, error: Exception) -> None:
    """Let the simulation of one part end with an error."""
    usual = sweep.answer

    def answer(resolved, size, **options):
        if resolved.cell.axes["faults"] == part:
            raise error
        return usual(resolved, size, **options)

    monkeypatch.setattr(sweep, "answer", answer)


@pytest.mark.slow
def test_an_operation_that_waits_for_a_dead_part_does_not_end_the_sweep(run, monkeypatch) -> None:
    stall_at(monkeypatch, "rail 1", StalledError("rank 1 waits for node0.nic1->leaf0"))
    found, rows = run(scenario_of("each rail"))
    assert found.code == 0, found.err
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "ok", "error", "error"]
    assert cost_lines(found.err)[-1] == (
        "it cannot run with one of these at fault (1 of 2): rail 1: "
        "rank 1 waits for node0.nic1->leaf0"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "error"),
    [
        ("healthy", StalledError("rank 1 waits")),
        ("rail 1", InvariantError("rail 1", ("time is negative",))),
    ],
)
def test_other_errors_end_a_sweep_over_parts(run, monkeypatch, part, error) -> None:
    stall_at(monkeypatch, part, error)
    found, _ = run(scenario_of("each rail"))
    assert found.code == 3


def test_a_stall_ends_a_sweep_that_is_not_over_parts(run, monkeypatch) -> None:
    stall_at(monkeypatch, "b", StalledError("rank 1 waits"))
    variants = {"faults": {"a": {}, "b": {"cluster.faults": [{"rail": 1}]}}}
    scenario = {**scenario_of("each rail"), "sweep": {"variants": variants}}
    found, _ = run(scenario)
    assert found.code == 3


def test_parts_are_conditions_of_other_choices_and_compared_where_there_is_none() -> None:
    def sweep_of(**axes: object):
        text = yaml.safe_dump(scenario_of("each rail", sweep=axes))
        return expand_all(parse_source(text, "parts.yaml")).sweep

    assert sweep_of().conditions == []
    assert sweep_of(seeds=2).conditions == []
    assert sweep_of(**{"cluster.nodes": [2, 4]}).conditions == ["cluster.nodes"]
    assert sweep_of(**{"workload.algorithm": ["Ring", "Tree"]}).conditions == ["faults"]


@pytest.mark.slow
def test_the_best_choice_is_told_beside_what_parts_cost(run) -> None:
    found, _ = run(scenario_of("each rail", sweep={"workload.algorithm": ["Ring", "Tree"]}))
    assert "compared with the healthy cluster at 16 MiB (on average over 2 cells)" in found.err
    assert "best under" in found.err
    assert "faults healthy" not in found.err


def test_the_most_and_the_least_costly_parts_are_named() -> None:
    times = [parts.PartTime("healthy", (), 100.0), parts.PartTime("a", (), 150.0),
             parts.PartTime("b", (), 100.0), parts.PartTime("c", (), 120.0)]  # fmt: skip
    (line,) = parts.sentences(parts.part_costs(times, {}), " at 1 MiB")
    assert line == (
        "compared with the healthy cluster at 1 MiB (100 us), "
        "most costs a (50 % more time), least b (nothing)"
    )


def test_costs_over_several_settings_are_geometric_means_of_equal_settings() -> None:
    times = [
        parts.PartTime("healthy", ("2",), 100.0), parts.PartTime("a", ("2",), 200.0),
        parts.PartTime("healthy", ("4",), 100.0), parts.PartTime("a", ("4",), 800.0),
        parts.PartTime("a", ("8",), 9000.0),
    ]  # fmt: skip
    (cost,) = parts.part_costs(times, {}).costs
    assert cost.ratio == pytest.approx(4.0)
