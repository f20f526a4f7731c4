"""Hybrid models of Mamba-2 layers, attention and experts: their layers, costs and refusals."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from netsim.base.errors import ScenarioError
from netsim.training.resolve import model_flops, resolve_step
from netsim.workloads.kernels import Shapes
from netsim.workloads.mamba import mixed_seconds
from netsim.workloads.memory import full_activation_bytes, memory_of
from netsim.workloads.model import MODELS, Layer, Mamba, Transformer, layers_of
from netsim.workloads.passes import PassTable
from netsim.workloads.setting import Setting
from netsim.workloads.step import training_step
from tests.training.steps import SMALL, cell, setting

NANO = MODELS["nemotron-3-nano"]
SUPER = MODELS["nemotron-3-super"]
assert isinstance(NANO, Transformer)
assert isinstance(SUPER, Transformer)
MIXER = Mamba(heads=32, head=64, groups=8, state=128, convolution=4, chunk=128)
HYBRID = replace(
    SMALL,
    layers=8,
    hidden=1024,
    sequence=4096,
    gated=False,
    rotary=False,
    experts=16,
    top_k=4,
    expert_ffn=512,
    shared_ffn=1024,
    pattern="MEM*ME-E",
    mamba=MIXER,
)


def of_hybrid(model: Transformer = HYBRID, **given: Any) -> Setting:
    """A setting of a hybrid model."""
    return setting(**given, model=model, sequence=model.sequence)


def layer_of(model: Transformer, mixer: str) -> Layer:
    """The first layer of a kind."""
    return next(layer for layer in layers_of(model) if layer.mixer == mixer)


def sent(s: Setting, mixer: str, name: str) -> int:
    """The bytes of the collectives of a kind of layer whose names contain `name`."""
    assert isinstance(s.model, Transformer)
    passes = PassTable(s).of(layer_of(s.model, mixer))
    parts = (*passes.forward, *passes.backward)
    return sum(part.nbytes for part in parts if part.collective and name in part.name)


@pytest.mark.parametrize(
    ("model", "kinds"),
    [(NANO, {"M": 23, "E": 23, "*": 6}), (SUPER, {"M": 40, "E": 42, "*": 10})],
)
def test_each_layer_of_a_pattern_is_of_its_kind(model: Transformer, kinds: dict[str, int]) -> None:
    blocks = [layer for layer in layers_of(model) if layer.kind == "block"]
    assert len(blocks) == model.layers
    assert Counter(layer.mixer for layer in blocks) == kinds


def test_parameters_of_nemotron_3_are_those_that_are_published() -> None:
    """Nano 30B-A3B: 31.6e9, of which 3.6e9 for a token. Super 120B-A12B: 120.6e9 without the
    block that predicts further tokens, of which 12.7e9 for a token."""
    for model, total, active in ((NANO, 31.6e9, 3.6e9), (SUPER, 120.6e9, 12.7e9)):
        main = replace(model, pattern=model.pattern.removesuffix(model.again or "/"), again="")
        main = replace(main, layers=len(main.pattern))
        idle = sum(layer.expert_parameters for layer in layers_of(main))
        idle *= 1 - main.top_k / main.experts
        assert main.parameters == pytest.approx(total, rel=2e-3)
        assert main.parameters - idle == pytest.approx(active, rel=0.02)


def test_model_flops_of_nemotron_3_are_those_of_the_published_tables() -> None:
    """Super on 64 GB300: 831 TFLOP/s at 9,856 tokens a second. Nano on 8 GB200: 776 at 34,816,
    where Megatron-Bridge takes twice the hidden features for those of the heads."""
    assert model_flops(SUPER, 1, 8192) / 8192 == pytest.approx(831e12 / 9856, rel=0.015)
    assert NANO.mamba is not None
    wider = replace(NANO, mamba=replace(NANO.mamba, heads=2 * NANO.hidden // NANO.mamba.head))
    assert model_flops(wider, 1, 8192) / 8192 == pytest.approx(776e12 / 34816, rel=0.015)


def test_layers_that_run_again_compute_but_have_no_weights() -> None:
    once = replace(HYBRID, pattern="MEM*ME*E")
    twice = replace(once, layers=10, again="*E")
    assert twice.parameters == once.parameters
    assert model_flops(twice, 1, 4096) > model_flops(once, 1, 4096)
    times = [
        sum(entry.seconds for entry in training_step(of_hybrid(model, dp=2)).entries)
        for model in (once, twice)
    ]
    assert times[1] > 1.1 * times[0]
    gradients = [
        sum(
            entry.nbytes
            for entry in training_step(of_hybrid(model, dp=2)).entries
            if entry.kind == "dp"
        )
        for model in (once, twice)
    ]
    assert gradients[0] == gradients[1]


@pytest.mark.parametrize("backward", [False, True])
def test_the_scan_takes_time_in_proportion_to_heads_and_tokens(backward: bool) -> None:
    def seconds(mixer: Mamba, **given: Any) -> float:
        s = of_hybrid(replace(HYBRID, mamba=mixer), **given)
        assert isinstance(s.model, Transformer)
        s = replace(s, roofline=replace(s.roofline, kernel=1e-12))
        return mixed_seconds(Shapes(s.model, s), mixer, backward=backward)

    base = seconds(MIXER)
    doubled = replace(MIXER, heads=64, groups=16)
    assert seconds(doubled) == pytest.approx(2 * base, rel=1e-3)
    assert seconds(doubled, tp=2, sequence_parallel=True) == pytest.approx(base, rel=1e-3)
    # Copies between layouts are needed once a micro-batch has several samples.
    assert 2 * base < seconds(MIXER, micro=2) < 3 * base
    assert seconds(replace(MIXER, state=64)) < base


def test_the_scan_moves_states_less_often_with_longer_chunks() -> None:
    """Bytes of states fall with the length of chunks, FLOPs inside chunks grow with it."""
    fast = replace(of_hybrid().roofline, attention=(1e9, 1e9), kernel=0.0)
    slow = replace(fast, attention=(1e-6, 1e-6))
    times = {
        (kind, chunk): mixed_seconds(
            Shapes(HYBRID, replace(of_hybrid(), roofline=roofline)), replace(MIXER, chunk=chunk)
        )
        for kind, roofline in (("memory", fast), ("products", slow))
        for chunk in (64, 128, 256)
    }
    assert times["memory", 64] > times["memory", 128]
    assert times["products", 64] < times["products", 128] < times["products", 256]


def test_memory_bound_kernels_of_the_scan_take_what_their_bytes_take() -> None:
    """The forward pass by hand, for one token: convolution, step sizes, states, scores, outputs and
    norm, in the bytes of 16-bit features and of fp32 states."""
    s = replace(of_hybrid(), roofline=replace(of_hybrid().roofline, kernel=0.0))
    s = replace(s, roofline=replace(s.roofline, attention=(1e9, 1e9)))
    inner, vectors, heads, groups, chunk = 32 * 64, 8 * 128, 32, 8, 128
    states = inner * 128 / chunk
    moved = 2 * 2 * (inner + 2 * vectors)
    moved += heads * (2 + 4 + 4)
    moved += 2 * (inner + vectors) + 4 * states
    moved += (4 + 2) * states
    moved += 2 * 2 * vectors + 4 * groups * chunk
    moved += 2 * (4 * inner + vectors) + 2 * states + 4 * groups * chunk
    moved += 2 * 2 * inner
    rate = s.roofline.bandwidth * s.roofline.memory * s.roofline.scan
    assert mixed_seconds(Shapes(HYBRID, s), MIXER) == pytest.approx(moved * s.tokens / rate)


def test_tensor_parallelism_gathers_and_scatters_around_a_mamba_layer() -> None:
    s = of_hybrid(tp=2, sequence_parallel=True)
    message = s.tokens * HYBRID.hidden * s.element
    assert sent(s, "M", "mamba input") == 3 * message  # forward, gradient, again
    assert sent(s, "M", "mamba output") == 2 * message


def test_tokens_are_sent_to_experts_in_their_compressed_space() -> None:
    plain = of_hybrid(ep=2)
    latent = of_hybrid(replace(HYBRID, expert_latent=256), ep=2)
    assert sent(plain, "E", "dispatch") == 4 * sent(latent, "E", "dispatch")
    assert sent(plain, "E", "combine") == 4 * sent(latent, "E", "combine")
    held = {tensor.name: tensor.total for tensor in layer_of(latent.model, "E").tensors}
    assert held["latent in"] == held["latent out"] == 1024 * 256
    assert held["experts in"] == 16 * 256 * 512


def test_a_mamba_layer_stores_what_its_backward_pass_reads() -> None:
    s = of_hybrid()
    inner, projected = MIXER.inner, MIXER.projected
    features = 2 * HYBRID.hidden + projected + 3 * inner
    stored = full_activation_bytes(s, layer_of(HYBRID, "M"))
    assert stored == pytest.approx(2 * s.tokens * features)
    divided = of_hybrid(tp=2, sequence_parallel=True)
    assert full_activation_bytes(divided, layer_of(HYBRID, "M")) == pytest.approx(stored / 2)
    again = of_hybrid(recompute=("layernorm",))
    assert full_activation_bytes(again, layer_of(HYBRID, "M")) < stored


@pytest.mark.parametrize("recompute", [(), ("full",), ("layernorm", "moe_act"), ("moe",)])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_hybrid_models_run_in_pipelines_and_recompute(
    recompute: tuple[str, ...], schedule: str
) -> None:
    usual, again = (
        of_hybrid(pp=2, dp=2, schedule=schedule, recompute=names) for names in ((), recompute)
    )
    times = [sum(entry.seconds for entry in training_step(s).entries) for s in (usual, again)]
    assert times[1] > times[0] if recompute else times[1] == times[0]
    if recompute:
        assert memory_of(again, 0).activations < memory_of(usual, 0).activations


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("  parallelism: {tp: 16}", "64 heads in 8 groups of Mamba layers are not divisible by tp"),
        ("  parallelism: {cp: 2}", "cp must be 1"),
        ("  recompute: ops", "name modules"),
        ("  lora: {}", "adapters of nemotron-3-nano, whose layers are of several kinds"),
    ],
)
def test_what_hybrid_models_cannot_do_is_refused(rest: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        resolve_step(cell(rest, model="nemotron-3-nano", batch=16, nodes=2))
    assert message in str(error.value)
