"""The kernels of layers in one pass, with the collectives that parallelism adds."""

from collections.abc import Sequence
from dataclasses import field, replace
from math import ceil, inf
from typing import Any

from netsim.base.memo import Memo
from netsim.base.values import dataclass
from netsim.workloads import kernels
from netsim.workloads.adapters import adapter_backward, adapter_forward
from netsim.workloads.kernels import (
    FP32,
    RESIDUAL,
    LinearLayer,
    Shapes,
    cast_seconds,
    forward,
    input_gradients,
)
from netsim.workloads.mamba import mixed_seconds
from netsim.workloads.model import ATTENTION, EXPERTS, MLP, Layer, Transformer
from netsim.workloads.parts import PassPart, exchange, kernel, merged
from netsim.workloads.setting import Setting

# Tensor parallelism as in Megatron: what column- and row-parallel products exchange, and when.
# Without sequence parallelism, the output of a row-parallel product is all-reduced forward, and the
# input gradient of a column-parallel product backward. With sequence parallelism, the same bytes
# are gathered before the column-parallel product and scattered after the row-parallel one, and
# gathered once more backward. `tensor_overlap` is one of
#   none       kernels wait for each exchange
#   bulk       exchanges of the backward pass run beside a product
#   pipelined  also, exchanges are divided into a part per rank: products wait for the first part
#              and make the last (user buffers of Transformer Engine, async TP of PyTorch)

TENSOR = "tp"


def forward_half(
    shapes: Shapes, before: PassPart, inside: Sequence[PassPart], exchanged: str
) -> list[PassPart]:
    """The forward half of a block: `before` on tokens that tensor parallelism does not divide, then
    `inside`, from a column-parallel to a row-parallel product, with the collectives around it.

    `exchanged` names the half in the names of collectives.
    """
    if not shapes.setting.sequence_parallel:
        nbytes = shapes.message
        return [before, *inside, exchange(f"{exchanged} output", "all_reduce", TENSOR, nbytes)]
    return [
        before,
        *_with_scattered_output(
            shapes,
            f"{exchanged} output",
            _with_gathered_input(shapes, f"{exchanged} input", inside),
        ),
    ]


def _with_gathered_input(shapes: Shapes, name: str, inside: Sequence[PassPart]) -> list[PassPart]:
    """The kernels of `inside` with the all-gather of the input of the first one.

    Narrow inputs are gathered after the cast. All ranks cast by the same scale; if that is computed
    anew in each step, the largest element of all ranks is found first.
    """
    nbytes = shapes.cast_message
    dtype = shapes.setting.cast
    by_tensor = shapes.setting.narrow and shapes.setting.scaling == "tensor"
    largest = [exchange(f"{name} largest", "all_reduce", TENSOR, FP32, dtype="float")] * by_tensor
    if shapes.setting.tensor_overlap != "pipelined":
        gather = exchange(name, "all_gather", TENSOR, nbytes, dtype=dtype)
        return [*largest, gather, *_rearranged(shapes, name, nbytes), *inside]
    first = nbytes // shapes.tp
    rest = f"{name} rest"
    return [
        *largest,
        exchange(name, "all_gather", TENSOR, first, dtype=dtype),
        exchange(rest, "all_gather", TENSOR, nbytes - first, blocks=False, dtype=dtype),
        inside[0],
        kernel("", 0.0, rest),
        *inside[1:],
    ]


def _input_cast(shapes: Shapes, *, fused: bool = True) -> float:
    """The seconds of casting the input of a product: the rank's own tokens, or all tokens if these
    are gathered first.

    All are gathered first if each row has a scale of its own.
    """
    s = shapes.setting
    hidden = shapes.model.hidden
    if s.sequence_parallel and s.cast == s.stored:
        return cast_seconds(s, shapes.tokens * hidden)
    return cast_seconds(s, shapes.local * hidden, fused=fused)


def _transpose_seconds(shapes: Shapes) -> float:
    """The seconds of transposing narrow inputs that were gathered, for gradients of weights.

    Before Blackwell, products in FP8 read rows only, so the input and the gradient of the output
    are transposed once each.
    """
    s = shapes.setting
    if s.adapters is not None:
        return 0.0  # frozen weights have no gradients
    turned = s.sequence_parallel and s.cast != s.stored and "fp4" not in s.roofline.flops
    return 2 * s.roofline.stream_seconds(2.0 * shapes.cast_message if turned else 0.0)


def _with_scattered_output(shapes: Shapes, name: str, inside: Sequence[PassPart]) -> list[PassPart]:
    """The kernels of `inside` with the reduce-scatter of the output of the last one."""
    nbytes = shapes.message
    tp = shapes.tp
    if shapes.setting.tensor_overlap != "pipelined":
        scatter = exchange(name, "reduce_scatter", TENSOR, nbytes)
        return [*inside, *_rearranged(shapes, name, nbytes), scatter]
    last = inside[-1]
    final = nbytes // tp
    summed = shapes.setting.roofline.stream_seconds(nbytes + final)  # of what all ranks have made
    return [
        *inside[:-1],
        replace(last, seconds=last.seconds * (tp - 1) / tp),
        exchange(f"{name} rest", "reduce_scatter", TENSOR, nbytes - final, blocks=False),
        replace(last, seconds=last.seconds / tp, needs=()),
        exchange(name, "reduce_scatter", TENSOR, final),
        kernel(f"{name} sum", summed),
    ]


def backward_half(
    shapes: Shapes, inside: Sequence[PassPart], column_weight: float, before: float, exchanged: str
) -> list[PassPart]:
    """The backward pass of `forward_half`.

    The all-reduce or reduce-scatter of the input gradient runs beside the gradient of weights of
    the column-parallel product. With sequence parallelism, the input of that product is gathered
    again, beside the last product of `inside`, which the backward pass runs just before.

    Args:
        exchanged: name of the half of the block in names of kernels and collectives, as in
            `forward_half`.
        column_weight: seconds of the column-parallel product's gradient of weights.
        before: seconds of the backward pass of the kernel before it, such as a norm.
    """
    s = shapes.setting
    back = f"{exchanged} input gradient"
    again = f"{exchanged} input again"
    # PyTorch runs no product beside an exchange, does not divide a product that follows a sum of
    # gradients, and keeps the gathered input if the block is recomputed. Frozen weights need no
    # input for their gradients; adapters keep the input that they gathered.
    aside = s.tensor_overlap == "none" or s.apart
    is_kept = s.apart and not {"full", "non-reentrant"}.isdisjoint(s.recompute)
    is_kept = is_kept or s.adapters is not None
    wanted = [again] * (s.sequence_parallel and not is_kept)
    column_weight += _transpose_seconds(shapes)
    weight = kernel(f"{exchanged} in wgrad", column_weight, *wanted, weight=True)
    norm = kernel(f"{exchanged} norm backward", before, back)
    if not s.sequence_parallel:
        reduce = exchange(back, "all_reduce", TENSOR, shapes.message, blocks=aside)
        return [*inside, reduce, weight, norm]
    gather = exchange(again, "all_gather", TENSOR, shapes.cast_message, blocks=aside, dtype=s.cast)
    reduce = exchange(back, "reduce_scatter", TENSOR, shapes.message, blocks=aside)
    fed = _with_gathered_input(shapes, f"{exchanged} output gradient", inside[:-1])
    copy = _rearranged(shapes, back, shapes.message)
    return [*fed, *[gather] * (not is_kept), inside[-1], *copy, reduce, weight, norm]


def _rearranged(shapes: Shapes, name: str, nbytes: int) -> list[PassPart]:
    """The kernel that copies gathered data in PyTorch, whose tensors have samples first; Megatron
    needs none.
    """
    if shapes.setting.data != "fsdp2":
        return []
    return [kernel(f"{name} copy", shapes.setting.roofline.stream_seconds(2.0 * nbytes))]


# Context parallelism: attention over a sequence that several ranks share. `p2p` passes keys and
# values around a ring during attention, `all_gather` gathers them first, `a2a` (Ulysses) exchanges
# heads for tokens before and after attention.

CONTEXT = "cp"


def _kv_bytes(shapes: Shapes) -> int:
    """The bytes of the keys and values of one rank."""
    return 2 * shapes.tokens * shapes.kv_width * shapes.setting.element


def core(shapes: Shapes, seconds: float, *, backward: bool = False) -> list[PassPart]:
    """The parts of the attention of one rank's queries to all keys; its kernels take `seconds`."""
    if shapes.cp == 1:
        return [kernel("attention backward" if backward else "attention", seconds)]
    kinds = {"p2p": _ring, "all_gather": _gathered, "a2a": _with_exchanged_heads}
    return kinds[shapes.setting.context](shapes, seconds, backward=backward)


def _ring(shapes: Shapes, seconds: float, *, backward: bool) -> list[PassPart]:
    """Attention with keys and values passed around a ring.

    In the backward pass their gradients travel with them, which doubles the bytes.
    """
    nbytes = _kv_bytes(shapes) * (2 if backward else 1)
    exchanged = "kv gradients" if backward else "kv"
    name = "attention backward" if backward else "attention"
    parts: list[PassPart] = []
    for step in range(shapes.cp):
        if step < shapes.cp - 1:
            parts.append(exchange(f"{exchanged} {step}", "sendrecv", CONTEXT, nbytes, blocks=False))
        needs = [f"{exchanged} {step - 1}"] if step else []
        parts.append(kernel(f"{name} {step}", seconds / shapes.cp, *needs))
    return parts


def _gathered(shapes: Shapes, seconds: float, *, backward: bool) -> list[PassPart]:
    """Attention after all keys and values are gathered."""
    if shapes.is_in_steps:
        return (_merged_backward if backward else _merged_forward)(shapes, seconds)
    nbytes = _kv_bytes(shapes) * shapes.cp
    gather = exchange("kv", "all_gather", CONTEXT, nbytes)
    if not backward:
        return [gather, kernel("attention", seconds)]
    scatter = exchange("kv gradients", "reduce_scatter", CONTEXT, nbytes)
    return [gather, kernel("attention backward", seconds), scatter]


# PyTorch gathers keys and values once, during the first of `cp` kernels of attention, and merges
# the results in fp32, op by op. Gradients of keys and values travel round in fp32; each rank adds
# its own. Bytes per kernel and feature (torch/distributed/tensor/experimental/_attention.py):
#   of queries: to fp32 6, difference 12, product 8, sum 12; backward sum 10
#   of keys and values together: joined 8; backward also half of them added 10, joined twice 16 + 16
#   at the end, back to 16 bits: 6
MERGED = 38
MERGED_BACKWARD = 10
JOINED = 8
JOINED_BACKWARD = 50
ENDED = 6


def _moving_seconds(shapes: Shapes, queries: float, keys: float) -> float:
    """The seconds of moving `queries` bytes for each feature of queries, and `keys` for each of
    keys and values.
    """
    features = queries * shapes.query_width + keys * shapes.repeated_kv_width
    return shapes.setting.roofline.stream_seconds(features * shapes.tokens, 8)


def _gathered_first(shapes: Shapes) -> PassPart:
    """The all-gather of keys and values, which runs beside the first kernel of attention."""
    nbytes = shapes.cp * 2 * shapes.tokens * shapes.repeated_kv_width * shapes.setting.element
    return exchange("kv", "all_gather", CONTEXT, nbytes, blocks=False)


def _merged_forward(shapes: Shapes, seconds: float) -> list[PassPart]:
    """PyTorch's attention over gathered keys: one kernel for the keys of each rank of cp, whose
    results are merged.
    """
    further_steps = shapes.cp - 1
    step_seconds = seconds / shapes.cp
    merging = _moving_seconds(shapes, MERGED, JOINED) * further_steps + _moving_seconds(
        shapes, 2 * ENDED, 0
    )
    first = kernel("attention 0", step_seconds)
    rest = kernel("attention", step_seconds * further_steps + merging, "kv")
    return [
        kernel("kv joined", _moving_seconds(shapes, 0, JOINED)),
        _gathered_first(shapes),
        first,
        rest,
    ]


def _merged_backward(shapes: Shapes, seconds: float) -> list[PassPart]:
    """The backward pass of `_merged_forward`: gradients of keys and values go around in fp32."""
    nbytes = 2 * shapes.tokens * shapes.repeated_kv_width * FP32
    name = "attention backward"
    exchanged = "kv gradients"
    added = _moving_seconds(shapes, MERGED_BACKWARD, JOINED_BACKWARD)
    parts = [kernel("kv joined", _moving_seconds(shapes, 0, JOINED)), _gathered_first(shapes)]
    for step in range(shapes.cp):
        needs = ["kv"] * (step == 1)
        before = [f"{exchanged} {step - 1}"] * (step > 0)
        parts += [
            kernel(f"{name} {step}", seconds / shapes.cp, *needs),
            kernel(f"{name} sums {step}", added, *before),
            exchange(
                f"{exchanged} {step}", "sendrecv", CONTEXT, nbytes, blocks=False, dtype="float"
            ),
        ]
    ended = _moving_seconds(shapes, ENDED, 2 * ENDED)
    return [*parts, kernel(f"{exchanged} sum", ended, f"{exchanged} {shapes.cp - 1}")]


def _with_exchanged_heads(shapes: Shapes, seconds: float, *, backward: bool) -> list[PassPart]:
    """Attention with heads exchanged for tokens: all-to-alls of queries, keys and values, and of
    the output.
    """
    query, kv = (
        shapes.tokens * w * shapes.setting.element for w in (shapes.query_width, shapes.kv_width)
    )
    suffix = " gradient" if backward else ""

    def move(name: str, nbytes: int) -> PassPart:
        return exchange(name + suffix, "alltoall", CONTEXT, nbytes)

    projections = [move("q", query), move("k", kv), move("v", kv)]
    core = kernel("attention backward" if backward else "attention", seconds)
    if backward:
        return [move("o", query), core, *projections]
    return [*projections, core, move("o", query)]


EXPERT = "ep"
COUNT_BYTES = 8  # of the number of tokens that one rank has for one expert
ROUTER_KERNELS = 12  # softmax, choice of the best, masks, sums a rank and an expert, sort, losses


def forward_experts(shapes: Shapes) -> list[PassPart]:
    """The forward pass of experts: router, dispatch, products, combine."""
    m = shapes.model
    s = shapes.setting
    first, second = shapes.experts
    work = forward(s.roofline, s.dtype, (*first, *second)) + _activation(shapes)
    permute = _permute(shapes)
    counts = m.experts * COUNT_BYTES * s.degree(EXPERT)
    waits = s.wait > 0 and s.degree(EXPERT) > 1 and not s.expert_overlap
    compressed, expanded = _latent_seconds(shapes)
    return [
        kernel("router", _router(shapes) + compressed + permute),
        exchange("token counts", "all_gather", EXPERT, counts, blocks=not s.expert_overlap),
        *[kernel("counts to host", s.wait)] * waits,
        _moved_tokens(shapes, "dispatch"),
        *_with_expert_tensor_parallelism(shapes, [kernel("experts", work)], ""),
        _moved_tokens(shapes, "combine"),
        kernel("unpermute", permute + expanded),
    ]


def _latent_seconds(shapes: Shapes) -> tuple[float, float]:
    """The seconds of compressing tokens before they are sent to experts, and of expanding them
    after it; 0 if they are not compressed.
    """
    s = shapes.setting
    if not shapes.latent_products:
        return 0.0, 0.0
    down, up = shapes.latent_products
    return (
        forward(s.roofline, s.beside, (down,)),
        forward(s.roofline, s.beside, (up,)),
    )


def backward_experts(shapes: Shapes) -> list[PassPart]:
    """The backward pass of experts, with the gradients of weights of experts and router.

    One operator makes both gradients of the experts, so tokens are sent back after both.
    """
    s = shapes.setting
    first, second = shapes.experts
    permute = _permute(shapes)
    between = _activation(shapes, backward=True)
    inputs = input_gradients(s.roofline, s.dtype, (*first, *second)) + between
    weights = _wgrad_seconds(s, s.dtype, (*first, *second), s.added)
    router = _router(shapes) * (1 if s.adapters is not None else 2)
    waits = () if s.expert_overlap else ("dispatch gradient",)
    down, up = shapes.latent_products[:1], shapes.latent_products[1:]
    expanded = input_gradients(s.roofline, s.beside, up)
    expanded += _wgrad_seconds(s, s.beside, up, s.added)
    router += input_gradients(s.roofline, s.beside, down)
    router += _wgrad_seconds(s, s.beside, down, s.added)
    return [
        kernel("unpermute backward", expanded + permute),
        _moved_tokens(shapes, "combine gradient"),
        *_with_expert_tensor_parallelism(shapes, [kernel("experts dgrad", inputs)], " gradient"),
        kernel("experts wgrad", weights, weight=True),
        replace(_moved_tokens(shapes, "dispatch gradient"), blocks=False),
        kernel("router backward", router + permute, *waits),
    ]


def _wgrad_seconds(
    setting: Setting, dtype: str, layers: Sequence[LinearLayer], result: float | None = None
) -> float:
    """The seconds of the products that make gradients of weights; 0 if these are frozen. `result`
    is that of `weight_gradients`.
    """
    if setting.adapters is not None:
        return 0.0
    return kernels.weight_gradients(setting.roofline, dtype, layers, result)


def _moved_tokens(shapes: Shapes, name: str) -> PassPart:
    """The all-to-all that sends tokens to experts or back. If micro-batches overlap, no kernel
    waits for it.
    """
    blocks = not shapes.setting.expert_overlap
    return exchange(name, "alltoall", EXPERT, shapes.dispatched, blocks=blocks)


def _router(shapes: Shapes) -> float:
    """The seconds of the router: scores, choice of experts, counts."""
    m = shapes.model
    s = shapes.setting
    scores = s.roofline.gemm_seconds(shapes.local, m.experts, m.hidden, s.beside)
    return scores + s.roofline.stream_seconds(shapes.local * m.experts * FP32, ROUTER_KERNELS)


def _permute(shapes: Shapes) -> float:
    """The seconds of sorting tokens by expert, or back. Tokens from several ranks are
    sorted twice.
    """
    s = shapes.setting
    m = shapes.model
    sorts = 1 if s.deduplicated or m.experts == s.degree(EXPERT) or s.degree(EXPERT) == 1 else 2
    nbytes = shapes.width(2 * sorts, m.expert_width, shapes.routed)
    return s.roofline.stream_seconds(nbytes, sorts, routed=True)


def _with_expert_tensor_parallelism(
    shapes: Shapes, inside: list[PassPart], suffix: str
) -> list[PassPart]:
    """The kernels of experts whose matrices tensor parallelism divides: tokens are gathered before
    `inside`, and sums scattered after it.

    `suffix` is added to the names of the collectives.
    """
    if shapes.expert_split == 1:
        return inside
    nbytes = shapes.dispatched * shapes.expert_split
    return [
        exchange(f"expert tokens{suffix}", "all_gather", "tp", nbytes),
        *inside,
        exchange(f"expert outputs{suffix}", "reduce_scatter", "tp", nbytes),
    ]


# Bytes per feature that Megatron moves op by op for experts, forward and backward.
#   clamped gate: two halves clamped 4 each, joined 8; backward 6 each, joined 16
#   biases after the second product, weighted by token in fp32: product 4, sum 10, joined 8, back to
#   16 bits 6; backward to fp32 6 and back 6, split and joined 4, gradients of weights and biases 8
#   for each product and 4 for each sum
# Passes over the outputs of the first product, forward and backward: of a gate, which makes half as
# many features, and of a plain function.
GATED_EXPERTS = (1.5, 3.0)
PLAIN_EXPERTS = (2.0, 3.0)
CLAMPED = (16, 28)
BIASED = (28, 40)


def _activation(shapes: Shapes, *, backward: bool = False) -> float:
    """The seconds of the function between the two products of experts, and of casting the inputs of
    both.

    Kernels that fuse it with the products need no time for it.
    """
    (first,), (second,) = shapes.experts
    s = shapes.setting
    m = shapes.model
    moved = kernels.cast_bytes(s) * first.inputs + m.biases * BIASED[backward] * m.hidden
    if not s.fused_experts:
        passes = GATED_EXPERTS if m.gated else PLAIN_EXPERTS
        moved += passes[backward] * first.outputs * s.element
        moved += (kernels.cast_bytes(s) + m.clamped * CLAMPED[backward]) * second.inputs
    return s.roofline.stream_seconds(
        first.rows * first.batch * moved, 1 + 2 * s.narrow, routed=True
    )


# Bytes per logit of the loss, forward and backward.
#   fused: kernels in fp32 (read, maximum, exponentials; gradient written)
#   eager: to fp32 6, log-softmax 12; gradient of the loss 4, of the softmax 12, to 16 bits 6
#   kernel: one kernel reads 16 bits and overwrites them
LOSS = {"fused": (12, 12), "eager": (18, 22), "kernel": (2, 4)}
# What vocabulary-parallel cross entropy all-reduces: one fp32 number of each kind for each token.
LOSS_SUMS = ("maximum", "target logit", "sum of exponents")


def forward_embedding(shapes: Shapes) -> list[PassPart]:
    """The forward pass of the embedding: the lookup in a table whose vocabulary is divided, and the
    sum over ranks.
    """
    work = _moved_at_ends(shapes, 2, shapes.model.hidden * shapes.setting.element)
    op = "reduce_scatter" if shapes.setting.sequence_parallel else "all_reduce"
    return [kernel("embedding", work), exchange("embedding", op, "tp", shapes.message)]


def backward_embedding(shapes: Shapes) -> list[PassPart]:
    """The backward pass of the embedding: gradients are added to rows of the table. There is none
    if the table is frozen.
    """
    if shapes.setting.adapters is not None:
        return []
    work = _moved_at_ends(shapes, 3, shapes.model.hidden * shapes.setting.element)
    parts = [kernel("embedding wgrad", work)]
    if shapes.setting.sequence_parallel:
        parts.insert(0, exchange("embedding gradient", "all_gather", "tp", shapes.message))
    return parts


def forward_head(shapes: Shapes) -> list[PassPart]:
    """The forward pass of the head: logits and loss."""
    s = shapes.setting
    (logits,) = shapes.logits
    loss = _moved_at_ends(shapes, LOSS[s.loss][0], logits.outputs)
    parts = [kernel("logits", forward(s.roofline, s.beside, shapes.logits) + loss)]
    if s.sequence_parallel:
        parts.insert(0, exchange("logits input", "all_gather", "tp", shapes.message))
    nbytes = shapes.tokens * FP32
    sums = [
        exchange(f"loss {name}", "all_reduce", "tp", nbytes, dtype="float") for name in LOSS_SUMS
    ]
    return [*parts, *sums]


def backward_head(shapes: Shapes) -> list[PassPart]:
    """The backward pass of the head: gradients of the logits, of the head's input and of its
    weights.
    """
    s = shapes.setting
    (logits,) = shapes.logits
    loss = _moved_at_ends(shapes, LOSS[s.loss][1], logits.outputs)
    op = "reduce_scatter" if s.sequence_parallel else "all_reduce"
    back = "logits input gradient"
    weights = _wgrad_seconds(s, s.beside, shapes.logits)
    norm = _moved_at_ends(
        shapes, 3, shapes.model.hidden * s.element * shapes.local / max(shapes.tokens, 1)
    )
    return [
        kernel("logits dgrad", loss + input_gradients(s.roofline, s.beside, shapes.logits)),
        exchange(back, op, "tp", shapes.message, blocks=False),
        kernel("logits wgrad", weights, weight=True),
        kernel("norm backward", norm, back),
    ]


def _moved_at_ends(shapes: Shapes, passes: float, bytes_a_token: float) -> float:
    """The seconds of `passes` over `bytes_a_token` of each token, at the embedding or the head."""
    return shapes.setting.roofline.stream_seconds(passes * bytes_a_token * shapes.tokens)


ATTENTION_BACKWARD_FLOPS = 2.5  # FlashAttention recomputes the scores: five products for two
# Passes of attention without a fused kernel: softmax and dropout each read and write all scores
# (softmax backward reads two), and dropout a mask of one byte.
SOFTMAX = 4
SOFTMAX_BACKWARD = 5
DROPOUT_MASK = 1


def backward_block(shapes: Shapes, layer: Layer) -> list[PassPart]:
    """The backward pass of a block: the MLP half, then the attention half, with what is
    recomputed.
    """
    recomputed = _recomputed_modules(shapes, layer)
    attention = _attention_backward(shapes, _attention_again(shapes))
    return [*recomputed, *_mlp_backward(shapes, layer), *attention]


def _attention_again(shapes: Shapes) -> list[PassPart]:
    """The attention kernels, if these are recomputed."""
    is_again = "core_attn" in _modules(shapes)
    return [kernel("attention again", _core_seconds(shapes))] if is_again else []


def _core_seconds(shapes: Shapes, *, backward: bool = False) -> float:
    """The seconds of the attention kernels of one rank."""
    s = shapes.setting
    if s.attention == "unfused":
        return _unfused_seconds(shapes, backward=backward)
    flops = shapes.attention_flops * (ATTENTION_BACKWARD_FLOPS if backward else 1)
    seconds = s.roofline.attention_seconds(
        flops, s.beside, width=shapes.attention_width, keys=shapes.keys, backward=backward
    )
    if s.attention == "unpadded":  # rows of all sequences are gathered and put back around it
        moved = shapes.width(5 * shapes.query_width + 4 * shapes.kv_width, 1, shapes.tokens)
        seconds += s.roofline.stream_seconds(moved, 4)
    return seconds


def _unfused_seconds(shapes: Shapes, *, backward: bool) -> float:
    """The seconds of attention in separate kernels: scores, softmax, dropout, product with values.

    Masked scores are computed too, and every kernel reads and writes all scores. The rooflines of
    the products include their own bytes.
    """
    s = shapes.setting
    products = shapes.scores
    if backward:
        work = input_gradients(s.roofline, s.beside, products)
        work += kernels.weight_gradients(s.roofline, s.beside, products)
    else:
        work = forward(s.roofline, s.beside, products)
    passes = SOFTMAX_BACKWARD if backward else SOFTMAX
    pairs = products[0].batch * products[0].rows * products[0].outputs
    return work + s.roofline.stream_seconds(pairs * (passes * s.element + DROPOUT_MASK), 2)


def _attention_forward(shapes: Shapes) -> list[PassPart]:
    """The forward pass of the attention half of a block."""
    m = shapes.model
    s = shapes.setting
    passes = _elementwise(shapes)
    before = _moved_in_block(shapes, passes.norm, m.hidden, shapes.local)
    rotary = _rotary(shapes, passes.norm)
    cast = cast_seconds(s, shapes.tokens * shapes.query_width)
    before += _input_cast(shapes)
    inside = [
        kernel("qkv", forward(s.roofline, s.dtype, shapes.attention_in, s.pieces) + rotary),
        *adapter_forward(shapes, "linear_qkv"),
        *core(shapes, _core_seconds(shapes)),
        *adapter_forward(shapes, "linear_proj"),
        kernel("proj", cast + forward(s.roofline, s.dtype, shapes.attention_out, s.pieces)),
    ]
    return forward_half(shapes, kernel("norm", before), inside, "attention")


def _rotary(shapes: Shapes, norm: float) -> float:
    """The seconds of rotary embeddings, of norms of queries and keys, and of repeating keys and
    values.

    `norm` is the passes of a norm.
    """
    passes = _elementwise(shapes).rotary * shapes.model.rotary + shapes.model.qk_norm * norm
    both = shapes.query_width + shapes.kv_width
    repeated = shapes.repeated_kv_width - shapes.kv_width
    moved = shapes.width(2, repeated, shapes.tokens)
    again = shapes.setting.roofline.stream_seconds(moved) if repeated else 0.0
    return _moved_in_block(shapes, passes, both, shapes.tokens) + again


def _attention_backward(shapes: Shapes, again: list[PassPart]) -> list[PassPart]:
    """The backward pass of the attention half of a block; `again` are kernels that are
    recomputed.
    """
    m = shapes.model
    s = shapes.setting
    passes = _elementwise(shapes)
    rotary = _rotary(shapes, passes.norm_backward)
    out = shapes.attention_out
    cast = _input_cast(shapes, fused=False)
    first = shapes.attention_in
    rotary += cast_seconds(s, shapes.tokens * sum(linear.outputs for linear in first))
    inside = [
        kernel("proj dgrad", cast + input_gradients(s.roofline, s.dtype, out, s.pieces)),
        kernel("proj wgrad", _wgrad_seconds(s, s.dtype, out, s.added), weight=True),
        *adapter_backward(shapes, "linear_proj"),
        *again,
        *core(shapes, _core_seconds(shapes, backward=True), backward=True),
        kernel("", rotary),
        *adapter_backward(shapes, "linear_qkv"),
        kernel(
            "qkv dgrad",
            input_gradients(s.roofline, s.dtype, first) + shapes.gradient_sum_seconds(first),
        ),
    ]
    norm = _moved_in_block(shapes, passes.norm_backward + RESIDUAL, m.hidden, shapes.local)
    weights = _wgrad_seconds(s, s.dtype, first, s.added)
    return backward_half(shapes, inside, weights, norm, "attention")


def _mixer_forward(shapes: Shapes, layer: Layer) -> list[PassPart]:
    """The forward pass of a layer of a hybrid model."""
    m = shapes.model
    if layer.mixer in (EXPERTS, MLP):
        return _mlp_forward(shapes, layer)
    after = kernel("residual", _moved_in_block(shapes, RESIDUAL, m.hidden, shapes.local))
    if layer.mixer == ATTENTION:
        return [*_attention_forward(shapes), after]
    assert m.mamba is not None
    s = shapes.setting
    first, second = shapes.mamba_products(m.mamba)
    norm = _moved_in_block(shapes, _elementwise(shapes).norm, m.hidden, shapes.local)
    cast = cast_seconds(s, shapes.tokens * second.inputs)
    inside = [
        kernel("mamba", forward(s.roofline, s.dtype, (first,), s.pieces)),
        kernel("scan", mixed_seconds(shapes, m.mamba)),
        kernel("mamba out", cast + forward(s.roofline, s.dtype, (second,), s.pieces)),
    ]
    before = kernel("norm", norm + _input_cast(shapes))
    return [*forward_half(shapes, before, inside, "mamba"), after]


def _mixer_backward(shapes: Shapes, layer: Layer) -> list[PassPart]:
    """The backward pass of a layer of a hybrid model, with what is recomputed."""
    m = shapes.model
    recomputed = _recomputed_modules(shapes, layer)
    if layer.mixer in (EXPERTS, MLP):
        return [*recomputed, *_mlp_backward(shapes, layer)]
    if layer.mixer == ATTENTION:
        return [*recomputed, *_attention_backward(shapes, _attention_again(shapes))]
    assert m.mamba is not None
    s = shapes.setting
    first, second = shapes.mamba_products(m.mamba)
    cast = _input_cast(shapes, fused=False)
    inner = cast_seconds(s, shapes.tokens * first.outputs)
    inside = [
        kernel("mamba out dgrad", cast + input_gradients(s.roofline, s.dtype, (second,), s.pieces)),
        kernel("mamba out wgrad", _wgrad_seconds(s, s.dtype, (second,), s.added), weight=True),
        kernel("scan backward", mixed_seconds(shapes, m.mamba, backward=True) + inner),
        kernel("mamba dgrad", input_gradients(s.roofline, s.dtype, (first,))),
    ]
    weights = _wgrad_seconds(s, s.dtype, (first,), s.added)
    passes = _elementwise(shapes).norm_backward + RESIDUAL
    norm = _moved_in_block(shapes, passes, m.hidden, shapes.local)
    return [*recomputed, *backward_half(shapes, inside, weights, norm, "mamba")]


def _mlp_forward(shapes: Shapes, layer: Layer) -> list[PassPart]:
    """The forward pass of the MLP half of a block, or of an MLP layer of a hybrid model."""
    m = shapes.model
    passes = _elementwise(shapes).norm
    if not layer.mixer:  # the residual sum is written, and read again by the norm
        passes += RESIDUAL
    norm = _moved_in_block(shapes, passes, m.hidden, shapes.local)
    before = kernel("norm", norm + _input_cast(shapes))
    after = kernel("residual", _moved_in_block(shapes, RESIDUAL, m.hidden, shapes.local))
    if not layer.moe:
        return [*_dense_forward(shapes, m.ffn, before, "mlp"), after]
    shared = _dense_forward(shapes, m.shared_ffn, kernel("", 0.0), "shared") if m.shared_ffn else []
    return [before, *shared, *forward_experts(shapes), after]


def _dense_forward(shapes: Shapes, ffn: int, before: PassPart, exchanged: str) -> list[PassPart]:
    """Return the parts of the forward pass of a dense MLP with `ffn` features inside.

    `before` is the kernel before its first product, `exchanged` the name of the MLP in the names of
    kernels and collectives.
    """
    s = shapes.setting
    first = forward(s.roofline, s.dtype, shapes.mlp_in(ffn), s.pieces) + _function_seconds(
        shapes, ffn
    )
    first += cast_seconds(s, shapes.tokens * ffn / shapes.tp)
    second = forward(s.roofline, s.dtype, shapes.mlp_out(ffn), s.pieces)
    is_adapted = exchanged == "mlp"
    inside = [
        kernel(exchanged, first),
        *(adapter_forward(shapes, "linear_fc1") if is_adapted else ()),
        *(adapter_forward(shapes, "linear_fc2") if is_adapted else ()),
        kernel(f"{exchanged} out", second),
    ]
    return forward_half(shapes, before, inside, exchanged)


def _mlp_backward(shapes: Shapes, layer: Layer) -> list[PassPart]:
    """The backward pass of the MLP half of a block."""
    m = shapes.model
    norm = _moved_in_block(
        shapes, _elementwise(shapes).norm_backward + RESIDUAL, m.hidden, shapes.local
    )
    if not layer.moe:
        return _dense_backward(shapes, m.ffn, norm, "mlp")
    shared = _dense_backward(shapes, m.shared_ffn, 0.0, "shared") if m.shared_ffn else []
    return [*backward_experts(shapes), *shared, kernel("norm backward", norm)]


def _dense_backward(shapes: Shapes, ffn: int, norm: float, exchanged: str) -> list[PassPart]:
    """The backward pass of a dense MLP with `ffn` features inside; `norm` are the seconds of the
    norm's backward pass.
    """
    s = shapes.setting
    first = shapes.mlp_in(ffn)
    second = shapes.mlp_out(ffn)
    cast = _input_cast(shapes, fused=False)
    inner = cast_seconds(s, shapes.tokens * sum(linear.outputs for linear in first))
    dgrad = input_gradients(s.roofline, s.dtype, first) + shapes.gradient_sum_seconds(first)
    is_adapted = exchanged == "mlp"
    inside = [
        kernel(
            f"{exchanged} out dgrad", cast + input_gradients(s.roofline, s.dtype, second, s.pieces)
        ),
        kernel(f"{exchanged} out wgrad", _wgrad_seconds(s, s.dtype, second, s.added), weight=True),
        *(adapter_backward(shapes, "linear_fc2") if is_adapted else ()),
        kernel("", inner + _function_seconds(shapes, ffn, backward=True)),
        *(adapter_backward(shapes, "linear_fc1") if is_adapted else ()),
        kernel(f"{exchanged} in dgrad", dgrad),
    ]
    weights = _wgrad_seconds(s, s.dtype, first, s.added)
    return backward_half(shapes, inside, weights, norm, exchanged)


def _function_seconds(shapes: Shapes, ffn: int, *, backward: bool = False) -> float:
    """The seconds of the function between the two products of an MLP."""
    passes = _elementwise(shapes)
    ahead = passes.plain
    back = passes.plain_backward
    if shapes.model.gated:
        ahead = passes.gated
        back = passes.gated_backward
    return _moved_in_block(shapes, back if backward else ahead, ffn // shapes.tp, shapes.tokens)


def _elementwise(shapes: Shapes) -> kernels.Elementwise:
    """The passes of element-wise kernels in this setting."""
    return kernels.elementwise_of(shapes.setting, gated=shapes.model.gated)


def _moved_in_block(shapes: Shapes, passes: float, features: int, tokens: int) -> float:
    """The seconds of `passes` passes over `features` features of `tokens` tokens."""
    return shapes.setting.roofline.stream_seconds(shapes.width(passes, features, tokens))


@dataclass(frozen=True)
class Passes:
    """The parts of one layer in each of its passes.

    `backward` is the complete backward pass. `inputs` and `weights` divide it into gradients of
    inputs and gradients of weights, for pipelines that delay the latter.
    """

    forward: tuple[PassPart, ...]
    backward: tuple[PassPart, ...]
    inputs: tuple[PassPart, ...]
    weights: tuple[PassPart, ...]


PASSES = ("forward", "backward", "inputs", "weights")
NOTHING = 1e-15  # gap of kernels that take no time; above 0, so that they stay kernels


@dataclass
class PassTable:
    """The passes of all layers of a setting; equal blocks share theirs."""

    setting: Setting
    cache: Memo = field(default_factory=Memo)

    def of(self, layer: Layer) -> Passes:
        """The passes of a layer. If the user gives its times, its kernels are scaled to them."""
        is_timed = layer.kind == "plain" or layer.name in self.setting.layer_seconds
        key: object = layer.name if is_timed else (layer.kind, layer.moe, layer.mixer)
        return self.cache.of(key, lambda: self._compute(layer))

    def _compute(self, layer: Layer) -> Passes:
        """The passes of a layer, with the number of launches of each part and the seconds in which
        it only moves bytes.

        The number of launches is the time on a GPU on which nothing but the gap between kernels
        takes time, one second each. The seconds of moving bytes are those that infinite memory
        bandwidth would save; they are not known for measured layers.
        """
        s = self.setting
        infinite_rates = dict.fromkeys(s.roofline.flops, inf)
        counted = None
        if s.launch:
            counted = self._passes_with(layer, flops=infinite_rates, bandwidth=inf, kernel=1.0)
        without_memory = None
        if not s.layer_seconds:
            without_memory = self._passes_with(layer, bandwidth=inf, kernel=NOTHING)
        passes = _passes(s, layer)

        def annotated(name: str) -> tuple[PassPart, ...]:
            parts: tuple[PassPart, ...] = getattr(passes, name)
            counts: tuple[PassPart, ...] = parts if counted is None else getattr(counted, name)
            rests: tuple[PassPart, ...] = parts
            if without_memory is not None:
                rests = getattr(without_memory, name)
            return tuple(
                replace(
                    part,
                    moving=part.seconds - rest.seconds,
                    launches=ceil(count.seconds) if counted else 1,
                )
                for part, count, rest in zip(parts, counts, rests, strict=True)
            )

        return Passes(*map(annotated, PASSES))

    def _passes_with(self, layer: Layer, **figures: Any) -> Passes:
        """The passes of a layer on a GPU whose roofline has other `figures`."""
        roofline = replace(self.setting.roofline, **figures)
        return _passes(replace(self.setting, layer_seconds={}, roofline=roofline), layer)


def _passes(setting: Setting, layer: Layer) -> Passes:
    """The passes of a layer, including recomputation, with the user's times if there are some."""
    forward_parts, backward = _parts(setting, layer)
    measured = setting.layer_seconds.get(layer.name)
    if measured:
        forward_parts = _scaled_to(forward_parts, measured[0])
        backward = _scaled_to(backward, measured[1])
    backward = [*_recomputed_layer(setting, forward_parts, layer), *backward]
    weights = [replace(part, weight=False, needs=()) for part in backward if part.weight]
    inputs = [part for part in backward if not part.weight]
    # DDP reduces a bucket as soon as its gradients exist, so kernels that make gradients stay
    # separate.
    reduces_early = setting.data == "ddp" and setting.overlap and setting.copies > 1
    backward_parts = (
        backward if reduces_early else [replace(part, weight=False) for part in backward]
    )
    return Passes(merged(forward_parts), merged(backward_parts), merged(inputs), merged(weights))


def _parts(setting: Setting, layer: Layer) -> tuple[list[PassPart], list[PassPart]]:
    """Return (parts of the forward pass, parts of the backward pass) of a layer."""
    if layer.kind == "plain" or not isinstance(setting.model, Transformer):
        return _plain(setting, layer)
    shapes = Shapes(setting.model, setting)
    if layer.kind == "embedding":
        return forward_embedding(shapes), backward_embedding(shapes)
    if layer.kind == "head":
        return forward_head(shapes), backward_head(shapes)
    if layer.mixer:
        return _mixer_forward(shapes, layer), _mixer_backward(shapes, layer)
    forward = [*_attention_forward(shapes), *_mlp_forward(shapes, layer)]
    return forward, backward_block(shapes, layer)


def _plain(setting: Setting, layer: Layer) -> tuple[list[PassPart], list[PassPart]]:
    """Return (parts of the forward pass, parts of the backward pass) of a layer that is described
    by FLOPs, bytes or times. The backward pass is half gradients of inputs, half gradients of
    weights.
    """
    plain = layer.plain
    samples = setting.micro
    moved = layer.parameters * setting.element + samples * (plain.activation + plain.output)
    forward_seconds = plain.forward
    backward_seconds = plain.backward
    if forward_seconds is None:
        forward_seconds = setting.roofline.plain_seconds(
            plain.flops * samples, moved, setting.dtype
        )
    if backward_seconds is None:
        flops = plain.backward_flops * samples
        backward_seconds = setting.roofline.plain_seconds(flops, 2 * moved, setting.dtype)
    halves = (
        kernel("dgrad", backward_seconds / 2),
        kernel("wgrad", backward_seconds / 2, weight=True),
    )
    return [kernel("forward", forward_seconds)], list(halves)


def _scaled_to(parts: list[PassPart], seconds: float) -> list[PassPart]:
    """The parts, with times scaled such that they add up to `seconds`."""
    total = sum(part.seconds for part in parts)
    if not total:
        return parts
    return [replace(part, seconds=part.seconds * seconds / total) for part in parts]


def _recomputed(parts: list[PassPart]) -> list[PassPart]:
    """The parts as they are called when they are recomputed: names end with "again"."""
    return [
        replace(
            part, name=f"{part.name} again", needs=tuple(f"{need} again" for need in part.needs)
        )
        for part in parts
    ]


# What is recomputed in the backward pass:
#   full           a complete block (Megatron, and PyTorch's reentrant checkpoints)
#   non-reentrant  PyTorch stops once it has what backward needs: the last product is not repeated
#   ops            TorchTitan's selective checkpoints store attention, what is scattered, and every
#                  second product of a block that is not narrow
#   otherwise      the named modules of Megatron

SELECTIVE = ("core_attn",)


def _modules(shapes: Shapes) -> tuple[str, ...]:
    """The names of the modules of a block that are recomputed."""
    recompute = shapes.setting.recompute
    return SELECTIVE if recompute == ("selective",) else recompute


def _recomputed_layer(
    setting: Setting, forward_parts: list[PassPart], layer: Layer
) -> list[PassPart]:
    """Return the parts that are recomputed at the start of a layer's backward pass if complete
    layers are recomputed; otherwise an empty list.
    """
    if layer.kind == "embedding" or "full" in setting.recompute:
        return [] if layer.kind == "embedding" else _recomputed(forward_parts)
    if layer.kind != "block" or "non-reentrant" not in setting.recompute:
        return []
    repeatable = [
        part for part in forward_parts if not part.name.startswith(("mlp output", "residual"))
    ]
    last = max(
        (n for n, part in enumerate(repeatable) if part.name == "mlp out"), default=len(repeatable)
    )
    return _recomputed([part for n, part in enumerate(repeatable) if n < last])


def _recomputed_modules(shapes: Shapes, layer: Layer) -> list[PassPart]:
    """Return the parts that are recomputed at the start of a block's backward pass if some modules
    of the block are recomputed; otherwise an empty list.
    """
    s = shapes.setting
    m = shapes.model
    modules = _modules(shapes)
    seconds = 0.0
    norms = _moved_in_block(shapes, _elementwise(shapes).norm, m.hidden, shapes.local)
    norms *= 1 if layer.mixer else 2
    if "layernorm" in modules or "ops" in modules:
        seconds += norms
    if "mla_up_proj" in modules and m.latent:
        seconds += forward(s.roofline, s.dtype, shapes.attention_in[1:])
    if "ops" in modules:
        seconds += _function_seconds(shapes, m.ffn) + _selective_seconds(shapes)
    if layer.moe and "moe_act" in modules:
        seconds += _activation(shapes)
    if layer.moe and ("shared_experts" in modules or "moe" in modules) and m.shared_ffn:
        seconds += forward(s.roofline, s.dtype, (*shapes.mlp_in(m.shared_ffn),))
    parts = [kernel("again", seconds)] * (seconds > 0)
    if layer.moe and "moe" in modules:
        return [*parts, *_recomputed(forward_experts(shapes))]
    if not layer.moe and layer.mixer in ("", MLP) and "mlp" in modules:
        parts += _recomputed(_dense_forward(shapes, m.ffn, kernel("", 0.0), "mlp"))
    return parts


def _selective_seconds(shapes: Shapes) -> float:
    """The seconds of recomputation with TorchTitan's selective checkpoints.

    Outputs that are scattered are stored, and so is every second product in 16 bits. Narrow
    products are all recomputed, with the casts of their inputs.
    """
    s = shapes.setting
    ffn = shapes.model.ffn
    widths = shapes.mlp_in(ffn)
    out = () if s.sequence_parallel else shapes.attention_out
    if not s.narrow:
        keys = replace(widths[0], outputs=shapes.kv_width)
        gate = replace(widths[0], outputs=sum(linear.outputs for linear in widths) // 2)
        return forward(s.roofline, s.dtype, (keys, *out, gate))
    casts = 2 * _input_cast(shapes)
    casts += cast_seconds(s, shapes.tokens * (shapes.query_width + ffn // shapes.tp))
    return casts + forward(s.roofline, s.dtype, (*shapes.attention_in, *out, *widths))
