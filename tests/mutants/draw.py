"""Mutants by the syntax of the code: where a comparison, an operator, a number, `and`, `or`, `not`,
`min`, `max`, `any` or `all` can be another one."""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
EQUIVALENT = ROOT / "tests" / "data" / "mutants.yaml"
LEFT_OUT = ("plots/", "report/", "cli/")  # texts and pictures: drawn only if they are named
OPERATORS: Mapping[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
CALLS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
}


@dataclass(frozen=True, order=True)
class Mutant:
    """A fault: the characters from `begin` to `end` of a file of the package become others."""

    path: str  # below netsim/
    line: int
    begin: int
    end: int
    old: str
    new: str
    function: str = ""

    @property
    def name(self) -> str:
        """The file, the function and the change: what stays the same if lines move."""
        return f"{self.path} {self.function}: {self.old} -> {self.new}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.old} -> {self.new}"

    def applied(self, text: str) -> str:
        """Return the text of the file with the fault."""
        assert text[self.begin : self.end] == self.old
        return text[: self.begin] + self.new + text[self.end :]


class _Positions:
    """The places of expressions in a text, in characters; `ast` gives lines and bytes."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)
        self._begins = [0]
        for line in self._lines:
            self._begins.append(self._begins[-1] + len(line))

    def begin(self, node: ast.expr) -> int:
        return self._character(node.lineno, node.col_offset)

    def end(self, node: ast.expr) -> int:
        return self._character(node.end_lineno or 0, node.end_col_offset or 0)

    def _character(self, line: int, byte: int) -> int:
        before = self._lines[line - 1].encode()[:byte] if line <= len(self._lines) else b""
        return self._begins[line - 1] + len(before.decode())


def mutants_of(path: str, text: str) -> list[Mutant]:
    """Return all mutants of a file."""
    positions = _Positions(text)
    mutants = []
    for node, function in _expressions(ast.parse(text), ""):
        for begin, end, new in _changes(node, text, positions):
            line = text.count("\n", 0, begin) + 1
            mutants.append(Mutant(path, line, begin, end, text[begin:end], new, function))
    return sorted(mutants)


def _expressions(node: ast.AST, function: str) -> Iterator[tuple[ast.expr, str]]:
    """Yield the expressions below a node, each with the functions and classes that it stands in."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_rest_of_shape(node, child):
                continue
            if isinstance(child, ast.expr):
                yield child, function
            is_named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            inside = f"{function}.{child.name}".strip(".") if is_named else function
            yield from _expressions(child, inside)


def _is_rest_of_shape(call: ast.AST, argument: ast.AST) -> bool:
    """Whether it is the -1 of `reshape`, for which NumPy takes any number below 0."""
    if not isinstance(call, ast.Call) or not isinstance(argument, ast.UnaryOp):
        return False
    return isinstance(call.func, ast.Attribute) and call.func.attr == "reshape"


def _changes(node: ast.expr, text: str, positions: _Positions) -> Iterator[tuple[int, int, str]]:
    """Yield the changes of an expression: begin and end in characters, and the new text."""
    for left, right, kind in _operators(node):
        old, new = OPERATORS.get(kind, ("", ""))
        begin = text.find(old, positions.end(left), positions.begin(right)) if old else -1
        if begin >= 0:
            yield begin, begin + len(old), new
    begin = positions.begin(node)
    end = positions.end(node)
    new_text = _replacement(node, text[begin:end])
    if new_text:
        yield begin, end, new_text


def _operators(node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr, type]]:
    """Yield the operators of an expression with what stands left and right of each."""
    if isinstance(node, ast.Compare):
        operands = pairwise([node.left, *node.comparators])
        for (left, right), operator in zip(operands, node.ops, strict=True):
            yield left, right, type(operator)
    elif isinstance(node, ast.BinOp):
        yield node.left, node.right, type(node.op)
    elif isinstance(node, ast.BoolOp):
        for left, right in pairwise(node.values):
            yield left, right, type(node.op)


def _replacement(node: ast.expr, old: str) -> str:
    """Return what a negation, a call or a number becomes; "" for any other expression."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"({old.removeprefix('not')})"
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return CALLS.get(node.id, "")
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return repr(node.value + 1 if node.value < 16 else node.value // 2)
    if isinstance(node, ast.Constant) and type(node.value) is float:
        return repr(node.value * 1.4 or 0.01)
    return ""


def every_mutant(packages: Sequence[str]) -> list[Mutant]:
    """Return all mutants of some packages; of none: of all but those in `LEFT_OUT`."""
    base = ROOT / "netsim"
    mutants = []
    for file in sorted(base.rglob("*.py")):
        path = file.relative_to(base).as_posix()
        if packages:
            is_drawn = path.startswith(tuple(f"{package}/" for package in packages))
        else:
            is_drawn = not path.startswith(LEFT_OUT)
        if is_drawn:
            mutants += mutants_of(path, file.read_text(encoding="utf-8"))
    return mutants


def drawn_from(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return some mutants, drawn by their names, so that a draw stays the same if other code
    changes, and a longer draw begins with a shorter one."""
    numbers = Counter[str]()  # of mutants with the same name
    lots = []
    for mutant in mutants:
        numbers[mutant.name] += 1
        text = f"{seed} {mutant.name} {numbers[mutant.name]}"
        lots.append((hashlib.sha256(text.encode()).digest(), mutant))
    return [mutant for _, mutant in sorted(lots)[:count]]


# **** Mutants that change nothing ****


def known_survivors(path: Path = EQUIVALENT) -> dict[tuple[str, str], str]:
    """Return the arguments why mutants change nothing, by name and line ("": any of the name)."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    return {(entry["mutant"], entry.get("line", "")): entry["why"] for entry in entries}


def argument(mutant: Mutant, arguments: Mapping[tuple[str, str], str]) -> str:
    """Return why a mutant changes nothing, or ""."""
    lines = (ROOT / "netsim" / mutant.path).read_text(encoding="utf-8").splitlines()
    line = lines[mutant.line - 1].strip()
    of_name = arguments.get((mutant.name, ""), "")
    return arguments.get((mutant.name, line), of_name)
