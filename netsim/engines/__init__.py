"""Engines: a Program becomes a Timeline.

The compiled engine is imported only when it is used: its start-up costs more than a small run.
"""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.program import Operations, Program, Timeline

ENGINES = {"simpy": "netsim.engines.simpy", "compiled": "netsim.engines.compiled"}
COMPILED_FROM = 200  # rows from which starting the compiled engine pays


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


def ends_of_operations(many: Operations, engine: str = "auto") -> NDArray[np.float64]:
    """When operations in a row (first axis) are over on every rank."""
    if choose(many, engine) == "simpy":  # which takes rows one by one
        timeline = simulate(many.unrolled(), "simpy")
    else:
        timeline = import_module(ENGINES["compiled"]).run_operations(many)
    ends: NDArray[np.float64] = timeline.end[many.ends]
    return ends
