"""A step told by one rank of each stage takes as long as the step in full."""

import pytest

from netsim.training.prepare import prepare_step
from netsim.training.run import folded_step, simulate_step
from tests.training.steps import cell

DENSE = "{layers: 8, hidden: 4096, heads: 32, ffn: 16384, vocabulary: 50000}"
SHORT = DENSE.replace("layers: 8", "layers: 4")
EXPERTS = (
    "{layers: 8, hidden: 2048, heads: 16, ffn: 8192, vocabulary: 50000, experts: 32, top_k: 4, "
    "expert_ffn: 1024}"
)
WITHIN, BESIDE = 0.01, 0.03  # beside: where exchanges of several axes share links


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
        (SHORT, "dtype: fp8\n  parallelism: {tp: 2, cp: 2, data: fsdp}"),
        (EXPERTS, "parallelism: {ep: 8, pp: 2}"),
    ],
)
def test_folded_and_in_full(model: str, rest: str) -> None:
    prepared = prepare_step(cell(f"  {rest}", model=model, batch=64, nodes=2))
    whole = simulate_step(prepared).seconds
    within = BESIDE if "cp: 2, data" in rest else WITHIN
    assert folded_step(prepared).seconds == pytest.approx(whole, rel=within)


@pytest.mark.parametrize("data", ["ddp", "fsdp"])
def test_a_late_host_holds_up_kernels_and_collectives(data: str) -> None:
    small = "{layers: 4, hidden: 512, heads: 8, ffn: 2048, vocabulary: 1000, sequence: 256}"
    found = {}
    for launch in ("{host: 0us}", "{host: 100us}", "{host: 200us}", "cuda_graph"):
        rest = f"  parallelism: {{data: {data}}}\nlaunch: {launch}"
        prepared = prepare_step(cell(rest, model=small, batch=16))
        found[launch] = simulate_step(prepared).seconds
        assert folded_step(prepared).seconds == pytest.approx(found[launch], rel=BESIDE)
    ahead, late, later, graph = found.values()
    assert late > 3 * ahead  # by as many launches as there are
    assert later - late == pytest.approx(late, rel=0.1)
    assert graph < ahead  # which lie closer to each other in a graph


def test_what_collectives_hold_of_the_sms_kernels_lose() -> None:
    rest = "parallelism: {data: ddp}\n  replicas: {bucket: %s}"
    hidden, after = (
        folded_step(prepare_step(cell(f"  {rest % size}", model=DENSE, nodes=2, batch=16)))
        for size in ("25MiB", "100GB")
    )
    assert hidden.seconds < after.seconds
    assert 0 < after.mfu < hidden.mfu < 1
    assert hidden.tokens_per_second == pytest.approx(16 * 2048 / hidden.seconds)
