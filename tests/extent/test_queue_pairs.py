"""Long rings whose connections have several queue pairs: extrapolated, though ranks may differ."""

import random

import pytest

from netsim.scenario.cells import expand
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.yamlio.read import parse_source
from tests.extent.cells import timed

FABRICS = (
    "{kind: rail-optimized, transport: roce}",
    "{kind: leaf-spine, transport: roce}",
    "{kind: leaf-spine, oversubscription: 2, transport: roce, nodes_per_leaf: 4}",
    "{kind: fat-tree, transport: roce}",
)


def cell(
    queue_pairs: int, fabric: str, workload: str, cluster: str, others: str = ""
) -> ResolvedCell:
    """A ring of NCCL's on hosts whose connections have several queue pairs."""
    text = (
        f"cluster: {{machine: dgx-h100, {cluster}, fabric: {fabric}}}\n"
        f"workload: {{algorithm: Ring, {workload}}}\n"
        f"nccl: {{env: {{NCCL_IB_QPS_PER_CONNECTION: '{queue_pairs}'}}}}\n{others}\n"
    )
    return resolve(expand(parse_source(text, "x.yaml"))[0])


def drawn(seed: int) -> ResolvedCell:
    """A ring of 72 ranks or more on some fabric, with two to four queue pairs."""
    some = random.Random(seed)
    gpus = some.choice((2, 4, 8))
    nodes = some.randint(-(-72 // gpus), 96 // gpus)
    collective = some.choice(("all_reduce", "all_gather", "reduce_scatter"))
    protocol = some.choice(("Simple", "LL128", "LL"))
    size = int(2 ** some.uniform(19, 25)) // 4 * 4
    return cell(
        some.choice((2, 2, 3, 4)),
        some.choice(FABRICS),
        f"collective: {collective}, protocol: {protocol}, sizes: [{size}B]",
        f"nodes: {nodes}, gpus_per_node: {gpus}",
        some.choice(("", "timing: single")),
    )


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_rings_are_extrapolated_within_what_they_state(seed: int) -> None:
    one = drawn(seed)
    size = one.cell.scenario.collective.size_list()[0]
    few, full = (
        timed(one, size, one.budget.with_thresholds(max_ring_rows=rows)) for rows in (0, 1e18)
    )
    assert one.topology.router.queue_pairs_in_turn > 1
    assert few.seconds == pytest.approx(full.seconds, rel=few.uncertainty + full.uncertainty + 1e-9)


def test_two_queue_pairs_do_not_make_a_large_ring_too_large() -> None:
    work = "collective: all_gather, protocol: LL, sizes: [64KiB]"
    one = cell(2, FABRICS[0], work, "nodes: 10, gpus_per_node: 8")
    found = timed(one, 64 << 10, one.budget.with_thresholds(max_ring_rows=0))
    assert "hops of rings" in found.approximation
    off = cell(2, FABRICS[0], work, "nodes: 10, gpus_per_node: 8", "fold: 'off'")
    whole = timed(off, 64 << 10, off.budget.with_thresholds(max_ring_rows=0))
    assert "hops of rings" not in whole.approximation
    assert found.seconds == pytest.approx(whole.seconds, rel=found.uncertainty + 1e-9)


@pytest.mark.slow
def test_a_ring_with_many_empty_chunks_is_not_taken_for_a_small_one() -> None:
    """Without its empty chunks it has 4 million rows, few enough for a full simulation; but it is
    the ring with these chunks that would be simulated in full: 230 million rows."""
    text = (
        "cluster: {machine: dgx-h100, nodes: 128, fabric: {kind: rail-optimized}}\n"
        "workload: {collective: all_reduce, sizes: [4GiB]}\n"
        "nccl: {version: 2.21.5, env: {NCCL_CROSS_NIC: '0'}}\n"
    )
    result = timed(resolve(expand(parse_source(text, "x.yaml"))[0]), 4 << 30)
    assert result.approximation == "31 of 1023 hops of rings"
    assert result.uncertainty < 0.05
