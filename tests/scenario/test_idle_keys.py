"""Keys without effect are named before anything runs, with the reason, and have none indeed."""

from pathlib import Path

import pytest

from netsim.report.rows import run
from netsim.scenario.cells import RULES, expand, unused_keys
from netsim.yamlio.models import override
from netsim.yamlio.read import Source, dump, parse_source
from tests.cli.command import netsim

STEP = """
cluster: {machine: h100-x4}
workload:
  model: {layers: 2, hidden: 256, heads: 4, ffn: 512, vocabulary: 1000, sequence: 64}
  batch: 8
"""
MOE = STEP.replace("sequence: 64", "sequence: 64, experts: 4, top_k: 2")
# What the scenario has besides, and two values of the key; each is a key of idle.csv.
IDLE = {
    "workload.replicas.bucket": ({"parallelism.data": "fsdp"}, "64KiB", "50MiB"),
    "workload.replicas.first_bucket": ({"parallelism.data": "zero1"}, "8KiB", "1MiB"),
    "workload.replicas.overlap": ({"parallelism.data": "fsdp2"}, True, False),
    "workload.replicas.no_sync": ({"parallelism.data": "allreduce"}, True, False),
    "workload.replicas.reshard": ({}, True, False),
    "workload.replicas.backward_prefetch": ({"parallelism.data": "zero2"}, "pre", "none"),
    "workload.replicas.limit_all_gathers": ({}, True, False),
    "workload.replicas.overlap_gather": ({"parallelism.data": "fsdp"}, True, False),
    "workload.replicas.gather": ({"dtype": "fp8"}, "weights", "fp8"),
    "workload.compression.keep": ({"compression.kind": "fp16"}, 0.01, 0.5),
    "workload.replicas": (
        {"parallelism.dp": 1, "parallelism.tp": 4}, {"bucket": "8KiB"}, {"overlap": False},
    ),
    "workload.parallelism.tensor_overlap": ({}, "none", "pipelined"),
    "workload.parallelism.sequence_parallel": ({}, True, False),
    "workload.parallelism.expert_tensor": ({}, True, False),
    "workload.parallelism.context": ({"parallelism.tp": 2}, "p2p", "all_gather"),
    "workload.parallelism.expert_overlap": ({}, True, False),
    "workload.parallelism.dispatcher": ({}, "alltoall", "deduplicated"),
    "workload.pipeline.blocking_sends": ({}, True, False),
    "workload.scaling": ({}, "tensor", "delayed"),
}  # fmt: skip


def source_of(key: str) -> Source:
    expert = "expert" in key or "dispatcher" in key
    source = parse_source(MOE if expert else STEP, "step.yaml")
    for name, value in IDLE[key][0].items():
        source = override(source, f"workload.{name}", value, "here")
    return source


def test_every_key_of_the_table_is_tried() -> None:
    keys = {".".join(path) for path, _, _ in RULES if path[0] == "workload"}
    others = {"root", "pairs", "matrix", "parameters"}  # of collectives
    assert keys == {*IDLE} | {f"workload.{name}" for name in others}


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("key", IDLE)
def test_a_key_without_effect_has_none_and_is_named(key: str, tmp_path: Path) -> None:
    times = []
    for value in IDLE[key][1:]:
        source = override(source_of(key), key, value, f"--set {key}")
        told = list(unused_keys(expand(source)))
        assert any(f"{key} changes nothing: " in text for text in told), told
        times.append(step_time(source, tmp_path))
    assert times[0] == pytest.approx(times[1], rel=1e-12)


def step_time(source: Source, folder: Path) -> float:
    file = folder / "x.yaml"
    file.write_text(dump(source.data))
    (row,) = run(file)
    assert row.status == "ok", row.error
    assert row.step_time_us is not None
    return row.step_time_us


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("workload.replicas.bucket", {"parallelism.data": "ddp"}),
        ("workload.parallelism.context", {"parallelism.cp": 2}),
        ("workload.scaling", {"dtype": "fp8"}),
        ("workload.compression.keep", {"compression.kind": "top-k"}),
    ],
)
def test_a_key_with_effect_is_not_named(key: str, settings: dict[str, object]) -> None:
    source = override(parse_source(STEP, "x"), key, IDLE[key][1], "here")
    for name, value in settings.items():
        source = override(source, f"workload.{name}", value, "here")
    assert not list(unused_keys(expand(source)))


TWO = """\
cluster: {machine: h100-x4, nodes: 2, fabric: {kind: single-switch, sharp: true}}
workload: {collective: all_reduce, sizes: [1KiB]}
nccl: {env: {NCCL_DEBUG: INFO}}
"""


@pytest.mark.slow
def test_check_and_run_name_switches_that_nobody_asks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(TWO)
    why = "NCCL has switches reduce only with NCCL_COLLNET_ENABLE=1 in nccl.env"
    sharp = f"warning: x.yaml:1:69: cluster.fabric.sharp changes nothing: {why}"
    debug = "warning: x.yaml:3:14: nccl.env.NCCL_DEBUG changes nothing: "
    checked, ran = netsim(capsys, "check", "x.yaml").out, netsim(capsys, "run", "x.yaml").err
    for told in (checked, ran):
        assert sharp in told
        assert debug in told
    asked = ("--set", "nccl.env={NCCL_COLLNET_ENABLE: 1}")
    assert "changes nothing" not in netsim(capsys, "check", "x.yaml", *asked).out
