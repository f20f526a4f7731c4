"""From the Chakra trace of one rank to a tape for all: every rank does what this one did."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from netsim.errors import InputError
from netsim.training.recorded.chakra import (
    COLLECTIVE,
    COMPUTE,
    PARTS,
    RECEIVE,
    SEND,
    TYPES,
    Node,
    group_of,
    read_rank,
    spans_all,
)
from netsim.training.recorded.replay import tiled
from netsim.workloads.grid import Ranks
from netsim.workloads.tape import Deps, Tape

GROUP = "group"
RANK_IN_NAME = re.compile(r"\.(\d+)\.et$")


def tape_of_rank(path: Path, world: int) -> tuple[Tape, tuple[str, ...]]:
    """The tape, and in words what of the trace is left out."""
    nodes, known = read_rank(path)
    match = RANK_IN_NAME.search(path.name)
    work = _Writing(path, world, known, int(match.group(1)) if match else None)
    made: dict[int, Deps] = {}
    for node in nodes:
        after = tuple(dict.fromkeys(one for n in node.after for one in made.get(n, ())))
        task = work.task(node, after)
        made[node.number] = after if task is None else (task,)
    return work.tape, work.notes()


@dataclass
class _Writing:
    """The tape while it is written; what is left out is counted by what it is."""

    path: Path
    world: int
    known: dict[str, tuple[int, ...]]
    rank: int | None
    tape: Tape = field(default_factory=lambda: Tape(phase="step"))
    left: dict[str, int] = field(default_factory=dict)
    tiles: dict[tuple[bool, tuple[int, ...]], Ranks] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.everyone = np.arange(self.world, dtype=np.int32)

    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        return tuple(f"{count} {what} left out" for what, count in self.left.items())

    def task(self, node: Node, after: Deps) -> int | None:
        """The task of a node; None if it takes no time of a GPU."""
        if node.kind == COMPUTE and not node.attributes.get("is_cpu_op"):
            return self.tape.compute(node.name, self.everyone, node.micros * 1e-6, after)
        if node.kind == COLLECTIVE:
            return self._collective(node, after)
        if node.kind in (SEND, RECEIVE):
            return self._pair(node, after)
        what = "operators of hosts" if node.kind == COMPUTE else "nodes of memory and metadata"
        self.left[what] = self.left.get(what, 0) + 1
        return None

    def _collective(self, node: Node, after: Deps) -> int | None:
        kind, nbytes = node.attributes.get("comm_type"), node.attributes.get("comm_size")
        known = isinstance(kind, int) and 0 <= kind < len(TYPES)
        if not known or not isinstance(nbytes, int):
            raise InputError(
                f"{self.path}: node {node.number} ({node.name}) has no comm_type or comm_size"
            )
        collective, group = TYPES[int(kind or 0)], group_of(node)
        if collective == "barrier" or nbytes <= 0:
            return None
        if group and group not in self.known:
            raise InputError(
                f"{self.path}: node {node.number} is of group {group!r}, which groups.json lacks"
            )
        if not group and not spans_all(node):
            raise InputError(
                f"{self.path}: node {node.number} is over some dimensions of a network only "
                "(involved_dim)",
                hint="give it a pg_name, and its ranks in groups.json",
            )
        ranks = self.known[group] if group else tuple(range(self.world))
        if len(ranks) < 2:
            return None
        whole = nbytes * len(ranks) if collective in PARTS else nbytes
        return self._call(node, collective, ranks, whole, after, f"group {group}".strip())

    def _pair(self, node: Node, after: Deps) -> int | None:
        """A send or a receive; where one end is not said, it is this rank's."""
        ends = [node.attributes.get(name, self.rank) for name in ("comm_src", "comm_dst")]
        nbytes = node.attributes.get("comm_size", 0)
        ranks = tuple(end for end in ends if isinstance(end, int))
        if len(set(ranks)) < 2 or not isinstance(nbytes, int):
            what = "sends and receives without a peer"
            self.left[what] = self.left.get(what, 0) + 1
            return None
        way = f"{ranks[0]}>{ranks[1]}"
        return self._call(node, "p2p", ranks, nbytes, after, f"pairs {way}")

    def _call(
        self, node: Node, collective: str, ranks: tuple[int, ...], nbytes: int, after: Deps,
        stream: str,
    ) -> int | None:  # fmt: skip
        key = (collective == "p2p", ranks)
        if key not in self.tiles:
            tiles = tiled(ranks, self.world)
            backward = collective == "p2p" and ranks[0] > ranks[1]
            self.tiles[key] = np.ascontiguousarray(tiles[:, ::-1]) if backward else tiles
        return self.tape.collective(
            node.name, GROUP, collective, self.tiles[key], nbytes, after, stream=stream,
            dtype="uint8",
        )  # fmt: skip
