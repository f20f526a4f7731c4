"""`netsim topo list`: the machines that are known."""

import shutil
import textwrap
from pathlib import Path

import typer

from netsim.cli.topo.columns import columns
from netsim.cli.topo.machine_text import nics, scale_up
from netsim.errors import InputError
from netsim.presets import SUFFIXES, preset_names
from netsim.topology.load import FOLDER, find_machine

_WIDTH = 118  # of lines, where no terminal says how wide it is
_LEAST = 24  # of the last column


def list_machines() -> None:
    """List the machines that come with netsim and those in ./topologies."""
    local = {file.stem for s in SUFFIXES for file in Path(FOLDER).glob(f"*{s}")}
    rows: list[tuple[str, ...]] = [("name", "GPUs", "GPU", "scale-up a GPU", "NICs", "what for")]
    for name in sorted(local | set(preset_names(FOLDER))):
        try:
            rows.append(_row(name))
        except InputError as error:
            rows.append((name, "", "", "", "", _instead(error)))
    wide = shutil.get_terminal_size((_WIDTH, 24)).columns
    for line in _wrapped(rows, wide):
        typer.echo(line)


def _row(name: str) -> tuple[str, ...]:
    found = find_machine(name)
    machine = found.machine
    return (
        name,
        str(machine.gpu.count),
        machine.gpu.model,
        scale_up(machine, short=True),
        nics(machine, short=True),
        machine.purpose or machine.description,
    )


def _instead(error: InputError) -> str:
    """What to say of a file in ./topologies that is no machine."""
    if "cluster" in str(error):
        return "a cluster or graph: see topo show"
    return f"no machine: {str(error).splitlines()[0]}"


def _wrapped(rows: list[tuple[str, ...]], width: int) -> list[str]:
    """Lines of a table, its last column broken where the line would be too long."""
    heads = columns([row[:-1] for row in rows], right=(1,))
    left = max(map(len, heads)) + 2
    room = max(_LEAST, width - left)
    lines = []
    for head, row in zip(heads, rows, strict=True):
        first, *more = textwrap.wrap(row[-1], room) or [""]
        lines.append(f"{head:<{left}}{first}".rstrip())
        lines += [" " * left + text for text in more]
    return lines
