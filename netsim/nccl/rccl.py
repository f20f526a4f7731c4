"""Where RCCL does not search as NCCL does: its own rings for GPUs that are joined two by two.

NCCL's search looks for few hops and leaves links of a full mesh idle. RCCL knows these machines and
has rings for them that use every link once in each direction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from netsim.nccl.communicator import Channel, ChannelGraph
from netsim.topology.foreign.nccl_xml import XmlGpu, XmlSystem

COPIES = 4  # 28 rings of the search, 56 channels: what RCCL logs on 8 MI300X
Order = tuple[int, ...]


def over_all_links(system: XmlSystem, found: ChannelGraph) -> ChannelGraph:
    """The rings of a full mesh of AMD's GPUs; what was found anywhere else."""
    gpus = list(system.gpus())
    if not _is_mesh(gpus) or found.n_channels >= len(gpus) - 1:
        return found
    rings = rings_of_mesh(len(gpus))
    if not rings:
        return found
    channels = tuple(Channel(order) for order in rings) * COPIES
    speed = found.bw_intra / COPIES
    return replace(
        found, n_channels=len(channels), channels=channels, bw_intra=speed, bw_inter=speed
    )


def _is_mesh(gpus: Sequence[XmlGpu]) -> bool:
    """Whether each of several GPUs of AMD is linked to every other."""
    return len(gpus) > 2 and all(
        gpu.gcn
        and gpu.rank is not None
        and len({link.target for link in gpu.nvlinks}) >= len(gpus) - 1
        for gpu in gpus
    )


@lru_cache
def rings_of_mesh(gpus: int) -> tuple[Order, ...]:
    """n - 1 rings over n GPUs that use every pair once in each direction; none for 4 and 6."""
    used: set[tuple[int, int]] = set()
    rings: list[Order] = []

    def longer(path: Order, rest: frozenset[int]) -> Iterator[Order]:
        if not rest and (path[-1], 0) not in used:
            yield path
        for gpu in sorted(rest):
            if (path[-1], gpu) not in used:
                yield from longer((*path, gpu), rest - {gpu})

    def solved() -> bool:
        first = len(rings) + 1
        if first == gpus:
            return True
        for ring in longer((0, first), frozenset(range(1, gpus)) - {first}):
            hops = set(zip(ring, (*ring[1:], 0), strict=True))
            used.update(hops)
            rings.append(ring)
            if solved():
                return True
            used.difference_update(hops)
            rings.pop()
        return False

    return tuple(rings) if gpus not in (4, 6) and solved() else ()
