"""The progress of a command on a terminal: what is done, simulated time, time left, memory.

All parts of netsim report to `netsim.base.startup.STAGE` what they are doing. If a command takes
longer than two seconds, a thread shows that with `rich.progress` on standard error, below the
results that are printed meanwhile. Nothing is shown where standard error is no terminal.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from netsim.base.startup import STAGE, resident
from netsim.base.units import format_time

if TYPE_CHECKING:  # rich is imported when a command is slow, and on terminals only
    from rich.console import Console
    from rich.progress import Progress

SLOW = 2.0  # seconds after which a command shows its progress
REFRESH = 0.25  # seconds between two pictures
MANY_ROWS = 5000  # rows of a simulation that has a bar of its own
BAR_FRACTION = 0.15  # of the columns of a terminal


@contextmanager
def shown_progress(verb: str) -> Iterator[None]:
    """Show the progress of a verb on standard error while the block runs, if it is slow."""
    ended = threading.Event()
    thread = threading.Thread(target=_show_when_slow, args=(verb, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show_when_slow(verb: str, ended: threading.Event) -> None:
    """Wait until the command is slow, then show its progress until it has ended."""
    if ended.wait(SLOW):
        return
    from rich.console import Console

    # Results that are printed meanwhile go through this console: long lines stay as they are.
    console = Console(stderr=True, soft_wrap=True)
    progress = progress_on(console)
    update(progress, verb, time.monotonic())
    with progress:
        while not ended.wait(REFRESH):
            update(progress, verb, time.monotonic())
            progress.refresh()


def progress_on(console: "Console") -> "Progress":
    """The bars of a command on a console: one of its parts, and one of the rows of a simulation."""
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    cut = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    progress = Progress(
        TextColumn("{task.description}", table_column=cut, markup=False),
        BarColumn(bar_width=max(4, round(console.width * BAR_FRACTION))),
        TextColumn("{task.fields[detail]}", table_column=Column(no_wrap=True), markup=False),
        console=console,
        auto_refresh=False,
        expand=True,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )
    progress.add_task("", total=None, detail="")
    progress.add_task("", total=None, detail="", visible=False)
    return progress


def update(progress: "Progress", verb: str, now: float) -> None:
    """Set the bars to the state of the command at `now`, in seconds of the monotonic clock."""
    parts, rows = progress.task_ids
    progress.update(
        parts,
        description=description(verb),
        completed=STAGE.done,
        total=STAGE.total or None,
        detail=detail(now),
    )
    progress.update(
        rows,
        description=f"  {format_time(STAGE.simulated_seconds)} simulated",
        completed=STAGE.rows_done,
        total=STAGE.rows_total,
        detail=rows_per_second(now),
        visible=STAGE.rows_total > MANY_ROWS,
    )


def description(verb: str) -> str:
    """What a command works on, as `run: cell nodes 4: 1 GiB 30 % (best: ring 12.3 ms)`."""
    text = ": ".join(filter(None, (verb, STAGE.cell, STAGE.activity)))
    if STAGE.share:
        text += f" {STAGE.share:.0%}"
    return f"{text} ({STAGE.remark})" if STAGE.remark else text


def detail(now: float) -> str:
    """How far a command is, as `3 of 8 done, 20 s, about 30 s left, 0.5 GB`."""
    texts = [f"{STAGE.done} of {STAGE.total} done"] if STAGE.total else []
    texts.append(f"{now - STAGE.began:.0f} s")
    left = STAGE.seconds_left(now)
    if left is not None:
        texts.append(f"about {left:.0f} s left")
    memory = resident() + STAGE.others()
    return ", ".join([*texts, f"{memory / 1e9:.1f} GB"])


def rows_per_second(now: float) -> str:
    """The rate of the running simulation, to two digits: `3,400,000 rows/s`."""
    spent = now - STAGE.rows_since
    if spent <= 0:
        return ""
    rate = float(f"{STAGE.rows_done / spent:.2g}")
    return f"{rate:,.0f} rows/s"
