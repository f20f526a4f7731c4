"""Why a step takes as long as it does: its path adds up, its answers are those of other steps."""

import csv
import json
from itertools import pairwise

import numpy as np
import pytest

from netsim.scenario.cells import expand
from netsim.schedule.schedule import TRANSFER, Style
from netsim.training.explain import (
    _scaled_form,
    causes_of,
    explained_step,
    path_sections,
    visits_of,
)
from netsim.training.resolve import resolve_step
from netsim.training.run import launch_waits, simulate_step
from netsim.workloads.lower import Coarse
from netsim.yamlio.models import override
from tests.cli.command import netsim
from tests.training.steps import TEXT, source, step

SMALL = (
    "{layers: 4, hidden: 1024, heads: 8, kv_heads: 8, ffn: 4096, vocabulary: 8000, sequence: 512}"
)
CASES = [
    "  parallelism: {dp: 8}",
    "  parallelism: {dp: 8, data: fsdp}",
    "  parallelism: {tp: 2, pp: 2, dp: 2, sequence_parallel: true}",
    "  parallelism: {pp: 4, dp: 2}\n  pipeline: {schedule: zb-h1}",
    "  parallelism: {cp: 2, dp: 4}\n  stragglers: [{rank: 3, slowdown: 1.5}]",
]


def made(rest: str, batch: int = 16):
    return step(f"{rest}\nlaunch: {{host: 0us}}", model=SMALL, batch=batch)


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize("rest", [*CASES, CASES[0] + "\nlaunch: {host: 20us}"])
def test_the_path_covers_the_step_without_a_gap(rest: str) -> None:
    found = step(rest, model=SMALL, batch=16)
    visits = visits_of(found)
    assert visits[0].begin == 0
    assert visits[-1].end == found.seconds
    for one, after in pairwise(visits):
        assert after.begin == pytest.approx(one.end, rel=1e-9)
    assert sum(causes_of(visits).values()) == pytest.approx(found.seconds, rel=1e-6)
    assert ("launches by the host" in causes_of(visits)) == (visits[0].entry.kind == "host")
    assert visits[0].entry.kind == "host" or "20us" not in rest
    hops = list(path_sections(visits))
    assert sum(hop.end - hop.begin for hop in hops) == pytest.approx(found.seconds, rel=1e-9)


def test_the_path_of_a_pipeline_goes_down_and_up_its_stages() -> None:
    hops = list(path_sections(visits_of(made("  parallelism: {pp: 4, dp: 2}"))))
    names = [(hop.name, hop.rank) for hop in hops]
    assert names[:7] == [
        ("F mb 0", 0),
        ("send activations mb 0", 0),
        ("F mb 0", 2),
        ("send activations mb 0", 2),
        ("F mb 0", 4),
        ("send activations mb 0", 4),
        ("F mb 0", 6),
    ]
    assert names[-1][0] == "step"


def test_a_slow_gpu_is_on_the_path_and_without_it_the_step_is_the_other_s() -> None:
    rest = "  parallelism: {dp: 8, data: allreduce}"
    slow = made(rest + "\n  stragglers: [{rank: 5, slowdown: 1.5}]")
    assert {v.rank for v in visits_of(slow) if not v.entry.collective} == {5}
    answers = {one["what"]: one for one in explained_step(slow)["answers"]}
    assert answers["stragglers"]["free_us"] == pytest.approx(made(rest).seconds * 1e6, rel=1e-9)


def test_free_communication_leaves_the_computing() -> None:
    found = explained_step(made("  parallelism: {dp: 8, data: allreduce}"))
    answers = {one["what"]: one for one in found["answers"]}
    (gpus,) = found["gpus_us"]
    assert answers["dp"]["free_us"] == pytest.approx(gpus["computing"], rel=1e-3)
    saved = found["time_us"] - answers["dp"]["faster_10pct_us"]
    assert saved == pytest.approx(gpus["exposed dp"] * (1 - 1 / 1.1), rel=1e-3)
    assert answers["compute"]["free_us"] == pytest.approx(gpus["exposed dp"], rel=1e-3)


WIDE = (
    "{layers: 2, hidden: 4096, heads: 32, kv_heads: 32, ffn: 8192, vocabulary: 8000, "
    "sequence: 2048}"
)
LINKS = [
    ("NVLink rate", 1, "tp: 8", "cluster.overrides", ("20.6GB/s", "22.66GB/s")),
    ("NIC rate", 2, "dp: 16, data: allreduce", "cluster.nic", ("100Gbps", "110Gbps")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("what", "nodes", "parallel", "key", "rates"), LINKS)
def test_a_kind_of_links_is_as_fast_as_in_another_scenario(
    what, nodes, parallel, key, rates
) -> None:
    """With a tenth more written down; NCCL chooses alike."""
    asked = source(f"  parallelism: {{{parallel}}}", model=WIDE, batch=16, nodes=nodes)
    now, other = (
        simulate_step(resolve_step(expand(override(asked, key, _given(key, rate), "test"))[0]))
        for rate in rates
    )
    answers = {one["what"]: one for one in explained_step(now)["answers"]}
    assert answers[what]["faster_10pct_us"] == pytest.approx(other.seconds * 1e6, rel=1e-6)
    assert other.seconds < now.seconds * (1 - 1e-3)
    assert answers[what]["free_us"] < answers[what]["faster_10pct_us"]


def _given(key: str, rate: str) -> object:
    inside = key == "cluster.overrides"
    return [{"machine": {"scale_up": {"link_bandwidth": rate}}}] if inside else rate


@pytest.mark.slow
def test_links_that_nothing_crosses_are_not_asked_about() -> None:
    answers = {one["what"] for one in explained_step(made("  parallelism: {tp: 8}"))["answers"]}
    assert "NVLink rate" in answers
    assert "NIC rate" not in answers


def test_calls_are_counted_on_the_path() -> None:
    found = explained_step(made("  parallelism: {tp: 8}", batch=1))
    layers = [one for one in found["calls"] if one["name"] == "mlp output"]
    assert [(one["collective"], one["on_path"]) for one in layers] == [("all_reduce", 4)]
    assert layers[0]["path_us"] == pytest.approx(layers[0]["exposed_us"], rel=1e-6)
    assert found["causes_us"]["tp communication"] == pytest.approx(
        sum(one["path_us"] - one["sharing_us"] for one in found["calls"]), rel=1e-6
    )


@pytest.mark.full
def test_explain_prints_and_writes_a_step(tmp_path, capsys) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT.format(nodes=1, gpus=8, model=SMALL, batch=8, rest=CASES[2]))
    outcome = netsim(capsys, "explain", path, "-o", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    for text in (
        "along the critical path",
        "compute, backward",
        "stage 1",
        "10 % faster",
        "F mb 0",
    ):
        assert text in outcome.out
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"explain.json", "explain.csv", "explain-breakdown.png", "explain-what-if.svg"} <= files
    found = json.loads(netsim(capsys, "explain", path, "--format", "json").out)
    assert json.loads((tmp_path / "out/explain.json").read_text()) == found
    with (tmp_path / "out/explain.csv").open() as file:
        lines = list(csv.DictReader(file))
    causes = {one["name"]: float(one["value"]) for one in lines if one["section"] == "cause"}
    assert causes == found["causes_us"]


@pytest.mark.parametrize("option", [["--state"], ["--size", "1M"]])
def test_what_goes_with_collectives_only_is_told(tmp_path, capsys, option) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT.format(nodes=1, gpus=8, model=SMALL, batch=16, rest=CASES[0]))
    outcome = netsim(capsys, "explain", path, *option)
    assert outcome.code == 2
    assert f"{option[0]}: goes with a collective, not with a training step" in outcome.err


def test_a_part_of_a_collective_moves_so_much_less_but_one_byte_at_least() -> None:
    style = Style(TRANSFER, latency=4e-6)
    coarse = Coarse(8.0, (style,), *np.zeros((2, 4), np.int32), np.array([1, 2, 5, 1000]))
    found = _scaled_form(coarse, 0.25)
    assert (found.seconds, found.styles[0].latency) == (2.0, 1e-6)
    assert found.amount.tolist() == [1, 1, 1, 250]


def test_idle_time_before_a_late_launch_is_a_wait_for_launches() -> None:
    slow_host = step("  parallelism: {data: zero1}\nlaunch: {host: 60us}", batch=8)
    waits = launch_waits(slow_host.spans)
    idle = slow_host.breakdown.idle
    assert (waits > 0.3 * slow_host.seconds).all()
    assert (waits <= idle * (1 + 1e-9)).all()
    (of_all,) = explained_step(slow_host)["gpus_us"]
    assert of_all["waiting for launches"] == pytest.approx(float(waits.mean()) * 1e6)
    assert of_all["waiting for launches"] + of_all["waiting"] == pytest.approx(idle.mean() * 1e6)
    graph = step("  parallelism: {data: zero1}\nlaunch: cuda_graph", batch=8)
    assert launch_waits(graph.spans).sum() == 0
