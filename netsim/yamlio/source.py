"""A YAML file that was read: its values, and for each of them the line and column it came from.

Values that came from elsewhere (`--set`, an axis of a sweep, a flag) name their origin instead.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import yaml

from netsim.errors import InputError, ScenarioError, nearest, shown
from netsim.values import dataclass
from netsim.yamlio.reader import compose, construct

LARGEST_FILE = 4 * 2**20

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """Where something was written: a name (file or flag), line and column from 1 if known."""

    name: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True)
class Source:
    """Named values with places; `origins` names what did not come from the file itself."""

    name: str
    data: dict[str, Any]
    root: yaml.Node | None = field(default=None, repr=False, compare=False)
    origins: Mapping[KeyPath, str] = field(default_factory=dict)

    def locate(self, path: KeyPath, *, key: bool = False) -> Place:
        """The place of the value at `path`, or of its key; of the nearest parent where unknown."""
        for known in sorted(self.origins, key=len, reverse=True):
            if path[: len(known)] == known:
                return Place(self.origins[known])
        node, key_node = self.root, self.root
        for depth, part in enumerate(path):
            step = _child(node, part)
            if step is None:
                return self._origin_within(path[: depth + 1]) or self._place(key_node)
            key_node, node = step
        return self._place(key_node if key else node)

    def error(
        self, path: KeyPath, message: str, *, key: bool = False, hint: str = ""
    ) -> ScenarioError:
        """An error about the value at `path`, or about its key."""
        place = self.locate(path, key=key)
        return ScenarioError(
            message,
            source=place.name,
            line=place.line,
            column=place.column,
            field=".".join(map(str, path)),
            hint=hint,
        )

    def _origin_within(self, path: KeyPath) -> Place | None:
        for known, origin in self.origins.items():
            if known[: len(path)] == path:
                return Place(origin)
        return None

    def _place(self, node: yaml.Node | None) -> Place:
        if node is None:
            return Place(self.name)
        return Place(self.name, node.start_mark.line + 1, node.start_mark.column + 1)


def read_source(path: str | Path) -> Source:
    """Read one YAML file; every way in which it cannot be used is a `ScenarioError`."""
    file = Path(path)
    name = file.as_posix()
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ScenarioError("no such file", source=name, hint=_sibling_hint(file)) from None
    except IsADirectoryError:
        raise ScenarioError("expected a YAML file, got a directory", source=name) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"cannot be read: {reason}", source=name) from None
    if len(content) > LARGEST_FILE:
        raise ScenarioError(f"larger than {LARGEST_FILE // 2**20} MiB", source=name)
    return parse_source(_decoded(content, name), name)


def parse_source(text: str, name: str) -> Source:
    """The values and places of one YAML text, called `name` in errors."""
    root = compose(text, name)
    data = None if root is None else construct(root, name)
    if root is None or data is None:
        raise ScenarioError("the file is empty", source=name)
    if not isinstance(data, dict):
        message = f"expected 'key: value' lines at the top level, got {shown(data)}"
        hint = "a space is missing after ':'" if isinstance(data, str) and ":" in data else ""
        raise Source(name, {}, root).error((), message, hint=hint)
    return Source(name, data, root)


def parse_value(text: str, name: str) -> Any:
    """The value of a single YAML text such as the right side of `--set a.b=VALUE`."""
    try:
        root = compose(text, name)
        return None if root is None else construct(root, name)
    except ScenarioError as error:
        raise InputError(f"{name}: {error.message}") from None


def _decoded(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if b"\0" not in content:
            line = content[: error.start].count(b"\n") + 1
            message = f"not text in UTF-8: byte 0x{content[error.start]:02X}"
            raise ScenarioError(message, source=name, line=line) from None
        text = "\0"
    if "\0" in text:
        raise ScenarioError("expected a text file with YAML, got a binary file", source=name)
    return text


def _sibling_hint(file: Path) -> str:
    try:
        names = [other.name for other in file.parent.iterdir() if other.suffix in (".yaml", ".yml")]
    except OSError:
        return ""
    near = nearest(file.name, sorted(names))
    return f"did you mean {file.with_name(near).as_posix()}?" if near else ""


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """The nodes of the key and the value below a node; an entry of a list is its own key."""
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            if key_node.value == part:
                return key_node, value_node
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None
