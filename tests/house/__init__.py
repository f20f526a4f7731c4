"""The house counted: how large its rooms are, what imports what, and where a command walks.

    python -m tests.house                                  # files, lines, classes, circles
    python -m tests.house expect dgx-h100 all_reduce       # one command of netsim's, followed

Everything is read from the package as it is. A *file* is a module that is not empty: one that has
code or a docstring. A *package* is what lies directly below `netsim/`: a folder with all its
folders, or a module that lies there by itself.

A command is followed in its main thread (workers and compiled code are not seen). A file is
*entered* by calls of its functions, generators that go on included; what modules do while they are
imported does not count. A call *comes back* if it enters a package P from a function of another
package Q while P is in the stack of calls already, below Q: the chain had left P and enters it once
more. So a function of P that is handed to Q and called there comes back; a return to the caller is
none. Told are the pairs of files that do this (caller, callee), as a reader meets them, and calls.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from types import FrameType

import netsim
from tests.core import plain_code

ROOT = Path(netsim.__file__).parent
INSIDE, NAMED, BEGUN = "inside a function", "by its name", "by the beginning of its name"
SMALL, LONG = 120, 60  # lines of a file that needs a reason, and of a function that is long
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LAZY = ("__init__.py", "cli/__init__.py")  # PEP 562, and the table of verbs


@dataclass(frozen=True)
class File:
    """A module: its path below the package's folder, as `topology/graph.py`, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its text as a tree."""
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        """How long it is."""
        return len(self.text.splitlines())

    @property
    def empty(self) -> bool:
        """Whether it has neither code nor a docstring."""
        return not self.tree.body

    @cached_property
    def package(self) -> str:
        """The folder or loose module that it belongs to."""
        return self.path.partition("/")[0].removesuffix(".py")


@dataclass(frozen=True)
class Import:
    """A file that another imports, in which line, and how if it does not stand at the top."""

    path: str
    line: int
    late: str = ""


Files = Mapping[str, File]


def files_of(root: Path = ROOT) -> dict[str, File]:
    """All modules of a package by path, in order; data that a wheel carries is none."""
    found = (p.relative_to(root) for p in sorted(root.rglob("*.py")))
    return {
        p.as_posix(): File(p.as_posix(), (root / p).read_text())
        for p in found
        if "_data" not in p.parts
    }


def filled(files: Files) -> list[File]:
    """Those that are not empty."""
    return [file for file in files.values() if not file.empty]


def modules_of(files: Files, package: str = "netsim") -> dict[str, str]:
    """The path of every module by its name, as `netsim.topology.graph`."""
    parts = {path: path.removesuffix(".py").removesuffix("__init__").strip("/") for path in files}
    return {".".join([package, *part.split("/")]).rstrip("."): path for path, part in parts.items()}


def full(names: Iterable[str]) -> list[str]:
    """Of the names of imported modules those of ours that are not empty."""
    files = files_of()
    modules = modules_of(files)
    return [name for name in names if name in modules and not files[modules[name]].empty]


def loose(files: Files) -> list[str]:
    """Modules at the top that are neither `__init__` nor `__main__`."""
    top = ("__init__.py", "__main__.py")
    return [path for path in files if "/" not in path and path not in top]


def functions_from(files: Files, lines: int = LONG) -> dict[str, int]:
    """The functions of at least so many lines, as `path:line name`."""
    return {
        f"{path}:{node.lineno} {node.name}": length
        for path, file in files.items()
        for node in ast.walk(file.tree)
        if isinstance(node, FUNCTIONS)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) >= lines
    }


def classes_twice(files: Files) -> dict[tuple[str, str], list[str]]:
    """Public classes whose name a package has more than once: the files, by package and name."""
    homes: dict[tuple[str, str], list[str]] = {}
    for path, file in files.items():
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault((file.package, node.name), []).append(path)
    return {key: paths for key, paths in homes.items() if len(paths) > 1}


def imports_of(file: File, modules: Mapping[str, str]) -> list[Import]:
    """The files that a file imports: at its top, for type checkers, inside functions, and by name:
    a string that is the name of a module, as in `import_module("netsim.topology.graph")` or in a
    table of such names. In `netsim/__init__` and in the table of verbs those are not looked at, and
    nowhere those of a file itself and of its package, where resources lie.
    """
    package = next(iter(modules)).partition(".")[0]
    own = ".".join([package, *file.path.split("/")[:-1]])
    found = []
    for node, inside in _nodes(file.tree):
        late = INSIDE if inside else ""
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file.path}:{node.lineno} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else str(node.module) for name in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            known = file.path in LAZY or node.value in (package, own)
            told = node.value.removesuffix(".")  # a module, or a function of one
            home = told.rpartition(".")[0]
            of_file = not modules.get(home, "__init__.py").endswith("__init__.py")
            names = []
            if not known:
                names = [told if told in modules or not of_file else home]
            late = BEGUN if node.value.endswith(".") else NAMED
        else:
            continue
        found += [Import(modules[name], node.lineno, late) for name in names if name in modules]
    return [one for one in found if one.path != file.path]


def _nodes(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes, and whether they stand inside a function."""
    for child in ast.iter_child_nodes(node):
        yield child, inside
        yield from _nodes(child, inside or isinstance(child, FUNCTIONS))


def late_imports(files: Files, package: str = "netsim") -> list[str]:
    """Imports of ours that do not stand at the top, and how they are made."""
    modules = modules_of(files, package)
    each = ((path, one) for path, file in files.items() for one in imports_of(file, modules))
    late = ((path, one) for path, one in each if one.late and path not in LAZY)
    return [f"{path}:{one.line} imports {one.path} {one.late}" for path, one in late]


def graph_of(files: Files, package: str = "netsim") -> dict[str, set[str]]:
    """Which files each file imports, itself not counted."""
    modules = modules_of(files, package)
    each = ((path, imports_of(file, modules)) for path, file in files.items())
    return {path: {one.path for one in found if one.late != BEGUN} for path, found in each}


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Files that import one another, perhaps by way of others: largest first."""
    import networkx as nx  # what is followed shall not find it imported

    found = map(sorted, nx.strongly_connected_components(nx.DiGraph(graph)))
    return sorted((circle for circle in found if len(circle) > 1), key=lambda c: (-len(c), c))


def floors_of(page: str) -> dict[str, tuple[int, int]]:
    """Floor and place on it of everything that a table `floor | packages | one line` names: a
    folder as `nccl/`, or a file apart from its folder as `results/row`.
    """
    rows = re.search(r"^\|\s*floor\s*\|\s*packages\s*\|.*\n\|[-| :]+\|\n((?:\|.*\n?)+)", page, re.M)
    if rows is None:
        raise ValueError("expected a table with the columns floor, packages and one line")
    found: dict[str, tuple[int, int]] = {}
    for row in rows[1].splitlines():
        _, floor, names, *_ = row.split("|")
        for place, name in enumerate(re.findall(r"`([^`]+)`", names)):
            found[name] = int(floor), place
    return found


def unit_of(path: str, floors: Iterable[str]) -> str:
    """What a table of floors says of a file: the longest name that fits; nothing if none does."""
    fits = (f for f in floors if path == f"{f}.py" or (f.endswith("/") and path.startswith(f)))
    return max(fits, key=len, default="")


def upward_imports(
    files: Files, floors: Mapping[str, tuple[int, int]], package: str = "netsim"
) -> list[str]:
    """Imports that run neither down nor, on their own floor, to the left; and files without a
    floor. What stands at the top of the package may import everything, and nothing imports it.
    """
    modules, found = modules_of(files, package), []
    units = {path: unit_of(path, floors) for path in files if "/" in path}
    for path, unit in units.items():
        if not unit:
            found.append(f"{path} has no floor")
        for one in imports_of(files[path], modules) if unit else ():
            other = units.get(one.path)
            below = other in floors and floors[other] < floors[unit]
            if not below and (other is None or other not in ("", unit)):
                found.append(f"{path}:{one.line} imports {one.path}")
    return found


class Walk:
    """Follows calls: `sys.setprofile(walk.see)`."""

    def __init__(self, root: Path = ROOT) -> None:
        self.entered: Counter[str] = Counter()  # calls by file
        self.packages: set[str] = set()
        self.back: Counter[tuple[str, str]] = Counter()  # calls that come back, by both files
        self._files = {str(root / path): file for path, file in files_of(root).items()}
        self._stack: list[tuple[int, File, bool]] = []  # frame, file, whether that is imported
        self._open: Counter[str] = Counter()  # packages in the stack

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """What the interpreter tells of every call."""
        if event == "call" and (file := self._files.get(frame.f_code.co_filename)) is not None:
            self._enter(id(frame), file, frame.f_code.co_name == "<module>")
        elif event == "return" and self._stack and self._stack[-1][0] == id(frame):
            _, file, importing = self._stack.pop()
            self._open[file.package] -= not importing

    def _enter(self, frame: int, file: File, importing: bool) -> None:
        caller, below = self._stack[-1][1:] if self._stack else (None, False)
        if not (importing or below):
            self.entered[file.path] += 1
            self.packages.add(file.package)
            if caller is not None and caller.package != file.package and self._open[file.package]:
                self.back[caller.path, file.path] += 1
            self._open[file.package] += 1
        self._stack.append((frame, file, importing or below))


def followed(arguments: Sequence[str]) -> tuple[Walk, list[str]]:
    """A command of netsim's, run here: where it walked, and our modules that it has imported."""
    from netsim.__main__ import main

    walk, sys.argv = Walk(), ["netsim", *arguments]
    sys.setprofile(walk.see)
    with suppress(SystemExit):
        main()
    sys.setprofile(None)
    return walk, sorted(name for name in sys.modules if name.partition(".")[0] == "netsim")


def _tell_walk(arguments: Sequence[str]) -> None:
    walk, names = followed(arguments)
    print(
        f"imported: {len(names)} of our modules, {len(full(names))} of them not empty",
        f"entered: {len(walk.entered)} files in {len(walk.packages)} packages",
        f"came back: {len(walk.back)} pairs of files, {walk.back.total()} calls",
        *(f"{n:>10} {one} -> {other}" for (one, other), n in walk.back.most_common(10)),
        sep="\n",
        file=sys.stderr,
    )


def _tell_house() -> None:
    files = files_of()
    ours = sorted(filled(files), key=lambda file: file.lines)
    lengths = [file.lines for file in ours]
    twice, long, found = classes_twice(files), functions_from(files), circles(graph_of(files))
    print(
        f"files: {len(ours)}, lines: {sum(lengths)}",
        f"median file: {median(lengths):.0f} lines, longest: {lengths[-1]} ({ours[-1].path}), "
        f"under {SMALL} lines: {sum(lines < SMALL for lines in lengths)}",
        f"loose modules at the top: {len(loose(files))}",
        f"imports that do not stand at the top: {len(late_imports(files))}",
        f"functions of {LONG} lines and more: {len(long)}",
        *(f"  {name}, {lines} lines" for name, lines in long.items()),
        f"public class names twice in a package: {len(twice)}",
        *(f"  {name}: {', '.join(paths)}" for (_, name), paths in twice.items()),
        f"circles of files: {len(found)}",
        *(f"  {len(circle)} files: {', '.join(circle)}" for circle in found),
        *plain_code_lines(ours),
        sep="\n",
    )


def plain_code_lines(files: Sequence[File]) -> list[str]:
    """What a reviewer looks at beside the enforced rules, one line for each figure."""
    pairs = [plain_code.tokens_per_line(file.text) for file in files]
    token_count = sum(tokens for tokens, _ in pairs)
    code_lines = sum(lines for _, lines in pairs)
    total: Counter[str] = Counter()
    for file in files:
        total += plain_code.counts(file.text)
    return [
        f"tokens a line of code: {token_count / max(1, code_lines):.1f}",
        *(f"{figure}: {count}" for figure, count in sorted(total.items())),
        f"files and rules that are not obeyed yet: {len(plain_code.not_yet())}",
    ]


def main(arguments: Sequence[str]) -> None:
    """Print the figures of the house, or the walk of a command of netsim's."""
    if arguments:
        _tell_walk(list(arguments))
    else:
        _tell_house()
