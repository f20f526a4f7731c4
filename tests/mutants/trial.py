"""Try a mutant: make it in a copy of the repository, and run tests there until one fails."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

import yaml

from tests.mutants.draw import ROOT, Mutant

LISTED = ROOT / "tests" / "data" / "mutants_to_kill.yaml"
SECONDS = 600  # of the tests of a mutant; one that takes longer hangs, and is killed by that
TESTS_OF_DRAWN = 8  # files of tests that a drawn mutant is tried by
COPIED = (
    "netsim",
    "tests",
    "topologies",
    "scenarios",
    "docs",
    "reports/gallery",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
)


@dataclass(frozen=True)
class Listed:
    """A mutant that the tests must kill: a text of a file, which is there once, becomes another."""

    name: str
    file: str  # below netsim/
    old: str
    new: str
    tests: tuple[str, ...]  # files or functions of tests, of which one fails
    why: str  # what is wrong with the mutant

    def applied(self, text: str) -> str:
        """Return the text of the file with the fault."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: its text is {count} times in {self.file}, expected 1")
        return text.replace(self.old, self.new)


def listed_mutants(path: Path = LISTED) -> list[Listed]:
    """Return the mutants of the file, in its order."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [Listed(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def copy_of(root: Path, to: Path) -> Path:
    """Return a copy of the repository in which mutants are made."""
    for name in COPIED:
        source = root / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, to / name, ignore=ignore, dirs_exist_ok=True)
            # By hash: two mutants of one file may have the same size and second.
            compile_dir(to / name, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        elif source.is_file():
            shutil.copy(source, to / name)
    return to


def try_mutant(
    mutant: Mutant | Listed, tests: Sequence[str], copy: Path, seconds: float = SECONDS
) -> str:
    """Return the test that fails with the mutant, "time" if they hang, or "" if it survives.

    The copy is as before in the end.
    """
    file = copy / "netsim" / (mutant.path if isinstance(mutant, Mutant) else mutant.file)
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.applied(text), encoding="utf-8")
    try:
        return first_failure(tests, copy, seconds)
    finally:
        file.write_text(text, encoding="utf-8")


def first_failure(tests: Sequence[str], root: Path, seconds: float = SECONDS) -> str:
    """Return the first test that fails, "time" if they hang, or "" if all pass."""
    options = ["-x", "-q", "--tb=no", "-n0", "-p", "no:cacheprovider"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "MPLBACKEND": "Agg",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "time"
    if not ended.returncode:
        return ""
    lines = ended.stdout.splitlines()
    failures = [line.split()[1] for line in lines if line.startswith(("FAILED", "ERROR"))]
    return failures[0] if failures else f"exit code {ended.returncode}"


def chosen_tests(mutant: Mutant) -> list[str]:
    """Return the files of tests that a drawn mutant is tried by: those first that have the name of
    its file, import its module or name its function, then others of its package."""
    path = Path(mutant.path)
    module = "netsim." + path.with_suffix("").as_posix().replace("/", ".")
    function = mutant.function.rpartition(".")[2].lstrip("_")
    ranked = []
    for file in sorted((ROOT / "tests").glob("*/test_*.py")):
        text = file.read_text(encoding="utf-8")
        points = 2 * (file.parent.name == path.parts[0])
        points += 2 * (module in text)
        points += 2 * (file.stem == f"test_{path.stem}")
        points += bool(function) and bool(re.search(rf"\b{function}\b", text))
        if points > 1:
            ranked.append((-points, len(text), file.relative_to(ROOT).as_posix()))
    return [name for _, _, name in sorted(ranked)][:TESTS_OF_DRAWN]
