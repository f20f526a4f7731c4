"""The record of the methods that were asked for the time of a task, and why each was taken or not.

`solve` puts the list into its result. Commands with `--verbose` listen while tasks are solved and
print a line for each method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from netsim.base.units import format_size
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a method was taken for a task, and the reason, as a clause that a user understands.

    >>> str(Decision("fewer loops", False, "4 loops are too few to leave some out"))
    'fewer loops: not taken: 4 loops are too few to leave some out'
    """

    method: str
    is_taken: bool
    reason: str

    def __str__(self) -> str:
        verdict = "taken" if self.is_taken else "not taken"
        return f"{self.method}: {verdict}: {self.reason}"


Listener = Callable[[str], None]
_LISTENER: ContextVar[Listener | None] = ContextVar("listener to decisions", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within the block, call `listener` with a line for each decision on the tasks that
    are solved.
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def tell_listener(line: str) -> None:
    """Call the current listener with a line, if there is one."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(line)


def tell_decisions(collective: Collective, decisions: Sequence[Decision]) -> None:
    """Call the current listener with a line for each decision on the time of a collective."""
    place = " in place" if collective.in_place else ""
    size = format_size(collective.size_bytes)
    for decision in decisions:
        tell_listener(f"{collective.name} of {size}{place}: {decision}")
