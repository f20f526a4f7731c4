"""Small plans for tests of NCCL's schedules, at real structure but tiny chunks."""

from collections.abc import Sequence

from netsim.collectives.collective import Collective
from netsim.nccl.connect import (
    NodePlace,
    Tree,
    children_of,
    double_binary_tree,
    seats_of,
    tree_of_ranks,
)
from netsim.nccl.constants import ByProtocol, LinkCost, Mechanism, NetworkCost
from netsim.nccl.schedules.plan import Plan, Work
from netsim.schedule.extent import Extent
from netsim.schedule.schedule import Schedule
from tests.nccl.proof import prove

# Chunk of each protocol that makes many loops of few bytes.
SMALL = {"LL": 96, "LL128": 480, "Simple": 1024}
NOTHING = LinkCost(ByProtocol(0, 0, 0), 0.0)
# A mechanism that costs nothing: only links are left.
IDEAL = Mechanism(
    rate=ByProtocol(1e15, 1e15, 1e15),
    step_cost=ByProtocol(0, 0, 0),
    begin=ByProtocol(0, 0, 0),
    begin_channels=0.0,
    nvlink=NOTHING,
    pcie=NOTHING,
    phb=NOTHING,
    shm=NOTHING,
    network=NetworkCost(0.0, ByProtocol(0, 0, 0), 0.0, ByProtocol(0, 0, 0), 0.0, 0.0, 0.0),
    grain=ByProtocol(64, 64, float("inf")),
    most_pieces=8,
    local_credit=0.0,
    nvls_efficiency=1.0,
    nvls_tree=1.0,
    nvls_sync=0.0,
    nvls_part=0.0,
    nvls_copy_rate=1e15,
    send_share=1.0,
    copy_share=0.25,
)


UNMERGED = Extent(merges_channels=False)


def even_work(count: int, chunk: int, channels: int = 2) -> tuple[Work, ...]:
    """Parts of about the same size, the last one smaller."""
    size = -(-count // channels)
    starts = [min(channel * size, count) for channel in range(channels + 1)]
    return tuple(
        Work(channel, starts[channel], starts[channel + 1] - starts[channel], chunk)
        for channel in range(channels)
        if starts[channel + 1] > starts[channel]
    )


def nodes_of(nodes: int, local: int) -> tuple[int, ...]:
    return tuple(rank // local for rank in range(nodes * local))


def channel_tree(
    orders: Sequence[Sequence[int]], pattern: int, places: Sequence[NodePlace]
) -> Tree:
    """The tree of one channel over all ranks; `orders` are each node's ranks in chain order."""
    return tree_of_ranks(seats_of(orders, map(len, orders)), pattern, children_of(places))


def contiguous_nodes(nodes: int, local: int) -> tuple[range, ...]:
    return tuple(range(first * local, (first + 1) * local) for first in range(nodes))


def small_plan(
    algorithm: str,
    protocol: str,
    nodes: int,
    local: int,
    count: int,
    *,
    channels: int = 2,
    pattern: int = 1,
    chunk: int = 0,
    **given: object,
) -> Plan:
    """A plan over `nodes` × `local` ranks with two kinds of rings and trees."""
    ranks = tuple(range(nodes * local))
    orders = [ranks[first : first + local] for first in range(0, len(ranks), local)]
    trees = [channel_tree(orders, pattern, places) for places in double_binary_tree(nodes)]
    values: dict[str, object] = {
        "work": even_work(count, chunk or SMALL[protocol], channels),
        "rings": tuple(ranks if c % 2 == 0 else ranks[::-1] for c in range(channels)),
        "trees": tuple(trees[c % 2] for c in range(channels)),
        "slot_bytes": SMALL[protocol],
        "mechanism": IDEAL,
        **given,
    }
    return Plan(algorithm, protocol, nodes_of(nodes, local), **values)


def checked(collective: Collective, plan: Plan) -> Schedule:
    """The schedule of a plan, proven as it runs."""
    return prove(collective, plan)
