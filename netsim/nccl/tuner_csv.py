"""A tuner table in CSV, as NCCL's example tuner plugin reads it, in and out.

Columns: collective, least and most bytes, algorithm, protocol, channels, nodes, ranks, and
optionally pipelined operations and registration; -1 means any, `#` begins a comment.
"""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from netsim.errors import ScenarioError, shown, suggest
from netsim.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS, Algorithm
from netsim.nccl.tuner_rule import TunerRule

Word = TypeVar("Word", bound=str)

COLUMNS = (
    *("collective", "min_bytes", "max_bytes", "algorithm", "protocol", "channels"),
    *("nodes", "ranks", "pipe_ops", "registered"),
)
REQUIRED = 8
HEADER = "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks"
# How the plugin spells algorithms; it reads them without regard to case.
WRITTEN: dict[Algorithm, str] = {
    "CollNetDirect": "collnet_direct",
    "CollNetChain": "collnet_chain",
    "NVLSTree": "nvls_tree",
}


def tuner_text(rules: Iterable[TunerRule]) -> str:
    """Rules as the plugin reads them."""
    return "".join(f"{line}\n" for line in (HEADER, *map(_line, rules)))


def _line(rule: TunerRule) -> str:
    cells = [
        rule.function.lower(),
        rule.least_bytes,
        rule.most_bytes,
        WRITTEN.get(rule.algorithm, rule.algorithm.lower()),
        rule.protocol.lower(),
    ]
    optional = (rule.n_channels, rule.n_nodes, rule.n_ranks)
    return ",".join(map(str, [*cells, *(-1 if one is None else one for one in optional)]))


def read_tuner(path: Path) -> tuple[TunerRule, ...]:
    """The rules of the table in a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(error.strerror or "cannot be read", source=path.as_posix()) from None
    except UnicodeDecodeError:
        raise ScenarioError("not a text in UTF-8", source=path.as_posix()) from None
    return parse_tuner(text, path.as_posix())


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
