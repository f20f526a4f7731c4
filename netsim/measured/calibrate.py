"""Calibrate a system: which parameters may be fitted, which constants each of them scales, and the
fit to the logs of the system.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from functools import partial
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError, LostError, NetsimError, Tell, silent
from netsim.base.memo import Memo
from netsim.base.processes import Processes
from netsim.base.startup import STAGE, at
from netsim.base.values import dataclass, grouped
from netsim.measured import compare
from netsim.measured.index import with_figures
from netsim.measured.logs import LogRun, MeasuredRow
from netsim.measured.selection import (
    FLOOR,
    MOST_FITTED,
    FittedSet,
    LinearModel,
    Members,
    alternatives,
    common_members,
    fitted_sets,
    forecast_residuals,
    interval_moves,
    plausible,
    score_of,
    solved,
)
from netsim.measured.shrinkage import WIDE, Residuals, Shrunken, forecast_score, shrunken_fit
from netsim.nccl.constants import HOST, KERNEL, constant, names_of
from netsim.tasks.resolve import ResolvedCell
from netsim.topology.machine import TRANSPORTS, USABLE, Figure, kind_of, written
from netsim.yamlio.read import Source

# The factor of a parameter lies between 1 / F and F, where F is one of these numbers.
SURE = 1.6  # rates
LOOSE = 3.0  # latencies
FOREIGN = 10.0  # messages of a network; with plugins of software they are far slower (Slingshot)


@dataclass(frozen=True)
class CalibratedParameter:
    """A parameter of the fit: constants that are scaled by the same factor.

    A fit changes x, the natural logarithm of the factor.

    Args:
        name: title for the user.
        usual: the usual value of each constant by name.
        low: the least factor.
        high: the largest factor.
    """

    name: str
    usual: Mapping[str, float]
    low: float
    high: float
    only: str = ""  # the protocol or algorithm of the points that it can change; empty: all

    def figures(self, x: float) -> dict[str, float]:
        """Return the values of the constants by name at the factor exp(x)."""
        return {name: value * exp(x) for name, value in self.usual.items()}


def parameters_of(resolved: ResolvedCell) -> list[CalibratedParameter]:
    """Return the parameters that may be fitted on a system. The fit leaves out those that have no
    effect on its runs.
    """
    job = resolved.jobs[0]
    machine = job.cluster.machine_of(0)
    parameters = [
        CalibratedParameter("launch by the host", {"launch.host": HOST}, 1 / LOOSE, LOOSE),
        CalibratedParameter("launch on the GPU", {"launch.kernel": KERNEL}, 1 / LOOSE, LOOSE),
    ]

    def scaled(name: str, *constants: str, factor: float = LOOSE, only: str = "") -> None:
        """Add a parameter that scales those of the `constants` which this system has, by at most
        `factor`.
        """
        usual = {key: constant(job.mechanism, key) for key in constants if key in names}
        if usual:
            parameters.append(
                CalibratedParameter(name=name, usual=usual, low=1 / factor, high=factor, only=only)
            )

    names = names_of(job.mechanism)
    fitted = machine.scale_up is not None and machine.scale_up.fitted

    for name in ("LL", "LL128", "Simple"):
        kind = "nvlink" if fitted else "pcie"
        key = name.casefold()
        scaled(f"hop of {name}", f"step_cost.{key}", f"{kind}.sync.{key}", only=name)
        scaled(f"channel rate of {name}", f"rate.{key}", factor=SURE, only=name)
    if job.comm.nvls_channels and machine.scale_up is not None and machine.scale_up.multicast:
        scaled("part of NVLink's rate in NVLS", "nvls_efficiency", factor=1.3, only="NVLS")
        hops = [key for key in names if key.startswith("nvls_") and kind_of(key) == "time"]
        scaled("hop of NVLS", *hops, only="NVLS")
        scaled("rate of NVLS's copies", "nvls_copy_rate", factor=SURE, only="NVLS")
    if job.comm.n_nodes > 1:
        deliveries = [f"network.delivery.{key}" for key in ("ll", "ll128", "simple")]
        latencies = ["network.notice", *deliveries, "network.credit"]
        scaled("transport latency", *latencies, factor=FOREIGN)
        scaled(
            "time of a post",
            "network.post.ll",
            "network.post.ll128",
            "network.post.simple",
            factor=FOREIGN,
        )
        # Only times are scaled, not the copy rate: it is infinite without a plugin, which a file
        # cannot state, and a factor on it would act in the opposite direction.
        handling = [
            key
            for key in names
            if key.startswith("network.path.handling.") and kind_of(key) == "time"
        ]
        if any(constant(job.mechanism, key) for key in handling):
            scaled("handling of a message", *handling)
        now = machine.calibration.get(USABLE)
        transport = job.cluster.transport or TRANSPORTS[machine.transport]
        usable = transport.usable if now is None else float(now.value)
        parameters.append(
            CalibratedParameter("usable part of the NICs' rate", {USABLE: usable}, 0.4, 1 / usable)
        )
    up = machine.scale_up
    if up is not None and up.fitted:
        rate = {"scale_up.link_bandwidth": up.link_bandwidth}
        parameters.append(CalibratedParameter("rate of a link between GPUs", rate, 0.5, 1.3))
    if not machine.p2p or up is None:
        memory = {"cpu.memory_bandwidth": machine.cpu.memory_bandwidth}
        parameters.append(CalibratedParameter("bandwidth of the hosts' memory", memory, 0.3, 2.5))
    return parameters


def concerns(parameter: CalibratedParameter, algorithm: str, protocol: str) -> bool:
    """Whether a parameter can change the times of an algorithm and protocol at all."""
    only = parameter.only
    return not only or only == protocol or (only == "NVLS" and algorithm.startswith("NVLS"))


# Log ratios of simulated over measured times at any values of the parameters, computed by several
# processes. When parameters change, only points that depend on them are simulated again.

IMPOSSIBLE = 3.0  # log ratio of a point that cannot be simulated with some parameters
LARGE = 8  # ranks from which worker processes save more time than they take to start

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CalibrationSet:
    """A measured run, the scenario it is compared with, and the rows that are used."""

    source: Source
    run: LogRun
    rows: tuple[MeasuredRow, ...]


@dataclass
class MeasuredCells:
    """The resolved cells of all measured runs at given values of the parameters; the last result is
    cached.
    """

    parameters: Sequence[CalibratedParameter]
    sets: Sequence[CalibrationSet]
    last: Memo = field(default_factory=lambda: Memo(1))

    def at(self, x: Floats) -> list[ResolvedCell]:
        """Return the resolved cell of every run, if x has the logarithms of all factors."""
        return self.last.of(x.tobytes(), lambda: self._made(x))

    def _made(self, x: Floats) -> list[ResolvedCell]:
        """Resolve the cell of every run, if x has the logarithms of all factors."""
        figures: dict[str, float] = {}
        for parameter, value in zip(self.parameters, x.tolist(), strict=True):
            if value:
                figures |= parameter.figures(value)
        return [
            compare.resolved_for(with_figures(each_set.source, figures), each_set.run)
            for each_set in self.sets
        ]

    def ratio(self, x: Floats, place: int, row: MeasuredRow) -> float:
        """Return the log ratio of simulated over measured time of one row of run number `place`;
        IMPOSSIBLE if it cannot be simulated.
        """
        collective = self.sets[place].run.collective
        seconds = row.seconds(collective)
        assert seconds is not None  # readers keep only rows with a time
        try:
            return log(compare.simulated_seconds(self.at(x)[place], row, collective) / seconds)
        except NetsimError:
            return IMPOSSIBLE


# The logarithms of the factors, the number of a run, and one of its rows.
PointQuestion = tuple[Floats, int, MeasuredRow]


def _ratio(question: PointQuestion, cells: MeasuredCells) -> Iterator[float]:
    """Yield the log ratio of a point. Worker processes call this function."""
    yield cells.ratio(*question)


class PointLost(Exception):
    """The worker process that simulated a point died; the fit starts again without this point."""


@dataclass
class Ratios:
    """The log ratios of all points (rows of measured runs) at any values of the parameters.

    Used as `with Ratios(parameters, sets, jobs) as ratios: ratios.at([x, y], which)`.

    Fields:
        parameters: what is calibrated.
        sets: the measured runs.
        jobs: the number of worker processes; None is one per processor.
        large: the number of ranks from which worker processes are started.
        depends: for the number of a point, a mask of the parameters on which its time depends.
        known_ratios: log ratios by the number of a point and the values of those parameters.
        narrowed: numbers of the points for which `narrow` has set `depends`.
        lost: for the number of a point, why its worker process died.
        memory: bytes that the workers may use together; 0 is no limit.
        tell: called with a message for each worker that died.
    """

    parameters: Sequence[CalibratedParameter]
    sets: Sequence[CalibrationSet]
    jobs: int | None = None
    large: int = LARGE
    depends: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    known_ratios: dict[tuple[int, bytes], float] = field(default_factory=dict)
    narrowed: set[int] = field(default_factory=set)
    lost: dict[int, str] = field(default_factory=dict)
    memory: int = 0
    tell: Tell = silent
    pool: Processes | None = None

    def __enter__(self) -> "Ratios":
        self.cells = MeasuredCells(self.parameters, self.sets)
        cells = self.cells.at(np.zeros(len(self.parameters)))
        self.usual = cells
        for number, (place, row) in enumerate(self.points):
            plan = cells[place].planned(row.size_bytes)
            assert plan is not None  # `calibrate` has checked it
            self.depends[number] = np.array(
                [
                    concerns(parameter, plan.algorithm, plan.protocol)
                    for parameter in self.parameters
                ]
            )
        jobs = self.jobs or min(os.cpu_count() or 1, len(self.points))
        if jobs > 1 and max(len(cell.gpus) for cell in cells) >= self.large:
            begun = (MeasuredCells(self.parameters, self.sets),)
            self.pool = Processes(jobs, _ratio, begun=begun, memory=self.memory, tell=self.tell)
            STAGE.others = self.pool.memory
        return self

    def __exit__(self, *error: Any) -> None:
        if self.pool is not None:
            self.pool.__exit__(*error)

    @property
    def points(self) -> list[tuple[int, MeasuredRow]]:
        """Every point as the number of its run and its row."""
        return [(number, row) for number, each_set in enumerate(self.sets) for row in each_set.rows]

    def at(self, places: Sequence[Floats], which: Sequence[int]) -> list[Floats]:
        """Return the log ratios of the points `which` (numbers), an array for each of the `places`
        (values x of all parameters).

        Raises:
            PointLost: the worker process that simulated one of the points died.
        """
        missing: dict[tuple[int, bytes], PointQuestion] = {}
        for x in places:
            for number in which:
                key = self._key(x, number)
                if key not in self.known_ratios:
                    missing.setdefault(key, (x, *self.points[number]))
        for number_done, (key, ratio) in enumerate(self._simulated(missing), 1):
            at(self._name(missing[key]), number_done, len(missing))
            if isinstance(ratio, LostError):
                self.lost.setdefault(key[0], str(ratio))
            else:
                self.known_ratios[key] = ratio
        if self.lost.keys() & set(which):
            raise PointLost
        return [
            np.array([self.known_ratios[self._key(x, number)] for number in which]) for x in places
        ]

    def _simulated(
        self, missing: Mapping[tuple[int, bytes], PointQuestion]
    ) -> Iterator[tuple[tuple[int, bytes], Any]]:
        """Simulate points; yield the key of each with its log ratio, or with a `LostError`."""
        if self.pool is None or len(missing) == 1:
            yield from ((key, self.cells.ratio(*question)) for key, question in missing.items())
            return
        keys = {id(question): key for key, question in missing.items()}
        jobs = (
            (question, self._name(question), self._memory(question), 1)
            for question in missing.values()
        )
        with closing(self.pool.results(jobs)) as results:
            for question, ratio in results:
                yield keys[id(question)], ratio

    def _memory(self, question: PointQuestion) -> int:
        """Return the most bytes that a process needs to simulate a point."""
        _, place, row = question
        return self.usual[place].memory_needed(row.size_bytes)

    def _name(self, question: PointQuestion) -> str:
        """Return the name of a point in progress messages."""
        _, place, row = question
        return f"{self.sets[place].run.file} at {row.size_bytes} B"

    def _key(self, x: Floats, number: int) -> tuple[int, bytes]:
        """Return the key of a known ratio: the number of a point, and the values of the parameters
        on which it depends.
        """
        return number, x[self.depends[number]].tobytes()

    def narrow(self, depends: NDArray[np.bool_], which: Sequence[int]) -> None:
        """Record on which parameters the points `which` depend (one row of `depends` per point).

        From then on they are not simulated again when only other parameters change."""
        for number, row in zip(which, depends, strict=True):
            if number not in self.narrowed:
                self.narrowed.add(number)
                before = self.depends[number]
                self.depends[number] = before & row
                still_depends = row[before]
                for (key_number, key), ratio in list(self.known_ratios.items()):
                    if key_number == number:
                        values = np.frombuffer(key)[still_depends]
                        self.known_ratios[number, values.tobytes()] = ratio

    def errors(self, x: Floats, which: Sequence[int]) -> dict[str, compare.Error]:
        """Return the errors of the points `which` by size band, if the parameters are x."""
        return self.by_band(self.at([x], which)[0], which)

    def by_band(self, ratios: Floats, which: Sequence[int]) -> dict[str, compare.Error]:
        """Return the errors by size band, given the log ratios of the points `which`."""
        bands = []
        for number, ratio in zip(which, ratios.tolist(), strict=True):
            place, row = self.points[number]
            run = self.sets[place].run
            micros = (row.seconds(run.collective) or 0.0) * compare.MICRO
            bands.append(
                compare.ComparedPoint(
                    run.file,
                    "",
                    run.collective,
                    row.size_bytes,
                    micros,
                    micros * exp(ratio),
                    "",
                    "",
                    True,
                )
            )
        return compare.by_band(bands)


# The fit. A linear model of the log ratios proposes sets of a few parameters; each proposed set is
# then fitted to the simulation itself.

# A function that is called with a mask [point, parameter]: whether the point depends on the
# parameter.
Narrow = Callable[[NDArray[np.bool_]], None]

STEP = 0.1  # change of a log factor from which derivatives are computed
WIDE_STEP = 0.4  # the same for parameters that have no effect near their usual values
DEPENDS = 1e-3  # a point depends on a parameter if d(log time) / d(log factor) is larger
SHOWS = 0.03  # a point shows a parameter if d(log time) / d(log factor) is larger
CLOSE = (
    30.0  # a set whose score in the linear model is worse than the best by more is not simulated
)
MOST_SETS = 4  # sets of each count of parameters that are simulated in a round
SIMULATED_ROUNDS = 4  # simulations of a set, each at the values that earlier ones suggest
STILL = 0.01  # a fit has converged when the log factors change by less than a quarter of this
EXPLAINED = 0.01  # few parameters explain the points if the root mean square residual is smaller
VAGUE = "the points do not determine it"
UNSEEN = "the points do not show it"
NOT_NEEDED = "the points are explained without it"
AMBIGUOUS = "the points do not separate it from others"
NO_BETTER = "without a point, no fit forecasts it better than the usual values do"


@dataclass(frozen=True)
class FittedParameter:
    """A parameter after the fit.

    Args:
        parameter: the parameter.
        x: the natural logarithm of its factor.
        low: lower end of the 90 % interval of x.
        high: upper end of it.
        left: the reason why it keeps its usual value; empty if it was fitted.
    """

    parameter: CalibratedParameter
    x: float
    low: float
    high: float
    left: str = ""

    @property
    def at_edge(self) -> bool:
        """Whether the value that fits best lies at or beyond the physical bounds of the parameter.

        An upper bound just above the usual value does not count: a fraction near 1 may be 1.
        """
        low, high = np.log([self.parameter.low, self.parameter.high])
        return bool(self.x < low + STILL or (self.x > high - STILL and high > 0.05))


@dataclass(frozen=True)
class Alternative:
    """A set of parameters, and the logarithms of their factors, that would explain what the fitted
    ones leave unexplained.
    """

    parameters: tuple[CalibratedParameter, ...]
    x: tuple[float, ...]


@dataclass(frozen=True)
class Fit:
    """The result of a fit.

    Args:
        fitted: all parameters, also those that keep their usual values.
        forecast: the log ratio of each point, predicted by a fit to the other points.
        alternatives: sets of parameters that explain the points equally well; the points cannot
            separate them, so none of them is fitted.
    """

    fitted: tuple[FittedParameter, ...]
    forecast: Floats
    alternatives: tuple[Alternative, ...] = ()

    @property
    def x(self) -> Floats:
        """The logarithms of all factors."""
        return np.array([fitted.x for fitted in self.fitted])


def fit(parameters: Sequence[CalibratedParameter], residuals: Residuals, narrow: Narrow) -> Fit:
    """Fit the parameters that the points determine; the others keep their usual values.

    Args:
        parameters: all parameters.
        residuals: returns the log ratios of all points at given values of the parameters.
        narrow: called with a mask [point, parameter] of dependences.

    If a few parameters explain the points, these are fitted, and parameters that cannot be
    separated keep their usual values. Otherwise the points have noise, or the system differs in
    many parameters. Then all parameters are fitted with a penalty on the distance from the usual
    values, if this predicts a left-out point better.
    """
    count = len(parameters)
    low = np.log([parameter.low for parameter in parameters])
    high = np.maximum(np.log([parameter.high for parameter in parameters]), low + 0.01)
    usual = residuals([np.zeros(count)])[0]
    near_slopes = _differences(residuals, np.zeros(count), high)
    wide_slopes = _wide_differences(residuals, np.zeros(count), low, high)
    narrow(np.maximum(np.abs(near_slopes), np.abs(wide_slopes)) > DEPENDS)
    seen_near = _is_seen(near_slopes)
    seen = seen_near | _is_seen(wide_slopes)
    lines = [LinearModel(usual, slopes) for slopes in (near_slopes, wide_slopes)]
    simulated, line = _simulated(residuals, lines, seen, low, high)
    sets = plausible(simulated)
    sparse = _fit_of(parameters, sets, line, usual, seen, (low, high))
    if float(np.sqrt(np.mean(sets[0].residuals ** 2))) < EXPLAINED:
        return sparse
    rates = np.array([_is_rate(parameter) for parameter in parameters], dtype=bool)
    spread = shrunken_fit(
        residuals, partial(_differences, residuals, high=high), seen_near, rates, low, high
    )
    if forecast_score(sparse.forecast) <= forecast_score(spread.forecast):
        return sparse
    return _spread_fit(parameters, spread, seen)


def _is_rate(parameter: CalibratedParameter) -> bool:
    """Whether all constants of a parameter are rates or fractions, none of them a time."""
    return all(kind_of(name) != "time" for name in parameter.usual)


def _simulated(
    residuals: Residuals,
    lines: Sequence[LinearModel],
    seen: NDArray[np.bool_],
    low: Floats,
    high: Floats,
) -> tuple[list[FittedSet], LinearModel]:
    """Return sets of parameters, each fitted to the simulation, and a linear model near the best
    set.

    Args:
        residuals: returns the log ratios of all points at given values of the parameters.
        lines: linear models near the usual values, which propose the first sets. A linear model
            near the best of these proposes further ones.
        seen: mask of the parameters that have an effect.
        low: least x of each parameter.
        high: largest x of each parameter.
    """
    nothing = np.zeros(len(seen))
    usual = lines[0].usual
    simulated: dict[Members, FittedSet] = {
        (): FittedSet((), nothing, usual, score_of(usual, nothing, 0))
    }

    def add(line: LinearModel, most: int) -> FittedSet:
        """Simulate the sets of at most `most` parameters that a linear model proposes.

        Return the best set so far."""
        proposed = fitted_sets(line, np.flatnonzero(seen).tolist(), low, high, most)
        missing = [
            candidate for candidate in proposed if most == 1 or candidate.members not in simulated
        ]
        for fitted in _simulated_sets(_close_sets(missing), line, residuals, low, high):
            before = simulated.get(fitted.members)
            if before is None or fitted.score < before.score:
                simulated[fitted.members] = fitted
        return min(simulated.values(), key=lambda fitted: fitted.score)

    # If one parameter explains everything, sets of several parameters are not tried.
    for most in (1, MOST_FITTED):
        for line in lines:
            best = add(line, most)
        if _is_perfect(best):
            break
    slopes = _differences(residuals, best.x, high)
    line = LinearModel(best.residuals - slopes @ best.x, slopes)
    if not _is_perfect(best):
        add(line, MOST_FITTED)
    return list(simulated.values()), line


def _spread_fit(
    parameters: Sequence[CalibratedParameter], spread: Shrunken, seen: NDArray[np.bool_]
) -> Fit:
    """Return the fit of many parameters with a penalty as the result of the calibration.

    `spread` is the result of `shrunken_fit`; `seen` is a mask of the parameters that have an
    effect.
    """
    unfitted = VAGUE if spread.fitted.any() else NO_BETTER
    fitted = []
    for number, parameter in enumerate(parameters):
        if spread.fitted[number]:
            left = ""
        else:
            left = unfitted if seen[number] else UNSEEN
        low, high = spread.intervals[number].tolist()
        fitted.append(
            FittedParameter(
                parameter=parameter, x=float(spread.x[number]), low=low, high=high, left=left
            )
        )
    return Fit(tuple(fitted), spread.forecast)


def _close_sets(candidates: Sequence[FittedSet]) -> list[FittedSet]:
    """Return the proposed sets that are worth a simulation: at most `MOST_SETS` of each number of
    parameters.

    The candidates are in order of their scores. The limit makes sure that many large sets do not
    displace the small ones.
    """
    if not candidates:
        return []
    limit = candidates[0].score + CLOSE
    close = [
        candidate for candidate in candidates if candidate.score <= limit and candidate.members
    ]
    by_count = grouped(close, lambda candidate: len(candidate.members))
    return [candidate for sets in by_count.values() for candidate in sets[:MOST_SETS]]


def _simulated_sets(
    sets: Sequence[FittedSet], line: LinearModel, residuals: Residuals, low: Floats, high: Floats
) -> list[FittedSet]:
    """Fit each set of parameters to the simulation, within the bounds `low` and `high`, starting
    from its fit to a linear model `line`; return the best fit of each set.

    `residuals` simulates all points at given values of the parameters. After each simulation the
    slopes are corrected so that they agree with the last two simulated points (Broyden's method),
    and the set is simulated at the optimum of the corrected model.
    """
    if not sets:
        return []
    best: dict[Members, FittedSet] = {}
    nothing = np.zeros(line.slopes.shape[1])
    places = {proposed.members: (nothing, line.usual, line.slopes) for proposed in sets}
    aims = {proposed.members: proposed.x for proposed in sets}
    for _ in range(SIMULATED_ROUNDS):
        there_by_set = dict(zip(aims, residuals(list(aims.values())), strict=True))
        for members, there in there_by_set.items():
            x = aims.pop(members)
            score = score_of(there, x, len(members))
            if members not in best or score < best[members].score:
                best[members] = FittedSet(members, x, there, score)
            before, residuals_before, slopes = places[members]
            move = x - before
            missed = there - residuals_before - slopes @ move
            slopes = slopes + np.outer(missed, move) / max(float(move @ move), STILL**4)
            places[members] = (x, there, slopes)
            aim = solved(LinearModel(there - slopes @ x, slopes), members, low, high)
            if np.abs(aim - x).max() > STILL / 4:
                aims[members] = aim
        limit = min(fitted.score for fitted in best.values()) + CLOSE
        aims = {members: aim for members, aim in aims.items() if best[members].score <= limit}
        if not aims:
            break
    return list(best.values())


def _is_perfect(fitted: FittedSet) -> bool:
    """Whether a set of at most one parameter explains every point."""
    return len(fitted.members) <= 1 and float(np.abs(fitted.residuals).max()) < FLOOR


def _fit_of(
    parameters: Sequence[CalibratedParameter],
    sets: Sequence[FittedSet],
    line: LinearModel,
    usual: Floats,
    seen: NDArray[np.bool_],
    bounds: tuple[Floats, Floats],
) -> Fit:
    """Combine the plausible sets of parameters, the best first, into the result of the calibration.

    Args:
        parameters: all parameters.
        sets: the plausible sets.
        line: a linear model near the best set.
        usual: the residuals at the usual values.
        seen: mask of the parameters that have an effect.
        bounds: least and largest x of each parameter.

    A parameter that is in every set is fitted; its interval spans those of all sets. It stays at
    its usual value if that interval is too wide. All other parameters stay at their usual values,
    too, each with the reason. Nothing is fitted if there is a single set and it predicts left-out
    points no better than the usual values do.
    """
    best = sets[0]
    determined = common_members(sets)
    forecast = usual
    if determined:
        forecast = forecast_residuals(line, determined, *bounds)
        if len(sets) == 1 and forecast_score(forecast) >= forecast_score(usual):
            fitted = []
            for parameter, is_seen in zip(parameters, seen, strict=True):
                why = NO_BETTER if is_seen else UNSEEN
                fitted.append(
                    FittedParameter(parameter=parameter, x=0.0, low=0.0, high=0.0, left=why)
                )
            return Fit(tuple(fitted), usual, (_alternative(parameters, best, best.members),))
    rivals = {number for members in alternatives(sets) for number in members}
    spans = [fitted_set.x[:, None] + interval_moves(line, fitted_set) for fitted_set in sets]
    low = np.min([span[:, 0] for span in spans], axis=0)
    high = np.max([span[:, 1] for span in spans], axis=0)
    fitted = []
    for number, parameter in enumerate(parameters):
        ends = float(low[number]), float(high[number])
        if number in determined and ends[1] - ends[0] > WIDE:
            fitted.append(
                FittedParameter(parameter=parameter, x=0.0, low=0.0, high=0.0, left=VAGUE)
            )
        elif number in determined:
            fitted.append(FittedParameter(parameter, float(best.x[number]), *ends))
        else:
            if number in rivals:
                why = AMBIGUOUS
            else:
                why = NOT_NEEDED if seen[number] else UNSEEN
            fitted.append(FittedParameter(parameter=parameter, x=0.0, low=0.0, high=0.0, left=why))
    return Fit(tuple(fitted), forecast, _alternatives(parameters, sets))


def _alternatives(
    parameters: Sequence[CalibratedParameter], sets: Sequence[FittedSet]
) -> tuple[Alternative, ...]:
    """Return for each set those of its parameters that are not in all sets."""
    common = set(common_members(sets))
    found_alternatives = []
    for fitted_set in sets:
        rest = [number for number in fitted_set.members if number not in common]
        if rest:
            found_alternatives.append(_alternative(parameters, fitted_set, rest))
    return tuple(found_alternatives)


def _alternative(
    parameters: Sequence[CalibratedParameter], fitted: FittedSet, members: Sequence[int]
) -> Alternative:
    """Return the parameters `members` of a set as an alternative."""
    return Alternative(
        tuple(parameters[number] for number in members),
        tuple(float(fitted.x[number]) for number in members),
    )


def _differences(residuals: Residuals, x: Floats, high: Floats) -> Floats:
    """Return the derivatives of residuals (rows) by the parameters (columns) at x, from a small
    step of each parameter: upwards, or downwards if that would exceed its largest value `high`.
    """
    steps = np.where(x + STEP <= high, STEP, -STEP)
    return _slopes(residuals, x, np.diag(steps))


def _wide_differences(residuals: Residuals, x: Floats, low: Floats, high: Floats) -> Floats:
    """Return the derivatives of residuals (rows) by the parameters (columns) at x, from a wide step
    of each parameter up or down, whichever changes the residuals more.

    Steps end at the least and largest values `low` and `high`. A wide step is needed because some
    parameters only have an effect once they are the bottleneck, for example the time that a host
    takes for a launch.
    """
    best = np.zeros((len(residuals([x])[0]), len(x)))
    for sign in (1.0, -1.0):
        steps = np.clip(x + sign * WIDE_STEP, low, high) - x
        possible = np.flatnonzero(np.abs(steps) > STILL)
        if not len(possible):
            continue
        slopes = _slopes(residuals, x, np.diag(steps)[possible])
        for column, number in zip(slopes.T, possible, strict=True):
            if np.abs(column).max(initial=0.0) > np.abs(best[:, number]).max(initial=0.0):
                best[:, number] = column
    return best


def _slopes(residuals: Residuals, x: Floats, moves: Floats) -> Floats:
    """Return the change of residuals (rows) by each of the moves (columns), divided by the length
    of the move.

    Each move is a change of x in which a single parameter differs from 0.
    """
    here, *there = residuals([x, *(x + moves)])
    lengths = moves.sum(axis=1)
    columns = [(now - here) / length for now, length in zip(there, lengths, strict=True)]
    return np.array(columns).T.reshape(len(here), len(columns))


def _is_seen(slopes: Floats) -> NDArray[np.bool_]:
    """Return a mask of the parameters that change the time of at least one point noticeably."""
    seen: NDArray[np.bool_] = np.abs(slopes).max(axis=0, initial=0.0) > SHOWS
    return seen


# A calibration fits parameters to the measured runs of one system. Of a run with many sizes, some
# are held back: the fit does not use them, so that their error is that of sizes it has not seen.
# With few sizes, that error is computed by leaving out each size in turn.

FEWEST = 3  # sizes that are needed for a fit
MOST = 11  # sizes of one run that are fitted
MOST_HELD = 8  # sizes of one run that are held back
HUGE = 4 * 2**30  # bytes; larger sizes take long and show no more than this one


@dataclass(frozen=True)
class Calibrated:
    """The result of a calibration: parameters, and errors by size band.

    Args:
        fitted: all parameters, also those that keep their usual values.
        figures: the fitted constants by name.
        before: errors of the fitted sizes with the usual values.
        after: errors of the fitted sizes with the fitted values.
        forecast: errors of every fitted size, predicted by a fit to the others.
        held_before: errors of the sizes that were held back, with the usual values.
        held: errors of the sizes that were held back, with the fitted values.
    """

    fitted: tuple[FittedParameter, ...]
    figures: dict[str, Figure]
    before: dict[str, compare.Error]
    after: dict[str, compare.Error]
    forecast: dict[str, compare.Error]
    held_before: dict[str, compare.Error]
    held: dict[str, compare.Error]
    lost: tuple[str, ...] = ()  # for each point that is left out, why its worker process died
    alternatives: tuple[Alternative, ...] = ()  # explanations that the logs cannot separate


def calibrate(
    pairs: Sequence[tuple[Source, LogRun]],
    jobs: int | None = None,
    *,
    memory: int = 0,
    tell: Tell = silent,
) -> Calibrated:
    """Fit the parameters of one system to measured runs of it.

    Args:
        pairs: each run with the scenario that describes the system.
        jobs: the number of worker processes; None is one per processor.
        memory: bytes that the workers may use together; 0 is no limit.
        tell: called with a message for each worker that died.

    Raises: InputError: too few sizes, or an algorithm that is not NCCL's.
    """
    sets = list[CalibrationSet]()
    held = list[CalibrationSet]()
    for source, run in pairs:
        usual = [row for row in run.rows if row.size_bytes <= HUGE]
        used = compare.few(usual if len(usual) >= MOST else run.rows, MOST)
        unused = [row for row in usual if row not in used]
        sets.append(CalibrationSet(source, run, used))
        held.append(CalibrationSet(source, run, compare.few(unused, MOST_HELD)))
    count = sum(len(fitted_set.rows) for fitted_set in sets)
    if count < FEWEST:
        sizes = f"{count} size" if count == 1 else f"{count} sizes"
        raise InputError(
            f"{sets[0].run.file}: {sizes}: nothing can be fitted to fewer than {FEWEST}"
        )
    first = compare.resolved_for(sets[0].source, sets[0].run)
    if not first.jobs:
        raise InputError("only NCCL's own algorithms can be calibrated; leave algorithm at auto")
    both = [*sets, *(held_set for held_set in held if held_set.rows)]
    with Ratios(parameters_of(first), both, jobs, memory=memory, tell=tell) as ratios:
        while True:
            fitted = [number for number in range(count) if number not in ratios.lost]
            if len(fitted) < FEWEST:
                raise LostError(next(iter(ratios.lost.values())))
            try:
                at_some = partial(ratios.at, which=fitted)
                narrow = partial(ratios.narrow, which=fitted)
                return _calibrated(ratios, fit(ratios.parameters, at_some, narrow), fitted, count)
            except PointLost:
                continue


def _calibrated(ratios: Ratios, fit: Fit, fitted: Sequence[int], count: int) -> Calibrated:
    """Return the result of a fit to the points `fitted` (numbers); points from number `count` on
    were held back.
    """
    usual = np.zeros(len(ratios.parameters))
    held = [number for number in range(count, len(ratios.points)) if number not in ratios.lost]
    return Calibrated(
        fitted=fit.fitted,
        figures=_figures(fit.fitted),
        before=ratios.errors(usual, fitted),
        after=ratios.errors(fit.x, fitted),
        forecast=ratios.by_band(fit.forecast, fitted),
        held_before=ratios.errors(usual, held) if held else {},
        held=ratios.errors(fit.x, held) if held else {},
        lost=tuple(ratios.lost.values()),
        alternatives=fit.alternatives,
    )


def _figures(fitted: Sequence[FittedParameter]) -> dict[str, Figure]:
    """Return the fitted constants with their 90 % intervals by name, as machine files state
    them.
    """
    figures: dict[str, Figure] = {}
    for fitted_parameter in fitted:
        if fitted_parameter.left:
            continue
        parameter = fitted_parameter.parameter
        low = parameter.figures(fitted_parameter.low)
        high = parameter.figures(fitted_parameter.high)
        for name, value in parameter.figures(fitted_parameter.x).items():
            figures[name] = Figure(
                value=written(name, value),
                stamp="calibrated",
                low=written(name, low[name]),
                high=written(name, high[name]),
            )
    return figures
