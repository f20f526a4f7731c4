"""A user's tuner table, as NCCL's example tuner plugin reads it, and the choice it overrides.

Lines of CSV: collective, least and most bytes, algorithm, protocol, channels, nodes, ranks, and
optionally pipelined operations and registration; -1 means any. The first line that fits wins.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from netsim.errors import ScenarioError, shown, suggest
from netsim.nccl.communicator import Communicator
from netsim.nccl.names import (
    ALGORITHMS,
    FUNCTIONS,
    PROTOCOLS,
    Algorithm,
    Function,
    Protocol,
)
from netsim.nccl.tuning import Call, Choice, choose, timed_costs

Word = TypeVar("Word", bound=str)

COLUMNS = (
    *("collective", "min_bytes", "max_bytes", "algorithm", "protocol", "channels"),
    *("nodes", "ranks", "pipe_ops", "registered"),
)
REQUIRED = 8


@dataclass(frozen=True)
class TunerRule:
    """One line: for which calls it holds and what it wants; None means any."""

    function: Function
    least_bytes: int
    most_bytes: int
    algorithm: Algorithm
    protocol: Protocol
    n_channels: int | None = None
    n_nodes: int | None = None
    n_ranks: int | None = None
    n_pipe_ops: int | None = None
    registered: int | None = None

    def fits(self, comm: Communicator, call: Call, *, registered: bool) -> bool:
        """Whether this line is about `call`."""
        wanted = (self.n_nodes, self.n_ranks, self.n_pipe_ops, self.registered)
        given = (comm.n_nodes, comm.n_ranks, call.n_pipe_ops, int(registered))
        agrees = all(want in (None, have) for want, have in zip(wanted, given, strict=True))
        within = self.least_bytes <= call.nbytes <= self.most_bytes
        return agrees and within and self.function == call.function


def choose_tuned(
    comm: Communicator, call: Call, rules: Sequence[TunerRule], *, registered: bool = False
) -> tuple[Choice, int | None]:
    """The choice with a tuner table, and the channels it wants; NCCL's own where none fits.

    A line whose algorithm cannot run here is passed over in favour of NCCL's choice, as NCCL does.
    """
    for rule in rules:
        if not rule.fits(comm, call, registered=registered):
            continue
        for entry in timed_costs(comm, call):
            same = (entry.cost.algorithm, entry.cost.protocol) == (rule.algorithm, rule.protocol)
            if same and entry.time_us is not None:
                return Choice(rule.algorithm, rule.protocol, entry.time_us), rule.n_channels
        break
    return choose(comm, call), None


def parse_tuner(text: str, source: str = "<tuner>") -> tuple[TunerRule, ...]:
    """The lines of a tuner table; every mistake is named with its line and column name."""
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            cells = [cell.strip() for cell in next(csv.reader([line]))]
            rules.append(_rule(_Row(cells, source, number)))
    return tuple(rules)


class _Row:
    """One line of the table, read cell by cell."""

    def __init__(self, cells: list[str], source: str, line: int) -> None:
        self.source, self.line = source, line
        if not REQUIRED <= len(cells) <= len(COLUMNS):
            message = f"expected {REQUIRED} to {len(COLUMNS)} columns, got {len(cells)}"
            raise ScenarioError(message, source=source, line=line)
        self.cells = dict(zip(COLUMNS, cells, strict=False))

    def error(self, column: str, expected: str, hint: str = "") -> ScenarioError:
        message = f"expected {expected}, got {shown(self.cells[column])}{hint}"
        return ScenarioError(message, source=self.source, line=self.line, field=column)

    def name(self, column: str, names: tuple[Word, ...]) -> Word:
        by_name = {name.casefold(): name for name in names}
        written = self.cells[column].replace("_", "").casefold()
        if written not in by_name:
            hint = suggest(self.cells[column], names)
            raise self.error(column, f"one of {', '.join(names)}", hint)
        return by_name[written]

    def integer(self, column: str) -> int:
        written = self.cells[column]
        if not (written.isascii() and written.isdecimal()):
            raise self.error(column, "a whole number")
        return int(written)

    def integer_or_any(self, column: str) -> int | None:
        return None if self.cells.get(column, "-1") == "-1" else self.integer(column)


def _rule(row: _Row) -> TunerRule:
    return TunerRule(
        function=row.name("collective", FUNCTIONS),
        least_bytes=row.integer("min_bytes"),
        most_bytes=row.integer("max_bytes"),
        algorithm=row.name("algorithm", ALGORITHMS),
        protocol=row.name("protocol", PROTOCOLS),
        n_channels=row.integer_or_any("channels"),
        n_nodes=row.integer_or_any("nodes"),
        n_ranks=row.integer_or_any("ranks"),
        n_pipe_ops=row.integer_or_any("pipe_ops"),
        registered=row.integer_or_any("registered"),
    )
