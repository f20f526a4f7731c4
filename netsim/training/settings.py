"""From what a scenario says of a training step to its Setting: choices made, misfits told."""

from netsim.scenario.cells import Cell
from netsim.scenario.training import LayerConfig, Training, TransformerConfig
from netsim.topology.cluster import Cluster
from netsim.training.degrees import degrees_of
from netsim.training.extras import extras_of
from netsim.training.fits import check_fits
from netsim.training.times import read_times
from netsim.workloads.grid import AXES, Grid
from netsim.workloads.model import Layer, LayerList, Model, Plain, Tensor, Transformer
from netsim.workloads.presets import model_named
from netsim.workloads.roofline import (
    ATTENTION_FRACTION,
    ATTENTION_OTHER,
    GEMM_FRACTION,
    GEMM_OTHER,
    KERNEL,
    MEMORY_FRACTION,
    ONE_TILE_A_BLOCK,
    Roofline,
)
from netsim.workloads.setting import ELEMENT, Setting

SHARDED = ("zero3", "fsdp", "fsdp2")
MEGATRON = ("distributed-optimizer",)


def setting_of(cell: Cell, cluster: Cluster) -> Setting:
    """The Setting of a training cell on its cluster."""
    work = cell.scenario.workload
    assert isinstance(work, Training)
    model = model_of(work)
    grid = Grid(
        degrees_of(cell, work, len(cluster.topology)), tuple(work.parallelism.order.split("-"))
    )
    setting = _setting(cell, work, model, grid, cluster)
    check_fits(cell, work, setting)
    return setting


def _setting(cell: Cell, work: Training, model: Model, grid: Grid, cluster: Cluster) -> Setting:
    parallel, pipeline, replicas = work.parallelism, work.pipeline, work.replicas
    data = parallel.data or "ddp"
    schedule = pipeline.schedule or ("interleaved" if pipeline.chunks > 1 else "1f1b")
    sequential = parallel.sequence_parallel
    if sequential is None:  # Megatron refuses experts with tp but without it
        sequential = grid.degrees["tp"] > 1 and isinstance(model, Transformer) and model.experts > 0
    blocking = pipeline.blocking_sends
    overlap = replicas.overlap
    no_sync = replicas.no_sync
    sequence = work.sequence or (model.sequence if isinstance(model, Transformer) else 1)
    return Setting(
        model=model,
        grid=grid,
        roofline=_roofline(work, cluster),
        batch=work.batch,
        micro=work.micro_batch,
        sequence=sequence,
        dtype=work.dtype,
        gradient_dtype=replicas.gradient_dtype or _gradient_dtype(work, data),
        data=data,
        sequence_parallel=sequential and grid.degrees["tp"] > 1,
        context=parallel.context,
        recompute=work.recompute,
        attention=work.attention,
        elementwise=work.elementwise,
        schedule=schedule,
        chunks=pipeline.chunks,
        stage_layers=tuple(pipeline.stages),
        blocking_sends=schedule != "interleaved" if blocking is None else blocking,
        imbalance=work.imbalance,
        expert_tensor=parallel.expert_tensor,
        optimizer=work.optimizer,
        bucket=replicas.bucket,
        first_bucket=min(replicas.first_bucket, replicas.bucket),
        overlap=data not in ("zero1", "zero2") if overlap is None else overlap,
        no_sync=data not in SHARDED if no_sync is None else no_sync,
        compression=work.compression.kind,
        top_k=work.compression.keep,
        delayed=replicas.delayed,
        shard=replicas.shard or 0,
        reshard=replicas.reshard,
        backward_prefetch=replicas.backward_prefetch,
        forward_prefetch=replicas.overlap_gather,
        limit_all_gathers=replicas.limit_all_gathers,
        extras=extras_of(work, model, grid),
        layer_seconds=read_times(cell, work, model),
    )


def recorded_setting(ranks: int, cluster: Cluster) -> Setting:
    """The setting of a step of which only the kernels are known: no model, no degrees."""
    gpu = cluster.machine_of(0).gpu
    flops = {str(name): rate for name, rate in gpu.flops.items()}
    grid = Grid({axis: ranks if axis == "dp" else 1 for axis in AXES})
    roofline = Roofline(flops, gpu.memory_bandwidth, gpu.sms)
    model = LayerList(name="recorded", layers=())
    return Setting(model=model, grid=grid, roofline=roofline, batch=ranks, micro=1, sequence=1)


def _gradient_dtype(work: Training, data: str) -> str:
    """Megatron reduces in fp32; everyone else in the type of the weights."""
    if data in MEGATRON or work.dtype == "tf32":
        return "float"
    return "bfloat16" if work.dtype == "fp8" else work.dtype


def _roofline(work: Training, cluster: Cluster) -> Roofline:
    gpu, own = cluster.machine_of(0).gpu, work.compute
    return Roofline(
        flops={str(name): rate for name, rate in gpu.flops.items()},
        bandwidth=gpu.memory_bandwidth,
        sms=gpu.sms,
        gemm=own.gemm_efficiency or GEMM_FRACTION.get(gpu.arch, GEMM_OTHER),
        attention=own.attention_efficiency or ATTENTION_FRACTION.get(gpu.arch, ATTENTION_OTHER),
        memory=own.memory_efficiency or MEMORY_FRACTION,
        kernel=KERNEL if own.kernel is None else own.kernel,
        element=ELEMENT[work.dtype],
        stores_beside=gpu.arch not in ONE_TILE_A_BLOCK,
    )


def model_of(work: Training) -> Model:
    """The model that a scenario names or describes."""
    given = work.model
    if isinstance(given, str):
        return model_named(given)
    if isinstance(given, TransformerConfig):
        return _transformer(given)
    layers = [one for number, layer in enumerate(given) for one in _repeated(number, layer)]
    return LayerList(name="custom", layers=tuple(layers))


def _transformer(given: TransformerConfig) -> Transformer:
    return Transformer(
        name="custom",
        layers=given.layers,
        hidden=given.hidden,
        heads=given.heads,
        kv_heads=given.kv_heads or given.heads,
        ffn=given.ffn,
        vocabulary=given.vocabulary,
        sequence=given.sequence,
        head_size=given.head_size or 0,
        gated=given.gated,
        biases=given.biases,
        norm_biases=given.biases,
        tied=given.tied,
        positions=given.positions,
        causal=given.causal,
        experts=given.experts,
        top_k=given.top_k,
        expert_ffn=given.expert_ffn or given.ffn,
        shared_ffn=given.shared_ffn,
        dense_layers=given.dense_layers,
    )


def _repeated(number: int, given: LayerConfig) -> list[Layer]:
    """A layer of the list as often as it says, each with a name of its own."""
    name = given.name or f"layer {number}"
    flops = given.flops or 0.0
    plain = Plain(
        flops=flops,
        backward_flops=2 * (given.flops or 0.0)
        if given.backward_flops is None
        else given.backward_flops,
        forward=given.forward,
        backward=given.backward,
        activation=given.activation,
        output=given.output,
    )
    tensors = (Tensor("weights", given.parameters),) if given.parameters else ()
    names = [name] if given.repeat == 1 else [f"{name} {k}" for k in range(given.repeat)]
    return [Layer(one, "plain", tensors, plain=plain) for one in names]
