"""What comes before and after the blocks: vocabulary-parallel embedding, logits and loss."""

from netsim.workloads.linear import forward, input_gradients, weight_gradients
from netsim.workloads.parts import Part, exchange, kernel
from netsim.workloads.shapes import Shapes

FP32 = 4
LOSS_PASSES = 6  # over fp32 logits: read, maximum, exponents, sum, gradient written
# What vocabulary-parallel cross entropy all-reduces: one fp32 number a token each.
LOSS_SUMS = ("maximum", "target logit", "sum of exponents")


def forward_embedding(shapes: Shapes) -> list[Part]:
    """Rows of a table whose vocabulary is divided: everyone adds what it has."""
    work = _moved(shapes, 2, shapes.model.hidden * shapes.setting.element)
    op = "reduce_scatter" if shapes.setting.sequence_parallel else "all_reduce"
    return [kernel("embedding", work), exchange("embedding", op, "tp", shapes.message)]


def backward_embedding(shapes: Shapes) -> list[Part]:
    """The gradient is added to its rows."""
    work = _moved(shapes, 3, shapes.model.hidden * shapes.setting.element)
    parts = [kernel("embedding wgrad", work)]
    if shapes.setting.sequence_parallel:
        parts.insert(0, exchange("embedding gradient", "all_gather", "tp", shapes.message))
    return parts


def forward_head(shapes: Shapes) -> list[Part]:
    """Logits and loss."""
    s = shapes.setting
    (logits,) = shapes.logits
    loss = _moved(shapes, LOSS_PASSES / 2, logits.outputs * FP32)
    parts = [kernel("logits", forward(s.roofline, s.dtype, shapes.logits) + loss)]
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
    loss = _moved(shapes, LOSS_PASSES / 2, logits.outputs * FP32)
    op = "reduce_scatter" if s.sequence_parallel else "all_reduce"
    back = "logits input gradient"
    weights = weight_gradients(s.roofline, s.dtype, shapes.logits)
    norm = _moved(shapes, 3, shapes.model.hidden * s.element * shapes.local / max(shapes.tokens, 1))
    return [
        kernel("logits dgrad", loss + input_gradients(s.roofline, s.dtype, shapes.logits)),
        exchange(back, op, "tp", shapes.message, blocks=False),
        kernel("logits wgrad", weights, weight=True),
        kernel("norm backward", norm, back),
    ]


def _moved(shapes: Shapes, passes: float, bytes_a_token: float) -> float:
    return shapes.setting.roofline.stream_seconds(passes * bytes_a_token * shapes.tokens)
