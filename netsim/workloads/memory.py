"""The memory of one GPU in a step: weights, gradients, optimizer states, activations, buffers.

Model states follow Rajbhandari et al. 2020 (ZeRO); activations follow Korthikanti et al. 2022, for
attention kernels that do not store scores.
"""

from netsim.base.values import dataclass
from netsim.workloads.data_parallel import buckets_of
from netsim.workloads.kernels import FP32, STATES, state_bytes
from netsim.workloads.model import (
    ADAPTED,
    ATTENTION,
    MAMBA,
    Layer,
    Transformer,
    adapted_widths,
)
from netsim.workloads.setting import NARROW, Setting
from netsim.workloads.step import SCHEDULES, in_flight

SHARDED = ("zero3", "fsdp", "fsdp2")
DIVIDED = ("zero1", "zero2", "distributed-optimizer")
FULL = {"full", "non-reentrant"}  # checkpoints of whole layers
# Bytes of CUDA's context with NCCL's code and channels, as nvidia-smi shows them on A100 and H100.
CONTEXT = 600e6
NCCL_CHANNEL = 10e6  # a communicator's channel, both ways: 4 MiB Simple, LL128, LL (estimate)


@dataclass(frozen=True)
class States:
    """Bytes of model states: of one GPU, or of each parameter."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def states(self) -> float:
        """The bytes of weights, gradients and optimizer states together."""
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True)
class Memory(States):
    """The peak memory in bytes of one GPU of a pipeline stage, by what it is used for."""

    activations: float
    buffers: float
    context: float = CONTEXT

    @property
    def total(self) -> float:
        """The sum of all parts, in bytes."""
        return self.states + self.activations + self.buffers + self.context

    @property
    def largest(self) -> str:
        """The name of the part that takes most memory."""
        names = ("weights", "gradients", "optimizer", "activations", "buffers")
        return max(names, key=lambda name: float(getattr(self, name)))


def states_of(data: str, ranks: int, element: int, gradient: int, optimizer: str) -> States:
    """The bytes of states of each parameter on one GPU. Weights in fp32 need no master copy.

    Args:
        data: the kind of data parallelism.
        ranks: the number of ranks that share the states.
        element: bytes of a weight.
        gradient: bytes of a gradient.
        optimizer: name of the optimizer.
    """
    state_size = state_bytes(optimizer)
    if element == FP32 and STATES[optimizer]:
        state_size -= FP32
    if data in SHARDED:
        return States(element / ranks, gradient / ranks, state_size / ranks)
    if data == "zero2":
        return States(element, gradient / ranks, state_size / ranks)
    if data in DIVIDED:
        return States(element, gradient, state_size / ranks)
    return States(element, gradient, state_size)


def memory_of(setting: Setting, stage: int) -> Memory:
    """The memory of one GPU of a pipeline stage."""
    s = setting
    chunks = setting.stages()[stage]
    layers = [layer for chunk in chunks for layer in chunk]
    replicas = {False: 1, True: 1}
    for expert, axes in s.replica_axes.items():
        for axis in axes:
            replicas[expert] *= s.degree(axis)
    weights = gradients = optimizer = 0.0
    for layer in layers:
        for expert, copies in replicas.items():
            ranks = min(s.shard or copies, copies) // s.islands
            bytes_per_parameter = states_of(
                s.data, ranks, s.element, s.gradient_element, s.optimizer
            )
            held = sum(count for _, count, is_expert in s.held(layer) if is_expert == expert)
            trained = sum(count for _, count, is_expert in s.trained(layer) if is_expert == expert)
            weights += held * bytes_per_parameter.weights
            gradients += trained * bytes_per_parameter.gradients
            optimizer += trained * bytes_per_parameter.optimizer
    return Memory(weights, gradients, optimizer, _activations(s, stage), _buffers(s, layers))


def _activations(s: Setting, stage: int) -> float:
    """The peak bytes of activations: of all micro-batches in flight, and of the layer that is being
    recomputed.
    """
    order = SCHEDULES[s.schedule](stage, s.degree("pp"), s.micro_batches, s.chunks)
    passes = in_flight(order)
    layers = [layer for chunk in s.stages()[stage] for layer in chunk]
    layer_bytes = sum(activation_bytes(s, layer) for layer in layers) / s.chunks
    again = 0.0
    if FULL & {*s.recompute}:
        again = max(full_activation_bytes(s, layer) for layer in layers)
    return passes * layer_bytes + again


def activation_bytes(s: Setting, layer: Layer) -> float:
    """The bytes that one layer stores for one micro-batch on one GPU between its forward and
    backward pass.
    """
    if FULL & {*s.recompute} and layer.kind == "block" and isinstance(s.model, Transformer):
        return _inputs(s, s.model)
    return full_activation_bytes(s, layer)


def full_activation_bytes(s: Setting, layer: Layer) -> float:
    """Return the bytes that one layer stores for one micro-batch on one GPU between its forward and
    backward pass, if the complete layer is not recomputed. Single modules of it may be recomputed.

    A block stores the inputs of its products (cast if these are narrow), of its norms, of its
    attention, and of the function between the products of its MLP. Sequence parallelism divides
    what tensor parallelism does not.
    """
    m = s.model
    again = {*s.recompute}
    if not isinstance(m, Transformer) or layer.kind == "plain":
        return layer.plain.activation * s.micro
    if layer.kind == "embedding":
        return 0.0
    tp = s.degree("tp")
    tokens = s.tokens
    if layer.kind == "head":  # logits and their gradient's source in fp32, the norm's input
        return tokens * (FP32 * m.vocabulary / tp) + 2 * _inputs(s, m)
    attention = (2 * m.heads * m.head + 2 * m.kv_width) / tp
    if m.latent and "mla_up_proj" in again:
        latent = m.latent
        attention = latent.q_rank + latent.kv_rank + latent.rope + m.heads * latent.value / tp
    # Inputs of products are stored for gradients of weights, so not for frozen ones.
    cast = NARROW[s.dtype] / s.element if s.narrow else 1.0
    cast = 0.0 if m.adapters is not None else cast
    between = 2 if m.gated else 1  # inputs of the function, whose output the second product reads
    if layer.moe:
        used = m.top_k * s.imbalance
        split = tp if s.expert_tensor else 1
        ffn = m.expert_ffn * (between + cast * ("moe_act" not in again)) / split
        shared = m.shared_ffn * (between + cast) / tp * ("shared_experts" not in again)
        mlp = (used * (ffn + cast * m.expert_width / tp) + shared) * ("moe" not in again)
        mlp += 2 * m.expert_latent / tp
    else:
        mlp = m.ffn * (between + cast * ("ops" not in again)) / tp * ("mlp" not in again)
    if layer.mixer == MAMBA:
        assert m.mamba is not None
        mlp = 0.0
        # The input of the scan, its output, that with its gate, and the input of the last product.
        attention = (m.mamba.projected + (2 + cast) * m.mamba.inner) / tp
    elif layer.mixer == ATTENTION:
        mlp = 0.0
    elif layer.mixer:
        attention = 0.0
    # The inputs of both norms and of both column-parallel products.
    inputs = 2 + 2 * cast * (not again & {"layernorm", "ops"})
    inputs /= 2 if layer.mixer else 1
    adapted = _adapter_features(s, m)
    return (
        inputs * _inputs(s, m) + s.element * tokens * (attention + mlp + adapted) + _unfused(s, m)
    )


def _adapter_features(s: Setting, m: Transformer) -> float:
    """The features of a token that adapters of a block store on one GPU: their inputs in 16 bits,
    which sequence parallelism does not divide, and what their first products make. The input of
    the output projection is stored by attention already.
    """
    if m.adapters is None:
        return 0.0
    features = 0.0
    for target in m.adapters.targets:
        inputs, _ = adapted_widths(m, target)
        if target != "linear_proj":
            features += inputs / (s.degree("tp") if ADAPTED[target][1] else 1)
        features += m.adapters.rank
    return features


def _unfused(s: Setting, m: Transformer) -> float:
    """Return the bytes that a block without a fused attention kernel stores in addition, for one
    micro-batch on one GPU; 0 with a fused kernel.

    These are the masks, one byte per element, of the two dropouts outside of attention. Unless
    attention is recomputed, the output of softmax, and the mask and output of the dropout after it,
    are stored for all scores as well.
    """
    if s.attention == "fused":
        return 0.0
    masks = 2 * _inputs(s, m) / s.element
    if {"selective", "core_attn"} & {*s.recompute}:
        return masks
    return masks + (2 * s.element + 1) * s.tokens * s.sequence * m.heads / s.degree("tp")


def _inputs(s: Setting, m: Transformer) -> float:
    """Return the bytes on one GPU of the activations between two blocks, for one micro-batch."""
    divided = s.degree("tp") if s.sequence_parallel else 1
    return s.element * s.tokens * m.hidden / divided


def _buffers(s: Setting, layers: list[Layer]) -> float:
    """Return the bytes of the buffers on one GPU of a stage: NCCL's buffers, and those of data
    parallelism for gathered weights and for gradients. `layers` are the layers of the stage.
    """
    groups = sum(s.degree(axis) > 1 for axis in ("tp", "cp", "ep", "dp", "pp"))
    nccl = groups * 16 * NCCL_CHANNEL
    held = [sum(count for _, count, _ in s.held(layer)) for layer in layers]
    trained = [sum(count for _, count, _ in s.trained(layer)) for layer in layers]
    if s.copies == 1:
        return nccl
    if s.data in SHARDED:  # two units gathered, the gradients of one
        ends = sum(n for n, layer in zip(held, layers, strict=True) if layer.kind != "block")
        block = max(
            (n for n, layer in zip(held, layers, strict=True) if layer.kind == "block"), default=0
        )
        largest = ends if any(layer.kind == "block" for layer in layers) else max(held)
        return nccl + (largest + 2 * block) * s.element + max(trained) * s.gradient_element
    if s.data == "ddp":
        cap = s.bucket
        first = s.first_bucket
        buckets = buckets_of(s, layers, cap, first, s.gradient_element)
        return nccl + max((layer.count for layer in buckets), default=0) * s.gradient_element
    return nccl
