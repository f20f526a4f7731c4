"""How far two engines are apart on a program, and how far the definition is from itself.

Some programs amplify rounding: an all-to-all that has fallen out of step multiplies the last bit of
an amount by millions, and a row that crawls at its end shows it in its time. There no two ways of
adding up can agree better than the definition agrees with itself after such a change of input.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np

from netsim.base.errors import StalledError
from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled_engine
from netsim.program.program import Program, Timeline, released

RELATIVE = 1e-9
ROUNDING = 4e-16  # two bits of the last place
CHANGES = 3
MARGIN = 30  # engines round thousands of times, a changed input once


def outcome(engine: object, program: Program) -> Timeline | str:
    """The timeline, or why there is none: which rows wait for which links.

    When the run came to a halt is left out: a change of a link that nobody waits for is an event to
    the plain engine, and none to the other."""
    try:
        return engine.run(program)  # type: ignore[attr-defined]
    except StalledError as error:
        return re.sub(r"at \S+ s, ", "", str(error))


def apart(one: Timeline | str, other: Timeline | str) -> float:
    """The largest relative difference of any time."""
    if isinstance(one, str) or isinstance(other, str):
        return 0.0 if one == other else inf
    worst = 0.0
    for a, b in ((one.start, other.start), (one.end, other.end)):
        worst = max(worst, float((np.abs(a - b) / np.maximum(np.abs(a), 1e-300)).max(initial=0.0)))
    return worst


def own_spread(program: Program) -> float:
    """How far the definition's times move when amounts change by roundings."""
    usual, spread = outcome(simpy, program), 0.0
    for seed in range(CHANGES):
        random = np.random.default_rng(seed)
        pieces = program.schedule.pieces
        sign = random.choice([-1, 0, 1], len(pieces.amount))
        changed = replace(pieces, amount=pieces.amount * (1 + sign * ROUNDING))
        schedule = replace(program.schedule, pieces=changed)
        spread = max(spread, apart(usual, outcome(simpy, replace(program, schedule=schedule))))
    return spread


def disagreement(program: Program) -> float:
    """How far the engines are apart."""
    return apart(outcome(simpy, program), outcome(compiled_engine, program))


def assert_agreement(program: Program) -> None:
    """Every row to 1e-9, or as well as rounding lets anyone know it."""
    off = disagreement(program)
    assert off <= RELATIVE or off <= MARGIN * own_spread(program), off


def watched(note: Callable[[Program], None]) -> Callable[..., compiled_engine.Simulator]:
    """In the place of the engines' `simulator`: every program is noted before it is simulated."""

    class Watched(compiled_engine.Simulator):
        def timeline(self, begins: np.ndarray | None = None, **options: object) -> Timeline:
            note(self.program if begins is None else released(self.program, begins))
            return super().timeline(begins, **options)

    return lambda program, engine="auto": Watched(program)
