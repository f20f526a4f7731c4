"""From a job and what NCCL chose for a call to the Plan of which its schedule is made."""

from collections.abc import Mapping

from netsim.collectives import Collective
from netsim.errors import InputError
from netsim.expect.choice import call_of
from netsim.expect.job import Job
from netsim.nccl.chunks import chunk_bytes, slot_bytes
from netsim.nccl.names import COLLECTIVES, Algorithm, Protocol
from netsim.nccl.schedules import GENERATORS, Plan, Work, schedule_of
from netsim.nccl.split import Share, split_over_channels
from netsim.nccl.threads import launch
from netsim.nccl.tuning import choose
from netsim.schedule import Schedule


class NotBuiltError(InputError):
    """A schedule of NCCL's that this version of netsim cannot simulate."""


def nccl_schedule(
    job: Job, collective: Collective, dtype: str, *, registered: bool = False, direct: bool = False
) -> Schedule:
    """What NCCL runs for a collective on a job.

    `registered`: the user has registered the buffers; `direct`: one process has all GPUs of a node.
    """
    if collective.name not in COLLECTIVES:
        raise NotBuiltError(f"NCCL's sends and receives ({collective.name}) are not simulated yet")
    plan = plan_of(job, collective, dtype, registered=registered, direct=direct)
    return schedule_of(collective, plan)


def plan_of(
    job: Job, collective: Collective, dtype: str, *, registered: bool, direct: bool
) -> Plan:
    """The plan of one of NCCL's functions."""
    comm, call = job.comm, call_of(collective, dtype)
    choice = choose(comm, call)
    _check_built(job, collective, choice.algorithm, choice.protocol)
    wiring = job.wiring
    places = [(rank, n) for n, node in enumerate(job.nodes) for rank in node.ranks]
    tree = choice.algorithm in ("Tree", "NVLSTree")
    routes: Mapping[tuple[int, int, int], str] = wiring.tree_routes if tree else wiring.ring_routes
    return Plan(
        choice.algorithm,
        choice.protocol,
        tuple(number for _, number in sorted(places)),
        work=work_of(job, collective, choice.algorithm, choice.protocol),
        rings=wiring.rings,
        trees=wiring.trees,
        heads=wiring.heads,
        mechanism=job.mechanism,
        link=wiring.link,
        links=wiring.links,
        routes=routes,
        direct=direct and choice.protocol == "Simple" and not comm.settings.p2p_direct_disabled,
        registered=registered,
        slot_bytes=slot_bytes(choice.protocol, comm.settings),
        places=False,
    )


def work_of(
    job: Job, collective: Collective, algorithm: Algorithm, protocol: Protocol
) -> tuple[Work, ...]:
    """The part of every channel, in chunks as NCCL sizes them.

    Before 2.22 all channels shared every loop over the data; here each has one part of that size.
    """
    comm, function = job.comm, COLLECTIVES[collective.name]
    n_channels = launch(comm, collective.size_bytes, algorithm, protocol).n_channels
    element, whole = collective.element_bytes, function in ("AllGather", "ReduceScatter")
    scale = element * (comm.n_ranks if whole else 1)
    if not comm.facts.continuous_split:
        chunk = chunk_bytes(
            comm, function, algorithm, protocol, collective.size_bytes, n_channels=n_channels
        )
        return _equal_parts(collective.count, n_channels, chunk)
    share = Share(function, collective.count, element, protocol)
    return tuple(
        Work(
            part.channel,
            part.offset,
            part.count,
            chunk_bytes(comm, function, algorithm, protocol, part.count * scale),
        )
        for part in split_over_channels([share], n_channels, comm.n_ranks)
    )


def _equal_parts(count: int, n_channels: int, chunk: int) -> tuple[Work, ...]:
    size = -(-count // n_channels)
    starts = range(0, count, size) if size else range(0)
    return tuple(
        Work(number, start, min(size, count - start), chunk) for number, start in enumerate(starts)
    )


def _check_built(job: Job, collective: Collective, algorithm: str, protocol: str) -> None:
    several = algorithm == "NVLS" and len(job.nodes) > 1
    if algorithm not in GENERATORS or several:
        where = " over several nodes" if several else ""
        raise NotBuiltError(
            f"NCCL's {algorithm} {collective.name} ({protocol}){where} is not simulated yet"
        )
