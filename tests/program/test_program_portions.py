"""Placing works in portions that fit into caches: where they end changes nothing."""

import numpy as np
import pytest

from netsim.base.memo import different
from netsim.program import partition
from netsim.program.path_entries import active_entries
from netsim.topology import network


def test_what_never_has_a_limit_limits_nobody() -> None:
    link = np.array([0, 1, 1, 2], np.int32)
    capacity = np.array([1.0, np.inf, 0.0])
    assert active_entries(link, capacity).tolist() == [True, False, False, True]
    assert active_entries(link, capacity, [(1.0, 1, 0.5)]).all()


@pytest.mark.parametrize("values", [[], [3], [5, 5, 5], [2, 1, 2, 0, 2]])
def test_different_values_are_in_order(values: list[int]) -> None:
    assert different(np.array(values, np.int64)).tolist() == sorted(set(values))


def test_numbers_are_mixed_alike_in_every_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.arange(1000, dtype=np.uint64)
    whole = partition.mixed(numbers)
    monkeypatch.setattr(network, "_BLOCK", 7)
    assert np.array_equal(partition.mixed(numbers), whole)
    assert len(np.unique(whole)) == len(numbers)
    assert int(whole[0]) == 0xE220A8397B1DCDAF  # the first number of SplitMix64 from 0
