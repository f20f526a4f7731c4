"""Which of the equal-cost paths a connection takes: static, ecmp or spray.

A pure function of ports, channel and seed, so that a connection keeps its path. Paths over dead
links are left out as long as another one exists.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.topology.fabrics.fabric import Ints, Wiring
from netsim.values import dataclass

_CELLS = 500_000  # paths that are looked at together, to bound temporary memory


@dataclass(frozen=True, slots=True)
class Policy:
    """How paths are chosen: `static` by destination, `ecmp` by hash, `spray` over all equally.

    With ecmp a connection has `qps` queue pairs, each with a hash of its own. `dead` marks links
    of the fabric that carry nothing.
    """

    routing: str
    seed: int = 0
    qps: int = 1
    dead: NDArray[np.bool_] | None = None


def mix(*values: NDArray[Any] | int) -> NDArray[np.uint64]:
    """A fixed integer hash of several columns (splitmix64's finaliser after each)."""
    state: NDArray[np.uint64] = np.zeros(1, np.uint64)
    with np.errstate(over="ignore"):
        for value in values:
            state = state + np.asarray(value).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return state


def select_paths(
    wiring: Wiring, policy: Policy, src: Ints, dst: Ints, channel: Ints
) -> tuple[Ints, NDArray[np.float64]]:
    """Links between the switches of each pair of ports and the part of the bytes on each."""
    counts = wiring.choices(src, dst)
    if policy.routing == "spray":
        return _spread(wiring, policy, src, dst, counts)
    draws = range(policy.qps if policy.routing == "ecmp" else 1)
    parts = []
    for qp in draws:
        static = policy.routing == "static"
        number = wiring.order(dst) if static else mix(policy.seed, src, dst, channel, qp)
        choice = (number % np.maximum(counts, 1).astype(number.dtype)).astype(np.int32)
        hops = wiring.hops(src, dst, choice)
        parts.append(_around_dead(wiring, policy, (src, dst, counts), hops, number))
    width = max(part.shape[1] for part in parts)
    hops = np.concatenate([_wide(part, width) for part in parts], axis=1)
    return hops, np.full(hops.shape, 1 / len(parts))


def _around_dead(
    wiring: Wiring,
    policy: Policy,
    pairs: tuple[Ints, Ints, Ints],
    hops: Ints,
    number: NDArray[np.int32] | NDArray[np.uint64],
) -> Ints:
    """The paths, but another one for every pair whose own crosses a dead link, if there is one."""
    if policy.dead is None:
        return hops
    broken = np.flatnonzero((policy.dead[hops] & (hops >= 0)).any(axis=1))
    for pair in broken:
        src, dst, count = (column[pair : pair + 1] for column in pairs)
        every = np.arange(int(count[0]), dtype=np.int32)
        paths = wiring.hops(src.repeat(len(every)), dst.repeat(len(every)), every)
        alive = np.flatnonzero(~(policy.dead[paths] & (paths >= 0)).any(axis=1))
        if len(alive):
            chosen = paths[alive[int(number[pair]) % len(alive)]]
            hops = _wide(hops, len(chosen))
            hops[pair] = -1
            hops[pair, : len(chosen)] = chosen
    return hops


def _spread(
    wiring: Wiring, policy: Policy, src: Ints, dst: Ints, counts: Ints
) -> tuple[Ints, NDArray[np.float64]]:
    """Every path of each pair, with equal parts of the bytes; some pairs at a time."""
    most = max(1, int(counts.max(initial=0)))
    at_once = max(1, _CELLS // most)
    if len(src) > at_once:
        parts = [
            _spread(
                wiring, policy, src[n : n + at_once], dst[n : n + at_once], counts[n : n + at_once]
            )
            for n in range(0, len(src), at_once)
        ]
        width = max(hops.shape[1] for hops, _ in parts)
        hops = np.concatenate([_wide(hops, width) for hops, _ in parts])
        missing = [(part, width - part.shape[1]) for _, part in parts]
        return hops, np.concatenate([np.pad(part, [(0, 0), (0, n)]) for part, n in missing])
    every = np.arange(most, dtype=np.int32)
    pairs = [column.repeat(most) for column in (src, dst, counts)]
    choice = np.tile(every, len(src))
    paths = wiring.hops(pairs[0], pairs[1], choice % np.maximum(pairs[2], 1))
    alive = choice < pairs[2]
    if policy.dead is not None:
        living = alive & ~(policy.dead[paths] & (paths >= 0)).any(axis=1)
        some = living.reshape(-1, most).any(axis=1).repeat(most)
        alive = np.where(some, living, alive)
    part = alive / np.maximum(alive.reshape(-1, most).sum(axis=1), 1).repeat(most)
    hops = np.where(alive[:, None], paths, -1).reshape(len(src), -1)
    fraction = np.repeat(part[:, None], paths.shape[1], axis=1).reshape(len(src), -1)
    return _merged(hops, fraction)


def _merged(hops: Ints, fraction: NDArray[np.float64]) -> tuple[Ints, NDArray[np.float64]]:
    """Each link once, with all that goes over it."""
    order = np.argsort(np.where(hops < 0, np.iinfo(np.int32).max, hops), axis=1, kind="stable")
    hops = np.take_along_axis(hops, order, axis=1)
    total = np.cumsum(np.take_along_axis(fraction, order, axis=1) * (hops >= 0), axis=1)
    last = np.ones(hops.shape, bool)
    last[:, :-1] = hops[:, 1:] != hops[:, :-1]
    until = np.maximum.accumulate(np.where(last, total, 0.0), axis=1)
    before = np.concatenate([np.zeros((len(hops), 1)), until[:, :-1]], axis=1)
    keep = last & (hops >= 0)
    width = int(keep.sum(axis=1).max(initial=0))
    front = np.argsort(~keep, axis=1, kind="stable")[:, :width]
    hops = np.take_along_axis(np.where(keep, hops, -1), front, axis=1)
    return hops, np.take_along_axis(np.where(keep, total - before, 0.0), front, axis=1)


def _wide(hops: Ints, width: int) -> Ints:
    missing = max(0, width - hops.shape[1])
    return np.pad(hops, [(0, 0), (0, missing)], constant_values=-1)
