"""Kernels between products: how often each goes over the features of a token, fused or not.

A pass reads or writes one activation. Fused kernels read their inputs and write their results once.
Run op by op (`eager`), RMSNorm converts to fp32, squares, averages, scales, converts back and
multiplies by its weight, each in a kernel of its own, and so do rotary embeddings and SwiGLU.
LayerNorm and GELU are one kernel each in either case.
"""

from dataclasses import dataclass

from netsim.workloads.setting import Setting

RESIDUAL = 3  # two in, their sum out


@dataclass(frozen=True)
class Elementwise:
    """Passes of each kind of kernel, forward and backward."""

    norm: float = 2
    norm_backward: float = 2
    rotary: float = 2
    gated: float = 3
    gated_backward: float = 6
    plain: float = 2
    plain_backward: float = 4


FUSED = Elementwise()
# RMSNorm in bytes a feature: to fp32 6, square 8, mean 4, scale 8, from fp32 6, weight 4; its
# autograd: weight 12, conversion 6, scale and its sum 20, square 20, sum 12, conversion 6; saved
# inputs are read again by each. Rotary: two products, half turned (negate, join), sum.
# SwiGLU: sigmoid's product 2, product 3; backward two products and the function's own, 3 each.
EAGER = Elementwise(norm=18, norm_backward=38, rotary=10, gated=5, gated_backward=9)


def elementwise_of(setting: Setting, *, gated: bool) -> Elementwise:
    """The passes of a setting's kernels; models with gated MLPs are those with RMSNorm."""
    return EAGER if setting.elementwise == "eager" and gated else FUSED
