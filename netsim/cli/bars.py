"""Bars of long runs, on a terminal: what is done, simulated time, time left."""

import sys
from datetime import timedelta
from time import monotonic
from typing import Self

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Task as RichTask
from rich.text import Text

from netsim.base.startup import STAGE, memory
from netsim.base.units import format_size, format_time
from netsim.base.values import dataclass
from netsim.cli.shown import shortened
from netsim.extent.engine_runs import Progress as ProgressReport
from netsim.results.row import Row
from netsim.sweep.run import SizedCell

WIDTH = 28  # characters of what is being worked at
FULL_WIDTH = 110  # columns of a terminal from which bars have their usual length


@dataclass(frozen=True)
class Widths:
    """The characters that the parts of a line of progress may take."""

    description: int
    bar: int
    stage: int


def widths_in(columns: int) -> Widths:
    """The parts of a progress line that fits a terminal of `columns` columns.

    Between the parts stand counts such as `100/8000` and a time, which take up to 24."""
    if columns >= FULL_WIDTH:
        return Widths(description=columns - 40 - 24 - WIDTH - 12, bar=40, stage=WIDTH)
    left = max(0, columns - 24)
    return Widths(description=left * 35 // 100, bar=left * 15 // 100, stage=left * 45 // 100)


class Description(ProgressColumn):
    """The description of a progress line, cut at its width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def render(self, task: RichTask) -> Text:
        """As it is now."""
        return Text(shortened(task.description, self.width), no_wrap=True)


class Whole(ProgressColumn):
    """What is being worked at, and the memory that all have, cut at a width."""

    def __init__(self, width: int | None = None) -> None:
        super().__init__()
        self.width = width

    def render(self, task: object) -> Text:
        """As it is now."""
        text = ", ".join(filter(None, (STAGE.what[:WIDTH], memory())))
        return Text(text if self.width is None else shortened(text, self.width), no_wrap=True)


class TimeLeft(ProgressColumn):
    """About how long what is left takes, by the work of it."""

    def render(self, task: object) -> Text:
        """As it is now."""
        left = STAGE.seconds_left(monotonic())
        return Text("-:--:--" if left is None else str(timedelta(seconds=round(left))))


class Shown:
    """What shows its progress while it is entered."""

    progress: Progress

    def __enter__(self) -> Self:
        STAGE.hidden = not self.progress.disable
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()
        STAGE.hidden = False


class Counter(Shown):
    """A progress bar whose caller reports what is done.

    with Counter("runs", quiet=False) as counter: counter.show(3, 70)"""

    def __init__(self, noun: str, quiet: bool) -> None:
        console = Console(stderr=True)
        widths = widths_in(console.width)
        columns = (
            Description(widths.description),
            BarColumn(bar_width=widths.bar),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeLeft(),
            # The second time takes room that other bars have for this.
            Whole(None if console.width >= FULL_WIDTH else max(0, widths.stage - 10)),
        )
        hidden = quiet or not console.is_terminal
        self.progress = Progress(*columns, console=console, transient=True, disable=hidden)
        self.task = self.progress.add_task(noun, total=None)

    def show(self, done: int, total: int) -> None:
        """So much of so much is done."""
        self.progress.update(self.task, completed=done, total=total)


REFRESH = 0.1  # seconds


class Bar(Shown):
    """A bar over all tasks, and one over the rows of the task at hand.

    with Bar(31, quiet=False) as bar: ..."""

    def __init__(self, tasks: int, quiet: bool) -> None:
        self.console = Console(stderr=True)
        self.best: Row | None = None
        self.shown = self.console.is_terminal and not quiet
        widths = widths_in(self.console.width)
        self.progress = Progress(
            Description(widths.description),
            BarColumn(bar_width=widths.bar),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            Whole(None if self.console.width >= FULL_WIDTH else widths.stage),
            console=self.console,
            transient=True,
            disable=not self.shown,
        )
        self.all = self.progress.add_task("sizes", total=tasks)
        self.one = self.progress.add_task("rows", total=None, visible=False)

    def task(self, task: SizedCell) -> ProgressReport | None:
        """What the engine reports to while it simulates one task."""
        if not self.shown:
            return None
        name = format_size(task.size)

        shown = 0.0

        def report(done: int, rows: int, now: float) -> None:
            nonlocal shown
            if monotonic() > shown + REFRESH:
                shown = monotonic()
                text = f"{name}: {format_time(now)} simulated"
                self.progress.update(
                    self.one, completed=done, total=rows, description=text, visible=rows > 5000
                )

        return report

    def advance(self, row: Row | None = None) -> None:
        """One task is done; the best row so far stands beside the bar."""
        self.progress.advance(self.all)
        if not self.shown or row is None or row.status != "ok" or not row.time_us:
            return
        size, best = row.size_bytes or 0, self.best
        if best is None or (-size, row.time_us) < (-(best.size_bytes or 0), best.time_us or 0.0):
            self.best = row
            where = ", ".join(str(value) for value in row.axes.values())
            text = f"sizes (best: {where} {format_time(row.time_us / 1e6)})" if where else "sizes"
            self.progress.update(self.all, description=text)

    def print(self, text: str) -> None:
        """A line of results, on standard output, above the bar."""
        if self.shown and sys.stdout.isatty():
            self.progress.console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            typer.echo(text)
