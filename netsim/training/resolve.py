"""Resolve a training cell: from the scenario to the cluster and the Setting of its step.

Settings that do not fit together are refused here, with their place in the scenario, before
anything runs.
"""

import csv
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain
from math import prod
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.constants import TABLE, value
from netsim.base.errors import InputError, joined
from netsim.base.files import GOAL, LARGEST_TABLE, csv_value, text_of
from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.extent.budget import budget_for
from netsim.extent.memory import BYTES_A_ROW, BYTES_A_TASK, needed
from netsim.nccl.facts import parse_version
from netsim.nccl.job import Wishes
from netsim.program.odd_parts import first_odd_part
from netsim.program.partition import Placement
from netsim.scenario.cells import Cell
from netsim.scenario.training import LayerConfig, Recorded, Training, TransformerConfig
from netsim.topology.cluster import Cluster, build_at, build_cluster
from netsim.topology.faults import slowdowns_of, with_slow_gpus
from netsim.topology.graph import Topology, TopologyError
from netsim.topology.machine import Gpu
from netsim.topology.network import Ports
from netsim.trace.goal import read_goal, replayed
from netsim.training.costs import Costs
from netsim.training.recorded.chakra import is_execution_trace, ran_alone, tape_of_trace
from netsim.training.recorded.kineto import (
    StepNotRecorded,
    is_trace,
    read_profile,
    step_of,
    tape_of,
)
from netsim.training.recorded.layers import layer_times
from netsim.training.warnings import step_warnings
from netsim.workloads.lower import Lowered
from netsim.workloads.memory import SHARDED, Memory, memory_of
from netsim.workloads.model import (
    ATTENTION,
    MAMBA,
    Adapters,
    Layer,
    LayerList,
    Model,
    Plain,
    Tensor,
    Transformer,
    layers_of,
    model_named,
)
from netsim.workloads.setting import (
    AXES,
    CAST,
    ELEMENT,
    NARROW,
    ONE_TILE_A_BLOCK,
    STORED,
    ExtraCollective,
    GpuKinds,
    Grid,
    Roofline,
    Setting,
)
from netsim.workloads.step import AXES_OF, preset, training_step
from netsim.workloads.tape import Tape

Misfit = tuple[tuple[str | int, ...], str]
MOST_TASKS = 5_000_000
"""Entries x GPUs up to which all ranks of a step are simulated: more take minutes and gigabytes."""
BYTES_A_TASK_OF_STAGES = 5_000
"""Bytes of memory per entry if one rank of each stage is simulated."""


def check_fits(cell: Cell, work: Training, setting: Setting) -> None:
    """Raise one error for all settings of a step that do not fit together, each with its place in
    the scenario.
    """
    if isinstance(setting.model, Transformer):
        model_misfits = _transformer_misfits(setting, setting.model)
    else:
        model_misfits = _layer_list_misfits(setting, setting.model)
    misfits = chain(
        _batch_misfits(setting),
        model_misfits,
        _pipeline_misfits(setting),
        _replica_misfits(work, setting),
    )
    message_of_key = dict(reversed([*misfits]))  # the first message of each key stays
    if message_of_key:
        raise joined(
            cell.source.error(("workload", *path), message_of_key[path])
            for path in reversed(message_of_key)
        )


def _batch_misfits(s: Setting) -> Iterator[Misfit]:
    """Yield the reason why the batch cannot be divided into micro-batches, if it cannot."""
    samples_per_batch = s.micro * s.replicas
    if s.batch % samples_per_batch:
        message = (
            f"{s.batch} samples cannot be divided into micro-batches of {s.micro} on "
            f"{s.replicas} replicas"
        )
        yield ("batch",), message


def _transformer_misfits(s: Setting, m: Transformer) -> Iterator[Misfit]:
    """Yield the reasons why the degrees of parallelism do not divide a transformer's layers, heads,
    features or experts.
    """
    tp, ep, pp = (s.degree(axis) for axis in ("tp", "ep", "pp"))
    where = ("parallelism",)
    if m.heads % tp:
        yield (*where, "tp"), f"{m.heads} heads are not divisible by tp {tp}"
    if max(m.kv_heads, tp) % min(m.kv_heads, tp):
        yield (*where, "tp"), f"{m.kv_heads} KV heads do not go with tp {tp}"
    if m.ffn % tp:
        yield (*where, "tp"), f"the FFN of {m.ffn} is not divisible by tp {tp}"
    if m.layers % (pp * s.chunks) and not s.stage_layers:
        chunks = f" x {s.chunks} chunks" if s.chunks > 1 else ""
        example = _example_of_stages(m.layers, pp * s.chunks)
        message = (
            f"{m.layers} layers are not divisible by pp {pp}{chunks}; "
            f"pipeline.stages may say how many each has: {example}"
        )
        yield (*where, "pp"), message
    yield from _mamba_misfits(s, m)
    if m.adapters is not None and m.adapters.rank % tp:
        message = f"the rank of {m.adapters.rank} is not divisible by tp {tp}"
        yield ("lora", "rank"), message
    if ep > 1 and not m.experts:
        yield (*where, "ep"), f"{m.name} has no experts to divide by ep {ep}"
    elif m.experts % ep:
        yield (*where, "ep"), f"{m.experts} experts are not divisible by ep {ep}"
    yield from _sequence_misfits(s, m)
    if m.experts and tp > 1 and not s.sequence_parallel:
        yield (
            (*where, "sequence_parallel"),
            "experts with tp need sequence_parallel (as in Megatron)",
        )


def _mamba_misfits(s: Setting, m: Transformer) -> Iterator[Misfit]:
    """Yield the reasons why the Mamba-2 layers of a model cannot be divided or recomputed."""
    if m.mamba is None:
        return
    tp = s.degree("tp")
    where = ("parallelism",)
    if m.mamba.heads % tp or m.mamba.groups % tp:
        sizes = f"{m.mamba.heads} heads in {m.mamba.groups} groups"
        yield (*where, "tp"), f"{sizes} of Mamba layers are not divisible by tp {tp}"
    if s.degree("cp") > 1:
        message = f"the scan of the Mamba layers of {m.name} along a divided sequence is not"
        yield (*where, "cp"), f"{message} simulated; cp must be 1"
    if "ops" in s.recompute:
        yield (
            ("recompute",),
            "ops are TorchTitan's checkpoints, which hybrid models do not have; name modules",
        )


def _sequence_misfits(s: Setting, m: Transformer) -> Iterator[Misfit]:
    """Yield the reasons why the tokens or heads of a sequence cannot be divided by cp or tp."""
    tp = s.degree("tp")
    cp = s.degree("cp")
    where = ("parallelism",)
    halves = (
        2 * cp if cp > 1 and m.causal else 1
    )  # a rank has an early and a late part, for balance
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


def _layer_list_misfits(s: Setting, m: LayerList) -> Iterator[Misfit]:
    """Yield the reasons why a list of layers cannot use the parallelism of the setting."""
    for axis in ("tp", "cp", "ep"):
        if s.degree(axis) > 1:
            yield (
                ("parallelism", axis),
                f"a list of layers cannot be divided by {axis}, only dp and pp",
            )
    if len(m.layers) < s.degree("pp") * s.chunks and not s.stage_layers:
        parts = s.degree("pp") * s.chunks
        yield ("parallelism", "pp"), f"{len(m.layers)} layers do not make {parts} parts"


def _pipeline_misfits(s: Setting) -> Iterator[Misfit]:
    """Yield the reasons why the pipeline schedule and its stages do not fit the setting."""
    pp = s.degree("pp")
    m = s.micro_batches
    yield from _stage_misfits(s)
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


def _stage_misfits(s: Setting) -> Iterator[Misfit]:
    """Yield the reason why `pipeline.stages` does not match the number of stages or layers, if it
    does not.
    """
    where = ("pipeline", "stages")
    stage_layers = s.stage_layers
    parts = s.degree("pp") * s.chunks
    layers = s.model.layers if isinstance(s.model, Transformer) else len(s.model.layers)
    if stage_layers and len(stage_layers) != parts:
        chunks = f" x {s.chunks} chunks" if s.chunks > 1 else ""
        yield (
            where,
            f"expected {parts} numbers for pp {s.degree('pp')}{chunks}, got {len(stage_layers)}",
        )
    elif stage_layers and sum(stage_layers) != layers:
        yield where, f"expected {layers} layers in all, got {sum(stage_layers)}"


def _example_of_stages(layers: int, parts: int) -> str:
    """An example of an even division of layers into parts, in the form that
    `pipeline.stages` has.
    """
    layers_per_part, more = divmod(layers, parts)
    example = [layers_per_part + (number < more) for number in range(parts)]
    shown = [str(one) for one in (example if parts <= 8 else example[:3])]
    return f"[{', '.join(shown)}{', …' if parts > 8 else ''}]"


def _replica_misfits(work: Training, s: Setting) -> Iterator[Misfit]:
    """Yield the reasons why options of data parallelism (`workload.replicas`) do not fit
    together.
    """
    pp = s.degree("pp")
    if s.data in ("zero2", "zero3") and pp > 1:
        message = (
            f"{s.data} does not go with pp {pp}: DeepSpeed refuses it, for gradients of all "
            "micro-batches would be scattered one by one"
        )
        yield ("parallelism", "data"), message
    if s.shard and (s.data not in ("fsdp", "fsdp2", "zero3")):
        yield ("replicas", "shard"), f"only FSDP and ZeRO-3 divide weights, not {s.data}"
    elif s.shard and s.copies % s.shard:
        yield ("replicas", "shard"), f"{s.copies} replicas are not divisible by groups of {s.shard}"
    order = s.grid.order.index
    if s.islands > 1 and (
        s.degree("dp") % s.islands or order("dp") < max(order("cp"), order("ep"))
    ):
        message = f"dp {s.degree('dp')} is not divisible by {s.islands} islands"
        yield ("replicas", "sync_every"), f"{message}, or cp or ep lie between them in the order"
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


PARTS = ("weights", "gradients", "optimizer", "activations", "buffers", "context")
REMEDIES = {
    "weights": "more tp or pp, or data: fsdp",
    "gradients": "more tp or pp, or data: fsdp or zero2",
    "optimizer": "more tp or pp, or data: fsdp, zero1 or distributed-optimizer",
    "activations": "a smaller micro_batch, recompute: full, sequence_parallel, or more cp",
    "buffers": "smaller buckets",
}


def memories(setting: Setting) -> tuple[Memory, ...]:
    """By pipeline stage, the memory of one of its GPUs."""
    return tuple(memory_of(setting, stage) for stage in range(setting.degree("pp")))


def memory_of_gpus(cluster: Cluster) -> NDArray[np.float64]:
    """By rank, the memory of its GPU in bytes."""
    by_class = np.array([float(host.machine.gpu.memory) for host in cluster.hosts])
    return by_class[cluster.host_class[cluster.gpu_host]]


def check_memory(cell: Cell, work: Training, setting: Setting, cluster: Cluster) -> None:
    """Raise an error for a step that does not fit into GPU memory, unless the scenario
    allows it.
    """
    if work.allow_oom:
        return
    gpu_memory = memory_of_gpus(cluster)
    by_stage = memories(setting)
    # A stage must fit into the smallest GPU memory among its ranks.
    smallest = [gpu_memory[setting.grid.stage(stage)].min() for stage in range(len(by_stage))]
    stage = max(range(len(by_stage)), key=lambda n: by_stage[n].total - smallest[n])
    worst = by_stage[stage]
    room = float(smallest[stage])
    if worst.total <= room:
        return
    parts = ", ".join(f"{name} {getattr(worst, name) / 1e9:.1f}" for name in PARTS)
    where = f" of stage {stage}" if len(by_stage) > 1 else ""
    if len(np.unique(gpu_memory)) > 1:
        ranks = setting.grid.stage(stage)
        rank = int(ranks[gpu_memory[ranks].argmin()])
        host = int(cluster.gpu_host[rank])
        where += f" on node{host} ({cluster.machine_of(host).gpu.model})"
    message = (
        f"a GPU{where} needs {worst.total / 1e9:.1f} GB ({parts}), but has {room / 1e9:.0f} GB; "
        f"{worst.largest} take most"
    )
    hint = (
        f"{REMEDIES[worst.largest]}; or allow_oom: true (--allow-oom) to simulate it all the same"
    )
    raise cell.source.error(("workload", "model"), message, hint=hint)


def degrees_of(cell: Cell, work: Training, gpus: int) -> dict[str, int]:
    """The degree of parallelism along every axis; a missing dp follows from the number of GPUs.

    If the product of all degrees is the number of GPUs, ep is an axis of its own. If the product
    without ep is, ep divides dp, as in Megatron.
    """
    parallelism = work.parallelism
    others = parallelism.tp * parallelism.pp * parallelism.cp
    place = ("workload", "parallelism")
    degrees = {axis: getattr(parallelism, axis) for axis in AXES}
    stated = [
        x for x in degrees if x in parallelism.model_fields_set or degrees[x] not in (None, 1)
    ]
    written = " x ".join(f"{axis} {degrees[axis]}" for axis in stated)
    if parallelism.dp is None:
        if gpus % (others * parallelism.ep):
            message = f"{written or 'tp 1'} do not divide the {gpus} GPUs of the cluster"
            raise cell.source.error(place, message, key=True)
        return degrees | {"dp": gpus // (others * parallelism.ep)}
    if prod(degrees.values()) == gpus:
        return degrees
    if others * parallelism.dp == gpus:
        if parallelism.dp % parallelism.ep:
            sizes = f"ep {parallelism.ep} does not divide dp {parallelism.dp}"
            message = f"{sizes}, whose ranks share the experts"
            raise cell.source.error((*place, "ep"), message)
        return {**degrees, "dp": parallelism.dp // parallelism.ep}
    product = prod(degrees.values())
    message = f"{written} make {product} ranks, but the cluster has {gpus} GPUs"
    hint = "leave dp out to have it follow from the others"
    raise cell.source.error(place, message, key=True, hint=hint)


SCAN_FLOPS = 7
"""FLOPs for each element of the states of a Mamba-2 layer, as Megatron-Bridge counts them
(src/megatron/bridge/training/utils/flop_utils.py)."""


def model_flops(model: Model, batch: int, sequence: int) -> float:
    """The FLOPs of forward and backward pass for a batch: the model FLOPs of MFU.

    As in Megatron-LM's num_floating_point_operations: three times the forward pass, which includes
    the logits and excludes recomputation. Products with frozen weights count twice only, since
    these have no gradients. 0 for a list of layers that only have times.
    """
    if not isinstance(model, Transformer):
        return batch * sum(one.plain.flops + one.plain.backward_flops for one in model.layers)
    layers = layers_of(model)
    forward = sum(layer_flops(model, layer, sequence) for layer in layers)
    frozen = sum(_frozen_flops(model, layer) for layer in layers)
    return (3.0 * forward - frozen) * batch * sequence


def _frozen_flops(model: Transformer, layer: Layer) -> float:
    """The FLOPs of the products of one layer with frozen weights, for one token in the forward
    pass.
    """
    if model.adapters is None or layer.kind == "embedding":
        return 0.0
    trained = sum(tensor.total for tensor in layer.tensors if not tensor.frozen)
    return product_flops(model, layer) - 2.0 * trained


def layer_flops(model: Transformer, layer: Layer, sequence: int) -> float:
    """The FLOPs of the forward pass of one layer for one token.

    They are 2 for each parameter that the token passes through. Of the experts only the `top_k`
    that the token is sent to count. The embedding has none, as a token reads one row of its table.
    The logits count in full, once for each token that is predicted, even if they share the matrix
    of the embedding (`tied`). Attention adds 2 x keys x features of a key and a value, with half of
    the keys if it is causal. The scan of a Mamba-2 layer adds `SCAN_FLOPS` for each element of its
    states.
    """
    if layer.mixer == MAMBA and model.mamba:
        return product_flops(model, layer) + SCAN_FLOPS * model.mamba.inner * model.mamba.state
    if layer.kind != "block" or layer.mixer not in ("", ATTENTION):
        return product_flops(model, layer)
    latent = model.latent
    head = latent.nope + latent.rope + latent.value if latent else 2 * model.head
    attention = 2.0 * model.keys(sequence) * head * model.heads
    return product_flops(model, layer) + attention


def product_flops(model: Transformer, layer: Layer) -> float:
    """The same without attention: 2 for each parameter that the token passes through."""
    if layer.kind == "embedding":
        return 0.0
    if layer.kind == "head":
        logits = model.vocabulary * model.hidden
        norm_and_pooler = layer.parameters - (0 if model.tied else logits)
        return 2.0 * (norm_and_pooler + model.predicted * logits)
    tensors = layer.tensors or layer.reused
    experts = sum(tensor.total for tensor in tensors if tensor.expert)
    active = sum(tensor.total for tensor in tensors) - experts
    active += experts * model.top_k // max(model.experts, 1)
    return 2.0 * active


def extras_of(work: Training, model: Model, grid: Grid) -> tuple[ExtraCollective, ...]:
    """Return the additional collectives of a step, as the scenario lists them. Keys that the user
    sets replace those of the preset that an entry names.
    """
    extras = []
    for number, extra in enumerate(work.extras):
        cost = None
        if extra.preset is not None:
            held = model.parameters // (grid.degrees["tp"] * grid.degrees["pp"])
            cost = preset(extra.preset, held, work.micro_batch)
        usual = cost or ExtraCollective(f"extra {number}", "all_reduce", AXES_OF["all"], 4, "step")
        keywords: dict[str, Any] = {
            "collective": extra.collective,
            "nbytes": extra.bytes,
            "when": extra.when,
            "axes": AXES_OF.get(extra.group or ""),
        }
        extras.append(replace(usual, **{name: one for name, one in keywords.items() if one}))
    return tuple(extras)


COLUMNS = ("layer", "forward_us", "backward_us")
PLACE = ("workload", "compute", "times")


def read_times(cell: Cell, work: Training, model: Model) -> dict[str, tuple[float, float]]:
    """By layer, its seconds (forward, backward), from a CSV file or a trace; {} without either.

    In a CSV file the line `block` applies to all blocks without a line of their own.
    """
    if work.compute.times is None:
        return {}
    path = Path(work.compute.times)
    names = [layer.name for layer in layers_of(model)]
    blocks = [layer.name for layer in layers_of(model) if layer.kind == "block"]
    try:
        if is_trace(path):
            held = max(1, len(blocks) // work.parallelism.pp)
            times = layer_times(path, names, blocks, held)
            return {name: seconds for name, seconds in times.items() if name in names}
        return _named(path, _lines(path), names, blocks)
    except InputError as error:
        raise cell.source.error(PLACE, str(error), hint=error.hint) from None


def _lines(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file of times, each as a mapping from column to text."""
    try:
        reader = csv.DictReader(text_of(path, LARGEST_TABLE).splitlines())
        if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
            raise InputError(f"{path}: expected the columns {', '.join(COLUMNS)}, no {missing[0]}")
        return [{k: csv_value(v or "") for k, v in line.items() if k} for line in reader]
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _named(
    path: Path, lines: list[dict[str, str]], names: list[str], blocks: list[str]
) -> dict[str, tuple[float, float]]:
    """By layer, the times in the lines of a CSV file; `names` are all layers of the model, `blocks`
    its transformer blocks.
    """
    seconds_of: dict[str, tuple[float, float]] = {}
    for number, line in enumerate(lines, 2):
        try:
            seconds = (float(line["forward_us"]) * 1e-6, float(line["backward_us"]) * 1e-6)
        except (TypeError, ValueError):
            raise InputError(f"{path}:{number}: expected times in us") from None
        if min(seconds) < 0:
            raise InputError(f"{path}:{number}: a time below zero")
        if line["layer"] == "block":
            seconds_of = {**dict.fromkeys(blocks, seconds), **seconds_of}
        elif line["layer"] in names:
            seconds_of[line["layer"]] = seconds
        else:
            raise InputError(
                f"{path}:{number}: the model has no layer {line['layer']!r}, but {names[0]!r}, …"
            )
    return seconds_of


GRAPH = "cuda_graph"  # style of launch: the host launches the complete step as one CUDA graph
USUAL_SCALING = {"mxfp8": "block", "nvfp4": "block"}
BACKWARD = 0.8  # efficiency of attention backward / forward, if the user sets only the latter


def setting_of(cell: Cell, cluster: Cluster) -> Setting:
    """The Setting of a training cell on its cluster."""
    work = cell.scenario.workload
    assert isinstance(work, Training)
    model = _with_adapters(cell, work, model_of(work))
    grid = Grid(
        degrees_of(cell, work, len(cluster.topology)), tuple(work.parallelism.order.split("-"))
    )
    setting = _setting(cell, work, model, grid, cluster)
    check_fits(cell, work, setting)
    return setting


def _with_adapters(cell: Cell, work: Training, model: Model) -> Model:
    """The model with the adapters that the scenario asks for, and all other weights frozen; the
    model itself if it asks for none.

    Linear layers that the model lacks are refused, and those of experts, whose adapters are not
    simulated.
    """
    if work.lora is None:
        return model
    if not isinstance(model, Transformer):
        message = "a list of layers has no linear layers that adapters could be added to"
        raise cell.source.error(("workload", "lora"), message, key=True)
    if model.pattern:
        message = f"adapters of {model.name}, whose layers are of several kinds, are not simulated"
        raise cell.source.error(("workload", "lora"), message, key=True)
    where = ("workload", "lora", "targets")
    targets = work.lora.targets
    if model.experts and {"linear_fc1", "linear_fc2"} & {*targets}:
        message = f"adapters of experts are not simulated, and the MLPs of {model.name} are experts"
        hint = "targets: [linear_qkv, linear_proj] adapts attention alone"
        raise cell.source.error(where, message, hint=hint)
    if model.latent and "linear_qkv" in targets:
        message = f"{model.name} compresses queries, keys and values and has no linear_qkv"
        raise cell.source.error(where, message, hint="targets: [linear_proj] is simulated")
    return replace(model, adapters=Adapters(work.lora.rank, targets))


def _setting(cell: Cell, work: Training, model: Model, grid: Grid, cluster: Cluster) -> Setting:
    """The Setting, with defaults as in Megatron, DeepSpeed and PyTorch for what the scenario leaves
    open.
    """
    parallel = work.parallelism
    pipeline = work.pipeline
    replicas = work.replicas
    data = parallel.data or "ddp"
    schedule = pipeline.schedule or ("interleaved" if pipeline.chunks > 1 else "1f1b")
    sequential = parallel.sequence_parallel
    if sequential is None:  # Megatron refuses experts with tp without sequence parallelism
        sequential = grid.degrees["tp"] > 1 and isinstance(model, Transformer) and model.experts > 0
    launches = cell.scenario.launch_costs()
    is_graph = launches.style == GRAPH
    host_seconds = value("kernel.host") if launches.host is None else launches.host
    blocking = pipeline.blocking_sends
    overlap = replicas.overlap
    no_sync = replicas.no_sync
    sequence = work.sequence or (model.sequence if isinstance(model, Transformer) else 1)
    recompute = work.recompute
    roofline, gpu_kinds = _rooflines(work, cluster, is_graph)
    # Megatron reduces gradients in fp32, other frameworks in the type of the weights.
    usual_type = "float" if data == "distributed-optimizer" else STORED.get(work.dtype, work.dtype)
    return Setting(
        model=model,
        grid=grid,
        roofline=roofline,
        gpu_kinds=gpu_kinds,
        batch=work.batch,
        micro=work.micro_batch,
        sequence=sequence,
        dtype=work.dtype,
        gradient_dtype=replicas.gradient_dtype or usual_type,
        gather_dtype=CAST.get(work.dtype, "") if replicas.gather == "fp8" else "",
        scaling=work.scaling or USUAL_SCALING.get(work.dtype, "delayed"),
        data=data,
        sequence_parallel=sequential and grid.degrees["tp"] > 1,
        tensor_overlap=parallel.tensor_overlap,
        context=parallel.context,
        recompute=recompute
        if isinstance(recompute, tuple)
        else (recompute,) * (recompute != "none"),
        loss=work.loss or ("eager" if work.elementwise == "eager" else "fused"),
        attention=work.attention,
        elementwise=work.elementwise,
        schedule=schedule,
        chunks=pipeline.chunks,
        stage_layers=tuple(pipeline.stages),
        blocking_sends=schedule != "interleaved" or None if blocking is None else blocking,
        imbalance=work.imbalance,
        expert_tensor=parallel.expert_tensor,
        expert_overlap=parallel.expert_overlap,
        deduplicated=parallel.dispatcher == "deduplicated",
        optimizer=work.optimizer,
        fused_experts=work.experts == "fused",
        apart=work.projections == "apart",
        joined=_joined_gpus(cluster),
        bucket=replicas.bucket,
        first_bucket=min(replicas.first_bucket, replicas.bucket),
        shard_bucket=replicas.bucket if "bucket" in replicas.model_fields_set else 0,
        overlap=data not in ("zero1", "zero2") if overlap is None else overlap,
        no_sync=data not in SHARDED if no_sync is None else no_sync,
        compression=work.compression.kind,
        top_k=work.compression.keep,
        delayed=replicas.delayed,
        islands=replicas.islands or _sites(cell) if replicas.sync_every else 1,
        sync_every=replicas.sync_every or 1,
        overlap_sync=replicas.overlap_sync,
        shard=replicas.shard or 0,
        reshard=replicas.reshard,
        backward_prefetch=replicas.backward_prefetch,
        forward_prefetch=replicas.overlap_gather,
        limit_all_gathers=replicas.limit_all_gathers,
        extras=extras_of(work, model, grid),
        layer_seconds=read_times(cell, work, model),
        connections=work.connections,
        launch=0.0 if is_graph else host_seconds,
        wait=0.0 if is_graph else value("kernel.wait"),
    )


def _sites(cell: Cell) -> int:
    """The number of sites of the cluster; 2 if it has none."""
    sites = cell.scenario.cluster.sites
    return len(sites.nodes or ()) or sites.count or 2 if sites else 2


def recorded_setting(ranks: int) -> Setting:
    """The setting of a recorded step, whose model, degrees and rates are not known."""
    grid = Grid({axis: ranks if axis == "dp" else 1 for axis in AXES})
    roofline = Roofline({}, 1.0, 1)
    model = LayerList(name="recorded", layers=())
    return Setting(model=model, grid=grid, roofline=roofline, batch=ranks, micro=1, sequence=1)


def _joined_gpus(cluster: Cluster) -> int:
    """The number of GPUs in an NVLink domain; in the smallest kind of domain if machines differ."""
    machines = [host.machine for host in cluster.hosts]
    return min(one.gpu.count * (one.scale_up.hosts if one.scale_up else 1) for one in machines)


def _rooflines(
    work: Training, cluster: Cluster, is_graph: bool
) -> tuple[Roofline, GpuKinds | None]:
    """The roofline of the slowest kind of GPU, and all kinds if there are several.

    All ranks compute in the same data types, so a narrow type counts only if every GPU has it: a
    step in FP8 on H100 and A100 runs in 16 bits on both.
    """
    gpus = len(cluster.topology)
    of_class = [_roofline(work, host.machine.gpu, gpus, is_graph) for host in cluster.hosts]
    shared = set.intersection(*({*roofline.flops} for roofline in of_class))
    missing = {*NARROW} - shared
    kinds: list[Roofline] = []
    kind_of_class = []
    for roofline in of_class:
        flops = {name: rate for name, rate in roofline.flops.items() if name not in missing}
        common = replace(roofline, flops=flops)
        if common not in kinds:
            kinds.append(common)
        kind_of_class.append(kinds.index(common))
    slowest = min(kinds, key=lambda roofline: roofline.rate(work.dtype))
    if len(kinds) == 1:
        return slowest, None
    of_rank = np.array(kind_of_class)[cluster.host_class[cluster.gpu_host]]
    return slowest, GpuKinds(tuple(kinds), tuple(of_rank.tolist()))


def _roofline(work: Training, gpu: Gpu, gpus: int, is_graph: bool) -> Roofline:
    """The roofline of a kind of GPU: its peak rates and the fractions of them that kernels reach.

    Args:
        gpus: number of GPUs of the cluster. A step waits for the slowest of them.
        is_graph: whether kernels are launched by CUDA graphs.
    """
    compute = work.compute
    flops = {str(name): rate for name, rate in gpu.flops.items()}
    if "fp4" in flops:  # GPUs with FP4 also scale by blocks in hardware (MXFP8, NVFP4)
        flops |= {"mxfp8": flops["fp8"], "nvfp4": flops["fp4"]}
    # Clocks of GPUs vary. A step waits for the slowest of `gpus`, which is about `deviations`
    # standard deviations below the mean (Blom's estimate of the largest of n normal values).
    deviations = NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))
    limit = usual_power(gpu) ** value("power.exponent")
    clock = float(limit) / (1 + value("spread") * deviations)
    attention_clock = float(limit) / (
        1 + _constant_or(f"{gpu.arch}.attention.spread", "spread") * deviations
    )
    gemm = compute.gemm_efficiency
    attention = compute.attention_efficiency
    narrow = {name: gemm or clock * _narrow(gpu.arch, work, name) for name in NARROW}
    backward_efficiency = BACKWARD * attention if attention else 0.0
    forward, backward, exponents = _attention(gpu.arch, work.attention)
    usual_gap = value("kernel.graph_gap" if is_graph else "kernel.gap")
    return Roofline(
        flops=flops,
        bandwidth=gpu.memory_bandwidth,
        sms=gpu.sms,
        narrow=narrow,
        gemm=gemm or clock * _constant_or(f"{gpu.arch}.gemm", "gemm.other"),
        attention=(
            attention or attention_clock * forward,
            backward_efficiency or attention_clock * backward,
        ),
        memory=compute.memory_efficiency or value("memory.usable"),
        routed=value("memory.routed"),
        scan=value("scan.rate"),
        kernel=usual_gap if compute.kernel is None else compute.kernel,
        element=ELEMENT[STORED.get(work.dtype, work.dtype)],
        exponents=exponents,
        unhidden=1.0 if gpu.arch in ONE_TILE_A_BLOCK else value("gemm.unhidden"),
    )


def _constant_or(name: str, fallback: str) -> float:
    """The value of the constant `name`, or of the more general constant `fallback` if the table
    lacks it.
    """
    return TABLE.get(name, TABLE[fallback]).value


def _attention(arch: str, kernel: str) -> tuple[float, float, float]:
    """Return three fractions: of the peak that attention reaches forward, of the peak that it
    reaches backward, and of its time that is exponentials.

    `arch` is the generation of the GPU, `kernel` the attention kernel. Kernels up to
    FlashAttention-2 use Ampere's matrix instructions on every GPU.
    """
    name = f"{arch}.attention"
    mma = f"{arch}.mma"
    if mma in TABLE and (kernel in ("flash2", "unpadded") or name not in TABLE):
        back = value("unpadded.backward" if kernel == "unpadded" else "flash2.backward")
        return value(mma) * value("flash2"), value(mma) * back, value("flash2.exponents")
    return (
        _constant_or(name, "attention.other"),
        _constant_or(f"{name}.backward", "attention.other.backward"),
        _constant_or(f"{name}.exponents", "flash2.exponents"),
    )


def _narrow(arch: str, work: Training, name: str) -> float:
    """Return the fraction of its peak rate that a matrix product of the narrow data type `name`
    (FP8 or FP4) reaches on GPUs of the generation `arch`.
    """
    if name == "nvfp4":
        return _constant_or(f"{arch}.gemm.fp4", "gemm.other")
    if work.scaling == "row" and f"{arch}.gemm.fp8.row" in TABLE:
        return value(f"{arch}.gemm.fp8.row")
    return _constant_or(f"{arch}.gemm.fp8", "gemm.other")


def usual_power(gpu: Gpu) -> float:
    """The power limit of a GPU divided by that of its generation's servers, both without idle
    power.
    """
    usual = f"power.{gpu.arch}"
    if gpu.power is None or usual not in TABLE:
        return 1.0
    idle = value(f"{usual}.idle")
    return max(gpu.power - idle, 1.0) / (value(usual) - idle)


def model_of(work: Training) -> Model:
    """Return the model that a scenario names or describes."""
    model = work.model
    if isinstance(model, str):
        return model_named(model)
    if isinstance(model, TransformerConfig):
        figures = model.model_dump() | {
            "kv_heads": model.kv_heads or model.heads,
            "head_size": model.head_size or 0,
            "norm_biases": model.biases,
            "expert_ffn": model.expert_ffn or model.ffn,
        }
        return Transformer(name="custom", **figures)
    layers = [one for number, layer in enumerate(model) for one in _repeated(number, layer)]
    return LayerList(name="custom", layers=tuple(layers))


def _repeated(number: int, layer: LayerConfig) -> list[Layer]:
    """The layers of one entry of a user's list of layers, which occurs `repeat` times."""
    name = layer.name or f"layer {number}"
    flops = layer.flops or 0.0
    back = layer.backward_flops
    plain = Plain(
        flops,
        2 * flops if back is None else back,
        layer.forward,
        layer.backward,
        layer.activation,
        layer.output,
    )
    tensors = (Tensor("weights", layer.parameters),) if layer.parameters else ()
    names = [name] if layer.repeat == 1 else [f"{name} {k}" for k in range(layer.repeat)]
    return [Layer(one, "plain", tensors, plain=plain) for one in names]


@dataclass(frozen=True)
class Replay:
    """A step from a trace, and notes on what was chosen and left out.

    `alone` is set if the kernels of the trace ran without collectives beside them. `lowered` is set
    if the trace has messages instead of collectives: it is their schedule.
    """

    tape: Tape
    notes: tuple[str, ...] = ()
    alone: bool = False
    lowered: Lowered | None = None


@dataclass(frozen=True)
class ResolvedStep:
    """A training step on its cluster, ready to simulate; rank i runs on GPU i.

    `lowered` is the schedule of a step that consists of messages instead of collectives.
    """

    cell: Cell
    cluster: Cluster
    setting: Setting
    recorded: Replay | None = None
    lowered: Lowered | None = None

    @property
    def work(self) -> Training | Recorded:
        """The `workload` section of the scenario."""
        work = self.cell.scenario.workload
        assert isinstance(work, Training | Recorded)
        return work

    def memory_needed(self, size: int) -> int:
        """An upper estimate in bytes of the memory that simulating the step takes.

        `size` has no meaning for a step; other kinds of tasks have the same method.
        """
        gpus = len(self.topology)
        if self.lowered is not None:
            return needed(gpus, 0, len(self.lowered.schedule) * BYTES_A_ROW)
        is_estimated = self.large and not self.why_in_full
        return needed(
            gpus,
            0,
            len(self.tape().entries)
            * (BYTES_A_TASK_OF_STAGES if is_estimated else gpus * BYTES_A_TASK),
        )

    @cached_property
    def large(self) -> bool:
        """Whether entries x GPUs exceed `MOST_TASKS`; then one rank of each stage is simulated if
        possible.
        """
        tasks = 0 if self.lowered is not None else len(self.tape().entries)
        return tasks * self.setting.grid.size > MOST_TASKS

    @cached_property
    def why_in_full(self) -> str:
        """The reason why all ranks must be simulated instead of one of each stage, as a clause; ""
        if one is enough.
        """
        scenario = self.cell.scenario
        if scenario.exact or self.recorded or scenario.timed or scenario.disturbances:
            return "the step is to be exact, is recorded, or is disturbed over time"
        if slowdowns_of(self.topology) or len(different(self.cluster.host_class)) > 1:
            return "some GPUs or hosts are slower"
        return first_odd_part(Placement(self.topology, self.gpus))

    def tape(self) -> Tape:
        """The tape of the step: kernels and collectives with their dependencies."""
        return training_step(self.setting) if self.recorded is None else self.recorded.tape

    @property
    def topology(self) -> Topology:
        """The topology of the cluster."""
        return self.cluster.topology

    @property
    def gpus(self) -> NDArray[np.int32]:
        """By rank, its GPU."""
        return np.arange(len(self.topology), dtype=np.int32)

    @property
    def gpus_per_node(self) -> int:
        """The number of GPUs of the first host."""
        return int(np.count_nonzero(self.cluster.gpu_host == 0))

    @cached_property
    def costs(self) -> Costs:
        """The costs of the step's collectives (their coarse forms) with the scenario's settings of
        NCCL.
        """
        scenario, nccl = self.cell.scenario, self.cell.scenario.nccl
        wishes = Wishes(parse_version(nccl.version), nccl.env)
        return Costs(
            self.cluster,
            wishes,
            scenario.launch_costs().style,
            registered=nccl.registration != "none",
            holds_sms=self.recorded is None or self.recorded.alone,
            budget=budget_for(is_exact=scenario.exact, is_step=True),
        )


STEP_WARNINGS: dict[str, tuple[str, ...]] = {}
"""Warnings about each step that was resolved, by the id of its cell."""


def warnings_of_step(cell: Cell) -> tuple[str, ...]:
    """The warnings about a training step that has been resolved, a sentence each."""
    return STEP_WARNINGS.get(cell.id, ())


def resolve_step(cell: Cell) -> ResolvedStep:
    """The training step of a cell, resolved on the cluster that it builds."""
    work = cell.scenario.workload
    cluster = _cluster(cell, isinstance(work, Recorded))
    assert isinstance(work, Training | Recorded)
    gpu_count = len(cluster.topology)
    slowdowns = {one.rank: one.slowdown for one in work.stragglers if one.rank < gpu_count}
    cluster = replace(cluster, topology=with_slow_gpus(cluster.topology, slowdowns))
    if isinstance(work, Recorded):
        resolved = _recorded(cell, work, cluster)
    else:
        assert isinstance(work, Training)
        resolved = ResolvedStep(cell, cluster, setting_of(cell, cluster))
        check_memory(cell, work, resolved.setting, cluster)
        STEP_WARNINGS[cell.id] = tuple(step_warnings(work, resolved.setting, cluster))
    try:
        resolved.costs.wishes.settings()
    except InputError as error:
        raise cell.source.error(("nccl",), error.message, hint=error.hint) from None
    return resolved


def _recorded(cell: Cell, work: Recorded, cluster: Cluster) -> ResolvedStep:
    """The resolved step of a trace."""
    place = ("workload", "trace")
    gpus = len(cluster.topology)
    try:
        replay = _replay(work, gpus)
    except StepNotRecorded as error:
        key = "step" if work.step is not None else "rendezvous"
        raise cell.source.error(("workload", key), error.message) from None
    except InputError as error:
        raise cell.source.error(place, str(error), hint=error.hint) from None
    for number, slow in enumerate(work.stragglers):
        if slow.rank >= gpus:
            message = f"expected a rank in 0..{gpus - 1}, got {slow.rank}"
            raise cell.source.error(("workload", "stragglers", number, "rank"), message)
    ranks = gpus if replay.lowered is None else replay.lowered.schedule.ranks
    return ResolvedStep(cell, cluster, recorded_setting(ranks), replay, replay.lowered)


def _replay(work: Recorded, gpus: int) -> Replay:
    """The step of a trace: of GOAL messages, of an execution trace, or of a profile of PyTorch."""
    path = Path(work.trace)
    goal = path.suffix in GOAL
    alone = not goal and is_execution_trace(path)
    if work.step is not None and (goal or alone):
        raise StepNotRecorded("only profiles of PyTorch's have steps")
    if work.rendezvous is not None and not goal:
        raise StepNotRecorded("only GOAL's messages have it")
    if goal:
        tape, lowered = replayed(read_goal(path), gpus, work.rendezvous)
        return Replay(tape, lowered=lowered)
    if alone:
        return Replay(*tape_of_trace(path, gpus), alone=ran_alone(path))
    profile = read_profile(path)
    if profile.world != gpus:
        raise InputError(f"the trace is of {profile.world} ranks, but the cluster has {gpus} GPUs")
    chosen, notes = step_of(profile, work.step)
    return Replay(tape_of(chosen), notes)


def _cluster(cell: Cell, recorded: bool) -> Cluster:
    """The cluster of a cell.

    For a recorded step, whose kernels have their times, a topology without machines is enough; all
    GPUs are then on one host.
    """
    config = cell.scenario.cluster
    if config.graph is not None and recorded:
        topology = build_at(config, cell.source)
        none = np.zeros(0, np.int32)
        host = np.zeros(len(topology), np.int32)
        return Cluster(topology, (), host[:1], none, host, Ports(none, none, np.zeros(0), none))
    if config.graph is not None:
        message = "a training step needs machines, which say how fast GPUs compute, not a graph"
        raise cell.source.error(("cluster", "graph"), message, key=True)
    try:
        return build_cluster(config)
    except TopologyError:
        build_at(config, cell.source)  # raises the same error with its place in the file
        raise
