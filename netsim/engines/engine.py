"""Engines: a Program becomes a Timeline.

The compiled engine is imported only when it is used: its start-up costs more than a small run.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.program.program import Operations, Program, Timeline, released

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
    name = choose(program, engine)
    kept: Callable[[Program], AnySimulator] | None = _offered(name, "Simulator")
    return _Plain(program, name) if kept is None else kept(program)


@dataclass(frozen=True)
class _Plain:
    """Of an engine that keeps nothing from one time to the next."""

    program: Program
    engine: str

    def timeline(self, begins: Floats | None = None, **options: Any) -> Timeline:
        begun = self.program if begins is None else released(self.program, begins)
        return simulate(begun, self.engine, **options)


def ends_of_operations(many: Operations, engine: str = "auto") -> Floats:
    """When operations in a row (first axis) are over on every rank."""
    name = choose(many, engine)
    in_a_row: Callable[[Operations], Timeline] | None = _offered(name, "run_operations")
    # Without it, an engine takes rows one by one.
    timeline = in_a_row(many) if in_a_row else simulate(many.unrolled(), name)
    ends: Floats = timeline.end[many.ends]
    return ends


def _offered(engine: str, name: str) -> Any:
    """What an engine may have besides `run`; None where it does without."""
    return getattr(import_module(ENGINES[engine]), name, None)
