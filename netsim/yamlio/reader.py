"""From the text of one YAML file to nodes with positions, and from nodes to plain values.

Stricter than YAML: one document, a mapping of text keys at the top, no tags, no merge keys, no
duplicate keys, and aliases only as far as they stay small. Nothing is ever constructed but
mappings, lists and scalars.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from netsim.errors import ScenarioError, shown
from netsim.yamlio.scalars import Scalar, plain_scalar
from netsim.yamlio.syntax import Refused, error_at, in_plain_words

if TYPE_CHECKING or yaml.__with_libyaml__:
    from yaml._yaml import CParser
else:
    CParser = object

DEEPEST = 50
MOST_VALUES = 250_000


class _StrictComposer(Composer):
    """PyYAML's composer without tags and without unbounded depth."""

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
    """The parser in Python, whose complaints `syntax` can translate."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)


class _FastLoader(_StrictComposer, CParser, BaseResolver):
    """The parser in C, seven times as fast, for what it takes without complaint."""

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        BaseResolver.__init__(self)


def compose(text: str, name: str, *, fast: bool = yaml.__with_libyaml__) -> yaml.Node | None:
    """The root node of a YAML text, or None where there is nothing but comments."""
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
    """The plain value of a node: mappings, lists, texts, numbers, booleans and nothing."""
    return _Construction(name).value(root)


class _Construction:
    """One walk over the nodes of a file; counts what aliases unfold to."""

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
