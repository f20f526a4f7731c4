"""Textbook algorithms written once for all that is alike take the times of those in full."""

from pathlib import Path

import pytest

from netsim.base.errors import ScenarioError
from netsim.cli.traces import write_traces
from netsim.scenario.cells import expand
from netsim.tasks.explained import explained_run, shown_of
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.yamlio.read import parse_source
from tests.extent.cells import budget_with, representatives_of, simulate_size, sketch_of, within
from tests.nccl.test_folding import compare

MIB = 1 << 20

FABRICS = {
    "switch": "graph: {kind: switch, gpus: 12, bandwidth: 50GB/s, latency: 1us}",
    "odd switch": "graph: {kind: switch, gpus: 9, bandwidth: 50GB/s, latency: 1us}",
    "torus": "graph: {kind: torus, dims: [4, 4], bandwidth: 50GB/s, latency: 1us}",
    "ring": "graph: {kind: ring, gpus: 6, bandwidth: 50GB/s, latency: 1us}",
    "one switch": "machine: dgx-h100, nodes: 4, fabric: {kind: single-switch}",
    "rails": "machine: dgx-h100, nodes: 4",
    "three nodes": "machine: dgx-h100, nodes: 3",
    "rail-only": "machine: dgx-h100, nodes: 4, fabric: {kind: rail-only}",
    "leaf-spine": "machine: dgx-h100, nodes: 4, fabric: {kind: leaf-spine, nodes_per_leaf: 2, "
    "oversubscription: 2}",
    "hashed": "machine: dgx-h100, nodes: 4, fabric: {kind: leaf-spine, nodes_per_leaf: 1, "
    "routing: ecmp, oversubscription: 2}",
    "fat-tree": "machine: dgx-a100, nodes: 6, fabric: {kind: fat-tree, k: 8, levels: 3}",
    "slow link": "machine: dgx-h100, nodes: 4, faults: [{link: node1.nic3-leaf3, bandwidth: 50%}]",
    "slow GPU": "machine: dgx-h100, nodes: 4, faults: [{gpu: node1.gpu2, slowdown: 1.5}]",
    "uneven": "machine: dgx-h100, nodes: 4, overrides: [{node: 1, nics: [0, 1, 2, 3, 4, 5, 6]}]",
    "scattered": "machine: dgx-h100, nodes: 4, placement: random",
}
ALGORITHMS = [
    ("all_reduce", "ring"),
    ("all_gather", "ring"),
    ("reduce_scatter", "ring"),
    ("all_reduce", "tree"),
    ("broadcast", "binomial"),
    ("reduce", "binomial"),
    ("all_reduce", "hierarchical"),
    ("all_reduce", "halving-doubling"),
    ("all_gather", "recursive-doubling"),
    ("reduce_scatter", "recursive-halving"),
    ("alltoall", "hierarchical"),
]


def ready(
    cluster: str, collective: str, algorithm: str, size: int, fold: str = "auto"
) -> ResolvedCell:
    work = f"collective: {collective}, algorithm: {algorithm}, sizes: [{size}B]"
    text = f"cluster: {{{cluster}}}\nworkload: {{{work}}}\nfold: {fold}\n"
    return resolve(expand(parse_source(text, "scene.yaml"))[0])


def even(one: ResolvedCell) -> int:
    """A size that everybody has an equal part of."""
    return 4 * 64 * len(one.gpus) * 48


@pytest.mark.sample(19)
@pytest.mark.slow
@pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS)
@pytest.mark.parametrize("fabric", FABRICS)
def test_every_transfer_and_link_as_in_full(fabric: str, collective: str, algorithm: str) -> None:
    one = ready(FABRICS[fabric], collective, algorithm, MIB)
    for size in (even(one), even(one) + 4 * 7):
        assert sketch_of(one, size) is not None
        if representatives_of(one, size) is not None:
            assert compare(one, size) > 1


@pytest.mark.slow
def test_engines_agree() -> None:
    for algorithm in ("ring", "hierarchical"):
        one = ready(FABRICS["rails"], "all_reduce", algorithm, MIB)
        assert compare(one, even(one), "simpy") > 1


def test_what_is_asked_for_is_the_same_in_a_table() -> None:
    """Operations back to back, where some ranks end before others."""
    for algorithm in ("halving-doubling", "hierarchical", "ring"):
        folded = ready(FABRICS["rails"], "all_reduce", algorithm, 48 * MIB)
        full = ready(FABRICS["rails"], "all_reduce", algorithm, 48 * MIB, "off")
        here, there = (simulate_size(one, 48 * MIB)[0] for one in (folded, full))
        assert here.time_us == pytest.approx(there.time_us, rel=1e-9)
        assert here.bound_by == there.bound_by
        assert here.rows is not None
        assert there.rows is not None
        assert here.rows < there.rows


@pytest.mark.slow
def test_a_large_ring_fits_where_it_folds() -> None:
    cluster = "graph: {kind: switch, gpus: 65536, bandwidth: 50GB/s, latency: 1us}"
    one = ready(cluster, "all_reduce", "ring", 1 << 30)
    found, stands = sketch_of(one, 1 << 30), representatives_of(one, 1 << 30)
    assert found is not None
    assert stands is not None
    assert found.full == 2 * 65535 * 65536 + 65536
    assert found.rows(stands) == 2 * 65535 + 65536


ODD = [
    (
        "faults: [{link: node1.nic3-leaf3, bandwidth: 50%}]",
        "link node1.nic3->leaf3 has 24.55 GB/s where others have 49.1 GB/s",
    ),
    ("faults: [{gpu: node1.gpu2, slowdown: 1.5}]", "node1.gpu2 gives"),
    ("fabric: {kind: leaf-spine, nodes_per_leaf: 2, routing: ecmp}", "paths are chosen by hash"),
]


@pytest.mark.parametrize(("broken", "reason"), ODD)
def test_why_it_does_not_fit_is_said(
    broken: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 1000)
    with pytest.raises(ScenarioError, match="not folded: ") as raised:
        ready(f"machine: dgx-h100, nodes: 4, {broken}", "all_reduce", "ring", MIB)
    assert reason in str(raised.value)


def test_ways_that_differ_from_host_to_host_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 1000)
    with pytest.raises(ScenarioError, match="not folded: ways through the network differ"):
        ready(
            "machine: dgx-h100, nodes: 9, fabric: {kind: fat-tree, k: 12}",
            "alltoall",
            "hierarchical",
            MIB,
        )


SAMPLED = [
    ("machine: dgx-h100, nodes: 12, fabric: {kind: single-switch}", True),
    (
        "machine: dgx-h100, nodes: 12, fabric: {kind: leaf-spine, nodes_per_leaf: 3, "
        "routing: spray, oversubscription: 2}",
        True,
    ),
    ("machine: dgx-h100, nodes: 12, faults: [{link: node7.nic3-leaf3, bandwidth: 50%}]", None),
    (
        "machine: dgx-h100, nodes: 12, fabric: {kind: leaf-spine, nodes_per_leaf: 3, "
        "routing: spray, oversubscription: 2}, faults: [{link: leaf1-spine0, bandwidth: 50%}]",
        None,
    ),
    (
        "machine: dgx-h100, nodes: 12, fabric: {kind: leaf-spine, nodes_per_leaf: 1, "
        "routing: ecmp, oversubscription: 2}",
        None,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "folds"), SAMPLED)
def test_few_distances_stand_for_all_or_it_is_written_in_full(
    cluster: str, folds: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netsim.collectives.hierarchical.MOST_HOPS", 100)
    one = ready(cluster, "alltoall", "hierarchical", MIB)
    stands = representatives_of(one, even(one))
    if folds or stands is not None:
        assert compare(one, even(one)) > 1
    assert folds is None or stands is not None


def test_what_is_too_large_to_show_is_shown_folded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = ready(FABRICS["one switch"], "all_reduce", "hierarchical", 48 * MIB)
    assert not shown_of(one, 48 * MIB).notes
    few = within(one, budget_with(max_shown_rows=10))
    assert "represent all 32" in shown_of(few, 48 * MIB).notes[0]
    assert "represent all 32" in explained_run(few, 48 * MIB)[0]["title"]
    monkeypatch.setattr("netsim.extent.shown.rows_in_full", lambda *_: 10**9)
    files = write_traces([one.cell], tmp_path, "compiled")
    assert "represent all 32" in files[0]
    assert all(Path(file.split(" (")[0]).exists() for file in files)
