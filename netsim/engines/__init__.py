"""Engines: a Program becomes a Timeline.

The compiled engine is imported only when it is used: its start-up costs more than a small run.
"""

from importlib import import_module
from typing import Any

from netsim.program import Program, Timeline

ENGINES = {"simpy": "netsim.engines.simpy", "compiled": "netsim.engines.compiled"}
COMPILED_FROM = 200  # rows from which starting the compiled engine pays


def choose(program: Program, engine: str = "auto") -> str:
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
