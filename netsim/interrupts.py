"""Ctrl-C, or the end that a batch queue asks for, at moments when nothing is lost by it.

Python raises KeyboardInterrupt anywhere: where it vanishes (in callbacks of the garbage collector),
where locks are left in a state that nobody expects, where a process was just begun that nobody then
knows of. Blocking the signal does not help: it then goes to another thread, and Python raises in
the first one all the same. So a handler notes it, and whoever holds it asks.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

UNWINDING = (
    5.0  # seconds after Ctrl-C, in which what is finished is written and no other one counts
)
_AGAIN = 0.02  # seconds after which one that vanished is raised again

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], Any]


class Held:
    """An interrupt that waits until it is asked for."""

    def __init__(self, usual: Mapping[int, Handler]) -> None:
        self.usual = usual
        self.noted = 0

    def note(self, number: int, _: FrameType | None) -> None:
        """What a signal does meanwhile."""
        self.noted = number

    def check(self) -> None:
        """Do what a signal usually does, if one came."""
        number, self.noted = self.noted, 0
        if number:
            self.usual[number](number, None)


@contextmanager
def held() -> Iterator[Held]:
    """Let an interrupt wait for `check()`, or else for the end of the block."""
    here = threading.current_thread() is threading.main_thread()  # others hear of no signal
    found = {number: signal.getsignal(number) for number in SIGNALS if here}
    usual: dict[int, Handler] = {
        number: handler for number, handler in found.items() if callable(handler)
    }
    waiting = Held(usual)
    for number in usual:
        signal.signal(number, waiting.note)
    with suppress(GeneratorExit):  # of a generator that is closed within the block
        try:
            yield waiting
        finally:
            for number, handler in usual.items():
                signal.signal(number, handler)
    waiting.check()


@contextmanager
def deaf() -> Iterator[None]:
    """Processes that are started meanwhile never hear an interrupt: a terminal interrupts all that
    it has, and one that imports modules could not make anything of it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def listen() -> None:
    """Raise KeyboardInterrupt once for all that come while a command ends; and if it vanishes in a
    callback, again and without a word of it. What a shell has us ignore (Ctrl-C is not for jobs in
    its background) stays ignored.
    """
    raised, last = [-UNWINDING], [int(signal.SIGINT)]

    def interrupt(number: int, _: FrameType | None) -> None:
        if time.monotonic() - raised[0] >= UNWINDING:
            raised[0], last[0] = time.monotonic(), number
            raise KeyboardInterrupt

    def vanished(lost: "sys.UnraisableHookArgs") -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            usual(lost)
            return
        raised[0] = -UNWINDING
        threading.Timer(_AGAIN, signal.raise_signal, (last[0],)).start()

    usual = sys.unraisablehook
    sys.unraisablehook = vanished
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Nobody else's handlers stay (a package that sets its own when it is imported)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
