"""What joins the ranks of one node, as NCCL moves data between them: nvlink, pcie or shm."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from netsim.nccl.communicator import Communicator
from netsim.nccl.node import NodeView
from netsim.nccl.paths import PathTable, p2p_level
from netsim.nccl.seats import Seats
from netsim.nccl.variables import VariableError

Pair = tuple[int, int]


def links_inside(
    comm: Communicator, seats: Seats, views: Sequence[NodeView]
) -> tuple[str, Mapping[Pair, str]]:
    """What joins ranks of one node: the most frequent kind, and all pairs of another."""
    kinds = [link_kinds(comm, view) for view in views]
    count = Counter(kind for pairs in kinds for kind in pairs.values())
    usual = count.most_common(1)[0][0] if count else "nvlink"
    others = [{pair: kind for pair, kind in pairs.items() if kind != usual} for pairs in kinds]
    return usual, LinksInside(seats, others) if any(others) else {}


class LinksInside(Mapping[Pair, str]):
    """Links by rank, from those by place in each kind of node."""

    def __init__(self, seats: Seats, kinds: Sequence[Mapping[Pair, str]]) -> None:
        self.seats, self.kinds = seats, kinds
        self._kind: list[Mapping[Pair, str]] = [kinds[kind] for kind in seats.kind.tolist()]
        self._node: list[int] = seats.node.tolist()
        self._place: list[int] = seats.place.tolist()

    def __getitem__(self, pair: Pair) -> str:
        one, other = pair
        node = self._node[one]
        if self._node[other] != node:
            raise KeyError(pair)
        return self._kind[node][self._place[one], self._place[other]]

    def __iter__(self) -> Iterator[Pair]:
        for start, kind in zip(self.seats.start.tolist(), self._kind, strict=False):
            ranks = self.seats.ranks[start:]
            yield from ((int(ranks[one]), int(ranks[other])) for one, other in kind)

    def __len__(self) -> int:
        return sum(map(len, self._kind))


def check_shared_memory(comm: Communicator, views: Sequence[NodeView]) -> None:
    """Refuse what NCCL would send over the network inside a node, without its shared memory."""
    if not comm.settings.shm_disabled:
        return
    for view in views:
        for (one, other), kind in link_kinds(comm, view).items():
            if kind == "shm":
                raise VariableError(
                    "NCCL_SHM_DISABLE",
                    f"it leaves no way between GPUs {one} and {other} of a node but the network, "
                    "which is not simulated",
                )


def link_kinds(comm: Communicator, view: NodeView) -> dict[Pair, str]:
    """How NCCL moves data between any two GPUs of a node, by local rank."""
    table = view.table
    local = table.graph.local_ranks
    level = comm.facts.rank(p2p_level(table.graph, comm.settings))
    found: dict[Pair, str] = {}
    for one, a in enumerate(table.gpus):
        for other, b in enumerate(table.gpus):
            if one != other:
                found[local[one], local[other]] = _kind(comm, table, a, b, level)
    return found


def _kind(comm: Communicator, table: PathTable, a: int, b: int, level: int) -> str:
    found = table.type_of(a, b)
    if comm.facts.rank(found) > level:
        return "shm"
    if found in ("NVL", "NVB"):
        return "nvlink"
    peers = table.graph.gpu(a).gdr and table.graph.gpu(b).gdr
    return "pcie" if peers else "shm"
