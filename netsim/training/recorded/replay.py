"""From the profile of one rank to a tape for all: every rank does what this one did.

Kernels follow each other with the gaps that the host left. A call of NCCL starts when the kernels
that ran before it are done; kernels that begin after an idle time wait for the calls that ended in
it. Idle times before calls stay as well, but not what a kernel of NCCL's itself waited for other
ranks. With calls as long as they were measured, the tape takes the time of the profile.
"""

from bisect import bisect_right
from itertools import pairwise

import numpy as np

from netsim.base.errors import InputError
from netsim.training.recorded.kineto import Call, Profile
from netsim.workloads.setting import Ranks
from netsim.workloads.tape import Deps, Tape

Key = tuple[bool, tuple[int, ...]]
IDLE = 1e-6  # seconds without a kernel, from which on something was waited for


def tape_of(profile: Profile) -> Tape:
    """The tape of a profile on its whole world."""
    work = _Replaying(profile)
    starts = sorted((call.begin, number) for number, call in enumerate(profile.calls))
    waiting = iter(starts)
    ahead = next(waiting, None)
    for begin, end in _blocks(profile):
        while ahead is not None and ahead[0] <= begin:
            work.call(ahead[1])
            ahead = next(waiting, None)
        work.kernels(begin, end)
    while ahead is not None:
        work.call(ahead[1])
        ahead = next(waiting, None)
    return work.tape


class _Replaying:
    """The tape while it is written: the last kernels, when they ended, and calls under way."""

    def __init__(self, profile: Profile) -> None:
        self.profile, self.tape = profile, Tape(phase="step")
        self.everyone = np.arange(profile.world, dtype=np.int32)
        self.groups = {_key(call): groups_of(call, profile.world) for call in profile.calls}
        self.running: dict[int, int] = {}
        self.last: Deps = ()
        first = [one.begin for one in profile.kernels[:1]] + [
            one.begin for one in profile.calls[:1]
        ]
        self.before = min(first, default=0.0)

    def kernels(self, begin: float, end: float) -> None:
        """A block of kernels, behind what it waited for."""
        awaited, gap = self._idle(begin)
        self._compute("kernels", gap + end - begin, awaited)
        self.before = end

    def call(self, number: int) -> None:
        """A call, which starts when the kernels before it are done and the host lets it."""
        call = self.profile.calls[number]
        awaited, gap = self._idle(call.begin)
        if gap > IDLE:
            self._compute("gap", gap, awaited)
            self.before = call.begin
        self.running[number] = _written(self.tape, call, self.groups, self.last)

    def _compute(self, name: str, seconds: float, awaited: Deps) -> None:
        self.last = (self.tape.compute(name, self.everyone, seconds, (*self.last, *awaited)),)

    def _idle(self, begin: float) -> tuple[Deps, float]:
        """The calls that were waited for before a moment, and how long nothing was after them."""
        calls = self.profile.calls
        self.running = {n: made for n, made in self.running.items() if calls[n].end > self.before}
        over = [n for n in self.running if calls[n].end <= begin + IDLE]
        reached = max([self.before, *(calls[n].end for n in over)])
        gap = max(0.0, begin - reached) if begin - self.before > IDLE else 0.0
        return tuple(self.running[n] for n in over), gap


def _key(call: Call) -> Key:
    return call.said.collective == "p2p", call.said.ranks


def _written(tape: Tape, call: Call, groups: dict[Key, Ranks], after: Deps) -> int:
    said = call.said
    together = f" part {call.part}" if call.part else ""
    made = tape.collective(
        said.collective, said.group, said.collective, groups[_key(call)], said.nbytes, after,
        stream=f"{said.group} {call.stream}{together}", dtype=said.dtype,
        measured=call.end - call.begin,
    )  # fmt: skip
    assert made is not None  # calls have two ranks and a byte at least
    return made


def _blocks(profile: Profile) -> list[tuple[float, float]]:
    """Times of kernels without a pause, cut where a call of NCCL begins."""
    merged: list[list[float]] = []
    for kernel in profile.kernels:
        if merged and kernel.begin <= merged[-1][1] + IDLE:
            merged[-1][1] = max(merged[-1][1], kernel.end)
        else:
            merged.append([kernel.begin, kernel.end])
    cuts = sorted(call.begin for call in profile.calls)
    found = []
    for begin, end in merged:
        inside = cuts[bisect_right(cuts, begin) : bisect_right(cuts, end)]
        found += [pair for pair in pairwise([begin, *inside, end]) if pair[1] > pair[0]]
    return found


def groups_of(call: Call, world: int) -> Ranks:
    """The group of a call and its likes; of sends, the pairs that are as far apart."""
    ranks = call.said.ranks
    found = tiled(ranks, world)
    backward = call.said.collective == "p2p" and ranks[0] > ranks[1]
    return np.ascontiguousarray(found[:, ::-1]) if backward else found


def tiled(ranks: tuple[int, ...], world: int) -> Ranks:
    """The group of one rank and its likes, which together are the whole world."""
    group = np.array(sorted(ranks), np.int32)
    if len(np.unique(group)) < len(group) or group.max() >= world:
        raise InputError(f"a group of ranks {ranks[:8]} is none of {world} ranks")
    step = int(group[1] - group[0])
    if (np.diff(group) != step).any() or world % (step * len(group)):
        return group.reshape(1, -1)  # of its own kind: the other ranks' groups are not known
    every = np.arange(world, dtype=np.int32).reshape(-1, len(group), step)
    return np.ascontiguousarray(every.transpose(0, 2, 1).reshape(-1, len(group)))
