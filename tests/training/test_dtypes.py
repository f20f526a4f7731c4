"""Every data type of a training step, whatever the step exchanges, and in what it is exchanged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from netsim.scenario.cells import expand
from netsim.scenario.names import DTYPES as BYTES
from netsim.scenario.training import (
    CompressionConfig,
    DataKind,
    Module,
    Parallelism,
    Pipeline,
    Replicas,
    Training,
)
from netsim.training.resolve import resolve_step
from netsim.training.run import Step, folded_step
from netsim.workloads.memory import memory_of
from netsim.workloads.setting import Roofline, Setting
from netsim.workloads.step import training_step
from netsim.yamlio.read import Source, parse_source
from tests.training.steps import cell, setting, step

PAGE = Path(__file__).parents[2] / "docs" / "training.md"

MODEL = "{layers: 8, hidden: 512, heads: 8, ffn: 2048, vocabulary: 1000, sequence: 256}"
EXPERTS = json.dumps(
    {
        "layers": 4,
        "hidden": 512,
        "heads": 8,
        "ffn": 2048,
        "vocabulary": 1000,
        "sequence": 256,
        "experts": 8,
        "top_k": 2,
        "expert_ffn": 512,
    }
)
DTYPES = get_args(Training.model_fields["dtype"].annotation)
WIDTH = {"float": 4, "half": 2, "bfloat16": 2, "f8e4m3": 1}
NARROW = ("fp8", "mxfp8", "nvfp4")
KINDS = get_args(DataKind)
LAYOUTS = {
    "tp": "{tp: 4}",
    "sp": "{tp: 4, sequence_parallel: true}",
    "pp": "{pp: 8}",
    "cp": "{cp: 4}",
    "tp pp": "{tp: 2, pp: 2, data: distributed-optimizer}",
    **{kind: f"{{data: {kind}}}" for kind in KINDS},
}


# What is stored alike; without units for it, a type also sends the same.
ALIKE = {"tf32": "float", **dict.fromkeys(NARROW, "bfloat16")}


def answered(dtype: str, layout: str, model: str = MODEL) -> Step:
    return step(f"  dtype: {dtype}\n  parallelism: {layout}", model=model, batch=8)


def sent(dtype: str, layout: str, model: str = MODEL) -> list[tuple[str, str, str, int]]:
    resolved = resolve_step(
        cell(f"  dtype: {dtype}\n  parallelism: {layout}", model=model, batch=8)
    )
    tasks = resolved.tape().entries
    return [(one.name, one.kind, one.dtype, one.nbytes) for one in tasks if one.collective]


def test_the_page_names_every_type() -> None:
    assert f"`{' '.join(DTYPES)}`;" in PAGE.read_text(encoding="utf-8")


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (dtype, name)
        for i, name in enumerate(LAYOUTS)
        for j, dtype in enumerate(DTYPES)
        if (i + j) % 5 == 0  # what all send is asked below
    ],
)
def test_every_type_runs_in_some_layouts_and_every_layout_with_some_types(
    dtype: str, name: str
) -> None:
    assert answered(dtype, LAYOUTS[name]).seconds > 0


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_runs_with_experts(dtype: str) -> None:
    assert answered(dtype, "{ep: 4}", EXPERTS).seconds > 0


@pytest.mark.sample(32)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_calls_are_made_in_a_type_that_is_sent(dtype: str, name: str) -> None:
    calls = sent(dtype, LAYOUTS[name])
    assert calls
    assert all(used in WIDTH and nbytes % WIDTH[used] == 0 for *_, used, nbytes in calls)
    if dtype != "fp8":
        assert calls == sent(ALIKE.get(dtype, dtype), LAYOUTS[name])


def test_types_of_activations_weights_and_gradients() -> None:
    for dtype in DTYPES:
        stored = ALIKE.get(dtype, dtype)
        exchanged = {one[0]: one[2] for one in sent(dtype, "{tp: 4}")}
        assert {used for name, used in exchanged.items() if name.startswith("mlp")} == {stored}
        held = sent(dtype, "{data: fsdp}")
        assert {used for name, _, used, _ in held if name == "weights"} == {stored}
        assert {used for name, _, used, _ in held if name == "gradients"} == {stored}
        megatron = sent(dtype, "{data: distributed-optimizer}")
        gradients = [used for name, _, used, _ in megatron if name.startswith("gradients")]
        assert set(gradients) == {"float"}
        weights = [used for name, _, used, _ in megatron if name.startswith("weights")]
        assert set(weights) == {stored}


@pytest.mark.parametrize(("backward", "part"), [(False, 0.5), (True, 0.25)])
def test_attention_and_streams_reach_their_parts_of_the_peaks(backward: bool, part: float) -> None:
    gpu = Roofline({"bfloat16": 1e15}, 3e12, 132, attention=(0.5, 0.25), memory=0.8, kernel=2e-6)
    assert gpu.attention_seconds(1e12, backward=backward) == pytest.approx(1e-3 / part + 2e-6)
    assert gpu.stream_seconds(2.4e9, 3) == pytest.approx(1e-3 + 3 * 2e-6)
    assert gpu.attention_seconds(0.0) == gpu.stream_seconds(0.0) == 0.0


def test_products_in_fp8_are_faster_and_nothing_else_is() -> None:
    fast = Roofline({"fp8": 1979e12, "bfloat16": 989e12}, 3350e9, 132, unhidden=0.0, kernel=0.0)
    size = (8192, 8192, 8192)
    narrow, wide = fast.gemm_seconds(*size, "fp8"), fast.gemm_seconds(*size, "bfloat16")
    assert narrow - fast.kernel == pytest.approx((wide - fast.kernel) * 989 / 1979)
    thin = (16, 8192, 8192)  # reading the weights is all of it
    assert fast.gemm_seconds(*thin, "fp8") < 0.6 * fast.gemm_seconds(*thin, "bfloat16")
    found = [kernels(setting(dtype=one, roofline=fast)) for one in ("fp8", "bfloat16")]
    faster = {name for name in found[0] if found[0][name] < found[1][name]}
    equal = {name for name in found[0] if found[0][name] == found[1][name]}
    assert {"norm+mlp+mlp out", "mlp in wgrad", "attention in wgrad"} <= faster
    assert {"logits", "logits wgrad", "embedding", "residual", "optimizer"} <= equal
    # Casts before the thin products around attention cost more than these gain.
    assert all("proj" in name for name in set(found[1]) - faster - equal)


def kernels(given: Setting) -> dict[str, float]:
    return {one.name: one.seconds for one in training_step(given).entries if not one.collective}


def test_without_units_for_fp8_all_is_as_in_bfloat16() -> None:
    assert kernels(setting(dtype="fp8")) == kernels(setting(dtype="bfloat16"))
    assert memory_of(setting(dtype="fp8"), 0) == memory_of(setting(dtype="bfloat16"), 0)


def blackwell(rest: str) -> dict[str, tuple[str, int]]:
    """What a step on B200 sends, by name: type and bytes."""
    text = f"cluster: {{machine: dgx-b200}}\nworkload:\n  model: {MODEL}\n  batch: 16\n{rest}"
    tasks = resolve_step(expand(parse_source(text, "x.yaml"))[0]).tape().entries
    return {one.name: (one.dtype, one.nbytes) for one in tasks if one.collective}


SP = "  parallelism: {tp: 4, sequence_parallel: true, data: fsdp}\n"


def test_inputs_of_narrow_products_are_gathered_after_their_cast() -> None:
    wide, narrow, fine = (
        blackwell(f"  dtype: {one}\n{SP}") for one in ("bfloat16", "mxfp8", "nvfp4")
    )
    dtype, nbytes = wide["mlp input"]
    assert dtype == "bfloat16"
    assert narrow["mlp input"] == ("f8e4m3", nbytes // 2 * 33 // 32)
    assert fine["mlp input"] == ("f8e4m3", nbytes // 2 * 9 // 16)
    assert narrow["mlp output"] == wide["mlp output"]
    assert narrow["weights"] == wide["weights"]
    gathered = blackwell(f"  dtype: mxfp8\n{SP}  replicas: {{gather: fp8}}\n")
    assert gathered["weights"] == ("f8e4m3", wide["weights"][1] // 2)


def test_scales_of_tensors_and_of_steps_are_agreed_upon_and_of_blocks_are_not() -> None:
    def agreed(scaling: str) -> set[str]:
        found = blackwell(f"  dtype: fp8\n  scaling: {scaling}\n{SP}")
        return {name for name in found if "largest" in name}

    assert agreed("delayed") == {"largest elements"}
    assert "mlp input largest" in agreed("tensor")
    assert agreed("block") == agreed("row") == set()


def values() -> Iterator[tuple[str, str]]:
    """Every value of every key of a training step that has names for its values."""
    places = (
        ("", Training),
        ("parallelism", Parallelism),
        ("pipeline", Pipeline),
        ("replicas", Replicas),
        ("compression", CompressionConfig),
    )
    for place, model in places:
        for name, field in model.model_fields.items():
            for value in named(field.annotation):
                yield (place, name), value


def named(annotation: object) -> list[object]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if annotation is bool:
        return [True, False]
    return [value for one in get_args(annotation) for value in named(one)]


MODULES = get_args(Module)
NEEDS = {  # what else a value wants of a step
    "interleaved": {"pipeline": {"chunks": 2}, "parallelism": {"pp": 2}},
    "zb-h1": {"parallelism": {"pp": 2}},
    "overlap_sync": {"replicas": {"sync_every": 10}},
}


@pytest.mark.sample(17)
@pytest.mark.slow
@pytest.mark.parametrize(("where", "value"), list(values()), ids=str)
def test_every_value_of_every_key_runs(where: tuple[str, str], value: object) -> None:
    place, name = where
    given: dict[str, Any] = {
        "model": json.loads(EXPERTS),
        "batch": 16,
        "allow_oom": True,
        **{key: dict(one) for one in (str(value), name) for key, one in NEEDS.get(one, {}).items()},
    }
    inside = given.setdefault(place, {}) if place else given
    inside[name] = [value] if name == "recompute" and value in MODULES else value
    cluster = {"machine": "dgx-b200"}
    resolved = resolve_step(expand(Source("x", {"cluster": cluster, "workload": given}))[0])
    assert folded_step(resolved).seconds > 0


def test_elements_have_the_bytes_of_their_names() -> None:
    own = {"half": 2, "float": 4, "double": 8, "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1}
    whole = {f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 32, 64)}
    assert {**whole, **own} == BYTES
