"""Digests of whole values: all that can be asked of an object and of what it consists of.

`Whole().add(value)` walks from an object of netsim's over its fields and public properties to all
others, and keeps a digest of each; `told()` has one a package. So whatever an answer is made of is
looked at, not only what a test thinks of: the graphs of a communicator, its channels, the ways of a
fabric, the rungs that were asked."""

import hashlib
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any

import numpy as np
from pydantic import BaseModel

from tests.pins import spelled

NO_VALUES = {"ResolvedCell": ("place",)}  # numbers by which objects of one process are told apart
PLAIN = (str, bytes, bool, int, float, np.generic, Enum, type(None))


@cache
def properties(kind: type) -> tuple[str, ...]:
    """What can be asked of objects of a class without arguments."""
    names = (name for name in dir(kind) if not name.startswith("_"))
    return tuple(
        name for name in names if isinstance(getattr(kind, name), property | cached_property)
    )


@cache
def parts(kind: type) -> tuple[str, ...]:
    """The fields of a class of netsim's; none of others'."""
    if not kind.__module__.startswith("netsim."):
        return ()
    if issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    names = (one.name for one in fields(kind)) if is_dataclass(kind) else ()
    return tuple(name for name in names if name not in NO_VALUES.get(kind.__name__, ()))


class Whole:
    """Digests of objects, by the package that their classes are of."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, str]] = {}  # with what it is of, which so stays
        self._found: dict[str, set[str]] = {}

    def add(self, value: Any) -> str:
        """The digest of a value, all of whose parts are looked at."""
        if isinstance(value, PLAIN):
            return spelled(value)
        if id(value) not in self._known:
            self._known[id(value)] = value, f"within {type(value).__name__}"
            self._known[id(value)] = value, self._digest(value)
        return self._known[id(value)][1]

    def told(self) -> dict[str, str]:
        """One digest a package, whatever the order in which objects were found."""
        return {name: _short("".join(sorted(some))) for name, some in sorted(self._found.items())}

    def _digest(self, value: Any) -> str:
        if isinstance(value, np.ndarray):
            return _short(spelled(value)) if value.dtype.kind in "biuf" else repr(value.tolist())
        if names := parts(type(value)):
            told = {name: self.add(getattr(value, name)) for name in names}
            if not isinstance(value, BaseModel):
                told |= {name: self._asked(value, name) for name in properties(type(value))}
            found = _short(repr(told))
            _, package, *_ = type(value).__module__.split(".")
            self._found.setdefault(package, set()).add(f"{type(value).__name__} {found}")
            return found
        if isinstance(value, Mapping):
            return _short(repr([(self.add(a), self.add(b)) for a, b in value.items()]))
        if isinstance(value, Set):
            return _short(repr(sorted(map(self.add, value))))
        if isinstance(value, Sequence):
            return _short(repr(list(map(self.add, value))))
        return type(value).__name__  # of others, or a function

    def _asked(self, value: Any, name: str) -> str:
        with suppress(Exception):  # what cannot be asked of this one
            found = getattr(value, name)
            # What is of its own kind would be asked for the same again, and so on.
            return "" if type(found) is type(value) else self.add(found)
        return "refused"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
