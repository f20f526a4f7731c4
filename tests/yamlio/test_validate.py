"""Models against files: every mistake once, at its place, in plain words."""

from functools import partial
from typing import Annotated, Literal

import pydantic
import pytest

from netsim.base.errors import ScenarioError
from netsim.base.units import parse_ratio
from netsim.yamlio.models import (
    Bandwidth,
    Count,
    FieldError,
    Flops,
    Index,
    ListOf,
    Model,
    Ratio,
    Seconds,
    Written,
)
from netsim.yamlio.read import Source, parse_source
from netsim.yamlio.validate import validate

RatioOrZero = Annotated[float, pydantic.BeforeValidator(partial(parse_ratio, allow_zero=True))]


class Fabric(Model):
    kind: Literal["rail-optimized", "single-switch"] = "single-switch"
    nic: Bandwidth = 50e9
    latency: Seconds = 0.0
    oversubscription: Ratio = 1.0


class Machine(Model):
    gpus: Count
    peak: Flops = 1e12


class Cluster(Model):
    nodes: Count
    fabric: Fabric = Fabric()


class Scenario(Model):
    name: str
    cluster: Cluster
    seed: Index = 0
    left: RatioOrZero = 1.0
    groups: Annotated[ListOf[Machine], pydantic.Field(min_length=1)] = ()
    version: Written = "2.27"
    env: dict[str, Written] = pydantic.Field(default_factory=dict)
    trace: bool = False
    scale: Annotated[float, pydantic.Field(gt=0, lt=10, allow_inf_nan=False)] = 1.0
    code: Annotated[str, pydantic.Field(pattern="^[a-z]+$", max_length=3)] = "a"
    shares: dict[Literal["a", "b"], float] = pydantic.Field(default_factory=dict)
    pair: Annotated[tuple[int, str], pydantic.Strict(False)] | None = None

    @pydantic.field_validator("name")
    @classmethod
    def _no_spaces(cls, name: str) -> str:
        if " " in name:
            raise ValueError(f"a name has no spaces, got {name!r}")
        return name

    @pydantic.model_validator(mode="after")
    def _seed_below_nodes(self) -> "Scenario":
        if self.seed > 100:
            raise FieldError("more than 100 seeds are never needed", "seed")
        return self


VALID = "name: x\ncluster:\n  nodes: 4\n"


def refusal(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        validate(Scenario, parse_source(text, "x.yaml"))
    return str(caught.value)


def test_a_valid_file_is_a_model_in_si_units():
    text = VALID + (
        "  fabric: {kind: rail-optimized, nic: 400Gbps, latency: 600ns, oversubscription: 2:1}\n"
        "groups: [{gpus: 8, peak: 989TFLOPS}]\n"
        "left: 0%\nversion: 2.30\nenv: {A: 16, B: no, C: true}\n"
    )
    scenario = validate(Scenario, parse_source(text, "x.yaml"))
    assert scenario.cluster.fabric == Fabric.model_construct(
        kind="rail-optimized", nic=50e9, latency=6e-7, oversubscription=2.0
    )
    assert scenario.groups == (Machine.model_construct(gpus=8, peak=989e12),)
    assert (scenario.version, scenario.left) == ("2.30", 0.0)
    assert scenario.env == {"A": "16", "B": "no", "C": "true"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("sede: 1", "4:1: sede: unknown key 'sede' (did you mean seed?)"),
        (
            "groups: [{gpus: 1, zzz: 1}]",
            "4:20: groups.0.zzz: unknown key 'zzz' (known: gpus, peak)",
        ),
        ("  fabrik: {}", "4:3: cluster.fabrik: unknown key 'fabrik' (did you mean fabric?)"),
        ("groups: [{gpu: 1}]", "4:11: groups.0.gpu: unknown key 'gpu' (did you mean gpus?)"),
        ("groups:\n  - {}", "5:5: groups.0: missing key 'gpus'"),
        ("seed: eight", "4:7: seed: expected a whole number, got 'eight'"),
        (
            "seed: '8'",
            "4:7: seed: expected a whole number, got '8' (did you mean 8 without quotes?)",
        ),
        (
            "seed: 1_000",
            "4:7: seed: expected a whole number, got '1_000' (did you mean 1000 without quotes?)",
        ),
        ("seed: 1.5", "4:7: seed: expected a whole number, got 1.5"),
        ("seed: 1e2", "4:7: seed: expected a whole number, got 1e2"),
        ("seed: true", "4:7: seed: expected a whole number, got true"),
        ("seed:", "4:6: seed: expected a whole number, got nothing"),
        ("seed: -1", "4:7: seed: expected at least 0, got -1"),
        ("seed: 101", "4:7: seed: more than 100 seeds are never needed"),
        ("trace: yes", "4:8: trace: expected true or false, got 'yes' (did you mean true?)"),
        ("trace: 1", "4:8: trace: expected true or false, got 1"),
        ("scale: big", "4:8: scale: expected a number, got 'big'"),
        ("scale: .nan", "4:8: scale: expected a finite number, got nan"),
        ("scale: 0", "4:8: scale: expected more than 0, got 0"),
        ("scale: 10", "4:8: scale: expected less than 10, got 10"),
        ("code: 5", "4:7: code: expected text, got 5 (did you mean '5' in quotes?)"),
        ("code: '5'", "4:7: code: expected text of the form ^[a-z]+$, got '5'"),
        ("code: abcd", "4:7: code: expected at most 3 characters, got 'abcd'"),
        ("groups: 3", "4:9: groups: expected a list, got 3"),
        ("groups: [4]", "4:10: groups.0: expected a mapping of keys and values, got 4"),
        ("pair: [1]", "4:1: pair: missing entry 1"),
        ("pair: [1, 2]", "4:11: pair.1: expected text, got 2 (did you mean '2' in quotes?)"),
        ("env: {A: [1]}", "4:10: env.A: expected text or a number, got a list"),
        ("groups: []", "4:9: groups: expected a list of length at least 1, got length 0"),
        ("shares: {c: 1}", "4:10: shares.c: expected one of a, b, got 'c'"),
        ("shares: {a: x}", "4:13: shares.a: expected a number, got 'x'"),
        (
            "  fabric: {nic: 400Gb}",
            "4:17: cluster.fabric.nic: expected a bandwidth such as 400Gbps or 50GB/s, "
            "got '400Gb' (did you mean 400Gbps?)",
        ),
        (
            "  fabric: {kind: rail-optimised}",
            "4:18: cluster.fabric.kind: expected one of rail-optimized, single-switch, "
            "got 'rail-optimised' (did you mean rail-optimized?)",
        ),
    ],
)
def test_one_mistake_one_line(lines, message):
    assert refusal(VALID + lines) == f"x.yaml:{message}"


def test_a_missing_key_is_told_at_its_parent():
    assert refusal("name: x\ncluster:\n  fabric: {}") == (
        "x.yaml:2:1: cluster: missing key 'nodes'"
    )
    assert refusal("# nothing\nseed: 1\ncluster: {nodes: 1}") == "x.yaml:2:1: missing key 'name'"


def test_our_own_validators_pass_through():
    assert refusal("name: a b\ncluster: {nodes: 1}") == (
        "x.yaml:1:7: name: a name has no spaces, got 'a b'"
    )


def test_every_mistake_is_told_in_the_order_of_the_file():
    assert refusal("seed: x\nnme: y\ncluster:\n  nods: 4\n").splitlines() == [
        "x.yaml:1:7: seed: expected a whole number, got 'x'",
        "x.yaml:2:1: nme: unknown key 'nme' (did you mean name?)",
        "x.yaml:4:3: cluster.nods: unknown key 'nods' (did you mean nodes?)",
    ]


def test_a_part_of_a_source_can_be_validated():
    source = parse_source("a:\n  - gpus: 4\n  - gpus: x\n", "x.yaml")
    assert validate(Machine, source, ("a", 0)).gpus == 4
    with pytest.raises(ScenarioError) as caught:
        validate(Machine, source, ("a", 1))
    assert str(caught.value) == "x.yaml:3:11: a.1.gpus: expected a whole number, got 'x'"


def test_values_without_a_file_are_told_by_name():
    with pytest.raises(ScenarioError) as caught:
        validate(Machine, Source("expect", {"gpus": 0}, origins={("gpus",): "--gpus 0"}))
    assert str(caught.value) == "--gpus 0: gpus: expected at least 1, got 0"
    with pytest.raises(ScenarioError) as caught:
        validate(Machine, Source("expect", {}))
    assert str(caught.value) == "expect: missing key 'gpus'"


def test_the_schema_shows_examples():
    fields = Scenario.model_json_schema()["$defs"]["Fabric"]["properties"]
    assert fields["nic"]["examples"] == ["400Gbps", "50GB/s", "inf"]
    assert fields["oversubscription"]["type"] == ["string", "number"]
