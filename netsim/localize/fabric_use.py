"""How the messages of a test use links of the fabric: tests of one shape that use faulty links in
the same way have equal times, so that one of them is simulated.
"""

from collections.abc import Collection, Mapping
from hashlib import blake2b

import numpy as np

from netsim.tasks.resolve import ResolvedCell

NOT_USED = ""
"""The use of links over which no message of a test can pass."""


def uses_of_fabric(resolved: ResolvedCell, names: Collection[str]) -> Mapping[str, str] | None:
    """Return how messages between the GPUs of a test use parts of the fabric: a text for each part
    that they use, equal for parts that are used in the same way.

    The text is a digest of the fractions of the bytes between each ordered pair of GPUs that cross
    the links of the part, whatever the order of the links. None if paths depend on channels, as the
    pairs of GPUs then do not determine the paths.

    Args:
        resolved: the resolved scenario of the test, without a fault.
        names: names of switches (`spine0`) and of all links between two switches (`leaf0-spine0`).
    """
    topology = resolved.topology
    if topology.router.per_channel:
        return None
    gpus = resolved.gpus.astype(np.int32)
    src, dst = (ends.reshape(-1) for ends in np.meshgrid(gpus, gpus, indexing="ij"))
    is_pair = src != dst
    src = src[is_pair]
    routes = topology.routes(src, dst[is_pair], np.zeros_like(src))
    pair = np.repeat(np.arange(len(src)), np.diff(routes.ptr))
    fraction = routes.fraction.round(6)
    uses: dict[str, list[bytes]] = {}
    for link in np.unique(routes.link).tolist():
        tail = str(topology.nodes[topology.links.tail[link]])
        head = str(topology.nodes[topology.links.head[link]])
        is_on = routes.link == link
        use = pair[is_on].tobytes() + fraction[is_on].tobytes()
        for name in (tail, head, f"{tail}-{head}", f"{head}-{tail}"):
            if name in names:
                uses.setdefault(name, []).append(use)
    return {name: _digest(parts) for name, parts in uses.items()}


def _digest(uses: Collection[bytes]) -> str:
    """Return a short text for a collection of uses, whatever their order."""
    return blake2b(b"|".join(sorted(uses)), digest_size=16).hexdigest()
