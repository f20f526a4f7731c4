"""A command imports what it needs and no more: modules are counted, for time depends on who else
works. Of ours only packages are named, so that what lies within one may move.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT, full

# Each takes longer to import than a small run takes; those that need one import it when they do.
HEAVY = ("networkx", "pandas", "matplotlib", "scipy", "numba", "llvmlite", "jinja2", "numpy.ma")
if shutil.which("ld") is None or sys.platform != "linux":  # then numba keeps and loads code
    HEAVY = tuple(name for name in HEAVY if name not in ("llvmlite", "numba"))
# What a run of a textbook algorithm on a plain graph has no use for: others' modules, and packages
# of ours, of which no module is imported.
UNUSED = {*HEAVY, "sqlite3", "asyncio", "multiprocessing", "xml", "ssl"}
UNUSED_PACKAGES = (
    "netsim.training",
    "netsim.workloads",
    "netsim.measured",
    "netsim.plots",
    "netsim.report",
    "netsim.trace",
    "netsim.explain",
)
WORK = {"check": "files"}  # verbs whose work another module does
MOST = {"run": 154, "expect": 154, "mistake": 154}  # modules of ours that are not empty
RING = """cluster: {graph: {kind: switch, gpus: 256, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1GiB]}
outputs: [csv]
"""


def loaded(code: str, folder: Path | None = None) -> set[str]:
    """The modules that a program of its own has imported when it ends."""
    told = f"import atexit, sys\natexit.register(lambda: print('', *sys.modules))\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", told],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def command(folder: Path, *arguments: str) -> set[str]:
    """The modules that a command of netsim's imports, where machine code is there already."""
    code = f"from netsim.cli import main\nmain({list(arguments)!r})"
    found = loaded(code, folder)
    return loaded(code, folder) if "numba" in found else found  # the first that uses it compiles


def of(package: str, modules: set[str]) -> list[str]:
    """The modules of a package, without the package itself and the value that all tasks are."""
    inside = (name for name in modules if name.startswith(f"{package}."))
    return sorted(name for name in inside if name != "netsim.workloads.task")


def home(verb: str) -> str:
    """The module that does the work of a verb."""
    return f"netsim.cli.{WORK.get(verb, verb)}"


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "without"),
    [
        ("import netsim", ("numpy", "pydantic", "typer", *HEAVY)),
        ("import netsim.cli", ("numpy", "pydantic", *HEAVY)),
        ("import netsim.program, netsim.topology", ("pydantic", *HEAVY)),
        ("from netsim import ALGORITHMS", ("pydantic", *HEAVY)),
        (f"import {home('run')}", HEAVY),
        (f"import {home('expect')}", (*HEAVY, "rich.progress", "sqlite3")),
        (f"import {home('check')}", (*HEAVY, "rich.progress", "sqlite3")),
    ],
)
def test_importing_a_part_is_light(code: str, without: tuple[str, ...]) -> None:
    found = loaded(code)
    assert not found & set(without)
    assert of("netsim", found)


@pytest.mark.slow
def test_a_ring_on_a_graph_imports_no_training_plots_or_traces(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text(RING)
    found = command(tmp_path, "run", "ring.yaml", "-q", "--format", "csv", "-o", "out")
    assert (tmp_path / "out/results.csv").is_file()
    assert not found & UNUSED
    assert not [name for package in UNUSED_PACKAGES for name in of(package, found)]
    assert of("netsim.collectives", found)
    ours = sorted(full(found))
    assert len(ours) <= MOST["run"], ours


@pytest.mark.slow
def test_expect_imports_nccl_but_no_training_or_plots(tmp_path: Path) -> None:
    found = command(tmp_path, "expect", "dgx-h100", "all_reduce", "--sizes", "8:8:2")
    assert of("netsim.nccl.schedules", found)
    assert not found & {*HEAVY, "rich", "sqlite3"}
    for package in ("training", "workloads", "plots", "trace", "report", "costs", "sweep"):
        assert not of(f"netsim.{package}", found)
    ours = sorted(full(found))
    assert len(ours) <= MOST["expect"], ours


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("expect", "dgx-h100", "all_reduc"),
        ("expect", "dgx-h10", "all_reduce"),
        ("expect", "dgx-h100", "all_reduce", "--sizes", "8:bananas"),
        ("check", "ring.yaml"),
        ("run", "nowhere.yaml"),
    ],
)
def test_mistakes_are_told_before_training_and_compilers_are_imported(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "ring.yaml").write_text(RING.replace("ring", "rin"))
    found = command(tmp_path, *arguments)
    assert not found & {"llvmlite", "xml"}
    assert not of("netsim.training", found)
    ours = sorted(full(found))
    assert len(ours) <= MOST["mistake"], ours


@pytest.mark.parametrize("arguments", [("--version",), ("--help",)])
def test_help_imports_no_arrays(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    found = command(tmp_path, *arguments)
    assert not found & {"numpy", "pydantic", "yaml"}


@pytest.mark.parametrize("given", [{}, {"OPENBLAS_NUM_THREADS": "3"}])
def test_libraries_start_no_threads_unless_they_are_asked_for(given: dict[str, str]) -> None:
    """Those for matrices would wait busily; plugins would be looked for in all packages."""
    told = "print(os.environ['OPENBLAS_NUM_THREADS'], os.environ['PYDANTIC_DISABLE_PLUGINS'])"
    code = (
        f"import atexit, os, sys; atexit.register(lambda: {told});"
        "sys.argv = ['netsim', '--version'];"
        "from netsim.__main__ import main; main()"
    )
    clean = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**clean, "PYTHONPATH": str(ROOT.parent), **given},
    )
    threads = given.get("OPENBLAS_NUM_THREADS", "1")
    assert done.stdout.splitlines()[-1] == f"{threads} __all__"
