"""Proofs of NCCL's schedules notice what is wrong: mutants of rows, data, order and slots."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.collectives.verify import RaceError, VerificationError
from netsim.nccl.schedules.plan import Plan
from netsim.schedule.schedule import MARK, TRANSFER, Schedule, Style
from tests.nccl.nccl_plans import small_plan
from tests.nccl.proof import EMPTIED, FREED, NOTICED, Proof, Written, written
from tests.nccl.test_schedules_collnet import chains_of, heads_of
from tests.nccl.test_schedules_send_recv import plan_of

TRIED = 3  # mutants of a kind and call


def ring(name: str, protocol: str, nodes: int, local: int, count: int) -> tuple[Collective, Plan]:
    root = {"root": 1} if name in ("broadcast", "reduce") else {}
    slots = {"LL": 2, "Simple": 8}[protocol]
    plan = small_plan("Ring", protocol, nodes, local, count, channels=1, slots=slots)
    return Collective(name, nodes * local, count, 4, **root), plan


def summed(algorithm: str, **given: object) -> tuple[Collective, Plan]:
    values = {"chunk": 64, "heads": heads_of(3, 2, 2), "nic_routes": ("net",) * 2, **given}
    if algorithm == "Tree":
        values["chunk"] = 0
    plan = small_plan(
        algorithm,
        given.pop("protocol", "Simple"),
        3,
        2,
        4000,
        channels=1,
        **{name: value for name, value in values.items() if name != "protocol"},
    )
    return Collective("all_reduce", 6, 4000, 4), plan


def sends(nodes: int) -> tuple[Collective, Plan]:
    c = Collective("alltoall", 6, 9001, 4)
    return c, plan_of(c, nodes, chunk=1024, slots=2)


CALLS: dict[str, Callable[[], tuple[Collective, Plan]]] = {
    "ring": lambda: ring("all_reduce", "Simple", 3, 2, 5200),
    "ring of LL": lambda: ring("all_reduce", "LL", 3, 2, 1000),
    "gather": lambda: ring("all_gather", "LL", 2, 2, 400),
    "scatter": lambda: ring("reduce_scatter", "Simple", 1, 4, 4000),
    "chain": lambda: ring("broadcast", "Simple", 2, 2, 9000),
    "chain up": lambda: ring("reduce", "LL", 2, 2, 700),
    "tree": lambda: summed("Tree"),
    "tree of LL": lambda: summed("Tree", protocol="LL"),
    "switch tree": lambda: summed("NVLSTree"),
    "switches": lambda: summed("NVLS"),
    "heads": lambda: summed("CollNetDirect"),
    "chains": lambda: summed("CollNetChain", chains=chains_of(3, 2)),
    "rotated trees": lambda: (
        Collective("reduce_scatter", 6, 900, 4),
        small_plan("PAT", "Simple", 6, 1, 900, chunk=64, slot_bytes=128, slots=2),
    ),
    "sends": lambda: sends(1),
    "sends over a network": lambda: sends(3),
}


@cache
def proven(name: str) -> tuple[Collective, Plan, Written]:
    c, plan = CALLS[name]()
    what = written(c, plan)
    proof = Proof(c, plan, what)
    proof.verify()
    proof.check_races()
    return c, plan, what


def moving(made: Schedule) -> list[int]:
    """The rows that move data, but for what a rank copies to itself at once."""
    kinds = np.array([style.kind != MARK and not style.stream for style in made.styles])
    return np.flatnonzero(kinds[made.style] & (made.pieces.count[made.piece] > 0)).tolist()


def without(made: Schedule, left_out: np.ndarray) -> Schedule:
    """The same without some of its dependencies."""
    owner = np.repeat(np.arange(len(made)), np.diff(made.dep_ptr))[~left_out]
    ptr = np.searchsorted(owner, np.arange(len(made) + 1))
    kept = (column[~left_out] for column in (made.dep_row, made.dep_lag))
    row, lag = kept
    return replace(made, dep_ptr=ptr.astype(made.dep_ptr.dtype), dep_row=row, dep_lag=lag)


def dropped(made: Schedule, row: int) -> Schedule:
    """One row moves nothing."""
    style = made.style.copy()
    style[row] = len(made.styles)
    return replace(made, style=style, styles=(*made.styles, Style(MARK)))


def other_data(made: Schedule, row: int) -> Schedule:
    """One row moves what another one should."""
    at, piece = made.pieces.dst_offset[made.piece], made.piece.copy()
    others = [other for other in moving(made) if at[other] != at[row]]
    piece[row] = piece[others[row % len(others)]]
    return replace(made, piece=piece)


def not_waiting(made: Schedule, row: int) -> Schedule:
    """One row does not wait for data."""
    brings = np.array(
        [lag.seconds == NOTICED or (lag.arrival and lag.seconds != EMPTIED) for lag in made.lags]
    )
    begin, end = made.dep_ptr[row : row + 2].tolist()
    left_out = np.zeros(len(made.dep_row), bool)
    left_out[begin:end] = brings[made.dep_lag[begin:end]]
    return without(made, left_out)


def fails(c: Collective, plan: Plan, what: Written) -> bool:
    try:
        proof = Proof(c, plan, what)
        proof.verify()
        proof.check_races()
    except (VerificationError, RaceError):
        return True
    return False


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("change", [dropped, other_data, not_waiting])
def test_a_wrong_row_is_noticed(name, change):
    c, plan, what = proven(name)
    rows = moving(what.made)
    if change is other_data and plan.algorithm == "PAT":  # its messages are of several blocks
        rows = [row for row in rows if what.made.kind[row] != TRANSFER]
    if change is not_waiting:
        reads = Proof(c, plan, what)
        rows = [row for row in rows if reads.data[row]]
    for row in random.Random(name).sample(rows, TRIED):
        assert fails(c, plan, replace(what, made=change(what.made, row))), (row, rows[-1])


@pytest.mark.sample(7)
@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_slot_too_few_is_noticed(name):
    c, plan, what = proven(name)
    assert max(what.turn) > 2
    fewer = replace(what, slots=[slots - 1 for slots in what.slots])
    with pytest.raises(RaceError, match="fills a slot"):
        Proof(c, plan, fewer).check_races()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("switches", "heads")])
def test_credits_are_needed(name):
    c, plan, what = proven(name)
    credit = np.array([lag.seconds in (EMPTIED, FREED) for lag in what.made.lags])
    made = without(what.made, credit[what.made.dep_lag])
    with pytest.raises(RaceError, match="fills a slot"):
        Proof(c, plan, replace(what, made=made)).check_races()
