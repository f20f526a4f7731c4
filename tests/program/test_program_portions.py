"""Placing works in portions that fit into caches: where they end changes nothing."""

import importlib
import itertools

import numpy as np
import pytest

from netsim.base.memo import different
from netsim.program import symmetry
from netsim.topology import network

active = importlib.import_module("netsim.program.ways")
WAYS, LINKS = 60, 12


def paths(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Random paths over few resources, some of them without limit or without capacity."""
    random = np.random.default_rng(seed)
    links = [random.permutation(LINKS)[: random.integers(0, 6)] for _ in range(WAYS)]
    ptr = np.cumsum([0, *map(len, links)])
    weight = random.integers(1, 3, ptr[-1]).astype(float)
    capacity = random.choice([0.0, 1.0, 2.0, 3.0, np.inf], LINKS)
    return ptr, np.concatenate(links).astype(np.int32), weight, capacity


def needless(table: tuple[np.ndarray, ...], link: int) -> bool:
    """Whether everyone who uses a resource also uses one that is as tight for them, or it has no
    limit, in the plainest code.
    """
    ptr, links, weight, capacity = table
    if np.isinf(capacity[link]):
        return True
    users = [range(a, b) for a, b in itertools.pairwise(ptr.tolist())]
    users = [entries for entries in users if link in links[list(entries)]]
    for other in set(range(LINKS)) - {link}:
        loads = []
        for entries in users:
            own = {int(links[e]): weight[e] for e in entries}
            with np.errstate(divide="ignore"):
                loads.append(
                    other in own
                    and np.divide(own[other], capacity[other])
                    >= np.divide(own[link], capacity[link])
                )
        if all(loads):
            return True
    return False


@pytest.mark.parametrize("seed", range(40))
def test_only_what_another_resource_stands_for_is_left_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = paths(seed)
    found = active.active_entries(*table)
    for link in np.unique(table[1]).tolist():
        kept = found[table[1] == link]
        assert kept.all() or (not kept.any() and needless(table, link))
    for size in (1, 7):
        monkeypatch.setattr(active, "_PATHS_AT_A_TIME", size)
        assert np.array_equal(active.active_entries(*table), found)


def test_a_resource_that_is_always_behind_a_tighter_one_is_left_out() -> None:
    ptr, link = np.array([0, 2, 4]), np.array([0, 1, 1, 0], np.int32)
    found = active.active_entries(ptr, link, np.ones(4), np.array([1.0, 2.0]))
    assert found.tolist() == [True, False, False, True]
    later = ((1.0, 1, 0.5),)  # the wider one becomes the tighter one
    assert active.active_entries(ptr, link, np.ones(4), np.array([1.0, 2.0]), later).all()


@pytest.mark.parametrize("values", [[], [3], [5, 5, 5], [2, 1, 2, 0, 2]])
def test_different_values_are_in_order(values: list[int]) -> None:
    assert different(np.array(values, np.int64)).tolist() == sorted(set(values))


def test_numbers_are_mixed_alike_in_every_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.arange(1000, dtype=np.uint64)
    whole = symmetry.mixed(numbers)
    monkeypatch.setattr(network, "_BLOCK", 7)
    assert np.array_equal(symmetry.mixed(numbers), whole)
    assert len(np.unique(whole)) == len(numbers)
    assert int(whole[0]) == 0xE220A8397B1DCDAF  # the first number of SplitMix64 from 0
