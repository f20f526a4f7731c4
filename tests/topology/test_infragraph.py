"""InfraGraph's infrastructures in and out, with the package that they need and without it."""

import sys

import pytest

from netsim.base.errors import InputError
from netsim.topology.figures import graph_figures
from netsim.topology.foreign.formats import detect
from netsim.topology.foreign.infragraph import (
    _extent,
    read_infragraph,
    unrated_links,
    write_infragraph,
)
from tests.topology.topology_tools import topology

# Two servers of two XPUs on one switch, in InfraGraph's own words.
RACK = """\
name: rack
devices:
- name: server
  components:
  - {name: xpu, choice: xpu, count: 2}
  - {name: nvlsw, choice: switch, count: 1}
  - {name: nic, choice: nic, count: 2}
  links:
  - {name: nvlink_4}
  - {name: pcie_gen5}
  edges:
  - {scheme: many2many, link: nvlink_4, ep1: {component: xpu}, ep2: {component: nvlsw}}
  - {scheme: one2one, link: pcie_gen5, ep1: {component: 'xpu[0:2]'}, ep2: {component: 'nic[0:2]'}}
- name: switch
  components:
  - {name: asic, choice: cpu, count: 1}
  - {name: port, choice: port, count: 4}
  links: [{name: ic}]
  edges: [{scheme: many2many, link: ic, ep1: {component: asic}, ep2: {component: port}}]
instances:
- {name: server, device: server, count: 2}
- {name: switch, device: switch, count: 1}
links:
- name: cable
  physical:
    bandwidth: {choice: gigabits_per_second, gigabits_per_second: 400.0}
    latency: {choice: ns, ns: 500.0}
edges:
- scheme: one2one
  link: cable
  ep1: {instance: 'server[0]', component: 'nic[0:2]'}
  ep2: {instance: 'switch[0]', component: 'port[0:2]'}
- scheme: one2one
  link: cable
  ep1: {instance: 'server[1]', component: 'nic[0:2]'}
  ep2: {instance: 'switch[0]', component: 'port[2:4]'}
"""


@pytest.fixture
def package():
    pytest.importorskip("infragraph")


@pytest.mark.usefixtures("package")
def test_an_infrastructure_becomes_a_graph_of_gpus():
    assert detect(RACK) == "infragraph"
    t = read_infragraph(RACK, "rack.yaml")
    assert len(t) == 4
    kinds = {name: data["kind"] for name, data in t.graph.nodes(data=True)}
    assert kinds["server.0.nvlsw.0"] == "nvswitch"
    assert kinds["switch.0.port.3"] == kinds["switch.0.asic.0"] == "switch"
    edges = t.graph.edges
    assert edges["server.1.nic.0", "switch.0.port.2"]["bandwidth"] == 50e9
    assert edges["server.1.nic.0", "switch.0.port.2"]["latency"] == pytest.approx(500e-9)
    assert edges["server.0.xpu.0", "server.0.nvlsw.0"]["bandwidth"] == 370.8e9
    assert graph_figures(t).bisection == 100e9  # two NICs of 400 Gb/s a server
    assert unrated_links(RACK, "rack.yaml") == ("ic", "nvlink_4", "pcie_gen5")


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    "text",
    [
        "machine: dgx-h100\nnodes: 4\n",
        "machine: gb200-nvl72\nnodes: 2\n",
        "machine: mi300x\n",
        "machine: dgx-1-v100\nnodes: 2\nfabric: {kind: leaf-spine}\n",
        "machine: dgx-a100\nnodes: 2\nfabric: {kind: leaf-spine, sharp: true}\n",
        "graph: {kind: torus, dims: [3, 3], bandwidth: 46GB/s}\n",
    ],
)
def test_what_is_written_reads_back(text):
    here = topology(text)
    back = read_infragraph(write_infragraph(here), "x.yaml")
    assert len(back) == len(here)
    assert sorted(back.node_kinds) == sorted(here.node_kinds)
    assert back.layout.reduces.sum() == here.layout.reduces.sum()

    def plain(t):
        return sorted(
            (d["kind"], round(d["bandwidth"]), d.get("duplex", "full"))
            for *_, d in t.graph.edges(data=True)
        )

    assert plain(back) == plain(here)
    assert graph_figures(back).bisection == pytest.approx(graph_figures(here).bisection)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("link: cable", "link: cabel", "x.yaml: rack: an edge has link 'cabel', which"),
        ("device: server, count: 2", "device: sever, count: 2", "x.yaml"),
        ("choice: xpu", "choice: cpu", "expected at least one component of type xpu"),
        (
            "name: server, device: server, count: 2",
            "name: server, device: server, count: 90000",
            "components are too many",
        ),
        (
            "component: xpu}, ep2: {component: nvlsw}",
            "component: xpu}, ep2: {component: 'xpu[9]'}",
            "x.yaml",
        ),
        ("devices:", "devices: [", "x.yaml:"),
    ],
)
def test_broken_files_are_refused_in_one_message(old, new, told):
    assert old in RACK
    with pytest.raises(InputError) as caught:
        read_infragraph(RACK.replace(old, new), "x.yaml")
    assert told in str(caught.value)


@pytest.mark.usefixtures("package")
def test_links_that_differ_by_direction_cannot_be_written():
    nodes = "nodes: [{name: a}, {name: b}]"
    link = "{from: a, to: b, bandwidth: 1GB/s, both: false}"
    back = "{from: b, to: a, bandwidth: 2GB/s, both: false}"
    t = topology(f"graph:\n  {nodes}\n  links: [{link}, {back}]\n")
    with pytest.raises(InputError, match="no direction"):
        write_infragraph(t)


def test_without_the_package_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "infragraph", None)
    for use in (
        lambda: read_infragraph(RACK, "x.yaml"),
        lambda: write_infragraph(topology("machine: dgx-h100\n")),
    ):
        with pytest.raises(InputError, match=r"netsim\[infragraph\]"):
            use()


@pytest.mark.parametrize(
    ("endpoint", "most"),
    [
        ("xpu", 6),
        ("server.xpu", 6),
        ("other", 1),
        ("xpu[2]", 1),
        ("xpu[1:4]", 3),
        ("xpu[4:1]", 0),
        ("server[0:2].xpu[0:2]", 2),
        ("xpu[a:b]", 6),
    ],
)
def test_an_endpoint_stands_for_what_it_names(endpoint: str, most: int) -> None:
    """Whether the package is there or not: it is asked before."""
    assert _extent(endpoint, {"xpu": 6}) == most


SIX_SWITCHES = """\
devices:
- name: server
  components:
  - {name: xpu, choice: xpu, count: 8}
  - {name: nvsw, choice: switch, count: 6}
  links: [{name: nvlink_4}]
  edges:
  - {scheme: many2many, link: nvlink_4, ep1: {component: 'xpu[0:7]'}, ep2: {component: nvsw}}
  - {scheme: many2many, link: nvlink_4, ep1: {component: 'xpu[7]'}, ep2: {component: 'nvsw[0:4]'}}
instances: [{name: server, device: server, count: 2}]
"""


@pytest.mark.usefixtures("package")
def test_an_xpu_with_fewer_edges_has_less_bandwidth_and_not_wider_links():
    servers = SIX_SWITCHES.replace("count: 2}]", "count: 1}]")
    edges = read_infragraph(servers, "x.yaml").graph.edges
    out = [
        sum(data["bandwidth"] for tail, _, data in edges(data=True) if tail == f"server.0.xpu.{n}")
        for n in range(8)
    ]
    assert out[:7] == pytest.approx([370.8e9] * 7)
    assert out[7] == pytest.approx(370.8e9 * 4 / 6)


@pytest.mark.usefixtures("package")
def test_two_links_between_two_components_are_refused_with_their_names():
    inside = RACK.replace(
        "  - {scheme: one2one, link: pcie_gen5",
        "  - {scheme: one2one, link: nvlink_4, ep1: {component: 'xpu[1]'}, ep2: {component: nvlsw}}"
        "\n  - {scheme: one2one, link: pcie_gen5",
    )
    with pytest.raises(InputError, match=r"device server: two links between xpu\.1 and nvlsw\.0"):
        read_infragraph(inside, "rack.yaml")
    cable = RACK[RACK.rindex("- scheme: one2one") :]
    with pytest.raises(InputError, match=r"two links between server\.1\.nic\.0 and switch\.0\.po"):
        read_infragraph(RACK + cable, "rack.yaml")


@pytest.mark.usefixtures("package")
def test_a_full_mesh_in_slice_notation_is_one_link_for_each_pair():
    mesh = """\
devices:
- name: server
  components: [{name: xpu, choice: xpu, count: 4}]
  links: [{name: xgmi}]
  edges: [{scheme: many2many, link: xgmi, ep1: {component: xpu}, ep2: {component: xpu}}]
instances: [{name: server, device: server, count: 1}]
"""
    assert read_infragraph(mesh, "x.yaml").graph.number_of_edges() == 12
