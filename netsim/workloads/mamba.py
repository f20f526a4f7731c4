"""The kernels of Mamba-2 layers between their two products (Dao and Gu 2024, "Transformers are
SSMs").

A layer's first product makes the gate, the input of each head, two vectors of the state's size
for each group of heads, and a step size for each head. A causal convolution over a few tokens and
a scan along the sequence follow, then a norm, and a second product.

The scan runs in chunks of the sequence (state space duality), in the Triton kernels of the package
mamba_ssm (mamba_ssm/ops/triton/ssd_combined.py), which Megatron calls. Inside a chunk it is a
product of scores, decay and inputs, as in attention; chunks are connected by their states, which
are stored in fp32. `_Scan` has a method for each kernel, with the FLOPs and the bytes that it moves
for a token. Parts of tensors that fit into L2 count once.

These kernels have not been measured alone. They are taken to compute at the fraction `scan.rate` of
the rate of fused attention, and to move bytes at that fraction of the rate of streams, whichever
takes longer; nearly all of them are bound by memory. The fraction is known from published steps of
one model on one generation.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from netsim.workloads.kernels import FP32, Shapes
from netsim.workloads.model import Mamba

NORM = 2  # passes of the norm after the scan: read, written
NORM_BACKWARD = 3  # output and its gradient are read, the gradient of the input is written


@dataclass(frozen=True)
class ScanKernel:
    """FLOPs and bytes of a kernel for one token."""

    flops: float
    moved: float


@dataclass(frozen=True)
class _Scan:
    """The kernels of one rank's part of a layer.

    - `inner`: features of all heads; `vectors`: features of one of the two vectors of all groups.
    - `states`: elements of the states of all heads, for each token of a chunk.
    - `heads`, `groups`, `state`, `chunk`, `element`: heads, groups of heads, features of a state,
      tokens of a chunk, and bytes of an activation.
    """

    inner: int
    vectors: int
    states: float
    heads: int
    groups: int
    state: int
    chunk: int
    element: int

    @property
    def convolved(self) -> int:
        """The features that the convolution reads and writes."""
        return self.inner + 2 * self.vectors

    @property
    def scores(self) -> float:
        """The bytes of a chunk's scores for each token, in fp32."""
        return FP32 * self.groups * self.chunk

    @property
    def through_states(self) -> float:
        """The FLOPs of one product between the features of all heads and a state."""
        return 2.0 * self.inner * self.state

    @property
    def inside_chunks(self) -> float:
        """The FLOPs of one product between the features of all heads and the tokens of a chunk."""
        return 2.0 * self.inner * self.chunk

    @property
    def of_groups(self) -> float:
        """The FLOPs of one product between the vectors of groups and the tokens of a chunk."""
        return 2.0 * self.vectors * self.chunk

    def _features(self, inner: float = 0, vectors: float = 0) -> float:
        """The bytes of features of all heads and of vectors, in 16 bits."""
        return self.element * (inner * self.inner + vectors * self.vectors)

    def convolution(self) -> ScanKernel:
        """The causal convolution: read, written."""
        return ScanKernel(0.0, 2 * self.element * self.convolved)

    def step_sizes(self) -> ScanKernel:
        """The step sizes and the sums of their logarithms, in fp32."""
        return ScanKernel(0.0, self.heads * (self.element + 2 * FP32))

    def chunk_states(self) -> ScanKernel:
        """What each chunk adds to the states."""
        return ScanKernel(self.through_states, self._features(1, 1) + FP32 * self.states)

    def passed_states(self, written: int) -> ScanKernel:
        """The states from chunk to chunk, written in `written` bytes an element."""
        return ScanKernel(0.0, (FP32 + written) * self.states)

    def chunk_scores(self) -> ScanKernel:
        """The products of the two vectors of all pairs of tokens in a chunk."""
        return ScanKernel(self.of_groups, self._features(0, 2) + self.scores)

    def outputs(self) -> ScanKernel:
        """The outputs of the scan, with and without their gate."""
        moved = self._features(4, 1) + self.element * self.states + self.scores
        return ScanKernel(self.through_states + self.inside_chunks, moved)

    def norm(self, passes: int) -> ScanKernel:
        """The norm of the outputs."""
        return ScanKernel(0.0, self._features(passes))

    def forward(self) -> list[ScanKernel]:
        """The kernels of the forward pass."""
        return [
            self.convolution(),
            self.step_sizes(),
            self.chunk_states(),
            self.passed_states(self.element),
            self.chunk_scores(),
            self.outputs(),
            self.norm(NORM),
        ]

    def backward(self) -> list[ScanKernel]:
        """The kernels of the backward pass.

        Convolution, states and scores are made again. A kernel each makes the gradients of the
        gate, of the states, of the states from chunk to chunk, of the inputs, of both vectors
        through the states, of the scores, of both vectors through the scores, and of the decay.
        """
        states = self.element * self.states
        vector_gradient = FP32 * self.vectors
        return [
            self.norm(NORM_BACKWARD),
            self.convolution(),
            self.step_sizes(),
            self.chunk_scores(),
            self.chunk_states(),
            self.passed_states(FP32),
            ScanKernel(0.0, self._features(6)),
            ScanKernel(self.through_states, self._features(1, 1) + FP32 * self.states),
            ScanKernel(0.0, 2 * FP32 * self.states + 2 * states),
            ScanKernel(
                self.through_states + self.inside_chunks,
                self._features(3, 1) + states + self.scores,
            ),
            ScanKernel(self.through_states, self._features(1, 1) + states + vector_gradient),
            ScanKernel(self.through_states, self._features(1, 1) + states + vector_gradient),
            ScanKernel(self.inside_chunks, self._features(2) + self.scores),
            ScanKernel(self.of_groups, self.scores + self._features(0, 2) + vector_gradient),
            ScanKernel(self.of_groups, self.scores + self._features(0, 2) + vector_gradient),
            ScanKernel(self.inside_chunks, self._features(2) + self.scores),
            self.step_sizes(),
            ScanKernel(0.0, 3 * self.element * self.convolved),
        ]


def _scan(shapes: Shapes, mamba: Mamba) -> _Scan:
    """The kernels of one rank."""
    heads = mamba.heads // shapes.tp
    groups = max(1, mamba.groups // shapes.tp)
    inner = heads * mamba.head
    return _Scan(
        inner=inner,
        vectors=groups * mamba.state,
        states=inner * mamba.state / mamba.chunk,
        heads=heads,
        groups=groups,
        state=mamba.state,
        chunk=mamba.chunk,
        element=shapes.setting.element,
    )


def _seconds(shapes: Shapes, kernels: Iterable[ScanKernel]) -> float:
    """The seconds of kernels on one rank."""
    s = shapes.setting
    return sum(
        s.roofline.scan_seconds(
            kernel.flops * shapes.tokens, kernel.moved * shapes.tokens, s.beside
        )
        for kernel in kernels
    )


def _moved_around(shapes: Shapes, features: int) -> float:
    """The seconds of copies between the layouts of Megatron, which has tokens first, and of the
    scan, which has samples first; a micro-batch of one sample needs none.
    """
    if shapes.setting.micro == 1:
        return 0.0
    return shapes.setting.roofline.stream_seconds(shapes.width(2, features, shapes.tokens))


def mixed_seconds(shapes: Shapes, mamba: Mamba, *, backward: bool = False) -> float:
    """The seconds of all kernels between the two products of a layer."""
    scan = _scan(shapes, mamba)
    kernels = scan.backward() if backward else scan.forward()
    copies = _moved_around(shapes, mamba.projected // shapes.tp) + _moved_around(shapes, scan.inner)
    return copies + _seconds(shapes, kernels)
