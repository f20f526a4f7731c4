"""NCCL's graph XML: what is written reads back as it was, what does not match is refused."""

import re

import pytest

from netsim.base.errors import ScenarioError
from netsim.nccl.communicator import ChannelGraph
from netsim.nccl.facts import facts_of
from netsim.nccl.graph_xml import GraphFile, graphs_of, write_graphs
from netsim.nccl.node import search_node
from tests.nccl.nccl_nodes import node_of, system_of
from tests.nccl.nccl_oracles import DATA

SYSTEMS = sorted(path.stem for path in (DATA / "topo").glob("*.xml"))
H100 = "h100_8nic"


def read(text: str, config: str, *, networked: bool) -> dict[int, ChannelGraph]:
    table = node_of(config, networked=networked).table
    return graphs_of(GraphFile("g.xml", text), table, facts_of())


@pytest.mark.parametrize("networked", [False, True])
@pytest.mark.parametrize("config", SYSTEMS)
def test_channels_are_read_as_they_were_written(config: str, networked: bool) -> None:
    if networked and "nic" not in config and config not in ("dgxa100", "a100_tcp"):
        pytest.skip("the system has no NIC")
    view = node_of(config, networked=networked)
    found = read(write_graphs(view), config, networked=networked)
    assert found[0] == view.ring
    assert found[1] == view.tree
    assert found.get(3) == (view.nvls if view.nvls and view.nvls.n_channels else None)


def test_the_layout_is_nccls() -> None:
    lines = write_graphs(node_of(H100, networked=True)).splitlines()
    assert lines[:7] == [
        '<graphs version="1">',
        '  <graph id="0" pattern="4" crossnic="2" nchannels="8" speedintra="48" speedinter="48" '
        'latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="0">',
        "    <channel>",
        '      <net dev="0"/>',
        '      <gpu dev="0" rank="0"/>',
        '      <gpu dev="0x7" rank="7"/>',
        '      <gpu dev="0x6" rank="6"/>',
    ]
    alone = write_graphs(node_of(H100, networked=False))
    assert "<net" not in alone
    assert re.findall(r'<graph id="(\d)"', alone) == ["0", "1", "3"]


RING = """<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="20" speedinter="20"
         latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="1">
    <channel>
      <gpu dev="0"/><gpu dev="0x2"/><gpu dev="4"/><gpu dev="6"/>
      <gpu dev="1"/><gpu dev="3"/><gpu dev="5"/><gpu dev="7"/>
    </channel>
  </graph>
</graphs>
"""


def test_given_channels_take_the_place_of_the_search() -> None:
    file = GraphFile("g.xml", RING)
    view = search_node(
        system_of(H100),
        networked=False,
        graphs_of_file=lambda table, facts: graphs_of(file, table, facts),
    )
    assert view.ring.channels[0].gpus == (0, 2, 4, 6, 1, 3, 5, 7)
    assert (view.ring.n_channels, view.ring.bw_intra) == (1, 20.0)
    assert view.tree.n_channels == 1  # searched, for as many channels as the ring has
    assert view.nvls == node_of(H100, networked=False).nvls


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'dev="7"',
            'dev="8"',
            "g.xml:6:49: gpu.dev: the node has the GPUs 0, 0x1, 0x2, 0x3, 0x4, "
            "0x5, 0x6, 0x7, not 0x8",
        ),
        ('dev="7"', 'dev="3"', "g.xml:6:49: gpu.dev: GPU 3 is in this channel twice"),
        ('<gpu dev="7"/>', "", "g.xml:4:5: channel: expected all 8 GPUs of the node, got 7"),
        (
            '<gpu dev="7"/>',
            '<net dev="0"/>',
            "g.xml:6:49: net: the job has one node, whose channels do not use the network",
        ),
        (
            'nchannels="1"',
            'nchannels="2"',
            "g.xml:2:3: graph.nchannels: 2 channels announced, 1 there",
        ),
        (
            'nchannels="1"',
            'nchanels="1"',
            "g.xml:2:3: graph.nchanels: unknown attribute (did you mean nchannels?)",
        ),
        (
            'nchannels="1"',
            'nchannels="65"',
            "g.xml:2:3: graph.nchannels: expected a whole number from 1 to 64, got '65'",
        ),
        ('pattern="4"', 'pattern="1"', "g.xml:2:3: graph.pattern: graph 0 has pattern 4, got 1"),
        (
            'speedintra="20"',
            'speedintra="0"',
            "g.xml:2:3: graph.speedintra: expected a speed in GB/s above 0",
        ),
        (
            '"NVL"',
            '"NVLINK"',
            "g.xml:2:3: graph.typeintra: expected one of LOC, NVL, NVB, C2C, "
            "PIX, PXB, P2C, PXN, PHB, SYS, NET, DIS, got 'NVLINK' (did you mean NVL?)",
        ),
        ('dev="0x2"', 'dev="two"', "g.xml:5:21: gpu.dev: expected a hexadecimal number, got 'two'"),
        ('<graphs version="1">', "<graph>", "g.xml:9:3: not XML: mismatched tag"),
        ('version="1"', 'version="2"', "g.xml:1:1: graphs.version: expected version 1, got '2'"),
    ],
)
def test_what_does_not_match_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    assert old in RING
    with pytest.raises(ScenarioError) as error:
        read(RING.replace(old, new, 1), H100, networked=False)
    assert str(error.value) == message


def test_channels_of_one_node_do_not_fit_several() -> None:
    with pytest.raises(
        ScenarioError, match=r"^g.xml:4:5: channel: of several nodes: expected a net"
    ):
        read(RING, H100, networked=True)
