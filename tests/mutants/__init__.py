"""Mutants: one small change in the code each, and whether the tests notice.

    python -m tests.mutants                                # 200 of them; an hour on two cores
    python -m tests.mutants --count 20 --seed 7 --packages nccl,timing --jobs 2
    python -m tests.mutants --only nccl/split.py:81        # all mutants of a line
    python -m tests.mutants --seconds 20                   # a third of the time: more survive

Mutants are drawn with a seed from all places of the package where a comparison, an operator, a
number, `and`, `or`, `not`, `min`, `max`, `any` or `all` can be another; by what they are called, so
that a draw stays the same where other lines change and a longer one begins with it. Each is tried
in a copy of the repository by the tests that run its line, the quickest first, until one fails
(where no test does, by those of its statement, of its function, or of what mentions the name that
it defines); then by those questions of `tests.figures` and those golden texts that run any line of
its file, by other tests that do, since what others have asked before is recalled where coverage is
measured, and in the end by slow tests of its package, as many as there is time for. Which these are
is found once, by running the quick tests, the figures and the golden texts (`--all`: all tests; or
`--tests`) under coverage, and kept in `.mutants/` until it is deleted; compiled code has the tests
of its package.
Seconds are of processor time, so that who else works decides neither which tests there is time for
nor whether one hangs.
`tests/data/mutants.yaml` names the survivors that are known, each with the argument why it changes
nothing that anybody can see (and `line`, where it holds for one line of several): their share is
told apart, and nine of ten of the others must be killed.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from compileall import compile_dir
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, pairwise
from math import ceil
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import Queue
from xml.etree import ElementTree

import pytest
import yaml

from tests.core.marked import function_of, marked_with

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".mutants"
KNOWN = ROOT / "tests" / "data" / "mutants.yaml"
SLOW = ("slow", "full")  # markers of tests that take long
LEFT_OUT = ("plots/", "report/", "cli/")  # texts and pictures
# Of these every case is a test of its own.
FIGURES = ("tests/core/test_figures.py::", "tests/golden/test_golden.py::")
ENDED = (0, 1, 5)  # exit codes of pytest: all passed, some failed, there are none
QUICK = "NETSIM_MUTANTS_QUICK"  # in the environment: slow tests are not measured
COMPILED = ("engines/compiled/", "tests/engines")
MOST_SECONDS = 60.0  # of tests for a mutant
MOST_SECONDS_MORE = 120.0  # of slow tests that were not measured, for one that survives these
SLOWER = 4  # times as long as usual, from which a test is taken for one that hangs (`WAITED` times
# as long by the clock, for those that only wait),
LEAST, COMPILING = 60.0, 600.0  # but for so many seconds at least; compiled code is compiled first
WAITED = 8
COPIED = (
    "netsim",
    "tests",
    "topologies",
    "scenarios",
    "docs",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
)
OPERATORS: Mapping[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum",
         "maximum": "minimum"}  # fmt: skip


@dataclass(frozen=True, order=True)
class Mutant:
    """A change: the text from one place of a file (characters) to another becomes another one."""

    path: str
    line: int
    begin: int
    end: int
    old: str
    new: str
    function: str = ""

    @property
    def name(self) -> str:
        """What stays the same where lines move."""
        return f"{self.path} {self.function}: {self.old} -> {self.new}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.old} -> {self.new}"

    def applied(self, text: str) -> str:
        """The file with the change."""
        assert text[self.begin : self.end] == self.old
        return text[: self.begin] + self.new + text[self.end :]


# **** Places ****


def mutants_of(path: str, text: str) -> list[Mutant]:
    """All mutants of a file."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = [line.encode() for line in text.splitlines()]

    def at(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1][:column].decode())

    def span(node: ast.expr) -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)

    found: list[Mutant] = []

    def between(left: ast.expr, right: ast.expr, kind: type, inside: str) -> None:
        old, new = OPERATORS.get(kind, ("", ""))
        begin, end = span(left)[1], span(right)[0]
        where = text.find(old, begin, end) if old else -1
        if where >= 0:
            line = text.count("\n", 0, where) + 1
            found.append(Mutant(path, line, where, where + len(old), old, new, inside))

    for node, inside in _nodes(ast.parse(text)):
        if isinstance(node, ast.Compare):
            for (left, right), op in zip(
                pairwise([node.left, *node.comparators]), node.ops, strict=True
            ):
                between(left, right, type(op), inside)
        elif isinstance(node, ast.BinOp):
            between(node.left, node.right, type(node.op), inside)
        elif isinstance(node, ast.BoolOp):
            for left, right in pairwise(node.values):
                between(left, right, type(node.op), inside)
        elif changed := _changed(node):
            begin, end = span(node)
            old = text[begin:end]
            found.append(Mutant(path, node.lineno, begin, end, old, changed(old), inside))
    return sorted(found)


def _changed(node: ast.AST):  # type: ignore[no-untyped-def]  # a function of the text, or None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return lambda old: f"({old.removeprefix('not')})"
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in CALLS:
        return lambda old: CALLS[old]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return lambda _: repr(node.value + 1 if node.value < 16 else node.value // 2)
    if isinstance(node, ast.Constant) and type(node.value) is float:
        return lambda _: repr(node.value * 1.4 or 0.01)
    return None


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Expressions with the names of what they stand in; no annotations."""

    def walk(node: ast.AST, inside: str) -> Iterator[tuple[ast.expr, str]]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or (name == "args" and _is_rest(node, child)):
                    continue
                if isinstance(child, ast.expr):
                    yield child, inside
                named = isinstance(child, ast.FunctionDef | ast.ClassDef)
                yield from walk(child, f"{inside}.{child.name}".strip(".") if named else inside)

    return walk(tree, "")


def _is_rest(call: ast.AST, argument: ast.AST) -> bool:
    """Whether it is the -1 of `reshape`, for which NumPy takes any number below 0."""
    function = call.func if isinstance(call, ast.Call) else None
    shapes = isinstance(function, ast.Attribute) and function.attr == "reshape"
    return shapes and isinstance(argument, ast.UnaryOp)


def every_mutant(packages: Sequence[str]) -> list[Mutant]:
    """All mutants of some packages; of none: of all but texts and pictures."""
    base = ROOT / "netsim"
    found = []
    for file in sorted(base.rglob("*.py")):
        path = file.relative_to(base).as_posix()
        if path.startswith(tuple(f"{one}/" for one in packages) if packages else LEFT_OUT) == bool(
            packages
        ):
            found += mutants_of(path, file.read_text(encoding="utf-8"))
    return found


def drawn_from(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Some of the mutants, drawn by their names; of equal names, by which of them each is."""
    seen, lots = Counter[str](), []
    for one in mutants:
        seen[one.name] += 1
        text = f"{seed} {one.name} {seen[one.name]}"
        lots.append((hashlib.sha256(text.encode()).digest(), one))
    return [one for _, one in sorted(lots)[:count]]


# **** Lines near one ****

Lines = Sequence[tuple[str, int]]


@cache
def _parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / "netsim" / path).read_text(encoding="utf-8"))


@cache
def _mentions() -> Mapping[str, Lines]:
    """Where the package reads a name or an attribute."""
    found: dict[str, list[tuple[str, int]]] = {}
    for file in sorted((ROOT / "netsim").rglob("*.py")):
        path = file.relative_to(ROOT / "netsim").as_posix()
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                name = node.id if isinstance(node, ast.Name) else node.attr
                found.setdefault(name, []).append((path, node.lineno))
    return found


def around(path: str, line: int) -> Iterator[Lines]:
    """The lines of its statement; of its function; then those that mention what it defines."""
    inside = [
        node
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    local = any(isinstance(node, ast.FunctionDef) for node in inside)
    for node in sorted(inside, key=lambda node: node.lineno, reverse=True):
        body, names = getattr(node, "body", None), [getattr(node, "name", "")]
        if not body:
            yield [(path, number) for number in range(node.lineno, (node.end_lineno or 0) + 1)]
            stored = (one for one in ast.walk(node) if isinstance(one, ast.Name) and not local)
            names = [one.id for one in stored if isinstance(one.ctx, ast.Store)]
        elif isinstance(node, ast.FunctionDef):
            yield [(path, number) for number in range(body[0].lineno, (node.end_lineno or 0) + 1)]
        yield [place for name in names for place in _mentions().get(name, ())]


# **** Tests ****


@dataclass(frozen=True)
class Covered:
    """The tests that run each line (by file), and the seconds that each takes."""

    tests: Mapping[str, Mapping[str, Sequence[str]]]
    seconds: Mapping[str, float]

    def chosen(self, mutant: Mutant, most: float = MOST_SECONDS) -> list[str]:
        """The tests of a line, the quickest first, as many as there is time for."""
        of_file = self.tests.get(mutant.path, {})
        every, names = set(chain(*of_file.values())), self._reaching(mutant)
        if mutant.path.startswith(COMPILED[0]):
            names |= {name for name in self.seconds if name.startswith(COMPILED[1])}
        pinned = {name for name in every | names if name.startswith(FIGURES)}
        first = self._quickest(names - pinned, most)
        left = most - sum(self.seconds[name] for name in first)
        others = self._quickest(every - names - pinned, left) if left > 0 else []
        return [*first, *self._quickest(pinned, most), *others]

    def _reaching(self, mutant: Mutant) -> set[str]:
        """The tests of its line. Lines of modules, of classes and of what is kept from test to test
        run before any test, or in one: those then of its statement, of its function, or of whatever
        mentions the name that it defines."""
        for lines in chain([[(mutant.path, mutant.line)]], around(mutant.path, mutant.line)):
            found = (self.tests.get(path, {}).get(str(line), ()) for path, line in lines)
            if names := set(chain.from_iterable(found)):
                return names
        return set()

    def _quickest(self, names: Collection[str], most: float) -> list[str]:
        found, spent = [], 0.0
        for name in sorted(set(names) & set(self.seconds), key=lambda n: (self.seconds[n], n)):
            spent += self.seconds[name]
            if spent > most and found:
                break
            found.append(name)
        return found


def unit_of(nodeid: str) -> str:
    """What is run for a mutant as one: a function with its cases, or a question of the figures."""
    return nodeid if nodeid.startswith(FIGURES) else function_of(nodeid)


RC = """\
[run]
source = netsim
data_file = {data}
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests but the figures, where that is wanted."""
    if os.environ.get(QUICK):
        left_out = {name for name in marked_with(SLOW) if not name.startswith(FIGURES)}
        out = [item for item in items if function_of(item.nodeid) in left_out]
        items[:] = [item for item in items if function_of(item.nodeid) not in left_out]
        config.hook.pytest_deselected(items=out)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note which test runs the lines from now on (this file is a plugin where that is measured)."""
    from coverage import Coverage

    running = Coverage.current()
    if running is not None:
        running.switch_context(unit_of(item.nodeid))


class Clock:
    """Processor time of this process and of those that it has started, part by part. Tests may put
    another clock in the place of the system's, so that this one has its own."""

    def __init__(self, times: Callable[[], Sequence[float]] = os.times) -> None:
        self._times, self._before = times, 0.0

    def part(self) -> float:
        """Seconds since the last part ended."""
        before, self._before = self._before, sum(self._times()[:4])
        return self._before - before


CLOCK = Clock()


def pytest_runtest_logstart() -> None:
    """Note when a test begins."""
    CLOCK.part()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():  # type: ignore[no-untyped-def]  # pytest sends what it made
    """Report processor time in the place of seconds."""
    made = yield
    made.get_result().duration = CLOCK.part()


def measure(tests: Sequence[str], jobs: int = 1, *, quick: bool = False) -> None:
    """Run tests under coverage, some at a time, and keep which lines each of them runs."""
    folders = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py")}
    asked_for = list(tests) or sorted(folders, key=lambda name: len([*Path(ROOT, name).iterdir()]))
    parts = list(filter(None, (asked_for[number::jobs] for number in range(jobs))))
    found, lines, seconds = [], dict[str, dict[str, set[str]]](), dict[str, float]()
    for number, part in enumerate(parts):
        folder = KEPT / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        found.append((folder, _measured(part, folder, quick)))
    for folder, running in found:
        if running.wait() not in ENDED:
            raise SystemExit("the tests that are measured have come to no end: see above")
        for path, told in _lines(folder / "coverage").items():
            for line, names in told.items():
                lines.setdefault(path, {}).setdefault(line, set()).update(names)
        seconds |= _seconds(folder / "junit.xml")
    told = {
        path: {line: sorted(names) for line, names in some.items()} for path, some in lines.items()
    }
    kept = {"tests": told, "seconds": seconds}
    (KEPT / "covered.json").write_text(json.dumps(kept), encoding="utf-8")


def _measured(tests: Sequence[str], folder: Path, quick: bool) -> subprocess.Popen[bytes]:
    rc = folder / "coveragerc"
    rc.write_text(RC.format(data=folder / "coverage"), encoding="utf-8")
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={rc}", "-m", "pytest", "-q",
               *_quiet(), "-p", "tests.mutants", f"--junit-xml={folder / 'junit.xml'}",
               "-o", "junit_family=xunit1", *tests]  # fmt: skip
    here = _environment(ROOT) | ({QUICK: "1"} if quick else {})
    return subprocess.Popen(command, cwd=ROOT, env=here)


def _lines(data_file: Path) -> dict[str, dict[str, list[str]]]:
    """The tests that run each line, by file, as coverage has noted them."""
    from coverage import CoverageData  # only where it is measured

    data = CoverageData(basename=str(data_file))
    data.read()
    found: dict[str, dict[str, list[str]]] = {}
    for file in data.measured_files():
        path = Path(file).relative_to(ROOT / "netsim").as_posix()
        told = data.contexts_by_lineno(file)
        found[path] = {str(line): sorted(filter(None, names)) for line, names in told.items()}
    return found


def _seconds(junit: Path) -> dict[str, float]:
    """What each test took of processor time, but for those that failed as it is."""
    found, failed = Counter[str](), set[str]()
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        name = unit_of(f"{case.get('file')}::{case.get('name')}")
        found[name] += float(case.get("time") or 0.0)
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
    return {name: seconds for name, seconds in found.items() if name not in failed}


def covered() -> Covered:
    """What was measured, of tests that are still there: pytest refuses to run any beside others."""
    kept = json.loads((KEPT / "covered.json").read_text(encoding="utf-8"))
    there = {name: seconds for name, seconds in kept["seconds"].items() if _is_there(name)}
    return Covered(kept["tests"], there)


def _is_there(test: str) -> bool:
    file, _, name = function_of(test).partition("::")
    return f"def {name.rpartition('::')[2]}(" in _text(ROOT / file)


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _quiet() -> list[str]:
    return ["-p", "no:cacheprovider", "-o", "addopts=", "-p", "no:xdist"]


def _environment(root: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(root),
        "MPLBACKEND": "Agg",
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # mutants may be made within a second


# **** Trials ****


@dataclass(frozen=True)
class Trial:
    """What became of a mutant: the test that failed; nothing where it survived."""

    mutant: Mutant
    tests: int
    killed_by: str = ""


def copy_of(root: Path, to: Path) -> Path:
    """A copy of the repository in which mutants are made."""
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
            # By what files hold: two mutants of one file may be as old and as long as each other.
            compile_dir(to / name, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        elif source.is_file():
            shutil.copy(source, to / name)
    return to


def tried(mutant: Mutant, tests: Sequence[str], seconds: float, root: Path) -> Trial:
    """Try a mutant in a copy of the repository, which is as before in the end."""
    if not tests:
        return Trial(mutant, 0)
    file = root / "netsim" / mutant.path
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.applied(text), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", *_quiet(), *tests]
    try:
        with subprocess.Popen(
            command,
            cwd=root,
            env=_environment(root),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as done:
            resource.prlimit(done.pid, resource.RLIMIT_CPU, (ceil(seconds), -1))
            try:
                said, _ = done.communicate(timeout=WAITED * seconds)
            except subprocess.TimeoutExpired:
                done.kill()
                return Trial(mutant, len(tests), "time")
    finally:
        file.write_text(text, encoding="utf-8")
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    by = failed[0].split()[1] if failed else f"exit code {done.returncode}"
    by = "time" if done.returncode == -signal.SIGXCPU else by
    return Trial(mutant, len(tests), by if done.returncode else "")


def tried_on(
    mutant: Mutant, before: Trial, known: Covered, root: Path, most: float = MOST_SECONDS_MORE
) -> Trial:
    """Try a survivor by slow tests of its package, for some time; these are not measured, so that
    one that fails must pass without the mutant."""
    found, tests = before, unmeasured(mutant, known) if most else []
    while tests:
        last = tried(mutant, tests, most, root)
        found = replace(before, tests=before.tests + len(tests))
        if not last.killed_by or last.killed_by == "time":
            return found
        test, same = function_of(last.killed_by), replace(mutant, new=mutant.old)
        if test in tests and not tried(same, [test], most, root).killed_by:
            return replace(found, killed_by=last.killed_by)
        tests = tests[tests.index(test) + 1 :] if test in tests else []
    return found


def unmeasured(mutant: Mutant, known: Covered) -> list[str]:
    """Slow tests of its package that were not measured, those first whose file has its name."""
    package, words = mutant.path.partition("/")[0], set(re.findall(r"[a-z]+", mutant.path))

    def unlike(test: str) -> tuple[int, str]:
        return -len(words & set(re.findall(r"[a-z]+", test.partition("::")[0]))), test

    folder = f"tests/{package}/"
    left = (
        name for name in marked_with(SLOW) if name.startswith(folder) and name not in known.seconds
    )
    return sorted(left, key=unlike)


def trials(
    mutants: Iterable[Mutant], known: Covered, jobs: int, seconds: float = MOST_SECONDS
) -> Iterator[Trial]:
    """Try mutants, some at a time, each in a copy of its own."""
    more = seconds * MOST_SECONDS_MORE / MOST_SECONDS
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        copies: Queue[Path] = Queue()
        for number in range(jobs):
            copies.put(copy_of(ROOT, Path(folder) / str(number)))

        def one(mutant: Mutant) -> Trial:
            tests, copy = known.chosen(mutant, seconds), copies.get()
            try:
                usual = sum(known.seconds[name] for name in tests)
                least = COMPILING if mutant.path.startswith(COMPILED[0]) else LEAST
                found = tried(mutant, tests, least + SLOWER * usual, copy)
                return found if found.killed_by else tried_on(mutant, found, known, copy, more)
            finally:
                copies.put(copy)

        yield from pool.map(one, mutants)


def known_survivors(path: Path = KNOWN) -> dict[tuple[str, str], str]:
    """The arguments why survivors change nothing, by name and line ("" where any of the name)."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    return {(entry["mutant"], entry.get("line", "")): entry["why"] for entry in entries}


def argument(mutant: Mutant, known: Mapping[tuple[str, str], str]) -> str:
    """Why a survivor changes nothing, or ""."""
    lines = (ROOT / "netsim" / mutant.path).read_text(encoding="utf-8").splitlines()
    here = lines[mutant.line - 1].strip()
    return next(
        (known[mutant.name, line] for line in (here, "") if (mutant.name, line) in known), ""
    )


def report(killed: int, same: int, drawn: int) -> str:
    """What became of a draw, the killed and those that change nothing apart."""
    both, counted = killed + same, max(1, drawn - same)
    shares = (
        f"{both / max(1, drawn):.0%} of all; {killed / counted:.0%} of those that change anything"
    )
    return f"{killed} of {drawn} killed, {same} change nothing for a stated reason: {shares}"


def main() -> int:
    """Try what was asked for; 1 where fewer than nine of ten were killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", default="")
    parser.add_argument("--only", default="", help="PATH:LINE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", nargs="*", default=(), help="measure these only")
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="of tests a mutant")
    parser.add_argument("--all", action="store_true", help="measure slow tests, too")
    given = parser.parse_args()
    if given.tests or not (KEPT / "covered.json").is_file():
        measure(given.tests, given.jobs, quick=not given.all and not given.tests)
    known, every = covered(), every_mutant(list(filter(None, given.packages.split(","))))
    if given.only:
        path, _, line = given.only.partition(":")
        drawn = [one for one in every if one.path == path and str(one.line) == line]
    else:
        reached = [one for one in every if not given.tests or known.chosen(one)]
        drawn = drawn_from(reached, given.count, given.seed)
    survivors, killed, same = known_survivors(), 0, 0
    for number, trial in enumerate(trials(drawn, known, given.jobs, given.seconds), 1):
        why = "" if trial.killed_by else argument(trial.mutant, survivors)
        killed, same = killed + bool(trial.killed_by), same + bool(why)
        told = (
            f"killed by {trial.killed_by}" if trial.killed_by else f"survived {trial.tests} tests"
        )
        known_as = f" (known: {why})" if why else ""
        print(f"{number}/{len(drawn)} {trial.mutant}: {told}{known_as}", flush=True)
    print(report(killed, same, len(drawn)))
    return int(killed < 0.9 * (len(drawn) - same))
