"""Errors print as one clear text with a place, and survive the way back from a worker."""

import pickle

import pytest

from netsim.base.errors import (
    InputError,
    NetsimError,
    ScenarioError,
    ScenarioErrors,
    StalledError,
    nearest,
    shown,
    suggest,
)


def place(line: int) -> ScenarioError:
    return ScenarioError("bad", source="x.yaml", line=line, column=3, field="a.b")


def test_the_form_of_a_scenario_error():
    error = ScenarioError(
        "expected a bandwidth such as 400Gbps or 50GB/s, got '400Gb'",
        source="scenarios/x.yaml",
        line=6,
        column=18,
        field="cluster.fabric.nic",
        hint="did you mean 400Gbps?",
    )
    assert str(error) == (
        "scenarios/x.yaml:6:18: cluster.fabric.nic: expected a bandwidth such as 400Gbps or "
        "50GB/s, got '400Gb' (did you mean 400Gbps?)"
    )


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({}, "bad"),
        ({"source": "x.yaml"}, "x.yaml: bad"),
        ({"source": "x.yaml", "line": 4}, "x.yaml:4: bad"),
        ({"field": "seed"}, "seed: bad"),
        ({"source": "--set a=b", "field": "a"}, "--set a=b: a: bad"),
        ({"line": 2, "column": 1}, "2:1: bad"),
    ],
)
def test_unknown_parts_are_left_out(known, text):
    assert str(ScenarioError("bad", **known)) == text


def test_exit_codes():
    assert [kind.exit_code for kind in (NetsimError, InputError, ScenarioError)] == [2, 2, 2]
    assert StalledError.exit_code == 3


def test_several_errors_print_one_a_line():
    errors = ScenarioErrors([place(1), place(2)])
    assert str(errors) == "x.yaml:1:3: a.b: bad\nx.yaml:2:3: a.b: bad"
    assert (errors.line, errors.field) == (1, "a.b")
    assert [error.line for error in errors.errors] == [1, 2]


def test_the_printed_list_is_cut():
    lines = str(ScenarioErrors([place(n) for n in range(1, 24)])).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "... and 3 more errors"


def test_a_single_error_lists_itself():
    error = place(1)
    assert error.errors == (error,)


@pytest.mark.parametrize("error", [place(7), ScenarioErrors([place(1), place(2)])])
def test_errors_can_be_pickled(error):
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), type(again), again.line) == (str(error), type(error), error.line)


@pytest.mark.parametrize(
    ("word", "choices", "near"),
    [
        ("bandwith", ["latency", "bandwidth"], "bandwidth"),
        ("ring", ["Ring", "string"], "Ring"),
        ("all-reduce", ["all_gather", "all_reduce"], "all_reduce"),
        ("rng", ["tree", "ring"], "ring"),
        ("zzz", ["ring"], None),
        ("", ["ring"], None),
        ("ring", [], None),
    ],
)
def test_nearest(word, choices, near):
    assert nearest(word, choices) == near
    assert suggest(word, choices) == (f" (did you mean {near}?)" if near else "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        (False, "false"),
        ("8", "'8'"),
        (8, "8"),
        (2.5, "2.5"),
        ({}, "a mapping"),
        ([1], "a list"),
        ((), "a list"),
        ("a\nb", r"'a\nb'"),
        ("x" * 100, "'" + "x" * 60 + "...'"),
    ],
)
def test_shown(value, text):
    assert shown(value) == text
