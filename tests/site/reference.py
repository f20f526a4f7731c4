"""Pages of the reference that are written from the package itself.

`python -m tests.site --write` writes them to docs/reference/; a test compares the pages with it."""

import csv
import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
GENERATED = "<!-- written by `python -m tests.site --write`; do not edit -->\n\n"


def pages() -> dict[str, Callable[[], str]]:
    """The generated pages by file name, each with the function that returns its text."""
    return {
        "scenario-keys.md": scenario_keys,
        "columns.md": columns,
        "command-line.md": command_line,
        "machines.md": machines,
        "api.md": python_api,
    }


def write() -> None:
    """Write all generated pages."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(GENERATED + text(), encoding="utf-8")


def cell_text(value: object) -> str:
    """A value as the text of a table's cell: one line, with escaped bars."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell_text(value) for value in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


# Scenario keys: from the JSON Schema of the models that read scenario files.


def scenario_keys() -> str:
    """The keys of a scenario file, by section."""
    from netsim.scenario.models import Scenario
    from netsim.scenario.training import Training
    from netsim.topology.machine import Machine

    scenario = Scenario.model_json_schema(by_alias=True)
    training = TypeAdapter(Training).json_schema(by_alias=True)
    machine = Machine.model_json_schema(by_alias=True)
    definitions = {
        **machine.get("$defs", {}),
        **training.get("$defs", {}),
        **scenario["$defs"],
        "Scenario": scenario,
        "Training": training,
        "Machine": machine,
    }
    text = SCENARIO_KEYS_HEAD
    for title, names in SECTIONS.items():
        text += f"\n## {title}\n"
        for key, name in names:
            schema = definitions[name]
            text += f"\n### {key} {{ #{name.lower()} }}\n\n" + key_table(schema)
    return text


SCENARIO_KEYS_HEAD = """\
# Scenario keys

Every key of a scenario file and of a machine file, with its type and its default. `netsim schema`
prints the same as a JSON Schema, `netsim schema machine` that of machine files, for editors. The
meaning of the keys, with examples, is in [Scenario files in full](../scenarios.md), [Training
steps](../training.md) and [Topologies](../topologies.md).
"""

# Section of the page: what a file has there, and the model that reads it.
SECTIONS = {
    "The file": [("Top level", "Scenario")],
    "The cluster": [
        ("cluster", "ClusterConfig"),
        ("cluster.groups", "HostGroup"),
        ("cluster.sites", "Sites"),
        ("cluster.overrides", "Override"),
        ("cluster.faults", "Fault"),
        ("cluster.graph of kind switch, ring or full-mesh", "PlainGraph"),
        ("cluster.graph of kind torus", "TorusGraph"),
        ("cluster.graph, written out", "InlineGraph"),
        ("cluster.graph.nodes", "NodeConfig"),
        ("cluster.graph.links", "LinkConfig"),
    ],
    "The workload: a collective": [
        ("workload", "Workload"),
        ("workload.sizes, as a range", "SizeRange"),
        ("timing", "TimedOperations"),
        ("nccl", "Nccl"),
        ("launch", "LaunchCosts"),
    ],
    "The workload: a training step": [
        ("workload with a model", "Training"),
        ("workload.model", "TransformerConfig"),
        ("workload.parallelism", "Parallelism"),
        ("workload.pipeline", "Pipeline"),
        ("workload.replicas", "Replicas"),
        ("workload.compute", "ComputeConfig"),
        ("workload.stragglers", "Straggler"),
    ],
    "Noise, jobs and background": [
        ("noise", "Noise"),
        ("noise.compute, noise.launch, noise.link", "Spread"),
        ("jobs", "JobConfig"),
        ("background", "BackgroundConfig"),
    ],
    "A machine file": [
        ("Top level of a machine", "Machine"),
        ("gpu", "Gpu"),
        ("cpu", "Cpu"),
        ("pcie", "Pcie"),
        ("scale_up", "ScaleUp"),
        ("nics", "Nics"),
    ],
}


# Models of fabrics whose names do not end with "Fabric".
FABRICS = {
    "DualPlane",
    "FatTree",
    "LeafSpine",
    "NvlinkDomain",
    "RailOnly",
    "RailOptimized",
    "SingleSwitch",
}


def key_table(schema: Mapping[str, Any]) -> str:
    """The keys of one model: type, default."""
    required = schema.get("required", [])
    rows = []
    for key, value in schema.get("properties", {}).items():
        default = "required" if key in required else default_text(value)
        rows.append((f"`{key}`", type_text(value), default))
    return table(("key", "type", "default"), rows)


def only(schema: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """The schema of a model with some of its keys."""
    properties = {key: value for key, value in schema["properties"].items() if key in keys}
    return {**schema, "properties": properties}


def default_text(schema: Mapping[str, Any]) -> str:
    """The default of a key; a key without one is left out unless a file has it."""
    default = schema.get("default")
    if default in (None, "", [], {}, ()):
        return ""
    return f"`{json.dumps(default)}`" if not isinstance(default, str) else f"`{default}`"


def type_text(schema: Mapping[str, Any]) -> str:
    """The type of a key in words, with a link where it is a section of its own."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        titles = {model: title for names in SECTIONS.values() for title, model in names}
        if name in titles:
            return f"[{titles[name]}](#{name.lower()})"
        is_fabric = name.endswith("Fabric") or name in FABRICS
        return "[a fabric](machines.md#fabrics)" if is_fabric else f"mapping ({name})"
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        texts = [type_text(choice) for choice in choices if choice.get("type") != "null"]
        return ", or ".join(dict.fromkeys(texts))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("examples"):
        return "such as " + ", ".join(f"`{value}`" for value in schema["examples"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {type_text(schema.get('items', {}))}"
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "object":
        return "mapping"
    return kind + limits_text(schema)


def limits_text(schema: Mapping[str, Any]) -> str:
    """The least and the greatest value of a number."""
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "more than",
        "maximum": "at most",
        "exclusiveMaximum": "less than",
    }
    limits = [f"{word} {schema[key]}" for key, word in words.items() if key in schema]
    return f" ({', '.join(limits)})" if limits else ""


# Columns of results.csv: from the fields of Row.


def columns() -> str:
    """The columns of results.csv with their types and meanings."""
    from netsim.results.row import COLUMNS, Row

    kinds = {field.name: type_of_column(field.type) for field in fields(Row)}
    meanings = {row["column"]: row["meaning"] for row in column_meanings()}
    rows = [(f"`{name}`", kinds[name], meanings[name]) for name in COLUMNS]
    return COLUMNS_HEAD + table(("column", "type", "meaning"), rows)


COLUMNS_HEAD = """\
# Columns of results.csv

One line is one size of one cell. Times are in microseconds (`_us`), bandwidths in 10⁹ bytes a
second (`_GBps`), sizes in bytes. An empty cell means that the column does not apply. Behind these
columns follows one column `axis:KEY` for each key that the sweep changes. New columns are added at
the end; programs should read columns by name.

"""


def type_of_column(annotation: object) -> str:
    """The type of a column in a word."""
    text = str(annotation)
    words = {"int": "integer", "float": "number", "str": "text"}
    return next(word for name, word in words.items() if name in text)


def column_meanings() -> list[dict[str, str]]:
    """The meaning of every column, from the table beside this file."""
    with Path(__file__).with_name("columns.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


# The command line: from the options that the verbs declare.


def command_line() -> str:
    """Every verb with its arguments and options."""
    from netsim.cli import VERBS, verb_command

    text = COMMAND_LINE_HEAD
    text += table(("verb", "what it does"), [(f"[`{v}`](#{v})", t) for v, t in VERBS.items()])
    for verb in VERBS:
        command = verb_command(verb)
        text += f"\n## {verb}\n\n{one_line(command.help)}\n\n"
        parts = getattr(command, "commands", None)
        if parts is None:
            text += option_table(f"netsim {verb}", command)
            continue
        for name, part in parts.items():
            text += f"### {verb} {name}\n\n{one_line(part.help)}\n\n"
            text += option_table(f"netsim {verb} {name}", part) + "\n"
    return text


COMMAND_LINE_HEAD = """\
# Command line

`netsim VERB --help` prints the same in a terminal. Results go to standard output, notes and
warnings to standard error. The exit code is 0 on success, 1 where a comparison fails or a cell has
no result, 2 for wrong input, 3 for a simulation that cannot finish, and 130 after an interrupt.

A command that takes longer than two seconds shows its progress on standard error, if that is a
terminal; `-q` hides it. `netsim --install-completion` lets the shell complete verbs and options.

"""


def one_line(text: str | None) -> str:
    """A help text on one line."""
    return " ".join((text or "").split())


def option_table(name: str, command: Any) -> str:
    """How a verb is called, and its arguments and options."""
    rows = []
    usage = [name]
    for parameter in command.params:
        metavar = parameter.metavar or ""
        if parameter.param_type_name == "argument":
            usage.append(metavar or parameter.name.upper())
            shown = usage[-1]
        else:
            value = value_text(parameter)
            shown = ", ".join(parameter.opts) + (f" {value}" if value else "")
        if parameter.name != "help":
            rows.append((f"`{shown}`", one_line(parameter.help), option_default(parameter)))
    text = f"```\n{' '.join(usage)} [OPTIONS]\n```\n\n"
    return text + table(("argument or option", "meaning", "default"), rows)


def value_text(parameter: Any) -> str:
    """What an option takes: its metavariable, its choices, or nothing for a flag."""
    if parameter.is_flag:
        return ""
    annotation = parameter.type_descriptor.annotation
    choices = get_args(annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return ", ".join(choices)
    return parameter.metavar or annotation.__name__.upper()


def option_default(parameter: Any) -> str:
    """The default of an option, or that it is required."""
    if parameter.required:
        return "required"
    default = parameter.default
    if default in (None, False, "", ()) or callable(default):
        return ""
    return f"`{default}`"


# Machines and fabrics.


def machines() -> str:
    """The machines that come with netsim, and the kinds of fabric with their parameters."""
    from netsim.topology.config import ClusterConfig
    from netsim.topology.load import load_machine

    rows = []
    for path in sorted((ROOT / "topologies").glob("*.yaml")):
        machine = load_machine(path)
        rows.append((f"`{path.stem}`", *machine_figures(machine), machine.purpose))
    text = MACHINES_HEAD
    text += table(("machine", "GPUs", "GPU", "NICs", "what it is for"), rows)
    text += "\n## Fabrics\n\n" + FABRICS_HEAD
    definitions = ClusterConfig.model_json_schema(by_alias=True)["$defs"]
    fabrics = [
        schema for schema in definitions.values() if "transport" in schema.get("properties", {})
    ]
    fabrics = [schema for schema in fabrics if "kind" in schema["properties"]]
    shared = set.intersection(*(set(schema["properties"]) for schema in fabrics)) - {"kind"}
    text += "\n### Keys of all kinds\n\n" + key_table(only(fabrics[0], shared))
    for schema in fabrics:
        kind = schema["properties"]["kind"]
        names = kind.get("enum") or [kind["const"]]
        text += f"\n### {', '.join(names)}\n\n"
        text += "".join(drawing_of(f"fabric-{name}") for name in names)
        text += key_table(only(schema, set(schema["properties"]) - shared))
    text += "\n## Drawings of machines\n\n" + DRAWINGS_HEAD
    for name, *_ in rows:
        text += f"\n### {name.strip('`')}\n\n" + drawing_of(name.strip("`"))
    return text.rstrip() + "\n"


def drawing_of(name: str) -> str:
    """A drawing of the reference; the browser loads it when it comes into view."""
    title = name.removeprefix("fabric-")
    return f"![Drawing of {title}](drawings/{name}.svg){{ loading=lazy }}\n\n"


MACHINES_HEAD = """\
# Machines and fabrics

`netsim topo list` prints these machines, `netsim topo show NAME` one of them with its rates, and
`netsim topo plot NAME` draws it. Every one is a file in `topologies/`; a file of yours with the
same name wins.

"""

DRAWINGS_HEAD = """\
One host of each machine: GPUs, NVLinks or other links between them, PCIe, CPUs and NICs. The
width of a line is its bandwidth.
"""

FABRICS_HEAD = """\
A fabric joins the hosts of a cluster. `--fabric KIND` of `expect` and `cluster.fabric` of a
scenario name its kind; the keys below are those of `cluster.fabric`.
[Topologies](../topologies.md) explains them. The drawings show small clusters; `netsim topo
plot` draws yours.
"""


def machine_figures(machine: Any) -> tuple[str, str, str]:
    """GPUs, GPU model and NICs of a machine."""
    nics = machine.nics
    rate = f"{nics.count} × {nics.rate * 8 / 1e9:.3g} Gb/s" if nics else "none"
    return str(machine.gpu.count), machine.gpu.model, rate


# Python API: mkdocstrings reads the docstrings when the site is built.


def python_api() -> str:
    """A page that names every public object, for mkdocstrings."""
    import netsim

    text = API_HEAD
    for name in sorted(set(netsim.__all__) - {"__version__"}):
        value = getattr(netsim, name)
        module = getattr(value, "__module__", "")
        if inspect.isclass(value) or inspect.isfunction(value):
            text += f"\n::: {module}.{name}\n"
    return text


API_HEAD = """\
# Python API

The public names of the package, with the text that their docstrings have. [Python by
example](../api.md) and the [tutorial](../tutorials/python.md) show how they are used together.
"""
