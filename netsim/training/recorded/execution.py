"""From the Chakra trace of one rank to a tape for all: every rank does what this one did."""

from pathlib import Path

import numpy as np

from netsim.errors import InputError
from netsim.training.recorded.chakra import COLLECTIVE, COMPUTE, TYPES, Node, read_rank
from netsim.training.recorded.replay import tiled
from netsim.workloads.grid import Ranks
from netsim.workloads.tape import Tape

GROUP = "group"


def tape_of_rank(path: Path, world: int) -> tuple[Tape, int]:
    """The tape, and how many sends and receives of single pairs are left out."""
    nodes, known = read_rank(path)
    tape, everyone = Tape(phase="step"), np.arange(world, dtype=np.int32)
    tiles = {name: tiled(ranks, world) for name, ranks in known.items() if len(ranks) > 1}
    made: dict[int, tuple[int, ...]] = {}
    left = 0
    for node in nodes:
        after = tuple(dict.fromkeys(one for n in node.after for one in made.get(n, ())))
        made[node.number] = after
        if node.kind == COMPUTE:
            made[node.number] = (tape.compute(node.name, everyone, node.micros * 1e-6, after),)
        elif node.kind == COLLECTIVE:
            found = _collective(path, tape, node, tiles, after)
            made[node.number] = after if found is None else (found,)
        else:
            left += 1
    return tape, left


def _collective(
    path: Path, tape: Tape, node: Node, tiles: dict[str, Ranks], after: tuple[int, ...]
) -> int | None:
    told = node.attributes
    kind, nbytes, name = told.get("comm_type"), told.get("comm_size"), told.get("pg_name", b"0")
    if not isinstance(kind, int) or not 0 <= kind < len(TYPES) or not isinstance(nbytes, int):
        raise InputError(f"{path}: node {node.number} ({node.name}) has no comm_type or comm_size")
    group = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    if TYPES[kind] == "barrier" or nbytes == 0:
        return None
    if group not in tiles:
        raise InputError(
            f"{path}: node {node.number} is of group {group!r}, which groups.json lacks"
        )
    return tape.collective(
        node.name, GROUP, TYPES[kind], tiles[group], nbytes, after, stream=f"group {group}",
        dtype="uint8",
    )  # fmt: skip
