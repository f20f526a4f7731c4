"""Logs that netsim itself makes with one constant changed, and what `calibrate` says of them.

    python -m tests.bench.recovery [SYSTEM…] [--collectives all_reduce,alltoall] [--factor 1.2]

For every parameter that a system has, and every collective: whether the parameter was recovered
within its interval, or is in the reported group, or does not show in the log; and how much worse
the simulation of other collectives became. Exit code 1 if neither holds, or if one became worse by
more than 1 %."""

import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log

import numpy as np

from netsim.measured.calibrate import Calibrated, CalibratedParameter, calibrate, parameters_of
from netsim.measured.compare import resolved_for, times_of
from netsim.measured.index import with_figures
from netsim.measured.logs import LogRun, MeasuredRow
from netsim.topology.machine import value_of
from netsim.yamlio.read import Source, parse_source

SYSTEMS = {
    "4 A100": "{machine: dgx-a100, gpus_per_node: 4}",
    "2 x 2 A100": "{machine: dgx-a100, nodes: 2, gpus_per_node: 2, nics_per_node: 2}",
    "4 H100": "{machine: dgx-h100, gpus_per_node: 4}",
    "2 RTX 2080 Ti": "{machine: rtx2080ti-x2}",
}
COLLECTIVES = ("all_reduce", "all_gather", "alltoall", "broadcast", "reduce_scatter")
SIZES = tuple(1 << power for power in (3, 10, 14, 16, 18, 20, 22, 24, 26, 28))
FEW_SIZES = SIZES[::3]  # at which other collectives are compared
DIGITS = 4  # of a time in the tables of nccl-tests
FACTOR = 1.2
WORSE = 0.01  # mean |log ratio| by which another collective may become worse
SHOWN = 0.01  # change of a log time from which a log shows a parameter at all
NEVER_RECOVERED = "neither recovered nor in the group"


@dataclass(frozen=True)
class Recovery:
    """What became of one changed parameter: `state` in words, and the largest increase of the mean
    |log ratio| of another collective."""

    parameter: str
    state: str
    worse: float

    @property
    def is_good(self) -> bool:
        """Whether the parameter was recovered or named, and nothing became worse."""
        return self.state != NEVER_RECOVERED and self.worse <= WORSE


def source_of(system: str, collective: str) -> Source:
    """The scenario of a system and a collective."""
    text = f"cluster: {SYSTEMS[system]}\nworkload: {{collective: {collective}}}"
    return parse_source(text, system)


def simulated_run(
    system: str, collective: str, figures: Mapping[str, float], sizes: Sequence[int] = SIZES
) -> LogRun:
    """A log as a system with some other figures would write it, without noise."""
    rows = tuple(MeasuredRow(size, out_of_place=1.0) for size in sizes)
    run = LogRun(f"{collective}.log", collective, rows)
    source = with_figures(source_of(system, collective), figures)
    times = times_of(resolved_for(source, run), rows, collective)
    printed = [float(f"{time * 1e6:.{DIGITS}g}") / 1e6 for time in times.tolist()]
    timed = [replace(row, out_of_place=time) for row, time in zip(rows, printed, strict=True)]
    return replace(run, rows=tuple(timed))


@lru_cache(maxsize=8)
def parameters(system: str) -> dict[str, CalibratedParameter]:
    """The parameters of a system by name."""
    run = simulated_run(system, "all_reduce", {}, SIZES[:1])
    resolved = resolved_for(source_of(system, "all_reduce"), run)
    return {one.name: one for one in parameters_of(resolved)}


def error_at(
    system: str, collective: str, true: Mapping[str, float], figures: Mapping[str, float]
) -> float:
    """The mean |log ratio| of times with some figures over those with the true ones."""
    rows = tuple(MeasuredRow(size, out_of_place=1.0) for size in FEW_SIZES)
    run = LogRun("x", collective, rows)
    source = source_of(system, collective)
    ratios = [
        np.log(times_of(resolved_for(with_figures(source, values), run), rows, collective))
        for values in (figures, true)
    ]
    return float(np.abs(ratios[0] - ratios[1]).mean())


def recovered(system: str, collective: str, name: str, factor: float = FACTOR) -> Recovery:
    """Change a parameter by a factor (or its inverse, if more is impossible), calibrate to the log
    of one collective, and compare the others."""
    parameter = parameters(system)[name]
    if parameter.high < factor:
        factor = 1 / factor
    true = parameter.figures(log(factor))
    run = simulated_run(system, collective, true)
    found = calibrate([(source_of(system, collective), run)], 1)
    figures = {key: value_of(key, figure) for key, figure in found.figures.items()}
    worse = max(
        error_at(system, other, true, figures) - error_at(system, other, true, {})
        for other in COLLECTIVES
    )
    usual = simulated_run(system, collective, {})
    changes = [
        abs(log((one.out_of_place or 1.0) / (two.out_of_place or 1.0)))
        for one, two in zip(run.rows, usual.rows, strict=True)
    ]
    return Recovery(name, _state(found, name, log(factor), max(changes)), worse)


def _state(found: Calibrated, name: str, true: float, change: float) -> str:
    fitted = next(one for one in found.fitted if one.parameter.name == name)
    if not fitted.left and fitted.low <= true <= fitted.high:
        return "recovered"
    if any(one.name == name for group in found.alternatives for one in group.parameters):
        return "in the group"
    if change < SHOWN and all(one.left for one in found.fitted):
        return "not shown, nothing fitted"
    if all(one.left for one in found.fitted):
        return "left alone"
    return NEVER_RECOVERED


def main(arguments: Sequence[str]) -> int:
    """Print a line for every system, collective and parameter."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--factor", type=float, default=FACTOR)
    given = parser.parse_args(arguments)
    bad = 0
    for system in given.systems:
        for collective in given.collectives.split(","):
            for name in parameters(system):
                one = recovered(system, collective, name, given.factor)
                bad += not one.is_good
                mark = "" if one.is_good else "  BAD"
                text = f"{system}, {collective}, {name}: {one.state}, others {one.worse:+.1%}{mark}"
                print(text, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
