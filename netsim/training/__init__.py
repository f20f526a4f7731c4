"""A training step on a cluster: tasks and NCCL's collectives, simulated and written down."""

from netsim.lazy import promised

__getattr__ = promised(
    __name__, "details", "memory_time", "prepare", "rows", "run", "tables", "timeline"
)
