"""From a job and what NCCL chose for a call to the Plan of which its schedule is made."""

from collections.abc import Iterator, Mapping

from netsim.collectives import Collective
from netsim.expect.choice import call_of
from netsim.expect.job import Job
from netsim.expect.wiring import Hop
from netsim.nccl.chunks import chunk_bytes, slot_bytes
from netsim.nccl.communicator import Communicator
from netsim.nccl.names import COLLECTIVES
from netsim.nccl.plan import SEND_RECV
from netsim.nccl.schedules import Plan, Work, transfers_of
from netsim.nccl.split import Share, evenly_split, split_evenly, split_over_channels
from netsim.nccl.threads import launch
from netsim.nccl.tuning import Choice, choose


def nccl_plan(
    job: Job, collective: Collective, dtype: str, *, registered: bool = False, direct: bool = False
) -> Plan:
    """How NCCL runs a collective on a job.

    `registered`: the user has registered the buffers; `direct`: one process has all GPUs of a node.
    """
    if collective.name in COLLECTIVES:
        return plan_of(job, collective, dtype, registered=registered, direct=direct)
    return plan_of_sends(job, collective)


def plan_of(
    job: Job, collective: Collective, dtype: str, *, registered: bool, direct: bool
) -> Plan:
    """The plan of one of NCCL's functions."""
    comm, wiring = job.comm, job.wiring
    choice = choose(comm, call_of(collective, dtype))
    # Heads of NVLSTree and the ranks of PAT have NICs of their own, which the topology knows.
    routes = {"Ring": wiring.ring_routes, "Tree": wiring.tree_routes}
    heads = wiring.direct if choice.algorithm == "CollNetDirect" else wiring.nvls
    return Plan(
        choice.algorithm,
        choice.protocol,
        _node_of_rank(job),
        work=work_of(job, collective, choice),
        rings=wiring.rings,
        trees=wiring.trees,
        heads=heads.ranks,
        chains=wiring.chains.ranks,
        doors=wiring.chains.doors if choice.algorithm == "CollNetChain" else heads.doors,
        mechanism=job.mechanism,
        link=wiring.link,
        links=wiring.links,
        routes=routes.get(choice.algorithm, {}),
        direct=direct and choice.protocol == "Simple" and not comm.settings.p2p_direct_disabled,
        registered=registered,
        slot_bytes=slot_bytes(choice.protocol, comm.settings),
        places=False,
        memory=job.memory,
    )


def plan_of_sends(job: Job, collective: Collective) -> Plan:
    """The plan of a collective that NCCL runs as grouped sends and receives."""
    comm, sends, wiring = job.comm, job.sends, job.wiring
    nodes = _node_of_rank(job)
    return Plan(
        SEND_RECV,
        "Simple",  # each transfer has its own
        nodes,
        transfers=transfers_of(
            collective, job.node_ranks, sends.channels, sends.chunk, comm.facts, comm.settings
        ),
        mechanism=job.mechanism,
        link=wiring.link,
        links=wiring.links,
        routes=OverRails(nodes) if _crosses_nvlink(comm) else {},
        places=False,
        memory=job.memory,
    )


class OverRails(Mapping[Hop, str]):
    """The ways of sends between nodes: over NVLink to the NIC on the receiver's rail (PXN).

    Found for a hop that is asked for; not listed, for there are as many as channels and pairs.
    """

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self.nodes = nodes

    def __getitem__(self, hop: Hop) -> str:
        if self.nodes[hop[1]] == self.nodes[hop[2]]:
            raise KeyError(hop)
        return "pxn"

    def __iter__(self) -> Iterator[Hop]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _crosses_nvlink(comm: Communicator) -> bool:
    """Whether this NCCL sends over another GPU's NIC (2.12 and later, unless switched off)."""
    settings = comm.settings
    return "PXN" in comm.facts.path_types and settings.pxn_level == 2 and not settings.pxn_disabled


def _node_of_rank(job: Job) -> tuple[int, ...]:
    places = [(rank, number) for number, node in enumerate(job.nodes) for rank in node.ranks]
    return tuple(number for _, number in sorted(places))


def work_of(job: Job, collective: Collective, choice: Choice) -> tuple[Work, ...]:
    """The part of every channel, in chunks as NCCL sizes them.

    Before 2.22 all channels shared every loop over the data; here each has one part of that size.
    """
    comm, function = job.comm, COLLECTIVES[collective.name]
    algorithm, protocol = choice.algorithm, choice.protocol
    size = collective.size_bytes
    n_channels = launch(comm, size, algorithm, protocol, choice.n_channels).n_channels
    element, whole = collective.element_bytes, function in ("AllGather", "ReduceScatter")
    scale = element * (comm.n_ranks if whole else 1)
    if not comm.facts.continuous_split:
        chunk = chunk_bytes(
            comm, function, algorithm, protocol, collective.size_bytes, n_channels=n_channels
        )
        return _equal_parts(collective.count, n_channels, chunk)
    if evenly_split(comm, algorithm):
        chunk = chunk_bytes(
            comm, function, algorithm, protocol, collective.count * scale, n_channels=n_channels
        )
        shares = split_evenly(collective.count * element, n_channels)
        return tuple(
            Work(number, offset // element, nbytes // element, chunk)
            for number, (offset, nbytes) in enumerate(shares)
            if nbytes
        )
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
