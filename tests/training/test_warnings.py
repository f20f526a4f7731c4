"""Warnings of training steps: options that cannot act, groups that straddle NVLink domains."""

import pytest

from netsim.scenario.cells import Cell, expand
from netsim.tasks.answer import notes_of
from netsim.training.resolve import resolve_step, warnings_of_step
from netsim.training.run import simulate_step
from netsim.workloads.step import training_step
from netsim.yamlio.read import parse_source
from tests.training.steps import cell, setting

NVL72 = """\
cluster: {{machine: gb200-nvl72, nodes: {nodes}, fabric: {{kind: nvlink-domain, hosts: {hosts}}}}}
workload:
  model: qwen3-30b-a3b
  batch: {batch}
  allow_oom: true
  parallelism: {{{layout}}}
"""


def warned(one: Cell) -> list[str]:
    resolve_step(one)
    return [*warnings_of_step(one)]


def overlapping(data: str, more: str = "", overlap: str = "true") -> Cell:
    rest = f"  parallelism: {{data: {data}}}\n  replicas: {{overlap: {overlap}{more}}}"
    return cell(rest, model="bert-base", batch=64)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["zero1", "zero2"])
def test_overlap_of_a_single_bucket_is_warned_of_where_it_changes_nothing(data: str) -> None:
    (text,) = warned(overlapping(data))
    assert "workload.replicas.overlap changes nothing" in text
    assert "219 MB of gradients" in text
    times = [
        simulate_step(resolve_step(overlapping(data, overlap=value))).seconds
        for value in ("true", "false")
    ]
    assert times[0] == times[1]  # so the warning is true


@pytest.mark.slow
@pytest.mark.parametrize("data", ["zero1", "zero2"])
def test_overlap_acts_with_several_buckets_and_is_not_warned_of(data: str) -> None:
    several = ", bucket: 40MiB"
    assert warned(overlapping(data, several)) == []
    beside, after = (
        simulate_step(resolve_step(overlapping(data, several, value))).seconds
        for value in ("true", "false")
    )
    assert beside < 0.99 * after


@pytest.mark.parametrize("data", ["ddp", "distributed-optimizer"])
def test_overlap_of_kinds_that_cut_small_buckets_is_not_warned_of(data: str) -> None:
    assert warned(overlapping(data)) == []


@pytest.mark.parametrize("data", ["zero1", "zero2", "distributed-optimizer"])
def test_buckets_of_zero_have_the_size_that_is_asked_for(data: str) -> None:
    def scattered(nbytes: int) -> list[int]:
        made = training_step(setting(dp=8, data=data, overlap=True, shard_bucket=nbytes))
        return [task.nbytes for task in made.entries if task.collective == "reduce_scatter"]

    whole, parts = scattered(0), scattered(1 << 20)
    assert sum(whole) == sum(parts)
    assert len(parts) > len(whole)
    assert min(parts[:-1]) >= 1 << 20  # a bucket is closed once it is full


def straddling(nodes: int, hosts: int, layout: str, batch: int = 128) -> list[str]:
    text = NVL72.format(nodes=nodes, hosts=hosts, layout=layout, batch=batch)
    return warned(expand(parse_source(text, "x.yaml"))[0])


def test_groups_that_straddle_nvlink_domains_are_warned_of_with_a_layout_that_aligns() -> None:
    (text,) = straddling(32, 18, "ep: 64")
    assert text.startswith("1 of 2 ep groups lie in two NVLink domains")
    assert "hosts: 16" in text
    assert "have ep 8" in text
    assert straddling(32, 16, "ep: 64") == []  # what it advises is aligned
    assert straddling(32, 18, "ep: 8") == []


def test_straddling_groups_count_the_faster_axes_of_the_order() -> None:
    (text,) = straddling(32, 18, "tp: 2, ep: 16, sequence_parallel: true")
    assert text.startswith("2 of 8 ep groups")
    assert "tp 2 x ep 16 = 32" in text
    assert straddling(32, 18, "tp: 2, ep: 4, sequence_parallel: true") == []


def test_groups_larger_than_a_domain_are_not_warned_of() -> None:
    assert straddling(8, 4, "ep: 32", batch=32) == []


def test_notes_count_the_cells_of_a_sweep_that_are_warned_of() -> None:
    text = NVL72.format(nodes=32, hosts=18, layout="ep: 64", batch=128)
    swept = text + "sweep: {cluster.fabric.hosts: [18, 16]}\n"
    cells = expand(parse_source(swept, "x.yaml"))
    for one in cells:
        resolve_step(one)
    (note,) = [text for text in notes_of(cells) if text.startswith("warning: ")]
    assert note.endswith("(1 of 2 cells)")
