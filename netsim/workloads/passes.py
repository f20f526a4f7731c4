"""What layers do in one pass, kernel by kernel, with the collectives that parallelism adds."""

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from netsim.base.values import dataclass
from netsim.workloads.kernels import (
    RESIDUAL,
    Elementwise,
    Shapes,
    elementwise_of,
    forward,
    input_gradients,
    weight_gradients,
)
from netsim.workloads.model import Layer, Transformer
from netsim.workloads.setting import Setting


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel of `seconds`, or a collective over one axis of the grid.

    Kernels follow each other on their stream. `needs` are earlier collectives of the pass by name
    that a kernel waits for; a collective starts when the kernel before it is done. A collective
    that `blocks` holds up the next kernel. `weight`: it makes gradients of weights only, which
    nobody waits for until the end of the step.
    """

    name: str
    seconds: float = 0.0
    collective: str = ""
    axis: str = ""
    nbytes: int = 0
    needs: tuple[str, ...] = ()
    blocks: bool = True
    weight: bool = False
    dtype: str = ""


def kernel(name: str, seconds: float, *needs: str, weight: bool = False) -> Part:
    """A kernel that waits for the named collectives."""
    return Part(name, seconds, needs=needs, weight=weight)


def exchange(
    name: str, collective: str, axis: str, nbytes: int, *, blocks: bool = True, dtype: str = ""
) -> Part:
    """A collective over an axis."""
    return Part(name, 0.0, collective, axis, nbytes, blocks=blocks, dtype=dtype)


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same with kernels that nothing separates in one piece, to have fewer rows."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if (
            part.collective
            or last is None
            or last.collective
            or part.needs
            or part.weight != last.weight
        ):
            found.append(part)
        elif part.seconds:
            name = f"{last.name}+{part.name}" if last.seconds else part.name
            found[-1] = replace(last, name=name, seconds=last.seconds + part.seconds)
    return tuple(part for part in found if part.collective or part.seconds or part.needs)


# Tensor parallelism after Megatron: what column- and row-parallel products exchange, and when.
# Without sequence parallelism the output of a row-parallel product is all-reduced forward, and the
# input gradient of a column-parallel one backward. With it, the same bytes are gathered before the
# column-parallel product and scattered after the row-parallel one, and gathered once more backward.


TENSOR = "tp"


def forward_half(
    before: Part, inside: Sequence[Part], nbytes: int, *, sequence: bool, what: str
) -> list[Part]:
    """A column-parallel product to a row-parallel one, with what comes before on whole tokens."""
    if not sequence:
        return [before, *inside, exchange(f"{what} output", "all_reduce", TENSOR, nbytes)]
    return [
        before,
        exchange(f"{what} input", "all_gather", TENSOR, nbytes),
        *inside,
        exchange(f"{what} output", "reduce_scatter", TENSOR, nbytes),
    ]


def backward_half(
    inside: Sequence[Part],
    column_weight: float,
    before: float,
    nbytes: int,
    *,
    sequence: bool,
    what: str,
) -> list[Part]:
    """The same backward; the weight gradient of the column-parallel product hides an exchange.

    Its input is gathered again beside the product before, the last of `inside`.
    """
    back, again = f"{what} input gradient", f"{what} input again"
    weight = kernel(f"{what} in wgrad", column_weight, *([again] if sequence else []), weight=True)
    norm = kernel(f"{what} norm backward", before, back)
    if not sequence:
        reduce = exchange(back, "all_reduce", TENSOR, nbytes, blocks=False)
        return [*inside, reduce, weight, norm]
    return [
        exchange(f"{what} output gradient", "all_gather", TENSOR, nbytes),
        *inside[:-1],
        exchange(again, "all_gather", TENSOR, nbytes, blocks=False),
        inside[-1],
        exchange(back, "reduce_scatter", TENSOR, nbytes, blocks=False),
        weight,
        norm,
    ]


# Context parallelism: attention over a sequence that several ranks share.
# `p2p` passes keys and values round a ring while attention works on the block in hand, `all_gather`
# collects them first, `a2a` (Ulysses) exchanges heads for tokens before and after.


CONTEXT = "cp"
KINDS = ("p2p", "all_gather", "a2a")


def _kv_bytes(shapes: Shapes) -> int:
    """Keys and values of one rank's tokens."""
    return 2 * shapes.tokens * shapes.kv_width * shapes.setting.element


def forward_core(shapes: Shapes, seconds: float) -> list[Part]:
    """Attention of one rank's queries to all keys."""
    if shapes.cp == 1:
        return [kernel("attention", seconds)]
    return {"p2p": _ring, "all_gather": _gathered, "a2a": _heads}[shapes.setting.context](
        shapes, seconds, backward=False
    )


def backward_core(shapes: Shapes, seconds: float) -> list[Part]:
    """Its backward pass."""
    if shapes.cp == 1:
        return [kernel("attention backward", seconds)]
    return {"p2p": _ring, "all_gather": _gathered, "a2a": _heads}[shapes.setting.context](
        shapes, seconds, backward=True
    )


def _ring(shapes: Shapes, seconds: float, *, backward: bool) -> list[Part]:
    """Backward, the gradients of keys and values travel with them: twice the bytes."""
    nbytes = _kv_bytes(shapes) * (2 if backward else 1)
    what = "kv gradients" if backward else "kv"
    name = "attention backward" if backward else "attention"
    parts: list[Part] = []
    for turn in range(shapes.cp):
        if turn < shapes.cp - 1:
            parts.append(exchange(f"{what} {turn}", "sendrecv", CONTEXT, nbytes, blocks=False))
        needs = [f"{what} {turn - 1}"] if turn else []
        parts.append(kernel(f"{name} {turn}", seconds / shapes.cp, *needs))
    return parts


def _gathered(shapes: Shapes, seconds: float, *, backward: bool) -> list[Part]:
    nbytes = _kv_bytes(shapes) * shapes.cp
    gather = exchange("kv", "all_gather", CONTEXT, nbytes)
    if not backward:
        return [gather, kernel("attention", seconds)]
    scatter = exchange("kv gradients", "reduce_scatter", CONTEXT, nbytes)
    return [gather, kernel("attention backward", seconds), scatter]


def _heads(shapes: Shapes, seconds: float, *, backward: bool) -> list[Part]:
    """Queries, keys, values one by one, and the output; backward their gradients."""
    query, kv = (
        shapes.tokens * w * shapes.setting.element for w in (shapes.query_width, shapes.kv_width)
    )
    suffix = " gradient" if backward else ""

    def move(name: str, nbytes: int) -> Part:
        return exchange(name + suffix, "alltoall", CONTEXT, nbytes)

    projections = [move("q", query), move("k", kv), move("v", kv)]
    core = kernel("attention backward" if backward else "attention", seconds)
    if backward:
        return [move("o", query), core, *projections]
    return [*projections, core, move("o", query)]


EXPERT = "ep"
COUNT_BYTES = 8  # of the number of tokens that one rank has for one expert


def forward_experts(shapes: Shapes) -> list[Part]:
    """Router, dispatch, the experts' products, combine."""
    m, s = shapes.model, shapes.setting
    first, second = shapes.experts
    router = s.roofline.gemm_seconds(shapes.local, m.experts, m.hidden, s.beside)
    permute = s.roofline.stream_seconds(shapes.width(2, m.hidden, shapes.routed))
    work = forward(s.roofline, s.dtype, (*first, *second)) + _activation(shapes, 1)
    return [
        kernel("router", router + permute),
        exchange("token counts", "all_gather", EXPERT, m.experts * COUNT_BYTES * s.degree(EXPERT)),
        exchange("dispatch", "alltoall", EXPERT, shapes.dispatched),
        *_around(shapes, [kernel("experts", work)], ""),
        exchange("combine", "alltoall", EXPERT, shapes.dispatched),
        kernel("unpermute", permute),
    ]


def backward_experts(shapes: Shapes) -> list[Part]:
    """The mirror image, with the weight gradients of experts and router.

    One operator makes both gradients of the experts, so that tokens go back after both.
    """
    m, s = shapes.model, shapes.setting
    first, second = shapes.experts
    permute = s.roofline.stream_seconds(shapes.width(2, m.hidden, shapes.routed))
    router = 2 * s.roofline.gemm_seconds(shapes.local, m.experts, m.hidden, s.beside)
    inputs = input_gradients(s.roofline, s.dtype, (*first, *second)) + _activation(shapes, 2)
    weights = weight_gradients(s.roofline, s.dtype, (*first, *second))
    return [
        kernel("unpermute backward", permute),
        exchange("combine gradient", "alltoall", EXPERT, shapes.dispatched),
        *_around(shapes, [kernel("experts dgrad", inputs)], " gradient"),
        kernel("experts wgrad", weights, weight=True),
        exchange("dispatch gradient", "alltoall", EXPERT, shapes.dispatched, blocks=False),
        kernel("router backward", router + permute, "dispatch gradient"),
    ]


def _around(shapes: Shapes, inside: list[Part], suffix: str) -> list[Part]:
    """Tensor parallelism of experts: tokens are gathered before and their sums scattered after."""
    if shapes.expert_split == 1:
        return inside
    nbytes = shapes.dispatched * shapes.expert_split
    return [
        exchange(f"expert tokens{suffix}", "all_gather", "tp", nbytes),
        *inside,
        exchange(f"expert outputs{suffix}", "reduce_scatter", "tp", nbytes),
    ]


def _activation(shapes: Shapes, times: int) -> float:
    """The function between the two products: reads both halves, writes one."""
    (one,), _ = shapes.experts
    return times * shapes.setting.roofline.stream_seconds(
        shapes.width(1.5, one.outputs, one.rows * one.batch)
    )


FP32 = 4
LOSS_PASSES = 6  # over fp32 logits: read, maximum, exponents, sum, gradient written
# What vocabulary-parallel cross entropy all-reduces: one fp32 number a token each.
LOSS_SUMS = ("maximum", "target logit", "sum of exponents")


def forward_embedding(shapes: Shapes) -> list[Part]:
    """Rows of a table whose vocabulary is divided: everyone adds what it has."""
    work = _moved_at_ends(shapes, 2, shapes.model.hidden * shapes.setting.element)
    op = "reduce_scatter" if shapes.setting.sequence_parallel else "all_reduce"
    return [kernel("embedding", work), exchange("embedding", op, "tp", shapes.message)]


def backward_embedding(shapes: Shapes) -> list[Part]:
    """The gradient is added to its rows."""
    work = _moved_at_ends(shapes, 3, shapes.model.hidden * shapes.setting.element)
    parts = [kernel("embedding wgrad", work)]
    if shapes.setting.sequence_parallel:
        parts.insert(0, exchange("embedding gradient", "all_gather", "tp", shapes.message))
    return parts


def forward_head(shapes: Shapes) -> list[Part]:
    """Logits and loss."""
    s = shapes.setting
    (logits,) = shapes.logits
    loss = _moved_at_ends(shapes, LOSS_PASSES / 2, logits.outputs * FP32)
    parts = [kernel("logits", forward(s.roofline, s.beside, shapes.logits) + loss)]
    if s.sequence_parallel:
        parts.insert(0, exchange("logits input", "all_gather", "tp", shapes.message))
    nbytes = shapes.tokens * FP32
    sums = [
        exchange(f"loss {name}", "all_reduce", "tp", nbytes, dtype="float") for name in LOSS_SUMS
    ]
    return [*parts, *sums]


def backward_head(shapes: Shapes) -> list[Part]:
    """Gradients of logits, of the head's input, of its weights."""
    s = shapes.setting
    (logits,) = shapes.logits
    loss = _moved_at_ends(shapes, LOSS_PASSES / 2, logits.outputs * FP32)
    op = "reduce_scatter" if s.sequence_parallel else "all_reduce"
    back = "logits input gradient"
    weights = weight_gradients(s.roofline, s.beside, shapes.logits)
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
    return shapes.setting.roofline.stream_seconds(passes * bytes_a_token * shapes.tokens)


ATTENTION_BACKWARD_FLOPS = 2.5  # FlashAttention recomputes the scores: five products for two
# Unfused, softmax and dropout each read and write all scores (backward softmax reads two), and
# dropout a mask of one byte.
SOFTMAX, SOFTMAX_BACKWARD, DROPOUT_MASK = 4, 5, 1


def forward_block(shapes: Shapes, layer: Layer) -> list[Part]:
    """A block forward."""
    return [*_attention_forward(shapes), *_mlp_forward(shapes, layer)]


def backward_block(shapes: Shapes, layer: Layer) -> list[Part]:
    """A block backward: the MLP, then attention."""
    again = []
    if shapes.setting.recompute == "selective":
        again = [kernel("attention again", _core_seconds(shapes))]
    return [*_mlp_backward(shapes, layer), *_attention_backward(shapes, again)]


def _core_seconds(shapes: Shapes, *, backward: bool = False) -> float:
    s = shapes.setting
    if s.attention == "unfused":
        return _unfused_seconds(shapes, backward=backward)
    flops = shapes.attention_flops * (ATTENTION_BACKWARD_FLOPS if backward else 1)
    return s.roofline.attention_seconds(flops, s.beside, backward=backward)


def _unfused_seconds(shapes: Shapes, *, backward: bool) -> float:
    """Scores, softmax, dropout and their use as kernels of their own: masked scores are computed,
    and every kernel reads and writes all of them. The products' own bytes are in their rooflines.
    """
    s, products = shapes.setting, shapes.scores
    if backward:
        work = input_gradients(s.roofline, s.beside, products)
        work += weight_gradients(s.roofline, s.beside, products)
    else:
        work = forward(s.roofline, s.beside, products)
    passes = SOFTMAX_BACKWARD if backward else SOFTMAX
    pairs = products[0].batch * products[0].rows * products[0].outputs
    return work + s.roofline.stream_seconds(pairs * (passes * s.element + DROPOUT_MASK), 2)


def _attention_forward(shapes: Shapes) -> list[Part]:
    m, s = shapes.model, shapes.setting
    passes = _elementwise(shapes)
    before = _moved_in_block(shapes, passes.norm, m.hidden, shapes.local)
    rotary = _moved_in_block(
        shapes, passes.rotary, shapes.query_width + shapes.kv_width, shapes.tokens
    )
    inside = [
        kernel("qkv", forward(s.roofline, s.dtype, shapes.attention_in) + rotary),
        *forward_core(shapes, _core_seconds(shapes)),
        kernel("proj", forward(s.roofline, s.dtype, shapes.attention_out)),
    ]
    return forward_half(
        kernel("norm", before), inside, shapes.message,
        sequence=s.sequence_parallel, what="attention",
    )  # fmt: skip


def _attention_backward(shapes: Shapes, again: list[Part]) -> list[Part]:
    m, s = shapes.model, shapes.setting
    passes = _elementwise(shapes)
    rotary = _moved_in_block(
        shapes, passes.rotary, shapes.query_width + shapes.kv_width, shapes.tokens
    )
    out = shapes.attention_out
    inside = [
        kernel("proj dgrad", input_gradients(s.roofline, s.dtype, out)),
        kernel("proj wgrad", weight_gradients(s.roofline, s.dtype, out), weight=True),
        *again,
        *backward_core(shapes, _core_seconds(shapes, backward=True)),
        kernel("qkv dgrad", input_gradients(s.roofline, s.dtype, shapes.attention_in) + rotary),
    ]
    return backward_half(
        inside,
        weight_gradients(s.roofline, s.dtype, shapes.attention_in),
        _moved_in_block(shapes, passes.norm_backward + RESIDUAL, m.hidden, shapes.local),
        shapes.message,
        sequence=s.sequence_parallel,
        what="attention",
    )


def _mlp_forward(shapes: Shapes, layer: Layer) -> list[Part]:
    m, s = shapes.model, shapes.setting
    # The sum of both branches is written, and read again by the norm.
    before = kernel(
        "norm",
        _moved_in_block(shapes, RESIDUAL + _elementwise(shapes).norm, m.hidden, shapes.local),
    )
    after = kernel("residual", _moved_in_block(shapes, RESIDUAL, m.hidden, shapes.local))
    if not layer.moe:
        return [*_dense_forward(shapes, m.ffn, before, "mlp"), after]
    shared = _dense_forward(shapes, m.shared_ffn, kernel("", 0.0), "shared") if m.shared_ffn else []
    del s
    return [before, *shared, *forward_experts(shapes), after]


def _dense_forward(shapes: Shapes, ffn: int, before: Part, what: str) -> list[Part]:
    s = shapes.setting
    products = (*shapes.mlp_in(ffn), *shapes.mlp_out(ffn))
    work = forward(s.roofline, s.dtype, products) + _function(shapes, ffn)
    return forward_half(
        before, [kernel(what, work)], shapes.message, sequence=s.sequence_parallel, what=what
    )


def _mlp_backward(shapes: Shapes, layer: Layer) -> list[Part]:
    m = shapes.model
    norm = _moved_in_block(
        shapes, _elementwise(shapes).norm_backward + RESIDUAL, m.hidden, shapes.local
    )
    if not layer.moe:
        return _dense_backward(shapes, m.ffn, norm, "mlp")
    shared = _dense_backward(shapes, m.shared_ffn, 0.0, "shared") if m.shared_ffn else []
    return [*backward_experts(shapes), *shared, kernel("norm backward", norm)]


def _dense_backward(shapes: Shapes, ffn: int, norm: float, what: str) -> list[Part]:
    s = shapes.setting
    first, second = shapes.mlp_in(ffn), shapes.mlp_out(ffn)
    inside = [
        kernel(f"{what} out dgrad", input_gradients(s.roofline, s.dtype, second)),
        kernel(f"{what} out wgrad", weight_gradients(s.roofline, s.dtype, second), weight=True),
        kernel(
            f"{what} in dgrad",
            input_gradients(s.roofline, s.dtype, first) + _function(shapes, ffn, backward=True),
        ),
    ]
    return backward_half(
        inside, weight_gradients(s.roofline, s.dtype, first), norm, shapes.message,
        sequence=s.sequence_parallel, what=what,
    )  # fmt: skip


def _function(shapes: Shapes, ffn: int, *, backward: bool = False) -> float:
    """The function between the products of an MLP: reads what the first wrote, writes its value."""
    passes = _elementwise(shapes)
    ahead, back = passes.plain, passes.plain_backward
    if shapes.model.gated:
        ahead, back = passes.gated, passes.gated_backward
    return _moved_in_block(shapes, back if backward else ahead, ffn // shapes.tp, shapes.tokens)


def _elementwise(shapes: Shapes) -> Elementwise:
    return elementwise_of(shapes.setting, gated=shapes.model.gated)


def _moved_in_block(shapes: Shapes, passes: float, features: int, tokens: int) -> float:
    return shapes.setting.roofline.stream_seconds(shapes.width(passes, features, tokens))


@dataclass(frozen=True)
class Passes:
    """The parts of one layer. `weights` are the kernels of backward that only gradients of weights
    need, apart from the rest (`inputs`), for pipelines that shift them.
    """

    forward: tuple[Part, ...]
    backward: tuple[Part, ...]
    inputs: tuple[Part, ...]
    weights: tuple[Part, ...]


@dataclass
class PassTable:
    """The passes of all layers of a setting, each found once; equal blocks share theirs."""

    setting: Setting
    known: dict[object, Passes] = field(default_factory=dict)

    def of(self, layer: Layer) -> Passes:
        """The passes of a layer; its times are the user's where they are given."""
        own = layer.kind == "plain" or layer.name in self.setting.layer_seconds
        key: object = layer.name if own else (layer.kind, layer.moe)
        if key not in self.known:
            self.known[key] = _passes(self.setting, layer)
        return self.known[key]


def _passes(setting: Setting, layer: Layer) -> Passes:
    ahead, back = _parts(setting, layer)
    measured = setting.layer_seconds.get(layer.name)
    if measured:
        ahead, back = _lasting(ahead, measured[0]), _lasting(back, measured[1])
    if setting.recompute == "full" and layer.kind != "embedding":
        back = [*_again(ahead), *back]
    weights = [replace(part, weight=False, needs=()) for part in back if part.weight]
    inputs = [part for part in back if not part.weight]
    whole = [replace(part, weight=False) for part in back]
    return Passes(merged(ahead), merged(whole), merged(inputs), merged(weights))


def _parts(setting: Setting, layer: Layer) -> tuple[list[Part], list[Part]]:
    if layer.kind == "plain" or not isinstance(setting.model, Transformer):
        return _plain(setting, layer)
    shapes = Shapes(setting.model, setting)
    if layer.kind == "embedding":
        return forward_embedding(shapes), backward_embedding(shapes)
    if layer.kind == "head":
        return forward_head(shapes), backward_head(shapes)
    return forward_block(shapes, layer), backward_block(shapes, layer)


def _plain(setting: Setting, layer: Layer) -> tuple[list[Part], list[Part]]:
    plain, samples = layer.plain, setting.micro
    moved = layer.parameters * setting.element + samples * (plain.activation + plain.output)
    ahead, back = plain.forward, plain.backward
    if ahead is None:
        ahead = setting.roofline.plain_seconds(plain.flops * samples, moved, setting.dtype)
    if back is None:
        flops = plain.backward_flops * samples
        back = setting.roofline.plain_seconds(flops, 2 * moved, setting.dtype)
    halves = (kernel("dgrad", back / 2), kernel("wgrad", back / 2, weight=True))
    return [kernel("forward", ahead)], list(halves)


def _lasting(parts: list[Part], seconds: float) -> list[Part]:
    """The same parts, with kernels that take so long together."""
    total = sum(part.seconds for part in parts)
    if not total:
        return parts
    return [replace(part, seconds=part.seconds * seconds / total) for part in parts]


def _again(parts: list[Part]) -> list[Part]:
    """A forward pass repeated within backward."""
    return [
        replace(
            part,
            name=f"{part.name} again",
            needs=tuple(f"{need} again" for need in part.needs),
        )
        for part in parts
    ]
