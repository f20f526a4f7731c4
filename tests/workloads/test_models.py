"""Presets have the parameters and FLOPs that were published."""

from types import SimpleNamespace

import pytest

from netsim.scenario.training import TransformerConfig
from netsim.training.resolve import layer_flops, model_flops, model_of
from netsim.workloads.model import MODELS, Transformer, layers_of

# Parameters of the released checkpoints, to the last one.
PUBLISHED = {
    "llama2-70b": 68_976_648_192,
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
    [
        ("gpt3-175b", 175, 175),
        ("deepseek-v3", 671, 37),
        ("kimi-k2", 1026, 32.6),
        ("mixtral-8x7b", 46.7, 12.9),
    ],
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


# What of the parameters no token passes through: tables of embeddings, which it reads a row of.
READ_ONLY = {"llama3-8b": 128256 * 4096, "llama3-70b": 128256 * 8192, "mixtral-8x7b": 32000 * 4096}


@pytest.mark.parametrize("name", ["llama3-8b", "llama3-70b"])
def test_dense_models_take_six_flops_a_parameter_but_those_of_the_embedding(name: str) -> None:
    """PaLM, appendix B: 6 N + 12 L H Q T for a token, of which causal attention needs half; N has
    the logits and not the table of the embedding."""
    model = MODELS[name]
    assert isinstance(model, Transformer)
    s = model.sequence
    passed = PUBLISHED[name] - READ_ONLY[name]
    closed = 6 * passed + 12 * model.layers * model.heads * model.head * s / 2
    assert model_flops(model, 1, s) / s == pytest.approx(closed, rel=1e-12)


def test_experts_count_only_where_a_token_goes() -> None:
    model = MODELS["mixtral-8x7b"]
    assert isinstance(model, Transformer)
    s, experts = 4096, 32 * 8 * 3 * 4096 * 14336
    passed = PUBLISHED["mixtral-8x7b"] - READ_ONLY["mixtral-8x7b"] - experts * 6 // 8
    closed = 6 * passed + 12 * 32 * 4096 * s / 2
    assert model_flops(model, 1, s) / s == pytest.approx(closed, rel=1e-12)


def test_logits_count_whether_their_matrix_is_that_of_the_embedding_or_not() -> None:
    numbers = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "vocabulary": 1000}
    own, shared = (
        model_of(SimpleNamespace(model=TransformerConfig(**numbers, tied=tied)))
        for tied in (False, True)
    )
    assert own.parameters - shared.parameters == 64 * 1000
    assert model_flops(own, 2, 128) == model_flops(shared, 2, 128)


def test_each_predicted_token_has_logits_of_its_own() -> None:
    once, twice = MODELS["deepseek-v3"], MODELS["deepseek-v3-mtp"]
    assert isinstance(once, Transformer)
    assert isinstance(twice, Transformer)
    block = layers_of(twice)[-2]
    more = 3 * (layer_flops(twice, block, 4096) + 2 * 129280 * 7168)
    assert model_flops(twice, 1, 4096) / 4096 - model_flops(once, 1, 4096) / 4096 == pytest.approx(
        more, rel=1e-9
    )


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
