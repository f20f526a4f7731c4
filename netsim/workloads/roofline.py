"""How long kernels take: the roofline of a GPU, with what kernels of a shape reach of its peaks.

A matrix product is cut into tiles and waves of tiles over the SMs; what the last wave leaves idle
is lost. Everything else moves bytes through memory. Every kernel costs its gap on the stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

# Rows and columns of a thread block's tile, and what it reaches of the best tile's rate: a
# tile of a x b reads (a + b) / (a b) elements for each product, so small ones starve.
TILES = ((256, 128, 1.0), (128, 128, 0.92), (128, 64, 0.75), (64, 64, 0.55))
# The part of the dense peak that long matrix products reach. A100: 250-280 of 312 TFLOPS with
# cuBLAS. H100 and newer are held back by their power limit: 600-750 of 989.
GEMM_FRACTION = {"sm_70": 0.80, "sm_80": 0.85, "sm_90": 0.70, "sm_100": 0.72, "sm_103": 0.72}
GEMM_OTHER = 0.70
ONE_TILE_A_BLOCK = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89")  # before Hopper's TMA stores
# FlashAttention-2 reaches 0.73 of the peak of A100, version 3 0.65-0.75 of that of H100 forward;
# backward is about 0.8 of that (their papers' tables for head size 128).
ATTENTION_FRACTION = {"sm_80": 0.65, "sm_90": 0.60}
ATTENTION_OTHER = 0.50
ATTENTION_BACKWARD = 0.8
MEMORY_FRACTION = 0.85  # of HBM's rate, that long streaming kernels reach
KERNEL = 2.5e-6  # from kernel to kernel on a stream


@dataclass(frozen=True)
class Roofline:
    """One GPU: dense peaks by dtype (FLOP/s), memory bandwidth (bytes/s), SMs, what is reached.

    All figures can be replaced by the user's own. `stores_beside`: a block writes one tile of
    a product while it computes the next, as persistent kernels do; else it computes nothing then.
    """

    flops: Mapping[str, float]
    bandwidth: float
    sms: int
    gemm: float = GEMM_OTHER
    attention: float = ATTENTION_OTHER
    memory: float = MEMORY_FRACTION
    kernel: float = KERNEL
    element: int = field(default=2)
    stores_beside: bool = True

    def peak(self, dtype: str) -> float:
        """The dense peak for a data type, or for the one it would be computed in."""
        for name in (dtype, "half", "bfloat16", "float"):
            if name in self.flops:
                return self.flops[name]
        return max(self.flops.values())

    def gemm_seconds(
        self, m: int, n: int, k: int, dtype: str = "bfloat16", batch: int = 1
    ) -> float:
        """A product of m x k by k x n, or `batch` of them at once."""
        if min(m, n, k, batch) <= 0:
            return 0.0
        area = min(self._area(m, n, batch, *tile) for tile in TILES)
        work = 2.0 * area * k / (self.peak(dtype) * self.gemm)
        reached = self.bandwidth * self.memory
        read, written = (batch * many * self.element for many in (m * k + k * n, m * n))
        if not self.stores_beside:
            work += written / reached
        return max(work, (read + written) / reached) + self.kernel

    def _area(self, m: int, n: int, batch: int, rows: int, columns: int, part: float) -> float:
        """Elements of the result that full waves of tiles would have made in the same time."""
        tiles = ceil(m / rows) * ceil(n / columns) * batch
        waves = ceil(tiles / self.sms)
        return waves * self.sms * rows * columns / part

    def stream_seconds(self, nbytes: float, kernels: int = 1) -> float:
        """Kernels that only move bytes through memory."""
        if nbytes <= 0:
            return 0.0
        return nbytes / (self.bandwidth * self.memory) + kernels * self.kernel

    def attention_seconds(
        self, flops: float, dtype: str = "bfloat16", *, backward: bool = False
    ) -> float:
        """A fused attention kernel of so many FLOPs."""
        if flops <= 0:
            return 0.0
        part = self.attention * (ATTENTION_BACKWARD if backward else 1.0)
        return flops / (self.peak(dtype) * part) + self.kernel

    def plain_seconds(self, flops: float, moved: float, dtype: str = "bfloat16") -> float:
        """A layer of which only FLOPs and bytes are known."""
        rate = self.peak(dtype) * self.gemm
        return max(flops / rate, moved / (self.bandwidth * self.memory)) + self.kernel
