"""From the profile of one rank to a tape for all: every rank does what this one did.

Kernels follow each other with the gaps that the host left. A call of NCCL starts when the kernels
that ran before it are done; kernels that begin after an idle time wait for the calls that ended in
it. With calls as long as they were measured, the tape takes the time of the profile.
"""

from bisect import bisect_right
from itertools import pairwise

import numpy as np

from netsim.errors import InputError
from netsim.training.recorded.kineto import Call, Profile
from netsim.workloads.grid import Ranks
from netsim.workloads.tape import Deps, Tape

IDLE = 1e-6  # seconds without a kernel, from which on something was waited for


def tape_of(profile: Profile) -> Tape:
    """The tape of a profile on its whole world."""
    tape, everyone = Tape(), np.arange(profile.world, dtype=np.int32)
    tape.phase = "step"
    blocks = _blocks(profile)
    groups = {call.ranks: tiled(call.ranks, profile.world) for call in profile.calls}
    begun = [block[0] for block in blocks]
    starts = sorted((call.begin, number) for number, call in enumerate(profile.calls))
    made: dict[int, int] = {}
    waiting = iter(starts)
    ahead = next(waiting, None)
    last: Deps = ()
    before = min([begun[0]] if begun else [], default=0.0)
    for begin, end in blocks:
        while ahead is not None and ahead[0] <= begin:
            made[ahead[1]] = _written(tape, profile.calls[ahead[1]], groups, last)
            ahead = next(waiting, None)
        over = [n for n in made if before < profile.calls[n].end <= begin + IDLE]
        reached = max([before, *(profile.calls[n].end for n in over)])
        gap = max(0.0, begin - reached) if begin - before > IDLE else 0.0
        made_here = tuple(made[n] for n in over)
        last = (tape.compute("kernels", everyone, gap + end - begin, (*last, *made_here)),)
        before = end
    while ahead is not None:
        made[ahead[1]] = _written(tape, profile.calls[ahead[1]], groups, last)
        ahead = next(waiting, None)
    return tape


def _written(tape: Tape, call: Call, groups: dict[tuple[int, ...], Ranks], after: Deps) -> int:
    made = tape.collective(
        call.collective, call.group, call.collective, groups[call.ranks], call.nbytes, after,
        stream=f"{call.group} {call.stream}", dtype=call.dtype, measured=call.end - call.begin,
    )  # fmt: skip
    assert made is not None  # calls have two ranks and a byte at least
    return made


def _blocks(profile: Profile) -> list[tuple[float, float]]:
    """Times of kernels without a pause, cut where a call of NCCL begins."""
    merged: list[list[float]] = []
    for begin, end in profile.kernels:
        if merged and begin <= merged[-1][1] + IDLE:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    cuts = sorted(call.begin for call in profile.calls)
    found = []
    for begin, end in merged:
        inside = cuts[bisect_right(cuts, begin) : bisect_right(cuts, end)]
        found += [pair for pair in pairwise([begin, *inside, end]) if pair[1] > pair[0]]
    return found


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
