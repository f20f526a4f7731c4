"""The passes of a transformer's layers as parts, with the collectives that parallelism adds."""

from netsim.workloads.context import backward_core, forward_core
from netsim.workloads.elementwise import RESIDUAL, Elementwise, elementwise_of
from netsim.workloads.experts import backward_experts, forward_experts
from netsim.workloads.linear import forward, input_gradients, weight_gradients
from netsim.workloads.model import Layer
from netsim.workloads.parts import Part, kernel
from netsim.workloads.shapes import Shapes
from netsim.workloads.tensor import backward_half, forward_half

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
    return s.roofline.attention_seconds(flops, s.dtype, backward=backward)


def _unfused_seconds(shapes: Shapes, *, backward: bool) -> float:
    """Scores, softmax, dropout and their use as kernels of their own: masked scores are computed,
    and every kernel reads and writes all of them. The products' own bytes are in their rooflines.
    """
    s, products = shapes.setting, shapes.scores
    if backward:
        work = input_gradients(s.roofline, s.dtype, products)
        work += weight_gradients(s.roofline, s.dtype, products)
    else:
        work = forward(s.roofline, s.dtype, products)
    passes = SOFTMAX_BACKWARD if backward else SOFTMAX
    pairs = products[0].batch * products[0].rows * products[0].outputs
    return work + s.roofline.stream_seconds(pairs * (passes * s.element + DROPOUT_MASK), 2)


def _attention_forward(shapes: Shapes) -> list[Part]:
    m, s = shapes.model, shapes.setting
    passes = _passes(shapes)
    before = _moved(shapes, passes.norm, m.hidden, shapes.local)
    rotary = _moved(shapes, passes.rotary, shapes.query_width + shapes.kv_width, shapes.tokens)
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
    passes = _passes(shapes)
    rotary = _moved(shapes, passes.rotary, shapes.query_width + shapes.kv_width, shapes.tokens)
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
        _moved(shapes, passes.norm_backward + RESIDUAL, m.hidden, shapes.local),
        shapes.message,
        sequence=s.sequence_parallel,
        what="attention",
    )


def _mlp_forward(shapes: Shapes, layer: Layer) -> list[Part]:
    m, s = shapes.model, shapes.setting
    # The sum of both branches is written, and read again by the norm.
    before = kernel("norm", _moved(shapes, RESIDUAL + _passes(shapes).norm, m.hidden, shapes.local))
    after = kernel("residual", _moved(shapes, RESIDUAL, m.hidden, shapes.local))
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
    norm = _moved(shapes, _passes(shapes).norm_backward + RESIDUAL, m.hidden, shapes.local)
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
    passes = _passes(shapes)
    ahead, back = passes.plain, passes.plain_backward
    if shapes.model.gated:
        ahead, back = passes.gated, passes.gated_backward
    return _moved(shapes, back if backward else ahead, ffn // shapes.tp, shapes.tokens)


def _passes(shapes: Shapes) -> Elementwise:
    return elementwise_of(shapes.setting, gated=shapes.model.gated)


def _moved(shapes: Shapes, passes: float, features: int, tokens: int) -> float:
    return shapes.setting.roofline.stream_seconds(shapes.width(passes, features, tokens))
