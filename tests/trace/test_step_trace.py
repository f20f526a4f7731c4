"""The trace of a step as one reads it in Perfetto, and the picture of it."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from netsim.plots.timeline import plot_step
from netsim.training.recorded.kineto import read_profile
from netsim.training.timeline import write_step_trace
from tests.training.steps import step

SMALL = (
    "{layers: 4, hidden: 1024, heads: 8, kv_heads: 8, ffn: 4096, vocabulary: 8000, sequence: 512}"
)


def traced(path: Path, rest: str, batch: int = 16, gpus: int = 8) -> dict[str, Any]:
    write_step_trace(path, step(rest, model=SMALL, batch=batch, gpus=gpus))
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def threads(trace: dict[str, Any], rank: int) -> dict[int, str]:
    return {
        e["tid"]: e["args"]["name"]
        for e in trace["traceEvents"]
        if e["name"] == "thread_name" and e["pid"] == rank
    }


def slices(trace: dict[str, Any], rank: int, thread: str) -> list[dict[str, Any]]:
    names = threads(trace, rank)
    return [
        e
        for e in trace["traceEvents"]
        if e["ph"] == "X" and e["pid"] == rank and names[e["tid"]] == thread
    ]


@pytest.mark.slow
def test_a_pipeline_is_read_by_passes_and_by_sends_between_named_stages(tmp_path) -> None:
    trace = traced(tmp_path / "t.json.gz", "  parallelism: {pp: 4, dp: 2}")
    assert list(threads(trace, 2).values()) == [
        "passes",
        "compute",
        "NCCL dp",
        "NCCL pp recv from stage 0",
        "NCCL pp send to stage 0",
        "NCCL pp send to stage 2",
        "NCCL pp recv from stage 2",
    ]
    passes = [e["name"] for e in slices(trace, 2, "passes")]
    assert passes[:5] == ["F mb 0", "F mb 1", "F mb 2", "B mb 0", "F mb 3"]
    assert passes[-2:] == ["B mb 7", "step"]
    sent = slices(trace, 2, "NCCL pp send to stage 2")
    received = slices(trace, 4, "NCCL pp recv from stage 1")
    assert [e["name"] for e in sent[:2]] == ["send activations (mb 0)", "send activations (mb 1)"]
    assert [e["name"] for e in received[:1]] == ["recv activations (mb 0)"]
    assert (sent[0]["args"]["Collective name"], sent[0]["args"]["Dst Rank"]) == ("send", 4)
    assert (received[0]["args"]["Collective name"], received[0]["args"]["Src Rank"]) == ("recv", 2)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [1, 4])
def test_an_arrow_leads_from_every_send_to_its_receive(tmp_path, pairs: int) -> None:
    parallel = f"  parallelism: {{pp: 2, dp: {pairs}}}"
    trace = traced(tmp_path / "t.json.gz", parallel, 4 * pairs, gpus=2 * pairs)
    begins = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "f"}
    assert begins.keys() == ends.keys()
    assert len(begins) == 2 * 4 * pairs  # there and back, four micro-batches
    for number, begin in begins.items():
        end = ends[number]
        (held,) = (
            e
            for e in trace["traceEvents"]
            if e["ph"] == "X"
            and (e["pid"], e["tid"]) == (end["pid"], end["tid"])
            and e["ts"] <= end["ts"] < e["ts"] + e["dur"]
        )
        assert held["name"].startswith("recv")
        assert begin["pid"] != end["pid"]


@pytest.mark.slow
def test_weight_gradients_and_chunks_are_passes_of_their_own(tmp_path) -> None:
    late = traced(
        tmp_path / "t.json.gz", "  parallelism: {pp: 2, dp: 4}\n  pipeline: {schedule: zb-h1}"
    )
    assert [e["name"] for e in slices(late, 4, "passes")][:5] == [
        "F mb 0",
        "B mb 0",
        "F mb 1",
        "B mb 1",
        "W mb 0",
    ]
    chunked = traced(
        tmp_path / "u.json.gz", "  parallelism: {pp: 2, dp: 4}\n  pipeline: {chunks: 2}"
    )
    assert [e["name"] for e in slices(chunked, 0, "passes")][:3] == [
        "F mb 0 chunk 0",
        "F mb 1 chunk 0",
        "F mb 0 chunk 1",
    ]


def test_a_fast_rank_s_kernel_waits_for_the_slow_one(tmp_path) -> None:
    path = tmp_path / "t.json.gz"
    trace = traced(
        path, "  parallelism: {dp: 8, data: allreduce}\n  stragglers: [{rank: 3, slowdown: 2}]"
    )
    fast, slow = slices(trace, 0, "NCCL dp"), slices(trace, 3, "NCCL dp")
    assert [e["name"] for e in fast] == ["all_reduce gradients", "waiting for the last rank"]
    assert [e["name"] for e in slow] == ["all_reduce gradients"]
    whole, wait = fast
    assert wait["ts"] == whole["ts"]
    assert whole["args"]["waiting for others (us)"] == pytest.approx(wait["dur"])
    assert wait["ts"] + wait["dur"] == pytest.approx(slow[0]["ts"])
    assert whole["ts"] + whole["dur"] == pytest.approx(slow[0]["ts"] + slow[0]["dur"])
    computed = sum(e["dur"] for e in slices(trace, 0, "passes") if e["name"] != "step")
    assert wait["dur"] == pytest.approx(computed, rel=0.02)  # as long again, but for launches
    assert read_profile(path).calls[0].end - read_profile(path).calls[0].begin == pytest.approx(
        whole["dur"] * 1e-6
    )


@pytest.mark.slow
def test_the_header_lists_the_groups_and_counters_show_the_links(tmp_path) -> None:
    trace = traced(tmp_path / "t.json.gz", "  parallelism: {tp: 2, dp: 4}")
    config = trace["distributedInfo"]["pg_config"]
    found = {(one["pg_desc"], tuple(one["ranks"])) for one in config}
    assert ("tp", (0, 1)) in found
    assert ("dp", (1, 3, 5, 7)) in found
    counters = [e for e in trace["traceEvents"] if e["ph"] == "C"]
    assert counters
    assert max(e["args"].get("GB/s", 0.0) for e in counters) > 1


@pytest.mark.slow
def test_names_do_not_repeat_the_layer(tmp_path) -> None:
    trace = traced(tmp_path / "t.json.gz", "  parallelism: {tp: 2, dp: 4}", batch=4)
    names = {e["name"] for e in trace["traceEvents"] if e["ph"] == "X"}
    assert {"embedding", "embedding wgrad", "all_reduce embedding"} <= names
    assert "layer 0 norm+mlp+mlp out" in names
    assert not any("embedding embedding" in name for name in names)


@pytest.mark.full
@pytest.mark.parametrize(
    "rest", ["  parallelism: {pp: 4, dp: 2}", "  parallelism: {dp: 8, data: fsdp}"]
)
def test_the_picture_of_a_step_shows_its_colours(tmp_path, pictures, rest: str) -> None:
    traced(tmp_path / "t.json.gz", rest)
    path = plot_step(tmp_path / "t.json.gz", tmp_path)[1]
    picture = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    seen = {tuple(colour) for colour in np.unique(picture, axis=0).tolist()}
    assert (0xD5, 0x5E, 0x00) in seen  # data parallel
    assert ((0xE6, 0x9F, 0x00) in seen) == ("pp" in rest)


def test_a_trace_of_a_collective_gives_no_picture_of_a_step(tmp_path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": []}'))
    assert plot_step(path, tmp_path) == []
