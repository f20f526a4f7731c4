"""The keys of a training step in a scenario file, as models.

They describe the model, how it is divided among GPUs, and the work of a step. Whether degrees of
parallelism fit the cluster is checked in `netsim.training.resolve`.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from netsim.base.errors import InputError
from netsim.scenario.names import CollectiveName, dtype_name
from netsim.workloads.model import MODELS, model_named
from netsim.workloads.setting import AXES
from netsim.yamlio.models import Bytes, Count, FieldError, Index, ListOf, Model, Part, Seconds

Degree = Count
Number = Annotated[float, Field(ge=0, strict=False)]


def _model_name(value: object) -> object:
    """Return the value; refuse the name of a model that is not in the table."""
    if isinstance(value, str):
        try:
            model_named(value)
        except InputError as error:
            raise ValueError(str(error)) from None
    return value


AsNamed = BeforeValidator(dtype_name)
ModelName = Annotated[
    str, BeforeValidator(_model_name), WithJsonSchema({"type": "string", "enum": list(MODELS)})
]


class LayerConfig(Model):
    """One layer of a custom model, for one sample; `repeat` is the number of such layers in
    sequence.
    """

    name: str = ""
    parameters: Index = 0
    flops: Number | None = None
    backward_flops: Number | None = None
    forward: Seconds | None = None
    backward: Seconds | None = None
    activation: Index = 0
    output: Index = 0
    repeat: Count = 1

    @model_validator(mode="after")
    def _timed(self) -> "LayerConfig":
        """Raise an error for a layer without a time or FLOPs, or with only one of its two times."""
        if self.flops is None and self.forward is None:
            raise FieldError("expected how long the layer takes: forward (such as 1.5ms) or flops")
        if (self.forward is None) != (self.backward is None):
            raise FieldError("expected both forward and backward, or neither")
        return self


class TransformerConfig(Model):
    """A transformer by its dimensions; dimensions that are left out follow from the others."""

    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    head_size: Count | None = None
    ffn: Count
    vocabulary: Count
    sequence: Count = 2048
    gated: bool = True
    biases: bool = False
    tied: bool = False
    positions: Index = 0
    causal: bool = True
    experts: Index = 0
    top_k: Index = 0
    expert_ffn: Count | None = None
    shared_ffn: Index = 0
    dense_layers: Index = 0

    @model_validator(mode="after")
    def _fits(self) -> "TransformerConfig":
        """Raise an error for dimensions that do not divide, and for impossible numbers of
        experts and layers."""
        if self.head_size is None and self.hidden % self.heads:
            raise FieldError(f"{self.hidden} is not divisible by {self.heads} heads", "hidden")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise FieldError(f"{self.heads} heads are not divisible by {self.kv_heads}", "kv_heads")
        if self.experts and not 1 <= self.top_k <= self.experts:
            raise FieldError(f"expected 1 to {self.experts} of the experts for a token", "top_k")
        if self.dense_layers > self.layers:
            raise FieldError(f"the model has {self.layers} layers", "dense_layers")
        return self


DataKind = Literal[
    "allreduce",
    "ddp",
    "parameter-server",
    "zero1",
    "zero2",
    "zero3",
    "distributed-optimizer",
    "fsdp",
    "fsdp2",
]


class Parallelism(Model):
    """Degrees of parallelism, the order of ranks, and the kind of data parallelism.

    `order` names the axes of parallelism, the one with consecutive ranks first. `ep` divides the
    data-parallel ranks, as in Megatron, or is an axis of its own: whichever makes the product of
    the degrees equal to the number of GPUs.
    """

    dp: Degree | None = None
    tp: Degree = 1
    pp: Degree = 1
    cp: Degree = 1
    ep: Degree = 1
    order: str = "-".join(AXES)
    data: DataKind | None = None
    sequence_parallel: bool | None = None
    tensor_overlap: Literal["none", "bulk", "pipelined"] = "bulk"
    context: Literal["p2p", "all_gather", "a2a"] = "p2p"
    expert_tensor: bool = True
    expert_overlap: bool = False
    dispatcher: Literal["alltoall", "deduplicated"] = "alltoall"

    @model_validator(mode="after")
    def _axes(self) -> "Parallelism":
        """Raise an error unless `order` names every axis once."""
        axes = self.order.split("-")
        if sorted(axes) != sorted(AXES):
            names = ", ".join(AXES)
            message = f"expected the axes {names} joined by '-', each once, got {self.order!r}"
            raise FieldError(message, "order")
        return self


class Pipeline(Model):
    """How the stages of a pipeline work through micro-batches.

    `chunks` is the number of chunks of layers per stage of an interleaved schedule. `stages` are
    the layers of each stage (blocks of a transformer); with chunks, first those of the first chunk
    of every stage, then those of the second, and so on.
    """

    schedule: Literal["gpipe", "1f1b", "interleaved", "zb-h1", "naive"] | None = None
    chunks: Count = 1
    stages: ListOf[Index] = ()
    blocking_sends: bool | None = None

    @model_validator(mode="after")
    def _chunks(self) -> "Pipeline":
        """Raise an error if the number of chunks does not fit the schedule."""
        if self.chunks > 1 and self.schedule not in (None, "interleaved"):
            message = f"{self.schedule} has one chunk a stage; interleaved has more"
            raise FieldError(message, "chunks")
        if self.schedule == "interleaved" and self.chunks == 1:
            raise FieldError("interleaved needs at least 2 chunks a stage", "chunks")
        return self


class Replicas(Model):
    """How data parallelism exchanges gradients and weights. Keys have the names and the meaning of
    the frameworks.

    DDP:

    - `bucket`, `first_bucket`: bytes of a bucket of gradients (`bucket_cap_mb`), and of the first
      one; 0: a bucket for each tensor.
    - `overlap`: whether gradients are exchanged during the backward pass.
    - `no_sync`: whether gradients are exchanged only after the last micro-batch.

    FSDP:

    - `reshard`: whether gathered weights are freed after the forward pass.
    - `backward_prefetch`: whether the weights of the next unit are gathered before (`pre`) or after
      (`post`) the gradients of a unit are computed.
    - `limit_all_gathers`: whether the number of gathers in flight is limited.
    - `shard`: number of ranks that share one copy of the weights (HYBRID_SHARD).

    Others:

    - `overlap_gather`: whether a distributed optimizer gathers weights during the forward pass.
    - `delayed`: whether the gradients of a step are exchanged and applied during the next one.
    - `gradient_dtype`: data type in which gradients are exchanged.
    - `gather`: `fp8` gathers weights after their cast to FP8.
    - `sync_every`: number of steps after which `islands` exchange weights; in between, gradients
      are exchanged only inside each island. With `overlap_sync` the weights are exchanged during
      the next steps.
    """

    bucket: Bytes | Literal[0] = 25 * 2**20  # 0: a bucket for each tensor
    first_bucket: Bytes | Literal[0] = 2**20
    overlap: bool | None = None
    no_sync: bool | None = None
    reshard: bool = True
    backward_prefetch: Literal["pre", "post", "none"] = "pre"
    limit_all_gathers: bool = True
    overlap_gather: bool = False
    shard: Count | None = None
    sync_every: Count | None = None
    islands: Annotated[int, Field(ge=2)] | None = None
    overlap_sync: bool = False
    delayed: bool = False
    gradient_dtype: Annotated[Literal["float", "half", "bfloat16"] | None, AsNamed] = None
    gather: Literal["weights", "fp8"] = "weights"

    @model_validator(mode="after")
    def _islands(self) -> "Replicas":
        """Raise an error for keys of islands without `sync_every`, and for keys that contradict
        it."""
        if self.sync_every is None and (self.islands is not None or self.overlap_sync):
            name = "islands" if self.islands is not None else "overlap_sync"
            raise FieldError("has no meaning without sync_every", name)
        if self.sync_every is not None and (self.shard or self.delayed):
            name = "shard" if self.shard else "delayed"
            raise FieldError("goes with no sync_every, whose islands do that", name)
        return self


class CompressionConfig(Model):
    """Gradients that are exchanged in fewer bytes: in a lower precision, or only the fraction
    `keep` of them with the largest values.
    """

    kind: Literal["none", "fp16", "bf16", "fp8", "top-k"] = "none"
    keep: Part = 0.01


class ExtraConfig(Model):
    """A small additional collective of a step: a preset by name, or a collective of a group of
    ranks at a certain moment.
    """

    preset: (
        Literal[
            "parameter-broadcast",
            "sync-batch-norm",
            "loss-reduce",
            "gradient-norm",
            "input-scatter",
            "evaluation-gather",
        ]
        | None
    ) = None
    collective: CollectiveName | None = None
    group: Literal["all", "tp", "cp", "ep", "dp", "pp", "model"] | None = None
    bytes: Bytes | None = None
    when: Literal["init", "forward", "backward", "step", "eval"] | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> "ExtraConfig":
        """Raise an error for a small collective that is neither a preset nor complete."""
        if self.preset is None:
            for name in ("collective", "group", "bytes", "when"):
                if getattr(self, name) is None:
                    raise FieldError(f"expected {name}, or a preset")
        return self


class ComputeConfig(Model):
    """The fractions of the machine's peak rates that kernels reach, or measured times of layers.

    `times` is a CSV file with the columns layer, forward_us, backward_us for one micro-batch, or a
    trace of PyTorch's profiler.
    """

    gemm_efficiency: Part | None = None
    attention_efficiency: Part | None = None
    memory_efficiency: Part | None = None
    kernel: Seconds | None = None
    times: str | None = None


class LoraConfig(Model):
    """Adapters of low rank, which are trained while all other weights stay as they are.

    The usual `rank` and `targets` are those of Megatron-Bridge (src/megatron/bridge/peft/lora.py):
    adapters of rank 32 of all linear layers of a block, by Megatron's names for them.
    """

    rank: Count = 32
    targets: ListOf[Literal["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]] = (
        "linear_qkv",
        "linear_proj",
        "linear_fc1",
        "linear_fc2",
    )

    @model_validator(mode="after")
    def _named_once(self) -> "LoraConfig":
        """Raise an error for no targets, and for one that is named twice."""
        if not self.targets:
            raise FieldError("expected at least one linear layer, got an empty list", "targets")
        if len({*self.targets}) != len(self.targets):
            raise FieldError("a linear layer is named twice", "targets")
        return self


class Straggler(Model):
    """A GPU whose computations take `slowdown` times as long as usual."""

    rank: Index
    slowdown: Annotated[float, Field(ge=1, strict=False)]


Recompute = Literal["none", "selective", "full", "non-reentrant", "ops"]
Module = Literal["core_attn", "mla_up_proj", "layernorm", "moe_act", "mlp", "moe", "shared_experts"]


class _Step(Model):
    """What training steps and recorded steps have in common; `title_start` begins titles of
    plots.
    """

    title_start: ClassVar[str] = "a training step of"

    def size_list(self) -> list[int]:
        """Return the sizes of a step: 0, since a step has no message size."""
        return [0]


class Training(_Step):
    """A training step: a model, its batch, and how both are divided among the GPUs."""

    model: ModelName | TransformerConfig | ListOf[LayerConfig]
    batch: Count
    micro_batch: Count = 1
    sequence: Count | None = None
    dtype: Annotated[
        Literal["bfloat16", "half", "float", "tf32", "fp8", "mxfp8", "nvfp4"], AsNamed
    ] = "bfloat16"
    scaling: Literal["delayed", "tensor", "row", "block"] | None = None
    parallelism: Parallelism = Field(default_factory=Parallelism)
    pipeline: Pipeline = Field(default_factory=Pipeline)
    replicas: Replicas = Field(default_factory=Replicas)
    compression: CompressionConfig = Field(default_factory=CompressionConfig)
    recompute: Recompute | ListOf[Module] = "none"
    attention: Literal["fused", "flash2", "unpadded", "unfused"] = "fused"
    elementwise: Literal["fused", "eager"] = "fused"
    projections: Literal["joined", "apart"] = "joined"
    experts: Literal["separate", "fused"] = "separate"
    loss: Literal["fused", "eager", "kernel"] | None = None
    lora: LoraConfig | None = None
    imbalance: Annotated[float, Field(ge=1, strict=False)] = 1.0
    optimizer: Literal["adam", "adam-eager", "sgd", "sgd-momentum"] = "adam"
    extras: ListOf[ExtraConfig] = ()
    compute: ComputeConfig = Field(default_factory=ComputeConfig)
    connections: Count = 8
    stragglers: ListOf[Straggler] = ()
    allow_oom: bool = False

    @model_validator(mode="after")
    def _check(self) -> "Training":
        """Raise an error for a model without layers."""
        if isinstance(self.model, tuple) and not self.model:
            raise FieldError("expected at least one layer, got an empty list", "model")
        return self

    @property
    def label(self) -> str:
        """The name of the model in results."""
        return self.model if isinstance(self.model, str) else "custom"


class Recorded(_Step):
    """A recorded step: a trace of PyTorch's profiler, a Chakra trace, or an application in GOAL.

    A profiler's trace is of one rank, and all ranks repeat it. `step` is the number of the step in
    the trace (default: the step of median length). Messages of GOAL with more than `rendezvous`
    bytes wait for their receive.
    """

    title_start: ClassVar[str] = "what is recorded in"
    trace: str
    step: Index | None = None
    rendezvous: Bytes | None = None
    stragglers: ListOf[Straggler] = ()

    @property
    def label(self) -> str:
        """The name of the step in results."""
        return self.trace
