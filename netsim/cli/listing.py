"""`netsim list`: the scenarios and machines that come with netsim, and those of this folder."""

import json
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import typer

from netsim.base.errors import InputError
from netsim.base.files import SUFFIXES, csv_of, find_preset, preset_names, text_of
from netsim.base.startup import at
from netsim.base.values import dataclass
from netsim.cli import topo_text
from netsim.cli.output import print_lines
from netsim.topology.load import FOLDER, find_machine

PresetKind = Literal["all", "scenarios", "machines"]
ListFormat = Literal["table", "csv", "json"]
SCENARIOS = "scenarios"
_WIDTH = 118  # characters of a line if the output is no terminal
_LEAST = 24  # least characters of the last column


@dataclass(frozen=True)
class ScenarioEntry:
    """A scenario in the list: its name, and the question that its first comment asks."""

    name: str
    question: str


@dataclass(frozen=True)
class MachineEntry:
    """A machine in the list: name, number and model of GPUs, what joins them, NICs, and purpose."""

    name: str
    gpu_count: str
    gpu: str
    scale_up: str
    nics: str
    purpose: str


def list_presets(kind: PresetKind = "all", form: ListFormat = "table") -> None:
    """Print the list of scenarios (each with its question), of machines, or of both."""
    scenarios: list[ScenarioEntry] = []
    machines: list[MachineEntry] = []
    if kind != "machines":
        scenarios = list(scenario_entries())
    if kind != "scenarios":
        machines = list(machine_entries())
    if form == "json":
        groups = {
            SCENARIOS: [asdict(entry) for entry in scenarios],
            "machines": [asdict(entry) for entry in machines],
        }
        wanted = groups if kind == "all" else groups[kind]
        typer.echo(json.dumps(wanted, indent=1, ensure_ascii=False))
        return
    if form == "csv":
        if kind == "all":
            raise InputError(
                "--format csv: scenarios and machines have different columns",
                hint="name one: netsim list scenarios --format csv",
            )
        typer.echo(_csv(scenarios or machines), nl=False)
        return
    if kind == "all":
        print_lines(_titled("Scenarios (netsim run NAME):", _scenario_lines(scenarios)))
        typer.echo()
        title = "Machines (netsim expect NAME all_reduce, netsim topo show NAME):"
        print_lines(_titled(title, _machine_lines(machines)))
        return
    print_lines(_scenario_lines(scenarios) if kind == SCENARIOS else _machine_lines(machines))


def list_machines() -> None:
    """Print the table of the machines that come with netsim and of those in ./topologies."""
    print_lines(_machine_lines(list(machine_entries())))


def scenario_entries() -> Iterator[ScenarioEntry]:
    """Yield the scenarios that come with netsim and those in ./scenarios, sorted by name."""
    for name in _names(SCENARIOS):
        text = text_of(find_preset(SCENARIOS, name).path)
        yield ScenarioEntry(name, question_of(text))


def question_of(text: str) -> str:
    """The question that the first comment of a scenario asks, without line breaks.

    It is the text of the comment's first paragraph up to the last question mark; if the paragraph
    asks nothing, its first sentence.
    """
    words = []
    for line in text.splitlines():
        if not line.startswith("#") or not line.strip("# "):
            break
        words.append(line.lstrip("#").strip())
    paragraph = " ".join(words)
    end = paragraph.rfind("?")
    if end >= 0:
        return paragraph[: end + 1]
    sentence, stop, _ = paragraph.partition(". ")
    return sentence + stop.strip()


def machine_entries() -> Iterator[MachineEntry]:
    """Yield the machines that come with netsim and those in ./topologies, sorted by name.

    A file in ./topologies that is no machine gets an entry that says so as its purpose.
    """
    names = _names(FOLDER)
    for number, name in enumerate(names):
        at(name, number, len(names))
        try:
            machine = find_machine(name).machine
        except InputError as error:
            is_cluster = "cluster" in str(error)
            why = "a cluster or graph: see topo show" if is_cluster else f"no machine: {error}"
            yield MachineEntry(name, "", "", "", "", why.splitlines()[0])
            continue
        yield MachineEntry(
            name,
            str(machine.gpu.count),
            machine.gpu.model,
            topo_text.scale_up(machine, short=True),
            topo_text.nics(machine, short=True),
            machine.purpose or machine.description,
        )


def _names(folder: str) -> list[str]:
    """The sorted names of the presets in `folder` ("scenarios" or "topologies") and of the files in
    the folder of that name below the working directory.
    """
    local = {file.stem for suffix in SUFFIXES for file in Path(folder).glob(f"*{suffix}")}
    return sorted(local | set(preset_names(folder)))


def _titled(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *lines]


def _scenario_lines(entries: Sequence[ScenarioEntry]) -> list[str]:
    """The lines of the table of scenarios, as wide as the terminal."""
    rows: list[tuple[str, ...]] = [("name", "question")]
    rows += [(entry.name, entry.question) for entry in entries]
    return _wrapped(rows)


def _machine_lines(entries: Sequence[MachineEntry]) -> list[str]:
    """The lines of the table of machines, as wide as the terminal."""
    rows: list[tuple[str, ...]] = [("name", "GPUs", "GPU", "scale-up per GPU", "NICs", "used for")]
    rows += [tuple(asdict(entry).values()) for entry in entries]
    return _wrapped(rows)


def _csv(entries: Sequence[ScenarioEntry] | Sequence[MachineEntry]) -> str:
    """Entries of one kind as a CSV table, with their fields as columns."""
    values = [asdict(entry) for entry in entries]
    return csv_of([list(values[0]), *(list(value.values()) for value in values)])


def _wrapped(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as the lines of a table that fits the terminal; the last column is wrapped."""
    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    right = (1,) if len(rows[0]) > 2 else ()
    heads = topo_text.columns([row[:-1] for row in rows], right=right)
    left = max(map(len, heads)) + 2
    room = max(_LEAST, width - left)
    lines = []
    for head, row in zip(heads, rows, strict=True):
        first, *more = textwrap.wrap(row[-1], room) or [""]
        lines.append(f"{head:<{left}}{first}".rstrip())
        lines += [" " * left + text for text in more]
    return lines
