"""What the tests of topologies share: clusters from YAML texts, routes in words."""

import numpy as np

from netsim.topology.cluster import build_cluster, build_topology
from netsim.topology.config import ClusterConfig
from netsim.yamlio.read import parse_source
from netsim.yamlio.validate import validate


def config(text):
    return validate(ClusterConfig, parse_source(text, "x.yaml"))


def cluster(text):
    return build_cluster(config(text))


def topology(text):
    return build_topology(config(text))


def routes(topology, src, dst, way="", channel=0):
    src, dst = np.broadcast_arrays(np.atleast_1d(src), np.atleast_1d(dst))
    channels = np.full(len(src), channel, np.int32)
    return topology.routes(src.astype(np.int32), dst.astype(np.int32), channels, way)


def route(topology, src, dst, way="", channel=0):
    """The links of one route in words, each with its part of the bytes if that is not all."""
    found = routes(topology, src, dst, way, channel)
    return [
        topology.link_name(int(link)) + ("" if part == 1 else f" x {part:g}")
        for link, part in zip(found.link, found.fraction, strict=True)
    ]


def check_routes(topology, found, src, dst):
    """Every route leads from its source to its destination; sprayed ones conserve what flows."""
    links = topology.links
    for pair, (a, b) in enumerate(zip(np.atleast_1d(src), np.atleast_1d(dst), strict=True)):
        rows = slice(found.ptr[pair], found.ptr[pair + 1])
        link, part = found.link[rows], found.fraction[rows]
        balance = np.zeros(len(topology.nodes))
        np.add.at(balance, links.tail[link], part)
        np.add.at(balance, links.head[link], -part)
        balance[topology.gpu_nodes[a]] -= 1
        balance[topology.gpu_nodes[b]] += 1
        assert np.abs(balance).max() < 1e-9, (a, b)
