"""What NCCL runs for a collective of nccl-tests on a job, and the whole table it chose from."""

import numpy as np
from numpy.typing import NDArray

from netsim.collectives import Collective
from netsim.errors import InputError
from netsim.expect.job import Job
from netsim.expect.settings import Wishes
from netsim.nccl.names import AUTO, COLLECTIVES
from netsim.nccl.plan import Planned, plan_call, plan_sends
from netsim.nccl.tuning import Call, TimedCost, fallback_reason, timed_costs

Ints = NDArray[np.int64]


def planned(job: Job, collective: Collective, dtype: str) -> Planned:
    """The algorithm, protocol and channels of a collective."""
    if collective.name in COLLECTIVES:
        return plan_call(
            job.comm, call_of(collective, dtype), collective.count, collective.element_bytes
        )
    return plan_sends(job.sends, job.rounds, *busiest_sender(collective))


def call_of(collective: Collective, dtype: str) -> Call:
    """The call as NCCL's choice sees it."""
    return Call(COLLECTIVES[collective.name], collective.size_bytes, dtype)


def cost_table(job: Job, collective: Collective, dtype: str) -> tuple[TimedCost, ...]:
    """All that NCCL compares for a collective; nothing for sends and receives."""
    if collective.name not in COLLECTIVES:
        return ()
    return timed_costs(job.comm, call_of(collective, dtype))


def fallback(job: Job, collective: Collective, dtype: str) -> str:
    """Why NCCL runs rings and not what it was told to (before 2.24); nothing where it obeys."""
    if collective.name not in COLLECTIVES:
        return ""
    return fallback_reason(job.comm, call_of(collective, dtype))


def check_wishes(collective: str, wishes: Wishes) -> None:
    """Refuse to force what has no choice, or twice."""
    wishes.settings()
    for what, value in (("algorithm", wishes.algorithm), ("protocol", wishes.protocol)):
        if value != AUTO and collective not in COLLECTIVES:
            raise InputError(
                f"NCCL runs {collective} as sends and receives, without a choice of {what}",
                hint=f"leave {what} at auto",
            )


def busiest_sender(collective: Collective) -> tuple[int, Ints, Ints]:
    """The rank that sends most, every rank it sends to, and the bytes to each."""
    ranks, nbytes = collective.ranks, collective.count * collective.element_bytes
    if collective.name == "barrier":
        raise InputError("NCCL has no barrier", hint="choose a textbook algorithm")
    if collective.name == "alltoallv":
        rows = np.array(collective.matrix) * collective.element_bytes
        rank = int(rows.sum(axis=1).argmax())
        peers = np.flatnonzero(rows[rank])
        return rank, peers, rows[rank, peers]
    rank, peers = 0, np.arange(ranks)
    if collective.name == "sendrecv":
        peers = np.array([1 % ranks])
    elif collective.name == "gather":
        rank, peers = (collective.root + 1) % ranks, np.array([collective.root])
    elif collective.name == "p2p":
        rank = collective.pairs[0][0]
        peers = np.array([target for source, target in collective.pairs if source == rank])
    elif collective.name == "scatter":
        rank = collective.root
    return rank, peers, np.full(len(peers), nbytes)


def operations(collective: Collective) -> int:
    """Sends and receives that a rank groups into one call; 0 where NCCL has a function for it."""
    if collective.name in COLLECTIVES:
        return 0
    return 2 * len(busiest_sender(collective)[1])
