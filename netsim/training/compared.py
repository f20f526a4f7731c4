"""Collectives that a profile measured beside simulated ones: of its own step, or of a model's."""

from collections.abc import Iterable, Iterator
from statistics import median

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass, grouped
from netsim.training.recorded.kineto import Call, Profile
from netsim.training.run import Step, alike_calls
from netsim.workloads.tape import TapeEntry

Times = NDArray[np.float64]
NEAR = 0.02  # by which sizes of one collective may differ: padding of buckets and units
Key = tuple[str, str, int, int, str]


@dataclass(frozen=True)
class Calls:
    """A class of equal calls: group, size, number in a step, and the median of their times."""

    collective: str
    group: str
    ranks: int
    size_bytes: int
    dtype: str
    calls: float
    us: float


@dataclass(frozen=True)
class Measured(Calls):
    """Measured ones, with sums by step, also in the open; `least_us` is the shortest: a rank's
    kernel also waits for the other ranks."""

    least_us: float
    total_us: float
    exposed_us: float


@dataclass(frozen=True)
class Simulated(Calls):
    """The same of a simulated step, with what NCCL chose; `alone_us` with nothing beside it."""

    alone_us: float
    total_us: float
    exposed_us: float
    algorithm: str
    protocol: str
    channels: int


@dataclass(frozen=True)
class Line:
    """A class of equal calls, measured and simulated; either may be missing."""

    measured: Measured | None
    simulated: Simulated | None

    @property
    def any(self) -> Measured | Simulated:
        """Whichever there is."""
        found = self.measured or self.simulated
        assert found is not None
        return found

    @property
    def error(self) -> float | None:
        """By how much the simulation is too slow, as a part; None where one is missing."""
        if self.measured is None or self.simulated is None:
            return None
        return self.simulated.us / self.measured.us - 1


@dataclass(frozen=True)
class TraceCompared:
    """A trace and a simulated step: all calls, and how long the steps take."""

    trace: str
    machine: str
    lines: tuple[Line, ...]
    step_us: float
    simulated_step_us: float


def compare_trace(trace: str, machine: str, profile: Profile, step: Step) -> TraceCompared:
    """Every kind of call beside its simulation, what takes longest first."""
    calls = measured_calls(profile), simulated_calls(step)
    lines = list(_matched(*calls, replayed=step.resolved.recorded is not None))
    lines.sort(key=lambda line: -line.any.total_us)
    steps = [profile.of_step(number).seconds for number in profile.steps] or [profile.seconds]
    return TraceCompared(trace, machine, tuple(lines), median(steps) * 1e6, step.seconds * 1e6)


def measured_calls(profile: Profile) -> Iterator[Measured]:
    """The calls of all steps of a profile (of all of it, if it has no steps), by class."""
    calls = [one for one in profile.calls if one.step >= 0 or not profile.steps]
    steps, bare = max(1, len(profile.steps)), _Bare(profile)
    for key, some in grouped(calls, _said_alike).items():
        spent = [(one.end - one.begin) * 1e6 for one in some]
        exposed = sum(bare.within(one.begin, one.end) for one in some) * 1e6
        yield Measured(
            *key, len(some) / steps, median(spent), min(spent), sum(spent) / steps, exposed / steps
        )


def _said_alike(call: Call) -> Key:
    said = call.said
    return said.collective, said.group, len(said.ranks), said.nbytes, said.dtype


class _Bare:
    def __init__(self, profile: Profile) -> None:
        flat = np.array(profile.busy()).reshape(-1, 2)
        self.at: Times = flat.reshape(-1)
        busy = np.concatenate([[0.0], np.cumsum(flat[:, 1] - flat[:, 0])])
        # At the end of each kernel the sum is one further than at its begin.
        self.busy: Times = np.column_stack([busy[:-1], busy[1:]]).reshape(-1)

    def within(self, begin: float, end: float) -> float:
        """Seconds between two moments without another kernel."""
        if not len(self.at):
            return end - begin
        first, last = np.interp([begin, end], self.at, self.busy)
        return max(0.0, end - begin - float(last - first))


def simulated_calls(step: Step) -> Iterator[Simulated]:
    """The calls of a simulated step by class; figures are means over its ranks."""
    for some, calls, times, exposed in alike_calls(step, _alike):
        key, coarse = (
            _alike(step.spans.tape.entries[some[0]]),
            step.spans.lowered.coarse[some[0]][0],
        )
        us = float(np.median(times)) * 1e6
        yield Simulated(
            *key,
            calls,
            us,
            coarse.seconds * 1e6,
            float(times.mean()) * calls * 1e6,
            exposed * 1e6,
            coarse.algorithm,
            coarse.protocol,
            coarse.channels,
        )


def _alike(entry: TapeEntry) -> Key:
    return entry.collective, entry.kind, entry.groups.shape[1], entry.nbytes, entry.dtype


def _matched(
    measured: Iterable[Measured], simulated: Iterable[Simulated], *, replayed: bool
) -> Iterable[Line]:
    """Pairs of a collective among as many ranks of the nearest size; then what is left."""
    left = list(simulated)
    for one in measured:
        near = [
            other
            for other in left
            if (other.collective, other.ranks) == (one.collective, one.ranks)
            and abs(other.size_bytes - one.size_bytes) <= NEAR * one.size_bytes
            and (not replayed or (other.group, other.dtype) == (one.group, one.dtype))
        ]
        best = min(near, key=lambda o: abs(o.size_bytes - one.size_bytes), default=None)
        if best is not None:
            left.remove(best)
        yield Line(one, best)
    yield from (Line(None, one) for one in left)
