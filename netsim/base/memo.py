"""A cache of results by key, a decorator that caches results of methods, and digests of values."""

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
RESULTS_PER_OBJECT = 4  # how many of the latest results `cached_per_object` stores for an object
_MISSING: Any = object()


class Memo:
    """A cache of results by key; with `most` above 0, it keeps only that many, the most recently
    used.
    """

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self._results: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._results)

    def clear(self) -> None:
        """Remove all results."""
        self._results.clear()

    def keep_only(self, key: Hashable) -> None:
        """Remove all results except that of `key`."""
        self._results = {
            stored_key: result for stored_key, result in self._results.items() if stored_key == key
        }

    def of(
        self, key: Hashable, find: Callable[[], R], worth: Callable[[R], bool] = lambda _: True
    ) -> R:
        """The stored result of `key`; if there is none, call `find` and store its result.

        A result for which `worth(result)` is false is returned but not stored. If the cache is
        full, the least recently used result is removed before `find` is called, because results may
        be large.
        """
        result: R = self._results.pop(key, _MISSING)
        if result is _MISSING:
            while 0 < self.most <= len(self._results):
                self._results.pop(next(iter(self._results)), None)
            result = find()
        if worth(result):
            self._results[key] = result  # at the end, as the one that was used last
        return result


class Same:
    """A value as part of a key; it equals only the same object (`is`, not `==`).

    It holds a reference to the object, so that no new object can get the same id while the result
    is stored.
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, compared: object) -> bool:
        return isinstance(compared, Same) and compared.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def cached_per_object(
    function: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], R]:
    """Decorate a method, or a function of one object, so that its latest results are cached.

    The results are stored outside of the object and are removed with it. Objects are distinguished
    by identity, so their class must not compare by value, and no result may refer to its object.
    """
    memos: WeakKeyDictionary[Any, Memo] = WeakKeyDictionary()

    @wraps(function)
    def cached_function(subject: Any, /, *args: P.args, **named: P.kwargs) -> R:
        memo = memos.get(subject)
        if memo is None:
            memo = memos[subject] = Memo(RESULTS_PER_OBJECT)
        return memo.of((args, *named.items()), lambda: function(subject, *args, **named))

    return cached_function


# Types whose `repr` distinguishes all values.
PLAIN = frozenset({int, float, str, bytes, bool, type(None)})


def digest(value: object) -> bytes:
    """Return a digest of a value: 16 bytes, equal for equal values.

    >>> digest((1, "a")) == digest((1, "a")), len(digest(None))
    (True, 16)
    """
    return blake2b(spelled(value).encode(), digest_size=16).digest()


def spelled(value: Any) -> str:
    """A text of a value that is equal for equal values and different for different values.

    For a dataclass it has the fields that its comparison uses. Raises a TypeError for a type
    without such a text.
    """
    kind: Any = type(value)
    if kind in PLAIN or (kind is tuple and PLAIN.issuperset(map(type, value))):
        return repr(value)
    if is_dataclass(value):
        name, field_names = _compared_fields(kind)
        return f"{name}({_joined(getattr(value, field_name) for field_name in field_names)})"
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
    raise TypeError(f"{kind.__qualname__} has no text that is equal for equal values")


@lru_cache
def _compared_fields(kind: Any) -> tuple[str, tuple[str, ...]]:
    """The name of a dataclass, and the names of the fields that its comparison uses."""
    return kind.__qualname__, tuple(field.name for field in fields(kind) if field.compare)


def _joined(values: Iterable[Any]) -> str:
    return ",".join(map(spelled, values))


S = TypeVar("S", bound=np.generic)


def different(values: NDArray[S]) -> NDArray[S]:
    """The distinct values of an array, sorted.

    The result is that of `np.unique`, which imports masked arrays and uses a hash table; that takes
    several times as long if most values are distinct.
    """
    ordered = np.sort(values, axis=None)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]
