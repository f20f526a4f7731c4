"""Engines: a Program becomes a Timeline.

The compiled engine is imported only when it is used: its start-up costs more than a small run, and
compiling it, where that was never done, more than a hundred of them."""

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
# A few small programs do not pay for compiling it: SimPy takes 0.1 s for 2,500 rows.
FROM = {"auto": COMPILED_FROM, AT_HAND: COMPILED_FROM, FEW: 2_500}
# If its machine code is not compiled yet, that takes 7 s; SimPy takes up to 4 s for 30,000 rows.
COMPILING_FROM = 30_000  # rows of all programs so far, from which that pays
ONE_TOO_LONG = 5_000  # rows of a program that is not begun with SimPy then


class AnySimulator(Protocol):
    """Simulates one program several times; what does not change from time to time is kept."""

    def timeline(self, begins: Floats | None = None, **options: Any) -> Timeline:
        """The Timeline if ranks begin at these times; from standstill if none are given."""
        ...


def choose(program: Program | Operations, engine: str = "auto") -> str:
    """The engine that `auto` means for a program: by its rows alone, so that what is written has
    the same bytes on every machine. For what is only shown, `AT_HAND` also asks whether the
    compiled engine is compiled: the answer is the same to nine digits, the wait is not."""
    if engine in FROM:
        rows = len(program)
        pays = rows >= FROM[engine] and (engine != AT_HAND or _compiling_pays(rows))
        return "compiled" if pays else "simpy"
    if engine not in ENGINES:
        raise ValueError(f"engine: expected auto, {', '.join(ENGINES)}, got {engine!r}")
    return engine


def at_hand(engine: str, *, many: bool = False) -> str:
    """What `auto` means for what is only shown. For many programs the start-up of the compiled
    engine pays whatever their rows; if it is still to be compiled, each program is asked."""
    if engine != "auto":
        return engine
    return "compiled" if many and _compiling_pays(0) else AT_HAND


def _compiling_pays(rows: int) -> bool:
    """Whether the compiled engine is ready, or so much work is here that compiling it pays."""
    if rows >= ONE_TOO_LONG or _by_simpy.rows + rows >= COMPILING_FROM:
        return True
    from netsim.engines.compiled.engine import is_ready

    return is_ready()


def give_back_memory() -> None:
    """Return freed memory to the system. The compiled engine keeps it otherwise, for later runs."""
    structures = sys.modules.get("netsim.engines.compiled.structures")
    if structures is not None:
        structures.give_back()


class _Work:
    rows = 0


_by_simpy = _Work()


def simulate(program: Program, engine: str = "auto", **options: Any) -> Timeline:
    """The Timeline of a Program."""
    name = choose(program, engine)
    if name == "simpy":
        _by_simpy.rows += len(program)
    timeline: Timeline = import_module(ENGINES[name]).run(program, **options)
    return timeline


def simulator(program: Program, engine: str = "auto") -> AnySimulator:
    """An object that simulates a program several times, by the engine that is named or chosen."""
    name = choose(program, engine)
    simulator_class: Callable[[Program], AnySimulator] | None = _offered(name, "Simulator")
    return _Plain(program, name) if simulator_class is None else simulator_class(program)


@dataclass(frozen=True)
class _Plain:
    """Of an engine that keeps nothing from one time to the next."""

    program: Program
    engine: str

    def timeline(
        self, begins: Floats | None = None, instant: float | None = None, **options: Any
    ) -> Timeline:
        begun = self.program if begins is None else released(self.program, begins)
        begun = begun if instant is None else replace(begun, instant=instant)
        return simulate(begun, self.engine, **options)


def ends_of_operations(
    many: Operations, engine: str = "auto", under_way: list[Any] | None = None
) -> Floats:
    """When operations in a row (first axis) are over on every rank. An engine may keep what is
    `under_way`, so that more of them take no longer than those that come on top."""
    name = choose(many, engine)
    in_a_row: Callable[..., Timeline] | None = _offered(name, "run_operations")
    # Without it, an engine takes rows one by one.
    timeline = in_a_row(many, under_way) if in_a_row else simulate(many.unrolled(), name)
    ends: Floats = timeline.end[many.ends]
    return ends


def tight_entries(program: Program) -> NDArray[np.bool_]:
    """The entries of all paths that can ever limit a row, with any loops and in all operations."""
    entries: NDArray[np.bool_] = _offered("compiled", "tight_entries")(program)
    return entries


def _offered(engine: str, name: str) -> Any:
    """What an engine may have besides `run`; None where it does without."""
    return getattr(import_module(ENGINES[engine]), name, None)
