"""Drawings of topologies: what is drawn, how much each line stands for, and files that repeat."""

from itertools import combinations
from math import isnan
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch

from netsim.base.files import preset_names
from netsim.cli.topo_subject import Subject, TopologyOptions, find_subject
from netsim.plots.topology.draw import DEAD, _color, figure_of, plot_loads, plot_topology, read_use
from netsim.plots.topology.graphs import graph_picture
from netsim.plots.topology.layout import cluster_picture
from netsim.plots.topology.shapes import Drawing, Stroke
from netsim.topology.cluster import build_cluster
from netsim.topology.config import ClusterConfig
from netsim.yamlio.read import Source
from netsim.yamlio.validate import validate
from tests.cli.command import netsim

RATE = 49.1e9  # usable bytes/s of a 400G NIC on InfiniBand


def subject(name: str, *settings: str, nodes: int | None = None, fabric: str | None = None):
    return find_subject(name, TopologyOptions(nodes=nodes, fabric=fabric, settings=settings))


def picture(found: Subject) -> Drawing:
    if found.cluster is None:
        return graph_picture(found.name, found.topology, None)
    return cluster_picture(found.name, found.cluster, None)


def labels(drawn: Drawing, kind: str) -> list[str]:
    return [box.label for box in drawn.boxes if box.kind == kind]


def lines(drawn: Drawing, one: str, other: str) -> list:
    """Lines between boxes of two kinds, or whose labels begin so."""
    found = []
    for line in drawn.lines:
        ends = (drawn.boxes[line.tail], drawn.boxes[line.head])
        for a, b in (ends, ends[::-1]):
            if a.kind == one and b.kind == other and line not in found:
                found.append(line)
    return found


CASES = {
    **{name: (name, (), None, None) for name in preset_names("topologies")},
    "two a100": ("dgx-a100", (), 2, "rail-optimized"),
    "four a100": ("dgx-a100", (), 4, "rail-optimized"),
    "leaf-spine": ("dgx-h100", ("cluster.fabric.oversubscription=2",), 64, "leaf-spine"),
    "units": ("dgx-h100", (), 512, "rail-optimized"),
    "nvl72": ("gb200-nvl72", (), 18, None),
    "racks": ("gb200-nvl72", (), 72, None),
    "dual plane": ("dgx-h100", (), 8, "dual-plane"),
    "fat tree": ("dgx-h100", (), 16, "fat-tree"),
    "dragonfly": ("dgx-h100", (), 64, "dragonfly"),
    "small dragonfly": ("dgx-h100", (), 4, "dragonfly"),
    "ring of hosts": ("dgx-h100", (), 40, "ring"),
    "torus of hosts": ("dgx-h100", ("cluster.fabric.dims=[4, 4, 2]",), 32, "torus"),
    "ring": ("ring-of-five", (), None, None),
    "large ring": ("ring-of-five", ("cluster.graph.gpus=512",), None, None),
    "switch": ("ring-of-five", ("cluster.graph.kind=switch", "cluster.graph.gpus=512"), None, None),
    "mesh": ("ring-of-five", ("cluster.graph.kind=full-mesh", "cluster.graph.gpus=8"), None, None),
    "torus": ("torus-alltoall", (), None, None),
    "deep torus": ("torus-alltoall", ("cluster.graph.dims=[8, 8, 8]",), None, None),
    "long torus": ("torus-alltoall", ("cluster.graph.dims=[16, 32]",), None, None),
}


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_nothing_lies_on_anything_else(case: str) -> None:
    name, settings, nodes, fabric = CASES[case]
    drawn = picture(subject(name, *settings, nodes=nodes, fabric=fabric))
    assert len(drawn.boxes) <= 160
    assert drawn.lines
    for one, other in combinations(drawn.boxes, 2):
        apart = abs(one.x - other.x) - (one.width + other.width) / 2
        above = abs(one.y - other.y) - (one.height + other.height) / 2
        assert max(apart, above) > -1e-9, (one, other)
    width, height = figure_of(drawn).get_size_inches()
    assert width <= 20
    assert height <= 20


def test_a_dgx_h100_is_drawn_whole() -> None:
    drawn = picture(subject("dgx-h100"))
    assert labels(drawn, "gpu") == [f"GPU {n}" for n in range(8)]
    assert labels(drawn, "nvswitch") == ["4 NVSwitches"]
    assert len(labels(drawn, "pcie")) == len(labels(drawn, "nic")) == 8
    assert {line.rate for line in lines(drawn, "gpu", "nvswitch")} == {18 * 20.6e9}
    rows = {box.kind: box.y for box in drawn.boxes}
    assert sorted(rows, key=rows.__getitem__) == ["nvswitch", "gpu", "cpu", "pcie", "nic"]


def test_the_cube_mesh_has_its_sixteen_links() -> None:
    drawn = picture(subject("dgx-1-v100"))
    between = lines(drawn, "gpu", "gpu")
    assert len(between) == 16
    assert all(line.bend < 0 for line in between)
    assert len({line.rate for line in between}) == 2


def test_512_gpus_are_boxes_with_counts() -> None:
    drawn = picture(
        subject("dgx-h100", "cluster.fabric.oversubscription=2", nodes=64, fabric="leaf-spine")
    )
    hosts = labels(drawn, "host")
    assert hosts[0] == "5 hosts\nnode0 … node4\n40 GPUs"
    assert hosts[-1] == "4 hosts\nnode60 … node63\n32 GPUs"
    assert len(labels(drawn, "switch")) == 13 + 5
    down = lines(drawn, "host", "switch")
    assert [line.count for line in down] == [40] * 12 + [32]
    assert down[0].bandwidth == pytest.approx(40 * RATE)
    up = lines(drawn, "switch", "switch")
    assert (len(up), {line.count for line in up}) == (65, {4})
    assert len(labels(drawn, "gpu")) == 8  # one host from inside
    assert drawn.title == "dgx-h100: 64 hosts, 512 GPUs, leaf-spine"


@pytest.mark.full
def test_what_is_left_out_is_said() -> None:
    drawn = picture(subject("dgx-h100", nodes=8192))
    texts = [one.text for one in drawn.captions]
    assert "… 8128 more hosts …" in texts
    assert "… 2032 more …" in texts
    drawn = picture(subject("ring-of-five", "cluster.graph.gpus=512"))
    assert [one.text for one in drawn.captions] == ["… 488 more …"]


def test_a_shared_nvlink_domain_is_one_switch() -> None:
    drawn = picture(subject("gb200-nvl72", nodes=18))
    assert labels(drawn, "nvswitch")[0] == "18 NVSwitches, shared by 18 hosts"
    up = [line for line in lines(drawn, "host", "nvswitch") if line.kind == "nvlink"]
    assert [line.count for line in up] == [4] * 18


def test_groups_of_a_dragonfly_are_joined_by_their_global_links() -> None:
    drawn = picture(subject("dgx-h100", nodes=64, fabric="dragonfly"))
    assert labels(drawn, "switch") == [f"group {n}\n8 routers" for n in range(4)]
    assert [line.count for line in lines(drawn, "switch", "switch")] == [10] * 6


def test_a_torus_closes_in_the_plane() -> None:
    drawn = picture(subject("torus-alltoall"))
    assert len(drawn.lines) == 32
    assert sum(line.bend > 0 for line in drawn.lines) == 8


LINKS = """\
link,kind,capacity_GBps,bytes,utilisation,busy_us
node0.gpu0->node0.nvswitch0,nvlink,240.0,1,0.25,1
node0.nvswitch0->node0.gpu0,nvlink,240.0,1,0.75,1
sm(node0.gpu0),sm,240.0,1,0.5,1
"""


def test_colours_are_those_of_the_results(tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text(LINKS)
    found = subject("dgx-a100", nodes=2)

    used = read_use(tmp_path, found.topology)
    assert found.cluster is not None
    drawn = cluster_picture("x", found.cluster, used)
    known = [line.used for line in drawn.lines if not isnan(line.used)]
    assert known == [0.75]  # the busier direction


@pytest.mark.slow
def test_files_come_out_the_same_each_time(tmp_path: Path) -> None:
    found = subject("dgx-1-v100")
    for name in ("a", "b"):
        written = plot_topology("x", found.cluster or found.topology, tmp_path / name / "x")
        assert [path.name for path in written] == ["x.svg", "x.png"]
    for end in ("svg", "png"):
        assert (tmp_path / f"a/x.{end}").read_bytes() == (tmp_path / f"b/x.{end}").read_bytes()


@pytest.mark.slow
def test_the_verb_draws_and_colours(capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("res").mkdir()
    Path("res/links.csv").write_text(LINKS)
    outcome = netsim(
        capsys, "topo", "plot", "dgx-a100", "--nodes", 2, "--result", "res", "-o", "pictures"
    )
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == "wrote pictures/dgx-a100.svg\nwrote pictures/dgx-a100.png\n"
    assert Path("pictures/dgx-a100.png").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["dgx-h100", "--result", "nowhere"],
            "nowhere: no such folder (expected the results of netsim run)\n",
        ),
        (
            ["dgx-h100", "--result", "empty"],
            "empty: holds no links.csv (netsim run writes it with traces)\n",
        ),
        (
            ["ring-of-five", "--result", "res"],
            "res/links.csv: none of its links is in this topology, which has gpu0->gpu1 while the "
            "file has node0.gpu0->node0.nvswitch0 (name the cluster of that run: its scenario, or "
            "the same --nodes and --fabric)\n",
        ),
        (
            ["dgx-h100", "--result", "bad"],
            "bad/links.csv:2: utilisation: expected a number, got 'much'\n",
        ),
        (["dgx-h100", "-o", "file"], "file: cannot be made: File exists\n"),
    ],
)
def test_mistakes(capsys, tmp_path: Path, monkeypatch, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "res", "bad"):
        Path(folder).mkdir()
    Path("res/links.csv").write_text(LINKS)
    Path("bad/links.csv").write_text(LINKS.replace("0.25", "much"))
    Path("file").write_text("")
    outcome = netsim(capsys, "topo", "plot", *arguments)
    assert (outcome.code, outcome.out, outcome.err) == (2, "", message)


@pytest.mark.slow
def test_a_fabric_written_out_is_drawn_whole(tmp_path: Path) -> None:
    """Its tiers are found, all of its switches are there, and all links between them."""
    leaves = ", ".join(f"leaf{n}" for n in range(20))
    cables = ", ".join(f"{{from: 'node{n}.nic*', to: leaf{n}}}" for n in range(20))
    fabric = (
        f"{{kind: custom, switches: [{leaves}, s0, s1], links: [{cables}, "
        "{from: 'leaf*', to: 's[01]'}]}"
    )
    text = f"cluster: {{machine: dgx-h100, nodes: 20, fabric: {fabric}}}\n"
    (tmp_path / "mine.yaml").write_text(text)
    made = find_subject(str(tmp_path / "mine.yaml"), TopologyOptions())
    drawn = cluster_picture("mine", made.cluster, None)
    labels = [box.label for box in drawn.boxes if box.kind == "switch"]
    assert sorted(labels) == sorted([*(f"leaf{n}" for n in range(20)), "s0", "s1"])
    at = {box.label: n for n, box in enumerate(drawn.boxes)}
    between = {(line.tail, line.head) for line in drawn.lines}
    assert all((at[f"leaf{n}"], at["s1"]) in between for n in range(20))
    heights = {drawn.boxes[at[name]].y for name in labels if name.startswith("leaf")}
    assert len(heights) == 1
    assert drawn.boxes[at["s0"]].y > heights.pop()
    files = plot_loads("mine", made.cluster, tmp_path / "loads")
    text = files[0].read_text()
    assert all(routing in text for routing in ("static", "ecmp", "spray", "adaptive"))


def faulty_picture(hosts: int, *faults: dict[str, object]) -> Drawing:
    """The picture of a cluster of DGX H100 with faults."""
    fabric = {"kind": "leaf-spine", "nodes_per_leaf": 2}
    section = {"machine": "dgx-h100", "nodes": hosts, "fabric": fabric, "faults": list(faults)}
    cluster = build_cluster(validate(ClusterConfig, Source("faults", section)))
    return cluster_picture("faults", cluster, None)


def dead_ends(picture: Drawing) -> set[frozenset[str]]:
    """The labels of the boxes that dead lines join."""
    return {
        frozenset((picture.boxes[line.tail].label, picture.boxes[line.head].label))
        for line in picture.lines
        if line.is_dead
    }


def legend_of(picture: Drawing) -> list[str]:
    """The texts of the legend."""
    (legend,) = figure_of(picture).legends
    return [text.get_text() for text in legend.get_texts()]


@pytest.mark.slow
def test_the_cables_of_a_dead_switch_are_dashed_and_named_in_the_legend() -> None:
    picture = faulty_picture(4, {"switch": "spine1"})
    assert dead_ends(picture) == {frozenset(("spine1", leaf)) for leaf in ("leaf0", "leaf1")}
    assert legend_of(picture)[-1] == "dead link"
    patches = [
        patch
        for patch in figure_of(picture).axes[0].patches
        if isinstance(patch, PathPatch) and patch.get_linestyle() != "solid"
    ]
    assert len(patches) == 2
    assert all(to_hex(patch.get_edgecolor()) == DEAD for patch in patches)
    assert not any("0 B/s" in text for text in legend_of(picture))


@pytest.mark.slow
def test_a_healthy_cluster_has_nothing_dead_in_its_picture() -> None:
    picture = faulty_picture(4)
    assert dead_ends(picture) == set()
    assert not any(box.dead for box in picture.boxes)
    assert not any("dead" in text for text in legend_of(picture))


@pytest.mark.slow
def test_dead_nics_keep_their_place_and_are_crossed_out() -> None:
    healthy = faulty_picture(2)
    picture = faulty_picture(2, {"nic": "node1.nic3"})
    (dead,) = (box for box in picture.boxes if box.dead)
    assert dead.label == "NIC 3"
    places = [(box.x, box.y) for box in healthy.boxes if box.label == "NIC 3"]
    assert (dead.x, dead.y) == pytest.approx(places[1])
    assert legend_of(picture)[-1] == "dead NIC"
    assert len(figure_of(picture).axes[0].lines) == 2  # the cross


def test_of_many_hosts_the_damaged_one_is_shown_from_inside() -> None:
    picture = faulty_picture(32, {"nic": "node25.nic3"}, {"nic": "node25.nic5"})
    assert any("2 dead NICs" in box.label for box in picture.boxes)
    assert [box.label for box in picture.boxes if box.dead] == ["NIC 3", "NIC 5"]
    assert picture.frames[-1].label == "inside node25"
    inside = faulty_picture(32, {"link": "node3.gpu0-node3.nvswitch0", "bandwidth": "0%"})
    assert inside.frames[-1].label == "inside node3"


@pytest.mark.slow
def test_a_link_that_is_dead_in_one_direction_is_drawn_as_both() -> None:
    picture = faulty_picture(2, {"link": "node0.gpu0->node0.nvswitch0", "bandwidth": "0%"})
    (line,) = (line for line in picture.lines if line.dead_fraction)
    assert line.dead_fraction == 0.5
    assert not line.is_dead
    assert line.bandwidth > 0
    assert "dead link" in legend_of(picture)


def test_a_slow_link_is_not_dead() -> None:
    picture = faulty_picture(4, {"switch": "spine1", "bandwidth": "10%"})
    assert dead_ends(picture) == set()


def test_dead_links_stay_dead_in_a_picture_of_use() -> None:
    line = Stroke(0, 1, "fabric", 0.0, 0.0, used=0.7, dead_fraction=1.0)
    assert _color(line, heat=True) == DEAD
