"""Whether model, batch and options go together, as the frameworks would say before they start."""

from collections.abc import Iterator

from netsim.scenario.cells import Cell
from netsim.scenario.training import Training
from netsim.workloads.model import LayerList, Transformer
from netsim.workloads.setting import Setting

Misfit = tuple[tuple[str | int, ...], str]
REPLICATING = ("ddp", "allreduce", "parameter-server")


def check_fits(cell: Cell, work: Training, setting: Setting) -> None:
    """Refuse the first thing that does not fit, at its place."""
    for path, message in _misfits(work, setting):
        raise cell.source.error(("workload", *path), message)


def _misfits(work: Training, s: Setting) -> Iterator[Misfit]:
    yield from _batch(s)
    if isinstance(s.model, Transformer):
        yield from _transformer(s, s.model)
    else:
        yield from _layer_list(s, s.model)
    yield from _pipeline(s)
    yield from _replicas(work, s)


def _batch(s: Setting) -> Iterator[Misfit]:
    each = s.micro * s.replicas
    if s.batch % each:
        message = (
            f"{s.batch} samples cannot be divided into micro-batches of {s.micro} on "
            f"{s.replicas} replicas"
        )
        yield ("batch",), message


def _transformer(s: Setting, m: Transformer) -> Iterator[Misfit]:
    tp, cp, ep, pp = (s.degree(axis) for axis in ("tp", "cp", "ep", "pp"))
    where = ("parallelism",)
    if m.heads % tp:
        yield (*where, "tp"), f"{m.heads} heads are not divisible by tp {tp}"
    if max(m.kv_heads, tp) % min(m.kv_heads, tp):
        yield (*where, "tp"), f"{m.kv_heads} KV heads do not go with tp {tp}"
    if m.ffn % tp:
        yield (*where, "tp"), f"the FFN of {m.ffn} is not divisible by tp {tp}"
    if m.layers % (pp * s.chunks) and not s.stage_layers:
        chunks = f" x {s.chunks} chunks" if s.chunks > 1 else ""
        message = (
            f"{m.layers} layers are not divisible by pp {pp}{chunks}; "
            f"pipeline.stages may say how many each has: {_example(m.layers, pp * s.chunks)}"
        )
        yield (*where, "pp"), message
    if ep > 1 and not m.experts:
        yield (*where, "ep"), f"{m.name} has no experts to divide by ep {ep}"
    elif m.experts % ep:
        yield (*where, "ep"), f"{m.experts} experts are not divisible by ep {ep}"
    halves = 2 * cp if cp > 1 and m.causal else 1  # each rank has an early and a late part
    if s.sequence % halves or s.sequence % cp:
        yield (
            (*where, "cp"),
            f"a sequence of {s.sequence} is not divisible by {halves} parts for cp {cp}",
        )
    elif s.sequence_parallel and (s.micro * s.sequence // cp) % tp:
        yield (*where, "tp"), f"{s.micro * s.sequence // cp} tokens are not divisible by tp {tp}"
    if cp > 1 and s.context == "a2a" and (m.heads // tp) % cp:
        yield (
            (*where, "cp"),
            f"{m.heads // tp} heads a rank are not divisible by cp {cp}, as a2a needs",
        )
    if m.experts and tp > 1 and not s.sequence_parallel:
        yield (
            (*where, "sequence_parallel"),
            "experts with tp need sequence_parallel (as in Megatron)",
        )


def _layer_list(s: Setting, m: LayerList) -> Iterator[Misfit]:
    for axis in ("tp", "cp", "ep"):
        if s.degree(axis) > 1:
            yield (
                ("parallelism", axis),
                f"a list of layers cannot be divided by {axis}, only dp and pp",
            )
    if len(m.layers) < s.degree("pp") * s.chunks and not s.stage_layers:
        parts = s.degree("pp") * s.chunks
        yield ("parallelism", "pp"), f"{len(m.layers)} layers do not make {parts} parts"


def _pipeline(s: Setting) -> Iterator[Misfit]:
    pp, m = s.degree("pp"), s.micro_batches
    yield from _stages(s)
    if s.chunks > 1 and pp == 1:
        yield ("pipeline", "chunks"), "several chunks a stage need pp of 2 or more"
    if s.schedule == "interleaved" and m % pp:
        yield (
            ("batch",),
            f"interleaved needs micro-batches that are a multiple of pp {pp}, got {m}",
        )
    if s.schedule == "zb-h1" and s.data in ("fsdp", "fsdp2", "zero3"):
        yield (
            ("pipeline", "schedule"),
            f"zb-h1 keeps gradients back, which {s.data} scatters at once",
        )


def _stages(s: Setting) -> Iterator[Misfit]:
    """Whether layers that are stated by stage are as many as there are."""
    where = ("pipeline", "stages")
    given, parts = s.stage_layers, s.degree("pp") * s.chunks
    layers = s.model.layers if isinstance(s.model, Transformer) else len(s.model.layers)
    if given and len(given) != parts:
        chunks = f" x {s.chunks} chunks" if s.chunks > 1 else ""
        yield where, f"expected {parts} numbers for pp {s.degree('pp')}{chunks}, got {len(given)}"
    elif given and sum(given) != layers:
        yield where, f"expected {layers} layers in all, got {sum(given)}"


def _example(layers: int, parts: int) -> str:
    """Layers by stage, the later ones with fewer."""
    each, more = divmod(layers, parts)
    found = [each + (number < more) for number in range(parts)]
    shown = [str(one) for one in (found if parts <= 8 else found[:3])]
    return f"[{', '.join(shown)}{', …' if parts > 8 else ''}]"


def _replicas(work: Training, s: Setting) -> Iterator[Misfit]:
    pp = s.degree("pp")
    if s.data in ("zero2", "zero3") and pp > 1:
        message = (
            f"{s.data} does not go with pp {pp}: DeepSpeed refuses it, for gradients of all "
            "micro-batches would be scattered one by one"
        )
        yield ("parallelism", "data"), message
    members = s.replicas * s.degree("cp")
    if s.shard and (s.data not in ("fsdp", "fsdp2", "zero3")):
        yield ("replicas", "shard"), f"only FSDP and ZeRO-3 divide weights, not {s.data}"
    elif s.shard and members % s.shard:
        yield ("replicas", "shard"), f"{members} replicas are not divisible by groups of {s.shard}"
    if s.compression != "none" and s.data not in ("ddp", "allreduce"):
        message = f"compression goes with ddp and allreduce, not with {s.data}"
        yield ("compression", "kind"), message
    if s.delayed and s.data not in ("ddp", "allreduce"):
        yield (
            ("replicas", "delayed"),
            f"delayed gradients go with ddp and allreduce, not with {s.data}",
        )
    for number, slow in enumerate(work.stragglers):
        if slow.rank >= s.grid.size:
            message = f"expected a rank in 0..{s.grid.size - 1}, got {slow.rank}"
            yield ("stragglers", number, "rank"), message
