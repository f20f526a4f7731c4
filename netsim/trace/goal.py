"""Programs as GOAL, the text that LogGOPSim and ATLAHS run: sends, receives and time of ranks.

A transfer is a send and its receive, under a tag of its own between these ranks; all else takes the
time that it has alone. Work is done on processor 0, what only takes time on others in turn. What a
transfer waits for at its target, its receive waits for; elsewhere a message tells of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError
from netsim.base.values import dataclass
from netsim.program.program import Program
from netsim.schedule.schedule import COMPUTE, MULTICAST, SWITCH_REDUCE, TRANSFER, Lag
from netsim.topology.graph import LINK_KINDS

NS = 1e-9
SPREAD = 2654435761  # scatters numbers that follow each other (Knuth)
HINT = 1  # bytes of a message that only tells: LogGOPSim knows none of 0


@dataclass
class Sheet:
    """The text of a program, while it is written: lines of every rank. `hints` counts messages that
    only tell another rank to go on."""

    program: Program
    lines: list[list[str]] = field(default_factory=list)
    tags: Counter[tuple[int, int]] = field(default_factory=Counter)
    done: list[dict[int, int]] = field(default_factory=list)  # by row and rank, an operation
    released: dict[int, float] = field(default_factory=dict)  # by row, when it may begin
    made: int = 0
    hints: int = 0

    def text(self) -> str:
        """All of it."""
        schedule = self.program.schedule
        kinds = {style.kind for style in schedule.styles}
        if schedule.fold is not None or kinds & {MULTICAST, SWITCH_REDUCE}:
            raise InputError(
                "GOAL has messages only, no multicast and no sums in switches",
                hint="nccl: {env: {NCCL_NVLS_ENABLE: 0}}, or another algorithm",
            )
        self.lines = [[f"rank {rank} {{"] for rank in range(schedule.ranks)]
        times = zip(schedule.release_row.tolist(), schedule.release_time.tolist(), strict=True)
        self.released = dict(times)
        columns = schedule.style, schedule.src, schedule.dst, self._seconds(), schedule.amount
        for row, told in enumerate(zip(*(one.tolist() for one in columns), strict=True)):
            self._write(row, *told)
        lines = (line for some in self.lines for line in (*some, "}", ""))
        return "\n".join([f"num_ranks {schedule.ranks}", "", *lines])

    def _seconds(self) -> NDArray[np.float64]:
        """What each row takes alone; of a transfer, beyond its wires, which all channels share."""
        paths, links, schedule = self.program.paths, self.program.links, self.program.schedule
        owner = np.repeat(np.arange(len(paths)), np.diff(paths.ptr))
        rate, of_wires = (np.full(len(paths) + 1, np.inf) for _ in range(2))
        wire = np.array([links.kind(number) in LINK_KINDS for number in range(len(links))])
        reached, on = links.capacity[paths.link] / paths.weight, wire[paths.link]
        np.minimum.at(rate, owner, reached)
        np.minimum.at(of_wires, owner[on], reached[on])
        fastest = np.minimum(rate[self.program.path], self.program.caps[schedule.style])
        channels = len({style.channel for style in schedule.styles})
        moving = channels * schedule.amount / of_wires[self.program.path]
        latency = self.program.style_values("latency")[schedule.style]
        beyond: NDArray[np.float64] = np.maximum(0.0, schedule.amount / fastest - moving)
        return latency + beyond

    def _write(
        self, row: int, style: int, src: int, dst: int, seconds: float, amount: float
    ) -> None:
        """The operations of a row."""
        schedule, after = self.program.schedule, {src: list[int](), dst: list[int]()}
        how = schedule.styles[style]
        for one, lag in schedule.dependencies(row):
            knows = int((schedule.dst if lag.arrival else schedule.src)[one])
            known = [end for end in (src, dst) if end == knows or end in self.done[one]]
            at = knows if knows in known else [*known, src][0]
            after[at].append(self._met(one, lag, at, knows))
        if row in self.released:
            after[src].append(self._delay(src, self.released[row], ()))
        if how.kind == TRANSFER and src != dst:
            if seconds >= NS / 2:
                after[src] = [self._delay(src, seconds, after[src])]
            size = max(HINT, round(amount * how.multiplicity * how.wire))
            self.done.append(self._message(src, dst, size, after[src], after[dst]))
        else:
            busy = how.kind == COMPUTE
            self.done.append({src: self._delay(src, seconds, after[src], busy=busy)})

    def _add(self, rank: int, what: str, after: Sequence[int]) -> int:
        """An operation behind others of its rank."""
        self.made += 1
        self.lines[rank].append(f"l{self.made}: {what}")
        self.lines[rank] += [f"l{self.made} requires l{one}" for one in dict.fromkeys(after)]
        return self.made

    def _delay(self, rank: int, seconds: float, after: Sequence[int], *, busy: bool = False) -> int:
        """Time that passes, with its rank at work or not."""
        time, turn = round(seconds / NS), (self.made * SPREAD >> 16) % 255
        return self._add(rank, f"calc {time}" + f" cpu {1 + turn}" * (time > 0 and not busy), after)

    def _message(
        self, src: int, dst: int, size: int, after: Sequence[int], there: Sequence[int] = ()
    ) -> dict[int, int]:
        """A send and its receive."""
        tag = self.tags[src, dst]
        self.tags[src, dst] += 1
        return {src: self._add(src, f"send {size}b to {dst} tag {tag}", after),
                dst: self._add(dst, f"recv {size}b from {src} tag {tag}", there)}  # fmt: skip

    def _met(self, row: int, lag: Lag, rank: int, owner: int) -> int:
        """What a rank waits for where it waits for a row, of which the owner knows first."""
        done, seconds = self.done[row], lag.seconds
        if rank not in done:
            done[rank] = self._message(owner, rank, HINT, [done[owner]])[rank]
            self.hints += 1
        elif lag.arrival and rank != owner:  # a sender that waits until its data is there
            seconds += float(self.program.path_latency[self.program.path[row]])
        return done[rank] if seconds < NS / 2 else self._delay(rank, seconds, [done[rank]])
