"""The question that a verb asks: a scenario, or one made of a topology, a collective and options.

Errors about an option name the option; those about a topology file its line.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from netsim.base.errors import InputError, NetsimError, ScenarioError
from netsim.base.files import SUFFIXES, Preset, find_preset, is_path
from netsim.base.startup import at, late, on
from netsim.base.units import format_size, parse_cli_sizes
from netsim.base.values import dataclass
from netsim.cell import answer
from netsim.cell.answer import AnyPrepared, find_scenario, load_source, notes_of, prepare_any
from netsim.cell.prepare import Prepared, prepare
from netsim.cell.simulate import question_row
from netsim.cli import parsed
from netsim.cli.shown import MANY_SIZES, Engine
from netsim.engines.engine import at_hand
from netsim.nccl import environment
from netsim.results.row import Row
from netsim.scenario.cells import Cell, expand
from netsim.topology.config import loaded
from netsim.topology.load import FOLDER
from netsim.topology.machine import Machine
from netsim.yamlio.models import apply_overrides, override
from netsim.yamlio.read import Source, read_source

FLAGS = {
    "nodes": "cluster.nodes", "gpus_per_node": "cluster.gpus_per_node", "nic": "cluster.nic",
    "nics_per_node": "cluster.nics_per_node", "algo": "workload.algorithm",
    "proto": "workload.protocol", "dtype": "workload.dtype", "launch": "launch",
    "nccl": "nccl.version", "tuner": "nccl.tuner", "graph": "nccl.graph", "exact": "exact",
}  # fmt: skip
ONLY_EXPECT = ("tuner", "graph", "nccl_env")
FOREIGN = (".xml", ".json", ".txt")


@dataclass(frozen=True)
class Asked:
    """The scenario, and what the user should be told about how it was read."""

    source: Source
    notes: tuple[str, ...] = ()


Text = str | None
Texts = list[str] | None


@dataclass(frozen=True)
class Given:
    """The options that change a question, as they were written; None where nothing was.

    Verbs that take them have a parameter `given` (`netsim.cli.with_options`), named as flags are.
    """

    nodes: Annotated[int | None, typer.Option(help="Hosts.", metavar="N")] = None
    gpus_per_node: Annotated[
        int | None, typer.Option(help="GPUs of a host in use.", metavar="G")
    ] = None
    sizes: Annotated[
        str, typer.Option(help="FROM:TO:FACTOR, or a list such as 8,1M.", metavar="SIZES")
    ] = "8:8G:2"
    fabric: Annotated[Text, typer.Option(help="What joins the hosts.", metavar="K")] = None
    nic: Annotated[Text, typer.Option(help="Line rate of the NICs.", metavar="400Gbps")] = None
    nics_per_node: Annotated[
        int | None, typer.Option(help="NICs of a host in use.", metavar="K")
    ] = None
    transport: Annotated[Text, typer.Option(help="infiniband, roce, efa, tcp, …", metavar="T")] = (
        None
    )
    algo: Annotated[
        Text, typer.Option(help="Force one of NCCL's algorithms, or a textbook one.", metavar="A")
    ] = None
    proto: Annotated[Text, typer.Option(help="Force LL, LL128 or Simple.", metavar="P")] = None
    dtype: Annotated[Text, typer.Option(help="As nccl-tests' -d.", metavar="D")] = None
    launch: Annotated[
        Text, typer.Option(help="process_per_gpu, single_process or cuda_graph.", metavar="L")
    ] = None
    nccl: Annotated[
        Text,
        typer.Option(help="NCCL's version, as 2.27; of expect, A,B compares two.", metavar="V"),
    ] = None
    tuner: Annotated[
        Text, typer.Option(help="A tuner table whose lines replace NCCL's choice.", metavar="FILE")
    ] = None
    graph: Annotated[
        Text, typer.Option(help="NCCL's graph XML: the channels to run.", metavar="FILE")
    ] = None
    exact: Annotated[
        bool | None,
        typer.Option("--exact", help="Leave nothing out; refuse what is too large for that."),
    ] = None
    env: Annotated[Texts, typer.Option(help="An NCCL variable.", metavar="NAME=VALUE")] = None
    nccl_env: Annotated[
        bool, typer.Option("--nccl-env", help="Take NCCL's variables of this process.")
    ] = False
    settings: Annotated[
        Texts, typer.Option("--set", help="Replace one value of the scenario.", metavar="KEY=VALUE")
    ] = None

    @property
    def flags(self) -> dict[str, Any]:
        """What was given of the options that stand for one key of a scenario."""
        values = {name: getattr(self, name) for name in FLAGS}
        return {name: value for name, value in values.items() if value is not None}


def asked(topology: str, collective: str, given: Given) -> Asked:
    """The scenario of a topology, a collective and options."""
    source, notes = _cluster(topology, given)
    origins = dict(source.origins)
    work = {"collective": collective, "sizes": parsed(parse_cli_sizes, "--sizes", given.sizes)}
    origins[("workload",)] = f"{topology} {collective}"
    origins[("workload", "sizes")] = f"--sizes {given.sizes}"
    data: dict[str, Any] = {**source.data, "workload": work}
    variables, warnings = _variables(given)
    if variables:
        data["nccl"] = {"env": {name: value for name, value, _ in variables}}
        origins.update({("nccl", "env", name): origin for name, _, origin in variables})
    source = replace(source, data=data, origins=origins)
    for name, value in given.flags.items():
        source = override(source, FLAGS[name], value, f"{flag_of(name)} {value}")
    source = apply_overrides(_with_fabric(source, given), given.settings or ())
    if "sweep" in source.data:
        raise InputError("expect answers one question; a sweep is for netsim run")
    return Asked(source, (*notes, *warnings))


GRAPHS = ("tpu-v4", "tpu-v5p")  # scenarios whose clusters are taken for machines


def flag_of(name: str) -> str:
    """How an option is written."""
    return f"--{name.replace('_', '-')}"


def _cluster(name: str, given: Given) -> tuple[Source, tuple[str, ...]]:
    """The cluster section that a machine, a scenario or a foreign file stands for."""
    path = Path(name)
    if path.is_file() or is_path(name) or path.suffix in FOREIGN:
        if path.suffix not in SUFFIXES:
            return _foreign(path)
        preset = Preset(path.stem, path)
    else:
        graph = name in GRAPHS and not Path(FOLDER, f"{name}.yaml").is_file()
        preset = find_preset("scenarios" if graph else FOLDER, name, "machine")
    notes = (preset.note,) if preset.note else ()
    source = read_source(preset.path)
    if "cluster" in source.data:
        return replace(source, data={"cluster": source.data["cluster"]}), notes
    if "gpu" in source.data:
        place = name if preset.path.stem == name else str(preset.path)
        return Source(name, {"cluster": {"machine": place}}), notes
    raise InputError(f"{preset.path}: neither a machine (with gpu) nor a scenario (with cluster)")


def _foreign(path: Path) -> tuple[Source, tuple[str, ...]]:
    if not path.exists():
        raise ScenarioError("no such file", source=path.as_posix())
    found = late("netsim.topology.foreign.formats.read_foreign")(path)
    if not isinstance(found, Machine):
        raise InputError(f"{path}: a network without machines, which NCCL's rules cannot read")
    note = f"assumed from the compute capability: {found.gpu.model}"
    return Source(path.as_posix(), {"cluster": {"machine": found}}), (note,)


def _with_fabric(source: Source, given: Given) -> Source:
    section = source.data.get("cluster")
    fabric = section.get("fabric") if isinstance(section, dict) else None
    known = dict(fabric) if isinstance(fabric, dict) else {}
    if given.fabric is not None and known.get("kind") != given.fabric:
        known = {"kind": given.fabric}
        source = override(source, "cluster.fabric", known, f"--fabric {given.fabric}")
    if given.transport is None:
        return source
    if not known:
        known = {"kind": _usual_fabric(section or {})}
        source = override(source, "cluster.fabric", known, "the usual fabric")
    origin = f"--transport {given.transport}"
    return override(source, "cluster.fabric.transport", given.transport, origin)


def _usual_fabric(section: dict[str, Any]) -> str:
    """Rail-optimized where hosts have several NICs, as clusters have without any fabric given."""
    try:
        nics = loaded(section["machine"]).machine.nics
    except (KeyError, NetsimError):
        return "rail-optimized"
    count = section.get("nics_per_node")
    several = nics is not None and (count if isinstance(count, int) else nics.count) > 1
    return "rail-optimized" if several else "single-switch"


def _variables(given: Given) -> tuple[list[tuple[str, str, str]], tuple[str, ...]]:
    """NCCL's variables as (name, value, origin), and warnings about those of the process."""
    found: dict[str, tuple[str, str, str]] = {}
    warnings: tuple[str, ...] = ()
    if given.nccl_env:
        known, unknown = environment.known_and_unknown(os.environ)
        found = {name: (name, value, f"${name}") for name, value in known.items()}
        warnings = tuple(f"warning: {text}" for text in unknown)
    for text in given.env or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--env {text}: expected NAME=VALUE such as NCCL_ALGO=Ring")
        found[name.strip()] = (name.strip(), value, f"--env {text}")
    return list(found.values()), warnings


Subject = Annotated[
    str, typer.Argument(help="A scenario; or a machine or topology.", metavar="SCENARIO|TOPOLOGY")
]
CollectiveArgument = Annotated[
    Text, typer.Argument(help="With a topology: all_reduce, alltoall, …", metavar="[COLLECTIVE]")
]


def questioned(subject: str, collective: Text, given: Given) -> tuple[AnyPrepared, list[str]]:
    """The cell that is asked about, and what the user should know about how it was read."""
    on(subject)
    if collective is not None:
        question = asked(subject, collective, given)
        return prepare(expand(question.source)[0]), list(question.notes)
    cell, notes = cell_of(subject, given)
    return prepare_any(cell), notes


def cell_of(subject: str, given: Given) -> tuple[Cell, list[str]]:
    """The first cell of a scenario; options of topologies are refused."""
    others = {"fabric": given.fabric, "transport": given.transport, "env": given.env}
    named = [*given.flags, *(name for name, value in others.items() if value)]
    if named:
        raise InputError(
            f"{flag_of(named[0])}: goes with TOPOLOGY COLLECTIVE, not with a scenario",
            hint="use --set KEY=VALUE, or name a collective",
        )
    found = find_scenario(subject)
    cells = expand(load_source(found.path, given.settings or ()))
    notes = [note for note in (found.note, *notes_of(cells)) if note]
    if len(cells) > 1:
        notes.append(f"the first of {len(cells)} cells: {_where(cells[0])} (--set chooses another)")
    return cells[0], notes


def _where(cell: Cell) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in cell.axes.items())


ScenarioName = Annotated[
    str, typer.Argument(help="A scenario file, or the name of a preset.", metavar="SCENARIO")
]


def simulated(prepared: Prepared, engine: Engine, failures: list[NetsimError]) -> Iterator[Row]:
    """The row of every size, as it is done; what went wrong is added to `failures`."""
    sizes = prepared.cell.scenario.collective.size_list()
    chosen = at_hand(engine, many=len(sizes) >= MANY_SIZES)
    for number, size in enumerate(sizes):
        at(format_size(size), number, len(sizes))
        try:
            yield answer.answer(prepared, size, engine=chosen)
        except NetsimError as error:
            failures.append(error)
            yield replace(question_row(prepared, size), status="error", error=str(error))
