"""Which attempts of the channel search make the same walk, so that one of them is enough.

Path types between which no path lies make no difference; nor do ports that a tree cannot use.
"""

from dataclasses import replace

from netsim.nccl.arena import TREES, Arena
from netsim.nccl.attempt import Attempt
from netsim.nccl.channels import TREE
from netsim.nccl.neighbours import nets_of
from netsim.values import dataclass

Likeness = tuple[Attempt, tuple[int, ...]]


@dataclass(frozen=True)
class Kinds:
    """Path types that occur: inside the node, and between GPUs and ports in three readings."""

    inside: frozenset[int]
    either_way: frozenset[int]
    both_ways: frozenset[int]  # the worse of the two directions, which trees need
    at_starts: frozenset[int]  # the same, for GPUs at which a channel may start freely


def kinds_of(arena: Arena) -> Kinds:
    """The path types of a system."""
    ends = (*arena.gpus, *arena.switches)
    inside = {arena.type_of(one, two) for one in ends for two in ends}
    out, back, worse, near = set[int](), set[int](), set[int](), set[int]()
    for port, net in enumerate(arena.nets):
        starts = {0, arena.gpu_of_net[port], *arena.near_gpus[port]}
        for gpu, node in enumerate(arena.gpus):
            there, here = arena.type_of(node, net), arena.type_of(net, node)
            out.add(there)
            back.add(here)
            worse.add(max(there, here))
            if gpu in starts:
                near.add(max(there, here))
    sets = (frozenset(kinds) for kinds in (inside, out | back, worse, near))
    return Kinds(*sets)


def likeness(arena: Arena, kinds: Kinds, attempt: Attempt) -> Likeness:
    """What decides the walk of an attempt; attempts with equal likeness walk alike."""
    nets = nets_of(arena, attempt.type_inter, range(len(arena.gpus)))
    outside = kinds.either_way
    if attempt.pattern in TREES:
        outside = kinds.both_ways
    # A plain tree leaves by the port and GPU where it came in, whatever rails it may cross.
    plain = attempt.pattern == TREE and not attempt.same_channels
    if plain:
        outside, attempt = kinds.at_starts, replace(attempt, cross_nic=0)
    intra = _widest(kinds.inside, attempt.type_intra)
    inter = _widest(outside, attempt.type_inter)
    return replace(attempt, type_intra=intra, type_inter=inter), tuple(nets)


def _widest(kinds: frozenset[int], limit: int) -> int:
    return max((kind for kind in kinds if kind <= limit), default=0)
