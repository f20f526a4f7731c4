"""Mixture of experts: tokens go to the ranks of their experts and come back."""

from netsim.workloads.linear import forward, input_gradients, weight_gradients
from netsim.workloads.parts import Part, exchange, kernel
from netsim.workloads.shapes import Shapes

AXIS = "ep"
COUNT_BYTES = 8  # of the number of tokens that one rank has for one expert


def forward_experts(shapes: Shapes) -> list[Part]:
    """Router, dispatch, the experts' products, combine."""
    m, s = shapes.model, shapes.setting
    first, second = shapes.experts
    router = s.roofline.gemm_seconds(shapes.local, m.experts, m.hidden, s.dtype)
    permute = s.roofline.stream_seconds(shapes.width(2, m.hidden, shapes.routed))
    work = forward(s.roofline, s.dtype, (*first, *second)) + _activation(shapes, 1)
    return [
        kernel("router", router + permute),
        exchange("token counts", "all_gather", AXIS, m.experts * COUNT_BYTES * s.degree(AXIS)),
        exchange("dispatch", "alltoall", AXIS, shapes.dispatched),
        *_around(shapes, [kernel("experts", work)], ""),
        exchange("combine", "alltoall", AXIS, shapes.dispatched),
        kernel("unpermute", permute),
    ]


def backward_experts(shapes: Shapes) -> list[Part]:
    """The mirror image, with the weight gradients of experts and router.

    One operator makes both gradients of the experts, so that tokens go back after both.
    """
    m, s = shapes.model, shapes.setting
    first, second = shapes.experts
    permute = s.roofline.stream_seconds(shapes.width(2, m.hidden, shapes.routed))
    router = 2 * s.roofline.gemm_seconds(shapes.local, m.experts, m.hidden, s.dtype)
    inputs = input_gradients(s.roofline, s.dtype, (*first, *second)) + _activation(shapes, 2)
    weights = weight_gradients(s.roofline, s.dtype, (*first, *second))
    return [
        kernel("unpermute backward", permute),
        exchange("combine gradient", "alltoall", AXIS, shapes.dispatched),
        *_around(shapes, [kernel("experts dgrad", inputs)], " gradient"),
        kernel("experts wgrad", weights, weight=True),
        exchange("dispatch gradient", "alltoall", AXIS, shapes.dispatched, blocks=False),
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
