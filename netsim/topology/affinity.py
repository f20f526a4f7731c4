"""Which NICs a GPU uses, by NCCL's rule: the widest path first, then the shortest kind of path."""

import numpy as np
from numpy.typing import NDArray

from netsim.topology.layout import LINK_KINDS, NODE_KINDS, Layout

PATH_TYPES = ("NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PHB", "SYS")


def path_types(layout: Layout, hops: NDArray[np.int32]) -> NDArray[np.int8]:
    """The kind of each path, as an index of PATH_TYPES (NCCL's order of preference)."""
    used, links = hops >= 0, layout.links
    kind = np.where(used, links.kind[hops], -1)
    enters = np.where(used, layout.kinds[links.head[hops]], -1)
    crossed = {name: (kind == LINK_KINDS.index(name)).any(-1) for name in ("upi", "c2c", "pcie")}
    cpus = (enters == NODE_KINDS.index("cpu")).any(-1)
    switches = (enters == NODE_KINDS.index("pcie")).sum(-1)
    gpus = (enters == NODE_KINDS.index("gpu")).sum(-1)
    nvlink = ~crossed["pcie"] & ~crossed["c2c"]
    cases = [
        (crossed["upi"], "SYS"),
        (crossed["c2c"] & crossed["pcie"], "P2C"),
        (crossed["c2c"], "C2C"),
        (nvlink & (gpus > 1), "NVB"),
        (nvlink, "NVL"),
        (cpus, "PHB"),
        (switches > 1, "PXB"),
    ]
    result = np.full(hops.shape[:-1], PATH_TYPES.index("PIX"), np.int8)
    for holds, name in reversed(cases):
        result[holds] = PATH_TYPES.index(name)
    return result


def nics_of_gpus(
    layout: Layout, out: NDArray[np.int32], devices: tuple[int, ...]
) -> NDArray[np.int32]:
    """The NICs of every GPU, one a channel in turn (NCCL 2.30, src/graph/topo.cc).

    Of k nearest NICs, the first of which is nearest to m GPUs, a GPU takes ceil(k/m), from number
    `device` on (bit-mirrored where k is a power of two). So GPUs whose own NIC is gone take turns
    on all that are left.
    """
    gpus, nics = out.shape[:2]
    if not nics:
        return np.zeros((gpus, 0), np.int32)
    width = np.where(out >= 0, layout.links.bandwidth[out], np.inf).min(axis=2)
    kind = path_types(layout, out)
    near = [_best(width[gpu], kind[gpu]) for gpu in range(gpus)]
    rows = []
    for gpu, mine in enumerate(near):
        sharing = len(_best(width[:, mine[0]], kind[:, mine[0]]))
        start = _mirrored(devices[gpu], len(mine))
        each = -(-len(mine) // sharing)
        rows.append([mine[(start + turn) % len(mine)] for turn in range(each)])
    longest = max(len(row) for row in rows)
    return np.array([[row[i % len(row)] for i in range(longest)] for row in rows], np.int32)


def _best(width: NDArray[np.float64], kind: NDArray[np.int8]) -> tuple[int, ...]:
    widest = width == width.max()
    return tuple(np.flatnonzero(widest & (kind == kind[widest].min())).tolist())


def _mirrored(value: int, count: int) -> int:
    """The bits of `value` in reverse, for `count` a power of two; else `value`."""
    bits = count.bit_length() - 1
    if count != 1 << bits:
        return value
    return sum(1 << (bits - 1 - bit) for bit in range(bits) if value >> bit & 1)
