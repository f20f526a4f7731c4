"""The process: versions of packages, memory, and the progress of its command.

Every package reports progress here (`at`); `netsim/cli/progress.py` shows it.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partialmethod
from typing import Any, TextIO, cast

from netsim.base.values import dataclass

__version__ = "0.9.0"
MODEL_VERSION = "9"


def version_of(package: str) -> str:
    """The version of an installed package; faster than `importlib.metadata.version`."""
    from importlib import metadata  # which not every command needs

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
    import resource  # which not every system has

    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return 0 if soft == resource.RLIM_INFINITY else int(soft)


def limit_memory(most: int) -> None:
    """Limit the memory of this process to `most` bytes.

    An allocation beyond the limit fails with an error, instead of exhausting the system.
    """
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


@dataclass
class Stage:
    """The progress of a command: `done` of `total` parts are done (`total` 0: unknown).

    A part is usually one size of a cell. Every package may write it; `netsim/cli/progress.py` shows
    it. Times are in seconds of the monotonic clock.
    """

    cell: str = ""
    activity: str = ""
    remark: str = ""  # shown behind the activity: the best cell so far
    done: int = 0
    total: int = 0
    began: float = 0.0
    is_shown: bool = False  # whether somebody sees it, on a terminal
    others: Callable[[], int] = int  # returns the bytes that worker processes have
    counted_since: float = 0.0  # when the parts that are counted now began
    counted_from: int = 0  # how many of them were done then, because an earlier run had done them
    work_done: float = 0.0  # of the whole command, in any unit that weighs its parts
    work_total: float = 0.0  # 0: all parts count as equal work
    work_since: float = 0.0
    share: float = 0.0  # the fraction of the current part that is done
    rows_done: int = 0  # rows of the simulation that runs
    rows_total: int = 0  # 0: no engine has reported the number of its rows
    rows_since: float = 0.0  # when that simulation first reported
    simulated_seconds: float = 0.0  # how far it has come
    tell_parent: Callable[[float], None] | None = None  # in a worker: passes `share` on

    def seconds_left(self, now: float) -> float | None:
        """The seconds until the parts or the work are done, from their rate so far; None if
        unknown.

        If the work of parts is known (`work_total`), they are weighted by it.
        """
        if self.work_total:
            done = self.work_done
            total = self.work_total
            since = self.work_since
        else:
            done = float(self.done - self.counted_from)
            total = float(self.total - self.counted_from)
            since = self.counted_since
        if not 0 < done < total:
            return None
        return (now - since) / done * (total - done)


STAGE = Stage()


def begin_stage(*, is_shown: bool = False) -> None:
    """Reset the progress, because a new command begins in this process."""
    STAGE.is_shown = is_shown
    on("")
    worked(0.0, 0.0)
    STAGE.remark = ""
    STAGE.others = int
    STAGE.began = time.monotonic()


def at(activity: str, done: int = 0, total: int = 0) -> None:
    """Report what a command does now (`activity`), and that `done` of `total` parts are done."""
    if total != STAGE.total or done < STAGE.done:  # other parts are counted from now on
        STAGE.counted_since = time.monotonic()
        STAGE.counted_from = done
    STAGE.activity = activity
    STAGE.done = done
    STAGE.total = total
    STAGE.rows_total = 0
    tell_share(0.0)


def tell_share(share: float) -> None:
    """Report the fraction of the current part that is done; a worker passes it on to its parent
    process.
    """
    STAGE.share = share
    if STAGE.tell_parent is not None:
        STAGE.tell_parent(share)


def report_rows(done: int, total: int, simulated_seconds: float) -> None:
    """Report how many of its `total` rows an engine has simulated, and the simulated time it has
    reached.
    """
    if total != STAGE.rows_total or done < STAGE.rows_done:  # another simulation
        STAGE.rows_since = time.monotonic()
    STAGE.rows_done = done
    STAGE.rows_total = total
    STAGE.simulated_seconds = simulated_seconds


def engine_progress() -> Callable[[int, int, float], None] | None:
    """The function to which an engine reports its rows; None if progress is not shown."""
    return report_rows if STAGE.is_shown else None


def worked(done: float, total: float) -> None:
    """Report that `done` of `total` units of work are done, if parts differ in their work.

    `total` 0 says that parts are equal again.
    """
    if not total or done < STAGE.work_done or total != STAGE.work_total:
        STAGE.work_since = time.monotonic()
    STAGE.work_done = done
    STAGE.work_total = total


def on(cell: str, activity: str = "") -> None:
    """Report the cell, topology or file that a command works on from now on, and what it does."""
    STAGE.cell = cell
    at(activity)


class _Enduring:
    """A stream that discards what is written to it after its reader has gone (an error of the type
    `gone`).
    """

    def __init__(self, stream: TextIO, gone: type[OSError]) -> None:
        self.stream = stream
        self.gone = gone

    def _tried(self, name: str, *arguments: str) -> Any:
        try:
            return getattr(self.stream, name)(*arguments)
        except self.gone:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())

    write = partialmethod(_tried, "write")
    flush = partialmethod(_tried, "flush")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def enduring(*, files: bool) -> Iterator[None]:
    """Let a command continue after the reader of standard error has gone; with `files`, of standard
    output, too.

    A command that writes files should finish them even if nobody reads what it prints.
    """
    stdout = sys.stdout
    stderr = sys.stderr
    sys.stderr = cast(TextIO, _Enduring(sys.stderr, OSError))
    if files:
        sys.stdout = cast(TextIO, _Enduring(sys.stdout, BrokenPipeError))
    try:
        yield
    finally:
        sys.stdout = stdout
        sys.stderr = stderr
