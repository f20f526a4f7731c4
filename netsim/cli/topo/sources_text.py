"""Where the figures of machines are from: how many of which kind, or each with its stamp."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from netsim.cli.topo.columns import columns
from netsim.cli.topo.subject import Subject
from netsim.errors import InputError
from netsim.topology.machine import Machine
from netsim.topology.stamps import WORDS
from netsim.topology.write import with_units
from netsim.units import format_size


def source_summary(machine: Machine) -> str:
    """How many figures are from where."""
    count = Counter(one.stamp for one in machine.sources)
    found = ", ".join(f"{count[word]} {word}" for word in WORDS if count[word])
    return f"{found} (of each figure: --sources)"


def source_lines(subject: Subject) -> Iterator[str]:
    """Every figure of the machines of a cluster, as their files have them."""
    if subject.config is None or subject.cluster is None:
        raise InputError("--sources: a graph has no machine whose figures are stamped")
    machines = {group.loaded.name: group.loaded.machine for group in subject.config.members}
    for number, (name, machine) in enumerate(machines.items()):
        yield from [""] * bool(number)
        yield f"{name}: {machine.description}"
        rows = [(one.path, one.stamp, figure_text(one.path, one.value)) for one in machine.sources]
        yield from columns([("figure", "from", "value"), *rows])


def figure_text(path: str, value: Any) -> str:
    """The value of a figure as its file has it."""
    part, _, key = path.rpartition(".")
    if key == "memory" and isinstance(value, int):
        return format_size(value)
    found = with_units(value, key, part.rpartition(".")[2])
    if isinstance(found, list):
        return ", ".join(map(str, found))
    return str(found).lower() if isinstance(found, bool) else str(found)
