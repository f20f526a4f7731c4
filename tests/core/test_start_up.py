"""A command imports what it needs and no more: modules are counted, for time depends on who else
works.
"""

import ast
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import netsim
from netsim.lazy import Promised, promised

ROOT = Path(netsim.__file__).parent
PACKAGES = sorted(p.parent.relative_to(ROOT.parent) for p in ROOT.rglob("__init__.py"))

# Each takes longer to import than a small run takes; those that need one import it when they do.
HEAVY = ("networkx", "pandas", "matplotlib", "scipy", "numba", "llvmlite", "jinja2", "numpy.ma")
if shutil.which("ld") is None or sys.platform != "linux":  # then LLVM loads code that is kept
    HEAVY = tuple(name for name in HEAVY if name != "llvmlite")
# What a run of a textbook algorithm on a plain graph has no use for.
UNUSED = {
    "netsim.training.prepare",
    "netsim.workloads",
    "netsim.measured.overlay",
    "netsim.nccl.settings",
    "netsim.nccl.schedules",
    "netsim.expect.job",
    "netsim.topology.fabrics",
    "netsim.topology.cluster",
    "netsim.scenario.training",
    "netsim.sweep.cache",
    "netsim.sweep.effects",
    "netsim.plots",
    "netsim.trace",
    "netsim.costs.bill",
    "netsim.collectives.races",
    "netsim.collectives.binomial",
    "netsim.departures",
    "netsim.relayed",
    "netsim.topology.machine",
    "netsim.topology.hosts",
    "netsim.topology.faults",
    *HEAVY,
    "rich",
    "sqlite3",
    "asyncio",
    "multiprocessing",
    "xml",
    "ssl",
}
RING = """cluster: {graph: {kind: switch, gpus: 256, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1GiB]}
outputs: [csv]
"""


def loaded(code: str, folder: Path | None = None) -> set[str]:
    """The modules that a program of its own has imported when it ends."""
    told = f"import atexit, sys\natexit.register(lambda: print('', *sys.modules))\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def command(folder: Path, *arguments: str) -> set[str]:
    """The modules that a command of netsim's imports."""
    return loaded(f"from netsim.cli import main\nmain({list(arguments)!r})", folder)


def ours(modules: set[str]) -> list[str]:
    return sorted(name for name in modules if name.partition(".")[0] == "netsim")


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("netsim", ("numpy", "pydantic", "typer", *HEAVY)),
        ("netsim.cli", ("numpy", "pydantic", *HEAVY)),
        ("netsim.collectives.algorithms, netsim.program, netsim.topology", ("pydantic", *HEAVY)),
        ("netsim.cli.run", (*HEAVY, "rich", "sqlite3", "netsim.nccl.settings")),
        ("netsim.cli.expect", (*HEAVY, "xml", "netsim.nccl.settings", "netsim.training.prepare")),
        ("netsim.cli.check", (*HEAVY, "xml", "netsim.nccl.settings")),
    ],
)
def test_importing_a_part_is_light(module: str, without: tuple[str, ...]) -> None:
    found = loaded(f"import {module}")
    assert not found & set(without)
    assert module.split(",", maxsplit=1)[0] in found


def test_a_ring_on_a_graph_imports_nothing_of_nccl_training_or_sweeps(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text(RING)
    asked = ("run", "ring.yaml", "-q", "--format", "csv", "-o", "out")
    found = command(tmp_path, *asked)
    if "numba" in found:  # the first that uses machine code compiles it
        found = command(tmp_path, *asked)
    assert (tmp_path / "out/results.csv").is_file()
    assert not found & UNUSED
    assert "netsim.collectives.ring" in found
    assert len(ours(found)) <= 142, ours(found)


def test_expect_imports_nccl_but_no_training_or_textbook(tmp_path: Path) -> None:
    asked = ("expect", "dgx-h100", "all_reduce", "--sizes", "8:8:2")
    found = command(tmp_path, *asked)
    if "numba" in found:
        found = command(tmp_path, *asked)
    assert "netsim.nccl.schedules" in found
    assert not found & {*HEAVY, "rich", "sqlite3", "netsim.tune"}
    assert not found & {"netsim.workloads", "netsim.training.prepare", "netsim.collectives.ring"}
    assert len(ours(found)) <= 262, ours(found)


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
def test_mistakes_are_told_before_nccl_is_imported(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "ring.yaml").write_text(RING.replace("ring", "rin"))
    found = command(tmp_path, *arguments)
    assert not found & {"netsim.nccl.settings", "netsim.training.prepare", "llvmlite", "xml"}
    assert len(ours(found)) <= 140, ours(found)


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
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**clean, "PYTHONPATH": str(ROOT.parent), **given},
    )  # fmt: skip
    threads = given.get("OPENBLAS_NUM_THREADS", "1")
    assert done.stdout.splitlines()[-1] == f"{threads} __all__"


@pytest.mark.parametrize("package", [".".join(p.parts) for p in PACKAGES])
def test_what_a_package_promises_is_there(package: str) -> None:
    tree = ast.parse((ROOT.parent / package.replace(".", "/") / "__init__.py").read_text())
    here = import_module(package)
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "promised"):
            continue
        for word in ast.walk(ast.Tuple(elts=call.args[1:], ctx=ast.Load())):
            if isinstance(word, ast.Constant):
                assert import_module(f"{package}.{word.value}")
        for keyword in call.keywords:
            assert isinstance(keyword.value, ast.Constant)
            for name in str(keyword.value.value).split():
                assert not isinstance(getattr(here, name), ModuleType), f"{package}.{name}"


def test_a_promise_is_kept_when_something_is_asked_of_it() -> None:
    given = promised("netsim.schedule", "combine", rows="Pieces")
    combine, pieces = given("combine"), given("Pieces")
    assert isinstance(combine, Promised)
    assert combine.combine is import_module("netsim.schedule.combine").combine
    assert pieces is import_module("netsim.schedule.rows").Pieces
    with pytest.raises(AttributeError, match=r"'netsim.schedule' has no attribute 'nothing'"):
        given("nothing")
    with pytest.raises(AttributeError, match="nothing"):
        _ = combine.nothing
