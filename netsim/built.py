"""What cells have in common: topologies and communicators, each made once and kept for others.

Only for speed: whoever asks for them gets the same.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from netsim.expect.job import Job
from netsim.expect.network import networked
from netsim.expect.settings import NCCL_NAMES, Wishes
from netsim.nccl.version import parse_version
from netsim.scenario.cells import Cell
from netsim.scenario.models import Scenario
from netsim.topology import Topology, TopologyError
from netsim.topology.build import build_at, build_cluster
from netsim.topology.cluster import Cluster


@dataclass(frozen=True)
class Built:
    """A topology, the cluster that it is unless it is a plain graph, and the communicators that
    cells had in it, by what they ask of NCCL.
    """

    topology: Topology
    cluster: Cluster | None
    jobs: dict[str, list[Job]] = field(default_factory=dict)


# The last ones that were built, by what cells ask of a cluster.
_BUILT: OrderedDict[str, Built] = OrderedDict()
MOST_BUILT = 32


def built(cell: Cell) -> Built:
    """The topology of a cell, perhaps from an earlier cell."""
    config, key = cell.scenario.cluster, cell.cluster
    by_nccl = config.graph is None and cell.scenario.collective.algorithm in NCCL_NAMES
    if key and by_nccl:  # NCCL's variables choose NICs
        key += repr(sorted(cell.scenario.nccl.env.items()))
    if key in _BUILT:
        _BUILT.move_to_end(key)
        return _BUILT[key]
    cluster = None
    if config.graph is None:
        if by_nccl:
            config = networked(config, wishes_of(cell.scenario).settings())
        try:
            cluster = build_cluster(config)
        except TopologyError:
            return Built(build_at(config, cell.source), None)  # raises it with its place
    found = Built(build_at(config, cell.source) if cluster is None else cluster.topology, cluster)
    if key:
        _BUILT[key] = found
        while len(_BUILT) > MOST_BUILT:
            _BUILT.popitem(last=False)
    return found


def wishes_of(scenario: Scenario) -> Wishes:
    """What a scenario asks of NCCL."""
    nccl, work = scenario.nccl, scenario.collective
    version = parse_version(nccl.version)
    return Wishes(version, nccl.env, work.algorithm, work.protocol, nccl.tuner, nccl.graph)
