"""The most channels that any walk of an attempt could find, from capacities alone.

Lets the search skip walks that cannot improve on what it has, without changing what it finds.
"""

from netsim.nccl.arena import Arena
from netsim.nccl.attempt import Attempt, Found
from netsim.nccl.channels import NVLS, RING


def hopeless(arena: Arena, attempt: Attempt, found: Found) -> bool:
    """Whether no walk of this attempt can find enough channels, or better ones than `found`."""
    most = most_channels(arena, attempt)
    if most < attempt.min_channels or most == 0:
        return True
    if not found.n_channels:
        return False
    old = found.attempt
    if attempt.pattern == NVLS:
        wider = most * attempt.bw_inter > found.n_channels * old.bw_inter
        return most <= found.n_channels and not wider
    gain = most * attempt.bw_intra - found.n_channels * old.bw_intra
    if gain:
        return gain < 0
    return most * fewest_hops(arena, attempt) >= found.n_hops


def most_channels(arena: Arena, attempt: Attempt) -> int:
    """A number of channels that the ports and the links out of the GPUs cannot exceed."""
    intra, inter = round(attempt.bw_intra * 1000), round(attempt.bw_inter * 1000)
    most = attempt.max_channels
    if arena.nets:
        most = min(most, sum(_through_port(arena, port, attempt, inter) for port in _ports(arena)))
    count = len(arena.gpus)
    if count == 1:
        return most
    slots = [arena.left_of_gpu(gpu, attempt.type_intra) for gpu in range(count)]
    if attempt.pattern == NVLS:
        return min(most, max(map(sum, slots)) // intra - 1)
    out = [sum(left // min(intra, inter) for left in links) for links in slots]
    return min(most, min(out) if attempt.pattern == RING else sum(out) // (count - 1))


def fewest_hops(arena: Arena, attempt: Attempt) -> int:
    """Links that one channel crosses at least."""
    gpus, nets = arena.gpus, arena.nets
    inside = (arena.hops(one, two) for one in gpus for two in gpus if one != two)
    hop = min((hops for hops in inside if hops), default=0)
    closes = attempt.pattern == RING and not nets
    total = hop * (len(gpus) - 1 + closes)
    if nets:
        total += min(arena.hops(gpu, net) for gpu in gpus for net in nets)
        total += min(arena.hops(net, gpu) for gpu in gpus for net in nets)
    return total


def _ports(arena: Arena) -> set[tuple[int, ...]]:
    return set(arena.ports)


def _through_port(arena: Arena, nets: tuple[int, ...], attempt: Attempt, inter: int) -> int:
    whole = int(attempt.bw_inter)
    most = max(arena.left_of_port(net) // inter for net in nets) * len(nets)
    return min(most, max(int(arena.port_left[net]) // whole for net in nets)) if whole else most
