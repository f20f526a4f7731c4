"""The constants of the table once more, each estimated from the runs that it was fitted to.

An estimator reads the runs that a constant names and nothing else, so that one of them can be left
out and the constant estimated again. What the table has is not changed here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from math import isclose, log, nan

import numpy as np

from netsim.base.constants import ANY_SIZE, TABLE, Constant, Fitted
from netsim.base.errors import InputError, suggest
from netsim.base.values import dataclass, grouped
from netsim.measured.compare import Floats, few, resolved_at, simulated_seconds
from netsim.measured.index import Entry, dtype_of, mapped, nics_gbps, with_figures
from netsim.measured.logs import Measured
from netsim.measured.training import compared, published
from netsim.nccl.constants import ELSEWHERE, GENERATIONS, names_of
from netsim.nccl.constants import constant as usual_value
from netsim.nccl.facts import parse_version
from netsim.schedule.repeat import ITERATIONS
from netsim.tasks.answer import checked_cells
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.topology.machine import BOTH_WAYS, TRANSPORTS, both_ways_constant
from netsim.yamlio.models import override

MOST = 6  # sizes of one run that are simulated
SHOWS = 0.02  # change of a log time over all values that are tried, from which a point shows one
STEPS_TRIED = 7  # values that steps are simulated with
TRIED = 9  # values that are simulated; between them, log times are taken as straight
FINE = 400  # values between these that are looked at
TIMES, RATES = 4.0, 2.0  # factors up and down that are tried: of times, and of rates and parts
LL_WIRE = 2  # bytes on the wire for each of data


@dataclass(frozen=True)
class Estimate:
    """What runs say of a constant: its value, from how many points, and what is left of them.
    `before` and `after` are the median |log ratio| of those points with the table's value and with
    this one (nan where nothing is simulated); `at_edge`: it would go beyond what was tried."""

    constant: Constant
    value: float
    points: int
    before: float = float("nan")
    after: float = float("nan")
    at_edge: bool = False

    @property
    def ratio(self) -> float:
        """Of the estimate over the table's value."""
        return self.value / self.constant.value


def shown_by(constant: Constant, entry: Entry) -> Floats:
    """What one run says of a constant, by its estimator: log ratios of points (rows) at the values
    that are tried, or values of its own."""
    return _estimator(constant)(constant, entry)


def _fitted(constant: Constant) -> Fitted:
    """What a constant was fitted to, as all are that are estimated."""
    assert constant.fitted is not None
    return constant.fitted


def _estimator(constant: Constant) -> Callable[[Constant, Entry], Floats]:
    return ESTIMATORS[_fitted(constant).estimator.rpartition(":")[2]]


def estimate_of(constant: Constant, shown: Sequence[Floats]) -> Estimate:
    """The estimate from what runs say: where simulated and measured times of the points that show
    it agree best, or the geometric mean of each run's median value."""
    every = np.concatenate(shown)
    if every.ndim == 1:
        medians = [np.median(one) for one in shown if len(one)]
        value = float(np.exp(np.mean(np.log(medians)))) if medians else float("nan")
        return Estimate(constant, value, len(every))
    every = every[np.ptp(every, axis=1) > SHOWS]
    if not len(every):
        return Estimate(constant, float("nan"), 0)
    return best_of(constant, tried_values(constant), every)


def by_steps(constant: Constant, entry: Entry) -> Floats:
    """Log ratios of simulated over published times of a step at some values."""
    step = published(entry)
    values = tried_values(constant).tolist()
    return np.array([[compared(step, {constant.id: one}).log_ratio for one in values]])


def best_of(constant: Constant, values: Floats, ratios: Floats) -> Estimate:
    """The value whose mean |log ratio| is least, given those of points (rows) at some values: a few
    points that say something else hardly move it, and no half of them decides by itself."""
    fine = np.unique(np.append(np.linspace(values[0], values[-1], FINE), constant.value))
    left = np.abs(np.array([np.interp(fine, values, point) for point in ratios]))
    median = np.median(left, axis=0)
    far = np.abs(fine / constant.value - 1)  # of values alike, the nearest
    best = int(np.argmin(left.mean(axis=0) + 1e-9 * far))
    now = int(np.flatnonzero(fine == constant.value)[0])
    at_edge = best in (0, len(fine) - 1)
    return Estimate(
        constant, float(fine[best]), len(ratios), float(median[now]), float(median[best]), at_edge
    )


def tried_values(constant: Constant) -> Floats:
    """Values around that of the table, which is among them."""
    if _fitted(constant).estimator.endswith(by_steps.__name__):
        values = constant.value * np.linspace(1 / RATES, RATES, STEPS_TRIED)
        values[np.argmin(np.abs(values - constant.value))] = constant.value
        return values
    factor = TIMES if constant.unit == "s" else RATES
    factors = np.exp(np.linspace(-log(factor), log(factor), TRIED))
    factors[TRIED // 2] = 1.0
    return np.sort(constant.value * factors)


def by_simulation(constant: Constant, entry: Entry) -> Floats:
    """Log ratios of simulated over measured times of some sizes (rows) at some values."""
    values = tried_values(constant)
    plan, rows = mapped(entry), _rows_of(entry, *_fitted(constant).sizes)
    if not rows:
        return np.empty((0, len(values)))
    kind = _kind(rows)
    plan, resolved = resolved_at(plan, *kind)
    collective = resolved.cell.scenario.collective.collective
    estimates = []
    for value in values.tolist():
        source = plan.source(plan.data["name"], *kind)
        source = with_figures(source, _figures(constant, resolved, value))
        cell = resolve(checked_cells(source)[0])
        times = (simulated_seconds(cell, row, collective) for row in rows)
        measured = (row.seconds(entry.collective) or 0.0 for row in rows)
        estimates.append([log(ours / theirs) for ours, theirs in zip(times, measured, strict=True)])
    return np.array(estimates).T


def _rows_of(
    entry: Entry, smallest: int, largest: int, *, most: int = MOST
) -> tuple[Measured, ...]:
    rows = [
        row
        for row in entry.rows()
        if max(1, smallest) <= row.size_bytes <= largest and row.seconds(entry.collective)
    ]
    same_kind = [row for row in rows if (row.dtype, row.root) == (rows[0].dtype, rows[0].root)]
    return few(same_kind, most)


def _kind(rows: Sequence[Measured]) -> tuple[list[int], str, int]:
    first = rows[0]
    return sorted({row.size_bytes for row in rows}), dtype_of(first.dtype), max(first.root, 0)


def _resolved(entry: Entry, rows: Sequence[Measured]) -> ResolvedCell:
    return resolved_at(mapped(entry), *_kind(rows))[1]


def _figures(constant: Constant, resolved: ResolvedCell, value: float) -> Mapping[str, float]:
    mechanism = resolved.jobs[0].mechanism
    names, more = names_of(mechanism), value - constant.value
    usual = {
        name: usual_value(mechanism, name) if name in names else constant.value
        for name in constant.figures
    }
    return {name: max(0.0, now + more) for name, now in usual.items()}


def floor_of_launches(constant: Constant, entry: Entry) -> Floats:
    """What one process takes to launch on each of its GPUs where calls are so small that only that
    counts, in all rows."""
    return np.array([seconds for _, seconds in _seconds_per_launch(constant, entry)])


def slope_by_channels(constant: Constant, entry: Entry) -> Floats:
    """What one process takes more for each further channel and GPU where calls are small: the
    slopes between all pairs of rows."""
    slopes = list[float]()
    rows = _rows_of(entry, *_fitted(constant).sizes, most=len(entry.rows()))
    resolved = _resolved(entry, rows)
    for (one, first), (other, second) in combinations(_seconds_per_launch(constant, entry), 2):
        channels = [_channels(resolved, row.size_bytes) for row in (one, other)]
        if channels[0] != channels[1]:
            slopes.append((second - first) / (channels[1] - channels[0]))
    return np.array(slopes)


def _seconds_per_launch(constant: Constant, entry: Entry) -> Iterator[tuple[Measured, float]]:
    """The measured rows of a run within the constant's sizes, and the seconds of one launch.

    The sizes are so small that launches take longer than the operations. So n operations of one
    process with N GPUs take n * N launches and, after the last launch, one operation alone, which
    is simulated: a launch takes (measured - operation alone / n) / N seconds, where measured is
    the time divided by n that nccl-tests prints. Nothing for a process per GPU."""
    plan = mapped(entry)
    rows = _rows_of(entry, *_fitted(constant).sizes, most=len(entry.rows()))
    gpus = int(entry.text("topology", "gpus_per_node"))
    if plan.data["launch"] != "single_process" or not rows:
        return
    source = plan.source(plan.data["name"], *_kind(rows))
    alone = resolve(checked_cells(override(source, "timing", "single", "an estimate"))[0])
    iterations = plan.data.get("timing", {}).get("iterations", ITERATIONS)
    collective = alone.cell.scenario.collective.collective
    for row in rows:
        host = alone.launch(row.size_bytes).host
        one_alone = simulated_seconds(alone, row, collective) - host
        seconds = row.seconds(entry.collective) or 0.0
        yield row, (seconds - one_alone / iterations) / gpus


def _channels(resolved: ResolvedCell, size: int) -> int:
    plan = resolved.planned(size)
    return plan.n_channels if plan else 0


def usable_part(constant: Constant, entry: Entry) -> Floats:
    """The largest bus bandwidth over the line rate of a host's NICs."""
    return np.array([max(_bandwidths(entry)) / (nics_gbps(entry) / 8 * 1e9)])


def most_of_a_nic(constant: Constant, entry: Entry) -> Floats:
    """The largest bus bandwidth over the number of a host's NICs."""
    return np.array([max(_bandwidths(entry)) / int(entry.text("topology", "nics_per_node"))])


def step_up(constant: Constant, entry: Entry) -> Floats:
    """The bytes on the wire beyond which time steps up most, in calls of LL."""
    least, most = _fitted(constant).sizes
    rows = sorted(entry.rows(), key=lambda row: row.size_bytes)
    chosen = [row for row in rows if least <= row.size_bytes <= most]
    seconds = np.array([row.seconds(entry.collective) or np.nan for row in chosen])
    step = int(np.nanargmax(seconds[1:] / seconds[:-1]))
    return np.array([float(LL_WIRE * chosen[step].size_bytes)])


def _bandwidths(entry: Entry) -> Iterator[float]:
    rows = _rows_of(entry, *ANY_SIZE, most=len(entry.rows()))
    resolved = _resolved(entry, rows)
    for row in rows:
        collective = resolved.collective(row.size_bytes)
        seconds = row.seconds(entry.collective) or float("inf")
        yield collective.size_bytes * collective.bus_factor / seconds


ESTIMATORS: dict[str, Callable[[Constant, Entry], Floats]] = {
    one.__name__: one
    for one in (
        *(by_simulation, floor_of_launches, slope_by_channels),
        *(usable_part, most_of_a_nic, step_up, by_steps),
    )
}

FEW_RUNS, FEW_STEPS = 4, 9  # of a system that are looked at when a constant is estimated without
# Where no run is left, a constant is taken over from the next wider class.
WIDER = {
    "sm_70": "sm_80", "sm_80": "sm_90", "sm_89": "sm_120", "sm_90": "sm_100", "sm_100": "sm_90",
    "sm_103": "sm_100", "sm_120": "sm_89", "infiniband": "roce", "roce": "infiniband",
    "efa": "roce", "tcpxo": "efa", "slingshot": "roce",
}  # fmt: skip
# The same kernels on another generation, or the nearest type, where a generation has none wider.
NEXT = {
    "sm_90.gemm.fp8.row": "sm_90.gemm.fp8",
    "sm_100.gemm.fp4": "sm_103.gemm.fp4",
}


@dataclass(frozen=True)
class Without:
    """A constant without what one system says of it: its value becomes `ratio` times as large, by
    its estimator on the other runs or, where there are none, `of` a wider class."""

    constant: str
    system: str
    ratio: float
    of: str = ""


def looked_at(constant: Constant, entries: Sequence[Entry]) -> list[Entry]:
    """Runs that it is estimated from without each of its systems: a few of each; none where it was
    fitted to one system only."""
    fitted_entries = [entry for entry in entries if entry.id in _fitted(constant).runs]
    systems = grouped(fitted_entries, lambda entry: entry.system).values()
    most = FEW_STEPS if _fitted(constant).estimator.endswith(by_steps.__name__) else FEW_RUNS
    return [one for some in systems for one in few(some, most)] if len(systems) > 1 else []


def without(
    system: str,
    constants: Sequence[Constant],
    entries: Sequence[Entry],
    shown: Mapping[str, Mapping[str, Floats]],
) -> Iterator[Without]:
    """All constants that were fitted to a system, without it, from what each of the runs that are
    `looked_at` says; no calibration has some. One after the other, in the order of the table: what
    an earlier one adds to a run's times is no longer there for a later one to explain."""
    added = dict[str, list[Callable[[Floats], Floats]]]()
    for constant in constants:
        shown_runs = shown[constant.id]
        if not any(one.system == system for one in entries if one.id in _fitted(constant).runs):
            continue
        looked = [entry for entry in looked_at(constant, entries) if entry.id in shown_runs]
        every = (
            estimate_of(constant, [shown_runs[one.id] for one in looked]).value if looked else nan
        )
        others = [one for one in looked if one.system != system]
        runs = [
            _with_added(constant, one, shown_runs[one.id], added.get(one.id, [])) for one in others
        ]
        value = estimate_of(constant, runs).value if runs else nan
        ratio = value / every if every else nan
        if not ratio > 0:
            yield _wider(constant, system)
            continue
        ratio = float(np.clip(ratio, 1 / TIMES, TIMES))
        yield Without(constant.id, system, ratio)
        for one in others:
            if by_size := _adds(constant, one, shown_runs[one.id], constant.value * ratio):
                added.setdefault(one.id, []).append(by_size)


def _points(constant: Constant, entry: Entry) -> tuple[Floats, Floats]:
    """Sizes and measured seconds of what `by_simulation` shows of a run."""
    rows = _rows_of(entry, *_fitted(constant).sizes)
    seconds = (row.seconds(entry.collective) or 0.0 for row in rows)
    return np.array([float(row.size_bytes) for row in rows]), np.array(list(seconds))


def _adds(
    constant: Constant, entry: Entry, ratios: Floats, value: float
) -> Callable[[Floats], Floats] | None:
    """The seconds that another value adds to a run's times by size: nothing below the sizes that
    show it, beyond them what it adds to the largest."""
    if _estimator(constant) is not by_simulation or not len(ratios):
        return None
    sizes, measured = _points(constant, entry)
    values = tried_values(constant)
    now, then = (
        np.array([np.exp(np.interp(at, values, row)) for row in ratios])
        for at in (constant.value, value)
    )
    more = measured * (then - now)
    return lambda asked: np.interp(asked, sizes, more, left=0.0)


def _with_added(
    constant: Constant, entry: Entry, ratios: Floats, added: Sequence[Callable[[Floats], Floats]]
) -> Floats:
    """What a run says of a constant once others have added to its times."""
    if _estimator(constant) is not by_simulation or not added:
        return ratios
    sizes, measured = _points(constant, entry)
    more = sum((one(sizes) for one in added), np.zeros(len(sizes))) / measured
    return np.log(np.maximum(np.exp(ratios) + more[:, None], 1e-3))


def _wider(constant: Constant, system: str) -> Without:
    kind, _, rest = constant.id.partition(".")
    other = NEXT.get(constant.id, f"{WIDER.get(kind, '')}.{rest}")
    wider = TABLE.get(other) or TABLE.get(rest)
    if wider is None or not constant.value:
        return Without(constant.id, system, 1.0, "nothing: it stays as it is")
    ratio = _clock(kind) / _clock(wider.id.partition(".")[0]) if ".gemm" in wider.id else 1.0
    return Without(constant.id, system, wider.value * ratio / constant.value, wider.id)


def _clock(arch: str) -> float:
    """What a generation's clock under products is of that at which its peak is told."""
    return TABLE.get(f"{arch}.clock", TABLE["sm_90.clock"]).value


OFF = {"s": 0.0, "bytes": 1e15, "1": 1.0, "bytes/s": 1e15}  # values with which nothing is lost


def switched_off(id: str) -> Without:
    """A constant as if nobody knew it: that of all GPUs in place of one generation's, else a value
    that costs nothing."""
    if id not in TABLE:
        raise InputError(f"no constant is called {id!r}{suggest(id, TABLE)}")
    constant = TABLE[id]
    wider = TABLE.get(id.partition(".")[2]) if id.startswith("sm_") else None
    value = wider.value if wider else OFF[constant.unit]
    if not constant.value:
        raise InputError(f"{id} is 0, which is off")
    return Without(id, "", value / constant.value, wider.id if wider else "nothing")


def figures_without(entry: Entry, found: Sequence[Without]) -> Mapping[str, float]:
    """The figures of a calibration that say so of a run, from what holds for its machines."""
    resolved = _resolved(entry, _rows_of(entry, *ANY_SIZE, most=1))
    changed: dict[str, float] = {}
    for one in (some for some in found if not isclose(some.ratio, 1.0)):
        constant = TABLE[one.constant]
        names = {"latencies.nvlink", *ELSEWHERE, *names_of(resolved.jobs[0].mechanism)}
        if not (names.issuperset(constant.figures) and _holds(constant.id, resolved, entry)):
            continue
        value = constant.value * one.ratio
        for name, figure in _figures(constant, resolved, value).items():
            usual = _figures(constant, resolved, constant.value)[name]
            changed[name] = changed.get(name, usual) + figure - usual
    return {name: max(0.0, figure) for name, figure in changed.items()}


def _holds(id: str, resolved: ResolvedCell, entry: Entry) -> bool:
    comm, kind = resolved.jobs[0].comm, id.partition(".")[0]
    generation = f"sm_{max(sm for sm in GENERATIONS if sm <= max(comm.min_cc, GENERATIONS[0]))}"
    if kind == "network":
        return comm.n_nodes > 1
    if id.startswith(f"{BOTH_WAYS}."):
        machine = resolved.cell.scenario.cluster.members[0].loaded.machine
        return id == both_ways_constant(machine)
    if id == "wire.nvlink_direct":
        up = resolved.cell.scenario.cluster.members[0].loaded.machine.scale_up
        return up is not None and not up.switches
    if kind == "cxi" or kind in {*TRANSPORTS} - {"nvlink"}:  # which joins GPUs of a host, too
        return entry.transport == ("slingshot" if kind == "cxi" else kind)
    if id.startswith("launch.each_channel"):
        return id.endswith("2_13") == (comm.version >= parse_version("2.13"))
    return kind == generation if kind.startswith("sm_") else f"{generation}.{id}" not in TABLE
