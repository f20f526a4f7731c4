"""Matrix products of layers, forward and backward, and how long each takes on a roofline."""

from collections.abc import Iterable
from dataclasses import dataclass

from netsim.workloads.roofline import Roofline


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer on one rank: `rows` tokens, `inputs` and `outputs` features, `batch` of it."""

    rows: int
    inputs: int
    outputs: int
    batch: int = 1

    @property
    def flops(self) -> float:
        """FLOPs of the forward pass; each of the two products of backward has as many."""
        return 2.0 * self.rows * self.inputs * self.outputs * self.batch


def forward(roofline: Roofline, dtype: str, layers: Iterable[Linear]) -> float:
    """Seconds of the forward products."""
    return sum(
        roofline.gemm_seconds(one.rows, one.outputs, one.inputs, dtype, one.batch) for one in layers
    )


def input_gradients(roofline: Roofline, dtype: str, layers: Iterable[Linear]) -> float:
    """Seconds of the products that make gradients of inputs."""
    return sum(
        roofline.gemm_seconds(one.rows, one.inputs, one.outputs, dtype, one.batch) for one in layers
    )


def weight_gradients(roofline: Roofline, dtype: str, layers: Iterable[Linear]) -> float:
    """Seconds of the products that make gradients of weights."""
    return sum(
        roofline.gemm_seconds(one.inputs, one.outputs, one.rows, dtype, one.batch) for one in layers
    )
