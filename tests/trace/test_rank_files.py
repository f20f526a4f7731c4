"""Traces of single ranks, and the programs of others that read them."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from netsim.base.errors import InputError
from netsim.trace.names import TracedOperation
from netsim.trace.rank_files import MOST_FILES, check_rank_count, write_rank_files
from netsim.training.timeline import write_step_rank_files
from tests.cli.command import netsim
from tests.trace.output_runs import mixed_run, ring_run
from tests.training.steps import step

RING = TracedOperation("all_reduce", "Ring", "Simple", in_elements=1 << 16, out_elements=1 << 16)
SMALL = (
    "{layers: 4, hidden: 1024, heads: 8, kv_heads: 8, ffn: 4096, vocabulary: 8000, sequence: 512}"
)
TEXTBOOK = """
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1MiB, 4MiB]}
outputs: [csv, trace_per_rank]
"""
JOBS = """
cluster: {nodes: 2, machine: dgx-h100}
jobs:
  - {name: first, nodes: 1, workload: {collective: all_reduce, sizes: [64KiB]}}
  - {name: second, nodes: 1, workload: {collective: alltoall, sizes: [64KiB]}}
outputs: [csv, trace_per_rank]
"""


def kernels_of(path: Path) -> list[dict[str, Any]]:
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


def test_a_file_of_a_rank_holds_its_kernels_with_the_fields_that_readers_look_for(
    tmp_path: Path,
) -> None:
    program, timeline, _ = ring_run()
    paths = write_rank_files(tmp_path / "traces", program, timeline, [RING])
    assert [path.name for path in paths] == [f"rank{rank}_trace.json" for rank in range(4)]
    for rank, path in enumerate(paths):
        (kernel,) = kernels_of(path)
        assert kernel["cat"] == "kernel"
        assert re.match(r"^nccl.*Kernel", kernel["name"])
        assert (kernel["pid"], kernel["args"]["device"]) == (rank, rank)
        assert kernel["tid"] == kernel["args"]["stream"] > 0
        assert kernel["args"]["correlation"] == kernel["args"]["External id"] > 0
        assert kernel["args"]["Collective name"] == "allreduce"
        assert kernel["args"]["Rank"] == rank
        assert kernel["dur"] <= timeline.makespan * 1e6 + 1e-3
    longest = max(kernels_of(path)[0]["dur"] for path in paths)
    assert longest == pytest.approx(timeline.makespan * 1e6, abs=1e-3)


def test_the_first_line_of_a_file_names_its_rank_as_hta_searches_for_it(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    for rank, path in enumerate(write_rank_files(tmp_path, program, timeline, [RING])):
        first_line = path.read_text(encoding="utf-8").splitlines()[0]
        assert re.search(r'"rank":\s+(\d+)', first_line)[1] == str(rank)
        header = json.loads(path.read_text(encoding="utf-8"))["distributedInfo"]
        assert (header["rank"], header["world_size"]) == (rank, 4)


def test_kernels_that_compute_are_on_another_stream_than_those_of_nccl(tmp_path: Path) -> None:
    program, timeline, _ = mixed_run()
    for path in write_rank_files(tmp_path, program, timeline):
        kernels = kernels_of(path)
        streams = {event["args"]["stream"]: "Collective name" in event["args"] for event in kernels}
        assert streams == {7: False, 20: True}
        assert [event["ts"] for event in kernels] == sorted(event["ts"] for event in kernels)


@pytest.mark.slow
def test_a_step_has_a_file_a_rank_with_nccl_s_names_for_its_calls(tmp_path: Path) -> None:
    simulated = step("  parallelism: {tp: 2, dp: 4}", model=SMALL, batch=8, gpus=8)
    paths = write_step_rank_files(tmp_path, simulated)
    assert len(paths) == 8
    kernels = kernels_of(paths[5])
    calls = [event for event in kernels if "Collective name" in event["args"]]
    computing = [event for event in kernels if "Collective name" not in event["args"]]
    assert all(event["name"].startswith("ncclDevKernel_") for event in calls)
    assert not any(event["name"].startswith("nccl") for event in computing)
    assert {event["args"]["stream"] for event in computing} == {7}
    assert 7 not in {event["args"]["stream"] for event in calls}
    assert {event["args"]["device"] for event in kernels} == {5}
    assert all(event["args"]["title"] for event in calls)
    correlations = [event["args"]["correlation"] for event in kernels]
    assert sorted(correlations) == list(range(1, len(kernels) + 1))


def test_files_of_too_many_ranks_are_refused() -> None:
    check_rank_count(MOST_FILES)
    with pytest.raises(InputError, match="trace_per_rank: 1025 ranks, expected at most 1024"):
        check_rank_count(MOST_FILES + 1)


def test_collectives_of_jobs_are_communication_of_the_ranks_of_their_job(
    capsys, tmp_path: Path
) -> None:
    scenario = tmp_path / "jobs.yaml"
    scenario.write_text(JOBS)
    outcome = netsim(capsys, "run", str(scenario), "-q", "-o", str(tmp_path / "out"))
    assert outcome.code == 0
    folder = tmp_path / "out" / "rank_traces"
    for rank, kernel, group in ((0, "AllReduce_Sum_f32", "first"), (9, "SendRecv", "second")):
        events = kernels_of(folder / f"rank{rank}_trace.json")
        assert events
        for event in events:
            assert event["name"].startswith(f"ncclDevKernel_{kernel}")
            assert event["args"]["Process Group Name"] == group
            assert event["args"]["Group size"] == 8
            assert str(rank) in re.findall(r"[0-9]+", event["args"]["Process Group Ranks"])


@pytest.fixture
def textbook_traces(capsys, tmp_path: Path) -> Path:
    """The folder of traces that `netsim run` writes of a textbook ring on four GPUs."""
    scenario = tmp_path / "ring.yaml"
    scenario.write_text(TEXTBOOK)
    outcome = netsim(capsys, "run", str(scenario), "-o", str(tmp_path / "out"))
    assert outcome.code == 0
    folder = tmp_path / "out" / "rank_traces"
    assert "rank_traces (4 ranks)" in outcome.out + outcome.err
    return folder


def test_a_run_writes_a_trace_a_rank_where_its_outputs_ask_for_it(textbook_traces: Path) -> None:
    paths = sorted(textbook_traces.iterdir())
    assert [path.name for path in paths] == [f"rank{rank}_trace.json" for rank in range(4)]
    names = {kernels_of(path)[0]["name"] for path in paths}
    assert names == {"ncclDevKernel_AllReduce_Sum_f32_RING"}
    assert kernels_of(paths[0])[0]["args"]["In msg nelems"] == 2**20


@pytest.mark.filterwarnings("ignore")
def test_holistic_trace_analysis_counts_the_simulated_time_as_communication(
    textbook_traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    logging.getLogger("hta").setLevel(logging.ERROR)
    analysis = pytest.importorskip("hta.trace_analysis")
    found = analysis.TraceAnalysis(trace_dir=str(textbook_traces))
    assert sorted(found.t.traces) == [0, 1, 2, 3]
    by_kind = found.get_gpu_kernel_breakdown(visualize=False)[0]
    assert by_kind["kernel_type"].tolist() == ["COMMUNICATION"]
    written = sum(kernels_of(path)[0]["dur"] for path in textbook_traces.iterdir())
    assert float(by_kind["sum"].iloc[0]) == pytest.approx(written, abs=4)  # to whole µs a rank


@pytest.mark.filterwarnings("ignore")
def test_trace_lens_reads_the_simulated_time_and_bandwidth(textbook_traces: Path) -> None:
    library = pytest.importorskip("TraceLens")
    paths = [str(textbook_traces / f"rank{rank}_trace.json") for rank in range(4)]
    table = library.NcclAnalyser(paths, 4).build_df_nccl_implicit_sync_cat()
    assert table["Collective name"].tolist() == ["allreduce"]
    shortest = min(kernels_of(Path(path))[0]["dur"] for path in paths)
    assert table["comm_latency"].tolist() == pytest.approx([shortest])
    expected = 4 * 2**20 / 2**30 / (shortest * 1e-6)  # TraceLens calls GiB/s GB/s
    assert table["algo bw (GB/s)"].tolist() == pytest.approx([expected])
    assert table["bus bw (GB/s)"].tolist() == pytest.approx([expected * 2 * 3 / 4])
