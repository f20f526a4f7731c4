"""Defaults that decide a result are named: dragonfly links, static paths under a dead NIC."""

import pytest

from netsim.scenario.cells import expand
from netsim.tasks.answer import notes_of
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim


def assumed(cluster: str) -> list[str]:
    text = f"cluster: {{machine: dgx-h100, {cluster}}}\nworkload: {{collective: all_reduce}}\n"
    notes = notes_of(expand(parse_source(text, "x.yaml")))
    return [note for note in notes if note.startswith("assumed: ")]


def test_a_dragonfly_by_default_says_how_oversubscribed_it_is() -> None:
    (note,) = assumed("nodes: 64, fabric: {kind: dragonfly}")
    assert "16 ports to hosts and 4 links to other groups, which is 4:1" in note


@pytest.mark.parametrize(
    "cluster",
    [
        "nodes: 16, fabric: {kind: dragonfly}",  # 128 NICs: one group, which nothing leaves
        "nodes: 64, fabric: {kind: dragonfly, global_links: 16}",
        "nodes: 64, fabric: {kind: fat-tree}",
        "nodes: 64",
        "nodes: 1",
    ],
)
def test_fabrics_that_are_counted_or_do_not_block_assume_nothing(cluster: str) -> None:
    assert assumed(cluster) == []


@pytest.mark.parametrize(
    ("broken", "who"),
    [
        ("faults: [{nic: node0.nic0}]", "node0.nic0"),
        ("overrides: [{node: 1, nics: [0, 1, 2]}]", "the NICs that are left out"),
    ],
)
def test_static_paths_are_named_under_a_dead_nic(broken: str, who: str) -> None:
    (note,) = assumed(f"nodes: 4, nic: 100Gbps, {broken}")
    assert note.startswith("assumed: static paths, as infiniband of this generation usually has")
    assert who in note
    assert assumed(f"nodes: 4, nic: 200Gbps, {broken}") == []  # packets spread over all paths
    for named in ("routing: static", "routing: adaptive", "transport: efa"):
        fabric = f"fabric: {{kind: rail-optimized, {named}}}"
        assert assumed(f"nodes: 4, nic: 100Gbps, {broken}, {fabric}") == []


def test_expect_names_what_it_assumes_of_each_machine_of_a_mixed_cluster(tmp_path, capsys) -> None:
    path = tmp_path / "mixed.yaml"
    groups = "[{machine: dgx-h100}, {machine: l40s-pcie-x8}]"
    path.write_text(f"name: mixed\ncluster: {{groups: {groups}}}\n")
    done = netsim(capsys, "expect", path, "all_reduce", "--sizes", "8M")
    assert done.code == 0, done.err
    told = done.out + done.err
    assert "8 NICs of 400 Gb/s a dgx-h100" in told
    assert "a l40s-pcie-x8 (--nic" in told
    assert "assumed: roce joins machines that usually have infiniband, roce" in told
