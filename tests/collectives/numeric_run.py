"""An independent oracle: schedules executed with numbers, and the outputs by definition."""

import numpy as np

from netsim.collectives.collective import Collective
from netsim.schedule.schedule import (
    COMPUTE,
    IN,
    MARK,
    MULTICAST,
    OUT,
    REDUCE,
    REDUCE_INPUT,
    SCRATCH,
    SWITCH_REDUCE,
    Schedule,
)

ROOM = 4096


class Numbers:
    """All buffers as arrays of random whole numbers, unwritten elements too."""

    def __init__(self, collective: Collective, seed: int = 0) -> None:
        self.collective = collective
        n = collective.ranks
        generator = np.random.default_rng(seed)
        self.memory = generator.integers(1, 2**40, (n, 3, ROOM))
        self.inputs = [self.view(r, IN)[: collective.input_count(r)].copy() for r in range(n)]

    def view(self, rank: int, buffer: int) -> np.ndarray:
        """One buffer of one rank, aliased in place as in nccl-tests."""
        c = self.collective
        if not c.in_place or buffer == SCRATCH:
            return self.memory[rank, buffer]
        shift = {
            "all_gather": (rank * c.count, 0),
            "gather": (rank * c.count, 0),
            "reduce_scatter": (0, rank * c.count),
            "scatter": (0, rank * c.count),
        }.get(c.name, (0, 0))[buffer]
        return self.memory[rank, OUT][shift:]

    def run(self, schedule: Schedule) -> None:
        """Execute all rows in order."""
        p = schedule.pieces
        for row in range(len(schedule)):
            style = schedule.styles[schedule.style[row]]
            if style.kind in (COMPUTE, MARK):
                continue
            k = schedule.piece[row]
            count = p.count[k]
            src, dst, own = (
                slice(offset, offset + count)
                for offset in (p.src_offset[k], p.dst_offset[k], p.own_offset[k])
            )
            sources = schedule.groups[schedule.src[row]] if style.kind == SWITCH_REDUCE else None
            targets = schedule.groups[schedule.dst[row]] if style.kind == MULTICAST else None
            data = sum(
                self.view(rank, style.src_buffer)[src].copy()
                for rank in sources or (schedule.src[row],)
            )
            for rank in targets or (schedule.dst[row],):
                place = self.view(rank, style.dst_buffer)
                old = {REDUCE: place[dst], REDUCE_INPUT: self.view(rank, IN)[own]}.get(style.op, 0)
                place[dst] = data + old

    def right(self) -> bool:
        """Whether all outputs are as they must be."""
        outputs = [self.view(r, OUT) for r in range(self.collective.ranks)]
        wanted = expected_outputs(self.collective, self.inputs)
        return all(
            (out[: len(want)] == want).all() for out, want in zip(outputs, wanted, strict=True)
        )


def expected_outputs(c: Collective, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a collective, from its definition."""
    n, nothing = c.ranks, np.zeros(0, np.int64)

    def at_root(result: np.ndarray) -> list[np.ndarray]:
        return [result if rank == c.root else nothing for rank in range(n)]

    if c.name in ("all_reduce", "reduce"):
        total = np.sum(inputs, axis=0)
        return [total] * n if c.name == "all_reduce" else at_root(total)
    if c.name in ("all_gather", "gather"):
        everything = np.concatenate(inputs)
        return [everything] * n if c.name == "all_gather" else at_root(everything)
    if c.name == "reduce_scatter":
        return list(np.sum(inputs, axis=0).reshape(n, c.count))
    if c.name == "broadcast":
        return [inputs[c.root]] * n
    if c.name == "scatter":
        return list(inputs[c.root].reshape(n, c.count))
    if c.name == "sendrecv":
        return [inputs[rank - 1] for rank in range(n)]
    if c.name == "p2p":
        return _pairs(c, inputs)
    if c.name == "barrier":
        return [nothing] * n
    matrix = c.matrix or [[c.count] * n] * n
    blocks = [np.split(inputs[s], np.cumsum(matrix[s])[:-1]) for s in range(n)]
    return [np.concatenate([blocks[s][d] for s in range(n)]) for d in range(n)]


def _pairs(c: Collective, inputs: list[np.ndarray]) -> list[np.ndarray]:
    taken = [0] * c.ranks
    outputs: list[list[np.ndarray]] = [[np.zeros(0, np.int64)] for _ in range(c.ranks)]
    for source, target in c.pairs:
        outputs[target].append(inputs[source][taken[source] : taken[source] + c.count])
        taken[source] += c.count
    return [np.concatenate(parts) for parts in outputs]
