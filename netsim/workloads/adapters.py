"""What adapters of low rank (LoRA) add to the passes of a block whose own weights are frozen.

An adapter is two thin products: one makes `rank` features of a layer's input, and one makes the
layer's output of these, which is scaled and added to that of the frozen product. Both run in 16
bits. Tensor parallelism divides both matrices as Megatron-Bridge does (`ParallelLinearAdapter` of
its src/megatron/bridge/peft/utils.py):

- Beside a product whose outputs are divided, each rank makes a part of the `rank` features, which
  are gathered; the result is divided as that of the product is. Gradients of the input are summed
  over the ranks, separately from those of the frozen product, unless sequence parallelism gathers
  the input for both. It does not do so if products run in parts (`tensor_overlap: pipelined`): then
  the adapter gathers its input by itself.
- Beside a product whose inputs are divided, the `rank` features are summed over the ranks. Each
  rank makes a part of the outputs, which are gathered; with sequence parallelism each rank then
  keeps its tokens of them, and the gradients of all tokens are gathered in the backward pass.
"""

from netsim.workloads.kernels import (
    RESIDUAL,
    LinearLayer,
    Shapes,
    forward,
    input_gradients,
    weight_gradients,
)
from netsim.workloads.model import ADAPTED, adapted_widths
from netsim.workloads.parts import PassPart, exchange, kernel
from netsim.workloads.setting import Setting

TENSOR = "tp"
SCALED = 2  # passes of the kernel that scales the result of an adapter: read and written


def is_adapted(setting: Setting, target: str) -> bool:
    """Whether a linear layer of each block, such as `linear_qkv`, has an adapter."""
    return setting.adapters is not None and target in setting.adapters.targets


def _products(shapes: Shapes, target: str) -> tuple[LinearLayer, LinearLayer]:
    """The two products of an adapter on one rank."""
    adapters = shapes.setting.adapters
    assert adapters is not None
    inputs, outputs = adapted_widths(shapes.model, target)
    rank = adapters.rank
    tp = shapes.tp
    if ADAPTED[target][1]:
        first = LinearLayer(shapes.tokens, inputs // tp, rank)
    else:
        first = LinearLayer(shapes.tokens, inputs, -(-rank // tp))
    return first, LinearLayer(shapes.tokens, rank, outputs // tp)


def _gathers_its_input(setting: Setting) -> bool:
    """Whether an adapter beside a product with divided outputs gathers its input by itself."""
    return setting.sequence_parallel and setting.tensor_overlap == "pipelined"


def _added_seconds(shapes: Shapes, passes: float, features: int, tokens: int) -> float:
    """The seconds of scaling or adding `features` features of `tokens` tokens."""
    return shapes.setting.roofline.stream_seconds(shapes.width(passes, features, tokens))


def adapter_forward(shapes: Shapes, target: str) -> list[PassPart]:
    """The forward pass of the adapter of a linear layer; empty if it has none."""
    s = shapes.setting
    if not is_adapted(s, target):
        return []
    name, is_divided = ADAPTED[target]
    first, second = _products(shapes, target)
    rank_bytes = shapes.tokens * second.inputs * s.element
    parts: list[PassPart] = []
    if not is_divided and _gathers_its_input(s):
        parts.append(exchange(f"{name} input", "all_gather", TENSOR, shapes.message))
    parts.append(kernel(f"{name} in", forward(s.roofline, s.beside, (first,))))
    together = "all_reduce" if is_divided else "all_gather"
    parts.append(exchange(f"{name} features", together, TENSOR, rank_bytes))
    parts.append(kernel(f"{name} out", forward(s.roofline, s.beside, (second,))))
    if is_divided:
        parts.append(exchange(f"{name} output", "all_gather", TENSOR, shapes.message))
        added = _added_seconds(shapes, SCALED, shapes.model.hidden, shapes.local)
        added += _added_seconds(shapes, RESIDUAL, shapes.model.hidden, shapes.local)
    else:
        added = _added_seconds(shapes, SCALED, second.outputs, shapes.tokens)
        added += _added_seconds(shapes, RESIDUAL, second.outputs, shapes.tokens)
    return [*parts, kernel(f"{name} sum", added)]


def adapter_backward(shapes: Shapes, target: str) -> list[PassPart]:
    """The backward pass of the adapter of a linear layer; empty if it has none."""
    s = shapes.setting
    if not is_adapted(s, target):
        return []
    name, is_divided = ADAPTED[target]
    first, second = _products(shapes, target)
    rank_bytes = shapes.tokens * second.inputs * s.element
    outputs, rows = second.outputs, shapes.tokens
    parts: list[PassPart] = []
    if is_divided:
        outputs, rows = shapes.model.hidden, shapes.local
        if s.sequence_parallel:
            parts.append(exchange(f"{name} output gradient", "all_gather", TENSOR, shapes.message))
    seconds = input_gradients(s.roofline, s.beside, (second,))
    seconds += _added_seconds(shapes, SCALED, outputs, rows)
    parts += [
        kernel(f"{name} out dgrad", seconds),
        kernel(
            f"{name} out wgrad",
            weight_gradients(s.roofline, s.beside, (second,), s.added),
            weight=True,
        ),
        exchange(f"{name} feature gradients", "all_reduce", TENSOR, rank_bytes),
        kernel(f"{name} in dgrad", input_gradients(s.roofline, s.beside, (first,))),
    ]
    tokens = shapes.tokens
    if not is_divided and _gathers_its_input(s):
        tokens = shapes.local
        parts.append(exchange(f"{name} input gradient", "reduce_scatter", TENSOR, shapes.message))
    elif not is_divided and not s.sequence_parallel:
        parts.append(exchange(f"{name} input gradient", "all_reduce", TENSOR, shapes.message))
    return [
        *parts,
        kernel(
            f"{name} in wgrad",
            weight_gradients(s.roofline, s.beside, (first,), s.added),
            weight=True,
        ),
        kernel(f"{name} gradient sum", _added_seconds(shapes, RESIDUAL, first.inputs, tokens)),
    ]
