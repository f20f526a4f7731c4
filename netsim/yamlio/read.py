"""YAML files with a position for every value: read strictly (YAML 1.2), and written such that they
read the same.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from netsim.base.errors import InputError, ScenarioError, shown
from netsim.base.files import LARGEST_FILE, SUFFIXES, content_of, decoded, table_beside
from netsim.base.values import dataclass

MOST_DIGITS = 40

NULL = re.compile(r"~|null|Null|NULL|")
TRUE = re.compile(r"true|True|TRUE")
FALSE = re.compile(r"false|False|FALSE")
INTEGER = re.compile(r"([-+]?[0-9]+)|0o([0-7]+)|0x([0-9a-fA-F]+)")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
INFINITY = re.compile(r"([-+]?)\.(inf|Inf|INF)")
NOT_A_NUMBER = re.compile(r"\.(nan|NaN|NAN)")

Scalar = str | int | float | bool | None


class WrittenInt(int):
    """An integer that was not written as Python would: 0x1F, 007, +5."""

    text: str


class WrittenFloat(float):
    """A number that was not written as Python would: 2.30, 1e9."""

    text: str


def plain_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar; raise a `ValueError` for a number that no float or
    int can hold.
    """
    if NULL.fullmatch(text):
        return None
    if TRUE.fullmatch(text):
        return True
    if FALSE.fullmatch(text):
        return False
    if match := INTEGER.fullmatch(text):
        return _written_int(text, match)
    if FLOAT.fullmatch(text):
        return _written_float(text)
    if match := INFINITY.fullmatch(text):
        return float(f"{match.group(1)}inf")
    return math.nan if NOT_A_NUMBER.fullmatch(text) else text


def text_of(value: str | float) -> str:
    """Return a text as it is, or a number as it was written."""
    return str(getattr(value, "text", value))


def _written_int(text: str, match: re.Match[str]) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of more than {MOST_DIGITS} digits")
    decimal, octal, hexadecimal = match.groups()
    if decimal:
        digits = decimal
        base = 10
    else:
        digits, base = (octal, 8) if octal else (hexadecimal, 16)
    number = WrittenInt(digits, base)
    number.text = text
    return int(number) if str(int(number)) == text else number


def _written_float(text: str) -> float:
    number = WrittenFloat(text)
    if math.isinf(number):
        raise ValueError(f"a number too large to hold, {text[:MOST_DIGITS]}")
    number.text = text
    return number if repr(float(number)) != text else float(number)


# Errors of the YAML parser in plain words: what is wrong with the YAML, where, and how to mend it.
# PyYAML's own messages speak of tokens and block ends, which users do not know.

INDENTATION = "this line does not fit the indentation of those above it"
SECOND_COLON = "a second ':' in one line; put the value in quotes"
NO_COLON_ABOVE = "this line does not fit the one above it: a wrong indentation, or no ':' there"
AFTER_THE_END = "something follows the end of a value; put the whole value in quotes"


class Refused(yaml.MarkedYAMLError):
    """An error for YAML that is well formed but not accepted by netsim; `problem` is the text to
    print.
    """


def in_plain_words(error: yaml.YAMLError, name: str, text: str) -> ScenarioError:
    """Return the error for a text that is not YAML, at the position where the user should look.
    `name` is the name of the file.
    """
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position].split("\n")
        message = f"the control character U+{error.character:04X} cannot stand in YAML"
        return ScenarioError(message, source=name, line=len(before), column=len(before[-1]) + 1)
    if not isinstance(error, yaml.MarkedYAMLError):
        return ScenarioError("this is not YAML", source=name)
    problem = error.problem or ""
    mark = error.problem_mark
    if isinstance(error, Refused):
        return error_at(problem, name, mark)
    # Each row: part of PyYAML's message, our words for it, and whether the position is where the
    # construct was opened.
    for row in table_beside(__file__, "plain_words.csv"):
        if row["pyyaml"] in problem:
            at_start = error.context_mark if row["at_start"] else None
            return error_at(row["words"], name, at_start or mark)
    before_mark = "" if mark is None else text[: mark.index].rpartition("\n")[2].strip()
    if "mapping values are not allowed" in problem:
        return error_at(SECOND_COLON if ":" in before_mark else NO_COLON_ABOVE, name, mark)
    if "expected <block end>" in problem:
        return error_at(AFTER_THE_END if before_mark else INDENTATION, name, mark)
    return error_at(f"this is not YAML: {problem}", name, mark)


def error_at(message: str, name: str, mark: yaml.Mark | None) -> ScenarioError:
    """Return an error at a mark of the parser, whose lines and columns count from 0."""
    if mark is None:
        return ScenarioError(message, source=name)
    return ScenarioError(message, source=name, line=mark.line + 1, column=mark.column + 1)


# From the text of one YAML file to nodes with positions, and from nodes to plain values.
# Stricter than YAML: one document, a mapping of text keys at the top, no tags, no merge keys, no
# duplicate keys, and aliases only as far as they stay small. Nothing is ever constructed but
# mappings, lists and scalars.

if TYPE_CHECKING or yaml.__with_libyaml__:
    from yaml._yaml import CParser
else:
    CParser = object

DEEPEST = 50
MOST_VALUES = 250_000


class _StrictComposer(Composer):
    """PyYAML's composer, restricted: it refuses tags and too deep nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[attr-defined]
        if getattr(event, "tag", None) is not None:
            problem = "YAML tags ('!') are refused"
            raise Refused(problem=problem, problem_mark=event.start_mark)
        self.depth += 1
        if self.depth > DEEPEST:
            problem = f"more than {DEEPEST} levels of nesting"
            raise Refused(problem=problem, problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Loader(Reader, Scanner, Parser, _StrictComposer, BaseResolver):
    """The parser in Python, whose error messages can be translated to plain words."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)


class _FastLoader(_StrictComposer, CParser, BaseResolver):
    """The parser in C, seven times as fast, which is used for files without errors."""

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        BaseResolver.__init__(self)


def compose(text: str, name: str, *, fast: bool = yaml.__with_libyaml__) -> yaml.Node | None:
    """Return the root node of a YAML text, or None if it has nothing but comments. `name` is the
    name of the file.
    """
    if fast:
        with suppress(yaml.YAMLError, ValueError, OverflowError):
            return _FastLoader(text).get_single_node()
    try:
        return _Loader(text).get_single_node()
    except yaml.YAMLError as error:
        raise in_plain_words(error, name, text) from None
    except (ValueError, OverflowError):  # PyYAML on escapes and versions beyond all bounds
        raise ScenarioError("this is not YAML: a number out of range", source=name) from None


def construct(root: yaml.Node, name: str) -> Any:
    """Return the value of a node as mappings, lists, texts, numbers, booleans and None. `name` is
    the name of the file.
    """
    return _Construction(name).value(root)


class _Construction:
    """Converts the nodes of a file to values in one walk; counts the values that aliases expand to,
    to limit them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.values = 0
        self.open: list[yaml.Node] = []

    def value(self, node: yaml.Node) -> Any:
        self.values += 1
        if self.values > MOST_VALUES:
            message = f"the file unfolds to more than {MOST_VALUES} values; use fewer aliases"
            raise error_at(message, self.name, node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        with self.entered(node):
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node)
            return [self.value(entry) for entry in node.value]

    @contextmanager
    def entered(self, node: yaml.Node) -> Iterator[None]:
        if any(node is outer for outer in self.open):
            raise error_at("an alias '*' inside its own anchor '&'", self.name, node.start_mark)
        if len(self.open) >= DEEPEST:
            message = f"aliases that nest more than {DEEPEST} levels"
            raise error_at(message, self.name, node.start_mark)
        self.open.append(node)
        yield
        self.open.pop()

    def mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node)
            if key in result:
                message = f"duplicate key {shown(key)}, first in line {lines[key]}"
                raise error_at(message, self.name, key_node.start_mark)
            lines[key] = key_node.start_mark.line + 1
            result[key] = self.value(value_node)
        return result

    def key(self, node: yaml.Node) -> str:
        key = self.value(node)
        if key == "<<" and not getattr(node, "style", None):
            message = "merge keys ('<<') are refused; write the keys out"
            raise error_at(message, self.name, node.start_mark)
        if isinstance(key, str):
            return key
        message = f"expected a text as key, got {shown(key)}"
        if not isinstance(key, dict | list):
            message += f" (write '{node.value}' in quotes)"
        raise error_at(message, self.name, node.start_mark)

    def scalar(self, node: yaml.ScalarNode) -> Scalar:
        text: str = node.value
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise error_at("half a surrogate pair is no character", self.name, node.start_mark)
        if node.style:
            return text
        try:
            return plain_scalar(text)
        except ValueError as error:
            raise error_at(str(error), self.name, node.start_mark) from None


# A YAML file that was read: its values, and for each of them the line and column in the file.
# Values that were set elsewhere (`--set`, an axis of a sweep, an option) have the name of their
# origin instead.


KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """Where something was written: a name (of a file or option), and line and column from 1 if
    known.
    """

    name: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True)
class Source:
    """Values of a file with their positions; `origins` names what set the values that are not from
    the file itself.
    """

    name: str
    data: dict[str, Any]
    root: yaml.Node | None = field(default=None, repr=False, compare=False)
    origins: Mapping[KeyPath, str] = field(default_factory=dict)
    aliases: Mapping[str | int, KeyPath] = field(default_factory=dict)  # where a key is written
    text: str = field(default="", repr=False, compare=False)

    def locate(self, path: KeyPath, *, key: bool = False) -> Place:
        """Return the position of the value at `path`, or of its key; if unknown, that of the
        nearest value that contains it.
        """
        path = self._written(path)
        for prefix in sorted(self.origins, key=len, reverse=True):
            if path[: len(prefix)] == prefix:
                return Place(self.origins[prefix])
        node = self.root
        key_node = self.root
        for depth, part in enumerate(path):
            step = _child(node, part)
            if step is None:
                inside = path[: depth + 1]
                origins = (text for at, text in self.origins.items() if at[: depth + 1] == inside)
                origin = next(origins, None)
                return Place(origin) if origin is not None else self._place(key_node)
            key_node, node = step
        return self._place(key_node if key else node)

    def error(
        self,
        path: KeyPath,
        message: str,
        *,
        key: bool = False,
        hint: str = "",
        kind: type[ScenarioError] = ScenarioError,
    ) -> ScenarioError:
        """Return (not raise) an error about the value at `path`, or about its key."""
        path = self._written(path)
        place = self.locate(path, key=key)
        return kind(
            message,
            source=place.name,
            line=place.line,
            column=place.column,
            field=".".join(map(str, path)),
            hint=hint,
        )

    def _written(self, path: KeyPath) -> KeyPath:
        return (*self.aliases.get(path[0], path[:1]), *path[1:]) if path else path

    def _place(self, node: yaml.Node | None) -> Place:
        if node is None:
            return Place(self.name)
        return Place(self.name, node.start_mark.line + 1, node.start_mark.column + 1)


def read_source(path: str | Path) -> Source:
    """Read one YAML file; if it cannot be used, for whatever reason, a `ScenarioError` is
    raised.
    """
    file = Path(path)
    name = file.as_posix()
    content = content_of(file, LARGEST_FILE, near=SUFFIXES)
    if b"\0" in content:
        raise ScenarioError("expected a text file with YAML, got a binary file", source=name)
    return parse_source(decoded(content, name), name)


def parse_source(text: str, name: str) -> Source:
    """Return the values and positions of one YAML text; `name` is the name of the file in
    errors.
    """
    root = compose(text, name)
    data = None if root is None else construct(root, name)
    if root is None or data is None:
        raise ScenarioError("the file is empty", source=name)
    if not isinstance(data, dict):
        message = f"expected 'key: value' lines at the top level, got {shown(data)}"
        hint = "a space is missing after ':'" if isinstance(data, str) and ":" in data else ""
        raise Source(name, {}, root).error((), message, hint=hint)
    return Source(name, data, root, text=text)


def parse_value(text: str, name: str) -> Any:
    """Return the value of a single YAML text such as the right side of `--set a.b=VALUE`; `name` is
    its name in errors.
    """
    try:
        root = compose(text, name)
        return None if root is None else construct(root, name)
    except ScenarioError as error:
        raise InputError(f"{name}: {error.message}") from None


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            if key_node.value == part:
                return key_node, value_node
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


# Writing values as YAML that reads as the same values: numbers as they were written, texts quoted
# where YAML 1.2 or 1.1 would take them for something else.

_TAGS = {bool: "bool", int: "int", WrittenInt: "int", float: "float", WrittenFloat: "float"}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        usual = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        if kind is not yaml.ScalarNode or not implicit[0]:
            return usual
        try:
            scalar = plain_scalar(value)
        except ValueError:
            return ""  # no value can be written so
        name = "null" if scalar is None else _TAGS.get(type(scalar))
        return usual if name is None else f"tag:yaml.org,2002:{name}"


def _written(dumper: _Dumper, number: WrittenInt | WrittenFloat) -> yaml.ScalarNode:
    name = _TAGS[type(number)]
    return dumper.represent_scalar(f"tag:yaml.org,2002:{name}", number.text)


_Dumper.add_representer(WrittenInt, _written)
_Dumper.add_representer(WrittenFloat, _written)
_Dumper.add_representer(tuple, _Dumper.represent_list)


def dump(data: Any) -> str:
    """Return a mapping as the text of a YAML file, with its keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
