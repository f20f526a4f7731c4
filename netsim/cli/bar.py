"""Where the progress of a run is shown, if anywhere: on a terminal only."""

import sys
from types import TracebackType
from typing import Self

import typer

from netsim.cli import progress
from netsim.results import Row
from netsim.sweep import Task
from netsim.timing import Progress


class NoBar:
    """Shows nothing but results."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is left to tidy up."""

    def task(self, task: Task) -> Progress | None:
        """Nobody asks an engine how far it is."""
        del task
        return None

    def advance(self, row: Row | None = None) -> None:
        """One task is done."""

    def print(self, text: str) -> None:
        """A line of results."""
        typer.echo(text)


def bar_over(tasks: int, quiet: bool) -> "NoBar | progress.Bar":
    """A bar over so many tasks, or what stands for it where nobody looks."""
    return NoBar() if quiet or not sys.stderr.isatty() else progress.Bar(tasks, quiet)
