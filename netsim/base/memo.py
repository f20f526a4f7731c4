"""What is kept for those who ask again: answers by their questions, digests of values."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from hashlib import blake2b
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
KEPT = 4  # answers that each object keeps to the last questions
_NEW: Any = object()


class Memo:
    """Answers by what was asked: to all questions, or to the last `most`."""

    def __init__(self, most: int = 0) -> None:
        self.most, self._known = most, dict[Hashable, Any]()

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()

    def keep_only(self, key: Hashable) -> None:
        """Forget all else."""
        self._known = {one: found for one, found in self._known.items() if one == key}

    def of(
        self, key: Hashable, find: Callable[[], R], worth: Callable[[R], bool] = lambda _: True
    ) -> R:
        """What is known of a question, or is found now; kept if it is `worth` that. Room for it is
        made first, for answers may be large."""
        value: R = self._known.pop(key, _NEW)
        if value is _NEW:
            while 0 < self.most <= len(self._known):
                self._known.pop(next(iter(self._known)), None)
            value = find()
        if worth(value):
            self._known[key] = value
        return value


class Same:
    """A value in a question by what it is, not by what it is equal to. It is kept with the answer,
    so that no other takes its place."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def kept(function: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A decorator: keeps the last results of a method, or of a function of one object.

    Results lie outside of the object, and are forgotten with it. Objects are distinguished by
    identity, so their class must not compare by value, and no result may hold its object.
    """
    answers: WeakKeyDictionary[Any, Memo] = WeakKeyDictionary()

    @wraps(function)
    def answer(subject: Any, /, *args: P.args, **named: P.kwargs) -> R:
        memo = answers.get(subject)
        if memo is None:
            memo = answers[subject] = Memo(KEPT)
        return memo.of((args, *named.items()), lambda: function(subject, *args, **named))

    return answer


PLAIN = frozenset({int, float, str, bytes, bool, type(None)})


def digest(value: object) -> bytes:
    """A digest of a value: 16 bytes, equal for equal values.

    >>> digest((1, "a")) == digest((1, "a")), len(digest(None))
    (True, 16)
    """
    return blake2b(spelled(value).encode(), digest_size=16).digest()


def spelled(value: Any) -> str:
    """A value in full, of a dataclass the fields that are compared; a TypeError if it cannot be."""
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


S = TypeVar("S", bound=np.generic)


def different(values: NDArray[S]) -> NDArray[S]:
    """The different ones among values, in order. `np.unique` would import masked arrays, and ask a
    hash table for each value, which takes several times as long where most are different."""
    ordered = np.sort(values, axis=None)
    new = np.ones(len(ordered), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]
