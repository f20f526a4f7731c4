"""Presets have the parameters and FLOPs that were published."""

from types import SimpleNamespace

import pytest

from netsim.scenario.training import TransformerConfig
from netsim.training.prepare import layer_flops, model_flops, model_of
from netsim.workloads.model import MODELS, Transformer, layers_of

# Parameters of the released checkpoints, to the last one.
PUBLISHED = {
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    "qwen3-30b-a3b": 30_532_122_624,
    "bert-base": 109_482_240,
    "resnet-50": 25_557_032,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_parameters_are_those_of_the_checkpoint(name: str, parameters: int) -> None:
    assert MODELS[name].parameters == parameters


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [("gpt3-175b", 175, 175), ("deepseek-v3", 671, 37), ("mixtral-8x7b", 46.7, 12.9)],
)
def test_parameters_are_those_of_the_paper(name: str, billions: float, active: float) -> None:
    model = MODELS[name]
    assert isinstance(model, Transformer)
    assert model.parameters == pytest.approx(billions * 1e9, rel=0.005)
    idle = 1 - model.top_k / max(model.experts, 1)  # of the experts, for one token
    left_out = sum(layer.expert_parameters for layer in layers_of(model)) * idle
    assert model.parameters - left_out == pytest.approx(active * 1e9, rel=0.02)


def test_resnet_50_has_the_flops_of_its_paper() -> None:
    model = MODELS["resnet-50"]
    forward = sum(layer.plain.flops for layer in layers_of(model))
    assert forward / 2 == pytest.approx(4.09e9, rel=0.002)  # torchvision: 4.09 GMACs
    assert model_flops(model, 1, 1) == pytest.approx(3 * forward)


def test_gpt3_takes_the_flops_of_the_closed_form() -> None:
    """Narayanan et al. 2021, eq. 2 without recomputation (96 -> 72), for undivided attention."""
    model = MODELS["gpt3-175b"]
    assert isinstance(model, Transformer)
    layers, hidden, s, vocabulary = 96, 12288, 2048, model.vocabulary
    closed = (
        72 * s * layers * hidden**2 * (1 + s / (6 * hidden) + vocabulary / (12 * layers * hidden))
    )
    attention = 12 * layers * s * s * hidden  # half of it is not needed: it is causal
    assert model_flops(model, 1, s) == pytest.approx(closed - attention / 2, rel=1e-3)


def test_flops_of_layers_add_up() -> None:
    model = MODELS["llama3-8b"]
    assert isinstance(model, Transformer)
    total = sum(layer_flops(model, layer, 8192) for layer in layers_of(model))
    assert model_flops(model, 3, 8192) == pytest.approx(3 * total * 3 * 8192)


def test_what_a_model_of_numbers_leaves_out_follows_from_the_others() -> None:
    numbers = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "vocabulary": 100}
    plain = model_of(SimpleNamespace(model=TransformerConfig(**numbers)))
    assert (plain.kv_heads, plain.head, plain.expert_ffn, plain.norm_biases) == (4, 16, 256, False)
    given = {
        "kv_heads": 2,
        "head_size": 8,
        "expert_ffn": 32,
        "biases": True,
        "experts": 4,
        "top_k": 2,
    }
    told = model_of(SimpleNamespace(model=TransformerConfig(**numbers, **given)))
    assert (told.kv_heads, told.head, told.expert_ffn, told.norm_biases) == (2, 8, 32, True)
