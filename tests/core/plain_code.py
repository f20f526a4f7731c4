"""Find code that breaks the rules of plain code and plain language; each rule is one function.

    python -m tests.core.plain_code    # the entries of tests/data/not_yet.txt as the files are

`tests/core/test_plain_code.py` and `tests/core/test_language.py` enforce the rules for all files
but those that `tests/data/not_yet.txt` lists. `python -m tests.house` prints the counts of what is
not enforced.
"""

import ast
import io
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"
CONDITIONALS = "nested conditional expressions"
FORMAT_SKIPS = "fmt: skip on more than a table"
GETATTR = "getattr with a default"
CLASS_NAMES = "class names of another package"
IDENTIFIERS = "banned identifiers"
PHRASES = "banned phrases"
RULES = (CONDITIONALS, FORMAT_SKIPS, GETATTR, CLASS_NAMES, IDENTIFIERS, PHRASES)

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOGIC = (ast.IfExp, ast.Lambda, *COMPREHENSIONS)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Violation:
    """A rule that a file breaks: in which line, and by what."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        """The violation as a line of output."""
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@cache
def language() -> Mapping[str, object]:
    """The contents of `tests/data/language.toml`."""
    return tomllib.loads((DATA / "language.toml").read_text())


@cache
def foreign_attributes() -> Mapping[str, str]:
    """The reasons by `path attribute` for which `getattr` may have a default."""
    reasons = language()["getattr"]
    assert isinstance(reasons, dict)
    return reasons


def not_yet() -> set[str]:
    """The entries of `tests/data/not_yet.txt`: `path: rule`, one for each file and rule."""
    lines = (DATA / "not_yet.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


# Code


def nested_conditionals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines of conditional expressions that have another one inside, with their text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            count = sum(isinstance(child, ast.IfExp) for child in ast.walk(node))
            if count > 1:
                yield node.lineno, ast.unparse(node)


def _may_nest(text: str) -> bool:
    """Whether a file has two conditional expressions, by the words `else` without a colon."""
    return len(re.findall(r"\belse\b(?!\s*:)", text)) > 1


def wrong_format_skips(text: str) -> Iterator[tuple[int, str]]:
    """The lines of `# fmt: skip` that end another statement than the assignment of a table.

    A table is a collection, or a call with one as an argument, without conditional expressions,
    comprehensions and functions inside.
    """
    if "fmt: skip" not in text:
        return
    comments = [number for number, comment in _comments(text) if "fmt: skip" in comment]
    tree = ast.parse(text)
    tables = {
        statement.end_lineno
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and _is_table(statement.value)
    }
    lines = text.splitlines()
    for number in comments:
        if number not in tables:
            yield number, lines[number - 1].strip()


def _is_table(value: ast.expr | None) -> bool:
    if value is None or any(isinstance(node, LOGIC) for node in ast.walk(value)):
        return False
    if isinstance(value, ast.Call):
        arguments = [*value.args, *(keyword.value for keyword in value.keywords)]
        return any(_is_table(argument) for argument in arguments)
    return isinstance(value, ast.Dict | ast.List | ast.Tuple | ast.Set)


def getattr_defaults(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines of `getattr(value, "name", default)`, with the name."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "getattr"
            and len(node.args) == 3
        ):
            name = node.args[1]
            yield node.lineno, name.value if isinstance(name, ast.Constant) else ast.unparse(name)


def public_classes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines of the public classes of a module, with their names."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.lineno, node.name


def shared_class_names(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, int, str]]:
    """The path, line and name of every public class whose name another package has as well."""
    packages: dict[str, set[str]] = {}
    for path, tree in trees.items():
        for _, name in public_classes(tree):
            packages.setdefault(name, set()).add(_package(path))
    for path, tree in trees.items():
        for line, name in public_classes(tree):
            if len(packages[name]) > 1:
                yield path, line, name


def _package(path: str) -> str:
    """The package of a file: `topology` of `netsim/topology/fabrics/kinds.py`."""
    return path.split("/")[1]


# Language


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that a file gives to functions, classes, parameters, attributes and variables.

    The loop variables of comprehensions are no such names: they end with the line.
    """
    targets = {
        id(name)
        for node in ast.walk(tree)
        if isinstance(node, ast.comprehension)
        for name in ast.walk(node.target)
    }
    for node in ast.walk(tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.alias) and node.asname is not None:
            yield node.lineno, node.asname
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if id(node) not in targets:
                yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def banned_identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The banned names that a file gives, with or without underscores before and after."""
    section = language()["identifiers"]
    assert isinstance(section, dict)
    banned = set(section["banned"])
    return (pair for pair in identifiers(tree) if pair[1].strip("_") in banned)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The comments, docstrings and messages of a file, with the line where each begins."""
    yield from _comments(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def banned_phrases(text: str) -> Iterator[tuple[int, str]]:
    """The banned phrases in the prose of a file, outside of the contexts where they are right."""
    if not _any_phrase().search(" ".join(text.split()).lower()):
        return  # most files have none, and need not be parsed
    for line, passage in prose(text):
        words = " ".join(passage.split()).lower()
        for match in _any_phrase().finditer(words):
            contexts = [context for context in _contexts() if match[0] in context]
            if not any(_covers(context, words, match) for context in contexts):
                around = words[max(0, match.start() - 30) : match.end() + 30]
                yield line, f"'{match[0]}' in '{around}'"


def _covers(context: str, words: str, match: re.Match[str]) -> bool:
    """Whether a context lies around a match in a text."""
    reach = len(context)
    return context in words[max(0, match.start() - reach) : match.end() + reach]


@cache
def _any_phrase() -> re.Pattern[str]:
    """A pattern of all banned phrases, in lower case."""
    phrases = language()["phrases"]
    assert isinstance(phrases, dict)
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b")


@cache
def _contexts() -> list[str]:
    """The contexts in which some phrase is right."""
    phrases = language()["phrases"]
    assert isinstance(phrases, dict)
    return [context for contexts in phrases.values() for context in contexts]


# All of it


def violations(texts: Mapping[str, str]) -> list[Violation]:
    """What breaks a rule in files, given as text by path; language is that of `netsim/` only."""
    trees = {path: ast.parse(text) for path, text in texts.items()}
    ours = {path: tree for path, tree in trees.items() if path.startswith("netsim/")}
    violated = []
    for path, text in texts.items():
        places = {
            CONDITIONALS: nested_conditionals(trees[path]) if _may_nest(text) else (),
            FORMAT_SKIPS: wrong_format_skips(text),
        }
        if path in ours:
            places[GETATTR] = (
                (line, name)
                for line, name in (getattr_defaults(trees[path]) if "getattr(" in text else ())
                if f"{path} {name}" not in foreign_attributes()
            )
            places[IDENTIFIERS] = banned_identifiers(trees[path])
            places[PHRASES] = banned_phrases(text)
        for rule, lines in places.items():
            violated += [Violation(path, line, rule, what_is) for line, what_is in lines]
    shared = shared_class_names(ours)
    violated += [Violation(path, line, CLASS_NAMES, name) for path, line, name in shared]
    return violated


@cache
def repository_texts() -> dict[str, str]:
    """The text of every file of netsim and of its tests, by its path in the repository."""
    root = DATA.parent.parent
    files = [*sorted((root / "netsim").rglob("*.py")), *sorted((root / "tests").rglob("*.py"))]
    return {
        file.relative_to(root).as_posix(): file.read_text()
        for file in files
        if "_data" not in file.parts
    }


@cache
def repository_violations() -> list[Violation]:
    """Everything in the repository that breaks a rule."""
    return violations(repository_texts())


def assert_list_is_exact(rule: str) -> None:
    """Fail if a file that is not on the list breaks a rule, or one that is on it does not."""
    violated = [violation for violation in repository_violations() if violation.rule == rule]
    listed = {entry for entry in not_yet() if entry.endswith(f": {rule}")}
    new = [str(v) for v in violated if f"{v.path}: {rule}" not in listed]
    assert not new, "\n".join(["mend these:", *new])
    obeying = sorted(listed - {f"{violation.path}: {rule}" for violation in violated})
    assert not obeying, "\n".join(["take these off tests/data/not_yet.txt:", *obeying])


# Printed, not enforced


def tokens_per_line(text: str) -> tuple[int, int]:
    """The number of tokens of code, and of lines that have any."""
    without = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENDMARKER,
    }  # fmt: skip
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    starts = [token.start[0] for token in tokens if token.type not in without]
    return len(starts), len(set(starts))


def counts(text: str) -> Counter[str]:
    """What a reviewer looks at: nested comprehensions, tuple assignments of unrelated values,
    `# fmt: skip`, and returns of three and more values."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, COMPREHENSIONS):
            children = (child for child in ast.walk(node) if child is not node)
            found["nested comprehensions"] += any(isinstance(c, COMPREHENSIONS) for c in children)
        elif isinstance(node, ast.Assign):
            pair = isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
            found["tuple assignments of unrelated values"] += pair
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            found["returns of three and more values"] += len(node.value.elts) >= 3
    found["fmt: skip"] = sum("fmt: skip" in comment for _, comment in _comments(text))
    return found


if __name__ == "__main__":
    print(*sorted({f"{each.path}: {each.rule}" for each in repository_violations()}), sep="\n")
