"""`netsim doctor`: versions, extras and folders, for whoever has to find out why not."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from pathlib import Path

import typer

from netsim.presets import preset_folder, preset_names
from netsim.version import MODEL_VERSION, __version__

EXTRAS = {
    "dask": ("dask", "distributed", "dask_jobqueue"),
    "optimize": ("optuna",),
    "parquet": ("pyarrow",),
    "infragraph": ("infragraph",),
}


def command() -> None:
    """Print what netsim runs on, and what it finds."""
    typer.echo(f"netsim {__version__} (model {MODEL_VERSION}), {Path(__file__).parents[1]}")
    typer.echo(f"Python {platform.python_version()}, {sys.executable}")
    typer.echo(f"{platform.platform()}, {os.cpu_count()} cores")
    for name in _required():
        typer.echo(f"  {name:<12} {_version(name)}")
    offered = metadata("netsim").get_all("Provides-Extra") or []
    for extra, modules in ((name, EXTRAS[name]) for name in offered if name in EXTRAS):
        missing = [module for module in modules if find_spec(module) is None]
        state = "found" if not missing else f"not installed (pip install 'netsim[{extra}]')"
        typer.echo(f"extra {extra:<9} {state}")
    for kind in ("topologies", "scenarios"):
        typer.echo(f"{kind:<12} {len(preset_names(kind))} presets in {preset_folder(kind)}")


def _required() -> list[str]:
    """Names of the packages that netsim depends on."""
    found = []
    for requirement in requires("netsim") or []:
        if "extra ==" not in requirement:
            name = requirement
            for mark in "<>=!~;[ ":
                name = name.partition(mark)[0]
            found.append(name)
    return sorted(found)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
