"""Profiles of PyTorch's become steps: what was recorded is what runs, and bad files are told."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from netsim.base.errors import InputError
from netsim.scenario.cells import expand
from netsim.training.recorded.kineto import read_profile, tape_of, tiled
from netsim.training.resolve import resolve_step
from netsim.training.run import axis_of, simulate_step
from netsim.training.timeline import write_step_trace
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim
from tests.training.steps import step


def kernel(begin: float, seconds: float, **more: object) -> dict[str, object]:
    event = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7}
    return {**event, "ts": begin, "dur": seconds, "args": {}, **more}


def nccl(
    begin: float, seconds: float, collective: str = "allreduce", **args: object
) -> dict[str, object]:
    told = {
        "Collective name": collective, "In msg nelems": 2**20, "Out msg nelems": 2**20,
        "dtype": "Float", "Group size": 8, "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
        "Process Group Description": "dp",
    }  # fmt: skip
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return kernel(begin, seconds, name=name, tid=20, args={**told, **args})


def trace(path: Path, events: list[dict[str, object]], **more: object) -> Path:
    data = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 8}, **more}
    path.write_text(json.dumps({**data, "traceEvents": events}))
    return path


def replayed(path: Path):
    text = f"cluster: {{machine: dgx-h100}}\nworkload: {{trace: {path}}}\n"
    return simulate_step(resolve_step(expand(parse_source(text, "x.yaml"))[0]))


@pytest.mark.slow
@pytest.mark.parametrize("data", ["ddp", "zero1", "fsdp"])
def test_a_step_written_as_a_trace_and_read_back_takes_the_same_time(tmp_path, data: str) -> None:
    first = step(f"  parallelism: {{data: {data}}}\n  micro_batch: 4", batch=64)
    path = tmp_path / "trace.json.gz"
    write_step_trace(path, first)
    again = replayed(path)
    assert again.seconds == pytest.approx(first.seconds, rel=0.02)
    calls = [task for task in again.spans.tape.entries if task.collective]
    told = [task for task in first.spans.tape.entries if task.collective]
    assert [(t.collective, t.dtype) for t in calls] == [(t.collective, t.dtype) for t in told]
    assert [t.nbytes for t in calls] == pytest.approx([t.nbytes for t in told], rel=1e-3)


def test_kernels_wait_for_what_ended_while_nothing_ran(tmp_path) -> None:
    events = [kernel(1000, 100), nccl(1100, 300), kernel(1410, 50), kernel(1460, 40)]
    profile = read_profile(trace(tmp_path / "t.json", events))
    tape = tape_of(profile)
    assert [task.collective for task in tape.entries] == ["", "all_reduce", ""]
    before, call, after = tape.entries
    assert before.seconds == pytest.approx(100e-6)
    assert call.after == (0,)
    assert call.measured == pytest.approx(300e-6)
    assert set(after.after) == {0, 1}
    assert after.seconds == pytest.approx(100e-6)  # 10 µs of the host, two kernels without a pause


@pytest.mark.slow
def test_a_pipeline_written_as_a_trace_keeps_its_idle_times(tmp_path) -> None:
    first = step("  parallelism: {pp: 4, dp: 2}\n  micro_batch: 2", batch=32)
    path = tmp_path / "trace.json.gz"
    write_step_trace(path, first)
    again = replayed(path)
    idle = float(first.breakdown.idle[0])
    assert idle > 0.1 * first.seconds
    assert again.seconds == pytest.approx(first.seconds, rel=0.02)


def test_what_overlaps_does_not_wait(tmp_path) -> None:
    events = [kernel(0, 100), nccl(50, 300), kernel(100, 400)]
    tape = tape_of(read_profile(trace(tmp_path / "t.json", events)))
    assert [(task.collective, task.after) for task in tape.entries] == [
        ("", ()),
        ("all_reduce", (0,)),
        ("", (0,)),
    ]


@pytest.mark.parametrize(
    ("ranks", "world", "groups"),
    [
        ((0, 1), 8, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ((1, 5), 8, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ((0, 2), 8, [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ((0, 1, 4), 8, [[0, 1, 4]]),
    ],
)
def test_the_groups_of_other_ranks_are_those_of_this_one_moved(ranks, world, groups) -> None:
    assert tiled(ranks, world).tolist() == groups


def test_sizes_are_those_that_nccl_tests_counts(tmp_path) -> None:
    gathered = {"In msg nelems": 2**17, "Out msg nelems": 2**20, "dtype": "BFloat16"}
    scattered = {"In msg nelems": 2**20, "Out msg nelems": 2**17}
    events = [
        kernel(0, 10), nccl(10, 5, "_allgather_base", **gathered),
        nccl(20, 5, "_reduce_scatter_base", **scattered),
        nccl(30, 5, **{"Process Group Ranks": "[0, 2, ..., 6]", "Group size": 4}),
    ]  # fmt: skip
    calls = read_profile(trace(tmp_path / "t.json", events)).calls
    assert [(call.description.collective, call.description.nbytes) for call in calls] == [
        ("all_gather", 2**21),
        ("reduce_scatter", 2**22),
        ("all_reduce", 2**22),
    ]
    assert calls[2].description.ranks == (0, 2, 4, 6)


def test_measured_calls_stand_beside_simulated_ones(tmp_path, capsys) -> None:
    events = [kernel(0, 100), nccl(100, 300), kernel(410, 50)]
    path = trace(tmp_path / "t.json", events)
    scenario = tmp_path / "s.yaml"
    scenario.write_text(f"cluster: {{machine: dgx-h100}}\nworkload: {{trace: {path}}}\n")
    outcome = netsim(capsys, "run", scenario, "-o", tmp_path / "out", "-q")
    assert outcome.code == 0, outcome.err
    with (tmp_path / "out/collectives.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert float(line["measured_us"]) == pytest.approx(300)
    assert 0 < float(line["time_us"]) < 300
    assert np.isfinite(float(line["exposed_us"]))


BAD = [
    (b"", "t.json:1:1:"),
    (b'{"traceEvents": [{"ph": "X"', "ends in the middle"),
    (gzip.compress(b'{"traceEvents": []}' * 99, mtime=0)[:40], "the gzip data is cut or damaged"),
    (b'{"events": []}', "expected a trace with traceEvents"),
    (b'{"traceEvents": []}', "has no kernels"),
    (json.dumps({"traceEvents": [kernel(0, 1)]}).encode(), "but none of NCCL's"),
    (
        json.dumps({"traceEvents": [kernel(0, 1, name="ncclDevKernel_AllReduce")]}).encode(),
        "say neither sizes nor groups",
    ),
    (b"\x89PNG\r\n\x1a\n\x00\xff", "expected a trace in JSON"),
]


@pytest.mark.parametrize(("content", "message"), BAD)
def test_files_that_are_no_traces_are_told(tmp_path, content: bytes, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_profile(path)
    assert message in str(error.value)
    assert "\n" not in error.value.message


def test_a_trace_is_read_though_its_name_promises_that_it_is_packed(tmp_path) -> None:
    plain = trace(tmp_path / "t.json", [kernel(0, 1), nccl(1, 1)])
    assert read_profile(plain.rename(tmp_path / "t.json.gz")).world == 8


def test_a_trace_that_has_changed_under_its_name_is_simulated_anew(tmp_path) -> None:
    text = f"cluster: {{machine: dgx-h100, nodes: 1}}\nworkload: {{trace: {tmp_path / 't.json'}}}\n"
    cell, seconds = expand(parse_source(text, "x.yaml"))[0], list[float]()
    for length in (1, 1000):
        trace(tmp_path / "t.json", [kernel(0, length), nccl(length, 1)])
        steps = [simulate_step(resolve_step(cell)) for _ in range(2)]
        assert steps[0] is steps[1]
        seconds.append(steps[0].seconds)
    assert seconds[1] > seconds[0] + 900e-6


def test_a_trace_of_another_world_is_refused(tmp_path) -> None:
    path = trace(tmp_path / "t.json", [kernel(0, 1), nccl(1, 1)])
    text = f"cluster: {{machine: dgx-h100, nodes: 2}}\nworkload: {{trace: {path}}}\n"
    with pytest.raises(InputError, match="the trace is of 8 ranks, but the cluster has 16 GPUs"):
        resolve_step(expand(parse_source(text, "x.yaml"))[0])


@pytest.mark.parametrize(
    ("group", "axis"),
    [
        ("tp", "tp"),
        ("mesh_tp", "tp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("default", "dp"),
        ("dp_shard_cp", "dp"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("17", "extra"),
        ("extra", "extra"),
        ("group 0", "extra"),
    ],
)
def test_recorded_groups_count_for_the_parallelism_that_they_are_named_after(group, axis) -> None:
    assert axis_of(group) == axis
