"""Values that may be one thing or another: one clear message, not one for every branch."""

from typing import Annotated, Any, Literal

import pydantic
import pytest

from netsim.base.errors import ScenarioError
from netsim.yamlio.models import Bandwidth, Bytes, Count, Flops, Index, ListOf, Model
from netsim.yamlio.read import parse_source
from netsim.yamlio.validate import validate
from tests.yamlio.test_validate import RatioOrZero


class Machine(Model):
    gpus: Count
    peak: Flops = 1e12


class Sizes(Model):
    first: Bytes = pydantic.Field(alias="from")
    last: Bytes = pydantic.Field(alias="to")


class Ring(Model):
    kind: Literal["ring"]
    channels: Count = 1


class Tree(Model):
    kind: Literal["tree"]
    arity: Count = 2


class Collective(Model):
    collective: str
    sizes: Sizes | ListOf[Bytes] = (8,)


class Pair(Model):
    p2p: ListOf[Index]


Algorithm = Annotated[Ring | Tree, pydantic.Field(discriminator="kind")]


def work_kind(value: Any) -> str | None:
    return next((key for key in ("collective", "p2p") if key in value), None)


class Untagged(Model):
    step: Ring | Tree
    steps: Algorithm | ListOf[Algorithm] = ()


class Tagged(Model):
    machine: Literal["dgx-a100", "dgx-h100"] | Machine = "dgx-h100"
    algorithm: Algorithm | None = None
    workload: (
        Annotated[
            Annotated[Collective, pydantic.Tag("collective")]
            | Annotated[Pair, pydantic.Tag("p2p")],
            pydantic.Discriminator(work_kind),
        ]
        | None
    ) = None
    size: Bytes | Literal["auto"] = "auto"
    left: RatioOrZero | Bandwidth = 1.0


def refusal(model: type[Model], text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        validate(model, parse_source(text, "x.yaml"))
    return str(caught.value).removeprefix("x.yaml:")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "algorithm: {kind: rng}",
            "1:19: algorithm.kind: expected one of ring, tree, got 'rng' (did you mean ring?)",
        ),
        ("algorithm: {channels: 2}", "1:1: algorithm: missing key 'kind'"),
        ("workload: {}", "1:11: workload: no key says of which kind this is"),
        (
            "algorithm: rng",
            "1:12: algorithm: expected a mapping of keys and values, got 'rng' "
            "(did you mean algorithm: {kind: ring}?)",
        ),
        ("algorithm: best", "1:12: algorithm: expected a mapping of keys and values, got 'best'"),
        ("algorithm: 7", "1:12: algorithm: expected a mapping of keys and values, got 7"),
        (
            "algorithm: {kind: tree, arity: two}",
            "1:32: algorithm.arity: expected a whole number, got 'two'",
        ),
        (
            "workload: {collective: all_reduce, sizes: [8, 64M]}",
            "1:47: workload.sizes.1: expected a size such as 64MiB, 64MB or 8B, got '64M' "
            "(did you mean 64MiB?)",
        ),
        (
            "workload: {collective: all_reduce, sizes: {from: 8, too: 9}}",
            "1:53: workload.sizes.too: unknown key 'too' (did you mean to?)",
        ),
        (
            "workload: {collective: all_reduce, sizes: big}",
            "1:43: workload.sizes: expected a mapping of keys and values or a list, got 'big'",
        ),
        ("workload: {p2p: [0, -1]}", "1:21: workload.p2p.1: expected at least 0, got -1"),
        (
            "size: 64M",
            "1:7: size: expected a size such as 64MiB, 64MB or 8B or auto, got '64M' "
            "(did you mean 64MiB?)",
        ),
        (
            "left: often",
            "1:7: left: expected a ratio such as 2, 2:1 or 50% or "
            "a bandwidth such as 400Gbps or 50GB/s, got 'often'",
        ),
        (
            "machine: dgx-h10",
            "1:10: machine: expected one of dgx-a100, dgx-h100 or "
            "a mapping of keys and values, got 'dgx-h10' (did you mean dgx-h100?)",
        ),
        ("machine: {gpus: 0}", "1:17: machine.gpus: expected at least 1, got 0"),
    ],
)
def test_unions_give_one_clear_message(lines, message):
    assert refusal(Tagged, lines) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "step: {kind: rng}",
            "step.kind: expected one of ring, tree, got 'rng' (did you mean ring?)",
        ),
        ("step: {kind: tree, arity: 0}", "step.arity: expected at least 1, got 0"),
        ("step: {}", "step: missing key 'kind'"),
        (
            "step: {kind: ring}\nsteps: {kind: ring, channels: 0}",
            "steps.channels: expected at least 1, got 0",
        ),
        (
            "step: {kind: ring}\nsteps: [{kind: ring}, {kind: tree, arity: x}]",
            "steps.1.arity: expected a whole number, got 'x'",
        ),
        (
            "step: {kind: ring}\nsteps: [{kind: x}]",
            "steps.0.kind: expected one of ring, tree, got 'x'",
        ),
    ],
)
def test_unions_without_tags_and_unions_inside_unions(text, message):
    assert refusal(Untagged, text).split(": ", 1)[1] == message


class Explained(Model):
    work: Annotated[
        Annotated[Collective, pydantic.Tag("collective")] | Annotated[Pair, pydantic.Tag("p2p")],
        pydantic.Discriminator(
            lambda value: None,
            custom_error_type="workload",
            custom_error_message="a workload has one of the keys collective, p2p",
        ),
    ]
    key: pydantic.UUID4 | None = None


def test_words_of_the_model_and_rare_types_pass_through():
    assert refusal(Explained, "work: {}\nkey: 5").splitlines() == [
        "1:7: work: a workload has one of the keys collective, p2p",
        "x.yaml:2:6: key: expected an instance of UUID, got 5",
    ]


class Shape(Model):
    kind: Literal["ring", "torus"] | None = None
    size: int = 1


class Holder(Model):
    shape: Shape = Shape()


@pytest.mark.parametrize(("key", "hint"), [("torus", "kind: torus"), ("sizes", "size")])
def test_a_word_that_a_sibling_takes_is_told_with_its_key(key: str, hint: str) -> None:
    source = parse_source(f"shape: {{{key}: 3}}\n", "x.yaml")
    with pytest.raises(ScenarioError) as caught:
        validate(Holder, source)
    assert f"unknown key '{key}' (did you mean {hint}?)" in str(caught.value)
