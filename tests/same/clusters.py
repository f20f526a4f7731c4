"""Drawn clusters: machines, hosts, fabrics, routings, sites, overrides, faults, plain graphs.

All names are written out here and not read from the package, for a drawn question must stay the
same when the package changes. Links are named where their names are certain; a fault that names a
part that the cluster does not have is a question too, for its message is compared.
"""

from typing import Any

from tests.same.draw import Draw

Mapping = dict[str, Any]

MACHINES = (
    "a10-pcie-x4",
    "a100-pcie-x4",
    "a100-x4",
    "a40-pcie-x4",
    "dgx-1-v100",
    "dgx-2",
    "dgx-a100",
    "dgx-b200",
    "dgx-h100",
    "gb200-nvl72",
    "gb300-nvl72",
    "gh200-x4",
    "h100-x4",
    "hgx-a800",
    "hgx-b300",
    "hgx-h200",
    "hgx-h800",
    "l40s-pcie-x8",
    "mi300x",
    "mi350x",
    "mi355x",
    "r9700",
    "rtx2080ti-x2",
    "rtx4090-x8",
    "rtx5090-x4",
    "rtx6000d-x8",
    "rtxpro6000-x8",
    "v100-pcie-x4",
)
COMMON_MACHINES = ("dgx-h100", "dgx-h100", "dgx-a100", "hgx-h200", "gb200-nvl72", "mi300x")
FABRICS: tuple[Mapping, ...] = (
    {"kind": "single-switch"},
    {"kind": "leaf-spine", "nodes_per_leaf": 1},
    {"kind": "leaf-spine", "nodes_per_leaf": 2, "oversubscription": 2},
    {"kind": "leaf-spine", "nodes_per_leaf": 1, "oversubscription": 4},
    {"kind": "leaf-spine", "ports": 32, "nodes_per_leaf": 1, "spines": 2},
    {"kind": "rail-optimized"},
    {"kind": "rail-optimized", "nodes_per_unit": 2, "ports": 16},
    {"kind": "rail-optimized", "sharp": True},
    {"kind": "rail-only"},
    {"kind": "rail-only", "nodes_per_unit": 2},
    {"kind": "dual-plane"},
    {"kind": "fat-tree"},
    {"kind": "fat-tree", "levels": 2},
    {"kind": "fat-tree", "k": 6, "oversubscription": 2},
    {"kind": "dragonfly", "routers": 4, "ports_per_router": 4, "global_links": 2},
    {"kind": "torus", "dims": [2, 2, 3]},
    {"kind": "torus", "dims": [4, 4]},
    {"kind": "ring"},
    {"kind": "nvlink-domain", "hosts": 2},
    {"kind": "nvlink-domain", "hosts": 2, "between": {"kind": "leaf-spine", "nodes_per_leaf": 2}},
    {
        "kind": "custom",
        "switches": ["a", "b"],
        "links": [
            {"from": "node0.nic*", "to": "a"},
            {"from": "node1.nic*", "to": "b"},
            {"from": "node2.nic*", "to": "b"},
            {"from": "a", "to": "b", "bandwidth": "1600Gbps"},
        ],
    },
)
ROUTINGS = ("static", "ecmp", "spray", "adaptive", "minimal", "valiant", "rail")
TRANSPORTS = ("infiniband", "roce", "roce", "efa", "tcpxo", "slingshot", "tcp")
GRAPHS: tuple[Mapping, ...] = (
    {"kind": "switch", "bandwidth": "50GB/s", "latency": "1us"},
    {"kind": "ring", "bandwidth": "25GB/s", "latency": "700ns"},
    {"kind": "full-mesh", "bandwidth": "40GB/s", "latency": "1us"},
    {"kind": "torus", "bandwidth": "30GB/s", "latency": "300ns"},
    {
        "nodes": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "s", "kind": "switch"}],
        "links": [
            {"from": "a", "to": "s", "bandwidth": "10GB/s", "duplex": "half"},
            {"from": "b", "to": "s", "bandwidth": "20GB/s", "latency": "500ns"},
            {"from": "c", "to": "s", "bandwidth": "10GB/s", "both": True},
        ],
    },
)
GPU_FAULTS: tuple[Mapping, ...] = (
    {"gpu": "node0.gpu0", "slowdown": 1.3},
    {"gpu": "node0.gpu1", "slowdown": 4.0},
)
NETWORK_FAULTS: tuple[Mapping, ...] = (
    {"nic": "node0.nic0"},
    {"nic": "node1.nic0"},
    {"link": "node0.nic0-*", "bandwidth": "50%"},
    {"link": "node1.nic*-*", "latency": "2us"},
    {"link": "node0.nic1->*", "bandwidth": "1%"},
    {"link": "node0.nic*-*", "bandwidth": "50%"},
)
LEAF_FAULTS: tuple[Mapping, ...] = (
    {"link": "leaf0-spine*", "bandwidth": "25%"},
    {"link": "leaf0-spine0", "bandwidth": "0%"},
)
TIMES: tuple[Mapping, ...] = (
    {"at": "0s"},
    {"at": "3us"},
    {"at": "3us", "for": "30us"},
    {"at": "20us", "for": "50us"},
    {"at": "40us", "for": "2us", "every": "2ms"},
)
OVERRIDES: tuple[Mapping, ...] = (
    {"node": 0, "nics": [0]},
    {"node": 1, "nics": [0, 1]},
    {"machine": {"gpu": {"memory": "40GB"}}},
    {"link": "leaf0-spine0", "bandwidth": "200Gbps", "latency": "1us"},
    {"link": "node0.nic0-*", "bandwidth": "100Gbps"},
)


def drawn_graph(draw: Draw) -> Mapping:
    """Return a cluster that is a plain graph, sometimes with a fault."""
    graph = dict(draw.choose(GRAPHS))
    if graph.get("kind") == "torus":
        graph["dims"] = draw.choose(([4], [3, 2], [2, 4], [3, 3], [2, 2, 2]))
    elif "kind" in graph:
        graph["gpus"] = draw.integer(2, 9)
    cluster: Mapping = {"graph": graph}
    if draw.happens(0.3):
        cluster["faults"] = [_drawn_graph_fault(draw)]
    return cluster


def _drawn_graph_fault(draw: Draw) -> Mapping:
    fault: Mapping = dict(
        draw.choose(
            (
                {"gpu": "gpu1", "slowdown": 1.5},
                {"link": "gpu0-gpu1", "bandwidth": "50%"},
                {"link": "gpu0->gpu1", "bandwidth": "0%"},
                {"link": "gpu1-*", "bandwidth": "50%"},
                {"link": "a-s", "bandwidth": "50%"},
            )
        )
    )
    draw.maybe_update(fault, 0.4, TIMES)
    return fault


def drawn_hosts(
    draw: Draw, *, machines: tuple[str, ...] = MACHINES, most_hosts: int = 16
) -> Mapping:
    """Return a cluster of up to `most_hosts` hosts of a machine, with few GPUs each if many."""
    host_counts = (1, 1, 2, 2, 2, 3, 4, 4, 5, 8, 16)
    hosts = min(most_hosts, draw.choose(host_counts))
    cluster: Mapping = {"machine": draw.choose(machines), "nodes": hosts}
    if hosts > 4:
        cluster["gpus_per_node"] = draw.choose((1, 1, 2, 4))
    else:
        draw.maybe_set(cluster, 0.5, "gpus_per_node", (1, 2, 2, 3, 4))
    draw.maybe_set(cluster, 0.2, "nics_per_node", (1, 2, 4))
    draw.maybe_set(cluster, 0.2, "nic", ("100Gbps", "200Gbps", "25Gbps", "800Gbps"))
    draw.maybe_set(cluster, 0.07, "p2p", (False,))
    if hosts > 1:
        _add_network(draw, cluster)
    _add_faults(draw, cluster)
    if draw.happens(0.1):
        cluster["overrides"] = [draw.choose(OVERRIDES)]
    return cluster


def _add_network(draw: Draw, cluster: Mapping) -> None:
    if draw.happens(0.12) and cluster["nodes"] % 2 == 0:
        cluster["sites"] = {
            "count": 2,
            "distance": draw.choose(("1km", "100km")),
            "bandwidth": "400Gbps",
            "links": draw.choose((1, 4)),
        }
        return
    if draw.happens(0.75):
        fabric = dict(draw.choose(FABRICS))
        draw.maybe_set(fabric, 0.35, "routing", ROUTINGS)
        draw.maybe_set(fabric, 0.35, "transport", TRANSPORTS)
        draw.maybe_set(fabric, 0.1, "delivery", ("in-order", "out-of-order"))
        draw.maybe_set(fabric, 0.1, "qps", (2, 4))
        draw.maybe_set(fabric, 0.1, "incast", (True, "20%"))
        draw.maybe_set(fabric, 0.1, "latency", ("500ns", "3us"))
        draw.maybe_set(fabric, 0.05, "cable_metres", (50,))
        draw.maybe_set(fabric, 0.05, "window", ("256KiB",))
        cluster["fabric"] = fabric
    draw.maybe_set(cluster, 0.15, "placement", ("spread", "random"))
    draw.maybe_set(cluster, 0.1, "seed", (1, 2))


def _add_faults(draw: Draw, cluster: Mapping) -> None:
    if not draw.happens(0.25):
        return
    count = draw.choose((1, 1, 1, 2))
    cluster["faults"] = [drawn_fault(draw, known_faults(cluster), 0.4) for _ in range(count)]


def known_faults(cluster: Mapping) -> tuple[Mapping, ...]:
    """Return faults of parts that a cluster of hosts most likely has."""
    faults = list(GPU_FAULTS if cluster.get("gpus_per_node") != 1 else GPU_FAULTS[:1])
    if cluster["nodes"] > 1:
        faults += NETWORK_FAULTS
    if cluster.get("fabric", {}).get("kind") == "leaf-spine":
        faults += LEAF_FAULTS
    return tuple(faults)


def drawn_fault(draw: Draw, known: tuple[Mapping, ...], in_time: float) -> Mapping:
    """Return one of the known faults, with a probability `in_time` one that begins at a time."""
    fault = dict(draw.choose(known))
    if "latency" in fault and draw.happens(0.9):  # a latency that changes in time is refused
        return fault
    draw.maybe_update(fault, in_time, TIMES)
    is_dead = fault.get("bandwidth") == "0%" or "nic" in fault
    if "at" in fault and is_dead:  # else most runs end with NCCL's retries
        draw.maybe_set(fault, 0.8, "loss", (False,))
    return fault


def drawn_mixture(draw: Draw) -> Mapping:
    """Return a cluster whose hosts differ: groups of two machines, chosen GPUs, placements."""
    first, second = draw.sample(
        ("dgx-h100", "dgx-a100", "hgx-h200", "hgx-a800", "l40s-pcie-x8", "a100-x4"), 2
    )
    per_host = draw.choose((1, 2, 2, 4))
    kind = draw.choose(("groups", "groups", "gpus", "placement", "overrides"))
    if kind == "groups":
        return {
            "groups": [
                {"machine": first, "nodes": draw.integer(1, 2), "gpus_per_node": per_host},
                {
                    "machine": second,
                    "nodes": draw.integer(1, 2),
                    "gpus_per_node": draw.choose((per_host, 3)),
                },
            ]
        }
    if kind == "gpus":
        gpus = draw.choose(([1, 4, 6], [0, 7], [2, 3, 5, 6], [3, 1]))
        return {"machine": first, "nodes": draw.integer(1, 2), "gpus": gpus}
    cluster: Mapping = {
        "machine": first,
        "nodes": draw.integer(2, 5),
        "gpus_per_node": per_host,
        "fabric": {"kind": "leaf-spine", "nodes_per_leaf": 2},
    }
    if kind == "placement":
        cluster["placement"] = draw.choose(("spread", "random", [1, 0], [3, 0, 1, 2, 4]))
        cluster["seed"] = draw.integer(0, 9)
    else:
        nics = draw.choose(([0], [1, 2], [0, 2, 3]))
        cluster["overrides"] = [{"node": 1, "nics": nics}]
    return cluster
