"""Adapters of low rank (LoRA): what they add, and what frozen weights save."""

from dataclasses import replace
from typing import Any

import pytest

from netsim.base.errors import ScenarioError
from netsim.training.resolve import model_flops, resolve_step
from netsim.workloads.memory import memory_of
from netsim.workloads.model import ADAPTED, MODELS, Adapters, Transformer, layers_of
from netsim.workloads.passes import PassTable
from netsim.workloads.setting import Setting
from netsim.workloads.step import training_step
from tests.training.steps import SMALL, cell, setting

EVERY = tuple(ADAPTED)
LARGE = replace(SMALL, hidden=4096, heads=32, kv_heads=8, ffn=14336, sequence=4096)
KINDS = ("ddp", "allreduce", "zero1", "zero2", "distributed-optimizer", "fsdp", "fsdp2")


def adapted(
    rank: int, *targets: str, model: Transformer = LARGE, **given: Any
) -> tuple[Setting, Setting]:
    """A setting that trains adapters, and the same that trains all weights."""
    full = setting(**given, model=model, sequence=model.sequence)
    adapters = Adapters(rank, targets or EVERY)
    return replace(full, model=replace(model, adapters=adapters)), full


def busy_seconds(s: Setting) -> float:
    """The seconds of all kernels of a step."""
    return sum(entry.seconds for entry in training_step(s).entries)


def bytes_of(s: Setting, kind: str, *names: str) -> int:
    """The bytes of the collectives of one kind whose names begin with one of `names`."""
    return sum(
        entry.nbytes
        for entry in training_step(s).entries
        if entry.kind == kind and entry.collective and entry.name.startswith(names)
    )


@pytest.mark.parametrize("data", KINDS)
def test_frozen_weights_take_less_time_and_memory_than_trained_ones(data: str) -> None:
    lora, full = adapted(16, dp=4, data=data)
    assert busy_seconds(lora) < busy_seconds(full)
    assert memory_of(lora, 0).total < memory_of(full, 0).total
    assert memory_of(lora, 0).optimizer < 0.05 * memory_of(full, 0).optimizer
    assert memory_of(lora, 0).gradients < 0.05 * memory_of(full, 0).gradients


def test_inputs_of_frozen_products_are_not_stored_unless_an_adapter_reads_them() -> None:
    attention_only, full = adapted(16, "linear_qkv")
    all_layers, _ = adapted(16)
    stored = memory_of(full, 0).activations
    assert memory_of(attention_only, 0).activations < 0.85 * stored
    assert stored < memory_of(all_layers, 0).activations < 1.01 * stored


@pytest.mark.parametrize("data", KINDS)
def test_gradients_in_messages_are_those_of_adapters_and_grow_with_the_rank(data: str) -> None:
    names = ("gradients", "bucket")
    sent = {rank: bytes_of(adapted(rank, dp=4, data=data)[0], "dp", *names) for rank in (8, 16, 64)}
    # A block of 4,096 features with 1,024 of keys and values, and an MLP of 14,336 twice.
    widths = 4096 + 6144, 4096 + 4096, 4096 + 2 * 14336, 14336 + 4096
    element = adapted(8, dp=4, data=data)[0].gradient_element
    assert sent[8] == 8 * LARGE.layers * sum(widths) * element
    assert sent[16] == 2 * sent[8]
    assert sent[64] == 8 * sent[8]


def test_sharded_frozen_weights_are_gathered_though_they_have_no_gradients() -> None:
    lora, full = adapted(16, dp=4, data="fsdp")
    gathered = bytes_of(full, "dp", "weights")
    assert bytes_of(lora, "dp", "weights") > gathered
    assert bytes_of(lora, "dp", "weights") < 1.02 * gathered


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("tp", [1, 2])
def test_each_adapter_adds_two_products_forward_and_four_backward(target: str, tp: int) -> None:
    lora, _ = adapted(16, target, tp=tp, sequence_parallel=tp > 1)
    block = layers_of(lora.model)[1]
    passes = PassTable(lora).of(block)
    named = "+".join(part.name for part in (*passes.forward, *passes.backward))
    name, _ = ADAPTED[target]
    for added in ("in", "out", "sum", "out dgrad", "out wgrad", "in dgrad", "in wgrad"):
        assert f"{name} {added}" in named
    assert "mlp out wgrad" not in named
    assert "proj wgrad" not in named


def test_nothing_goes_back_through_a_frozen_embedding() -> None:
    lora, full = adapted(16, pp=2, model=replace(LARGE, tied=True))
    assert PassTable(lora).of(layers_of(lora.model)[0]).backward == ()
    assert bytes_of(full, "pp", "embedding gradients") > 0
    assert bytes_of(lora, "pp", "embedding gradients") == 0


def test_an_adapter_beside_divided_outputs_gathers_its_features() -> None:
    lora, _ = adapted(16, "linear_qkv", tp=2, sequence_parallel=True)
    features = bytes_of(lora, "tp", "qkv adapter features")
    assert features == LARGE.layers * lora.micro_batches * lora.tokens * 16 * lora.element
    assert bytes_of(lora, "tp", "qkv adapter input") == 0
    apart = replace(lora, tensor_overlap="pipelined")
    assert bytes_of(apart, "tp", "qkv adapter input") > 0


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "interleaved"])
@pytest.mark.parametrize("data", ["ddp", "distributed-optimizer"])
def test_every_schedule_trains_adapters(schedule: str, data: str) -> None:
    chunks = 2 if schedule == "interleaved" else 1
    lora, full = adapted(16, pp=2, dp=2, data=data, schedule=schedule, chunks=chunks)
    assert busy_seconds(lora) < busy_seconds(full)


def test_products_with_frozen_weights_count_twice_in_model_flops() -> None:
    """NVIDIA's tables count 278 GFLOPs for a token of Llama 3 70B with LoRA: 4 for each parameter
    that it passes through (2,072 TFLOP/s at 7,447 tokens a second), without attention."""
    model = MODELS["llama3-70b"]
    assert isinstance(model, Transformer)
    lora = replace(model, adapters=Adapters(16, ("linear_qkv",)))
    attention = 12 * model.layers * model.heads * model.head * 4096 / 2
    assert model_flops(lora, 1, 4096) / 4096 - attention == pytest.approx(278.2e9, rel=2e-3)


@pytest.mark.parametrize(
    ("rest", "model", "message"),
    [
        ("  lora: {rank: 0}", "llama3-8b", "lora.rank: expected at least 1, got 0"),
        ("  lora: {targets: []}", "llama3-8b", "lora.targets: expected at least one linear layer"),
        ("  lora: {targets: [qkv]}", "llama3-8b", "lora.targets"),
        ("  lora: {targets: [linear_qkv, linear_qkv]}", "llama3-8b", "named twice"),
        ("  lora: {}", "mixtral-8x7b", "lora.targets: adapters of experts are not simulated"),
        ("  lora: {targets: [linear_qkv]}", "deepseek-v3", "has no linear_qkv"),
        ("  lora: {}", "resnet-50", "a list of layers has no linear layers"),
        ("  lora: {rank: 6}\n  parallelism: {tp: 4}", "llama3-8b", "not divisible by tp 4"),
    ],
)
def test_adapters_that_make_no_sense_are_refused(rest: str, model: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        resolve_step(cell(rest, model=model))
    assert message in str(error.value)
    assert "lora" in str(error.value)


def test_adapters_have_the_usual_rank_and_targets_of_megatron_bridge() -> None:
    model = resolve_step(cell("  lora: {}", model="llama3-8b")).setting.model
    assert isinstance(model, Transformer)
    assert model.adapters == Adapters(32, EVERY)
