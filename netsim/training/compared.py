"""Compare the collectives of a recorded profile with simulated ones.

The simulated step either replays the same profile or runs a model that the user describes.
"""

from collections.abc import Iterable, Iterator
from statistics import median

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass, grouped
from netsim.training.recorded.kineto import Profile, ProfiledCall
from netsim.training.run import Step, classes_of_calls
from netsim.workloads.tape import TapeEntry

Times = NDArray[np.float64]
MAX_SIZE_DIFFERENCE = 0.02
"""Largest relative difference between a measured and a simulated size of the same collective.

Frameworks pad buckets and FSDP units, so that sizes differ a little.
"""
Key = tuple[str, str, int, int, str]


@dataclass(frozen=True)
class CallClass:
    """Calls with the same collective, group, ranks, size and data type.

    `calls` is the number of them in one step, `us` the median of their times in microseconds.
    """

    collective: str
    group: str
    ranks: int
    size_bytes: int
    dtype: str
    calls: float
    us: float


@dataclass(frozen=True)
class MeasuredCalls(CallClass):
    """A class of calls of a profile; times in microseconds.

    - `least_us`: the shortest call. The time of a kernel includes its wait for the other ranks, and
      the shortest call has waited least.
    - `total_us`: the sum of the calls in one step.
    - `exposed_us`: the part of `total_us` in which no other kernel ran.
    """

    least_us: float
    total_us: float
    exposed_us: float


@dataclass(frozen=True)
class SimulatedCalls(CallClass):
    """A class of calls of a simulated step, with NCCL's choice; times in microseconds.

    - `alone_us`: the time of one call when nothing runs beside it.
    - `total_us`: the sum of the calls in one step.
    - `exposed_us`: the part of `total_us` in which no kernel runs beside the call.
    """

    alone_us: float
    total_us: float
    exposed_us: float
    algorithm: str
    protocol: str
    channels: int


@dataclass(frozen=True)
class ComparedCalls:
    """A measured class of calls, and the simulated class that matches it; one of both may
    be None.
    """

    measured: MeasuredCalls | None
    simulated: SimulatedCalls | None

    @property
    def any(self) -> MeasuredCalls | SimulatedCalls:
        """The measured class of calls, or the simulated one if nothing was measured."""
        calls = self.measured or self.simulated
        assert calls is not None  # every line has at least one of both
        return calls

    @property
    def error(self) -> float | None:
        """(simulated - measured) / measured time of a call, or None if one of both is missing."""
        if self.measured is None or self.simulated is None:
            return None
        return self.simulated.us / self.measured.us - 1


@dataclass(frozen=True)
class TraceCompared:
    """The result of `compare_trace`: all classes of calls, and the times of the recorded and the
    simulated step in microseconds.
    """

    trace: str
    machine: str
    lines: tuple[ComparedCalls, ...]
    step_us: float
    simulated_step_us: float


def compare_trace(trace: str, machine: str, profile: Profile, step: Step) -> TraceCompared:
    """All classes of calls of a profile beside their simulations, ordered by total time, longest
    first.
    """
    measured = measured_calls(profile)
    simulated = simulated_calls(step)
    lines = list(_matched(measured, simulated, replayed=step.resolved.recorded is not None))
    lines.sort(key=lambda line: -line.any.total_us)
    step_seconds = [profile.of_step(number).seconds for number in profile.steps]
    if not step_seconds:
        step_seconds = [profile.seconds]
    return TraceCompared(
        trace=trace,
        machine=machine,
        lines=tuple(lines),
        step_us=median(step_seconds) * 1e6,
        simulated_step_us=step.seconds * 1e6,
    )


def measured_calls(profile: Profile) -> Iterator[MeasuredCalls]:
    """The classes of calls in all steps of a profile.

    A profile without marked steps counts as one step.
    """
    calls = [call for call in profile.calls if call.step >= 0 or not profile.steps]
    step_count = max(1, len(profile.steps))
    idle_gaps = _IdleGaps(profile)
    for key, class_calls in grouped(calls, _measured_key).items():
        durations = [(call.end - call.begin) * 1e6 for call in class_calls]
        exposed = sum(idle_gaps.within(call.begin, call.end) for call in class_calls) * 1e6
        yield MeasuredCalls(
            *key,
            calls=len(class_calls) / step_count,
            us=median(durations),
            least_us=min(durations),
            total_us=sum(durations) / step_count,
            exposed_us=exposed / step_count,
        )


def _measured_key(call: ProfiledCall) -> Key:
    """The fields of `CallClass` by which calls of a profile are grouped."""
    description = call.description
    return (
        description.collective,
        description.group,
        len(description.ranks),
        description.nbytes,
        description.dtype,
    )


class _IdleGaps:
    """The times of a profile in which no kernel other than NCCL's ran.

    `edges` are the begin and the end of each busy span, `busy_before` is the busy time up to each
    edge, in seconds.
    """

    def __init__(self, profile: Profile) -> None:
        busy_spans = np.array(profile.busy()).reshape(-1, 2)
        self.edges: Times = busy_spans.reshape(-1)
        lengths = busy_spans[:, 1] - busy_spans[:, 0]
        busy = np.concatenate([[0.0], np.cumsum(lengths)])
        # The busy time before span k is busy[k]; the busy time up to its end is busy[k + 1].
        self.busy_before: Times = np.column_stack([busy[:-1], busy[1:]]).reshape(-1)

    def within(self, begin: float, end: float) -> float:
        """The seconds between two moments in which no kernel ran."""
        if not len(self.edges):
            return end - begin
        busy_at_begin, busy_at_end = np.interp([begin, end], self.edges, self.busy_before)
        return max(0.0, end - begin - float(busy_at_end - busy_at_begin))


def simulated_calls(step: Step) -> Iterator[SimulatedCalls]:
    """Yield the classes of calls of a simulated step; times are means over its ranks."""
    for entries, calls, times, exposed in classes_of_calls(step, _simulated_key):
        first_entry = entries[0]
        coarse_form = step.spans.lowered.coarse[first_entry][0]
        yield SimulatedCalls(
            *_simulated_key(step.spans.tape.entries[first_entry]),
            calls=calls,
            us=float(np.median(times)) * 1e6,
            alone_us=coarse_form.seconds * 1e6,
            total_us=float(times.mean()) * calls * 1e6,
            exposed_us=exposed * 1e6,
            algorithm=coarse_form.algorithm,
            protocol=coarse_form.protocol,
            channels=coarse_form.channels,
        )


def _simulated_key(entry: TapeEntry) -> Key:
    """The fields of `CallClass` by which entries of a tape are grouped."""
    return entry.collective, entry.kind, entry.groups.shape[1], entry.nbytes, entry.dtype


def _matched(
    measured: Iterable[MeasuredCalls], simulated: Iterable[SimulatedCalls], *, replayed: bool
) -> Iterable[ComparedCalls]:
    """Yield each measured class with the simulated class of the nearest size, then the simulated
    classes that are left.

    Classes match if collective and number of ranks are equal and sizes differ by at most the
    fraction `MAX_SIZE_DIFFERENCE`. In a replayed step the group and the data type must be equal as
    well.
    """
    unmatched = list(simulated)
    for measured_class in measured:
        size = measured_class.size_bytes
        nearest = min(
            (other for other in unmatched if _may_match(measured_class, other, replayed=replayed)),
            key=lambda candidate: abs(candidate.size_bytes - size),
            default=None,
        )
        if nearest is not None:
            unmatched.remove(nearest)
        yield ComparedCalls(measured_class, nearest)
    for simulated_class in unmatched:
        yield ComparedCalls(None, simulated_class)


def _may_match(measured: MeasuredCalls, simulated: SimulatedCalls, *, replayed: bool) -> bool:
    """Whether two classes of calls are of the same collective and of almost the same size."""
    if (simulated.collective, simulated.ranks) != (measured.collective, measured.ranks):
        return False
    difference = abs(simulated.size_bytes - measured.size_bytes)
    if difference > MAX_SIZE_DIFFERENCE * measured.size_bytes:
        return False
    same_group = (simulated.group, simulated.dtype) == (measured.group, measured.dtype)
    return same_group or not replayed
