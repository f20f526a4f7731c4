"""Golden texts of training steps: operations in order, with their groups, sizes and waits."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from netsim.workloads.step import training_step
from netsim.workloads.tape import TapeEntry
from tests.golden.layout import MOST_LINES
from tests.training.steps import SMALL, setting

Writer = Callable[[], list[str]]
LEGEND = [
    "One line an operation: number, phase, stream, name, layer, micro-batch, what it is, the tasks",
    "that it waits for (besides the one before on the same stream of the same ranks).",
    "Times of kernels are left out; bytes are those of nccl-tests.",
]


def group_text(task: TapeEntry) -> str:
    """Return the groups of a task: `[0 1] [2 3]`, or the ranks of a kernel."""
    groups = task.groups.tolist()
    if all(len(group) == 1 for group in groups):
        return "ranks " + " ".join(str(group[0]) for group in groups)
    return " ".join("[" + " ".join(map(str, group)) + "]" for group in groups)


def task_text(number: int, task: TapeEntry) -> str:
    """Return the line of one task."""
    where = f" {task.layer}" if task.layer else ""
    where += f" mb{task.micro_batch}" if task.micro_batch >= 0 else ""
    where += f" chunk{task.chunk}" if task.chunk > 0 else ""
    what = "computes"
    if task.collective:
        what = f"{task.collective} {task.nbytes} B {task.dtype} ({task.kind})"
    posted = ", receiver posted ahead" if task.posted else ""
    after = f"  after {' '.join(f'#{one}' for one in task.after)}" if task.after else ""
    return (
        f"#{number:<3} {task.phase:<9} {task.stream:<12} {task.name}{where}: {what}, "
        f"{group_text(task)}{posted}{after}"
    )


def step(title: str, **given: Any) -> list[str]:
    """Return the tasks of a step of a small transformer, kernels between collectives counted."""
    model = replace(SMALL, **given.pop("model", {"layers": 2}))
    replicas = given.get("dp", 1) * given.get("ep", 1)
    made = setting(model=model, **{"batch": replicas, **given})
    tasks = training_step(made).entries
    lines = [f"{title}: {model.layers} layers, hidden {model.hidden}, batch {made.batch}.", *LEGEND]
    body = [task_text(number, task) for number, task in enumerate(tasks)]
    if len(lines) + len(body) + 1 > MOST_LINES:
        room = MOST_LINES - len(lines) - 2
        collectives = [
            task_text(number, task) for number, task in enumerate(tasks) if task.collective
        ]
        lines.append(f"Of {len(tasks)} tasks those that communicate, at most {room}:")
        body = collectives[:room]
    return [*lines, "", *body]


EXPERTS = {
    "layers": 2,
    "experts": 4,
    "top_k": 2,
    "expert_ffn": 512,
    "shared_ffn": 256,
    "dense_layers": 1,
}
STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "ddp": ("DDP over 4 ranks, buckets of 2 MiB", {"dp": 4, "data": "ddp", "bucket": 2**21}),
    "ddp-micro-batches": (
        "DDP over 2 ranks, 2 micro-batches, gradients averaged after the last",
        {"dp": 2, "data": "ddp", "batch": 4, "micro": 1},
    ),
    "zero1": ("ZeRO-1 over 4 ranks", {"dp": 4, "data": "zero1"}),
    "zero2": ("ZeRO-2 over 4 ranks", {"dp": 4, "data": "zero2"}),
    "zero3": ("ZeRO-3 over 4 ranks", {"dp": 4, "data": "zero3"}),
    "distributed-optimizer": (
        "Megatron's distributed optimizer over 4 ranks",
        {"dp": 4, "data": "distributed-optimizer"},
    ),
    "parameter-server": (
        "A parameter server over 4 ranks",
        {"dp": 4, "data": "parameter-server"},
    ),
    "fsdp": ("FSDP over 4 ranks", {"dp": 4, "data": "fsdp"}),
    "fsdp-hybrid": ("FSDP in shards of 2, 2 replicas", {"dp": 4, "data": "fsdp", "shard": 2}),
    "fsdp2": ("FSDP2 over 4 ranks", {"dp": 4, "data": "fsdp2"}),
    "tensor": ("Tensor parallelism over 2 ranks", {"tp": 2}),
    "tensor-sequence": (
        "Tensor and sequence parallelism over 2 ranks",
        {"tp": 2, "sequence_parallel": True},
    ),
    "pipeline-1f1b": (
        "A pipeline of 2 stages, 1F1B, 4 micro-batches",
        {"pp": 2, "batch": 4, "micro": 1, "schedule": "1f1b"},
    ),
    "pipeline-gpipe": (
        "A pipeline of 2 stages, GPipe, 4 micro-batches",
        {"pp": 2, "batch": 4, "micro": 1, "schedule": "gpipe"},
    ),
    "pipeline-zb-h1": (
        "A pipeline of 2 stages, ZB-H1, 4 micro-batches",
        {"pp": 2, "batch": 4, "micro": 1, "schedule": "zb-h1"},
    ),
    "pipeline-interleaved": (
        "A pipeline of 2 stages with 2 chunks each, interleaved, 4 micro-batches",
        {
            "pp": 2,
            "batch": 4,
            "micro": 1,
            "schedule": "interleaved",
            "chunks": 2,
            "model": {"layers": 4},
        },
    ),
    "distributed-optimizer-chunks": (
        "A distributed optimizer over 2 ranks, 2 pipeline stages with 2 chunks each, interleaved",
        {
            "dp": 2,
            "pp": 2,
            "batch": 4,
            "micro": 1,
            "schedule": "interleaved",
            "chunks": 2,
            "data": "distributed-optimizer",
            "model": {"layers": 8},
        },
    ),
    "fsdp2-pipeline": (
        "FSDP2 over 2 ranks and 2 pipeline stages, 1F1B",
        {"dp": 2, "pp": 2, "batch": 4, "micro": 1, "data": "fsdp2", "model": {"layers": 4}},
    ),
    "context": ("Context parallelism over 2 ranks, ring attention", {"cp": 2, "context": "p2p"}),
    "experts": ("Experts over 4 ranks", {"ep": 4, "model": EXPERTS}),
    "experts-deduplicated": (
        "Experts over 4 ranks, tokens sent once a node",
        {"ep": 4, "deduplicated": True, "model": EXPERTS},
    ),
    "islands": (
        "Islands of replicas that synchronize every 3 steps",
        {"dp": 4, "islands": 2, "sync_every": 3},
    ),
    "compressed": (
        "Gradients in fp16 over 2 ranks",
        {"dp": 2, "compression": "fp16", "gradient_dtype": "float"},
    ),
}
WRITERS: dict[str, Writer] = {
    f"steps/{name}": partial(step, title, **given) for name, (title, given) in STEPS.items()
}
