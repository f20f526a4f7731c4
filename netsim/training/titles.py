"""How tasks of a step are called where they are shown: slices, streams, passes."""

from netsim.workloads.tape import COMPUTE, Task

PASSES = {"forward": "F", "backward": "B", "weights": "W"}


def task_title(task: Task, rank: int, members: tuple[int, ...], *, several: bool) -> str:
    """A slice: `layer 3 norm+mlp (mb 0)`, `all_gather layer 3 weights`, `send activations`.

    `several`: there is more than one micro-batch.
    """
    words = [task.layer] if task.layer and not task.name.startswith(task.layer) else []
    words.append(task.name)
    if task.collective == "p2p":
        words = ["send" if rank == members[0] else "recv", *words]
    elif task.collective and task.collective != task.name:
        words = [task.collective, *words]
    title = " ".join(words)
    return f"{title} (mb {task.micro_batch})" if several and task.micro_batch >= 0 else title


def pass_title(task: Task) -> str:
    """The pass that a kernel belongs to: `F mb 2`, `B mb 0 chunk 1`, `step`."""
    if task.micro_batch < 0 or task.phase not in PASSES:
        return task.phase
    chunk = f" chunk {task.chunk}" if task.chunk >= 0 else ""
    return f"{PASSES[task.phase]} mb {task.micro_batch}{chunk}"


def stream_title(stream: str, stage: int | None) -> str:
    """A stream as a rank of a stage sees it: `compute`, `NCCL tp`, `NCCL pp recv from stage 0`."""
    if stream == COMPUTE:
        return stream
    kind, _, way = stream.partition(" ")
    source, arrow, target = way.partition(">")
    if not arrow:
        return f"NCCL {stream}"
    ends = f"send to stage {target}" if source == str(stage) else f"recv from stage {source}"
    return f"NCCL {kind} {ends}"


def family(name: str) -> str:
    """A name without its number: `bucket 3` is one of the buckets."""
    return " ".join(word for word in name.split() if not word.isdigit())
