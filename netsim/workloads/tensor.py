"""Tensor parallelism after Megatron: what column- and row-parallel products exchange, and when.

Without sequence parallelism the output of a row-parallel product is all-reduced forward, and the
input gradient of a column-parallel one backward. With it, the same bytes are gathered before the
column-parallel product and scattered after the row-parallel one, and gathered once more backward.
"""

from collections.abc import Sequence

from netsim.workloads.parts import Part, exchange, kernel

AXIS = "tp"


def forward_half(
    before: Part, inside: Sequence[Part], nbytes: int, *, sequence: bool, what: str
) -> list[Part]:
    """A column-parallel product to a row-parallel one, with what comes before on whole tokens."""
    if not sequence:
        return [before, *inside, exchange(f"{what} output", "all_reduce", AXIS, nbytes)]
    return [
        before,
        exchange(f"{what} input", "all_gather", AXIS, nbytes),
        *inside,
        exchange(f"{what} output", "reduce_scatter", AXIS, nbytes),
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
        reduce = exchange(back, "all_reduce", AXIS, nbytes, blocks=False)
        return [*inside, reduce, weight, norm]
    return [
        exchange(f"{what} output gradient", "all_gather", AXIS, nbytes),
        *inside[:-1],
        exchange(again, "all_gather", AXIS, nbytes, blocks=False),
        inside[-1],
        exchange(back, "reduce_scatter", AXIS, nbytes, blocks=False),
        weight,
        norm,
    ]
