"""Steps on clusters of different machines: each rank computes with, and holds, what its GPU has."""

import random
from typing import Any

import numpy as np
import pytest

from netsim.base.errors import InputError, ScenarioError
from netsim.nccl.facts import parse_version
from netsim.nccl.job import Wishes, job_of
from netsim.scenario.cells import expand
from netsim.tasks.answer import notes_of
from netsim.topology.cluster import build_cluster
from netsim.training.resolve import ResolvedStep, resolve_step
from netsim.training.run import Step, details_of, folded_step, held_over_time, simulate_step
from netsim.workloads.tape import COMPUTE
from netsim.yamlio.read import parse_source

H100 = "{machine: dgx-h100, gpus_per_node: 4}"
A100 = "{machine: dgx-a100, gpus_per_node: 4}"
SMALL_H100 = "{machine: h100-x4}"  # with 64 GB a GPU instead of 80
TEXT = """\
cluster: {{groups: [{groups}]{cluster}}}
workload:
  model: {model}
  batch: {batch}
{rest}
"""


def resolved(
    *groups: str, rest: str = "", model: str = "bert-base", batch: int = 32, cluster: str = ""
) -> ResolvedStep:
    """A step on hosts of these groups, in this order; `cluster` continues the cluster."""
    text = TEXT.format(
        groups=", ".join(groups), cluster=cluster, model=model, batch=batch, rest=rest
    )
    return resolve_step(expand(parse_source(text, "x.yaml"))[0])


def step(*groups: str, **given: Any) -> Step:
    return simulate_step(resolved(*groups, **given))


LAYOUTS = (
    "",
    "{data: zero1}",
    "{data: fsdp}",
    "{data: distributed-optimizer}",
    "{tp: 2}",
    "{tp: 4}",
    "{tp: 2, data: fsdp}",
)


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_groups_does_not_change_a_data_parallel_step(seed: int) -> None:
    draw = random.Random(seed)
    machines = draw.sample(["dgx-h100", "dgx-a100", "hgx-h200", "hgx-h800", "hgx-a800"], 2)
    groups = [f"{{machine: {name}, gpus_per_node: 4}}" for name in machines]
    layout = draw.choice(LAYOUTS)
    rest = f"  parallelism: {layout}" if layout else ""
    first, second = step(*groups, rest=rest), step(*reversed(groups), rest=rest)
    assert first.seconds == pytest.approx(second.seconds, rel=1e-6), (machines, layout)
    assert details_of(first)["mfu_pct"] == pytest.approx(details_of(second)["mfu_pct"], rel=1e-6)


def kernel_seconds(found: Step, rank: int) -> list[float]:
    """How long each kernel of a rank that nothing slows takes: those of the forward pass."""
    tasks = found.spans.tape.entries
    numbers, begin, end = found.spans.of_rank(rank)
    lasted = zip(numbers.tolist(), (end - begin).tolist(), strict=True)
    return [
        seconds
        for number, seconds in lasted
        if tasks[number].kind == COMPUTE and tasks[number].phase == "forward"
    ]


@pytest.mark.slow
def test_each_rank_computes_as_fast_as_its_own_gpu() -> None:
    mixed, fast, slow = step(H100, A100), step(H100, H100), step(A100, A100)
    assert kernel_seconds(mixed, 0) == pytest.approx(kernel_seconds(fast, 0))
    assert kernel_seconds(mixed, 7) == pytest.approx(kernel_seconds(slow, 7))
    assert sum(kernel_seconds(slow, 0)) > 1.2 * sum(kernel_seconds(fast, 0))
    assert mixed.seconds > 0.97 * slow.seconds > 1.2 * fast.seconds
    exchanged = mixed.breakdown.exposed.sum(axis=0) + mixed.breakdown.idle
    assert exchanged[0] > exchanged[7]  # who is faster waits for the others


@pytest.mark.full
def test_pipeline_stages_compute_with_the_gpus_that_they_lie_on() -> None:
    rest = "  parallelism: {pp: 2, tp: 4}"
    for groups in ((H100, A100), (A100, H100)):
        mixed = step(*groups, rest=rest)
        for rank in (0, 7):
            same = step(groups[rank > 0], groups[rank > 0], rest=rest)
            # Sends that pass beside a kernel hold a few of its SMs, at other moments.
            expected = pytest.approx(kernel_seconds(same, rank), rel=0.01)
            assert kernel_seconds(mixed, rank) == expected


@pytest.mark.slow
def test_explanations_and_folds_of_mixed_clusters_know_the_slow_gpus() -> None:
    mixed = resolved(H100, A100, rest="  parallelism: {tp: 4}")
    told = folded_step(mixed).seconds
    assert told == pytest.approx(simulate_step(mixed).seconds, rel=0.05)
    task = next(task for task in mixed.tape().entries if task.kind == COMPUTE)
    assert task.by_kind
    assert task.scaled(0.5).by_kind[0].seconds == task.by_kind[0].seconds / 2
    assert task.seconds == max(time.seconds for time in task.by_kind)


def test_peak_of_a_mixed_cluster_is_the_sum_over_its_gpus() -> None:
    peaks = [resolved(one, one).setting.peak_flops for one in (H100, A100)]
    assert resolved(H100, A100).setting.peak_flops == pytest.approx(sum(peaks) / 2)


@pytest.mark.slow
def test_narrow_types_count_only_where_every_gpu_has_them() -> None:
    fp8 = "  dtype: fp8"
    assert resolved(H100, H100, rest=fp8).setting.narrow
    for groups in ((H100, A100), (A100, H100)):
        assert not resolved(*groups, rest=fp8).setting.narrow
    assert step(A100, H100, rest=fp8).seconds == pytest.approx(step(H100, A100).seconds)


LARGE = {"model": "llama3-8b", "batch": 32}


@pytest.mark.parametrize("groups", [(H100, SMALL_H100), (SMALL_H100, H100)])
def test_memory_is_checked_against_the_smallest_gpu(groups: tuple[str, str]) -> None:
    rest = "  parallelism: {tp: 4}\n  micro_batch: 2\n  sequence: 8192"
    needed = "needs 66"
    with pytest.raises(ScenarioError, match=rf"H100 SXM5 64GB\) {needed}.*but has 64 GB"):
        resolved(*groups, rest=rest, **LARGE)
    assert resolved(H100, H100, rest=rest, **LARGE).setting.gpu_kinds is None


@pytest.mark.slow
def test_memory_of_a_pipeline_stage_is_checked_against_its_own_gpus() -> None:
    # Stage 0 keeps the activations of two micro-batches, stage 1 those of one.
    rest = "  parallelism: {tp: 4, pp: 2}\n  micro_batch: 2\n  sequence: 16384"
    kept = resolved(H100, SMALL_H100, rest=rest, **LARGE)
    with pytest.raises(ScenarioError, match=r"stage 0 on node0 \(H100 SXM5 64GB"):
        resolved(SMALL_H100, H100, rest=rest, **LARGE)
    rooms = [held.room for held in held_over_time(simulate_step(kept))]
    assert rooms == [80e9, 64e9]


@pytest.mark.slow
def test_an_override_of_one_host_counts_for_its_ranks() -> None:
    hosts = "{machine: dgx-h100, nodes: 2, gpus_per_node: 4}"
    smaller = ", overrides: [{node: 1, machine: {gpu: {memory: 16GB}}}]"
    with pytest.raises(ScenarioError, match=r"node1 .* but has 16 GB"):
        resolved(hosts, cluster=smaller, rest="  parallelism: {tp: 4}", **LARGE)
    slower = ", overrides: [{node: 1, machine: {gpu: {memory_bandwidth: 1TB/s}}}]"
    assert step(hosts, cluster=slower).seconds > 1.1 * step(hosts).seconds


@pytest.mark.slow
def test_communicators_have_the_figures_of_their_own_machines() -> None:
    figures = "calibration: {rate.ll: {value: 1GB/s, stamp: measured}}"
    override = f"overrides: [{{node: 0, machine: {{{figures}}}}}]"
    text = (
        f"cluster: {{groups: [{H100}, {A100}], {override}}}\nworkload: {{collective: all_reduce}}"
    )
    cluster = build_cluster(expand(parse_source(text, "x.yaml"))[0].scenario.cluster)
    wishes = Wishes(parse_version("2.27"), {})
    on_first, on_second = (
        job_of(cluster, np.arange(at, at + 4, dtype=np.int32), wishes) for at in (0, 4)
    )
    assert [*on_first.calibration] == ["rate.ll"]
    assert not on_second.calibration
    assert on_first.mechanism.rate.ll == 1e9 != on_second.mechanism.rate.ll
    both = job_of(cluster, np.arange(8, dtype=np.int32), wishes)
    assert not both.calibration  # the oldest GPUs decide, on the second host
    assert len(both.machines) == 2


def test_channels_hold_a_fraction_of_the_sms_of_each_gpu() -> None:
    mixed = resolved(H100, A100)
    task = next(task for task in mixed.tape().entries if task.collective == "all_reduce")
    coarse = mixed.costs(task, tuple(task.groups[0].tolist()))
    held = dict.fromkeys((0, 7), 0.0)
    for style, source, target, amount in zip(
        coarse.styles, coarse.src, coarse.dst, coarse.amount, strict=True
    ):
        for use in style.uses:
            rank = int(source if use.end == "src" else target)
            if use.resource == "sms" and rank in held:
                held[rank] += use.weight * float(amount)
    assert held[7] / held[0] == pytest.approx(132 / 108, rel=1e-3)


@pytest.mark.slow
def test_gpus_of_two_makers_are_refused_in_one_communicator() -> None:
    hosts = "{groups: [{machine: dgx-h100}, {machine: mi300x}]}"
    text = f"cluster: {hosts}\nworkload: {{collective: all_reduce}}"
    cluster = build_cluster(expand(parse_source(text, "x.yaml"))[0].scenario.cluster)
    with pytest.raises(InputError, match="NVIDIA's GPUs and AMD's cannot be in one communicator"):
        job_of(cluster, np.arange(16, dtype=np.int32), Wishes(parse_version("2.27"), {}))


def test_usual_network_of_mixed_machines_does_not_depend_on_their_order() -> None:
    groups = ["{machine: dgx-a100}", "{machine: l40s-pcie-x8}"]
    found = []
    for some in (groups, groups[::-1]):
        text = f"cluster: {{groups: [{', '.join(some)}]}}\nworkload: {{collective: all_reduce}}"
        cells = expand(parse_source(text, "x.yaml"))
        cluster = build_cluster(cells[0].scenario.cluster)
        assert cluster.transport is not None
        assert any("infiniband joins machines that usually" in note for note in notes_of(cells))
        found.append(cluster.transport.name)
    assert found == ["infiniband", "infiniband"]


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", ["{dp: 4}", "{tp: 2, dp: 2}", "{pp: 2, dp: 2}"])
def test_a_straggler_is_a_fault_of_its_gpu(parallelism: str) -> None:
    """Both slow what the GPU computes and what NCCL does on it."""
    text = f"""
cluster: {{machine: dgx-h100, gpus_per_node: 4%s}}
workload: {{model: bert-base, batch: 16, parallelism: {parallelism}%s}}
"""
    slow_rank = ", stragglers: [{rank: 1, slowdown: 2}]"
    slow_gpu = ", faults: [{gpu: node0.gpu1, slowdown: 2}]"
    steps = []
    for faults, stragglers in (("", slow_rank), (slow_gpu, ""), ("", "")):
        cell = expand(parse_source(text % (faults, stragglers), "slow.yaml"))[0]
        steps.append(simulate_step(resolve_step(cell)).seconds)
    assert steps[0] == pytest.approx(steps[1], rel=1e-12)
    assert steps[0] > 1.3 * steps[2]
