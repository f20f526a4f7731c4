"""Searches that are kept for other tests are those that would be made."""

from pathlib import Path

import pytest

from netsim.nccl import job
from netsim.nccl.environment import settings_from
from netsim.nccl.facts import NEWEST
from netsim.nccl.graph_xml import write_graphs
from netsim.nccl.node import search_node
from tests.nccl import searches
from tests.nccl.nccl_nodes import system_of


def test_a_node_is_searched_once_for_each_question(tmp_path: Path) -> None:
    asked = []

    def search(*system: object, **given: object) -> object:
        asked.append(given)
        return search_node(*system, **given)

    few = settings_from({"NCCL_MAX_NCHANNELS": "2"})
    one, other = (searches.kept(tmp_path / "kept", search) for _ in range(2))
    for system in (system_of("h100x2"), system_of("v100pcie4")):
        for more in ({}, {"settings": few}):
            views = [find(system, networked=True, version=NEWEST, **more) for find in (one, other)]
            found = search_node(system, networked=True, version=NEWEST, **more)
            assert [write_graphs(view) for view in views] == [write_graphs(found)] * 2
    assert len(asked) == 4
    for _ in range(2):
        one(system_of("h100x2"), networked=True, graphs_of_file=lambda *_: {})
    assert len(asked) == 6  # graphs that are given may be any


def test_what_other_code_found_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0123").mkdir()
    monkeypatch.setattr(job, "search_node", None)
    searches.keep(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [searches.code()]
    assert job.search_node is not None
