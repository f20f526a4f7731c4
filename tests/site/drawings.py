"""Drawings of the machines and fabrics of the reference.

`python -m tests.site --drawings` writes them to docs/reference/drawings/, one SVG for each machine
and each kind of fabric. Letters stay text, so that a drawing has some 20 KB.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference" / "drawings"

HOST = {"machine": "a100-x4", "nodes": 4}
SMALL_HOST = {"machine": "v100-pcie-x4", "nodes": 8}

# Kind of fabric: a cluster of it that is small enough to be drawn in full.
FABRICS: Mapping[str, Mapping[str, Any]] = {
    "custom": {
        **HOST,
        "fabric": {
            "kind": "custom",
            "switches": ["leaf0", "leaf1", "spine0"],
            "links": [
                {"from": "node[0-1].nic*", "to": "leaf0"},
                {"from": "node[2-3].nic*", "to": "leaf1"},
                {"from": "leaf*", "to": "spine*"},
            ],
        },
    },
    "dragonfly": {
        **SMALL_HOST,
        "fabric": {
            "kind": "dragonfly",
            "groups": 2,
            "routers": 2,
            "ports_per_router": 2,
            "global_links": 1,
        },
    },
    "dual-plane": {**HOST, "fabric": {"kind": "dual-plane"}},
    "fat-tree": {**SMALL_HOST, "fabric": {"kind": "fat-tree", "k": 4}},
    "leaf-spine": {**HOST, "fabric": {"kind": "leaf-spine"}},
    "nvlink-domain": {
        "machine": "gb200-nvl72",
        "nodes": 3,
        "fabric": {"kind": "nvlink-domain", "hosts": 3},
    },
    "rail-only": {**HOST, "fabric": {"kind": "rail-only"}},
    "rail-optimized": {**HOST, "fabric": {"kind": "rail-optimized"}},
    "ring": {**HOST, "fabric": {"kind": "ring"}},
    "single-switch": {**HOST, "fabric": {"kind": "single-switch"}},
    "torus": {**SMALL_HOST, "fabric": {"kind": "torus", "dims": [2, 4]}},
}


def clusters() -> dict[str, Mapping[str, Any]]:
    """The `cluster` section of every drawing, by the name of its file."""
    machines = sorted(path.stem for path in (ROOT / "topologies").glob("*.yaml"))
    drawn = {name: {"machine": name, "nodes": 1} for name in machines}
    return {**drawn, **{f"fabric-{kind}": cluster for kind, cluster in FABRICS.items()}}


def drawing(name: str) -> bytes:
    """The drawing of a machine or fabric as an SVG file."""
    import matplotlib as mpl

    from netsim.plots import style
    from netsim.plots.topology.draw import figure_of
    from netsim.plots.topology.layout import cluster_picture
    from netsim.topology.cluster import build_cluster
    from netsim.topology.config import ClusterConfig
    from netsim.yamlio.read import Source
    from netsim.yamlio.validate import validate

    config = validate(ClusterConfig, Source("cluster", dict(clusters()[name])))
    title = name.removeprefix("fabric-")
    stream = io.BytesIO()
    with style.drawing(), mpl.rc_context({"svg.fonttype": "none"}):
        figure = figure_of(cluster_picture(title, build_cluster(config), None))
        metadata = {"Date": None, "Creator": "netsim"}
        figure.savefig(stream, format="svg", facecolor="white", metadata=metadata)
    return stream.getvalue()


def write() -> None:
    """Write all drawings."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in clusters():
        (FOLDER / f"{name}.svg").write_bytes(drawing(name))
