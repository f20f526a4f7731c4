"""Dataclasses that are defined quickly; grouping of values, and evenly spaced numbers.

For each class, the standard library's `dataclass` generates up to six methods as source text and
compiles each, about half a millisecond in total, and a command defines some 250 classes before it
begins. The `dataclass` of this module compiles only `__init__`, when the first object of a class is
made; its other methods are closures. That saves 0.14 of 0.73 s of processor time of `netsim expect
dgx-h100 all_reduce --sizes 1M` (`python -m tests.bench.standard_dataclasses --runs 12`). With the
standard decorator, a run of a ring of 64 GPUs would take more than the 0.6 s that it may. Type
checkers see the standard decorator, and a class with an option that this module does not know gets
it, too.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass", "evenly_spaced", "grouped"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MISSING = dataclasses.MISSING
_KNOWN_OPTIONS = {"frozen", "slots", "kw_only", "eq"}


def grouped(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """The values as lists by `key(value)`, in the order in which keys first occur."""
    groups: dict[K, list[V]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def evenly_spaced(total: int, count: int) -> list[int]:
    """`count` evenly spaced numbers of 0 to `total` - 1, among them the first and the last; all if
    `total` is smaller.

    >>> evenly_spaced(10, 4)
    [0, 3, 6, 9]
    """
    if count >= total:
        return list(range(total))
    if count == 1:
        return [0]
    return [round(place * (total - 1) / (count - 1)) for place in range(count)]


# **** Dataclasses ****


def _decorate(kind: Any = None, /, **options: Any) -> Any:
    """Turn a class into a dataclass, or, without a class, return the decorator with
    these options.
    """
    if kind is None:
        return lambda kind: _dataclass_of(kind, options)
    return _dataclass_of(kind, options)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _decorate


def _dataclass_of(kind: Any, options: dict[str, Any]) -> Any:
    """Add the methods of a dataclass to a class and return it; methods that the class defines
    itself are kept.
    """
    if not options.keys() <= _KNOWN_OPTIONS:
        return dataclasses.dataclass(**options)(kind)
    attributes_before = dict(vars(kind))
    is_frozen = options.get("frozen", False)
    kind.__doc__ = kind.__doc__ or kind.__name__  # else dataclasses makes one of the signature
    settings = {**options, "init": False, "repr": False, "eq": False, "frozen": False}
    result: Any = dataclasses.dataclass(**settings)(kind)
    methods: dict[str, Any] = {"__init__": _init_at_first_value(result), "__repr__": _repr}
    if options.get("eq", True):
        methods |= _comparing_methods(result, is_hashable=is_frozen)
    if is_frozen:
        methods |= {"__setattr__": _refuse_change, "__delattr__": _refuse_change}
    if options.get("slots", False):  # copies and pickles of a frozen value must set its fields
        methods |= {"__getstate__": _state_of, "__setstate__": _set_state}
    for name, method in methods.items():
        if attributes_before.get(name) is None:
            setattr(result, name, method)
    return result


def _init_at_first_value(kind: Any) -> Callable[..., None]:
    """An `__init__` that compiles the real one at its first call.

    Most classes never get an object during a command.
    """

    def compile_and_call(self: Any, *arguments: Any, **named: Any) -> None:
        kind.__init__ = _compiled_init(kind)
        kind.__init__(self, *arguments, **named)

    return compile_and_call


def _compiled_init(kind: Any) -> Callable[..., None]:
    """Compile the `__init__` of a dataclass, which sets the fields from positional and keyword
    arguments.

    It is compiled because it is called often: a closure over the fields takes several times as
    long.
    """
    namespace: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    positional = ["self"]
    keyword_only = list[str]()
    body = list[str]()
    for field in dataclasses.fields(kind):
        name, value = field.name, field.name
        default = "" if field.default is _MISSING else f"=_default_{name}"
        namespace[f"_default_{name}"] = field.default
        if field.default_factory is not _MISSING:
            namespace[f"_new_{name}"] = field.default_factory
            default = "=_missing"
            value = f"_new_{name}() if {name} is _missing else {name}"
        if field.init:
            (keyword_only if field.kw_only else positional).append(name + default)
        elif not default:
            continue  # `__post_init__` sets it
        else:
            value = f"_default_{name}" if value == name else f"_new_{name}()"
        body.append(f" _set(self, {name!r}, {value})")
    if hasattr(kind, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join(positional + ["*"] * bool(keyword_only) + keyword_only)
    exec(f"def __init__({parameters}):\n" + "\n".join(body or [" pass"]), namespace)
    init: Callable[..., None] = namespace["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    init.__module__ = kind.__module__
    return init


def _comparing_methods(kind: Any, *, is_hashable: bool) -> dict[str, Any]:
    """The methods `__eq__` and `__hash__`: objects are equal if their fields are.

    `__hash__` is None unless the class is frozen (`is_hashable`).
    """
    names = [field.name for field in dataclasses.fields(kind) if field.compare]
    values_of: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def tuple_of_one(value: Any) -> Any:
        return (values_of(value),)

    fields_of = values_of if len(names) != 1 else tuple_of_one

    def is_equal(self: Any, operand: Any) -> Any:
        if type(operand) is not type(self):
            return NotImplemented
        return fields_of(self) == fields_of(operand)

    hash_of = (lambda self: hash(fields_of(self))) if is_hashable else None
    return {"__eq__": is_equal, "__hash__": hash_of}


@recursive_repr()
def _repr(self: Any) -> str:
    """The object as Python code: `Class(field=value, ...)`."""
    names = [field.name for field in dataclasses.fields(self) if field.repr]
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
    return f"{type(self).__qualname__}({inside})"


def _refuse_change(self: Any, name: str, *value: Any) -> None:
    """Raise an error, because fields of a frozen object cannot be set."""
    action = "assign to" if value else "delete"
    raise dataclasses.FrozenInstanceError(f"cannot {action} field {name!r}")


def _state_of(self: Any) -> list[Any]:
    """The values of all fields, for copying and pickling."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    """Set all fields from the values of `_state_of`, also those of a frozen object."""
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
