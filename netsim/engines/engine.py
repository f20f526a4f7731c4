"""Engines: they turn a Program into a Timeline.

The compiled engine is imported only when it is used. Its start-up takes longer than a small
simulation, and compiling it for the first time takes longer than a hundred of them.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.program.program import Operations, Program, Timeline, released

Floats = NDArray[np.float64]

ENGINES = {"simpy": "netsim.engines.simpy", "compiled": "netsim.engines.compiled.engine"}
AT_HAND = "at hand"
FEW = "auto for few"
COMPILED_FROM = 200  # rows from which starting the compiled engine pays
# By the value of `engine` in `choose`, the rows from which the compiled engine is used. For a few
# small programs its start-up pays from 2,500 rows on, for which SimPy takes 0.1 s.
FROM = {"auto": COMPILED_FROM, AT_HAND: COMPILED_FROM, FEW: 2_500}
# Compiling the machine code takes 7 s; SimPy takes up to 4 s for 30,000 rows.
COMPILING_FROM = 30_000  # rows of all programs so far, from which compiling pays
ONE_TOO_LONG = 5_000  # rows of one program, from which compiling pays


class AnySimulator(Protocol):
    """Simulates one program several times.

    What does not change between the runs is computed once.
    """

    def timeline(self, begins: Floats | None = None, **options: Any) -> Timeline:
        """Return the Timeline if ranks begin at these times in seconds; by default all begin at
        0.
        """
        ...


def choose(program: Program | Operations, engine: str = "auto") -> str:
    """Return the engine that simulates a program: "simpy" or "compiled".

    `auto` depends only on the number of rows, so that files have the same bytes on every machine.
    `AT_HAND` (for results that are only shown) also depends on whether the compiled engine is
    compiled: both engines agree to nine digits, but compiling takes time.
    """
    if engine in FROM:
        rows = len(program)
        pays = rows >= FROM[engine] and (engine != AT_HAND or _compiling_pays(rows))
        return "compiled" if pays else "simpy"
    if engine not in ENGINES:
        raise ValueError(f"engine: expected auto, {', '.join(ENGINES)}, got {engine!r}")
    return engine


def at_hand(engine: str, *, many: bool = False) -> str:
    """Return the engine to use in place of `engine` for results that are only shown.

    If `engine` is not "auto", it is used. For `many` programs, however small, it is "compiled" if
    this engine is ready or compiling pays. Otherwise it is `AT_HAND`: `choose` decides for each
    program.
    """
    if engine != "auto":
        return engine
    return "compiled" if many and _compiling_pays(0) else AT_HAND


def _compiling_pays(rows: int) -> bool:
    """Return whether the compiled engine is ready, or compiling it takes less time than SimPy.

    `rows` are those of the next program. The rows that SimPy has simulated before count, too.
    """
    if rows >= ONE_TOO_LONG or _by_simpy.rows + rows >= COMPILING_FROM:
        return True
    from netsim.engines.compiled.engine import is_ready

    return is_ready()


def give_back_memory() -> None:
    """Return memory that is free to the system; the compiled engine keeps it for later runs."""
    structures = sys.modules.get("netsim.engines.compiled.structures")
    if structures is not None:
        structures.trim_memory()


class _Work:
    """The rows that SimPy has simulated so far in this process."""

    rows = 0


_by_simpy = _Work()


def simulate(program: Program, engine: str = "auto", **options: Any) -> Timeline:
    """Simulate a Program and return its Timeline; the options are those of the engine's `run`."""
    name = choose(program, engine)
    if name == "simpy":
        _by_simpy.rows += len(program)
    timeline: Timeline = import_module(ENGINES[name]).run(program, **options)
    return timeline


def simulator(program: Program, engine: str = "auto") -> AnySimulator:
    """Return an object that simulates a program several times; `engine`: see `choose`."""
    name = choose(program, engine)
    simulator_class: Callable[[Program], AnySimulator] | None = _offered(name, "Simulator")
    return _Plain(program, name) if simulator_class is None else simulator_class(program)


@dataclass(frozen=True)
class _Plain:
    """Simulates a program several times by an engine that has no `Simulator` of its own."""

    program: Program
    engine: str

    def timeline(
        self, begins: Floats | None = None, instant: float | None = None, **options: Any
    ) -> Timeline:
        """Return the Timeline if ranks begin at these times in seconds; by default all begin at 0.

        `instant`: the length of an instant in seconds; by default that of the program.
        """
        begun = self.program if begins is None else released(self.program, begins)
        begun = begun if instant is None else replace(begun, instant=instant)
        return simulate(begun, self.engine, **options)


def ends_of_operations(
    many: Operations, engine: str = "auto", under_way: list[Any] | None = None
) -> Floats:
    """Return when operations back to back end, in seconds, as [operation, rank].

    `under_way` is a list in which an engine may store its state. A later call with the same list
    and more of the same operations then only simulates the additional ones.
    """
    name = choose(many, engine)
    in_a_row: Callable[..., Timeline] | None = _offered(name, "run_operations")
    # An engine without `run_operations` simulates all operations as one program.
    timeline = in_a_row(many, under_way) if in_a_row else simulate(many.unrolled(), name)
    ends: Floats = timeline.end[many.ends]
    return ends


def tight_entries(program: Program) -> NDArray[np.bool_]:
    """Return for each path entry (a resource that a path draws on) whether it can limit a row.

    The result holds for any number of loops and operations of the program.
    """
    entries: NDArray[np.bool_] = _offered("compiled", "tight_entries")(program)
    return entries


def _offered(engine: str, name: str) -> Any:
    """Return a function or class of an engine's module by name; None if it has none."""
    return getattr(import_module(ENGINES[engine]), name, None)
