"""Quick dataclasses are dataclasses: the same class, made by both, does the same."""

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from netsim.base.values import dataclass


@dataclass(frozen=True)
class Plain:
    """A name, a number, and what is not compared."""

    name: str
    number: int = 3
    seen: list[int] = field(default_factory=list, repr=False, compare=False)
    shared: ClassVar[int] = 0

    def __post_init__(self) -> None:
        self.seen.append(self.number)

    @cached_property
    def twice(self) -> int:
        return 2 * self.number


@dataclass(frozen=True, slots=True)
class Slim:
    """A number in a slot."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Named:
    """Only by name."""

    one: int
    two: int = 2


@dataclass(frozen=True)
class Further(Plain):
    """One more than Plain, which says itself what it looks like."""

    more: float = 0.5

    def __repr__(self) -> str:
        return "further"


KINDS = [(Plain, ("a",)), (Plain, ("b", 4)), (Slim, (7,)), (Further, ("a", 1, [2], 0.25))]


def twin(kind: Any, *, slots: bool = False) -> Any:
    """The same fields as the library would have them."""
    fields = [(one.name, one.type, copy.copy(one)) for one in dataclasses.fields(kind)]
    made = dataclasses.make_dataclass(kind.__name__, fields, frozen=True, slots=slots)
    made.__qualname__ = kind.__qualname__
    return made


@pytest.mark.parametrize(("kind", "given"), KINDS)
def test_values_are_made_compared_and_changed_as_usual(kind: Any, given: tuple[Any, ...]) -> None:
    value, usual = kind(*given), twin(kind)(*given)
    names = [one.name for one in dataclasses.fields(kind)]
    compared = [one.name for one in dataclasses.fields(kind) if one.compare]
    assert dataclasses.asdict(value).keys() == dataclasses.asdict(usual).keys()
    assert [getattr(value, name) for name in names[:2]] == [
        getattr(usual, name) for name in names[:2]
    ]
    assert kind.__match_args__ == type(usual).__match_args__
    assert value == kind(*given)
    assert hash(value) == hash(kind(*given)) == hash(usual)
    assert value != usual, "another class"
    for name in compared:
        other = dataclasses.replace(value, **{name: -1})
        assert (other == value, getattr(other, name)) == (False, -1)
    assert (repr(value) == repr(usual)) or kind is Further


@pytest.mark.parametrize(("kind", "given"), KINDS)
def test_nothing_can_be_set_or_deleted(kind: Any, given: tuple[Any, ...]) -> None:
    value = kind(*given)
    name = dataclasses.fields(kind)[0].name
    with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(value, name, 1)
    with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
        delattr(value, name)
    assert getattr(value, name) == given[0]


@pytest.mark.parametrize(("kind", "given"), KINDS)
def test_copies_and_pickles_are_equal(kind: Any, given: tuple[Any, ...]) -> None:
    value = kind(*given)
    for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert (other == value, other is value, repr(other)) == (True, False, repr(value))


def test_defaults_are_new_and_what_follows_the_fields_is_run() -> None:
    one, two = Plain("a"), Plain("a")
    assert (one.seen, one.seen is two.seen, one == two) == ([3], False, True)
    assert (one.twice, Plain("a", 5).seen, Plain("b", seen=[0]).seen) == (6, [5], [0, 3])
    assert repr(one) == "Plain(name='a', number=3)"
    assert not hasattr(Slim(1), "__dict__")


def test_arguments_are_refused_as_usual() -> None:
    assert (Named(one=1).two, Named(two=3, one=1).two) == (2, 3)
    with pytest.raises(TypeError, match=r"Named.__init__\(\) takes 1 positional argument but 2"):
        Named(1)  # type: ignore[misc,call-arg]
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'name'"):
        Plain()  # type: ignore[call-arg]


@pytest.mark.parametrize("options", [{}, {"frozen": True, "order": True}])
def test_other_options_are_those_of_the_library(options: dict[str, bool]) -> None:
    class Free:
        number: int = 1

    made: Any = dataclass(**options)(Free)
    assert made.__dataclass_params__.frozen == options.get("frozen", False)
    assert (made(2) == made(2)) == options.get("eq", True)


def test_fields_that_are_no_arguments_are_set_as_usual() -> None:
    @dataclass(frozen=True, slots=True)
    class Derived:
        number: int
        double: int = field(init=False)
        three: int = field(init=False, default=3)
        several: list[int] = field(init=False, default_factory=list)

        def __post_init__(self) -> None:
            object.__setattr__(self, "double", 2 * self.number)

    one, other = Derived(2), Derived(2)
    assert repr(one).endswith("Derived(number=2, double=4, three=3, several=[])")
    assert one == other
    assert one.several is not other.several
    with pytest.raises(TypeError, match="unexpected keyword argument 'three'"):
        Derived(2, three=4)  # type: ignore[call-arg]


def test_values_that_are_not_compared_are_keys_of_their_own() -> None:
    @dataclass(frozen=True, eq=False)
    class Alone:
        numbers: list[int]

    one, other = Alone([1]), Alone([1])
    assert one != other
    assert len({one, other, one}) == 2
    with pytest.raises(FrozenInstanceError):
        one.numbers = []  # type: ignore[misc]


def test_values_that_may_change_are_compared_and_are_no_keys() -> None:
    @dataclass
    class Free:
        number: int = 1

    one, other = Free(), Free(2)
    other.number = 1
    assert one == other
    assert repr(one).endswith("Free(number=1)")
    with pytest.raises(TypeError, match="unhashable type"):
        hash(one)
