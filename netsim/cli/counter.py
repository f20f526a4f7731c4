"""How many of how many are done, for work that is shared out. Only on a terminal."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Shown:
    """What shows its progress while it is entered."""

    progress: Progress

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()


class Counter(Shown):
    """A bar that is told what is done.

    with Counter("runs", quiet=False) as counter: counter.show(3, 70)
    """

    def __init__(self, noun: str, quiet: bool) -> None:
        console = Console(stderr=True)
        columns = (TextColumn(noun), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        hidden = quiet or not console.is_terminal
        self.progress = Progress(*columns, console=console, transient=True, disable=hidden)
        self.task = self.progress.add_task(noun, total=None)

    def show(self, done: int, total: int) -> None:
        """So much of so much is done."""
        self.progress.update(self.task, completed=done, total=total)
