"""What one call becomes: algorithm, protocol and how many channels work on it, as NCCL decides.

Sends and receives have no algorithms; their protocol and channels follow from their sizes. What
the channels then do is the business of the schedules.
"""

from collections.abc import Sequence

from netsim.nccl.communicator import Communicator
from netsim.nccl.p2p import P2pChannels, P2pWork, p2p_channels, p2p_chunk, p2p_work
from netsim.nccl.p2p_rounds import Ints, Rounds, distinct_rows
from netsim.nccl.paths import PathTable
from netsim.nccl.split import Share, evenly_split, split_over_channels
from netsim.nccl.threads import launch
from netsim.nccl.tuning import Call, Choice, choose
from netsim.values import dataclass

SEND_RECV = "SendRecv"  # NCCL's name for what has no algorithm


@dataclass(frozen=True)
class Planned:
    """One call: NCCL's words for how it runs, its channels, and the time in µs NCCL expects.

    `tuned`: a tuner chose, not NCCL.
    """

    algorithm: str
    protocol: str
    n_channels: int
    expected_us: float | None = None
    tuned: bool = False

    @property
    def protocols(self) -> tuple[str, ...]:
        """Those in use: grouped sends may have one inside a node and another between nodes."""
        return tuple(self.protocol.split("/"))


@dataclass(frozen=True)
class Sends:
    """What all sends and receives of a communicator share: channels, and bytes of a chunk."""

    channels: P2pChannels
    chunk: int

    def work(self, nbytes: int, first: int, rounds: Rounds, *, over_network: bool) -> P2pWork:
        """The parts of one send whose round begins at a channel."""
        return p2p_work(
            nbytes,
            first,
            self.channels,
            self.chunk,
            n_nodes=rounds.n_nodes,
            over_network=over_network,
            settings=rounds.settings,
        )


def sends_of(comm: Communicator, tables: Sequence[PathTable]) -> Sends:
    """Channels and chunk of sends, given the paths of each kind of node: the least of all."""
    each = [
        p2p_channels(table, comm.n_channels, comm.n_ranks, comm.facts, comm.settings)
        for table in tables
    ]
    least = P2pChannels(
        min(one.total for one in each),
        min(one.per_peer for one in each),
        min(one.fewest for one in each),
    )
    return Sends(least, min(p2p_chunk(table, comm.n_nodes, comm.settings) for table in tables))


def plan_call(comm: Communicator, call: Call, count: int, element_bytes: int) -> Planned:
    """How NCCL runs one of its functions; `count` is as in the call (a rank's for AllGather)."""
    choice = choose(comm, call)
    share = Share(call.function, count, element_bytes, choice.protocol)
    channels = channels_used(comm, call.nbytes, choice, share)
    return Planned(choice.algorithm, choice.protocol, channels, choice.time_us, choice.tuned)


def channels_used(comm: Communicator, nbytes: int, choice: Choice, share: Share) -> int:
    """How many channels get work: since 2.22 only as many as there is enough traffic for."""
    algorithm = choice.algorithm
    most = launch(comm, nbytes, algorithm, choice.protocol, choice.n_channels).n_channels
    if not comm.facts.continuous_split or evenly_split(comm, algorithm):
        return most
    parts = split_over_channels([share], most, comm.n_ranks)
    return max(1, len({part.channel for part in parts}))


def plan_sends(sends: Sends, rounds: Rounds, rank: int, peers: Ints, nbytes: Ints) -> Planned:
    """How NCCL runs the sends of one rank, of some bytes to each peer, grouped in one call."""
    total = sends.channels.total
    first = rounds.channels(rounds.numbers(rank, peers), total)
    kinds, _ = distinct_rows([nbytes, first, rounds.crosses(rank, peers), peers == rank])
    works = [
        (sends.work(size, base, rounds, over_network=bool(crosses)), bool(own))
        for size, base, crosses, own in kinds
    ]
    others = [work for work, own in works if not own] or [work for work, _ in works]
    protocols = sorted({work.protocol for work in others})
    channels = {channel for work, _ in works for channel in work.channels}
    return Planned(SEND_RECV, "/".join(protocols), max(1, len(channels)))
