"""Context parallelism: attention over a sequence that several ranks share.

`p2p` passes keys and values round a ring while attention works on the block in hand, `all_gather`
collects them first, `a2a` (Ulysses) exchanges heads for tokens before and after.
"""

from netsim.workloads.parts import Part, exchange, kernel
from netsim.workloads.shapes import Shapes

AXIS = "cp"
KINDS = ("p2p", "all_gather", "a2a")


def _kv_bytes(shapes: Shapes) -> int:
    """Keys and values of one rank's tokens."""
    return 2 * shapes.tokens * shapes.kv_width * shapes.setting.element


def forward_core(shapes: Shapes, seconds: float) -> list[Part]:
    """Attention of one rank's queries to all keys."""
    if shapes.cp == 1:
        return [kernel("attention", seconds)]
    return {"p2p": _ring, "all_gather": _gathered, "a2a": _heads}[shapes.setting.context](
        shapes, seconds, backward=False
    )


def backward_core(shapes: Shapes, seconds: float) -> list[Part]:
    """Its backward pass."""
    if shapes.cp == 1:
        return [kernel("attention backward", seconds)]
    return {"p2p": _ring, "all_gather": _gathered, "a2a": _heads}[shapes.setting.context](
        shapes, seconds, backward=True
    )


def _ring(shapes: Shapes, seconds: float, *, backward: bool) -> list[Part]:
    """Backward, the gradients of keys and values travel with them: twice the bytes."""
    nbytes = _kv_bytes(shapes) * (2 if backward else 1)
    what = "kv gradients" if backward else "kv"
    name = "attention backward" if backward else "attention"
    parts: list[Part] = []
    for turn in range(shapes.cp):
        if turn < shapes.cp - 1:
            parts.append(exchange(f"{what} {turn}", "sendrecv", AXIS, nbytes, blocks=False))
        needs = [f"{what} {turn - 1}"] if turn else []
        parts.append(kernel(f"{name} {turn}", seconds / shapes.cp, *needs))
    return parts


def _gathered(shapes: Shapes, seconds: float, *, backward: bool) -> list[Part]:
    nbytes = _kv_bytes(shapes) * shapes.cp
    gather = exchange("kv", "all_gather", AXIS, nbytes)
    if not backward:
        return [gather, kernel("attention", seconds)]
    scatter = exchange("kv gradients", "reduce_scatter", AXIS, nbytes)
    return [gather, kernel("attention backward", seconds), scatter]


def _heads(shapes: Shapes, seconds: float, *, backward: bool) -> list[Part]:
    """Queries, keys, values one by one, and the output; backward their gradients."""
    query, kv = (
        shapes.tokens * w * shapes.setting.element for w in (shapes.query_width, shapes.kv_width)
    )
    suffix = " gradient" if backward else ""

    def move(name: str, nbytes: int) -> Part:
        return exchange(name + suffix, "alltoall", AXIS, nbytes)

    projections = [move("q", query), move("k", kv), move("v", kv)]
    core = kernel("attention backward" if backward else "attention", seconds)
    if backward:
        return [move("o", query), core, *projections]
    return [*projections, core, move("o", query)]
