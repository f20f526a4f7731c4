"""Folded or in full, any textbook algorithm that folds takes the same times, whatever is broken."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.topology.graph import NODE_KINDS
from tests.collectives.test_textbook_folding import ALGORITHMS, MIB, even, ready
from tests.extent.cells import representatives_of
from tests.nccl.test_folding import compare

KINDS = (
    "kind: rail-optimized",
    "kind: single-switch",
    "kind: leaf-spine, nodes_per_leaf: 2, oversubscription: 2",
    "kind: leaf-spine, nodes_per_leaf: 1, oversubscription: 4, routing: spray",
)


@pytest.mark.slow
@settings(max_examples=18, deadline=None, derandomize=True)
@given(
    nodes=st.integers(2, 6),
    gpus=st.sampled_from([1, 2, 4]),
    kind=st.sampled_from(KINDS),
    algorithm=st.sampled_from(ALGORITHMS),
    slow=st.none() | st.integers(0, 1000),
)
def test_every_transfer_and_link_as_in_full(
    nodes: int, gpus: int, kind: str, algorithm: tuple[str, str], slow: int | None
) -> None:
    cluster = f"machine: dgx-h100, nodes: {nodes}, gpus_per_node: {gpus}, fabric: {{{kind}}}"
    one = ready(cluster, *algorithm, MIB)
    if slow is not None:  # one of the links between NICs and switches, or between switches
        switch = one.topology.node_kinds == NODE_KINDS.index("switch")
        links = one.topology.links
        outside = np.flatnonzero(switch[links.tail] | switch[links.head])
        link = one.topology.link_name(int(outside[slow % len(outside)])).replace("->", "-")
        cluster += f", faults: [{{link: {link}, bandwidth: 50%}}]"
        one = ready(cluster, *algorithm, MIB)
    if representatives_of(one, even(one)) is not None:
        compare(one, even(one))
