"""Bytes, counts and memory of every parallelism against their closed forms, at many degrees."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.training.run import sent_bytes
from netsim.workloads.memory import activation_bytes, memory_of, states_of
from netsim.workloads.model import MODELS, Transformer, layers_of
from netsim.workloads.setting import Setting
from netsim.workloads.step import training_step
from netsim.workloads.tape import TapeEntry
from tests.training.steps import H100, SMALL, setting

DEGREES = (2, 3, 4, 8)


def tasks_of(s: Setting, kind: str, rank: int = 0) -> list[TapeEntry]:
    """The collectives of one kind that a rank takes part in."""
    return [task for task in training_step(s).entries if task.kind == kind and rank in task.groups]


def sent(s: Setting, kind: str, rank: int = 0) -> float:
    return sum(
        sent_bytes(t.collective, t.nbytes, t.groups.shape[1]) for t in tasks_of(s, kind, rank)
    )


@pytest.mark.parametrize("d", DEGREES)
@pytest.mark.parametrize("data", ["ddp", "allreduce", "zero1", "zero2", "distributed-optimizer"])
def test_replicas_send_twice_the_weights(data: str, d: int) -> None:
    s = setting(dp=d, data=data)
    assert sent(s, "dp") == pytest.approx(2 * (d - 1) / d * SMALL.parameters * 2)


@pytest.mark.parametrize("d", DEGREES)
@pytest.mark.parametrize(("reshard", "times"), [(True, 3), (False, 2)])
def test_fsdp_sends_the_weights_three_times_or_twice(d: int, reshard: bool, times: int) -> None:
    s = setting(dp=d, data="fsdp", no_sync=False, batch=d, reshard=reshard)
    root = sum(layer.parameters for layer in layers_of(SMALL) if layer.kind != "block")
    blocks = SMALL.parameters - root  # the outermost unit is never given up
    closed = (d - 1) / d * 2 * (times * blocks + 2 * root)
    assert sent(s, "dp") == pytest.approx(closed, rel=1e-4)  # padded to whole elements a rank


@pytest.mark.parametrize(("d", "shard"), [(4, 2), (8, 2), (8, 4)])
def test_hybrid_sharding_all_reduces_its_part_across(d: int, shard: int) -> None:
    s = setting(dp=d, data="fsdp", shard=shard, batch=d)
    across = [task for task in tasks_of(s, "dp") if task.collective == "all_reduce"]
    assert {task.groups.shape[1] for task in across} == {d // shard}
    assert sum(task.nbytes for task in across) == pytest.approx(
        SMALL.parameters * 2 / shard, rel=1e-4
    )


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize("m", [1, 3])
def test_tensor_parallelism_all_reduces_twice_a_pass_of_a_block(t: int, m: int) -> None:
    s = setting(tp=t, batch=m)
    message = 256 * SMALL.hidden * 2
    found = Counter((task.phase, task.nbytes) for task in tasks_of(s, "tp"))
    assert found["forward", message] == m * (2 * SMALL.layers + 1)  # and the embedding
    assert found["backward", message] == m * (2 * SMALL.layers + 1)  # and the logits
    assert found["forward", 256 * 4] == m * 3  # the loss
    assert len(found) == 3


@pytest.mark.parametrize("t", [2, 4, 8])
def test_sequence_parallelism_gathers_and_scatters_the_same_bytes(t: int) -> None:
    s = setting(tp=t, batch=1, sequence_parallel=True)
    message = 256 * SMALL.hidden * 2
    found = Counter(
        (task.phase, task.collective) for task in tasks_of(s, "tp") if task.nbytes == message
    )
    layers = SMALL.layers
    assert found["forward", "all_gather"] == 2 * layers + 1
    assert found["forward", "reduce_scatter"] == 2 * layers + 1
    assert found["backward", "all_gather"] == 4 * layers + 1  # 2 more to have the inputs again
    assert found["backward", "reduce_scatter"] == 2 * layers + 1


def test_full_recomputation_repeats_the_collectives_of_forward() -> None:
    plain, again = (setting(tp=4, batch=1, recompute=kind) for kind in ((), ("full",)))
    more = len(tasks_of(again, "tp")) - len(tasks_of(plain, "tp"))
    assert more == 2 * SMALL.layers + 3  # blocks, and the head's loss


@pytest.mark.parametrize("c", [2, 4, 8])
def test_context_parallelism_moves_keys_and_values(c: int) -> None:
    kv, layers = 2 * 256 // c * SMALL.hidden * 2, SMALL.layers
    ring = tasks_of(setting(cp=c, batch=1, context="p2p"), "cp")
    found = Counter((task.phase, task.nbytes) for task in ring)
    assert found == {
        ("forward", kv): layers * (c - 1),
        ("backward", 2 * kv): layers * (c - 1),
    }
    gathered = tasks_of(setting(cp=c, batch=1, context="all_gather"), "cp")
    assert Counter((task.phase, task.collective) for task in gathered) == {
        ("forward", "all_gather"): layers,
        ("backward", "all_gather"): layers,
        ("backward", "reduce_scatter"): layers,
    }
    assert {task.nbytes for task in gathered} == {c * kv}
    heads = tasks_of(setting(cp=c, batch=1, context="a2a"), "cp")
    assert len(heads) == 8 * layers
    assert {task.nbytes for task in heads} == {256 // c * SMALL.hidden * 2}


@pytest.mark.parametrize("c", [2, 4, 8])
def test_pytorch_gathers_repeated_keys_once_and_sends_gradients_round_in_fp32(c: int) -> None:
    shared = replace(SMALL, kv_heads=2)
    for apart, width in ((True, shared.hidden), (False, shared.hidden // 4)):
        s = setting(cp=c, batch=1, context="all_gather", data="fsdp2", model=shared, apart=apart)
        kv = 2 * 256 // c * width
        found = Counter((t.phase, t.collective, t.nbytes) for t in tasks_of(s, "cp"))
        assert found == {
            ("forward", "all_gather", c * kv * 2): shared.layers,
            ("backward", "all_gather", c * kv * 2): shared.layers,
            ("backward", "sendrecv", kv * 4): shared.layers * c,
        }


def test_pytorch_keeps_what_a_checkpoint_of_the_block_has_gathered() -> None:
    s = setting(tp=4, batch=1, sequence_parallel=True, recompute=("non-reentrant",))

    def gathered(**given: bool) -> int:
        found = tasks_of(replace(s, **given), "tp")
        return sum(t.collective == "all_gather" and t.phase == "backward" for t in found)

    assert gathered(apart=False) - gathered(apart=True) == 2 * SMALL.layers


@pytest.mark.parametrize("e", [2, 4, 8])
def test_experts_exchange_tokens_times_top_k(e: int) -> None:
    moe = replace(SMALL, experts=8, top_k=2, expert_ffn=512)
    found = tasks_of(setting(ep=e, model=moe, batch=e), "ep")
    dispatched = [task for task in found if task.collective == "alltoall"]
    assert len(dispatched) == 4 * SMALL.layers
    assert {task.nbytes for task in dispatched} == {256 * 2 * SMALL.hidden * 2}
    reduced = tasks_of(setting(ep=e, dp=2, model=moe), "dp")
    experts = sum(task.nbytes for task in reduced if task.groups.shape[1] == 2)
    held = sum(layer.expert_parameters for layer in layers_of(moe)) // e
    assert experts == held * 2


@pytest.mark.parametrize(("p", "v", "m"), [(2, 1, 4), (4, 1, 4), (4, 2, 8), (2, 4, 2)])
def test_pipelines_hand_every_micro_batch_on_once_a_chunk(p: int, v: int, m: int) -> None:
    schedule = "interleaved" if v > 1 else "1f1b"
    s = setting(pp=p, chunks=v, batch=m, schedule=schedule)
    sends = [task for task in training_step(s).entries if task.kind == "pp"]
    assert len(sends) == 2 * m * (p * v - 1)
    assert {task.nbytes for task in sends} == {256 * SMALL.hidden * 2}


@pytest.mark.parametrize(
    ("data", "gigabytes"), [("ddp", 120), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.9)]
)
def test_model_states_are_those_of_the_zero_paper(data: str, gigabytes: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5e9 parameters on 64 GPUs."""
    each = states_of(data, 64, 2, 2, "adam").states
    assert 7.5e9 * each / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize("d", DEGREES)
def test_megatrons_optimizer_takes_six_bytes_and_a_part_of_twelve(d: int) -> None:
    assert states_of("distributed-optimizer", d, 2, 4, "adam").states == pytest.approx(6 + 12 / d)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_1f1b_keeps_activations_of_fewer_micro_batches_than_gpipe(p: int) -> None:
    kept = {
        name: [memory_of(setting(pp=p, batch=16, schedule=name), k).activations for k in range(p)]
        for name in ("gpipe", "1f1b", "zb-h1")
    }
    one = kept["1f1b"][-1]  # the last stage has one micro-batch under way, and the head
    head = one - kept["1f1b"][-2] / 2
    for k in range(p - 1):
        assert kept["gpipe"][k] == pytest.approx(16 / (p - k) * kept["1f1b"][k])
    assert kept["gpipe"][-1] == pytest.approx(16 * one)
    assert head > 0


def test_modules_that_are_done_again_keep_only_what_they_start_from() -> None:
    """DeepSeek-V3's block: inputs of norms and products, heads, what meets in experts; of FP8 one
    byte of what only products read."""
    deepseek, tokens = MODELS["deepseek-v3"], 4096
    block = layers_of(deepseek)[-2]
    width, heads = 7168, 128

    def kept(dtype: str, *again: str) -> float:
        one = setting(model=deepseek, sequence=tokens, dtype=dtype, recompute=again)
        flops = {**one.roofline.flops, "fp8": 2e15}
        one = replace(one, roofline=replace(one.roofline, flops=flops))
        return activation_bytes(one, block) / tokens

    whole = 2 * (4 * width + heads * 4 * 192 + 8 * (3 * 2048 + width) + 3 * 2048)
    assert kept("bfloat16") == whole
    assert kept("bfloat16", "layernorm") == whole - 2 * 2 * width
    assert kept("bfloat16", "moe_act") == whole - 2 * 8 * 2048
    latent = 1536 + 512 + 64 + heads * 128
    assert kept("bfloat16", "mla_up_proj") == whole - 2 * (heads * 4 * 192 - latent)
    assert kept("bfloat16", "moe") == 2 * (4 * width + heads * 4 * 192)
    assert whole - kept("fp8") == 2 * width + 8 * (2048 + width) + 2048


@pytest.mark.parametrize("gated", [True, False])
def test_of_an_mlp_that_is_done_again_nothing_is_kept_but_its_input(gated: bool) -> None:
    model, width = replace(SMALL, gated=gated), 3 if gated else 2
    block, element = layers_of(model)[1], 2
    for tp in (1, 4):
        kept = {
            again: activation_bytes(setting(tp=tp, model=model, recompute=again), block)
            for again in ((), ("mlp",), ("ops",), ("mlp", "core_attn"))
        }
        assert kept[()] - kept["mlp",] == 256 * element * model.ffn * width / tp
        assert kept["mlp",] == kept["mlp", "core_attn"]  # fused attention keeps no scores
        normed = 2 * model.hidden  # and what the function between the products makes
        assert kept[()] - kept["ops",] == 256 * element * (normed + model.ffn / tp)


@pytest.mark.parametrize("tp", [2, 4])
def test_exchanges_that_overlap_change_no_bytes_and_cost_what_parts_cost(tp: int) -> None:
    found = {}
    for overlap in ("none", "bulk", "pipelined"):
        s = setting(tp=tp, batch=2, sequence_parallel=True, tensor_overlap=overlap)
        tasks = training_step(s).entries
        seconds = Counter[str]()
        for task in tasks:
            seconds[task.phase] += task.seconds if not task.collective else 0.0
        found[overlap] = sent(s, "tp"), seconds["forward"], seconds["backward"]
    assert found["bulk"] == pytest.approx(found["none"], rel=0.02)
    sent_in_parts, *computed = found["pipelined"]
    assert sent_in_parts == found["none"][0]
    for parts, whole in zip(computed, found["none"][1:], strict=True):
        assert whole < parts < 3 * whole  # of a small model: parts start anew, and are added up


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 4),
    st.sampled_from([64, 256, 1024]),
    st.booleans(),
)
def test_activations_are_those_of_korthikanti(t: int, b: int, s: int, stored: bool) -> None:
    """sbh(34 + 5as/h)/t with sequence parallelism, sbh(10 + (24 + 5as/h)/t) without."""
    gpt = replace(SMALL, gated=False, biases=True, ffn=4 * SMALL.hidden)
    sbh, scores = s * b * SMALL.hidden, 5 * SMALL.heads * s / SMALL.hidden * stored
    block = layers_of(gpt)[1]
    for divided in (False, True):
        one = setting(
            tp=t,
            model=gpt,
            micro=b,
            batch=b,
            sequence=s,
            attention="unfused",
            sequence_parallel=divided,
            recompute=() if stored else ("selective",),
        )
        closed = (34 + scores) / t if divided else 10 + (24 + scores) / t
        assert activation_bytes(one, block) == pytest.approx(sbh * closed)


@given(
    st.sampled_from(["ddp", "zero1", "zero2", "zero3"]), st.integers(1, 4096), st.floats(1e6, 1e13)
)
def test_states_follow_the_formulas_at_any_size(data: str, n: int, parameters: float) -> None:
    closed = {
        "ddp": 16, "zero1": 4 + 12 / n, "zero2": 2 + 14 / n, "zero3": 16 / n,
    }  # fmt: skip
    found = states_of(data, n, 2, 2, "adam").states * parameters
    assert found == pytest.approx(closed[data] * parameters)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 4),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 3),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["ddp", "zero1", "zero2", "distributed-optimizer"]),
)
def test_volumes_hold_at_combined_degrees(d: int, t: int, c: int, p: int, data: str) -> None:
    """Any dp x tp x cp x pp: each axis sends what it does alone, of what the others leave it."""
    if data == "zero2" and p > 1:
        return
    sequence = 48 * 2 * c
    s = setting(dp=d, tp=t, cp=c, pp=p, data=data, batch=2 * d, sequence=sequence)
    n, message = d * c, sequence // c * SMALL.hidden * 2
    for stage in range(p):
        rank = int(s.grid.stage(stage)[0])
        held = memory_of(s, stage).weights
        assert sent(s, "dp", rank) == pytest.approx(2 * (n - 1) / n * held, rel=1e-3)
        blocks = SMALL.layers // p
        full = [task for task in tasks_of(s, "tp", rank) if task.nbytes == message]
        ends = (stage == 0) + (stage == p - 1)
        assert len(full) == (2 * (4 * blocks + ends) if t > 1 else 0)
        kv = 2 * (sequence // c) * SMALL.hidden // t * 2
        ring = sum(task.nbytes for task in tasks_of(s, "cp", rank))
        assert ring == 2 * blocks * (c - 1) * 3 * kv
        hands = [task for task in tasks_of(s, "pp", rank) if task.collective == "p2p"]
        assert sum(task.nbytes for task in hands) == (
            2 * message * (2 * (p > 1) + 2 * (0 < stage < p - 1))
        )


EXPERTS = replace(SMALL, experts=16, top_k=4, expert_ffn=512)


@pytest.mark.parametrize(("ep", "joined", "targets"), [(4, 8, 4), (8, 8, 8), (8, 2, 4), (8, 4, 2)])
def test_deduplicated_tokens_go_once_to_each_rank_or_to_each_domain(
    ep: int, joined: int, targets: int
) -> None:
    """A token has 4 experts; of those that chance gives one target, one copy is for all."""
    usual = setting(model=EXPERTS, ep=ep, joined=joined)
    every, few = (sent(replace(usual, deduplicated=one), "ep") for one in (False, True))
    counts = sent(replace(usual, model=replace(EXPERTS, top_k=0)), "ep")
    copies = targets * (1 - (1 - 1 / targets) ** 4)
    assert (few - counts) / (every - counts) == pytest.approx(copies / 4, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "given"),
    [
        ({"biases": True}, {}),
        ({"clamped": True}, {}),
        ({"qk_norm": True}, {}),
        ({}, {"deduplicated": False}),
        ({}, {"imbalance": 1.5}),
        ({}, {"roofline": replace(H100, routed=0.2)}),
    ],
)
def test_what_experts_do_beside_their_products_takes_time(
    change: dict[str, bool], given: dict[str, object]
) -> None:
    def computing(model: Transformer, **more: object) -> float:
        s = setting(model=model, ep=8, **{"deduplicated": True, **more})
        return sum(one.seconds for one in training_step(s).entries if not one.collective)

    assert computing(replace(EXPERTS, **change), **given) > computing(EXPERTS)
    assert computing(EXPERTS, fused_experts=True) < computing(EXPERTS)
