"""An index of measured runs: what each entry says, and where it says it.

Prose of an entry is for people; what it means for a simulation is decided in `mapping`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from netsim.errors import InputError, shown
from netsim.measured.csv_table import read_csv
from netsim.measured.curve import Measured
from netsim.measured.logs import read_log
from netsim.yamlio.reader import compose, construct
from netsim.yamlio.source import Source

NEEDED = ("file", "topology", "collective")
CSV = (".csv", "")
UNHEALTHY = ("no", "partly")


@dataclass(frozen=True)
class Entry:
    """One run of an index; `folder` is where its file is looked for."""

    id: str
    folder: Path
    values: Mapping[str, Any]
    source: Source = field(repr=False, compare=False)
    number: int = 0
    problem: InputError | None = field(default=None, repr=False, compare=False)

    @property
    def topology(self) -> Mapping[str, Any]:
        """Machine, transport and counts."""
        found = self.values.get("topology")
        return found if isinstance(found, Mapping) else {}

    @property
    def machine(self) -> str:
        """The name of its machine."""
        return self.text("topology", "machine")

    @property
    def collective(self) -> str:
        """What was timed."""
        return self.text("collective")

    @property
    def healthy(self) -> bool:
        """Whether nobody judged it a problem case; a bare false is the `no` of YAML 1.1."""
        word = self.text("healthy").casefold().split("(")[0].strip() or "yes"
        return word not in (*UNHEALTHY, "false")

    @property
    def transport(self) -> str:
        """What joined its hosts; on one host, what joined its GPUs is the machine's."""
        return self.text("topology", "transport") or "intra"

    def text(self, *path: str) -> str:
        """A value as text; empty where there is none."""
        found: Any = self.values
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return "" if found is None else str(getattr(found, "text", found)).strip()

    def error(self, message: str, *path: str, hint: str = "") -> InputError:
        """An error about a value of this entry."""
        return self.source.error((self.number, *path), message, hint=hint)

    def rows(self) -> tuple[Measured, ...]:
        """Its measured rows, of a CSV or of a log with one run."""
        if self.problem is not None:
            raise self.problem
        path = self.folder / self.text("file")
        if path.suffix in CSV:
            return read_csv(path)
        first, *others = read_log(path, self.collective)
        if others:
            raise self.error(f"{path} has {len(others) + 1} runs, expected one", "file")
        if not first.rows:
            raise InputError(f"{path}: {first.problems[0] if first.problems else 'no rows'}")
        return first.rows


def read_index(path: Path) -> tuple[Entry, ...]:
    """All entries of an index file."""
    name = path.as_posix()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{name}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: cannot be read: {error}") from None
    root = compose(text, name)
    data = None if root is None else construct(root, name)
    if not data:
        raise InputError(f"{name}: the file is empty")
    if isinstance(data, dict) and isinstance(data.get("runs"), list):
        assert isinstance(root, yaml.MappingNode)
        root = next(value for key, value in root.value if key.value == "runs")
        data = data["runs"]
    source = Source(name, {}, root)
    if not isinstance(data, list):
        raise source.error((), f"expected a list of runs, each with id and file, got {shown(data)}")
    entries = [_entry(n, values, source, path.parent) for n, values in enumerate(data)]
    problems = [entry.problem for entry in entries if entry.problem]
    if problems and len(problems) == len(entries):
        raise problems[0]
    seen: dict[str, int] = {}
    for entry in entries:
        if entry.id in seen:
            raise entry.error(f"two runs are called {entry.id}", "id")
        seen[entry.id] = entry.number
    return tuple(entries)


def _entry(number: int, values: Any, source: Source, folder: Path) -> Entry:
    """A run; what it lacks is told where somebody wants its rows, and does not stop the others."""
    if not isinstance(values, dict):
        raise source.error((number,), f"expected a run with id and file, got {shown(values)}")
    if not values.get("id"):
        raise source.error((number,), "a run needs id")
    problem = None
    for key in NEEDED:
        if problem is None and not values.get(key):
            problem = source.error((number,), f"a run needs {key}")
    topology = values.get("topology")
    if problem is None and not (isinstance(topology, dict) and topology.get("machine")):
        problem = source.error((number, "topology"), "expected machine, nodes and gpus_per_node")
    return Entry(str(values["id"]), folder, values, source, number, problem)
