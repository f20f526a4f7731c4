"""Engines: a Program becomes a Timeline.

The compiled engine is imported only when it is used: its start-up costs more than a small run.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from netsim.program import program
from netsim.program.program import Operations, Program, Timeline

Floats = NDArray[np.float64]

ENGINES = {"simpy": "netsim.engines.simpy", "compiled": "netsim.engines.compiled.engine"}
COMPILED_FROM = 200  # rows from which starting the compiled engine pays


class AnySimulator(Protocol):
    """Simulates one program several times; what does not change from time to time is kept."""

    def timeline(self, begins: Floats | None = None, **options: Any) -> Timeline:
        """The Timeline if ranks begin at these times; from standstill if none are given."""
        ...


def choose(program: Program | Operations, engine: str = "auto") -> str:
    """The engine that `auto` means for a program: the answer is the same, the wait is not."""
    if engine == "auto":
        return "compiled" if len(program) >= COMPILED_FROM else "simpy"
    if engine not in ENGINES:
        raise ValueError(f"engine: expected auto, {', '.join(ENGINES)}, got {engine!r}")
    return engine


def simulate(program: Program, engine: str = "auto", **options: Any) -> Timeline:
    """The Timeline of a Program."""
    timeline: Timeline = import_module(ENGINES[choose(program, engine)]).run(program, **options)
    return timeline


def simulator(program: Program, engine: str = "auto") -> AnySimulator:
    """What simulates a program several times."""
    if choose(program, engine) == "simpy":
        return _Plain(program)
    found: AnySimulator = import_module(ENGINES["compiled"]).Simulator(program)
    return found


@dataclass(frozen=True)
class _Plain:
    """Of the engine that keeps nothing from one time to the next."""

    program: Program

    def timeline(self, begins: Floats | None = None, **options: Any) -> Timeline:
        begun = self.program if begins is None else program.released(self.program, begins)
        return simulate(begun, "simpy", **options)


def ends_of_operations(many: Operations, engine: str = "auto") -> Floats:
    """When operations in a row (first axis) are over on every rank."""
    if choose(many, engine) == "simpy":  # which takes rows one by one
        timeline = simulate(many.unrolled(), "simpy")
    else:
        timeline = import_module(ENGINES["compiled"]).run_operations(many)
    ends: Floats = timeline.end[many.ends]
    return ends
