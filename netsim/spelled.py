"""Values written out in full, so that equal text means equal values, also in other objects."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

PLAIN = frozenset({int, float, str, bytes, bool, type(None)})


def digest(value: object) -> bytes:
    """A few bytes that stand for a value."""
    return blake2b(spelled(value).encode(), digest_size=16).digest()


def spelled(value: Any) -> str:
    """A value in full. Of a dataclass, fields that are not compared do not belong to it; what
    cannot be told from its text, such as a function, raises a TypeError.
    """
    kind: Any = type(value)
    if kind in PLAIN or (kind is tuple and PLAIN.issuperset(map(type, value))):
        return repr(value)
    if is_dataclass(value):
        name, parts = _parts(kind)
        return f"{name}({_joined(getattr(value, part) for part in parts)})"
    if isinstance(value, np.generic):
        return repr(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype.descr}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, Mapping):
        return f"{{{_joined(value.items())}}}"
    if isinstance(value, Set):
        return f"set({','.join(sorted(map(spelled, value)))})"
    if isinstance(value, Sequence):
        return f"({_joined(value)})"
    raise TypeError(f"{kind.__qualname__} cannot be written out")


@lru_cache
def _parts(kind: Any) -> tuple[str, tuple[str, ...]]:
    """The name of a dataclass, and those of its fields that are compared."""
    return kind.__qualname__, tuple(one.name for one in fields(kind) if one.compare)


def _joined(values: Iterable[Any]) -> str:
    return ",".join(map(spelled, values))
