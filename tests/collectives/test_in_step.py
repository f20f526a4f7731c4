"""All-to-alls whose ranks keep step, of which one is written, take the times of those in full."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.extent.budget import USUAL_BUDGET, Budget
from netsim.extent.lockstep import ends_of_all
from netsim.scenario.cells import expand
from netsim.tasks.explained import shown_of
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.topology.graph import NODE_KINDS
from netsim.yamlio.read import parse_source
from tests.extent.cells import (
    bench_of,
    budget_with,
    folded,
    form_at,
    representatives_of,
    simulate_size,
    sketch_of,
    within,
)
from tests.nccl.test_folding import compare

MIB = 1 << 20
RAILS = "nodes: 12, gpus_per_node: 2, fabric: {kind: rail-optimized, ports: 8}"  # three levels
LEAVES = "nodes: 15, gpus_per_node: 4, fabric: {kind: leaf-spine, nodes_per_leaf: 3}"


SMALL = budget_with(
    USUAL_BUDGET, min_lockstep_steps=0, max_lockstep_spread=1e9
)  # few ranks are asked, and may end far apart


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of their steps are looked at."""
    monkeypatch.setattr("netsim.collectives.hierarchical.MOST_HOPS", 100)


def ready(cluster: str, size: int = MIB, more: str = "", limits: Budget = SMALL) -> ResolvedCell:
    work = f"collective: alltoall, algorithm: hierarchical, sizes: [{size}B], timing: single"
    machine = "" if cluster.startswith("machine") else "machine: dgx-h100, "
    text = f"cluster: {{{machine}{cluster}}}\nworkload: {{{work}}}\n{more}\n"
    return within(resolve(expand(parse_source(text, "scene.yaml"))[0]), limits)


def even(one: ResolvedCell, blocks: int = 1 << 16) -> int:
    return 4 * len(one.gpus) ** 2 * blocks


def spread_of(one: ResolvedCell, size: int) -> float | None:
    """By how much latencies differ, where ranks keep step."""
    sketch = sketch_of(one, size)
    found = sketch and sketch.lockstep(
        one.budget.thresholds.min_lockstep_steps, one.budget.thresholds.max_lockstep_spread
    )
    return found.spread if found else None


def compare_ends(one: ResolvedCell, size: int) -> None:
    """Every rank, with what differs from rank to rank, against the run in full."""
    bench = bench_of(one, size)
    spread = spread_of(one, size)
    assert spread is not None
    found = ends_of_all(form_at(one, size), bench.standalone(folded(one, size).schedule()), spread)
    full = (
        bench.standalone(form_at(one, size).loop_schedule.schedule()).ends.max(axis=0)
        - bench.launch.kernel
    )
    assert found == pytest.approx(full, rel=1e-12)


IN_STEP = [
    RAILS,
    LEAVES,
    "nodes: 16, gpus_per_node: 4, fabric: {kind: rail-optimized, ports: 8}",
    "nodes: 18, gpus_per_node: 2, fabric: {kind: leaf-spine, nodes_per_leaf: 3, spines: 4}",
    "nodes: 20, fabric: {kind: rail-optimized, nodes_per_unit: 4, link: 100GB/s}",
    "nodes: 12, gpus_per_node: 4, fabric: {kind: rail-only, nodes_per_unit: 4}",
    "nodes: 11, gpus_per_node: 2, fabric: {kind: single-switch}",
    LEAVES.replace("leaf: 3", "leaf: 3, routing: spray"),
    "nodes: 12, gpus_per_node: 2, fabric: {kind: leaf-spine, nodes_per_leaf: 4, routing: spray}",
    "nodes: 12, gpus_per_node: 2, fabric: {kind: dual-plane, nodes_per_unit: 4}",
]


@pytest.mark.slow
@pytest.mark.parametrize("cluster", IN_STEP)
def test_one_rank_tells_of_all(cluster: str) -> None:
    one = ready(cluster)
    size = even(one)
    fold = folded(one, size).schedule().fold
    assert fold is not None
    assert len(fold.leaders) == 1
    assert compare(one, size) > 12
    compare_ends(one, size)


@pytest.mark.parametrize("blocks", [1, 100, 3000, 1 << 18])
def test_messages_of_any_size(blocks: int) -> None:
    """Of short ones, some arrive later than others that were sent after them."""
    one = ready(RAILS)
    compare(one, even(one, blocks))
    compare_ends(one, even(one, blocks))


def test_engines_agree() -> None:
    one = ready(RAILS)
    assert compare(one, even(one), "simpy") > 12


MANY = [
    # three levels
    "nodes: 96, gpus_per_node: 2, fabric: {kind: rail-optimized, ports: 32, routing: static}",
    "nodes: 192, gpus_per_node: 2, "
    "fabric: {kind: rail-optimized, nodes_per_unit: 12, link: 200GB/s, routing: static}",
    "nodes: 120, gpus_per_node: 2, fabric: {kind: fat-tree, k: 16, routing: static}",
    "nodes: 128, gpus_per_node: 2, fabric: {kind: rail-only, nodes_per_unit: 16}",
]


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("cluster", MANY)
def test_what_some_distances_tell_holds_at_all(cluster: str) -> None:
    """No wire is asked for more than it has in any step, and those alike carry the same."""
    one = ready(cluster)
    assert spread_of(one, even(one)) is not None
    fold = folded(one, even(one)).schedule().fold
    assert fold is not None
    rate, rank = one.topology.links.bandwidth, np.arange(len(one.gpus), dtype=np.int32)
    total = np.zeros(len(rate))
    for distance in range(2, len(rank), 2):
        routes = one.topology.routes(rank, np.roll(rank, -distance), 0 * rank)
        wire = one.topology.links.resource[routes.link]
        alone = np.minimum.reduceat(rate[wire] / routes.fraction, routes.ptr[:-1])
        asked = np.bincount(
            wire, routes.fraction * np.repeat(alone, np.diff(routes.ptr)), len(rate)
        )
        assert (asked <= rate * (1 + 1e-9)).all()
        total += np.bincount(wire, routes.fraction, len(rate))
    crossed = np.flatnonzero(total)
    assert total[crossed] == pytest.approx(total[fold.wires.first[crossed]], rel=1e-12)


BROKEN = [
    f"{RAILS}, faults: [{{link: leaf9-spine11, bandwidth: 50%}}]",
    f"{RAILS}, faults: [{{link: spine1-core5, bandwidth: 99%}}]",
    f"{RAILS}, faults: [{{link: node10.nic1-leaf17, bandwidth: 90%}}]",
    f"{RAILS}, faults: [{{link: node7.gpu1-node7.nvswitch0, bandwidth: 80%}}]",
    f"{RAILS}, faults: [{{gpu: node11.gpu1, slowdown: 1.5}}]",
    f"{RAILS}, faults: [{{link: leaf9-spine11, bandwidth: 0GB/s}}]",
    f"{RAILS}, faults: [{{nic: node11.nic0}}]",
    f"{RAILS}, overrides: [{{node: 11, nics: [0, 2, 3]}}]",
    f"{RAILS}, placement: random",
    RAILS.replace("12", "13"),
    RAILS.replace("ports: 8", "ports: 8, routing: ecmp"),
    LEAVES.replace("leaf: 3", "leaf: 4"),
    LEAVES.replace("leaf: 3", "leaf: 3, oversubscription: 3"),
    f"{LEAVES[:-1]}, link: 25GB/s}}",
    "nodes: 10, gpus_per_node: 2, fabric: {kind: leaf-spine, nodes_per_leaf: 4, link: 100GB/s}",
    "machine: l40s-pcie-x8, nodes: 8, fabric: {kind: leaf-spine, nodes_per_leaf: 2}",
    "machine: v100-pcie-x4, nodes: 10, gpus_per_node: 2, nics_per_node: 2, fabric: "
    "{kind: single-switch}",  # what stays in a host and what leaves it share PCIe links
    "nodes: 8, fabric: {kind: torus, dims: [8]}",
]


@pytest.mark.sample(16)
@pytest.mark.slow
@pytest.mark.parametrize("cluster", BROKEN)
def test_whatever_could_slow_a_rank_keeps_all_apart(cluster: str) -> None:
    one = ready(cluster)
    assert spread_of(one, even(one)) is None
    if representatives_of(one, even(one)) is not None:
        compare(one, even(one))


def test_links_that_change_keep_ranks_apart() -> None:
    one = ready(RAILS)
    names = map(one.topology.link_name, range(len(one.topology.links)))
    topology = replace(one.topology, changes=((1e-6, list(names).index("leaf9->spine11"), 1e9),))
    assert spread_of(one, even(one)) is not None
    assert spread_of(replace(one, topology=topology), even(one)) is None


def test_ranks_that_start_in_turn_do_not_keep_step() -> None:
    one = ready(RAILS, more="launch: {style: single_process}")
    assert spread_of(one, even(one)) is None


FAR = ["leaf9-spine11", "spine0-core3", "node0.nic0-leaf0", "node7.nic1-leaf9"]


@pytest.mark.slow
@pytest.mark.parametrize("link", FAR)
def test_a_link_of_another_latency_changes_when_some_ranks_end(link: str) -> None:
    one = ready(f"{RAILS}, faults: [{{link: {link}, latency: 5us}}]")
    for blocks in (100, 1 << 16):
        size = even(one, blocks)
        compare_ends(one, size)
        full = ready(f"{RAILS}, faults: [{{link: {link}, latency: 5us}}]", size, "fold: off")
        here, there = (simulate_size(case, size)[1] for case in (one, full))
        assert here.seconds == pytest.approx(there.seconds, rel=1e-12)
        busiest = there.use.utilisation.max()
        assert here.use.utilisation.max() == pytest.approx(busiest, rel=1e-9)


@pytest.mark.parametrize("cluster", [RAILS, LEAVES])
def test_the_rows_of_a_table_are_the_same(cluster: str) -> None:
    size = even(ready(cluster))
    here, there = (simulate_size(ready(cluster, size, f), size)[0] for f in ("", "fold: off"))
    assert here.time_us == pytest.approx(there.time_us, rel=1e-12)
    assert here.bound_by == there.bound_by
    assert here.rows is not None
    assert there.rows is not None
    assert here.rows * 12 < there.rows


def test_short_messages_are_told_apart_by_latency() -> None:
    """Where ranks end far apart, one operation does not tell of many."""
    one = ready(RAILS, limits=budget_with(SMALL, max_lockstep_spread=1e-3))
    assert spread_of(one, even(one, 1)) is None
    assert spread_of(one, even(one, 1 << 24)) is not None


def test_what_is_shown_tells_latencies_apart() -> None:
    one = ready(RAILS, limits=budget_with(SMALL, max_shown_rows=10))
    fold = shown_of(one, even(one)).schedule.fold
    assert fold is not None
    assert len(fold.leaders) > 1


KINDS = (
    "kind: rail-optimized, ports: 8",
    "kind: rail-optimized, nodes_per_unit: 3",
    "kind: rail-optimized, nodes_per_unit: 2, link: 100GB/s",
    "kind: leaf-spine, nodes_per_leaf: 4",
    "kind: fat-tree",
    "kind: dual-plane, nodes_per_unit: 4",
    "kind: leaf-spine, nodes_per_leaf: 2, routing: spray",
)


@pytest.mark.slow
@settings(max_examples=14, deadline=None, derandomize=True)
@given(
    nodes=st.integers(4, 16),
    gpus=st.sampled_from([2, 3, 4]),
    kind=st.sampled_from(KINDS),
    fault=st.none() | st.tuples(st.integers(0, 1000), st.sampled_from(["90%", "2us"])),
)
def test_whoever_keeps_step_ends_as_in_full(
    nodes: int, gpus: int, kind: str, fault: tuple[int, str] | None
) -> None:
    cluster = f"nodes: {nodes}, gpus_per_node: {gpus}, fabric: {{{kind}}}"
    one = ready(cluster)
    if fault is not None:  # of one of the links between NICs and switches, or between switches
        switch = one.topology.node_kinds == NODE_KINDS.index("switch")
        links = one.topology.links
        outside = np.flatnonzero(switch[links.tail] | switch[links.head])
        name = one.topology.link_name(int(outside[fault[0] % len(outside)]))
        link = name.partition("#")[0].replace("->", "-")
        what = "bandwidth" if fault[1].endswith("%") else "latency"
        one = ready(f"{cluster}, faults: [{{link: {link}, {what}: {fault[1]}}}]")
    size = even(one, 5000)
    if spread_of(one, size) is not None:
        compare_ends(one, size)
