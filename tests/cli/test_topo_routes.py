"""`netsim topo show --routes`: flows and collisions by name."""

import pytest

from tests.cli.test_expect import netsim


def shown(capsys, *options: str) -> str:
    return netsim(capsys, "topo", "show", "dgx-h100", "--routes", *options).out


@pytest.mark.slow
def test_static_routes_of_a_full_fabric_do_not_meet(capsys) -> None:
    out = shown(capsys, "--nodes", "64", "--fabric", "fat-tree")
    assert "collisions" in out
    assert "in use" in out


@pytest.mark.slow
def test_hashed_routes_collide_and_links_are_named(capsys) -> None:
    spread = "cluster.fabric.routing=ecmp"
    out = shown(capsys, "--nodes", "64", "--fabric", "leaf-spine", "--set", spread)
    lines = out.split("Routes when")[1]
    assert "flows on" in lines
    assert "->" in lines


def test_one_host_has_no_routes_to_count(capsys) -> None:
    outcome = netsim(capsys, "topo", "show", "dgx-h100", "--routes")
    assert outcome.code == 2
    assert "--routes: dgx-h100 has no fabric" in outcome.err
