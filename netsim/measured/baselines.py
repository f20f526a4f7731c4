"""Predictions of two simple models, which a simulator should beat in the open benchmark.

`nccl-model`: the time that NCCL's own tuner expects of the algorithm and protocol that it chooses
(src/graph/tuning.cc, ncclTopoTuneModel and ncclTopoGetAlgoTime). It is a heuristic for this choice,
not a forecast: it leaves out kernel launches, and has no time for sends and receives (alltoall,
sendrecv).

`alpha-beta`: a latency and a bandwidth (Hockney's model),

    time = alpha * (n - 1) + f * size / (efficiency * rate)

on n ranks, where f is the bus factor of nccl-tests, 2(n-1)/n for an all_reduce, and `rate` that of
the links (`link_rate`). Of four numbers of steps that were tried (1, log2(n), those of a ring, and
n - 1 for all collectives) the last one has the smallest errors. Alpha and the efficiency are fitted
for each kind of machine and transport to the measured runs of all *other* systems: the times of the
system that is predicted are left out. If no other system has the kind of machine and transport,
they are those of the next wider class (`fit_classes`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from math import exp

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from netsim.base.errors import InputError, NetsimError, suggest
from netsim.base.values import dataclass
from netsim.measured.benchmark import (
    Benchmark,
    BenchmarkRun,
    Prediction,
    Predictions,
    QuestionKey,
)
from netsim.measured.compare import resolved_at, simulated_size, weights_of
from netsim.measured.index import mapped, nics_gbps
from netsim.nccl.choice import call_of
from netsim.nccl.facts import COLLECTIVES
from netsim.nccl.tuning import choose
from netsim.results.row import NVLINK, ONE_HOST
from netsim.topology.load import load_machine

NCCL_MODEL = "nccl-model"
ALPHA_BETA = "alpha-beta"
MICROSECONDS = 1e6
BYTES_PER_GBIT = 1e9 / 8
OUTLIER = 0.1  # log ratio above which an error counts linearly, and not with its square
FIRST_ALPHA_US = 5.0  # initial values of the fit: 5 us for a step, and links that are used to 80 %
FIRST_SLOWNESS = 1.25

Floats = NDArray[np.float64]
FitClass = tuple[str, ...]


@dataclass(frozen=True)
class Baseline:
    """The predictions of a simple model, and notes on the questions that it cannot answer."""

    predictions: Predictions
    notes: tuple[str, ...]


def baseline_of(name: str, benchmark: Benchmark, corpus: Benchmark) -> Baseline:
    """Return the predictions of the baseline `name`. `corpus` has the runs to which it may be
    fitted.

    Raises an InputError if no baseline has that name.
    """
    if name not in BASELINES:
        names = ", ".join(BASELINES)
        raise InputError(
            f"--baseline: expected one of {names}, got {name!r}{suggest(name, BASELINES)}"
        )
    times, notes = BASELINES[name](benchmark, corpus)
    return Baseline(Predictions(name, times), tuple(notes))


# **** NCCL's own cost model ****


def nccl_model(
    benchmark: Benchmark, corpus: Benchmark
) -> tuple[dict[QuestionKey, Prediction], list[str]]:
    """Predict each question by the time that NCCL's tuner expects; nothing is fitted to
    `corpus`.
    """
    times: dict[QuestionKey, Prediction] = {}
    notes: list[str] = []
    for run in benchmark.runs:
        if run.collective not in COLLECTIVES:
            notes.append(f"{run.name}: NCCL's tuner has no estimate for {run.collective}")
            continue
        try:
            times |= _tuner_times(run)
        except NetsimError as error:
            notes.append(f"{run.name}: {error}")
    return times, notes


def _tuner_times(run: BenchmarkRun) -> dict[QuestionKey, Prediction]:
    """Yield the estimate of NCCL's tuner for each question of a run."""
    times: dict[QuestionKey, Prediction] = {}
    plan = mapped(run.entry)
    calls = groupby(run.questions, key=lambda question: (question.dtype, question.root))
    for (dtype, root), questions in calls:
        sizes = [question.size_bytes for question in questions]
        plan, resolved = resolved_at(plan, sizes, dtype, root)
        for size in sizes:
            collective = resolved.collective(simulated_size(resolved, size))
            expected = choose(resolved.jobs[0].comm, call_of(collective, dtype))
            if expected.time_us > 0:
                times[run.name, size] = Prediction(expected.time_us)
    return times


# **** Alpha and beta, fitted to other systems ****


@dataclass(frozen=True)
class AlphaBeta:
    """The fitted parameters of the model alpha-beta.

    Args:
        alpha_us: alpha in microseconds.
        slowness: 1 / efficiency, the time of the data over its time at the full rate of the links.
        systems: number of systems to which they were fitted.
    """

    alpha_us: float
    slowness: float
    systems: int

    def time_us(self, steps: Floats, transfer_us: Floats) -> Floats:
        """Return the times of collectives in microseconds.

        `steps` are their numbers of steps, `transfer_us` the times of their data at the full rate
        of the links.
        """
        times: Floats = self.alpha_us * steps + self.slowness * transfer_us
        return times


def step_count(ranks: int) -> int:
    """Return the number of steps each of which takes alpha in the model: n - 1 on n ranks, at least
    1.

    >>> step_count(8)
    7
    """
    return max(1, ranks - 1)


def link_rate(run: BenchmarkRun) -> float:
    """Return the bytes a second at which the busiest links of a run carry data, as its machine file
    states.

    Inside a host or an NVLink domain these are NVLink or PCIe of one GPU, else the NICs: for rings
    all NICs of a host, for alltoall and sendrecv the share of one GPU.
    """
    machine = load_machine(mapped(run.entry).data["cluster"]["machine"])
    if run.joined.transport not in (ONE_HOST, NVLINK):
        host_rate = nics_gbps(run.entry) * BYTES_PER_GBIT
        if run.collective in COLLECTIVES:
            return host_rate
        return host_rate * run.nodes / run.entry.ranks
    scale_up = machine.scale_up
    if scale_up is None or run.joined.kind == "PCIe":
        return machine.pcie.usable
    if scale_up.peers:
        links_by_gpu: Counter[int] = Counter()
        for first, second, links in scale_up.peers:
            links_by_gpu[first] += links
            links_by_gpu[second] += links
        return max(links_by_gpu.values()) * scale_up.link_bandwidth
    links_per_gpu = scale_up.links or 1
    if scale_up.switches is None:  # the links of a GPU to each peer
        links_per_gpu *= machine.gpu.count - 1
    return links_per_gpu * scale_up.link_bandwidth


def transfer_times_us(run: BenchmarkRun) -> Floats:
    """Return the microseconds that the data of each question takes on the busiest links at their
    full rate.
    """
    sizes = np.array([question.size_bytes for question in run.questions], dtype=float)
    times: Floats = run.entry.bus_factor() * sizes / link_rate(run) * MICROSECONDS
    return times


def alpha_beta(
    benchmark: Benchmark, corpus: Benchmark
) -> tuple[dict[QuestionKey, Prediction], list[str]]:
    """Predict each question by two parameters (alpha and efficiency) that are fitted to other
    systems.
    """
    points = FittedPoints([run for run in corpus.runs if link_rate(run) > 0])
    times: dict[QuestionKey, Prediction] = {}
    notes: list[str] = []
    for run in benchmark.runs:
        if link_rate(run) <= 0:
            notes.append(f"{run.name}: the rate of its NICs is not known")
            continue
        fit, fit_class = points.fit_for(run)
        if fit is None:
            notes.append(f"{run.name}: there is no other system to fit to")
            continue
        if fit_class != fit_classes(run)[0]:
            members = f"{fit.systems} system{'s' * (fit.systems > 1)}"
            notes.append(
                f"{run.name}: no other system has its machine and transport: "
                f"fitted to {members} of {', '.join(fit_class) or 'any kind'}"
            )
        transfer_us = transfer_times_us(run)
        steps = np.full(len(transfer_us), float(step_count(run.entry.ranks)))
        predicted = fit.time_us(steps, transfer_us)
        pairs = zip(run.question_keys(), predicted, strict=True)
        times |= {key: Prediction(float(time)) for key, time in pairs}
    return times, notes


def fit_classes(run: BenchmarkRun) -> tuple[FitClass, ...]:
    """Return the classes of runs that share parameters with a run, from the narrowest to the
    widest.
    """
    joined = run.joined
    hosts = (
        "one host or NVLink domain" if joined.transport in (ONE_HOST, NVLINK) else "several hosts"
    )
    return (
        (joined.machine, joined.transport),
        (joined.kind, joined.transport),
        (joined.kind, hosts),
        (hosts,),
        (),
    )


class FittedPoints:
    """The measured times to which alpha and beta are fitted, as arrays; fits are cached."""

    def __init__(self, runs: Sequence[BenchmarkRun]) -> None:
        rows = [(run, question) for run in runs for question in run.questions]
        self._systems = np.array([run.system for run, _ in rows])
        self._classes = [frozenset(fit_classes(run)) for run, _ in rows]
        self._steps = np.array([float(step_count(run.entry.ranks)) for run, _ in rows])
        self._transfer_us = np.concatenate(
            [transfer_times_us(run) for run in runs] or [np.array([])]
        )
        self._measured_us = np.array([question.measured_us for _, question in rows])
        self._fits: dict[tuple[FitClass, str], AlphaBeta | None] = {}

    def fit_for(self, run: BenchmarkRun) -> tuple[AlphaBeta | None, FitClass]:
        """Return the parameters for a run and the class to which they were fitted: the narrowest of
        its classes with another system; None if there is no other system at all.
        """
        for fit_class in fit_classes(run):
            fit = self._fit_without(fit_class, run.system)
            if fit is not None:
                return fit, fit_class
        return None, ()

    def _fit_without(self, fit_class: FitClass, system: str) -> AlphaBeta | None:
        """Return the parameters of a class, fitted without one system; None if no other system is
        in it.
        """
        key = (fit_class, system)
        if key not in self._fits:
            is_member = np.array([fit_class in classes for classes in self._classes], dtype=bool)
            members = np.flatnonzero(is_member & (self._systems != system))
            self._fits[key] = self._fit(members) if len(members) else None
        return self._fits[key]

    def _fit(self, members: NDArray[np.intp]) -> AlphaBeta:
        """Return the parameters that fit the points with the numbers `members` best; every system
        has the same weight.
        """
        steps = self._steps[members]
        transfer_us = self._transfer_us[members]
        measured = np.log(self._measured_us[members])
        systems = self._systems[members].tolist()
        # Least squares weights the squares of residuals, so a residual is multiplied by the root of
        # its weight.
        roots = np.sqrt(weights_of(systems))

        def residuals(logs: Floats) -> Floats:
            times = exp(logs[0]) * steps + exp(logs[1]) * transfer_us
            weighted: Floats = roots * (np.log(times) - measured)
            return weighted

        first = np.log([FIRST_ALPHA_US, FIRST_SLOWNESS])
        scale = OUTLIER * float(np.median(roots))
        solution = least_squares(residuals, first, loss="soft_l1", f_scale=scale).x
        return AlphaBeta(exp(solution[0]), exp(solution[1]), len(set(systems)))


BASELINES: Mapping[
    str,
    Callable[[Benchmark, Benchmark], tuple[dict[QuestionKey, Prediction], Sequence[str]]],
] = {NCCL_MODEL: nccl_model, ALPHA_BETA: alpha_beta}
