"""`sweep: {faults: each nic}` goes through the parts of a cluster, each dead in one cell."""

import pytest
import yaml

from netsim.base.errors import InputError
from netsim.scenario.cells import Cell, expand, expand_all
from netsim.tasks.answer import answer, resolve_any
from netsim.yamlio.read import parse_source

CLUSTER = {"machine": "dgx-h100", "nodes": 2, "gpus_per_node": 2, "nics_per_node": 2}
RAILS = {**CLUSTER, "fabric": {"kind": "rail-optimized", "nodes_per_unit": 1}}


def cells_of(faults: str, cluster: dict = RAILS) -> list[Cell]:
    """The cells of a sweep over parts."""
    work = {"collective": "all_reduce", "sizes": ["4MiB"]}
    scenario = {"cluster": cluster, "workload": work, "sweep": {"faults": faults}}
    return expand(parse_source(yaml.safe_dump(scenario), "parts.yaml"))


@pytest.mark.parametrize(
    ("faults", "labels"),
    [
        ("each nic", ["node0.nic0", "node0.nic1", "node1.nic0", "node1.nic1"]),
        ("each rail", ["rail 0", "rail 1"]),
        ("each leaf", ["leaf0", "leaf1", "leaf2", "leaf3"]),
        ("each spines", ["spine0"]),
        ("each host", ["without node0", "without node1"]),
        ("each host at 50%", ["node0", "node1"]),
    ],
)
def test_a_sweep_over_parts_has_the_healthy_cluster_and_each_part(faults, labels):
    cells = cells_of(faults)
    assert [cell.axes["faults"] for cell in cells] == ["healthy", *labels]
    assert len({cell.id for cell in cells}) == len(cells)


@pytest.mark.slow
def test_a_part_at_half_its_rate_costs_the_same_in_every_host():
    times = {}
    for cell in cells_of("each nic at 50%"):
        times[cell.axes["faults"]] = answer(resolve_any(cell), 4 << 20).time_us
    healthy = times.pop("healthy")
    assert min(times.values()) > healthy
    assert max(times.values()) == pytest.approx(min(times.values()), rel=1e-9)


def test_without_a_host_the_job_runs_on_the_others_of_the_same_fabric():
    three = {**RAILS, "nodes": 3}
    cell = cells_of("each host", three)[2]
    assert cell.scenario.cluster.nodes == 2
    assert cell.scenario.cluster.fabric.nodes == 3
    assert cell.scenario.cluster.placement == (0, 2)
    assert answer(resolve_any(cell), 4 << 20).ranks == 4


def test_faults_of_the_cluster_stay_and_the_healthy_cell_is_the_base():
    faults = [{"gpu": "node0.gpu0", "slowdown": 2}]
    cells = cells_of("each rail", {**RAILS, "faults": faults})
    assert [len(cell.scenario.cluster.faults) for cell in cells] == [1, 2, 2]
    text = yaml.safe_dump(
        {
            "cluster": RAILS,
            "workload": {"collective": "all_reduce", "sizes": ["4MiB"]},
            "sweep": {"faults": "each rail"},
        }
    )
    sweep = expand_all(parse_source(text, "parts.yaml")).sweep
    assert sweep.base == {"faults": "healthy"}


@pytest.mark.parametrize(
    ("faults", "cluster", "message"),
    [
        ("each nik", RAILS, "expected one of each nic, each rail"),
        ("each spine", {**RAILS, "fabric": {"kind": "single-switch"}}, "this cluster has no spine"),
        ("each nic", {"graph": {"kind": "ring", "gpus": 4, "bandwidth": "1GB/s"}}, "of machines"),
        ("each host", {**RAILS, "nodes": 1}, "two hosts or more"),
    ],
)
def test_parts_that_are_not_there_are_refused_with_the_place(faults, cluster, message):
    with pytest.raises(InputError) as error:
        cells_of(faults, cluster)
    assert message in str(error.value)
    assert "parts.yaml:" in str(error.value)
