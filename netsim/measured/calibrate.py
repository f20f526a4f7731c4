"""Calibration: which few parameters, what each changes, and how they are fitted to logs."""

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
from netsim.measured.logs import LogRun, Measured
from netsim.measured.selection import (
    FLOOR,
    MOST_FITTED,
    FittedSet,
    Linear,
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

# Factors within which a parameter may lie: of rates, of latencies, of messages (where a plugin
# posts and polls them in software, Slingshot's take ten times those of InfiniBand).
SURE, LOOSE, FOREIGN = 1.6, 3.0, 10.0


@dataclass(frozen=True)
class Parameter:
    """One parameter: the constants that it scales together, each with its usual value. A fit moves
    x, the logarithm of the factor; `low` and `high` bound that factor."""

    name: str
    usual: Mapping[str, float]
    low: float
    high: float
    only: str = ""  # the protocol or algorithm of the points that it can change; empty: all

    def figures(self, x: float) -> dict[str, float]:
        """The constants at a factor of exp(x)."""
        return {name: value * exp(x) for name, value in self.usual.items()}


def parameters_of(resolved: ResolvedCell) -> list[Parameter]:
    """What can be fitted on a system; what its runs do not show is sorted out by the fit."""
    job = resolved.jobs[0]
    machine = job.cluster.machine_of(0)
    parameters = [
        Parameter("launch by the host", {"launch.host": HOST}, 1 / LOOSE, LOOSE),
        Parameter("launch on the GPU", {"launch.kernel": KERNEL}, 1 / LOOSE, LOOSE),
    ]

    def scaled(name: str, *constants: str, factor: float = LOOSE, only: str = "") -> None:
        usual = {one: constant(job.mechanism, one) for one in constants if one in names}
        if usual:
            parameters.append(Parameter(name, usual, 1 / factor, factor, only))

    names = names_of(job.mechanism)
    fitted = machine.scale_up is not None and machine.scale_up.fitted

    for name in ("LL", "LL128", "Simple"):
        kind, key = ("nvlink" if fitted else "pcie"), name.casefold()
        scaled(f"hop of {name}", f"step_cost.{key}", f"{kind}.sync.{key}", only=name)
        scaled(f"channel rate of {name}", f"rate.{key}", factor=SURE, only=name)
    if job.comm.nvls_channels and machine.scale_up is not None and machine.scale_up.multicast:
        scaled("part of NVLink's rate in NVLS", "nvls_efficiency", factor=1.3, only="NVLS")
        hops = [one for one in names if one.startswith("nvls_") and kind_of(one) == "time"]
        scaled("hop of NVLS", *hops, only="NVLS")
        scaled("rate of NVLS's copies", "nvls_copy_rate", factor=SURE, only="NVLS")
    if job.comm.n_nodes > 1:
        ways = [f"network.delivery.{key}" for key in ("ll", "ll128", "simple")]
        scaled("transport latency", "network.notice", *ways, "network.credit", factor=FOREIGN)
        scaled(
            "time of a post",
            "network.post.ll",
            "network.post.ll128",
            "network.post.simple",
            factor=FOREIGN,
        )
        # Only the times: the copy rate is infinite without a plugin, which no file can say, and
        # more time is less of a rate.
        handling = [
            one
            for one in names
            if one.startswith("network.path.handling.") and kind_of(one) == "time"
        ]
        if any(constant(job.mechanism, one) for one in handling):
            scaled("handling of a message", *handling)
        now = machine.calibration.get(USABLE)
        transport = job.cluster.transport or TRANSPORTS[machine.transport]
        usable = transport.usable if now is None else float(now.value)
        parameters.append(
            Parameter("usable part of the NICs' rate", {USABLE: usable}, 0.4, 1 / usable)
        )
    up = machine.scale_up
    if up is not None and up.fitted:
        rate = {"scale_up.link_bandwidth": up.link_bandwidth}
        parameters.append(Parameter("rate of a link between GPUs", rate, 0.5, 1.3))
    if not machine.p2p or up is None:
        memory = {"cpu.memory_bandwidth": machine.cpu.memory_bandwidth}
        parameters.append(Parameter("bandwidth of the hosts' memory", memory, 0.3, 2.5))
    return parameters


def concerns(parameter: Parameter, algorithm: str, protocol: str) -> bool:
    """Whether a parameter can change points of an algorithm and protocol at all."""
    only = parameter.only
    return not only or only == protocol or (only == "NVLS" and algorithm.startswith("NVLS"))


# Log ratios of simulated over measured times at any parameters, on several processes.
# No point is simulated twice with parameters that are alike for it.

IMPOSSIBLE = 3.0  # log ratio of what cannot be simulated with some parameters
LARGE = 8  # ranks from which other processes are worth what it takes to start them

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Set:
    """A run, the scenario it is held against, and those of its rows that are used."""

    source: Source
    run: LogRun
    rows: tuple[Measured, ...]


@dataclass
class MeasuredCells:
    """The resolved cells of all sets at some parameters; the last ones are remembered."""

    parameters: Sequence[Parameter]
    sets: Sequence[Set]
    last: Memo = field(default_factory=lambda: Memo(1))

    def at(self, x: Floats) -> list[ResolvedCell]:
        """The cell of every set."""
        return self.last.of(x.tobytes(), lambda: self._made(x))

    def _made(self, x: Floats) -> list[ResolvedCell]:
        figures: dict[str, float] = {}
        for parameter, value in zip(self.parameters, x.tolist(), strict=True):
            figures |= parameter.figures(value) if value else {}
        sources = (with_figures(one.source, figures) for one in self.sets)
        return list(map(compare.resolved_for, sources, (one.run for one in self.sets)))

    def ratio(self, x: Floats, place: int, row: Measured) -> float:
        """The log ratio of one row of a set."""
        collective = self.sets[place].run.collective
        seconds = row.seconds(collective)
        assert seconds is not None  # readers keep only rows with a time
        try:
            return log(compare.simulated_seconds(self.at(x)[place], row, collective) / seconds)
        except NetsimError:
            return IMPOSSIBLE


Asked = tuple[Floats, int, Measured]  # parameters, the number of a set, one of its rows


def _ratio(question: Asked, cells: MeasuredCells) -> Iterator[float]:
    yield cells.ratio(*question)


class PointLost(Exception):
    """A point whose simulation ended its process is to be left out."""


@dataclass
class Ratios:
    """The log ratios of all points at any parameters. with Ratios(parameters, sets, jobs) as
    ratios: ratios.at([x, y], which)"""

    parameters: Sequence[Parameter]
    sets: Sequence[Set]
    jobs: int | None = None
    large: int = LARGE
    depends: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    known: dict[tuple[int, bytes], float] = field(default_factory=dict)
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
            assert plan is not None  # checked by whoever calibrates
            self.depends[number] = np.array(
                [concerns(one, plan.algorithm, plan.protocol) for one in self.parameters]
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
    def points(self) -> list[tuple[int, Measured]]:
        """The number of its set, and the row, of every point."""
        return [(n, row) for n, one in enumerate(self.sets) for row in one.rows]

    def at(self, places: Sequence[Floats], which: Sequence[int]) -> list[Floats]:
        """The log ratios of some points at some places; a PointLost where one has none."""
        missing: dict[tuple[int, bytes], Asked] = {}
        for x in places:
            for number in which:
                key = self._key(x, number)
                if key not in self.known:
                    missing.setdefault(key, (x, *self.points[number]))
        for n, (key, ratio) in enumerate(self._simulated(missing), 1):
            at(self._name(missing[key]), n, len(missing))
            if isinstance(ratio, LostError):
                self.lost.setdefault(key[0], str(ratio))
            else:
                self.known[key] = ratio
        if self.lost.keys() & set(which):
            raise PointLost
        return [np.array([self.known[self._key(x, n)] for n in which]) for x in places]

    def _simulated(
        self, missing: Mapping[tuple[int, bytes], Asked]
    ) -> Iterator[tuple[tuple[int, bytes], Any]]:
        if self.pool is None or len(missing) == 1:
            yield from ((key, self.cells.ratio(*question)) for key, question in missing.items())
            return
        keys = {id(question): key for key, question in missing.items()}
        jobs = ((one, self._name(one), self._memory(one), 1) for one in missing.values())
        with closing(self.pool.results(jobs)) as results:
            for question, ratio in results:
                yield keys[id(question)], ratio

    def _memory(self, question: Asked) -> int:
        _, place, row = question
        return self.usual[place].memory_needed(row.size_bytes)

    def _name(self, question: Asked) -> str:
        _, place, row = question
        return f"{self.sets[place].run.file} at {row.size_bytes} B"

    def _key(self, x: Floats, number: int) -> tuple[int, bytes]:
        return number, x[self.depends[number]].tobytes()

    def narrow(self, depends: NDArray[np.bool_], which: Sequence[int]) -> None:
        """Hear on which parameters some points depend: others no longer count for them."""
        for number, row in zip(which, depends, strict=True):
            if number not in self.narrowed:
                self.narrowed.add(number)
                before = self.depends[number]
                self.depends[number] = before & row
                kept_row = row[before]
                for (one, key), value in list(self.known.items()):
                    if one == number:
                        self.known[one, np.frombuffer(key)[kept_row].tobytes()] = value

    def errors(self, x: Floats, which: Sequence[int]) -> dict[str, compare.Error]:
        """The error of some points by band."""
        return self.by_band(self.at([x], which)[0], which)

    def by_band(self, ratios: Floats, which: Sequence[int]) -> dict[str, compare.Error]:
        """Log ratios of some points as errors by band."""
        bands = []
        for number, ratio in zip(which, ratios.tolist(), strict=True):
            place, row = self.points[number]
            run = self.sets[place].run
            micros = (row.seconds(run.collective) or 0.0) * compare.MICRO
            bands.append(
                compare.Point(
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


# The fit: sets of few parameters are fitted to the simulation itself, not only to straight lines.

Narrow = Callable[[NDArray[np.bool_]], None]  # told which points depend on which parameters

STEP = 0.1  # of a parameter, for differences: simulated times are piecewise smooth
WIDE_STEP = 0.4  # the same for parameters that only count beyond some value
DEPENDS = 1e-3  # change of a log time by a factor of e from which a point depends on a parameter
SHOWS = 0.03  # the same from which a point shows it
CLOSE = 30.0  # a set whose score by straight lines is worse by this is not simulated
MOST_SETS = 4  # sets of each count of parameters that are simulated in a round
SIMULATED_ROUNDS = 4  # simulations of a set, each where the ones before suggest
STILL = 0.01  # a move of all parameters that changes nothing any more
EXPLAINED = 0.01  # root mean square of residuals up to which a few parameters explain them
VAGUE = "the points do not determine it"
UNSEEN = "the points do not show it"
NOT_NEEDED = "the points are explained without it"
AMBIGUOUS = "the points do not separate it from others"
NO_BETTER = "without a point, no fit forecasts it better than the usual values do"


@dataclass(frozen=True)
class Fitted:
    """One parameter: its logarithm, the 90 % interval, and why it was left alone, if it was."""

    parameter: Parameter
    x: float
    low: float
    high: float
    left: str = ""

    @property
    def at_edge(self) -> bool:
        """Whether it would go beyond what is physical; a part that is nearly all may be all."""
        low, high = np.log([self.parameter.low, self.parameter.high])
        return bool(self.x < low + STILL or (self.x > high - STILL and high > 0.05))


@dataclass(frozen=True)
class Alternative:
    """Parameters with their logarithms that explain what the points show beside the fitted ones."""

    parameters: tuple[Parameter, ...]
    x: tuple[float, ...]


@dataclass(frozen=True)
class Fit:
    """The parameters, and how far each point is off where a fit without it forecasts it. Of the
    `alternatives`, each explains as well as the others what the fitted parameters do not: the
    points cannot separate them, so that none of them is fitted."""

    fitted: tuple[Fitted, ...]
    forecast: Floats
    alternatives: tuple[Alternative, ...] = ()

    @property
    def x(self) -> Floats:
        """The logarithms of all factors."""
        return np.array([one.x for one in self.fitted])


def fit(parameters: Sequence[Parameter], residuals: Residuals, narrow: Narrow) -> Fit:
    """The parameters that the points determine; the others at their usual values.

    If few parameters explain all that the points show, they are fitted, and what cannot be
    separated is left alone. Else the points have noise, or the system differs in many parameters;
    then a fit of all of them with a pull to the usual values is made if it forecasts better."""
    count = len(parameters)
    low = np.log([parameter.low for parameter in parameters])
    high = np.maximum(np.log([parameter.high for parameter in parameters]), low + 0.01)
    usual = residuals([np.zeros(count)])[0]
    near_slopes = _differences(residuals, np.zeros(count), high)
    wide_slopes = _wide_differences(residuals, np.zeros(count), low, high)
    narrow(np.maximum(np.abs(near_slopes), np.abs(wide_slopes)) > DEPENDS)
    seen_near = _is_seen(near_slopes)
    seen = seen_near | _is_seen(wide_slopes)
    lines = [Linear(usual, slopes) for slopes in (near_slopes, wide_slopes)]
    simulated, line = _simulated(residuals, lines, seen, low, high)
    sets = plausible(simulated)
    sparse = _fit_of(parameters, sets, line, usual, seen, (low, high))
    if float(np.sqrt(np.mean(sets[0].residuals ** 2))) < EXPLAINED:
        return sparse
    rates = np.array([all(kind_of(n) != "time" for n in p.usual) for p in parameters], dtype=bool)
    spread = shrunken_fit(
        residuals, partial(_differences, residuals, high=high), seen_near, rates, low, high
    )
    if forecast_score(sparse.forecast) <= forecast_score(spread.forecast):
        return sparse
    return _spread_fit(parameters, spread, seen)


def _simulated(
    residuals: Residuals,
    lines: Sequence[Linear],
    seen: NDArray[np.bool_],
    low: Floats,
    high: Floats,
) -> tuple[list[FittedSet], Linear]:
    """The sets of parameters that may be plausible, as simulated, and straight lines near the best
    of them. They are sought by the lines given, around the usual values, and then by others around
    the best set."""
    nothing = np.zeros(len(seen))
    usual = lines[0].usual
    simulated: dict[Members, FittedSet] = {
        (): FittedSet((), nothing, usual, score_of(usual, nothing, 0))
    }

    def add(line: Linear, most: int) -> FittedSet:
        """Simulate the sets of at most so many parameters that are close by a line; the best set
        so far."""
        candidates = fitted_sets(line, np.flatnonzero(seen).tolist(), low, high, most)
        missing = [one for one in candidates if most == 1 or one.members not in simulated]
        for one in _simulated_sets(_close_sets(missing), line, residuals, low, high):
            before = simulated.get(one.members)
            if before is None or one.score < before.score:
                simulated[one.members] = one
        return min(simulated.values(), key=lambda one: one.score)

    # One parameter that explains everything is not compared with several that do.
    for most in (1, MOST_FITTED):
        for line in lines:
            best = add(line, most)
        if _is_perfect(best):
            break
    slopes = _differences(residuals, best.x, high)
    line = Linear(best.residuals - slopes @ best.x, slopes)
    if not _is_perfect(best):
        add(line, MOST_FITTED)
    return list(simulated.values()), line


def _spread_fit(parameters: Sequence[Parameter], spread: Shrunken, seen: NDArray[np.bool_]) -> Fit:
    """A fit of many parameters as the result."""
    unfitted = VAGUE if spread.fitted.any() else NO_BETTER
    fitted = []
    for number, parameter in enumerate(parameters):
        if spread.fitted[number]:
            left = ""
        else:
            left = unfitted if seen[number] else UNSEEN
        low, high = spread.intervals[number].tolist()
        fitted.append(Fitted(parameter, float(spread.x[number]), low, high, left))
    return Fit(tuple(fitted), spread.forecast)


def _close_sets(candidates: Sequence[FittedSet]) -> list[FittedSet]:
    """The sets that are worth a simulation, of those in order of their scores: a few of each
    count of parameters, so that many large sets do not keep out the small ones among them."""
    if not candidates:
        return []
    limit = candidates[0].score + CLOSE
    close = [one for one in candidates if one.score <= limit and one.members]
    by_count = grouped(close, lambda one: len(one.members))
    return [one for sets in by_count.values() for one in sets[:MOST_SETS]]


def _simulated_sets(
    sets: Sequence[FittedSet], line: Linear, residuals: Residuals, low: Floats, high: Floats
) -> list[FittedSet]:
    """The sets, each fitted to what is simulated where its fit to straight lines ends, and again
    with lines that pass through the last two places that were simulated (Broyden's method)."""
    if not sets:
        return []
    best: dict[Members, FittedSet] = {}
    nothing = np.zeros(line.slopes.shape[1])
    places = {one.members: (nothing, line.usual, line.slopes) for one in sets}
    aims = {one.members: one.x for one in sets}
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
            aim = solved(Linear(there - slopes @ x, slopes), members, low, high)
            if np.abs(aim - x).max() > STILL / 4:
                aims[members] = aim
        limit = min(one.score for one in best.values()) + CLOSE
        aims = {members: aim for members, aim in aims.items() if best[members].score <= limit}
        if not aims:
            break
    return list(best.values())


def _is_perfect(fitted: FittedSet) -> bool:
    """Whether no parameter, or one, leaves nothing to explain."""
    return len(fitted.members) <= 1 and float(np.abs(fitted.residuals).max()) < FLOOR


def _fit_of(
    parameters: Sequence[Parameter],
    sets: Sequence[FittedSet],
    line: Linear,
    usual: Floats,
    seen: NDArray[np.bool_],
    bounds: tuple[Floats, Floats],
) -> Fit:
    """What plausible sets, the best one first, say together."""
    best = sets[0]
    determined = common_members(sets)
    forecast = usual
    if determined:
        forecast = forecast_residuals(line, determined, *bounds)
        if len(sets) == 1 and forecast_score(forecast) >= forecast_score(usual):
            left = [NO_BETTER if one else UNSEEN for one in seen]
            unfitted = zip(parameters, left, strict=True)
            fitted = [Fitted(one, 0.0, 0.0, 0.0, why) for one, why in unfitted]
            return Fit(tuple(fitted), usual, (_alternative(parameters, best, best.members),))
    rivals = {number for one in alternatives(sets) for number in one}
    spans = [one.x[:, None] + interval_moves(line, one) for one in sets]
    low = np.min([span[:, 0] for span in spans], axis=0)
    high = np.max([span[:, 1] for span in spans], axis=0)
    fitted = []
    for number, parameter in enumerate(parameters):
        ends = float(low[number]), float(high[number])
        if number in determined and ends[1] - ends[0] > WIDE:
            fitted.append(Fitted(parameter, 0.0, 0.0, 0.0, VAGUE))
        elif number in determined:
            fitted.append(Fitted(parameter, float(best.x[number]), *ends))
        else:
            if number in rivals:
                why = AMBIGUOUS
            else:
                why = NOT_NEEDED if seen[number] else UNSEEN
            fitted.append(Fitted(parameter, 0.0, 0.0, 0.0, why))
    return Fit(tuple(fitted), forecast, _alternatives(parameters, sets))


def _alternatives(
    parameters: Sequence[Parameter], sets: Sequence[FittedSet]
) -> tuple[Alternative, ...]:
    """What the sets have beside the parameters that all of them have."""
    common = set(common_members(sets))
    rests = [[number for number in one.members if number not in common] for one in sets]
    return tuple(
        _alternative(parameters, one, rest) for one, rest in zip(sets, rests, strict=True) if rest
    )


def _alternative(
    parameters: Sequence[Parameter], fitted: FittedSet, members: Sequence[int]
) -> Alternative:
    """Some members of a set, with their values."""
    return Alternative(
        tuple(parameters[number] for number in members),
        tuple(float(fitted.x[number]) for number in members),
    )


def _differences(residuals: Residuals, x: Floats, high: Floats) -> Floats:
    """The derivatives of residuals (rows) by parameters, from a small step of each."""
    steps = np.where(x + STEP <= high, STEP, -STEP)
    return _slopes(residuals, x, np.diag(steps))


def _wide_differences(residuals: Residuals, x: Floats, low: Floats, high: Floats) -> Floats:
    """The same from a wide step up or down, whichever shows more: what a host takes to launch, or a
    part of a rate, only counts once it is the bottleneck."""
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
    """The changes of residuals (rows) by moves of a parameter each, over the lengths of moves."""
    here, *there = residuals([x, *(x + moves)])
    lengths = moves.sum(axis=1)
    columns = [(now - here) / length for now, length in zip(there, lengths, strict=True)]
    return np.array(columns).T.reshape(len(here), len(columns))


def _is_seen(slopes: Floats) -> NDArray[np.bool_]:
    """Which parameters at least one point shows."""
    seen: NDArray[np.bool_] = np.abs(slopes).max(axis=0, initial=0.0) > SHOWS
    return seen


# A calibration: measured runs of one system, the parameters that fit them, the error that is left.
# Of runs with many sizes some are fitted; others, which the fit never sees, tell the error
# elsewhere. What the fit forecasts of a size without it tells the same of few.

FEWEST = 3  # sizes of which anything can be fitted
MOST = 11  # sizes of one run that are simulated again and again
MOST_HELD = 8  # sizes of one run that are held back
HUGE = 4 * 2**30  # larger sizes show no more than this one does, and take long


@dataclass(frozen=True)
class Calibrated:
    """What was fitted, and the error by band before and after. `forecast` is of every fitted size
    where the others alone are fitted, `held` of sizes that no fit has seen, where there are any."""

    fitted: tuple[Fitted, ...]
    figures: dict[str, Figure]
    before: dict[str, compare.Error]
    after: dict[str, compare.Error]
    forecast: dict[str, compare.Error]
    held_before: dict[str, compare.Error]
    held: dict[str, compare.Error]
    lost: tuple[str, ...] = ()  # points that are left out, each with what its worker died of
    alternatives: tuple[Alternative, ...] = ()  # of which the logs cannot tell which one holds


def calibrate(
    pairs: Sequence[tuple[Source, LogRun]],
    jobs: int | None = None,
    *,
    memory: int = 0,
    tell: Tell = silent,
) -> Calibrated:
    """Fit the parameters of one system to some runs of it; `tell` hears of workers that died."""
    sets, held = list[Set](), list[Set]()
    for source, run in pairs:
        usual = [row for row in run.rows if row.size_bytes <= HUGE]
        used = compare.few(usual if len(usual) >= MOST else run.rows, MOST)
        sets.append(Set(source, run, used))
        held.append(Set(source, run, compare.few([r for r in usual if r not in used], MOST_HELD)))
    count = sum(len(one.rows) for one in sets)
    if count < FEWEST:
        raise InputError(
            f"{sets[0].run.file}: {count} size{'s' * (count != 1)}: nothing can be fitted to fewer "
            f"than {FEWEST}"
        )
    first = compare.resolved_for(sets[0].source, sets[0].run)
    if not first.jobs:
        raise InputError("only NCCL's own algorithms can be calibrated; leave algorithm at auto")
    both = [*sets, *(one for one in held if one.rows)]
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
    usual = np.zeros(len(ratios.parameters))
    held = [one for one in range(count, len(ratios.points)) if one not in ratios.lost]
    return Calibrated(
        fit.fitted,
        _figures(fit.fitted),
        ratios.errors(usual, fitted),
        ratios.errors(fit.x, fitted),
        ratios.by_band(fit.forecast, fitted),
        ratios.errors(usual, held) if held else {},
        ratios.errors(fit.x, held) if held else {},
        tuple(ratios.lost.values()),
        fit.alternatives,
    )


def _figures(fitted: Sequence[Fitted]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for number in fitted:
        if number.left:
            continue
        low, high = number.parameter.figures(number.low), number.parameter.figures(number.high)
        for name, value in number.parameter.figures(number.x).items():
            texts = [written(name, number) for number in (value, low[name], high[name])]
            figures[name] = Figure(value=texts[0], stamp="calibrated", low=texts[1], high=texts[2])
    return figures
