"""`netsim compare` of profiler traces: the calls of a rank beside simulated ones."""

import csv
import json
from pathlib import Path

import pytest

from netsim.training.compared import measured_calls
from netsim.training.recorded.kineto import CallDescription, Kernel, Profile, ProfiledCall
from netsim.training.timeline import write_step_trace
from tests.cli.command import netsim
from tests.training.profiler import NAME, Recording, said, steps_of_data_parallelism
from tests.training.steps import TEXT, step

MODEL = "  parallelism: {data: fsdp}\n  micro_batch: 4"


def written(path: Path, rest: str = MODEL) -> Path:
    write_step_trace(path, step(rest, batch=64))
    return path


@pytest.mark.slow
def test_a_simulated_step_agrees_with_its_own_trace(tmp_path, capsys) -> None:
    path = written(tmp_path / "t.json.gz")
    outcome = netsim(capsys, "compare", path, "--topology", "dgx-h100", "--tolerance", "2%")
    assert outcome.code == 0, outcome.out + outcome.err
    assert "all_gather      dp" in outcome.out
    assert "reduce_scatter  dp" in outcome.out
    assert "simulated" in outcome.out


@pytest.mark.slow
def test_a_model_agrees_with_its_own_trace_and_names_what_is_missing(tmp_path, capsys) -> None:
    path = written(tmp_path / "t.json.gz")
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        TEXT.format(
            nodes=1,
            gpus=8,
            model="bert-base",
            batch=64,
            rest=MODEL + "\n  extras: [{preset: gradient-norm}]",
        )
    )
    outcome = netsim(capsys, "compare", path, "--scenario", scenario, "--json", tmp_path / "c.json")
    assert outcome.code == 0, outcome.out + outcome.err
    assert outcome.out.count("(not in the trace)") == 1
    (value,) = json.loads((tmp_path / "c.json").read_text())
    assert value["simulated_step_us"] == pytest.approx(value["step_us"], rel=0.02)
    assert [one["measured"] is None for one in value["calls"]].count(True) == 1


@pytest.mark.slow
def test_what_is_beyond_the_tolerance_ends_with_1(tmp_path, capsys) -> None:
    path = steps_of_data_parallelism(900, 500, 600).write(tmp_path / "t.json")
    outcome = netsim(capsys, "compare", path, "-o", tmp_path / "out")
    assert outcome.code == 1
    assert "taken from the trace: dgx-h100 (NVIDIA H100 80GB HBM3)" in outcome.err
    assert "step 5 of the trace's 3 to 5" in outcome.err
    assert "# beyond the tolerance" in outcome.err
    with (tmp_path / "out/collectives.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert float(line["measured_us"]) == pytest.approx(440)
    assert float(line["least_us"]) == pytest.approx(340)
    assert float(line["calls"]) == 1
    # 300 of 740, 340 and 440 us run beside a kernel, and 10 before it ends: 190 each.
    assert float(line["measured_exposed_us"]) == pytest.approx((550 + 150 + 250) / 3)
    assert {"collectives.svg", "collectives.png", "comparison.json"} <= {
        file.name for file in (tmp_path / "out").iterdir()
    }


def test_exposed_is_the_time_without_another_kernel() -> None:
    one = CallDescription("all_reduce", 8, "float", (0, 1), "dp")
    kernels = (Kernel(0.0, 1.0), Kernel(0.5, 2.0), Kernel(4.0, 5.0))
    calls = tuple(
        ProfiledCall(*when, "1", one) for when in ((0.0, 2.0), (1.0, 4.5), (6.0, 7.0), (3.0, 6.0))
    )
    (found,) = measured_calls(Profile(0, 2, kernels, calls))
    assert found.exposed_us == pytest.approx((0 + 2 + 1 + 2) * 1e6)
    (bare,) = measured_calls(Profile(0, 2, (), calls))
    assert bare.exposed_us == pytest.approx(bare.total_us)


BAD = [
    (["--topology", "dgx-h100", "--algo", "ring"], "--algo: is for logs of one collective"),
    (["--topology", "dgx-h100", "--nodes", "3"], "the trace is of 8 ranks, but the cluster has 24"),
    (["--topology", "dgx-h100", "--collective", "all_reduce"], "--collective: goes with logs"),
    (["--scenario", "dp-fsdp-zero"], "a trace is held against one cell, not a sweep"),
    (["--topology", "no-such"], "no-such"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD)
def test_what_does_not_fit_a_trace_is_one_line(tmp_path, capsys, options, message) -> None:
    path = steps_of_data_parallelism(500).write(tmp_path / "t.json")
    outcome = netsim(capsys, "compare", path, *options)
    assert outcome.code == 2, outcome.out + outcome.err
    assert message in outcome.err
    assert len([line for line in outcome.err.splitlines() if line.startswith("netsim:")]) <= 1
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "na', "ends in the middle"),
        (b'{"schemaVersion": 1, "traceEvents": []}', "has no kernels"),
        (b'[{"ph": "X", "cat": "kernel", "name": "g", "ts": 1, "dur": 1}]', "none of NCCL's"),
        (b"\x1f\x8b\x08\x00garbage", "the gzip data is cut or damaged"),
    ],
)
def test_traces_that_cannot_be_read_are_one_line(tmp_path, capsys, content, message) -> None:
    path = tmp_path / "t.json.gz" if content[:1] == b"\x1f" else tmp_path / "t.json"
    path.write_bytes(content)
    outcome = netsim(capsys, "compare", path, "--topology", "dgx-h100")
    assert outcome.code == 2
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_trace_that_names_no_machine_asks_for_one(tmp_path, capsys) -> None:
    made = Recording()
    made.kernel(0, 10, name=NAME, **said())
    path = made.write(tmp_path / "t.json", deviceProperties=[])
    outcome = netsim(capsys, "compare", path)
    assert outcome.code == 2
    assert "the trace does not say on what it ran (give --topology)" in outcome.err
