"""Algorithms for tori: right at many shapes, as fast as closed forms, best where they should."""

from math import prod

import numpy as np
import pytest

from netsim.collectives.collective import Collective, CollectiveError, collective_of, volumes
from netsim.collectives.ring import multi_ring
from netsim.collectives.table import build
from netsim.collectives.verify import check_races, verify
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.topology.routing import torus

SHAPES = {
    "bucket": ([4], [6], [2, 3], [4, 4], [3, 1, 2], [3, 2, 2], [2, 2, 2, 2]),
    "multi-ring": ([4], [6], [3, 3], [4, 2], [2, 4], [1, 5]),
    "swing": ([1], [2], [8], [16], [4, 4], [8, 2], [2, 2, 2]),
}
CASES = [
    (name, algorithm, dims)
    for name in ("all_reduce", "all_gather", "reduce_scatter")
    for algorithm, shapes in SHAPES.items()
    for dims in shapes
]
MIB, RATE, HOP = 2**20, 50e9, 5e-7


@pytest.mark.sample(7)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "algorithm", "dims"), CASES, ids=str)
def test_every_shape_is_right_without_races(name: str, algorithm: str, dims: list[int]) -> None:
    n = prod(dims)
    every = ((0, False, None), (1, True, 1), (8 * n + 3, False, None), (2 * n + 1, True, None),
             (n, False, 3))  # fmt: skip
    for count, in_place, ports in every if n < 16 else every[2:4]:
        collective = Collective(name, n, count, in_place=in_place)
        schedule = build(collective, algorithm, dims=dims, ports=ports)
        verify(schedule, collective)
        check_races(schedule, collective)


@pytest.mark.sample(34)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "algorithm", "dims"), CASES, ids=str)
def test_everyone_sends_as_little_as_possible(name: str, algorithm: str, dims: list[int]) -> None:
    n = prod(dims)
    collective = Collective(name, n, 24 * n if name == "all_reduce" else 24)
    times = 2 if name == "all_reduce" else 1
    for nbytes in volumes(build(collective, algorithm, dims=dims, ports=4)):
        assert nbytes.tolist() == [times * (n - 1) * collective.size_bytes / n] * n


@pytest.mark.parametrize("dims", [[3, 3], [8, 4], [4, 8], [8, 8], [4, 16]])
def test_cycles_go_along_links_and_share_none(dims: list[int]) -> None:
    used: set[tuple[int, int]] = set()
    for plan in multi_ring(prod(dims), dims, None):
        ranks = np.arange(prod(dims))
        to = plan.steps[0].to
        here, there = (np.array(np.unravel_index(r, dims)) for r in (ranks, to))
        apart = (there - here) % np.array(dims)[:, None]
        apart = np.minimum(apart, np.array(dims)[:, None] - apart)
        assert (apart.sum(axis=0) == 1).all()
        links = set(zip(ranks.tolist(), to.tolist(), strict=True))
        assert len(links) == prod(dims)
        assert not used & links
        used |= links
    assert len(used) == 2 * len(dims) * prod(dims)  # every link, both ways


def seconds(algorithm: str, size: int, dims: list[int]) -> float:
    collective = collective_of("all_reduce", prod(dims), size)
    named = {"dims": dims} if algorithm in SHAPES else {}
    schedule = build(collective, algorithm, **named)
    return simulate(place(schedule, torus(dims, RATE, HOP)), "compiled").makespan


@pytest.mark.parametrize("dims", [[6], [4, 4], [3, 3, 3]])
def test_buckets_take_what_their_closed_form_says(dims: list[int]) -> None:
    """Every link carries its part all the time, and every step waits for one hop."""
    n, d = prod(dims), len(dims)
    size = 4 * 2 * d * n * 64
    steps = 2 * sum(extent - 1 for extent in dims)
    closed = steps * HOP + 2 * (n - 1) / n * size / (2 * d * RATE)
    assert seconds("bucket", size, dims) == pytest.approx(closed, rel=1e-9)


def test_swings_take_few_steps_over_short_ways() -> None:
    """4 x 4: distances 1, 1, 1, 1 there and back, on all links at once."""
    size = 4 * 4 * 16 * 64
    closed = 8 * HOP + 2 * 15 / 16 * size / (4 * RATE)
    assert seconds("swing", size, [4, 4]) == pytest.approx(closed, rel=1e-9)


@pytest.mark.slow
def test_swings_are_for_small_and_buckets_for_large_messages() -> None:
    """The trends that were published for tori (De Sensi et al., 2024)."""
    small = {
        name: seconds(name, 4096, [8, 8])
        for name in ("swing", "bucket", "ring", "halving-doubling")
    }
    assert min(small, key=lambda name: small[name]) == "swing"
    assert small["bucket"] > 1.3 * small["swing"]
    large = {
        name: seconds(name, 64 * MIB, [8, 8])
        for name in ("swing", "bucket", "ring", "halving-doubling")
    }
    assert min(large, key=lambda name: large[name]) == "bucket"
    assert 1.05 < large["swing"] / large["bucket"] < 1.3  # some links carry two messages
    assert large["ring"] > 3.5 * large["bucket"]  # one way round of four


@pytest.mark.parametrize(
    ("algorithm", "ranks", "given", "text"),
    [
        ("swing", 6, {}, "ranks: swing takes powers of two, got 6"),
        ("swing", 12, {"dims": [4, 3]}, "dims: swing takes powers of two, got 4 x 3"),
        ("bucket", 12, {"dims": [4, 4]}, "dims: a torus of 4 x 4 has 16 ranks, not 12"),
        ("bucket", 4, {"dims": 4}, "dims: expected extents such as [4, 4], got 4"),
        ("multi-ring", 12, {"dims": [4, 3]}, "dims: expected one dimension, or two of which"),
        ("bucket", 4, {"ports": 0}, "ports: expected a whole number from 1 up, got 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    algorithm: str, ranks: int, given: dict[str, object], text: str
) -> None:
    with pytest.raises(CollectiveError) as caught:
        build(Collective("all_reduce", ranks, 4), algorithm, **given)
    assert str(caught.value).startswith(text)
