"""A step told by one rank of each stage takes as long as the step in full."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from netsim.base.errors import InputError
from netsim.cli import traces
from netsim.scenario.cells import Cell
from netsim.training import resolve, run
from netsim.training.explain import explained_step
from netsim.training.resolve import resolve_step
from netsim.training.run import details_of, folded_step, simulate_step, step_row
from tests.training.steps import cell

DENSE = "{layers: 8, hidden: 4096, heads: 32, ffn: 16384, vocabulary: 50000}"
SHORT = DENSE.replace("layers: 8", "layers: 4")
SHORTER = DENSE.replace("layers: 8", "layers: 2")
EXPERTS = (
    "{layers: 8, hidden: 2048, heads: 16, ffn: 8192, vocabulary: 50000, experts: 32, top_k: 4, "
    "expert_ffn: 1024}"
)
WITHIN, BESIDE = 0.01, 0.03  # beside: where exchanges of several axes share links
PART = 0.03  # of a step, by which what it is made of may differ


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "rest"),
    [
        (DENSE, "parallelism: {data: ddp}"),
        (DENSE, "parallelism: {data: fsdp2}"),
        (DENSE, "parallelism: {data: distributed-optimizer}\n  replicas: {overlap_gather: true}"),
        (SHORT, "parallelism: {tp: 4, sequence_parallel: true, data: distributed-optimizer}"),
        (SHORT, "parallelism: {tp: 4, sequence_parallel: true, tensor_overlap: pipelined}"),
        (DENSE, "parallelism: {pp: 4, tp: 2}\n  pipeline: {chunks: 2}"),
        (DENSE, "parallelism: {pp: 4, tp: 2}\n  pipeline: {schedule: zb-h1}"),
        (SHORTER, "dtype: fp8\n  parallelism: {tp: 2, cp: 2, data: fsdp}"),
        (EXPERTS, "parallelism: {ep: 8, pp: 2}"),
    ],
)
def test_folded_and_in_full(model: str, rest: str) -> None:
    resolved = resolve_step(cell(f"  {rest}", model=model, batch=32, nodes=2))
    whole, told = simulate_step(resolved), run._simulated_by_stages(resolved, resolved.tape())
    within = BESIDE if "cp: 2, data" in rest else WITHIN
    assert resolved.why_in_full == ""
    assert folded_step(resolved).seconds == pytest.approx(whole.seconds, rel=within)
    assert told.seconds == pytest.approx(whole.seconds, rel=within)
    assert told.spans.kinds == whole.spans.kinds
    for name in ("computing", "exposed", "hidden", "idle"):
        one, other = (getattr(step.breakdown, name) for step in (told, whole))
        assert one.shape == other.shape
        off = np.abs(one.mean(axis=-1) - other.mean(axis=-1)).max()
        assert off < PART * whole.seconds, name
    assert set(details_of(told)) == set(details_of(whole))
    assert step_row(told).approximation == (
        f"{run.COARSE}; one rank of each stage simulated for all 16"
    )
    spent = sum(told.breakdown.exposed) + told.breakdown.computing + told.breakdown.idle
    assert spent == pytest.approx(np.full(16, told.seconds))


@pytest.mark.slow
@pytest.mark.parametrize("degree", [64, 128])
def test_exchanges_of_many_experts_take_as_long_folded_as_in_full(degree: int) -> None:
    """With 128 of them, few targets of each rank carry the bytes of many."""
    experts = EXPERTS.replace("layers: 8", "layers: 2").replace("experts: 32", "experts: 128")
    nodes = degree // 8
    rest = f"  parallelism: {{ep: {degree}}}"
    resolved = resolve_step(cell(rest, model=experts, batch=2 * degree, nodes=nodes))
    whole = simulate_step(resolved)
    assert folded_step(resolved).seconds == pytest.approx(whole.seconds, rel=WITHIN)
    assert run._simulated_by_stages(resolved, resolved.tape()).seconds == pytest.approx(
        whole.seconds, rel=WITHIN
    )


@pytest.mark.slow
@pytest.mark.parametrize("data", ["ddp", "fsdp"])
def test_a_late_host_holds_up_kernels_and_collectives(data: str) -> None:
    small = "{layers: 4, hidden: 512, heads: 8, ffn: 2048, vocabulary: 1000, sequence: 256}"
    found = {}
    for launch in ("{host: 0us}", "{host: 100us}", "{host: 200us}", "cuda_graph"):
        rest = f"  parallelism: {{data: {data}}}\nlaunch: {launch}"
        resolved = resolve_step(cell(rest, model=small, batch=16))
        found[launch] = simulate_step(resolved).seconds
        assert folded_step(resolved).seconds == pytest.approx(found[launch], rel=BESIDE)
    ahead, late, later, graph = found.values()
    assert late > 3 * ahead  # by as many launches as there are
    assert later - late == pytest.approx(late, rel=0.1)
    assert graph < ahead  # which lie closer to each other in a graph


def test_what_collectives_hold_of_the_sms_kernels_lose() -> None:
    rest = "parallelism: {data: ddp}\n  replicas: {bucket: %s}"
    hidden, after = (
        folded_step(resolve_step(cell(f"  {rest % size}", model=DENSE, nodes=2, batch=16)))
        for size in ("25MiB", "100GB")
    )
    assert hidden.seconds < after.seconds
    assert 0 < after.mfu < hidden.mfu < 1
    assert hidden.tokens_per_second == pytest.approx(16 * 2048 / hidden.seconds)


def large(rest: str = "", **given) -> Cell:
    """A cell of which one rank of each stage tells the step, with nothing in the way of that."""
    return cell(
        f"  parallelism: {{tp: 4, pp: 2, data: zero1}}{rest}", model=SHORT, nodes=3, **given
    )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "MOST_TASKS", 1000)


@pytest.mark.slow
@pytest.mark.usefixtures("told")
def test_a_large_step_is_told_with_all_that_a_run_writes(tmp_path: Path) -> None:
    step = simulate_step(resolve_step(large(batch=48)))
    assert (step.engine, set(step.spans.first)) == ("", {0, 12})
    assert step_row(step).rows == len(step.spans.tape.entries)
    notes = traces._write_step(large(batch=48), tmp_path, "auto")
    assert "ranks 0, 12" in notes[0]
    files = {path.name for path in tmp_path.iterdir()}
    assert {"collectives.csv", "memory_over_time.csv", "links.csv", "trace.json.gz"} <= files
    calls = list(csv.DictReader((tmp_path / "collectives.csv").read_text().splitlines()))
    assert {(one["ranks"], one["groups"]) for one in calls if one["kind"] == "dp"} == {("3", "4")}
    found = explained_step(step)
    assert found["path"][-1]["end_us"] == pytest.approx(step.seconds * 1e6)
    assert {one["what"] for one in found["answers"]} >= {"tp", "dp", "pp", "compute"}
    free = {one["what"]: one["free_us"] for one in found["answers"]}
    assert free["compute"] < free["tp"] < found["time_us"]
    json.dumps(found)


@pytest.mark.slow
@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("\n  stragglers: [{rank: 3, slowdown: 1.5}]", "slower"),
        ("\nexact: true", "exact"),
        ("\nnoise: {compute: {normal: {mean: 1%, sigma: 1%}}}", "disturbed"),
    ],
)
def test_ranks_that_differ_are_run_each(rest: str, why: str) -> None:
    resolved = resolve_step(large(rest, batch=24))
    assert why in resolved.why_in_full
    step = simulate_step(resolved)
    assert (step.engine, len(set(step.spans.first))) == ("compiled", 24)


@pytest.mark.usefixtures("told")
def test_what_one_rank_of_a_stage_cannot_tell_says_what_it_would_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "available_memory", lambda: 1 << 20)
    resolved = resolve_step(large("\n  stragglers: [{rank: 3, slowdown: 1.5}]", batch=24))
    with pytest.raises(InputError, match=r"24 ranks may need .* GB, .*some GPUs or hosts are slow"):
        simulate_step(resolved)
