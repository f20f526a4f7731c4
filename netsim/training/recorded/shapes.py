"""Calls of NCCL's in traces of PyTorch before 2.3, which describe none: by the name of the kernel
and the shapes (`record_shapes`) of the operator that launched it, over all ranks.
"""

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from netsim.scenario.names import DTYPES
from netsim.training.recorded.calls import Said
from netsim.training.recorded.events import Event, Events, args_of
from netsim.training.recorded.intervals import Interval, holding

KERNEL = re.compile(
    r"(?P<all_reduce>AllReduce)|(?P<all_gather>AllGather)|(?P<reduce_scatter>ReduceScatter)|"
    r"(?P<broadcast>Broadcast)|(?P<reduce>Reduce)"
)
TO_ALL = re.compile(r"all_?to_?all", re.IGNORECASE)
# What kernels and operators call types, the longer before those that they contain.
SPELT = (
    ("bfloat16", ("bf16", "bfloat16")), ("half", ("f16", "half")), ("double", ("f64", "double")),
    ("float", ("f32", "float")), ("int64", ("i64", "int64_t", "long")),
    ("int32", ("i32", "int32_t", "int")), ("uint8", ("u8", "uint8_t", "unsigned char", "bool")),
    ("int8", ("i8", "int8_t", "signed char")),
)  # fmt: skip
SUMS = ("all_reduce", "reduce_scatter", "reduce")
BY_SHAPES = "all ranks"


def said_by_shapes(events: Events, kernels: Sequence[Event], world: int | None) -> dict[int, Said]:
    """The calls of kernels (by their place) whose launch lies within an operator with shapes."""
    launches = [events.launch_of(kernel) or (-1.0, None) for kernel in kernels]
    operators = [_interval(place, one) for place, one in enumerate(events.operators)]
    found = {}
    for place, around in holding(operators, launches):
        for interval in reversed(around):
            operator = events.operators[interval.number]
            said = _said(str(kernels[place].get("name", "")), operator, world or 0)
            if said is not None:
                found[place] = said
                break
    return found


def _interval(place: int, event: Event) -> Interval:
    begin = float(event["ts"])
    return Interval(begin, begin + float(event["dur"]), event.get("tid"), number=place)


def _said(kernel: str, operator: Event, world: int) -> Said | None:
    match = KERNEL.search(kernel)
    collective = match.lastgroup if match else None
    if TO_ALL.search(str(operator.get("name", ""))):
        collective = "alltoall"
    args = args_of(operator)
    counts = [count for count in map(_count, _listed(args, "Input Dims")) if count]
    named = kernel.partition("(")[0] if collective in SUMS else ""  # others are of int8, always
    dtype = _dtype(named) or _dtype(" ".join(map(str, _listed(args, "Input type")[:2])))
    if collective is None or dtype is None or not counts or world < 2:
        return None
    elements = max(counts[:2])
    if collective == "all_gather" and len(set(counts[:2])) == 1:
        elements *= world  # the operator shows only what this rank puts in
    return Said(collective, elements * DTYPES[dtype], dtype, tuple(range(world)), BY_SHAPES)


def _listed(args: Mapping[str, Any], name: str) -> list[Any]:
    """An argument that is a list; versions differ in capitals."""
    for key, value in args.items():
        if key.lower() == name.lower() and isinstance(value, list):
            return value
    return []


def _count(dims: object) -> int:
    """Elements of a tensor, or of all tensors of a list."""
    if not isinstance(dims, list) or not dims:
        return 0
    if all(isinstance(one, int) for one in dims):
        return prod(dims)
    return sum(map(_count, dims))


def _dtype(text: str) -> str | None:
    """The type that a text names as a word of its own."""
    words = re.split(r"[^a-z0-9]+", text.lower().replace("_t", ""))
    for dtype, names in SPELT:
        if any(name.replace("_t", "") in words or (" " in name and name in text) for name in names):
            return dtype
    return None
