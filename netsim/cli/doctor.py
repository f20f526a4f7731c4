"""`netsim doctor`: prints versions, extras and folders, to find out why something fails.

It also prints the table of constants with the origin of each, and the invariants.
"""

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from pathlib import Path

import typer

from netsim.base.constants import TABLE, Constant
from netsim.base.files import preset_folder, preset_names
from netsim.base.startup import MODEL_VERSION, __version__
from netsim.cli.output import print_lines
from netsim.extent.invariants import INVARIANTS

HEADER = ("constant", "value", "unit", "belongs to", "origin")
UNITS = {"s": (1e6, "us"), "bytes/s": (1e-9, "GB/s"), "bytes": (1, "B"), "1": (1, "")}
EXTRAS = {
    "dask": ("dask", "distributed", "dask_jobqueue"),
    "optimize": ("optuna",),
    "parquet": ("pyarrow",),
    "infragraph": ("infragraph",),
    "interop": ("hta", "TraceLens", "duckdb"),
}


def print_diagnosis(*, constants: bool = False, invariants: bool = False) -> None:
    """Print versions, extras and folders of netsim; or its constants, or its invariants, if asked
    for.
    """
    if constants or invariants:
        print_lines(constant_lines() if constants else ())
        for invariant in INVARIANTS if invariants else ():
            typer.echo(f"{invariant.name:<12}{invariant.statement} ({invariant.checked})")
        return
    typer.echo(f"netsim {__version__} (model {MODEL_VERSION}), {Path(__file__).parents[1]}")
    typer.echo(f"Python {platform.python_version()}, {sys.executable}")
    typer.echo(f"{platform.platform()}, {os.cpu_count()} cores")
    needed = [invariant for invariant in requires("netsim") or [] if "extra ==" not in invariant]
    for name in sorted(re.split(r"[<>=!~;\[ ]", invariant)[0] for invariant in needed):
        typer.echo(f"  {name:<12} {_version(name)}")
    offered = metadata("netsim").get_all("Provides-Extra") or []
    for extra, modules in ((name, EXTRAS[name]) for name in offered if name in EXTRAS):
        missing = [module for module in modules if find_spec(module) is None]
        state = "found" if not missing else f"not installed (pip install 'netsim[{extra}]')"
        typer.echo(f"extra {extra:<9} {state}")
    for kind in ("topologies", "scenarios"):
        typer.echo(f"{kind:<12} {len(preset_names(kind))} presets in {preset_folder(kind)}")


def constant_lines() -> Iterator[str]:
    """Yield a table of all constants with value, unit, owner and origin; then a line with their
    number.
    """
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


def _cells(constant: Constant) -> tuple[str, ...]:
    """The cells of a constant's line in the table: id, value, usual unit (GB/s for bytes/s), owner,
    origin.
    """
    scale, unit = UNITS[constant.unit]
    return constant.id, f"{constant.value * scale:.6g}", unit, constant.belongs, _origin(constant)


def _origin(constant: Constant) -> str:
    """Where the value of a constant is from: given by a source, or fitted to runs."""
    known_from = ""
    if constant.interval is not None:
        scale, unit = UNITS[constant.unit]
        low, high = (f"{end * scale:.3g}" for end in constant.interval)
        known_from = f"; known from one system, between {low} and {high} {unit}".rstrip()
    if constant.fitted is None:
        return f"given: {constant.source}{known_from}"
    name = constant.fitted.estimator.rpartition(":")[2]
    runs = ", ".join(constant.fitted.runs)
    return f"fitted to {runs} ({name}): {constant.fitted.evidence}{known_from}"


def _version(name: str) -> str:
    """The version of an installed package, or `missing`."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
