"""What NCCL's variables change of the network itself: transport, queue pairs, GPUDirect."""

from typing import Any

from netsim.expect.job import Job
from netsim.nccl.paths import reaches_directly
from netsim.nccl.settings import Settings
from netsim.topology.config import ClusterConfig
from netsim.topology.fabrics.config import RailOptimized, SingleSwitch
from netsim.topology.hosts import Override

VERBS = ("infiniband", "roce")  # transports that NCCL drives itself, and that sockets can replace


def networked(config: ClusterConfig, settings: Settings) -> ClusterConfig:
    """The cluster with the network that NCCL uses of it under these settings."""
    changed: dict[str, Any] = {}
    usual = config.members[0].loaded.machine.transport
    transport = (config.fabric.transport if config.fabric else None) or usual
    if transport in VERBS and (settings.ib_disabled or settings.sockets):
        changed["transport"] = "tcp"
    elif transport in VERBS and settings.qps > 1:
        changed["qps"] = settings.qps
    if not changed:
        return config
    fabric = config.fabric or _usual(config)
    return config.model_copy(update={"fabric": fabric.model_copy(update=changed)})


def without_gpudirect(config: ClusterConfig) -> ClusterConfig:
    """The cluster whose NICs reach GPUs through host memory only."""
    override = Override(machine={"nics": {"gpudirect": False}})
    return config.model_copy(update={"overrides": (*config.overrides, override)})


def loses_gpudirect(job: Job) -> bool:
    """Whether a level that was asked for keeps all NICs of a job from reaching any GPU."""
    settings = job.comm.settings
    if settings.gdr_level is None or len(job.nodes) == 1:
        return False
    return not any(
        reaches_directly(node.view.table, gpu, net, settings)
        for node in {id(node.view): node for node in job.nodes}.values()
        for gpu in node.view.table.gpus
        for net in node.view.table.nets
    )


def _usual(config: ClusterConfig) -> RailOptimized | SingleSwitch:
    """What joins hosts without a word about it: see `topology.build`."""
    nics = config.members[0].loaded.machine.nics
    count = config.nics_per_node if config.nics_per_node is not None else nics.count if nics else 0
    if count > 1:
        return RailOptimized(kind="rail-optimized")
    return SingleSwitch(kind="single-switch")
