"""What a step has beside its time: the line of breakdown.csv."""

import re

from netsim.training.fitting import memories
from netsim.training.run import Step

KINDS = ("tp", "cp", "ep", "dp", "pp", "extra")
OF_MODEL = ("mfu_pct", "tokens_per_s", "memory_GB", "states_GB", "activations_GB")
NAMES = (
    "step_time_us", "computing_us", *(f"exposed_{kind}_us" for kind in KINDS), "idle_us",
    "hidden_us", "overlap_pct", "bubble_pct", *OF_MODEL,
)  # fmt: skip
WORD = re.compile(r"[a-z]+")
# In the order in which they count: an expert-data-parallel group exchanges gradients, one of tensor
# and context parallelism does what the first of both does.
MEANT = {
    "dp": ("dp", "data", "fsdp", "shard", "replicate", "default"),
    "tp": ("tp", "tensor"),
    "cp": ("cp", "context", "sequence"),
    "ep": ("ep", "expert", "experts", "moe"),
    "pp": ("pp", "pipeline", "stage"),
}


def details_of(step: Step) -> dict[str, float]:
    """Means over GPUs, in µs: computing, exposed communication by kind, idle; and what follows.

    `hidden_us` is communication that computing hides, `bubble_pct` idle time in % of computing.
    """
    found = step.breakdown
    exposed = dict.fromkeys(KINDS, 0.0)
    for kind, seconds in zip(found.kinds, found.exposed.mean(axis=1), strict=True):
        exposed[axis_of(kind)] += float(seconds)
    computing, idle = float(found.computing.mean()), float(found.idle.mean())
    known = {} if step.prepared.recorded else _of_model(step)
    return {
        "step_time_us": step.seconds * 1e6,
        "computing_us": computing * 1e6,
        **{f"exposed_{kind}_us": seconds * 1e6 for kind, seconds in exposed.items()},
        "idle_us": idle * 1e6,
        "hidden_us": float(found.hidden.sum(axis=0).mean()) * 1e6,
        "overlap_pct": found.overlap * 100,
        "bubble_pct": idle / computing * 100 if computing > 0 else 0.0,
        **known,
    }


def axis_of(group: str) -> str:
    """The parallelism of a kind of communication; of a recorded group, by the words of its name.

    What a trace calls the default group is taken as data parallel: DDP and FSDP use no other.
    """
    words = WORD.findall(group.lower())
    for axis, meant in MEANT.items():
        if any(word in meant for word in words):
            return axis
    return "extra"


def _of_model(step: Step) -> dict[str, float]:
    """What is known where the model is."""
    worst = max(memories(step.prepared.setting), key=lambda memory: memory.total)
    memory = (worst.total / 1e9, worst.states / 1e9, worst.activations / 1e9)
    return dict(zip(OF_MODEL, (step.mfu * 100, step.tokens_per_second, *memory), strict=True))
