"""Estimate constants of the table again from the runs to which they were fitted.

An estimator reads only runs that the table names for its constant, so that runs can be left out and
the constant estimated again. The values in the table are not changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from math import inf, isclose, log, nan

import numpy as np

from netsim.base.constants import ANY_SIZE, TABLE, Constant, Fitted
from netsim.base.errors import InputError, suggest
from netsim.base.values import dataclass, grouped
from netsim.measured.compare import Floats, few, resolved_at, simulated_seconds
from netsim.measured.index import IndexEntry, dtype_of, mapped, nics_gbps, with_figures
from netsim.measured.logs import MeasuredRow
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
# A point depends on a constant if its log time changes by more than this over all tried values.
SHOWS = 0.02
STEPS_TRIED = 7  # values of a constant with which training steps are simulated
TRIED = 9  # values with which collectives are simulated; log times are interpolated between them
FINE = 400  # values within the tried range among which the best is chosen
TIMES = 4.0  # a constant in seconds is tried from a quarter of its value to four times its value
RATES = 2.0  # rates and fractions are tried from half their value to twice their value
# Physical upper limits of constants, by the start of their ids: what a link moves in both
# directions together is at most twice what it moves in one.
MOST_POSSIBLE = {BOTH_WAYS: 2.0}
LL_WIRE = 2  # bytes on the wire for each byte of data with protocol LL


@dataclass(frozen=True)
class Estimate:
    """A constant estimated from runs: its value, the number of points, and the errors that remain.

    `before` and `after` are the median |log ratio| of those points with the table's value and with
    the estimate (nan if nothing is simulated). `at_edge` says that the best value is the smallest
    or largest that was tried.
    """

    constant: Constant
    value: float
    points: int
    before: float = float("nan")
    after: float = float("nan")
    at_edge: bool = False

    @property
    def ratio(self) -> float:
        """The estimate divided by the table's value."""
        return self.value / self.constant.value


def shown_by(constant: Constant, entry: IndexEntry) -> Floats:
    """Return what a constant's estimator reads from one run.

    It is an array of log ratios of simulated over measured time, with a row per point and a column
    per tried value of the constant. Estimators that do not simulate return a list of values of the
    constant.
    """
    return _estimator(constant)(constant, entry)


def _fitted(constant: Constant) -> Fitted:
    """Return the runs and the estimator with which a constant was fitted; only constants with such
    an entry are estimated.
    """
    assert constant.fitted is not None
    return constant.fitted


def _estimator(constant: Constant) -> Callable[[Constant, IndexEntry], Floats]:
    """Return the function that estimates a constant from a run."""
    return ESTIMATORS[_fitted(constant).estimator.rpartition(":")[2]]


def estimate_of(constant: Constant, shown: Sequence[Floats]) -> Estimate:
    """Return the estimate of a constant, given what its estimator read from each run (`shown_by`).

    From log ratios it is the value at which simulated and measured times agree best; from values of
    the constant it is the geometric mean of the median value of each run.
    """
    of_all_runs = np.concatenate(shown)
    if of_all_runs.ndim == 1:
        medians = [np.median(values) for values in shown if len(values)]
        value = float(np.exp(np.mean(np.log(medians)))) if medians else float("nan")
        return Estimate(constant, value, len(of_all_runs))
    dependent_points = of_all_runs[np.ptp(of_all_runs, axis=1) > SHOWS]
    if not len(dependent_points):
        return Estimate(constant, float("nan"), 0)
    return best_of(constant, tried_values(constant), dependent_points)


def by_steps(constant: Constant, entry: IndexEntry) -> Floats:
    """Estimator: return the log ratios of simulated over published time of a training step at the
    tried values.
    """
    step = published(entry)
    values = tried_values(constant).tolist()
    return np.array([[compared(step, {constant.id: value}).log_ratio for value in values]])


def best_of(constant: Constant, values: Floats, ratios: Floats) -> Estimate:
    """Return the value of a constant with the least mean |log ratio| over all points.

    `values` are the tried values; `ratios` has a row per point and a column per tried value. With
    absolute values, unlike squares, a few points that disagree with the others hardly move the
    estimate.
    """
    fine = np.unique(np.append(np.linspace(values[0], values[-1], FINE), constant.value))
    absolute = np.abs(np.array([np.interp(fine, values, point) for point in ratios]))
    median = np.median(absolute, axis=0)
    # Of values that fit equally well, the one nearest to the table's value is taken.
    distance = np.abs(fine / constant.value - 1)
    best = int(np.argmin(absolute.mean(axis=0) + 1e-9 * distance))
    now = int(np.flatnonzero(fine == constant.value)[0])
    return Estimate(
        constant,
        value=float(fine[best]),
        points=len(ratios),
        before=float(median[now]),
        after=float(median[best]),
        at_edge=best in (0, len(fine) - 1),
    )


def tried_values(constant: Constant) -> Floats:
    """Return the values of a constant that are simulated, in ascending order, including the
    table's.

    No value is above a physical limit (`MOST_POSSIBLE`), so that there may be fewer than `TRIED`.
    """
    if _fitted(constant).estimator.endswith(by_steps.__name__):
        values = constant.value * np.linspace(1 / RATES, RATES, STEPS_TRIED)
        values[np.argmin(np.abs(values - constant.value))] = constant.value
        return values
    factor = TIMES if constant.unit == "s" else RATES
    factors = np.exp(np.linspace(-log(factor), log(factor), TRIED))
    factors[TRIED // 2] = 1.0
    values = constant.value * factors
    most = MOST_POSSIBLE.get(constant.id.rpartition(".")[0], inf)
    return np.unique(np.minimum(values, most))


def by_simulation(constant: Constant, entry: IndexEntry) -> Floats:
    """Estimator: return the log ratios of simulated over measured time, a row per size, a column
    per tried value.
    """
    values = tried_values(constant)
    plan = mapped(entry)
    rows = _rows_of(entry, *_fitted(constant).sizes)
    if not rows:
        return np.empty((0, len(values)))
    kind = _kind(rows)
    plan, resolved = resolved_at(plan, *kind)
    collective = resolved.cell.scenario.collective.collective
    measured = [row.seconds(entry.collective) or 0.0 for row in rows]
    ratios_by_value = []
    for value in values.tolist():
        source = plan.source(plan.data["name"], *kind)
        source = with_figures(source, _figures(constant, resolved, value))
        cell = resolve(checked_cells(source)[0])
        simulated = [simulated_seconds(cell, row, collective) for row in rows]
        ratios_by_value.append(
            [log(ours / theirs) for ours, theirs in zip(simulated, measured, strict=True)]
        )
    return np.array(ratios_by_value).T


def _rows_of(
    entry: IndexEntry, smallest: int, largest: int, *, most: int = MOST
) -> tuple[MeasuredRow, ...]:
    """Return up to `most` rows of a run with sizes from `smallest` to `largest` bytes, all with the
    data type and root of the first.
    """
    rows = [
        row
        for row in entry.rows()
        if max(1, smallest) <= row.size_bytes <= largest and row.seconds(entry.collective)
    ]
    same_kind = [row for row in rows if (row.dtype, row.root) == (rows[0].dtype, rows[0].root)]
    return few(same_kind, most)


def _kind(rows: Sequence[MeasuredRow]) -> tuple[list[int], str, int]:
    """Return the sizes, the data type and the root of rows that have the same data type and
    root.
    """
    first = rows[0]
    return sorted({row.size_bytes for row in rows}), dtype_of(first.dtype), max(first.root, 0)


def _resolved(entry: IndexEntry, rows: Sequence[MeasuredRow]) -> ResolvedCell:
    """Return the resolved cell of a run at the sizes of some rows."""
    return resolved_at(mapped(entry), *_kind(rows))[1]


def _figures(constant: Constant, resolved: ResolvedCell, value: float) -> Mapping[str, float]:
    """Return the calibration values, by name, with which a constant has the value `value`.

    If a calibration value depends on the transport and so differs from the constant, this
    difference stays; the result is at least 0.
    """
    mechanism = resolved.jobs[0].mechanism
    names = names_of(mechanism)
    difference = value - constant.value
    usual = {
        name: usual_value(mechanism, name) if name in names else constant.value
        for name in constant.figures
    }
    return {name: max(0.0, figure + difference) for name, figure in usual.items()}


def floor_of_launches(constant: Constant, entry: IndexEntry) -> Floats:
    """Estimator: return the seconds that one process takes per launch, from every row of a run.

    In the rows within the constant's sizes, calls are so small that only launches take time.
    """
    return np.array([seconds for _, seconds in _seconds_per_launch(constant, entry)])


def slope_by_channels(constant: Constant, entry: IndexEntry) -> Floats:
    """Estimator: return the seconds by which a launch takes longer for each channel, from every
    pair of rows of a run.
    """
    slopes = list[float]()
    rows = _rows_of(entry, *_fitted(constant).sizes, most=len(entry.rows()))
    resolved = _resolved(entry, rows)
    launches = [
        (_channels(resolved, row.size_bytes), seconds)
        for row, seconds in _seconds_per_launch(constant, entry)
    ]
    for (channels_a, seconds_a), (channels_b, seconds_b) in combinations(launches, 2):
        if channels_a != channels_b:
            slopes.append((seconds_b - seconds_a) / (channels_b - channels_a))
    return np.array(slopes)


def _seconds_per_launch(
    constant: Constant, entry: IndexEntry
) -> Iterator[tuple[MeasuredRow, float]]:
    """Yield each measured row of a run within the constant's sizes, with the seconds of one launch.

    The sizes are so small that launches take longer than the operations. So n operations of one
    process with N GPUs take n * N launches and, after the last launch, one operation from an idle
    cluster, which is simulated: a launch takes (measured - standalone time / n) / N seconds, where
    measured is the time divided by n that nccl-tests prints. Nothing is yielded for a run with a
    process per GPU.
    """
    plan = mapped(entry)
    rows = _rows_of(entry, *_fitted(constant).sizes, most=len(entry.rows()))
    gpu_count = int(entry.text("topology", "gpus_per_node"))
    if plan.data["launch"] != "single_process" or not rows:
        return
    source = plan.source(plan.data["name"], *_kind(rows))
    standalone = resolve(checked_cells(override(source, "timing", "single", "an estimate"))[0])
    iterations = plan.data.get("timing", {}).get("iterations", ITERATIONS)
    collective = standalone.cell.scenario.collective.collective
    for row in rows:
        host = standalone.launch(row.size_bytes).host
        standalone_seconds = simulated_seconds(standalone, row, collective) - host
        seconds = row.seconds(entry.collective) or 0.0
        yield row, (seconds - standalone_seconds / iterations) / gpu_count


def _channels(resolved: ResolvedCell, size: int) -> int:
    """Return the number of channels that NCCL uses for a size; 0 if NCCL does not run the
    operation.
    """
    plan = resolved.planned(size)
    return plan.n_channels if plan else 0


def usable_part(constant: Constant, entry: IndexEntry) -> Floats:
    """Estimator: return the largest bus bandwidth of a run as a fraction of the line rate of a
    host's NICs.
    """
    return np.array([max(_bandwidths(entry)) / (nics_gbps(entry) / 8 * 1e9)])


def most_of_a_nic(constant: Constant, entry: IndexEntry) -> Floats:
    """Estimator: return the largest bus bandwidth of a run in bytes/s, divided by the number of
    NICs of a host.
    """
    return np.array([max(_bandwidths(entry)) / int(entry.text("topology", "nics_per_node"))])


def step_up(constant: Constant, entry: IndexEntry) -> Floats:
    """Estimator for protocol LL: return the size after which the time grows most from one size to
    the next, in bytes on the wire.
    """
    least, most = _fitted(constant).sizes
    rows = sorted(entry.rows(), key=lambda row: row.size_bytes)
    chosen = [row for row in rows if least <= row.size_bytes <= most]
    seconds = np.array([row.seconds(entry.collective) or np.nan for row in chosen])
    step = int(np.nanargmax(seconds[1:] / seconds[:-1]))
    return np.array([float(LL_WIRE * chosen[step].size_bytes)])


def _bandwidths(entry: IndexEntry) -> Iterator[float]:
    """Yield the measured bus bandwidth of every row of a run in bytes/s."""
    rows = _rows_of(entry, *ANY_SIZE, most=len(entry.rows()))
    resolved = _resolved(entry, rows)
    for row in rows:
        collective = resolved.collective(row.size_bytes)
        seconds = row.seconds(entry.collective) or float("inf")
        yield collective.size_bytes * collective.bus_factor / seconds


# Estimators by their names in the table of constants.
ESTIMATORS: dict[str, Callable[[Constant, IndexEntry], Floats]] = {
    estimator.__name__: estimator
    for estimator in (
        by_simulation,
        floor_of_launches,
        slope_by_channels,
        usable_part,
        most_of_a_nic,
        step_up,
        by_steps,
    )
}

# The most runs, or training steps, of each system from which a constant is estimated again.
FEW_RUNS = 4
FEW_STEPS = 9
# If only one system has measured a constant, there is no other run to estimate it from when that
# system is left out. The constant is then replaced by that of another GPU generation or transport.
WIDER = {
    "sm_70": "sm_80", "sm_80": "sm_90", "sm_89": "sm_120", "sm_90": "sm_100", "sm_100": "sm_90",
    "sm_103": "sm_100", "sm_120": "sm_89", "infiniband": "roce", "roce": "infiniband",
    "efa": "roce", "tcpxo": "efa", "slingshot": "roce",
}  # fmt: skip
# Constants of kernels that are replaced by a certain other constant instead of by `WIDER`: that of
# the same kernels on another generation, or of the nearest data type.
NEXT = {
    "sm_90.gemm.fp8.row": "sm_90.gemm.fp8",
    "sm_100.gemm.fp4": "sm_103.gemm.fp4",
}


@dataclass(frozen=True)
class Without:
    """A constant estimated without the runs of one system.

    Args:
        constant: id of the constant.
        system: the system that is left out.
        ratio: the new value divided by the table's value: for an estimate, that without the system
            divided by that of all systems.
        of: id of the constant that replaces it if no other system has measured it; else empty.
    """

    constant: str
    system: str
    ratio: float
    of: str = ""


def looked_at(constant: Constant, entries: Sequence[IndexEntry]) -> list[IndexEntry]:
    """Return the runs from which a constant is estimated again: a few runs of each system to which
    it was fitted.

    Empty if it was fitted to one system only.
    """
    fitted_entries = [entry for entry in entries if entry.id in _fitted(constant).runs]
    systems = grouped(fitted_entries, lambda entry: entry.system).values()
    if len(systems) <= 1:
        return []
    most = FEW_STEPS if _fitted(constant).estimator.endswith(by_steps.__name__) else FEW_RUNS
    return [entry for of_system in systems for entry in few(of_system, most)]


def without(
    system: str,
    constants: Sequence[Constant],
    entries: Sequence[IndexEntry],
    shown: Mapping[str, Mapping[str, Floats]],
) -> Iterator[Without]:
    """Yield each constant that was fitted to a system, estimated without that system's runs.

    If the estimate without the system is the smallest or the largest tried value, and differs from
    that of all systems, the other systems do not determine the constant. It is then replaced as if
    no other system had measured it (`_wider`).

    Constants are estimated one after the other in the order of the table. The time that an earlier
    estimate adds to a run is taken into account, so that a later constant does not explain it a
    second time; replaced constants add none.

    Args:
        system: the system that is left out.
        constants: the constants of the table that were fitted to runs.
        entries: the runs of the index.
        shown: by constant id and run id, what the estimator read from the runs of `looked_at`.
    """
    added = dict[str, list[Callable[[Floats], Floats]]]()
    for constant in constants:
        shown_runs = shown[constant.id]
        fitted_runs = [entry for entry in entries if entry.id in _fitted(constant).runs]
        if not any(entry.system == system for entry in fitted_runs):
            continue
        looked = [entry for entry in looked_at(constant, entries) if entry.id in shown_runs]
        remaining = [entry for entry in looked if entry.system != system]
        if not remaining:
            yield _wider(constant, system)
            continue
        of_all = estimate_of(constant, [shown_runs[entry.id] for entry in looked])
        of_others = estimate_of(
            constant,
            [
                _with_added(constant, entry, shown_runs[entry.id], added.get(entry.id, []))
                for entry in remaining
            ],
        )
        ratio = of_others.value / of_all.value if of_all.value else nan
        is_undetermined = of_others.at_edge and of_others.value != of_all.value
        if is_undetermined or not ratio > 0:  # also if nan: there is no estimate
            yield _wider(constant, system)
            continue
        ratio = float(np.clip(ratio, 1 / TIMES, TIMES))
        yield Without(constant.id, system, ratio)
        for entry in remaining:
            by_size = _adds(constant, entry, shown_runs[entry.id], constant.value * ratio)
            if by_size:
                added.setdefault(entry.id, []).append(by_size)


def _points(constant: Constant, entry: IndexEntry) -> tuple[Floats, Floats]:
    """Return the sizes in bytes and the measured seconds of the rows that `by_simulation`
    simulates.
    """
    rows = _rows_of(entry, *_fitted(constant).sizes)
    seconds = (row.seconds(entry.collective) or 0.0 for row in rows)
    return np.array([float(row.size_bytes) for row in rows]), np.array(list(seconds))


def _adds(
    constant: Constant, entry: IndexEntry, ratios: Floats, value: float
) -> Callable[[Floats], Floats] | None:
    """Return a function from sizes in bytes to the seconds that a run takes longer if a constant
    has the value `value`.

    It returns 0 below the smallest simulated size, and above the largest one the seconds at that
    size. None if the constant is not estimated by simulation. `ratios` as from `by_simulation`.
    """
    if _estimator(constant) is not by_simulation or not len(ratios):
        return None
    sizes, measured = _points(constant, entry)
    values = tried_values(constant)
    ratios_now = np.exp([np.interp(constant.value, values, point) for point in ratios])
    ratios_then = np.exp([np.interp(value, values, point) for point in ratios])
    added_seconds = measured * (ratios_then - ratios_now)
    return lambda wanted_sizes: np.interp(wanted_sizes, sizes, added_seconds, left=0.0)


def _with_added(
    constant: Constant,
    entry: IndexEntry,
    ratios: Floats,
    added: Sequence[Callable[[Floats], Floats]],
) -> Floats:
    """Return what a run shows for a constant (`shown_by`) once estimates of earlier constants have
    changed its simulated times by `added` (functions as from `_adds`).
    """
    if _estimator(constant) is not by_simulation or not added:
        return ratios
    sizes, measured = _points(constant, entry)
    added_seconds = sum((seconds_at(sizes) for seconds_at in added), np.zeros(len(sizes)))
    added_ratio = added_seconds / measured
    return np.log(np.maximum(np.exp(ratios) + added_ratio[:, None], 1e-3))


def _wider(constant: Constant, system: str) -> Without:
    """Return how a constant changes if the measurements of a system are left out and no other
    system has measured it: it takes the value of another generation, transport or data type.

    Rates of matrix products are scaled by the clocks of the two generations. A constant that
    nothing can replace keeps its value.
    """
    kind, _, rest = constant.id.partition(".")
    other_id = NEXT.get(constant.id, f"{WIDER.get(kind, '')}.{rest}")
    wider = TABLE.get(other_id) or TABLE.get(rest)
    if wider is None or not constant.value:
        return Without(constant.id, system, 1.0, "nothing: it stays as it is")
    ratio = 1.0
    if ".gemm" in wider.id:
        ratio = _clock(kind) / _clock(wider.id.partition(".")[0])
    return Without(constant.id, system, wider.value * ratio / constant.value, wider.id)


def _clock(arch: str) -> float:
    """Return the clock of a GPU generation under matrix products, as a fraction of the clock that
    its peak rate assumes.
    """
    return TABLE.get(f"{arch}.clock", TABLE["sm_90.clock"]).value


OFF = {"s": 0.0, "bytes": 1e15, "1": 1.0, "bytes/s": 1e15}  # by unit, the value that costs no time


def switched_off(id: str) -> Without:
    """Return a constant with its effect switched off, for the option `--without`.

    The constant of one GPU generation is replaced by that of all GPUs, any other constant by a
    value that costs no time.
    """
    if id not in TABLE:
        raise InputError(f"no constant is called {id!r}{suggest(id, TABLE)}")
    constant = TABLE[id]
    wider = TABLE.get(id.partition(".")[2]) if id.startswith("sm_") else None
    value = wider.value if wider else OFF[constant.unit]
    if not constant.value:
        raise InputError(f"{id} is 0, which is off")
    return Without(id, "", value / constant.value, wider.id if wider else "nothing")


def figures_without(entry: IndexEntry, changes: Sequence[Without]) -> Mapping[str, float]:
    """Return the calibration values of a run, by name, when constants change; constants that do not
    apply to the run are ignored.

    If several constants set the same value, their changes add up.
    """
    resolved = _resolved(entry, _rows_of(entry, *ANY_SIZE, most=1))
    names = {"latencies.nvlink", *ELSEWHERE, *names_of(resolved.jobs[0].mechanism)}
    figures: dict[str, float] = {}
    for change in changes:
        if isclose(change.ratio, 1.0):
            continue
        constant = TABLE[change.constant]
        if not names.issuperset(constant.figures) or not _holds(constant.id, resolved, entry):
            continue
        usual = _figures(constant, resolved, constant.value)
        for name, figure in _figures(constant, resolved, constant.value * change.ratio).items():
            figures[name] = figures.get(name, usual[name]) + figure - usual[name]
    return {name: max(0.0, figure) for name, figure in figures.items()}


def _holds(constant_id: str, resolved: ResolvedCell, entry: IndexEntry) -> bool:
    """Whether a run depends on a constant: by its GPU generation, its transport, its version of
    NCCL, or because it has several nodes.
    """
    comm = resolved.jobs[0].comm
    kind = constant_id.partition(".")[0]
    compute_capability = max(comm.min_cc, GENERATIONS[0])
    generation = f"sm_{max(sm for sm in GENERATIONS if sm <= compute_capability)}"
    if kind == "network":
        return comm.n_nodes > 1
    if constant_id.startswith(f"{BOTH_WAYS}."):
        machine = resolved.cell.scenario.cluster.members[0].loaded.machine
        return constant_id == both_ways_constant(machine)
    if constant_id == "wire.nvlink_direct":
        scale_up = resolved.cell.scenario.cluster.members[0].loaded.machine.scale_up
        return scale_up is not None and not scale_up.switches
    # `nvlink` is a transport between GPUs of a host; all others are networks.
    if kind == "cxi" or kind in {*TRANSPORTS} - {"nvlink"}:
        return entry.transport == ("slingshot" if kind == "cxi" else kind)
    if constant_id.startswith("launch.each_channel"):
        return constant_id.endswith("2_13") == (comm.version >= parse_version("2.13"))
    if kind.startswith("sm_"):
        return kind == generation
    return f"{generation}.{constant_id}" not in TABLE
