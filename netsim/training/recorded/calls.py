"""What PyTorch says of one call of NCCL's: its collective, its size, its peers.

Kernels have it from the operator that launched them (`record_param_comms`), under the same names.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netsim.errors import InputError
from netsim.scenario.names import DTYPES
from netsim.trace.operation import KINETO_TYPES

# What PyTorch calls collectives begins so, in every version: `_allgather_base`, `all_to_allv`,
# `reduce_scatter_tensor_coalesced`, `all_gather_single`.
SPELT = re.compile(
    r"_?(?:(?P<all_reduce>all_?reduce)|(?P<all_gather>all_?gather)|"
    r"(?P<reduce_scatter>reduce_?scatter)|(?P<alltoall>all_?to_?all)|(?P<broadcast>broadcast)|"
    r"(?P<reduce>reduce)|(?P<gather>gather)|(?P<scatter>scatter)|(?P<p2p>send|recv))(?:_|v|$)",
    re.IGNORECASE,
)
TYPES = {name: dtype for dtype, name in KINETO_TYPES.items() if dtype in DTYPES} | {
    "Float8_e4m3fn": "f8e4m3", "Float8_e4m3fnuz": "f8e4m3", "Float8_e5m2": "f8e5m2",
    "Float8_e5m2fnuz": "f8e5m2", "Bool": "uint8",
}  # fmt: skip
# Collectives whose size, as nccl-tests counts it, is that of what comes out; and those of which one
# rank says only its own part.
WHOLE_OUTPUT = ("all_gather",)
OWN_PART = {"gather": "In msg nelems", "scatter": "Out msg nelems"}
LIST = re.compile(r"[\s,\[\]]+")
IS_NCCL = re.compile(r"(?:void )?(?:nccl|rccl|msccl)\w*Kernel", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Said:
    """One call. `ranks` of a p2p are its source and its destination.

    `uneven`: ranks exchange different parts; `nbytes` is then the larger of what comes and goes.
    """

    collective: str
    nbytes: int
    dtype: str
    ranks: tuple[int, ...]
    group: str
    uneven: bool = False


def collective_of(args: Mapping[str, Any]) -> str | None:
    """The collective that arguments name; None for none, or one that moves nothing (`wait`)."""
    match = SPELT.match(str(args.get("Collective name", "")))
    return None if match is None else match.lastgroup


@dataclass(frozen=True)
class Job:
    """What the header says of the job: this rank, how many there are, and groups by name."""

    rank: int | None
    world: int | None
    groups: Mapping[str, tuple[int, ...]]

    def said(self, args: Mapping[str, Any]) -> Said | None:
        """The call that arguments describe; None if they do not say what moves between whom."""
        collective, dtype = collective_of(args), TYPES.get(str(args.get("dtype", "")))
        ranks = self._ranks(args)
        if collective is None or dtype is None or len(ranks) < 2:
            return None
        uneven = any(len(set(_splits(args, way))) > 1 for way in ("In", "Out"))
        elements = _elements(collective, args, len(ranks), uneven=uneven)
        if collective == "p2p":
            ranks = self._pair(args, ranks)
        if elements <= 0 or len(ranks) < 2 or len(set(ranks)) < len(ranks):
            return None
        group = args.get("Process Group Description") or args.get("Process Group Name") or "group"
        if group in ("undefined", "default_pg"):
            group = "default"
        return Said(collective, elements * DTYPES[dtype], dtype, ranks, str(group), uneven)

    def _ranks(self, args: Mapping[str, Any]) -> tuple[int, ...]:
        """The ranks of a group: as listed, or as the header has them, or all."""
        text, size = str(args.get("Process Group Ranks", "")), args.get("Group size")
        listed = self.groups.get(str(args.get("Process Group Name", "")), ())
        if "..." in text and isinstance(size, int):
            return listed if len(listed) == size else _cut(text, size, args)
        numbers = [part for part in LIST.split(text) if part]
        if not all(number.isdigit() for number in numbers):
            raise InputError(f"'Process Group Ranks' is no list: {text[:60]!r}")
        if numbers or listed:
            return tuple(map(int, numbers)) or listed
        return tuple(range(size)) if isinstance(size, int) else ()  # the default group

    def _pair(self, args: Mapping[str, Any], ranks: Sequence[int]) -> tuple[int, ...]:
        """Source and destination of a send or a receive; () where the peer is not known."""
        sends = str(args["Collective name"]).lower().startswith("send")
        peer = args.get("Dst Rank" if sends else "Src Rank")
        others = [rank for rank in ranks if rank != self.rank]
        if peer is None and len(others) == 1 and len(ranks) == 2:
            peer = others[0]
        if self.rank is None or not str(peer).isdigit():
            return ()
        other = int(str(peer))
        return (self.rank, other) if sends else (other, self.rank)


def job_of(data: Mapping[str, Any]) -> Job:
    """The job of a trace's header, as far as it has one."""
    info = data.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank, world = info.get("rank"), info.get("world_size")
    groups = {}
    config = info.get("pg_config")
    for one in config if isinstance(config, list) else ():
        ranks = one.get("ranks") if isinstance(one, dict) else None
        if isinstance(ranks, list) and ranks and all(isinstance(r, int) for r in ranks):
            groups[str(one.get("pg_name", ""))] = tuple(ranks)
    return Job(
        rank if isinstance(rank, int) else None, world if isinstance(world, int) else None, groups
    )


def _elements(collective: str, args: Mapping[str, Any], members: int, *, uneven: bool) -> int:
    """Elements of a call, as nccl-tests counts them."""
    into, out = (_number(args.get(f"{way} msg nelems")) for way in ("In", "Out"))
    if collective in OWN_PART:
        return _number(args.get(OWN_PART[collective])) * members
    if collective == "p2p" or uneven:
        return max(into, out)
    return out if collective in WHOLE_OUTPUT else into


def _number(value: object) -> int:
    """A count, which some versions write as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() else 0


def _splits(args: Mapping[str, Any], way: str) -> list[int]:
    """The parts that go to, or come from, every rank; empty where they are equal."""
    text = str(args.get(f"{way} split size", ""))
    if "..." in text:
        text = text.partition("...")[0]
    return [int(part) for part in LIST.split(text) if part.isdigit()]


def _cut(text: str, size: int, args: Mapping[str, Any]) -> tuple[int, ...]:
    """A list that was cut with an ellipsis: by start and stride, or as it begins and ends."""
    first, stride = args.get("Global rank start"), args.get("Global rank stride")
    if isinstance(first, int) and isinstance(stride, int) and stride > 0:
        return tuple(first + k * stride for k in range(size))
    head, _, tail = text.partition("...")
    begun = [int(part) for part in LIST.split(head) if part.isdigit()]
    if len(begun) < 2:
        return ()
    found = tuple(begun[0] + k * (begun[1] - begun[0]) for k in range(size))
    regular = begun == list(found[: len(begun)]) and LIST.sub("", tail) in ("", str(found[-1]))
    return found if regular else ()
