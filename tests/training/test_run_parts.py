"""What tells a step, by hand: where time goes, how tasks beside each other slow, and titles."""

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from netsim.base.errors import InputError
from netsim.extent.memory import BYTES_A_ROW, needed
from netsim.training import run
from netsim.training.resolve import (
    BYTES_A_TASK,
    BYTES_A_TASK_OF_STAGES,
    ResolvedStep,
    _transformer_misfits,
    check_memory,
    memories,
    model_flops,
)
from netsim.training.run import (
    INTERPOLATED_FROM_BYTES,
    Breakdown,
    Rates,
    _StageCosts,
    _StageRun,
    _with_sync,
    bound_of,
    breakdown_of,
    details_of,
    entry_title,
    family,
    pass_title,
    sent_bytes,
    stream_title,
)
from netsim.workloads.lower import Coarse
from netsim.workloads.setting import Grid
from netsim.workloads.tape import COMPUTE, TapeEntry
from tests.training.steps import SMALL, cell, setting, step

NOBODY = np.zeros((1, 1), np.int64)


def task(name: str = "gemm", kind: str = COMPUTE, stream: str = "", **more) -> TapeEntry:
    given = {"phase": "forward", "groups": NOBODY, "after": (), **more}
    return TapeEntry(name, kind, stream=stream or kind, **given)


# **** Where the time goes ****


def ran(spans: list[tuple[int, int, int, int, int]], kinds: tuple[str, ...], ranks: int, end: int):
    """What `breakdown_of` asks of spans of rank, kind, task, begin and end."""
    columns = tuple(np.array(column) for column in zip(*sorted(spans), strict=True))
    tasks = range(1 + max(span[2] for span in spans))
    return SimpleNamespace(
        kinds=kinds,
        columns=columns,
        first=np.arange(ranks),
        makespan=float(end),
        tape=SimpleNamespace(entries=tasks),
    )


@pytest.mark.parametrize("seed", range(5))
def test_every_second_of_every_rank_has_one_cause(seed: int) -> None:
    rng, kinds, ranks, end = random.Random(f"breakdown {seed}"), (COMPUTE, "tp", "dp"), 3, 40
    spans = []
    for rank in range(ranks):
        for kind in range(len(kinds)):
            edges = sorted(rng.sample(range(end), 6))
            for begin, until in zip(edges[::2], edges[1::2], strict=True):
                spans.append((rank, kind, len(spans), begin, until))
    found = breakdown_of(ran(spans, kinds, ranks, end))
    bare = np.zeros(len(spans))
    for rank in range(ranks):
        spent = dict.fromkeys(("computing", "idle"), 0)
        exposed, hidden = [0, 0], [0, 0]
        for second in range(end):
            under_way = [s for s in spans if s[0] == rank and s[3] <= second < s[4]]
            there = {s[1] for s in under_way}
            if 0 in there:
                spent["computing"] += 1
                for kind in there - {0}:
                    hidden[kind - 1] += 1
                continue
            for s in under_way:
                bare[s[2]] += 1
            if there:
                exposed[min(there) - 1] += 1
            else:
                spent["idle"] += 1
        assert found.computing[rank] == spent["computing"]
        assert found.idle[rank] == spent["idle"]
        assert found.exposed[:, rank].tolist() == exposed
        assert found.hidden[:, rank].tolist() == hidden
    assert found.exposed_by_entry.tolist() == bare.tolist()
    whole = found.hidden.sum() + found.exposed.sum()
    assert found.overlap == pytest.approx(found.hidden.sum() / whole)


def test_what_takes_most_of_the_time_is_named_with_its_part() -> None:
    def broken(computing: float, exposed: float, idle: float) -> Breakdown:
        column = np.array([[exposed, exposed]])
        return Breakdown(
            ("tp",), np.full(2, computing), column, column * 0, np.full(2, idle), np.zeros(1)
        )

    assert bound_of(broken(6.0, 3.0, 1.0)) == "compute 60%"
    assert bound_of(broken(2.0, 3.0, 1.0)) == "tp communication 50%"
    assert bound_of(broken(2.0, 1.0, 5.0)) == "waiting 62%"
    assert bound_of(broken(0.0, 0.0, 0.0)) == ""
    assert broken(1.0, 0.0, 0.0).overlap == 0.0


def test_details_are_means_over_gpus_in_microseconds() -> None:
    found = Breakdown(
        ("tp", "strange"),
        computing=np.array([4e-6, 8e-6]),
        idle=np.array([1e-6, 5e-6]),
        exposed=np.array([[2e-6, 0.0], [1e-6, 3e-6]]),
        hidden=np.array([[1e-6, 0.0], [1e-6, 2e-6]]),
        exposed_by_entry=np.zeros(1),
    )
    step = SimpleNamespace(breakdown=found, seconds=13e-6, resolved=SimpleNamespace(recorded=True))
    told = {name: value for name, value in details_of(step).items() if value}
    assert told == pytest.approx(
        {
            "step_time_us": 13.0,
            "computing_us": 6.0,
            "exposed_tp_us": 1.0,
            "exposed_extra_us": 2.0,
            "idle_us": 3.0,
            "hidden_us": 2.0,
            "overlap_pct": 40.0,
            "bubble_pct": 50.0,
        }
    )


def test_rates_follow_from_the_time_alone() -> None:
    asked = setting(tp=2, dp=4, batch=32, sequence=128)
    rates = Rates(SimpleNamespace(setting=asked), 2.0)
    assert rates.tokens_per_second == 32 * 128 / 2
    flops = model_flops(asked.model, 32, 128)
    assert rates.mfu == pytest.approx(flops / (2.0 * 989e12 * 8))
    rates = Rates(rates.resolved, 0.0)
    assert rates.mfu == rates.tokens_per_second == 0.0


def test_an_exchange_of_islands_is_added_or_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "sync_seconds", lambda resolved, engine: resolved.sync)
    found = {}
    for beside in (False, True):
        asked = replace(setting(), overlap_sync=beside)
        resolved = (SimpleNamespace(setting=asked, sync=sync) for sync in (4.0, 14.0))
        found[beside] = [_with_sync(one, 10.0) for one in resolved]
    assert found == {False: [(14.0, 4.0), (24.0, 14.0)], True: [(10.0, 4.0), (14.0, 14.0)]}


# **** Tasks beside each other ****


def seconds(*tasks: TapeEntry, sms: float = 0.0, loads: dict[str, float] | None = None) -> float:
    """The end of tasks, a stage for each rank; collectives hold so many SMs, load links so far."""
    held = (sms, tuple((loads or {}).items()))
    cost = {True: lambda t: (t.seconds, *held), False: lambda t: (t.seconds, 0.0, ())}
    fold = SimpleNamespace(
        columns=lambda t: tuple(t.groups[0]), cost=lambda t: cost[t.kind != COMPUTE](t)
    )
    return _StageRun(fold, tasks).finished()


def test_a_kernel_loses_the_sms_that_collectives_beside_it_hold() -> None:
    kernel, tp = task(seconds=3.0), task(kind="tp", seconds=1.0)
    assert seconds(kernel, tp) == pytest.approx(3.0)
    assert seconds(kernel, tp, sms=0.25) == pytest.approx(1.0 + (3.0 - 0.75))
    assert seconds(kernel, tp, sms=1.5) == pytest.approx(1.0 + 3.0 - 1 / 50)  # it keeps a 50th
    other = task(kind="dp", seconds=1.0)
    assert seconds(kernel, tp, other, sms=0.25) == pytest.approx(1.0 + (3.0 - 0.5))
    moved = replace(kernel, moving=3.0)  # which few SMs do as well
    assert seconds(moved, tp, sms=0.25) == pytest.approx(3.0)
    # A part that moves and one that computes: 1 of 3 s needs no SMs, 2 take 4/3 as long.
    beside = 3.0 / (1.0 + 2.0 / 0.75)
    partly = replace(kernel, moving=1.0)
    assert seconds(partly, tp, sms=0.25) == pytest.approx(1.0 + 3.0 - beside)


def test_collectives_share_the_kinds_of_links_that_they_overload_together() -> None:
    one, other = task(kind="tp", seconds=1.0), task(kind="dp", seconds=2.0)
    assert seconds(one, other, loads={"nic": 0.5}) == pytest.approx(2.0)
    # Both at 1/1.6 until the first is done after 1.6 s, with 1 s left of the other.
    assert seconds(one, other, loads={"nic": 0.8}) == pytest.approx(2.6)
    assert seconds(one, other, loads={"nic": 0.8, "nvlink": 0.9}) == pytest.approx(1.8 + 1.0)
    assert seconds(one, replace(other, groups=NOBODY + 1), loads={"nic": 0.8}) == 2.0


def test_tasks_of_a_stream_and_those_they_wait_for_come_first() -> None:
    first = task(seconds=1.0)
    assert seconds(first, task(seconds=2.0)) == 3.0  # of one stream
    assert seconds(first, task(seconds=2.0, stream="other")) == 2.0
    assert seconds(first, task(seconds=2.0, stream="other", after=(0,))) == 3.0
    send = task("p2p", "pp", seconds=0.5, after=(0,), groups=np.array([[0, 1]]))
    late = task("late", seconds=1.0, after=(1,), groups=NOBODY + 1)
    assert seconds(first, send, late) == 2.5
    assert seconds(first, replace(late, after=())) == 1.0  # a stream of each stage


def test_what_the_host_launches_late_begins_then() -> None:
    assert seconds(task(seconds=1.0, launched=5.0)) == 6.0
    assert seconds(task(seconds=1.0), task(seconds=1.0, launched=0.5)) == 2.0
    assert seconds(task(seconds=3.0), task(seconds=1.0, stream="x", launched=1.0)) == 3.0
    assert seconds() == 0.0


def test_large_collectives_are_on_a_line_between_powers_of_two() -> None:
    asked = []

    def time_of(one: TapeEntry):
        asked.append(one.nbytes)
        return Coarse(float(one.nbytes) ** 2, (), *[NOBODY] * 3, channels=4, loads=(("nic", 1.0),))

    fold = SimpleNamespace(_slowest_coarse=time_of)
    small = task(kind="dp", nbytes=INTERPOLATED_FROM_BYTES - 3)
    assert _StageCosts._interpolated(fold, small).seconds == (INTERPOLATED_FROM_BYTES - 3) ** 2
    found = _StageCosts._interpolated(
        fold, replace(small, nbytes=3 * INTERPOLATED_FROM_BYTES)
    )  # half way from 2 to 4
    assert found.seconds == (4 + 16) / 2 * INTERPOLATED_FROM_BYTES**2
    assert (found.channels, found.loads) == (4, (("nic", 1.0),))
    assert (
        _StageCosts._interpolated(fold, replace(small, nbytes=2 * INTERPOLATED_FROM_BYTES)).seconds
        == 4 * INTERPOLATED_FROM_BYTES**2
    )
    assert set(asked) == {
        INTERPOLATED_FROM_BYTES - 3,
        2 * INTERPOLATED_FROM_BYTES,
        4 * INTERPOLATED_FROM_BYTES,
    }


def test_tasks_run_in_the_stages_of_their_ranks() -> None:
    grid = Grid({"tp": 2, "pp": 2, **dict.fromkeys(("cp", "ep", "dp"), 1)})
    fold = _StageCosts(SimpleNamespace(setting=SimpleNamespace(grid=grid)))
    stages = grid.stages
    assert [grid.stage(n).tolist() for n in (0, 1)] == [
        [rank for rank in range(4) if stages[rank] == n] for n in (0, 1)
    ]
    assert fold.columns(task(groups=np.arange(4).reshape(1, 4))) == (0, 1)
    assert fold.columns(task(groups=grid.stage(1).reshape(1, -1))) == (1,)


# **** Titles ****


def test_slices_are_called_by_layer_collective_and_micro_batch() -> None:
    def title(one: TapeEntry, rank: int = 0, *, several: bool = True) -> str:
        return entry_title(one, rank, (0, 1), several=several)

    kernel = task("norm+mlp", layer="layer 3", micro_batch=0)
    assert title(kernel) == "layer 3 norm+mlp (mb 0)"
    assert title(kernel, several=False) == "layer 3 norm+mlp"
    assert title(replace(kernel, micro_batch=-1)) == "layer 3 norm+mlp"
    assert title(replace(kernel, micro_batch=2, layer="")) == "norm+mlp (mb 2)"
    assert title(task("layer 3 mlp", layer="layer 3")) == "layer 3 mlp"
    gather = task("weights", "dp", collective="all_gather", layer="layer 3")
    assert title(gather) == "all_gather layer 3 weights"
    assert title(task("all_reduce", "tp", collective="all_reduce")) == "all_reduce"
    send = task("activations", "pp", collective="p2p")
    assert [title(send, rank) for rank in (0, 1)] == ["send activations", "recv activations"]


def test_passes_are_called_by_phase_micro_batch_and_chunk() -> None:
    one = task(micro_batch=0)
    assert pass_title(one) == "F mb 0"
    assert pass_title(replace(one, phase="backward", micro_batch=2, chunk=0)) == "B mb 2 chunk 0"
    assert pass_title(replace(one, phase="weights", chunk=1)) == "W mb 0 chunk 1"
    assert pass_title(replace(one, phase="step")) == "step"
    assert pass_title(replace(one, micro_batch=-1)) == "forward"


def test_streams_are_called_by_what_goes_where() -> None:
    assert stream_title(COMPUTE, 0) == COMPUTE
    assert stream_title("tp", 0) == "NCCL tp"
    assert stream_title("pp 0>1", 0) == "NCCL pp send to stage 1"
    assert stream_title("pp 0>1", 1) == "NCCL pp recv from stage 0"
    assert family("bucket 3") == "bucket"
    assert family("layer 3 mlp") == "layer mlp"


@pytest.mark.parametrize(
    ("collective", "sent"),
    [
        ("all_reduce", 1.5),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("alltoall", 0.75),
        ("sendrecv", 1.0),
        ("p2p", 1.0),
        ("broadcast", 1.0),
        ("reduce", 1.0),
    ],
)
def test_a_rank_of_four_sends_this_part_of_the_size(collective: str, sent: float) -> None:
    assert sent_bytes(collective, 1000, 4) == 1000 * sent


SMALLER = replace(SMALL, layers=8, heads=8, kv_heads=4, ffn=2048, sequence=256)
MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"tp": 4}, ""), ({"tp": 8}, ""),  # two ranks share a KV head
    ({"tp": 16}, "8 heads are not divisible by tp 16"), ({"pp": 4}, ""),
    ({"pp": 4, "chunks": 2}, ""), ({"pp": 3}, "8 layers are not divisible by pp 3"),
    ({"pp": 4, "chunks": 4}, "by pp 4 x 4 chunks"), ({"pp": 3, "stage_layers": (3, 3, 2)}, ""),
    ({"cp": 2}, ""), ({"cp": 128}, ""), ({"cp": 3}, "not divisible by 6 parts for cp 3"),
    ({"cp": 256}, "not divisible by 512 parts for cp 256"),
    ({"tp": 2, "cp": 128, "sequence_parallel": True}, ""),
    ({"tp": 4, "cp": 128, "sequence_parallel": True}, "2 tokens are not divisible by tp 4"),
    ({"tp": 2, "cp": 4, "context": "a2a"}, ""),
    ({"tp": 2, "cp": 8, "context": "a2a"}, "4 heads a rank are not divisible by cp 8"),
    ({"ep": 2}, "has no experts to divide by ep 2"),
]  # fmt: skip


@pytest.mark.parametrize(("tp", "fits"), [(1, True), (2, False), (3, True), (6, True), (12, True)])
def test_ranks_have_whole_kv_heads_or_share_one(tp: int, fits: bool) -> None:
    model = replace(SMALLER, heads=12, kv_heads=3, ffn=2304, layers=1)
    found = [text for _, text in _transformer_misfits(setting(model=model, tp=tp), model)]
    assert found == ([] if fits else ["3 KV heads do not go with tp 2"])


@pytest.mark.parametrize(("given", "told"), MISFITS)
def test_what_does_not_divide_is_told_and_nothing_else_is(given: dict[str, Any], told: str) -> None:
    found = [
        message for _, message in _transformer_misfits(setting(model=SMALLER, **given), SMALLER)
    ]
    assert len(found) == bool(told)
    assert told in "".join(found)


def test_experts_divide_and_need_sequence_parallelism_beside_tensors() -> None:
    mixed = replace(SMALLER, experts=8, top_k=2, expert_ffn=512)

    def told(**given: Any) -> list[str]:
        return [text for _, text in _transformer_misfits(setting(model=mixed, **given), mixed)]

    assert told(ep=8) == told(ep=4, tp=2, sequence_parallel=True) == []
    assert told(ep=3) == ["8 experts are not divisible by ep 3"]
    assert told(tp=2) == ["experts with tp need sequence_parallel (as in Megatron)"]


def test_the_stage_that_needs_most_is_refused_from_the_first_byte_too_many() -> None:
    one = cell("  parallelism: {pp: 2}", batch=8, gpus=2)
    work = SimpleNamespace(allow_oom=False)
    made = setting(pp=2, model=SMALLER)
    totals = [memory.total for memory in memories(made)]
    stage = totals.index(max(totals))
    for room, refused in ((max(totals), False), (max(totals) * (1 - 1e-9), True)):
        host = SimpleNamespace(machine=SimpleNamespace(gpu=SimpleNamespace(memory=room)))
        alike = np.zeros(2, np.int32)  # two GPUs of one host
        cluster = SimpleNamespace(hosts=(host,), host_class=alike[:1], gpu_host=alike)
        if not refused:
            check_memory(one, work, made, cluster)
            continue
        with pytest.raises(InputError, match=f"a GPU of stage {stage} needs"):
            check_memory(one, work, made, cluster)
        check_memory(one, SimpleNamespace(allow_oom=True), made, cluster)


@pytest.mark.parametrize(
    ("large", "why", "tasks"),
    [
        (True, "", BYTES_A_TASK_OF_STAGES),
        (True, "exact", 16 * BYTES_A_TASK),
        (False, "", 16 * BYTES_A_TASK),
    ],
)
def test_a_step_told_by_one_rank_a_stage_needs_memory_for_that(
    large: bool, why: str, tasks: int
) -> None:
    step = SimpleNamespace(
        topology=range(16),
        lowered=None,
        large=large,
        why_in_full=why,
        tape=lambda: SimpleNamespace(entries=range(1000)),
    )
    assert ResolvedStep.memory_needed(step, 1) == needed(16, 0, 1000 * tasks)
    rows = SimpleNamespace(**{**vars(step), "lowered": SimpleNamespace(schedule=range(500))})
    assert ResolvedStep.memory_needed(rows, 1) == needed(16, 0, 500 * BYTES_A_ROW)


def test_layers_with_times_only_have_no_mfu() -> None:
    timed = step(model="[{forward: 1ms, backward: 2ms, repeat: 4}]", batch=8)
    assert "mfu_pct" not in details_of(timed)
    counted = step(model="[{flops: 1e9, forward: 1ms, backward: 2ms, repeat: 4}]", batch=8)
    assert details_of(counted)["mfu_pct"] > 0
