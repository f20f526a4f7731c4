"""Imports point downwards, at the top of modules, and layer 0 is fast to import."""

import ast
from pathlib import Path

import pytest

import netsim

ROOT = Path(netsim.__file__).parent

# What each part of the package may import: parts of lower layers, and its own.
LAYERS = [
    {
        "version",
        "constants",
        "errors",
        "lazy",
        "kept",
        "spelled",
        "interrupts",
        "files",
        "arrays",
        "values",
        "units",
        "presets",
        "schedule",
        "yamlio",
    },
    {"topology", "collectives"},
    {"nccl", "workloads", "program", "costs"},
    {"engines", "metrics", "trace", "explain", "periodic", "recurring", "relay"},
    {
        "scenario",
        "budget",
        "built",
        "validated",
        "departures",
        "communicators",
        "expect",
        "looped",
        "textbook",
        "lockstep",
        "relayed",
        "rings",
        "shown",
        "prepared",
        "recalled",
        "back_to_back",
        "timing",
        "training",
        "answers",
        "simulate",
        "sweep",
        "runs",
        "tune",
        "explained",
        "measured",
        "results",
    },
    {"plots", "report", "cli", "__main__"},
]
LAYER = {part: number for number, parts in enumerate(LAYERS) for part in parts}

# Within one layer, `a` may import `b` only if listed here: the order of the layer itself.
SAME_LAYER: dict[str, set[str]] = {
    "presets": {"errors", "values"},
    "constants": {"values"},
    "units": {"errors", "values"},
    "files": {"errors"},
    "yamlio": {"errors", "units", "presets", "values"},
    "schedule": {"arrays", "errors", "units", "values"},
    "nccl": {"program"},
    "trace": {"metrics"},
    "explain": {"metrics", "engines"},
    "recurring": {"periodic"},
    "timing": {"results", "looped", "back_to_back"},
    "relayed": {"back_to_back", "timing"},
    "textbook": {"relayed"},
    "lockstep": {"back_to_back", "looped", "textbook", "timing"},
    "built": {"scenario", "expect", "communicators"},
    "prepared": {
        "scenario",
        "budget",
        "built",
        "communicators",
        "expect",
        "looped",
        "relayed",
        "rings",
        "textbook",
    },
    "shown": {"prepared", "budget"},
    "recalled": {"prepared", "timing"},
    "departures": {"scenario", "validated", "expect", "prepared"},
    "simulate": {
        "departures",
        "scenario",
        "validated",
        "expect",
        "lockstep",
        "looped",
        "relayed",
        "rings",
        "textbook",
        "shown",
        "prepared",
        "recalled",
        "timing",
        "results",
    },
    "rings": {"budget", "looped", "timing"},
    "training": {"scenario", "expect", "looped", "results", "rings", "timing"},
    "answers": {"scenario", "prepared", "simulate", "training", "results", "timing"},
    "sweep": {"answers", "measured", "scenario", "prepared", "timing", "results", "training"},
    "tune": {"expect", "prepared", "simulate", "results"},
    "runs": {"answers", "scenario", "simulate", "results"},
    "measured": {
        "scenario",
        "validated",
        "expect",
        "simulate",
        "prepared",
        "runs",
        "timing",
        "results",
    },
    "explained": {"simulate", "shown"},
    "report": {"plots"},
    "cli": {"plots", "report"},
    "__main__": {"cli"},
}

# The places that may import inside functions or by name: lazy start-up (DESIGN), each for a reason.
LAZY = {"__init__.py", "cli/__init__.py", "engines/__init__.py", "topology/graph.py", "__main__.py"}

TABLES = {"constants.py"}  # one entry after the other: longer than what has to be followed

MODULES = sorted(
    p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*.py") if "_data" not in p.parts
)


def part_of(path: str) -> str:
    return path.split("/", maxsplit=1)[0].removesuffix(".py")


def imported(tree: ast.AST) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(name, node.lineno) for name in names if name.startswith("netsim")]
        elif isinstance(node, ast.Import):
            found += [(a.name, node.lineno) for a in node.names if a.name.split(".")[0] == "netsim"]
    return found


@pytest.mark.parametrize("module", [m for m in MODULES if m != "__init__.py"])
def test_imports_point_downwards(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text())
    here = part_of(module)
    assert here in LAYER, f"{here} belongs to no layer: add it to LAYERS"
    for name, line in imported(tree):
        other = name.split(".")[1] if "." in name else ""
        allowed = (
            other in {here, "lazy"}
            or LAYER[other] < LAYER[here]
            or other in SAME_LAYER.get(here, set())
        )
        assert allowed, f"{module}:{line} imports {name}, which is not below {here}"


@pytest.mark.parametrize("module", [m for m in MODULES if m not in LAZY])
def test_imports_stand_at_the_top(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text())
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = imported(function)
            assert not inside, f"{module}:{inside[0][1]} imports {inside[0][0]} inside a function"


def test_every_module_says_what_it_is() -> None:
    for module in MODULES:
        assert ast.get_docstring(ast.parse((ROOT / module).read_text())), module


def test_files_and_functions_stay_small() -> None:
    lengths = {m: len((ROOT / m).read_text().splitlines()) for m in MODULES}
    long = {m: n for m, n in lengths.items() if n > (900 if m in TABLES else 300)}
    assert not long
    assert sorted(lengths.values())[len(lengths) // 2] <= 160
