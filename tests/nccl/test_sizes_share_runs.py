"""Runs of a few loops are the same for calls of several sizes, and simulated for one of them."""

import pytest

from netsim.cell.prepare import Prepared
from netsim.cell.simulate import simulate_size
from netsim.timing.bench import Bench
from tests.nccl.test_folding import prepared

GIB = 1 << 30


def ready(protocol: str = "Simple") -> Prepared:
    flags = {"fabric": "rail-optimized", "proto": protocol}
    return prepared("dgx-h100", "all_reduce", 3, "NVLSTree", **flags)


def test_a_size_is_answered_the_same_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, runs = Bench.alone, list[int]()

    def counted(bench: Bench, schedule: object) -> object:
        runs.append(len(schedule))  # type: ignore[arg-type]
        return alone(bench, schedule)  # type: ignore[arg-type]

    monkeypatch.setattr(Bench, "alone", counted)
    monkeypatch.setattr("netsim.timing.bench.BUDGET_ROWS", 1000)  # so that few loops are tried
    fresh = simulate_size(ready(), 4 * GIB)[0]
    first = len(runs)
    both = ready()
    simulate_size(both, 2 * GIB)
    runs.clear()
    assert simulate_size(both, 4 * GIB)[0] == fresh
    assert len(runs) < first


def test_what_moves_other_data_is_another_run() -> None:
    one = ready()
    calls = [one.looped(size, folded=folded) for size, folded in ((GIB, True), (2 * GIB, True))]
    assert calls[0].like is not None
    assert calls[0].like(8, 1) == calls[1].like(8, 1)
    assert calls[0].like(8, 1) != calls[1].like(9, 1)
    assert calls[0].like(8, 1) != calls[0].like(8, 2)
    assert calls[0].like(8, 1) != one.looped(GIB).like(8, 1)
    uneven = one.looped(GIB + 4096 * 3, folded=True)
    assert uneven.like(8, 1) != calls[0].like(8, 1)
