"""A process: the versions of its packages, its memory, and the progress that it shows.

Verbs report their progress (`at`). If a command takes longer than two seconds, a thread shows it on
standard error: on a terminal in one line that is overwritten, elsewhere in a line now and then."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partialmethod
from importlib import import_module
from typing import Any, TextIO, cast

from netsim.base.values import dataclass

__version__ = "0.9.0"
MODEL_VERSION = "7"


def late(name: str) -> Any:
    """The function with this dotted name, imported now instead of at start-up.

    Only modules that take a tenth of a second and more are imported so; `tests/core/test_house.py`
    lists them."""
    module, _, function = name.rpartition(".")
    return getattr(import_module(module), function)


def version_of(package: str) -> str:
    """The version of an installed package: a faster `importlib.metadata.version`."""
    metadata = import_module("importlib.metadata")  # which not every command needs
    metadata_text = metadata.distribution(package).read_text("METADATA") or ""
    words = (line.partition(": ") for line in metadata_text.splitlines())
    versions = (value for key, _, value in words if key == "Version")
    return next(versions, None) or str(metadata.version(package))


def resident(pid: int | None = None) -> int:
    """The bytes of memory that a process uses (this one, or that of `pid`); 0 if unknown."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def memory_limit() -> int:
    """The limit on the memory of this process in bytes; 0 without a limit."""
    limits = import_module("resource")  # which not every system has
    soft, _ = limits.getrlimit(limits.RLIMIT_DATA)
    return 0 if soft == limits.RLIM_INFINITY else int(soft)


def limit_memory(most: int) -> None:
    """Limit the memory of this process to `most` bytes.

    Allocations beyond fail with an error instead of exhausting the system."""
    limits = import_module("resource")
    _, hard = limits.getrlimit(limits.RLIMIT_DATA)
    most = most if hard == limits.RLIM_INFINITY else min(most, hard)
    with suppress(OSError, ValueError):
        limits.setrlimit(limits.RLIMIT_DATA, (most, hard))


SLOW = 2.0  # seconds after which a command says how far it is
REFRESH = 0.5  # seconds between two looks of a terminal
SPARSE = 30.0  # seconds after which a line is written elsewhere, then after twice as many, …
CLEAR = "\r\x1b[K"


@dataclass
class Stage:
    """The progress of a command: `done` of `total` parts of a cell (0: unknown)."""

    cell: str = ""
    what: str = ""
    done: int = 0
    total: int = 0
    began: float = 0.0
    hidden: bool = False  # a bar shows it
    others: Callable[[], int] = int  # the bytes that workers have
    counted_since: float = 0.0  # when the parts that are counted now began
    counted_from: int = 0  # how many of them were done then: known from an earlier run
    work_done: float = 0.0  # of the whole command, in any unit that weighs its parts
    work_total: float = 0.0  # 0: parts are taken as equal
    work_since: float = 0.0
    share: float = 0.0  # the fraction of the current part that is done
    tell_parent: Callable[[float], None] | None = None  # in a worker: passes `share` on

    def seconds_left(self, now: float) -> float | None:
        """About how long what is left takes: by the work of it where that is known, else as if all
        parts were equal; None where nothing is known yet."""
        if self.work_total:
            done, total, since = self.work_done, self.work_total, self.work_since
        else:
            done, since = float(self.done - self.counted_from), self.counted_since
            total = float(self.total - self.counted_from)
        if not 0 < done < total:
            return None
        return (now - since) / done * (total - done)


STAGE = Stage()


def at(what: str, done: int = 0, total: int = 0) -> None:
    """Report what a command does now, and that `done` of `total` parts are done."""
    if total != STAGE.total or done < STAGE.done:  # other parts are counted from now on
        STAGE.counted_since, STAGE.counted_from = time.monotonic(), done
    STAGE.what, STAGE.done, STAGE.total = what, done, total
    tell_share(0.0)


def tell_share(share: float) -> None:
    """Report which fraction of the current part is done; a worker tells its parent process, too."""
    STAGE.share = share
    if STAGE.tell_parent is not None:
        STAGE.tell_parent(share)


def worked(done: float, total: float) -> None:
    """Report how much of all work is done, where parts need different amounts; 0 of 0 ends it."""
    if not total or done < STAGE.work_done or total != STAGE.work_total:
        STAGE.work_since = time.monotonic()
    STAGE.work_done, STAGE.work_total = done, total


def on(cell: str, what: str = "") -> None:
    """Report the cell, topology or file that a command works on from now on."""
    STAGE.cell = cell
    at(what)


def line(verb: str, now: float) -> str:
    """The progress of a command as one line."""
    seconds = now - STAGE.began
    parts = [": ".join(filter(None, (verb, STAGE.cell, STAGE.what)))]
    if STAGE.share:
        parts[0] += f" {STAGE.share:.0%}"
    if STAGE.total:
        parts[0] += f" ({STAGE.done} of {STAGE.total} done)"
    parts.append(f"{seconds:.0f} s")
    left = STAGE.seconds_left(now)
    if left is not None:
        parts.append(f"about {left:.0f} s left")
    return ", ".join([*parts, memory()])


def memory() -> str:
    """The memory of this process and its workers, as text."""
    return f"{(resident() + STAGE.others()) / 1e9:.1f} GB"


@contextmanager
def watched(verb: str, *, quiet: bool) -> Iterator[None]:
    """Show the progress of a verb while the block runs, unless `quiet`."""
    on("")
    STAGE.hidden = False
    STAGE.began, STAGE.others = time.monotonic(), int
    worked(0.0, 0.0)
    if quiet:
        yield
        return
    ended, out = threading.Event(), sys.stdout
    shown = _Line(out, sys.stderr) if sys.stderr.isatty() else None
    if shown is not None and out.isatty():
        sys.stdout = shown
    watch = threading.Thread(target=_watch, args=(verb, ended, shown), daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
        sys.stdout = out


def _watch(verb: str, ended: threading.Event, shown: "_Line | None") -> None:
    pause = SLOW if shown is not None else SPARSE
    while not ended.wait(pause):
        if shown is None:
            pause *= 2
            sys.stderr.write(line(verb, time.monotonic()) + "\n")
            sys.stderr.flush()
        elif not STAGE.hidden:
            pause = REFRESH
            shown.show(line(verb, time.monotonic()))
    if shown is not None:
        shown.clear()


class _Enduring:
    """A stream that drops what is written to it once nobody reads it any more."""

    def __init__(self, stream: TextIO, gone: type[OSError]) -> None:
        self.stream, self.gone = stream, gone

    def _tried(self, name: str, *arguments: str) -> Any:
        try:
            return getattr(self.stream, name)(*arguments)
        except self.gone:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())

    write, flush = partialmethod(_tried, "write"), partialmethod(_tried, "flush")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def enduring(*, files: bool) -> Iterator[None]:
    """Let a command continue if nobody reads its diagnostics, or with `files` its results."""
    before = sys.stdout, sys.stderr
    sys.stderr = cast(TextIO, _Enduring(sys.stderr, OSError))
    if files:
        sys.stdout = cast(TextIO, _Enduring(sys.stdout, BrokenPipeError))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Line:
    """Standard output that removes the progress line before it is written to."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self.out, self.err = out, err
        self.there = False
        self.lock = threading.RLock()

    def show(self, text: str) -> None:
        with self.lock:
            self.err.write(CLEAR + text[:100])
            self.err.flush()
            self.there = True

    def clear(self) -> None:
        with self.lock:
            if self.there:
                self.err.write(CLEAR)
                self.err.flush()
                self.there = False

    def write(self, text: str) -> int:
        """Write a result."""
        with self.lock:
            self.clear()
            return self.out.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.out, name)
