"""Figures of graphs: what arithmetic says of rings, tori, meshes and switches."""

import pytest

from netsim.topology.figures import graph_figures
from netsim.topology.routing import full_mesh, ring, switch, torus

GB = 1e9


@pytest.mark.parametrize(
    ("topology", "out", "bisection", "diameter"),
    [
        (ring(8, 50 * GB, 1e-6), 100, 100, 4),
        (ring(4096, 50 * GB, 1e-6), 100, 100, 2048),
        (torus([4, 4], 50 * GB, 1e-6), 200, 400, 4),
        (torus([16, 8, 8], 50 * GB, 1e-6), 300, 2 * 64 * 50, 16),
        (full_mesh(8, 50 * GB, 1e-6), 350, 16 * 50, 1),
        (switch(8, 50 * GB, 2e-6), 50, 200, 2),
        (torus([3, 5], 7 * GB / 3, 1e-6), 28 / 3, None, 3),
    ],
)
def test_regular_graphs(topology, out, bisection, diameter) -> None:
    found = graph_figures(topology)
    assert found.out == pytest.approx(out * GB)
    assert found.diameter == diameter
    assert found.latency == pytest.approx(diameter * 1e-6)
    if bisection is not None:
        assert found.bisection == pytest.approx(bisection * GB, rel=1e-5)


@pytest.mark.parametrize(("gpus", "cables"), [(1, 0), (2, 1), (3, 3), (7, 7)])
def test_a_ring_has_a_cable_for_every_gpu_but_one_for_two(gpus: int, cables: int) -> None:
    links = ring(gpus, GB).links
    assert len(links) == 2 * cables
    ends = {frozenset(pair) for pair in zip(links.tail.tolist(), links.head.tolist(), strict=True)}
    assert len(ends) == cables
