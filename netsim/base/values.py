"""Dataclasses that are quick to define; and values in groups.

For every class, `dataclasses` writes up to six methods as text and compiles each of them, half a
millisecond in all, and a run defines 250 classes before it begins. Here only `__init__` is
compiled, when a first value is made; the others do the same for any class. Type checkers see the
usual decorator, and classes that ask for more than this knows get it."""

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass", "evenly_spaced", "grouped"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MISSING = dataclasses.MISSING


def grouped(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Values by a key, in the order in which keys appear."""
    groups: dict[K, list[V]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def evenly_spaced(total: int, count: int) -> list[int]:
    """`count` of the numbers 0 to `total` - 1, the first and last included; all if there are fewer.

    >>> evenly_spaced(10, 4)
    [0, 3, 6, 9]
    """
    if count >= total:
        return list(range(total))
    if count == 1:
        return [0]
    return [round(place * (total - 1) / (count - 1)) for place in range(count)]


def _decorated(kind: Any = None, /, **options: Any) -> Any:
    if kind is None:
        return lambda kind: _made(kind, options)
    return _made(kind, options)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _decorated


def _made(kind: Any, options: dict[str, Any]) -> Any:
    attributes = dict(vars(kind))
    wanted = {name for name, value in options.items() if value}
    if not options.keys() <= {"frozen", "slots", "kw_only", "eq"}:
        return dataclasses.dataclass(**options)(kind)
    kind.__doc__ = kind.__doc__ or kind.__name__  # else one is made of a signature, which is slow
    settings = {**options, "init": False, "repr": False, "eq": False, "frozen": False}
    made: Any = dataclasses.dataclass(**settings)(kind)
    methods: dict[str, Any] = {"__init__": _first_init(made), "__repr__": _repr}
    if options.get("eq", True):
        methods |= _comparing(made, hashed="frozen" in wanted)
    if "frozen" in wanted:
        methods |= {"__setattr__": _set, "__delattr__": _set}
    if "slots" in wanted:  # else copies and pickles go by attributes that nobody may set
        methods |= {"__getstate__": _state, "__setstate__": _restore}
    for name, method in methods.items():
        if attributes.get(name) is None:
            setattr(made, name, method)
    return made


def _first_init(kind: Any) -> Callable[..., None]:
    """Makes the first value; most classes have none in most runs."""

    def first(self: Any, *arguments: Any, **named: Any) -> None:
        kind.__init__ = _init(kind)
        kind.__init__(self, *arguments, **named)

    return first


def _init(kind: Any) -> Callable[..., None]:
    """The one method that is written for a class: it is called often, by place and by name."""
    namespace: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    places, names, body = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(kind):
        name, value = field.name, field.name
        default = "" if field.default is _MISSING else f"=_default_{name}"
        namespace[f"_default_{name}"] = field.default
        if field.default_factory is not _MISSING:
            namespace[f"_new_{name}"] = field.default_factory
            default, value = "=_missing", f"_new_{name}() if {name} is _missing else {name}"
        if field.init:
            (names if field.kw_only else places).append(name + default)
        elif not default:
            continue  # what follows the fields sets it
        else:
            value = f"_default_{name}" if value == name else f"_new_{name}()"
        body.append(f" _set(self, {name!r}, {value})")
    if hasattr(kind, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join(places + ["*"] * bool(names) + names)
    exec(f"def __init__({parameters}):\n" + "\n".join(body or [" pass"]), namespace)
    made: Callable[..., None] = namespace["__init__"]
    made.__qualname__, made.__module__ = f"{kind.__qualname__}.__init__", kind.__module__
    return made


def _comparing(kind: Any, *, hashed: bool) -> dict[str, Any]:
    """Values are equal where their fields are; those that may change are no keys."""
    names = [field.name for field in dataclasses.fields(kind) if field.compare]
    several: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def key(value: Any) -> Any:
        return (several(value),)

    compared = several if len(names) != 1 else key

    def equal(self: Any, other: Any) -> Any:
        return compared(self) == compared(other) if type(other) is type(self) else NotImplemented

    return {"__eq__": equal, "__hash__": (lambda self: hash(compared(self))) if hashed else None}


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [field.name for field in dataclasses.fields(self) if field.repr]
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({inside})"


def _set(self: Any, name: str, *value: Any) -> None:
    action = "assign to" if value else "delete"
    raise dataclasses.FrozenInstanceError(f"cannot {action} field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
