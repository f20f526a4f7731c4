"""`netsim check` and `netsim schema`: validate files, and print the schema of files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import typer

from netsim.base.errors import InputError, NetsimError
from netsim.cli.topo_subject import Subject, TopologyOptions, find_subject, is_foreign
from netsim.cli.topo_text import plural
from netsim.scenario.cells import unused_keys
from netsim.scenario.models import Scenario
from netsim.tasks.answer import checked_cells, find_scenario, load_source, notes_of
from netsim.topology.load import load_machine
from netsim.topology.machine import Machine
from netsim.yamlio.models import Model

OF_CLUSTER = {"cluster", "name"}  # keys of a file that describes a cluster, and nothing to run


def check_file(path: Path, changes: Sequence[str] = ()) -> str:
    """Validate one file of any kind; the text says which kind it is and what it contains.

    `changes` are values of `--set` for a scenario. Raises an InputError that says what is wrong.
    """
    if path.suffix and path.is_file() and is_foreign(path):
        return _described(find_subject(path.as_posix(), TopologyOptions()))
    path = find_scenario(path.as_posix()).path
    source = load_source(path, changes)
    if "cluster" in source.data and set(source.data) <= OF_CLUSTER:
        description = _described(find_subject(path.as_posix(), TopologyOptions()))
        return f"{description} (no workload: for netsim topo, or to complete)"
    if "workload" in source.data or "cluster" in source.data:
        cells = checked_cells(source)
        sizes = sum(len(cell.scenario.workload.size_list()) for cell in cells)
        counted = f"{sizes} size{'s' * (sizes != 1)} in all"
        description = f"a scenario of {len(cells)} cell{'s' * (len(cells) > 1)}, {counted}"
        notes = [*notes_of(cells), *(f"warning: {text}" for text in unused_keys(cells))]
        return "\n".join([description, *notes])
    if "gpu" in source.data and changes:
        raise InputError(f"{path}: --set and --allow-oom are for scenarios, this is a machine")
    if "gpu" in source.data:
        machine = load_machine(path)
        return f"a machine with {machine.gpu.count} GPUs"
    raise InputError(
        f"{path}: neither a scenario (with cluster and workload) nor a machine (with gpu)"
    )


def _described(subject: Subject) -> str:
    """What the file of a subject describes, such as `a cluster of 2 hosts with 16 GPUs`."""
    gpus = plural(len(subject.topology), "GPU")
    if subject.cluster is None:
        return f"a graph with {gpus}"
    return f"a cluster of {plural(subject.hosts, 'host')} with {gpus}"


def check_files(
    files: list[Path], settings: list[str] | None = None, *, allow_oom: bool = False
) -> None:
    """Check every file; print what it contains, or what is wrong. Exits with code 2 if any is
    wrong.
    """
    failed = False
    changes = [*(settings or []), *["workload.allow_oom=true"] * allow_oom]
    for file in files:
        try:
            typer.echo(f"{file}: {check_file(file, changes)}")
        except NetsimError as error:
            failed = True
            typer.echo(str(error), err=True)
    if failed:
        raise typer.Exit(2)


SCHEMAS: dict[str, type[Model]] = {"scenario": Scenario, "machine": Machine}


def print_schema(kind: Literal["scenario", "machine"]) -> None:
    """Print the JSON Schema of scenario or machine files."""
    schema = SCHEMAS[kind].model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    typer.echo(json.dumps(schema, indent=2))
