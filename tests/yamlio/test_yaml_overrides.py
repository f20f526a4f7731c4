"""Single values replaced: where they land, and how mistakes in them name them."""

from typing import Any

import pytest

from netsim.base.errors import InputError, ScenarioError
from netsim.yamlio.models import Bandwidth, Count, Model, apply_overrides, override
from netsim.yamlio.read import parse_source
from netsim.yamlio.validate import validate


class Fabric(Model):
    nic: Bandwidth


class Cluster(Model):
    nodes: Count
    fabric: Fabric | None = None


class Scenario(Model):
    name: str
    cluster: Cluster


VALID = "name: x\ncluster:\n  nodes: 4\n"


def refusal(text: str, *assignments: str) -> str:
    source = apply_overrides(parse_source(text, "x.yaml"), assignments)
    with pytest.raises(ScenarioError) as caught:
        validate(Scenario, source)
    return str(caught.value)


def overridden(text: str, *assignments: str) -> dict[str, Any]:
    return apply_overrides(parse_source(text, "x.yaml"), assignments).data


@pytest.mark.parametrize(
    ("assignment", "data"),
    [
        ("a.b=4", {"a": {"b": 4}, "l": [{"n": 1}], "s": {"a.b": [1]}, "z": None}),
        ("a={b: [1]}", {"a": {"b": [1]}, "l": [{"n": 1}], "s": {"a.b": [1]}, "z": None}),
        ("l.0.n=2:1", {"a": {"b": 1}, "l": [{"n": "2:1"}], "s": {"a.b": [1]}, "z": None}),
        ("s.a.b=[2]", {"a": {"b": 1}, "l": [{"n": 1}], "s": {"a.b": [2]}, "z": None}),
        (
            "z.y.x=a=b",
            {"a": {"b": 1}, "l": [{"n": 1}], "s": {"a.b": [1]}, "z": {"y": {"x": "a=b"}}},
        ),
        ("z=", {"a": {"b": 1}, "l": [{"n": 1}], "s": {"a.b": [1]}, "z": None}),
    ],
)
def test_overrides(assignment, data):
    assert overridden("a: {b: 1}\nl: [{n: 1}]\ns: {a.b: [1]}\nz:\n", assignment) == data


def test_overrides_leave_the_source_as_it_was():
    source = parse_source("a: {b: 1}", "x.yaml")
    apply_overrides(source, ["a.b=2"])
    assert source.data == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("a.b", "--set a.b: expected KEY=VALUE such as cluster.nodes=4"),
        ("=4", "--set =4: expected KEY=VALUE such as cluster.nodes=4"),
        ("a..b=4", "--set a..b=4: expected KEY=VALUE such as cluster.nodes=4"),
        ("a.b.c=4", "--set a.b.c=4: a.b is 1, which has nothing inside to set"),
        ("l.1=4", "--set l.1=4: l is a list of 1; expected an index below that, got '1'"),
        ("l.x=4", "--set l.x=4: l is a list of 1; expected an index below that, got 'x'"),
        ("a=[1", "--set a=[1: this list is not closed; a ',' or ']' is missing"),
        ("a=!!int 4", "--set a=!!int 4: YAML tags ('!') are refused"),
    ],
)
def test_refused_overrides(assignment, message):
    with pytest.raises(InputError) as caught:
        overridden("a: {b: 1}\nl: [1]", assignment)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("cluster.nods=4", "cluster.nods: unknown key 'nods' (did you mean nodes?)"),
        ("clutser.nodes=4", "clutser: unknown key 'clutser' (did you mean cluster?)"),
        ("cluster.nodes=0", "cluster.nodes: expected at least 1, got 0"),
        ("cluster={}", "cluster: missing key 'nodes'"),
        (
            "cluster.fabric={nic: 4}",
            "cluster.fabric.nic: expected a bandwidth such as 400Gbps "
            "or 50GB/s, got 4 (the unit is missing; did you mean 4Gbps?)",
        ),
    ],
)
def test_mistakes_in_overrides_name_them(assignment, message):
    assert refusal(VALID, assignment) == f"--set {assignment}: {message}"


def test_the_last_override_of_a_key_is_named():
    message = "--set cluster={nodes: 0}: cluster.nodes: expected at least 1, got 0"
    assert refusal(VALID, "cluster.nodes=x", "cluster={nodes: 0}") == message


def test_a_sweep_names_its_axis():
    source = override(parse_source(VALID, "x.yaml"), "cluster.nodes", 0, "sweep cluster.nodes=0")
    with pytest.raises(ScenarioError) as caught:
        validate(Scenario, source)
    assert str(caught.value) == ("sweep cluster.nodes=0: cluster.nodes: expected at least 1, got 0")
