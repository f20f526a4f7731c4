"""What a relation between answers is, and what the entries of the table are made of."""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import netsim
from netsim.base.errors import StalledError
from netsim.results.row import Row

Scenario = dict[str, Any]
Values = Sequence[float]
Draw = random.Random

ROUNDING = 1e-9
"""Relative difference that the order of additions of doubles may make; no relation hides more
behind the word equal."""


@dataclass(frozen=True)
class Relation:
    """A claim about two answers to questions that are drawn together.

    `left` and `right` give numbers (microseconds, unless the entry says otherwise) from one drawn
    scenario; `holds` returns what is wrong with them, or an empty text.
    """

    claim: str  # a sentence; it names the test
    draw: Callable[[Draw], Scenario]
    left: Callable[[Scenario], Values]
    right: Callable[[Scenario], Values]
    holds: Callable[[Values, Values], str]
    draws: int = 1  # in the default tests
    fails: str = ""  # why it does not hold yet; the test then must fail
    package: str = ""  # without which it is skipped


# **** Answers ****


def rows(scenario: Scenario, **options: Any) -> list[Row]:
    """Return all rows of a scenario."""
    return list(netsim.run(copy.deepcopy(scenario), **options))


def times(scenario: Scenario, **options: Any) -> list[float]:
    """Return the times of all rows in microseconds; infinite where the run cannot finish."""
    try:
        answered = rows(scenario, **options)
    except StalledError:
        return [float("inf")]
    found = [row.time_us if row.time_us is not None else row.step_time_us for row in answered]
    assert found
    assert None not in found, [row.error for row in answered]
    return [time for time in found if time is not None]


def after(*changes: Callable[[Scenario], Scenario]) -> Callable[[Scenario], list[float]]:
    """Return a function that gives the times of a scenario after some changes."""

    def answer(scenario: Scenario) -> list[float]:
        for change in changes:
            scenario = change(copy.deepcopy(scenario))
        return times(scenario)

    return answer


def scaled(
    factor: float, answer: Callable[[Scenario], Values]
) -> Callable[[Scenario], list[float]]:
    """Return a function that gives an answer times a factor."""
    return lambda scenario: [factor * value for value in answer(scenario)]


# **** Changes of scenarios ****


def setting(settings: Mapping[str, Any]) -> Callable[[Scenario], Scenario]:
    """Return a change that sets dotted keys; a value that is a function gets the value before."""

    def change(scenario: Scenario) -> Scenario:
        for key, value in settings.items():
            *path, last = key.split(".")
            section: Any = scenario
            for word in path:
                section = section[int(word)] if word.isdigit() else section.setdefault(word, {})
            section[last] = value(section.get(last)) if callable(value) else value
        return scenario

    return change


def without(*keys: str) -> Callable[[Scenario], Scenario]:
    """Return a change that removes dotted keys."""

    def change(scenario: Scenario) -> Scenario:
        for key in keys:
            *path, last = key.split(".")
            section: Any = scenario
            for word in path:
                section = section[word]
            section.pop(last, None)
        return scenario

    return change


# **** What may hold ****


def within(tolerance: float) -> Callable[[Values, Values], str]:
    """Return a check that both answers are equal within a relative tolerance."""

    def check(left: Values, right: Values) -> str:
        if len(left) != len(right):
            return f"{len(left)} values, not {len(right)}"
        for one, other in zip(left, right, strict=True):
            if one != other and not abs(one - other) <= tolerance * max(abs(one), abs(other)):
                return f"{one!r} is not {other!r} within {tolerance:g}"
        return ""

    return check


EQUAL = within(ROUNDING)


def AT_MOST(left: Values, right: Values) -> str:
    """Check that no value of the left answer is more than that of the right one."""
    for one, other in zip(left, right, strict=True):
        if not one <= other * (1 + ROUNDING):
            return f"{one!r} is more than {other!r}"
    return ""


def rising(left: Values, _: Values) -> str:
    """Check that the values of the left answer do not fall."""
    for before, after_it in pairwise(left):
        if not before <= after_it * (1 + ROUNDING):
            return f"falls from {before!r} to {after_it!r} in {list(left)}"
    return ""


def nothing(_: Scenario) -> list[float]:
    """Return no values: the right side of a relation that is about the left one alone."""
    return []


def over(key: str, values: Sequence[Any]) -> Callable[[Scenario], list[float]]:
    """Return a function that gives the time with each value of a dotted key, in order."""
    return lambda scenario: [
        time for value in values for time in after(setting({key: value}))(scenario)
    ]
