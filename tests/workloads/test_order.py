"""Collectives stand where Megatron, FSDP and DDP have them: read off the tape of one rank."""

from itertools import pairwise

import pytest

from netsim.workloads.model import Transformer, layers_of
from netsim.workloads.step import training_step
from netsim.workloads.tape import Tape, TapeEntry
from tests.training.steps import SMALL, setting

MOE = Transformer(
    name="moe",
    layers=2,
    hidden=512,
    heads=8,
    kv_heads=8,
    ffn=2048,
    vocabulary=1000,
    sequence=256,
    experts=8,
    top_k=2,
    expert_ffn=512,
)


def tape_of(**given: object) -> Tape:
    return training_step(setting(**given))


def calls(tape: Tape, kind: str, rank: int = 0) -> list[TapeEntry]:
    return [task for task in tape.entries if task.kind == kind and rank in task.groups]


def waits(tape: Tape, later: int, earlier: int) -> bool:
    """Whether a task waits for another, directly or by way of tasks between."""
    reached, front = set[int](), {later}
    while front:
        before = {d for task in front for d in tape.entries[task].after} | {
            k
            for task in front
            for k in range(task - 1, task - 40, -1)
            if k >= 0 and tape.entries[k].stream == tape.entries[task].stream
        }
        front = before - reached
        reached |= before
    return earlier in reached


def number(tape: Tape, layer: str, name: str, phase: str = "", micro: int = 0) -> int:
    """The task of a layer with a name."""
    (found,) = (
        k
        for k, t in enumerate(tape.entries)
        if t.layer == layer and t.name == name and t.micro_batch == micro and phase in t.phase
    )
    return found


def test_fsdp_gathers_the_root_first_then_unit_by_unit_and_prefetches_before_scattering() -> None:
    dp = calls(tape_of(dp=8, data="fsdp", no_sync=False, batch=8), "dp")
    ahead = [(t.collective, t.layer) for t in dp if t.phase == "forward"]
    assert ahead == [("all_gather", "root")] + [("all_gather", f"layer {k}") for k in range(8)]
    back = [(t.collective[:3], t.layer) for t in dp if t.phase == "backward"]
    # Gather of the next unit, kernels of this one, then its gradients: what PRE means.
    assert back == [
        ("all", "layer 7"),
        ("all", "layer 6"),
        ("red", "layer 7"),
        ("all", "layer 5"),
        ("red", "layer 6"),
        ("all", "layer 4"),
        ("red", "layer 5"),
        ("all", "layer 3"),
        ("red", "layer 4"),
        ("all", "layer 2"),
        ("red", "layer 3"),
        ("all", "layer 1"),
        ("red", "layer 2"),
        ("all", "layer 0"),
        ("red", "layer 1"),
        ("red", "layer 0"),
        ("red", "root"),
    ]


@pytest.mark.parametrize(
    ("prefetch", "order"),
    [
        ("post", ["all 7", "all 6", "red 7", "all 5", "red 6"]),
        ("none", ["all 7", "red 7", "all 6", "red 6", "all 5"]),
    ],
)
def test_fsdp_prefetches_later_or_never(prefetch: str, order: list[str]) -> None:
    tape = tape_of(dp=8, data="fsdp", no_sync=False, batch=8, backward_prefetch=prefetch)
    back = [t for t in calls(tape, "dp") if t.phase == "backward"]
    assert [f"{t.collective[:3]} {t.layer[-1]}" for t in back][:5] == order


def test_fsdp_gathers_a_unit_again_only_after_it_was_given_up() -> None:
    tape = tape_of(dp=8, data="fsdp", no_sync=False, batch=16)
    for layer in range(8):
        gathers = [
            k
            for k, t in enumerate(tape.entries)
            if t.layer == f"layer {layer}" and t.collective == "all_gather"
        ]
        assert len(gathers) == 4  # twice a micro-batch
        kernels = [
            k
            for k, t in enumerate(tape.entries)
            if t.layer == f"layer {layer}" and not t.collective
        ]
        for first, again in pairwise(gathers):
            last = max(k for k in kernels if first < k < again)
            assert waits(tape, again, last)
    assert (
        sum(t.layer == "root" for t in calls(tape, "dp")) == 4
    )  # gathered and scattered each time


def test_ddp_reduces_from_the_end_and_its_first_bucket_early() -> None:
    tape = tape_of(dp=8, batch=8, bucket=2**20, first_bucket=2**10)
    buckets = calls(tape, "dp")
    assert [t.name for t in buckets] == [f"bucket {k}" for k in range(len(buckets))]
    assert buckets[0].layer == "head"
    assert buckets[-1].layer == "embedding"
    sizes = [t.nbytes for t in buckets]
    held = [count * 2 for _, count in _reversed_tensors()]
    assert sizes[0] == held[0]  # the first parameter alone is larger than 1 KiB
    assert sum(sizes) == sum(held)
    assert all(size >= 2**20 for size in sizes[1:-1])


def _reversed_tensors() -> list[tuple[str, int]]:
    return [
        (layer.name, tensor.count)
        for layer in reversed(layers_of(SMALL))
        for tensor in reversed(layer.tensors)
        for _ in range(tensor.copies)
    ]


def test_the_loss_is_summed_before_anything_goes_back() -> None:
    tape = tape_of(tp=4, batch=2)
    for micro in (0, 1):
        first = number(tape, "head", "logits dgrad", "backward", micro)
        for name in ("maximum", "target logit", "sum of exponents"):
            assert waits(tape, first, number(tape, "head", f"loss {name}", "forward", micro))


def test_sequence_parallelism_gathers_again_beside_the_column_product() -> None:
    tape = tape_of(tp=4, batch=1, sequence_parallel=True)
    block = [t for t in tape.entries if t.layer == "layer 3"]
    ahead = [t.name for t in block if t.phase == "forward"]
    assert ahead == [
        "norm",
        "attention input",
        "qkv+attention+proj",
        "attention output",
        "norm",
        "mlp input",
        "mlp+mlp out",
        "mlp output",
        "residual",
    ]
    back = [t.name for t in block if t.phase == "backward"]
    assert back == [
        "mlp output gradient",
        "mlp out dgrad+mlp out wgrad",
        "mlp input again",
        "mlp in dgrad",
        "mlp input gradient",
        "mlp in wgrad",
        "mlp norm backward",
        "attention output gradient",
        "proj dgrad+proj wgrad+attention backward",
        "attention input again",
        "qkv dgrad",
        "attention input gradient",
        "attention in wgrad",
        "attention norm backward",
    ]
    wgrad = number(tape, "layer 3", "mlp in wgrad")
    assert number(tape, "layer 3", "mlp input again") in tape.entries[wgrad].after
    assert number(tape, "layer 3", "mlp input gradient") not in tape.entries[wgrad].after


def test_ddp_fills_buckets_with_gradients_as_backward_makes_them() -> None:
    tape = tape_of(dp=8, batch=8, bucket=2**19, first_bucket=0)
    sizes = {t.name: t.total for t in layers_of(SMALL)[1].tensors}
    first = number(tape, "layer 7", "mlp out dgrad+mlp out wgrad")
    copied = [k for k, t in enumerate(tape.entries) if t.name == "copy in" and t.layer == "layer 7"]
    buckets = [t for t in calls(tape, "dp") if t.layer == "layer 7"]
    # Each matrix fills a bucket, the MLP's first; with it goes the head's norm, with the last one
    # those of the block.
    assert [t.nbytes // 2 for t in buckets] == [
        512 + sizes["mlp out"],
        sizes["mlp in"],
        sizes["proj"],
        2 * 512 + sizes["qkv"],
    ]
    for task, copy in zip(buckets, copied, strict=True):
        assert task.after == (copy,)
    assert tape.entries[copied[0]].after == (first,)
    assert first < copied[0] < tape.entries[copied[1]].after[0]
    assert sum(t.nbytes for t in calls(tape, "dp")) == 2 * SMALL.parameters
    alone = calls(tape_of(dp=8, batch=8, bucket=0, first_bucket=0), "dp")
    assert len(alone) == sum(len(layer.tensors) for layer in layers_of(SMALL))


def test_the_host_launches_in_order_and_only_what_may_be_late_says_when() -> None:
    tape = tape_of(dp=8, batch=8, launch=1e-3)
    late = [t.launched for t in tape.entries]
    assert late == sorted(late)
    begin, after = (number(tape, f"layer {k}", "norm+qkv+attention+proj") for k in (3, 4))
    # Norm, QKV, rotary, attention, projection; norm, MLP, function, MLP, sum.
    assert late[after] - late[begin] == pytest.approx(10e-3)
    assert not any(t.launched for t in tape_of(dp=8, batch=8).entries)
    fast = tape_of(dp=8, batch=8, launch=1e-9).entries
    assert not any(t.launched for t in fast if not t.collective)


def test_one_connection_begins_in_the_order_of_launches() -> None:
    one, many = (tape_of(dp=8, data="fsdp", batch=8, connections=n) for n in (1, 8))
    gather = number(one, "layer 6", "weights", "backward")
    assert number(many, "layer 6", "weights", "backward") == gather
    # The gather for layer 6 is launched before layer 7's kernels: these wait for what it waits for.
    kernels = next(k for k in range(gather, len(one.entries)) if not one.entries[k].collective)
    assert one.entries[kernels].layer == "layer 7"
    assert {*many.entries[gather].after} <= {*one.entries[kernels].after}
    assert not {*many.entries[gather].after} <= {*many.entries[kernels].after}


def test_experts_send_tokens_back_after_both_gradients() -> None:
    tape = tape_of(dp=1, ep=8, model=MOE, batch=8)
    block = [t.name for t in tape.entries if t.layer == "layer 1" and t.kind != "dp"]
    assert [name for name in block if name != "copy in"] == [
        "norm+qkv+attention+proj",
        "norm+router",
        "token counts",
        "dispatch",
        "experts",
        "combine",
        "unpermute+residual",
        "unpermute backward",
        "combine gradient",
        "experts dgrad+experts wgrad",
        "dispatch gradient",
        "router backward+norm backward+proj dgrad+proj wgrad",
        "attention backward+qkv dgrad",
        "attention in wgrad",
        "attention norm backward",
    ]
    sent = number(tape, "layer 1", "dispatch gradient")
    assert number(tape, "layer 1", "experts dgrad+experts wgrad") in tape.entries[sent].after


def test_hybrid_sharding_sums_across_copies_beside_the_next_gather() -> None:
    tape = tape_of(dp=8, data="fsdp", shard=4, no_sync=False, batch=8)
    across = [k for k, t in enumerate(tape.entries) if t.name == "gradients across"]
    assert {tape.entries[k].stream for k in across} == {"dp replicas"}
    for k in across:
        (scatter,) = tape.entries[k].after
        assert tape.entries[scatter].collective == "reduce_scatter"
        assert tape.entries[scatter].layer == tape.entries[k].layer
    gathers = [k for k, t in enumerate(tape.entries) if t.collective == "all_gather"]
    assert not any(waits(tape, gather, k) for gather in gathers for k in across if k < gather)
    optimizer = next(k for k, t in enumerate(tape.entries) if t.name == "optimizer")
    assert set(across) <= set(tape.entries[optimizer].after)


def test_the_distributed_optimizer_gathers_the_first_layers_first() -> None:
    tape = tape_of(dp=8, data="distributed-optimizer", forward_prefetch=True, batch=8)
    gathers = [t for t in calls(tape, "dp") if t.collective == "all_gather"]
    numbers = [int(t.name.split()[1]) for t in gathers]
    assert numbers == sorted(numbers, reverse=True)
    assert {t.layer for t in gathers} == {""}
