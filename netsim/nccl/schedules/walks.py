"""Walks: what the functions of rings do in each step, and the numbers of the rows of one loop."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.nccl.schedules.hops import Pass
from netsim.schedule import COPY, IN, OUT, REDUCE_INPUT, SCRATCH
from netsim.values import dataclass

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Walk:
    """What a function does with rings: each step's pass, how far the data it moves is behind.

    In step j the rank at place p sends the block of place p + `start` - j. `last` is the pass that
    takes the data out of the FIFO in the end, None where there is nothing to do but wait.
    """

    passes: tuple[Pass, ...]
    start: int
    last: Pass | None

    @property
    def steps(self) -> int:
        """Sends of a loop."""
        return len(self.passes)

    def cut(self, hops: int, ranks: int) -> "Walk":
        """The same for chunks that go only so many ranks far on each way round."""
        rounds = [self.passes[k : k + ranks - 1] for k in range(0, self.steps, ranks - 1)]
        kept = tuple(made for way in rounds for made in way[:hops])
        return replace(self, passes=kept)


def _all_reduce(n: int, direct: bool) -> Walk:
    buffers = [IN, *[SCRATCH] * (n - 2), *[OUT] * (n - 1), OUT if direct else SCRATCH]
    passes = []
    for step in range(2 * (n - 1)):
        owner = step == n - 1  # has the result, stores it and passes it on
        reads, writes = (1, 0) if step == 0 else (2, int(owner)) if step < n else (1, 1)
        op = REDUCE_INPUT if step < n - 1 else COPY
        passes.append(Pass(buffers[step], buffers[step + 1], op, reads, writes))
    return Walk(tuple(passes), -1, None if direct else Pass(SCRATCH, OUT, writes=1))


def _all_gather(n: int, direct: bool) -> Walk:
    buffers = [IN, *[OUT] * (n - 2), OUT if direct else SCRATCH]
    passes = [
        Pass(buffers[step], buffers[step + 1], COPY, 1, int(step > 0)) for step in range(n - 1)
    ]
    return Walk(tuple(passes), 0, None if direct else Pass(SCRATCH, OUT, writes=1))


def _reduce_scatter(n: int, direct: bool) -> Walk:
    del direct  # the sum of FIFO and input is always a pass
    passes = [
        Pass(SCRATCH if step else IN, SCRATCH, REDUCE_INPUT, 2 if step else 1)
        for step in range(n - 1)
    ]
    return Walk(tuple(passes), -1, Pass(SCRATCH, OUT, reads=2, writes=1))


WALKS = {"all_reduce": _all_reduce, "all_gather": _all_gather, "reduce_scatter": _reduce_scatter}


@dataclass(frozen=True)
class Numbers:
    """The numbers of rows of one loop: by step, sub and place in the ring.

    Step by step come the blocks of all ranks and the proxies (`net`: the places that have one):
    of Simple by slice, for each is a message; of LL first all pieces by the blocks, then those of
    the one message. After the `steps` sends come the last passes.
    """

    n: int
    subs: int
    steps: int
    net: Ints
    simple: bool

    @property
    def width(self) -> int:
        """Rows of one step."""
        return self.subs * (self.n + len(self.net))

    def columns(self) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Sub and place of the rows of one step, in order, and whether a proxy makes them."""
        turns = self.subs if self.simple else 1
        blocks = np.arange(self.subs * self.n).reshape(turns, -1)
        proxies = -1 - np.arange(self.subs * len(self.net)).reshape(turns, -1)
        code = np.hstack([blocks, proxies]).ravel()
        proxy = code < 0
        m, number = max(1, len(self.net)), np.where(proxy, -1 - code, code)
        place = np.where(proxy, self._net_place(number % m), number % self.n)
        return np.where(proxy, number // m, number // self.n), place, proxy

    def _net_place(self, number: Ints) -> Ints:
        return self.net[number] if len(self.net) else number

    def block(self, step: Ints, sub: Ints, place: Ints) -> Ints:
        """What the block of a rank does; step `steps` is its last pass."""
        skipped = sub * len(self.net) if self.simple else 0
        sends = step * self.width + sub * self.n + skipped + place
        last = self.steps * self.width + sub * self.n + place
        return np.where(step < self.steps, sends, last)

    def sent(self, step: Ints, sub: Ints, place: Ints) -> Ints:
        """What brings data to the next rank: the proxy's row where there is one."""
        proxy = np.searchsorted(self.net, place)
        behind = (sub + 1 if self.simple else self.subs) * self.n + sub * len(self.net)
        message = step * self.width + behind + proxy
        return np.where(np.isin(place, self.net), message, self.block(step, sub, place))
