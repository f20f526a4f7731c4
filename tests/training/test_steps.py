"""Steps on clusters: coarse collectives are the real ones, files say what ran, misfits are told."""

import csv
import gzip
import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from netsim.base.constants import value
from netsim.base.errors import NetsimError, ScenarioError
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.training.resolve import resolve_step
from netsim.workloads.lower import lower
from netsim.workloads.tape import Tape
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim
from tests.training.steps import TEXT, cell, step

STEP = """\
name: little
cluster: {machine: dgx-h100, nodes: 2, gpus_per_node: 4}
workload:
  model: {layers: 4, hidden: 512, heads: 8, ffn: 2048, vocabulary: 1000, sequence: 256}
  batch: 16
  parallelism: {dp: 2, tp: 2, pp: 2}
sweep:
  workload.parallelism.data: [ddp, distributed-optimizer]
"""


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.sample(19)
@pytest.mark.slow
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "alltoall"])
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 8), (2, 8), (4, 1)])
@pytest.mark.parametrize("nbytes", [1024, 2**20, 2**27])
def test_a_coarse_collective_alone_takes_as_long_as_the_real_one(
    collective: str, nodes: int, gpus: int, nbytes: int
) -> None:
    ranks = nodes * gpus
    resolved = resolve_step(cell(nodes=nodes, gpus=gpus, batch=ranks))
    tape = Tape()
    group = np.arange(ranks, dtype=np.int32).reshape(1, -1)
    tape.collective("x", "dp", collective, group, nbytes)
    lowered = lower(tape, ranks, resolved.costs)
    coarse = lowered.coarse[0][0]
    real = next(iter(resolved.costs.times.values())).seconds
    alone = simulate(place(lowered.schedule, resolved.topology)).makespan
    assert real < coarse.seconds < real + 20e-6  # and its kernel's launch
    assert alone == pytest.approx(coarse.seconds, rel=0.01)


def test_compute_and_communication_share_the_sms() -> None:
    """What NCCL's channels hold of the SMs, computing beside it does not have."""
    resolved = resolve_step(cell())
    tape, ranks = Tape(), np.arange(8, dtype=np.int32)
    tape.compute("gemm", ranks, 1.0)
    found = tape.collective("x", "dp", "all_reduce", ranks.reshape(1, -1), 2**30)
    assert found == (1,)
    lowered = lower(tape, 8, resolved.costs)
    ends = simulate(place(lowered.schedule, resolved.topology)).end
    coarse = lowered.coarse[1][0]
    part = coarse.channels / resolved.cluster.machine_of(0).gpu.sms
    longer = ends[lowered.end[0]] - 1.0
    # While it starts up it moves nothing yet, and holds nothing.
    assert longer == pytest.approx(part * coarse.seconds, rel=0.02)


def test_groups_that_meet_on_a_link_share_it() -> None:
    """Two pairs of hosts over one oversubscribed spine take longer together than one alone."""
    text = "  parallelism: {dp: 4}"
    base = cell(text, nodes=4, gpus=1, batch=4)
    resolved = resolve_step(base)
    tape = Tape()
    pairs = np.array([[0, 2], [1, 3]], np.int32)
    tape.collective("x", "dp", "all_reduce", pairs, 2**26)
    both = simulate(place(lower(tape, 4, resolved.costs).schedule, resolved.topology)).makespan
    alone = next(iter(resolved.costs.coarse_forms.values())).seconds
    assert both == pytest.approx(alone, rel=0.01)  # nothing is shared in a non-blocking fabric


@pytest.mark.slow
def test_the_breakdown_adds_up_to_the_step() -> None:
    found = step("  parallelism: {dp: 2, tp: 2, pp: 2}", batch=16)
    parts = found.breakdown
    total = parts.computing + parts.exposed.sum(axis=0) + parts.idle
    assert total == pytest.approx(np.full(8, found.seconds), rel=1e-9)
    assert parts.exposed_by_entry.sum() >= parts.exposed.sum() * (1 - 1e-9)


@pytest.mark.slow
def test_a_run_writes_everything_about_its_steps(tmp_path: Path, capsys) -> None:
    path = tmp_path / "little.yaml"
    path.write_text(STEP)
    outcome = netsim(capsys, "run", path, "-o", tmp_path / "out", "-q")
    assert outcome.code == 0, outcome.err
    results = table(tmp_path / "out/results.csv")
    parts = table(tmp_path / "out/breakdown.csv")
    assert [row["step_time_us"] for row in results] == [row["step_time_us"] for row in parts]
    assert {row["axis:workload.parallelism.data"] for row in parts} == {
        "ddp",
        "distributed-optimizer",
    }
    calls = table(tmp_path / "out/collectives.csv")
    assert {row["kind"] for row in calls} == {"tp", "pp", "dp"}
    assert all(float(row["time_us"]) >= 0.99 * float(row["alone_us"]) for row in calls)
    memory = table(tmp_path / "out/memory.csv")
    assert [row["stage"] for row in memory] == ["0", "1"]
    assert (tmp_path / "out/breakdown.png").stat().st_size > 0
    trace = json.loads(gzip.decompress((tmp_path / "out/trace.json.gz").read_bytes()))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in slices} == set(range(8))
    named = [event["args"] for event in slices if "Collective name" in event["args"]]
    assert {args["Process Group Description"] for args in named} == {"tp", "pp", "dp"}
    for pid in range(8):  # nothing overlaps on a stream
        for tid in {event["tid"] for event in slices if event["pid"] == pid}:
            mine = [e for e in slices if (e["pid"], e["tid"]) == (pid, tid)]
            mine.sort(key=lambda e: e["ts"])
            for one, after in pairwise(mine):
                assert one["ts"] + one["dur"] <= after["ts"] * (1 + 1e-9)


@pytest.mark.slow
def test_a_resumed_run_has_the_same_breakdown(tmp_path: Path, capsys) -> None:
    path, out = tmp_path / "little.yaml", tmp_path / "out"
    path.write_text(STEP)
    netsim(capsys, "run", path, "-o", out, "-q", "--set", "outputs=[csv]")
    whole = (out / "breakdown.csv").read_bytes()
    first, *_ = (out / "journal.jsonl").read_text().splitlines(keepends=True)
    (out / "journal.jsonl").write_text(first)
    netsim(capsys, "run", path, "-o", out, "-q", "--set", "outputs=[csv]", "--resume")
    assert (out / "breakdown.csv").read_bytes() == whole


MISFITS = [
    ("  parallelism: {dp: 3}", "x.yaml:6:3: workload.parallelism: dp 3 make 3 ranks, but"),
    ("  parallelism: {tp: 3}", "workload.parallelism: tp 3 do not divide the 8 GPUs"),
    ("  parallelism: {tp: 8}", "parallelism.tp: 12 heads are not divisible by tp 8"),
    ("  parallelism: {pp: 8}", "parallelism.pp: 12 layers are not divisible by pp 8"),
    ("  parallelism: {ep: 2}", "parallelism.ep: bert-base has no experts"),
    ("  parallelism: {cp: 8}\n  sequence: 100", "parallelism.cp: a sequence of 100"),
    ("  parallelism: {pp: 2, data: zero3}", "parallelism.data: zero3 does not go with pp 2"),
    ("  parallelism: {order: tp-dp}", "parallelism.order: expected the axes"),
    ("  parallelism: {data: fdsp}", "parallelism.data: expected one of"),
    ("  micro_batch: 3", "workload.batch: 8 samples cannot be divided"),
    ("  pipeline: {chunks: 2}", "pipeline.chunks: several chunks a stage need pp"),
    ("  compression: {kind: fp8}\n  parallelism: {data: fsdp}", "compression.kind: "),
    ("  stragglers: [{rank: 9, slowdown: 2}]", "stragglers.0.rank: expected a rank in 0..7, got 9"),
    ("  stragglers: [{rank: 1, slowdown: 0.5}]", "stragglers.0.slowdown: expected at least 1"),
    ("  extras: [{collective: all_reduce}]", "extras.0: expected group, or a preset"),
    ("  compute: {times: nowhere.csv}", "compute.times: nowhere.csv: no such file"),
    ("  paralelism: {dp: 8}", "unknown key 'paralelism' (did you mean parallelism?)"),
    ("  batsh: 3", "unknown key 'batsh' (did you mean batch?)"),
]


@pytest.mark.parametrize(("rest", "message"), MISFITS)
def test_what_does_not_fit_is_told_with_its_place(rest: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        resolve_step(cell(rest))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("llama3-7b", "(did you mean llama3-70b?)"),
        ("[{parameters: 100}]", "expected how long the layer takes"),
        ("[{parameters: 100, forward: 1ms}]", "expected both forward and backward"),
        ("[]", "expected at least one layer"),
        ("{layers: 4, hidden: 512, heads: 7, ffn: 3, vocabulary: 5}", "not divisible by 7 heads"),
        ("{layers: 4, hidden: 512}", "missing"),
    ],
)
def test_models_that_are_none_are_told(model: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        resolve_step(cell(model=model))
    assert message in str(error.value)


def test_what_does_not_fit_into_memory_is_refused_with_what_is_too_large(capsys, tmp_path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("cluster: {machine: dgx-h100}\nworkload: {model: llama3-70b, batch: 8}\n")
    outcome = netsim(capsys, "run", path, "-o", tmp_path / "out")
    assert outcome.code == 2
    assert "a GPU needs" in outcome.err
    assert "optimizer" in outcome.err
    assert "--allow-oom" in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("machine", "peak"), [("dgx-a100", 312e12), ("dgx-h100", 620e12)])
def test_older_kernels_of_attention_reach_what_ampere_instructions_do(
    machine: str, peak: float
) -> None:
    text = TEXT.format(model="llama3-8b", batch=1, nodes=1, gpus=1, rest="  attention: flash2")
    found = resolve_step(expand(parse_source(text.replace("dgx-h100", machine), "x.yaml"))[0])
    roofline = found.setting.roofline
    reached = [roofline.peak("bfloat16") * part for part in roofline.attention]
    assert reached == pytest.approx([0.544 * peak, 0.518 * peak], rel=0.002)


@pytest.mark.parametrize(("power", "part"), [("700W", 1.0), ("500W", (380 / 580) ** (1 / 3))])
def test_clocks_follow_the_power_beyond_what_is_drawn_idle(power: str, part: float) -> None:
    change = f"{{machine: {{gpu: {{power: {power}}}}}}}"
    text = TEXT.format(model="llama3-8b", batch=1, nodes=1, gpus=1, rest="")
    text = text.replace("gpus_per_node: 1", f"gpus_per_node: 1, overrides: [{change}]")
    found = resolve_step(expand(parse_source(text, "x.yaml"))[0]).setting.roofline
    assert found.gemm == pytest.approx(value("sm_90.gemm") * part, rel=1e-3)


@pytest.mark.parametrize(
    ("rest", "largest"),
    [("", "optimizer"), ("batch: 64\n  micro_batch: 64\n  sequence: 8192", "activations")],
)
def test_what_does_not_fit_is_told_in_gigabytes_by_part(rest: str, largest: str) -> None:
    model = "llama3-70b" if not rest else "llama3-8b"
    text = f"cluster: {{machine: dgx-h100}}\nworkload:\n  model: {model}\n"
    text += f"  parallelism: {{tp: 8}}\n  {rest or 'batch: 8'}\n"
    with pytest.raises(NetsimError) as caught:
        resolve_step(expand(parse_source(text, "x.yaml"))[0])
    told = re.search(
        r"needs ([\d.]+) GB \((.*)\), but has 80 GB; (\w+) take most", str(caught.value)
    )
    assert told is not None, str(caught.value)
    parts = {name: float(size) for name, size in re.findall(r"(\w+) ([\d.]+)", told.group(2))}
    assert sum(parts.values()) == pytest.approx(float(told.group(1)), abs=0.3)
    assert max(parts, key=lambda name: parts[name]) == told.group(3) == largest
    # 16 bytes a parameter of one eighth of the model, in mixed precision.
    billions = {"llama3-70b": 70.6, "llama3-8b": 8.03}[model] / 8
    assert parts["weights"] == pytest.approx(2 * billions, rel=0.05)
    assert "allow_oom: true" in str(caught.value)
