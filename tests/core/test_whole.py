"""Whole values are looked at, part by part: what moves anywhere in one is seen."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tests import whole


@dataclass(frozen=True)
class Leaf:
    """Something small."""

    number: float


@dataclass(frozen=True)
class Root:
    """Something that has it."""

    leaves: tuple[Leaf, ...]
    kept: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    @cached_property
    def total(self) -> float:
        """What is only asked."""
        return sum(leaf.number for leaf in self.leaves)

    @property
    def other(self) -> "Root":
        """One of its own kind, which has another, and so on."""
        return Root(self.leaves * 2)

    @property
    def worst(self) -> float:
        """Not there where there are no leaves."""
        return max(leaf.number for leaf in self.leaves)


for _kind in (Leaf, Root):
    _kind.__module__ = f"netsim.{_kind.__name__}"  # only values of the package are taken apart


def told(*numbers: float, **kept: np.ndarray) -> dict[str, str]:
    found = whole.Whole()
    found.add([Root(tuple(map(Leaf, numbers)), kept)])
    return found.told()


def test_every_class_has_a_digest_that_says_whether_any_of_it_is_another() -> None:
    one = told(1.0, 2.0, a=np.arange(3))
    assert list(one) == ["Leaf", "Root"]
    assert told(1.0, 2.0, a=np.arange(3)) == one
    assert told(2.0, 1.0, a=np.arange(3))["Leaf"] == one["Leaf"]
    assert told(2.0, 1.0, a=np.arange(3))["Root"] != one["Root"]
    assert told(1.0, 2.0, a=np.arange(3) + 1)["Root"] != one["Root"]
    assert told(1.0, 2.1, a=np.arange(3))["Leaf"] != one["Leaf"]


def test_what_is_asked_counts_and_may_be_refused() -> None:
    found = whole.Whole()
    assert found._asked(Root(()), "worst") == "refused"
    assert found._asked(Root((Leaf(1.5),)), "worst") == found.add(1.5)
    assert found._asked(Root(()), "other") == ""
    assert set(whole.properties(Root)) == {"total", "other", "worst"}


def test_what_contains_itself_has_an_end_and_others_values_are_no_parts() -> None:
    found, loop = whole.Whole(), list[object]()
    loop.append(loop)
    assert found.add(loop)
    assert found.add(object()) == "object"
    assert found.told() == {}
