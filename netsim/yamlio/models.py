"""The base of all models of files: strict models, quantities with units, overrides of single
values.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from typing import Annotated, Any, TypeVar

import pydantic
from annotated_types import GroupedMetadata
from pydantic import BeforeValidator, Field, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from netsim.base import units
from netsim.base.errors import InputError, shown
from netsim.yamlio.read import KeyPath, Source, parse_value, text_of

T = TypeVar("T")


class Model(pydantic.BaseModel):
    """A mapping in a file: unknown keys are refused, and no value is converted silently.

    Its validator is built when it is first needed. A list in a file is declared as `ListOf[X]`; a
    bare tuple would refuse it.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


ListOf = Annotated[tuple[T, ...], pydantic.Strict(False)]
"""A list in the file, a tuple in the model; its entries stay strict."""


class FieldError(ValueError):
    """An error for validators of models: what is wrong, and the path to the field below the model.

    `more` are further errors of the same validator.
    """

    def __init__(self, message: str, *path: str | int, more: Sequence["FieldError"] = ()) -> None:
        super().__init__(message, *path)
        self.message = message
        self.path = path
        self.more = more

    def __str__(self) -> str:
        return self.message


class Quantity(GroupedMetadata):
    """How a field with a unit is read from a file, and examples of its text (for `netsim schema`).

    With `several` the file has one value or a list, which becomes a tuple.
    """

    def __init__(
        self,
        parse: Callable[[Any], Any],
        *examples: Any,
        kind: str | list[str] = "string",
        several: bool = False,
    ) -> None:
        self.parse = parse
        self.several = several
        self.schema = {"type": kind, "examples": list(examples)}

    def __iter__(self) -> Iterator[Any]:
        yield BeforeValidator(self._parse_items if self.several else self.parse)
        yield pydantic.WithJsonSchema(self.schema)

    def _parse_items(self, value: object) -> tuple[Any, ...]:
        if isinstance(value, tuple):  # it has been read before
            return value
        return tuple(map(self.parse, value if isinstance(value, list) else [value]))


# Field types for models: a text with a unit in the file, an SI number in the model.


def _written(value: object) -> str:
    """Return the text of a scalar as it is in the file, so that 2.30 stays 2.30."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return text_of(value)
    raise ValueError(f"expected text or a number, got {shown(value)}")


_rate = partial(units.parse_bandwidth, allow_infinite=True)

Bandwidth = Annotated[float, Quantity(_rate, "400Gbps", "50GB/s", "inf")]
"""Bytes per second, more than zero; `inf` for what-ifs."""

Seconds = Annotated[float, Quantity(units.parse_time, "600ns", "2.5us")]
"""Seconds, zero allowed."""

_OR_LIST = ["string", "array"]

Bandwidths = Annotated[
    tuple[float, ...], Quantity(_rate, "50GB/s", ["50GB/s", "25GB/s"], kind=_OR_LIST, several=True)
]
"""Bytes per second, one or several."""

Delays = Annotated[
    tuple[float, ...],
    Quantity(units.parse_time, "1us", ["1us", "500ns"], kind=_OR_LIST, several=True),
]
"""Seconds, one or several."""

Bytes = Annotated[int, Quantity(units.parse_size, "64MiB", "8B", 4096, kind=["string", "integer"])]
"""A number of bytes, at least one."""

Ratio = Annotated[float, Quantity(units.parse_ratio, 2, "2:1", "50%", kind=["string", "number"])]
"""A ratio, more than zero."""

Part = Annotated[Ratio, Field(le=1)]
"""A part of something, such as `50%`."""

Flops = Annotated[float, Quantity(units.parse_flops, "989TFLOPS", "1.5PFLOP/s")]
"""Floating-point operations per second."""

Watts = Annotated[float, Quantity(units.parse_power, "700W", "1.2kW")]
"""Power."""

Metres = Annotated[float, Quantity(units.parse_length, "100km")]
"""Metres, zero allowed."""

Count = Annotated[int, Field(ge=1)]
"""A number of things, at least one."""

Index = Annotated[int, Field(ge=0)]
"""The number of a thing, counted from zero."""

Written = Annotated[str, Quantity(_written, "2.27", 16, kind=["string", "number", "boolean"])]
"""The text of a scalar as it was written: a version such as 2.30, the value of a variable."""


class Elsewhere:
    """An annotation for `Annotated[Any, ...]`: the type is in another module, which is imported
    when a value is validated.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    @cached_property
    def kind(self) -> Any:
        """The type; its module is imported."""
        return getattr(import_module(self.module), self.name)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.kind)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: pydantic.GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: pydantic.GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(self._adapter.core_schema)

    def _read(self, value: Any) -> Any:
        model = self._adapter.validate_python(value)
        if isinstance(model, pydantic.BaseModel):
            model.model_rebuild()  # pydantic before 2.14 does not do it when it dumps a model
        return model


# Replacing single values of a source: `--set cluster.nodes=4`, or one point of a sweep. Keys are
# not checked here: validation reports misspelled ones, and names the override as their origin.


def apply_overrides(source: Source, assignments: Iterable[str]) -> Source:
    """Return the source with every `a.b=value` applied in turn; values are read as YAML."""
    for assignment in assignments:
        origin = f"--set {assignment}"
        dotted, equals, text = assignment.partition("=")
        if not equals or not all(part.strip() for part in dotted.split(".")):
            raise InputError(f"{origin}: expected KEY=VALUE such as cluster.nodes=4")
        source = override(source, dotted.strip(), parse_value(text, origin), origin)
    return source


def override(source: Source, dotted: str, value: Any, origin: str) -> Source:
    """Return the source with one value replaced or added at a dotted key; errors about it name
    `origin` in place of a position.
    """
    # Parts between dots are keys or indices; a key of the file may itself contain dots.
    parts = dotted.split(".")
    path: KeyPath = ()
    values: Any = source.data
    while parts:
        if isinstance(values, list):
            index = _index(parts[0], len(values), path, origin)
            path = (*path, index)
            values = values[index]
            parts = parts[1:]
        elif isinstance(values, dict) or values is None:
            full_path = ".".join(parts)
            key = full_path if values and full_path in values else parts[0]
            path = (*path, key)
            parts = [] if key == full_path else parts[1:]
            values = None if values is None else values.get(key)
        else:
            message = f"{_dotted(path)} is {shown(values)}, which has nothing inside to set"
            raise InputError(f"{origin}: {message}")
    data = _replaced(source.data, path, value)
    kept_origins = {
        known: text for known, text in source.origins.items() if known[: len(path)] != path
    }
    return replace(source, data=data, origins={**kept_origins, path: origin})


def _index(part: str, length: int, path: KeyPath, origin: str) -> int:
    if part.isascii() and part.isdigit() and len(part) < 10 and int(part) < length:
        return int(part)
    message = f"{_dotted(path)} is a list of {length}; expected an index below that, got '{part}'"
    raise InputError(f"{origin}: {message}")


def _replaced(values: Any, path: KeyPath, value: Any) -> Any:
    if not path:
        return value
    head = path[0]
    rest = path[1:]
    if isinstance(values, list):
        return [_replaced(one, rest, value) if n == head else one for n, one in enumerate(values)]
    inside = values or {}
    return {**inside, head: _replaced(inside.get(head), rest, value)}


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))
