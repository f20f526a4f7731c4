"""Whether a step fits into the memory of its GPUs; if not, what is too large."""

from netsim.scenario.cells import Cell
from netsim.scenario.training import Training
from netsim.topology.cluster import Cluster
from netsim.workloads.memory import Memory, memory_of
from netsim.workloads.setting import Setting

PARTS = ("weights", "gradients", "optimizer", "activations", "buffers", "context")
REMEDIES = {
    "weights": "more tp or pp, or data: fsdp",
    "gradients": "more tp or pp, or data: fsdp or zero2",
    "optimizer": "more tp or pp, or data: fsdp, zero1 or distributed-optimizer",
    "activations": "a smaller micro_batch, recompute: full, sequence_parallel, or more cp",
    "buffers": "smaller buckets",
}


def memories(setting: Setting) -> tuple[Memory, ...]:
    """The memory of a GPU of every pipeline stage."""
    return tuple(memory_of(setting, stage) for stage in range(setting.degree("pp")))


def check_memory(cell: Cell, work: Training, setting: Setting, cluster: Cluster) -> None:
    """Refuse what does not fit, unless it is wanted all the same."""
    if work.allow_oom:
        return
    room = float(cluster.machine_of(0).gpu.memory)
    found = memories(setting)
    stage = max(range(len(found)), key=lambda number: found[number].total)
    worst = found[stage]
    if worst.total <= room:
        return
    parts = ", ".join(f"{name} {getattr(worst, name) / 1e9:.1f}" for name in PARTS)
    where = f" of stage {stage}" if len(found) > 1 else ""
    message = (
        f"a GPU{where} needs {worst.total / 1e9:.1f} GB ({parts}), but has {room / 1e9:.0f} GB; "
        f"{worst.largest} take most"
    )
    hint = (
        f"{REMEDIES[worst.largest]}; or allow_oom: true (--allow-oom) to simulate it all the same"
    )
    raise cell.source.error(("workload", "model"), message, hint=hint)
