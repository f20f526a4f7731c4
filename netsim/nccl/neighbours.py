"""In which order the channel search tries ports and GPUs: the nearest first, by NCCL's scores.

Orders decide which of many equal solutions is found first, so they are rules and not a matter
of speed.
"""

from collections.abc import Iterable

from netsim.nccl.arena import Arena, Score
from netsim.nccl.channels import BALANCED_TREE, RING, SPLIT_TREE


def nets_of(arena: Arena, type_inter: int, gpus: Iterable[int]) -> list[int]:
    """Ports in the order in which these GPUs try them: their own first, then by path type."""
    gpus = list(gpus)
    found: dict[int, None] = {}
    for gpu in gpus:
        found.update(dict.fromkeys(arena.local_ports[gpu]))
    for kind in range(type_inter + 1):
        for gpu in gpus:
            found.update(dict.fromkeys(arena.ports_by_type[gpu].get(kind, ())))
    return list(found)


def next_gpus(arena: Arena, pattern: int, gpu: int, used: int, door: int, sort: int) -> list[int]:
    """GPUs to try after `gpu`: by the way to the port `door` if `sort`, then by the way to them.

    With `sort` = -1 the port comes later: where all GPUs are equally far from this one, those far
    from the port go first, so that the channel ends near it.
    """
    if arena.switches:
        return [peer for peer in _switch_neighbours(arena, pattern, gpu) if not used >> peer & 1]
    scores = [score for score in _sorted_scores(arena, gpu, door) if not used >> score[-1] & 1]
    order = [score[-1] for score in scores]
    if sort == -1 and len({score[3:5] for score in scores}) == 1:
        order.reverse()
    return order


def _sorted_scores(arena: Arena, gpu: int, door: int) -> list[Score]:
    """Every other GPU by width and length of the way to the port, then of the way to it."""
    if (gpu, door) not in arena.scores:
        others = ((gpu + ahead) % len(arena.gpus) for ahead in range(1, len(arena.gpus)))
        scores = [_score(arena, gpu, peer, door) for peer in others]
        arena.scores[gpu, door] = sorted(score for score in scores if score[4])
    return arena.scores[gpu, door]


def _score(arena: Arena, gpu: int, peer: int, door: int) -> Score:
    source, target = arena.gpus[gpu], arena.gpus[peer]
    to_net = (0.0, 0.0, 0)
    if door >= 0:
        port = arena.nets[door]
        to_net = (-arena.bandwidth(port, target), -arena.pci_of_gpu[peer], arena.hops(port, target))
    ahead = (peer - gpu) % len(arena.gpus)
    way = (-arena.bandwidth(source, target), arena.hops(source, target))
    return (*to_net, *way, ahead, peer)


def _switch_neighbours(arena: Arena, pattern: int, gpu: int) -> list[int]:
    """Behind a switch all GPUs are equal; talking to the same neighbours each time is best."""
    count = len(arena.gpus)
    before, after = (gpu - 1) % count, (gpu + 1) % count
    first = {RING: (before, after), SPLIT_TREE: (after, before), BALANCED_TREE: (after, before)}
    return list(dict.fromkeys(first.get(pattern, (after,))))
