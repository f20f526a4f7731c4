"""`netsim check`, `schema`, `merge` and `doctor`: what files are, and whether they are sound."""

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import typer

from netsim.base.constants import TABLE, Constant
from netsim.base.errors import InputError, NetsimError
from netsim.base.files import is_same_file, preset_folder, preset_names
from netsim.base.startup import MODEL_VERSION, __version__
from netsim.cell.answer import checked_cells, find_scenario, load_source, notes_of
from netsim.cli import print_lines
from netsim.cli.progress import tell
from netsim.cli.topo_subject import Subject, TopologyOptions, find_subject, is_foreign
from netsim.cli.topo_text import plural
from netsim.results.folder import merged_rows, open_folder, rows_in_order
from netsim.results.workspace import check_place, place_of_results, read_manifest
from netsim.scenario.cells import unused_keys
from netsim.scenario.models import Scenario
from netsim.timing.invariants import INVARIANTS
from netsim.topology.load import load_machine
from netsim.topology.machine import Machine
from netsim.yamlio.models import Model


def refuse_output_as_input(output: Path | None, inputs: Iterable[Path]) -> None:
    """Raise an InputError if `output` is one of the files or folders that are read.

    Links count as what they lead to. Devices and pipes (/dev/null, a terminal) may be both, as
    nothing of them is overwritten."""
    if output is None or not (output.is_file() or output.is_dir()):
        return
    for path in inputs:
        if is_same_file(output, path):
            raise InputError(
                f"{output}: is read as {path}, and would be overwritten",
                hint="name another file to write",
            )


OF_CLUSTER = {"cluster", "name"}  # keys of a file that describes a cluster, and nothing to run


def check_file(path: Path, changes: Sequence[str] = ()) -> str:
    """Validate one file as whatever it is; the text says what was found."""
    if path.suffix and path.is_file() and is_foreign(path):
        return _described(find_subject(path.as_posix(), TopologyOptions()))
    path = find_scenario(path.as_posix()).path
    source = load_source(path, changes)
    if "cluster" in source.data and set(source.data) <= OF_CLUSTER:
        found = _described(find_subject(path.as_posix(), TopologyOptions()))
        return f"{found} (no workload: for netsim topo, or to complete)"
    if "workload" in source.data or "cluster" in source.data:
        cells = checked_cells(source)
        sizes = sum(len(cell.scenario.workload.size_list()) for cell in cells)
        counted = f"{sizes} size{'s' * (sizes != 1)} in all"
        found = f"a scenario of {len(cells)} cell{'s' * (len(cells) > 1)}, {counted}"
        notes = [*notes_of(cells), *(f"warning: {text}" for text in unused_keys(cells))]
        return "\n".join([found, *notes])
    if "gpu" in source.data and changes:
        raise InputError(f"{path}: --set and --allow-oom are for scenarios, this is a machine")
    if "gpu" in source.data:
        machine = load_machine(path)
        return f"a machine with {machine.gpu.count} GPUs"
    raise InputError(
        f"{path}: neither a scenario (with cluster and workload) nor a machine (with gpu)"
    )


def _described(subject: Subject) -> str:
    gpus = plural(len(subject.topology), "GPU")
    if subject.cluster is None:
        return f"a graph with {gpus}"
    return f"a cluster of {plural(subject.hosts, 'host')} with {gpus}"


def check(files: list[Path], settings: list[str] | None = None, allow_oom: bool = False) -> None:
    """Check every file; print what is wrong with each, or that it is fine."""
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


def schema(kind: Literal["scenario", "machine"] = "scenario") -> None:
    """Print the JSON Schema of KIND files."""
    schema = SCHEMAS[kind].model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    typer.echo(json.dumps(schema, indent=2))


# Keys of a part's manifest that do not hold for the whole.
OF_A_PART = ("shard", "scenario", "verb", "files", "added")


def merge(parts: list[Path], output: Path | None = None) -> None:
    """Put together the results of the parts of a sweep."""
    first = read_manifest(place_of_results(parts[0]))
    for key in ("points", "axes", "versions"):
        if key not in first:
            raise InputError(f"{parts[0]}: was written by an older netsim", hint="run it again")
    scenario = str(first["scenario"])
    folder = output or Path("reports") / scenario
    if any(is_same_file(part, folder) for part in parts):
        raise InputError(f"{folder}: is one of the parts", hint="choose another with -o")
    check_place(folder)
    manifest = {key: value for key, value in first.items() if key not in OF_A_PART}
    manifest["shard"] = None
    whole = {**manifest, "scenario": scenario}
    merged = merged_rows(parts, whole, tell)  # all is checked before anything is written
    rows = rows_in_order(merged.finished, whole)
    with open_folder(
        folder, scenario, resume=False, about=manifest, verb="merge", tell=tell
    ) as results:
        for place, row in merged.finished.items():
            results.record(place, row, merged.timings[place])
        path = results.write_results(rows, whole["axes"])
    failed = sum(row.status != "ok" for row in rows)
    note = f", {failed} of them failed" if failed else ""
    typer.echo(f"{path}: {len(rows)} rows of {len(parts)} parts{note}")


# `netsim doctor`: versions, extras and folders, for whoever has to find out why not; and the
# constants, for whoever asks where a figure is from.


HEADER = ("constant", "value", "unit", "belongs to", "origin")
UNITS = {"s": (1e6, "us"), "bytes/s": (1e-9, "GB/s"), "bytes": (1, "B"), "1": (1, "")}
EXTRAS = {
    "dask": ("dask", "distributed", "dask_jobqueue"),
    "optimize": ("optuna",),
    "parquet": ("pyarrow",),
    "infragraph": ("infragraph",),
}


def doctor(constants: bool = False, invariants: bool = False) -> None:
    """Print what netsim runs on, and what it finds; or its constants, or its invariants."""
    if constants or invariants:
        print_lines(constant_lines() if constants else ())
        for one in INVARIANTS if invariants else ():
            typer.echo(f"{one.name:<12}{one.statement} ({one.asked})")
        return
    typer.echo(f"netsim {__version__} (model {MODEL_VERSION}), {Path(__file__).parents[1]}")
    typer.echo(f"Python {platform.python_version()}, {sys.executable}")
    typer.echo(f"{platform.platform()}, {os.cpu_count()} cores")
    needed = [one for one in requires("netsim") or [] if "extra ==" not in one]
    for name in sorted(re.split(r"[<>=!~;\[ ]", one)[0] for one in needed):
        typer.echo(f"  {name:<12} {_version(name)}")
    offered = metadata("netsim").get_all("Provides-Extra") or []
    for extra, modules in ((name, EXTRAS[name]) for name in offered if name in EXTRAS):
        missing = [module for module in modules if find_spec(module) is None]
        state = "found" if not missing else f"not installed (pip install 'netsim[{extra}]')"
        typer.echo(f"extra {extra:<9} {state}")
    for kind in ("topologies", "scenarios"):
        typer.echo(f"{kind:<12} {len(preset_names(kind))} presets in {preset_folder(kind)}")


def constant_lines() -> Iterator[str]:
    """Every constant with its value, what it belongs to and its origin; then how many there are."""
    lines = [HEADER, *map(_cells, TABLE.values())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    for *cells, origin in lines:
        padded = (f"{text:<{width}}" for text, width in zip(cells, widths, strict=True))
        yield "  ".join((*padded, origin))
    fitted = sum(one.fitted is not None for one in TABLE.values())
    assumed = sum(one.assumed for one in TABLE.values())
    yield (
        f"{len(TABLE)} constants: {fitted} fitted, {len(TABLE) - fitted} given, {assumed} of these "
        "assumed or taken over"
    )


def _cells(one: Constant) -> tuple[str, ...]:
    """A constant in the columns of the table, in the unit that people say it in."""
    scale, unit = UNITS[one.unit]
    return one.id, f"{one.value * scale:.6g}", unit, one.belongs, _origin(one)


def _origin(one: Constant) -> str:
    if one.fitted is None:
        return f"given: {one.given}"
    name = one.fitted.estimator.rpartition(":")[2]
    return f"fitted to {', '.join(one.fitted.runs)} ({name}): {one.fitted.evidence}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
