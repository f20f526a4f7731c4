"""A Setting: a training step with every option resolved, its grid of ranks, its rooflines."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import accumulate, pairwise
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from netsim.base.constants import value
from netsim.base.values import dataclass
from netsim.workloads.model import Layer, Model, Transformer, layers_of

AXES = ("tp", "cp", "ep", "dp", "pp")
Ranks = NDArray[np.int32]


@dataclass(frozen=True)
class Grid:
    """The degrees of all axes, and their order: neighbors along the first axis have consecutive
    ranks.
    """

    degrees: Mapping[str, int]
    order: tuple[str, ...] = AXES

    @property
    def size(self) -> int:
        """The number of ranks."""
        return int(np.prod([self.degrees[axis] for axis in AXES]))

    @cached_property
    def _ranks(self) -> Ranks:
        shape = [self.degrees[axis] for axis in reversed(self.order)]
        return np.arange(self.size, dtype=np.int32).reshape(shape)

    def groups(self, axes: Sequence[str], stage: int | None = None) -> Ranks:
        """Return the groups of ranks that vary along some axes (of one stage, if given), in
        ascending order.
        """
        ranks = self._ranks
        names = list(reversed(self.order))
        if stage is not None:
            ranks = np.take(ranks, [stage], axis=names.index("pp"))
        inside = [place for place, axis in enumerate(names) if axis in axes]
        outside = [place for place, axis in enumerate(names) if axis not in axes]
        width = int(np.prod([ranks.shape[place] for place in inside]))
        return np.ascontiguousarray(ranks.transpose(*outside, *inside).reshape(-1, width))

    def stage(self, number: int) -> Ranks:
        """Return the ranks of one pipeline stage in ascending order."""
        return np.sort(self.groups([axis for axis in AXES if axis != "pp"], number).reshape(-1))

    @cached_property
    def stages(self) -> list[int]:
        """The pipeline stage of every rank."""
        place = self.order[::-1].index("pp")
        stages: list[int] = np.indices(self._ranks.shape)[place].ravel().tolist()
        return stages

    def pairs(self, source: int, target: int) -> Ranks:
        """Return (sender, receiver) pairs between two pipeline stages, one per row."""
        names = list(reversed(self.order))
        place = names.index("pp")
        sides = [np.take(self._ranks, stage, axis=place).reshape(-1) for stage in (source, target)]
        return np.stack(sides, axis=1)


# Times of kernels on the roofline of a GPU. A matrix product is divided into tiles, which the SMs
# compute in waves; SMs that are idle in the last wave are lost. Other kernels move bytes through
# memory. Every kernel costs the gap between kernels.


# Rows and columns of a thread block's tile (or exchanged), and its rate relative to the best tile:
# a tile of a x b reads (a + b) / (a b) elements per product, so small tiles lack bandwidth.
TILES = (
    (256, 128, 1.0), (192, 128, 0.97), (128, 128, 0.92), (256, 64, 0.85), (128, 64, 0.75),
    (64, 64, 0.55),
)  # fmt: skip
SPLITS = (1, 2, 3, 4, 6, 8)  # blocks that share the K of a tile
LEAST_K = 256  # least K of such a block
PARTIAL = 4  # bytes of an element of the partial sums of such blocks
ONE_TILE_A_BLOCK = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89")  # before Hopper's TMA stores
# Bytes of an element that a product reads, including its scale factor; the result is wider.
NARROW = {"fp8": 1.0, "mxfp8": 33 / 32, "nvfp4": 9 / 16}
HEAD_WIDTH = 2 * 128  # features of a key and a value for which rates of attention hold
BLOCK = 128  # rows and keys of a tile of fused attention; tiles on the diagonal are masked


@dataclass(frozen=True)
class Roofline:
    """One kind of GPU: its peaks, and the fractions of them that kernels reach.

    Args:
        flops: dense peaks by data type, FLOP/s.
        bandwidth: memory bandwidth, bytes/s.
        gemm: fraction of the peak that large products reach.
        narrow: the same by narrow data type.
        attention: the same of attention, forward and backward, with a head of 128 features and long
            sequences.
        memory: fraction of the memory bandwidth.
        routed: factor on it for tokens that are routed to experts.
        kernel: seconds between kernels.
        element: bytes of an element.
        exponents: fraction of attention's time that is exponentials, independent of the head's
            size.
        unhidden: fraction of a product's result that is written while nothing is computed; 1 unless
            blocks compute the next tile meanwhile.
    """

    flops: Mapping[str, float]
    bandwidth: float
    sms: int
    gemm: float = value("gemm.other")
    narrow: Mapping[str, float] = field(default_factory=dict)
    attention: tuple[float, float] = (value("attention.other"), value("attention.other.backward"))
    memory: float = value("memory.usable")
    routed: float = value("memory.routed")
    kernel: float = value("kernel.gap")
    element: int = field(default=2)
    exponents: float = 0.0
    unhidden: float = value("gemm.unhidden")

    def peak(self, dtype: str) -> float:
        """Return the dense peak in FLOP/s for a data type, or for the type that replaces it."""
        for name in (dtype, "half", "bfloat16", "float"):
            if name in self.flops:
                return self.flops[name]
        return max(self.flops.values())

    def rate(self, dtype: str) -> float:
        """Return the FLOP/s that large products of a data type reach."""
        part = self.narrow.get(dtype, self.gemm) if dtype in self.flops else self.gemm
        return self.peak(dtype) * part

    def gemm_seconds(
        self,
        m: int,
        n: int,
        k: int,
        dtype: str = "bfloat16",
        batch: int = 1,
        result: float | None = None,
    ) -> float:
        """Return the seconds of a product of m x k by k x n, or of `batch` of them.

        `result` is set if the result is added to memory: the bytes that an element then moves.
        """
        if min(m, n, k, batch) <= 0:
            return 0.0
        element = NARROW.get(dtype, self.element) if dtype in self.flops else self.element
        reached = self.bandwidth * self.memory
        work = min(
            self._blocks_seconds(m, n, k, batch, split, self.rate(dtype))
            for split in SPLITS
            if split == 1 or k >= split * LEAST_K
        )
        read = batch * (m * k + k * n) * element
        written = batch * m * n * self.element
        if result is not None:  # the result is read first, which nothing hides
            written = 0
            work += batch * m * n * result / reached
        work += self.unhidden * written / reached
        return max(work, (read + written) / reached) + self.kernel

    def _blocks_seconds(self, m: int, n: int, k: int, batch: int, split: int, rate: float) -> float:
        """Seconds of full waves of tiles of the best shape.

        `split` blocks share the K of a tile, and then add up their results.
        """
        ways = ((way, part) for *tile, part in TILES for way in (tile, tile[::-1]))
        area = min(
            ceil(ceil(m / rows) * ceil(n / columns) * batch * split / self.sms)
            * rows
            * columns
            / part
            for (rows, columns), part in ways
        )
        added = batch * m * n * split * PARTIAL if split > 1 else 0
        seconds = 2.0 * area * self.sms * ceil(k / split) / rate
        return seconds + added / (self.bandwidth * self.memory)

    def stream_seconds(self, nbytes: float, kernels: int = 1, *, routed: bool = False) -> float:
        """Return the seconds of kernels that only move bytes through memory.

        Rows that are `routed` to experts are read by index, and each expert's are a tensor of its
        own.
        """
        if nbytes <= 0:
            return 0.0
        part = self.memory * (self.routed if routed else 1.0)
        return nbytes / (self.bandwidth * part) + kernels * self.kernel

    def attention_seconds(
        self,
        flops: float,
        dtype: str = "bfloat16",
        *,
        width: float = HEAD_WIDTH,
        keys: float = inf,
        backward: bool = False,
    ) -> float:
        """Return the seconds of a fused attention kernel.

        `width` is the features of a key and a value together. What blocks do before and after their
        loop over keys takes the time of a constant number of additional keys.
        """
        if flops <= 0:
            return 0.0
        more = value("attention.keys.backward" if backward else "attention.keys") / keys
        scores = 1 - self.exponents + self.exponents * HEAD_WIDTH / width
        return (
            flops * scores * (1 + more) / (self.peak(dtype) * self.attention[backward])
            + self.kernel
        )

    def plain_seconds(self, flops: float, moved: float, dtype: str) -> float:
        """Return the seconds of a layer of which only FLOPs and bytes are known."""
        return max(flops / self.rate(dtype), moved / (self.bandwidth * self.memory)) + self.kernel


@dataclass(frozen=True)
class GpuKinds:
    """The kinds of GPU of a cluster whose machines differ.

    `rooflines[k]` is the roofline of kind k, `of_rank[r]` the kind of the GPU of rank r. All ranks
    run the same kernels in the same data types; only how long these take differs.
    """

    rooflines: tuple[Roofline, ...]
    of_rank: tuple[int, ...]

    def ranks_of_kind(self) -> list[int]:
        """The number of ranks of every kind."""
        return [self.of_rank.count(kind) for kind in range(len(self.rooflines))]


ELEMENT = {"float": 4, "half": 2, "bfloat16": 2}
# TF32 and types of less than 16 bits are types of products only. In memory and in messages data is
# wider, except for inputs of products and gathered weights that were cast before.
STORED = {"tf32": "float", **dict.fromkeys(NARROW, "bfloat16")}
CAST = {"fp8": "f8e4m3", "mxfp8": "f8e4m3", "nvfp4": "f8e4m3"}
SIZES = {**ELEMENT, "f8e4m3": 1}


@dataclass(frozen=True)
class ExtraCollective:
    """A small collective of real steps: its axes, its size in bytes, and when it runs."""

    name: str
    collective: str
    axes: tuple[str, ...]
    nbytes: int
    when: str
    dtype: str = "float"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All that a step depends on besides its cluster; every option is resolved.

    Args:
        roofline: roofline of every GPU, or of the slowest kind.
        batch: samples (sequences) of one step of the job.
        micro: samples of one micro-batch of one rank.
        sequence: tokens of a sequence.
        data: kind of data parallelism.
        blocking_sends: whether later passes wait for sends; None: only those in the same direction.
        apart: whether products of the same input are separate kernels.
        joined: GPUs that NVLink joins.
        bucket: bytes of a bucket of gradients.
        shard_bucket: bytes of buckets of ZeRO and Megatron; 0 for the frameworks' default.
        islands: replicas of an island exchange gradients each step, islands their weights each
            `sync_every` steps.
        launch: seconds that the host takes to launch a kernel.
        wait: seconds that the GPU waits if the host needs numbers from it.
        connections: hardware queues; with one, nothing starts before what was launched earlier.
        gpu_kinds: rooflines of all kinds of GPU if there are several.
    """

    model: Model
    grid: Grid
    roofline: Roofline
    batch: int
    micro: int
    sequence: int
    dtype: str = "bfloat16"
    gradient_dtype: str = "bfloat16"
    gather_dtype: str = ""
    scaling: str = "delayed"
    data: str = "ddp"
    sequence_parallel: bool = False
    tensor_overlap: str = "bulk"
    context: str = "p2p"
    recompute: tuple[str, ...] = ()
    loss: str = "fused"
    attention: str = "fused"
    elementwise: str = "fused"
    schedule: str = "1f1b"
    chunks: int = 1
    stage_layers: tuple[int, ...] = ()
    blocking_sends: bool | None = True
    imbalance: float = 1.0
    expert_tensor: bool = True
    expert_overlap: bool = False
    deduplicated: bool = False
    fused_experts: bool = False
    apart: bool = False
    joined: int = 8
    optimizer: str = "adam"
    bucket: int = 25 * 2**20
    first_bucket: int = 2**20
    shard_bucket: int = 0
    overlap: bool = True
    no_sync: bool = True
    compression: str = "none"
    top_k: float = 0.01
    delayed: bool = False
    shard: int = 0
    reshard: bool = True
    backward_prefetch: str = "pre"
    forward_prefetch: bool = False
    limit_all_gathers: bool = True
    islands: int = 1
    sync_every: int = 1
    overlap_sync: bool = False
    extras: tuple[ExtraCollective, ...] = ()
    layer_seconds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    launch: float = 0.0
    wait: float = 0.0
    connections: int = 8
    gpu_kinds: GpuKinds | None = None  # None: all GPUs are of one kind

    @property
    def peak_flops(self) -> float:
        """The dense peak of all GPUs together for the data type of products, in FLOP/s."""
        if self.gpu_kinds is None:
            return self.roofline.peak(self.dtype) * self.grid.size
        counts = self.gpu_kinds.ranks_of_kind()
        peaks = [roofline.peak(self.dtype) for roofline in self.gpu_kinds.rooflines]
        return sum(count * peak for count, peak in zip(counts, peaks, strict=True))

    def degree(self, axis: str) -> int:
        """The degree of one axis."""
        return self.grid.degrees[axis]

    @property
    def replicas(self) -> int:
        """The number of groups of ranks that work on different samples."""
        return self.degree("dp") * self.degree("ep")

    @property
    def copies(self) -> int:
        """The number of ranks that have the same dense weights."""
        return self.replicas * self.degree("cp")

    @property
    def micro_batches(self) -> int:
        """The micro-batches of each rank in a step."""
        return self.batch // (self.micro * self.replicas)

    @property
    def element(self) -> int:
        """Bytes of a weight or an activation."""
        return ELEMENT[self.stored]

    @property
    def stored(self) -> str:
        """The data type of weights and activations in memory and in messages."""
        return STORED.get(self.dtype, self.dtype)

    @property
    def beside(self) -> str:
        """The data type of products that narrow recipes exclude: attention, routers, logits."""
        return self.stored if self.dtype in NARROW else self.dtype

    @property
    def narrow(self) -> bool:
        """Whether products are of a narrow type, for which their inputs are cast."""
        return self.dtype in NARROW and self.dtype in self.roofline.flops

    @property
    def cast(self) -> str:
        """The data type in which inputs of column-parallel products are gathered over tp."""
        return CAST[self.dtype] if self.narrow and self.scaling != "row" else self.stored

    @property
    def gathered(self) -> str:
        """The data type in which weights are gathered from replicas."""
        return self.gather_dtype or self.stored

    @property
    def added(self) -> float | None:
        """The bytes per element if products add gradients of weights up in memory; None if they
        write them.

        Megatron adds them to the buffer that replicas reduce.
        """
        return 2.0 * self.gradient_element if self.data == "distributed-optimizer" else None

    @property
    def gradient_element(self) -> int:
        """Bytes of a gradient."""
        return ELEMENT[self.gradient_dtype]

    @property
    def pieces(self) -> int:
        """The parts in which products process the rows that are gathered or scattered."""
        is_whole = self.tensor_overlap != "pipelined" or not self.sequence_parallel
        return 1 if is_whole else self.degree("tp")

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one rank, before sequence parallelism divides them."""
        if not isinstance(self.model, Transformer):
            return self.micro
        return self.micro * self.sequence // self.degree("cp")

    @property
    def replica_axes(self) -> dict[bool, tuple[str, ...]]:
        """The axes along which ranks have the same weights but different gradients: dense, then
        of experts.
        """
        experts = ("cp", "dp") if self.expert_tensor else ("tp", "cp", "dp")
        return {False: ("cp", "ep", "dp"), True: experts}

    def held(self, layer: Layer) -> list[tuple[str, int, bool]]:
        """Return name, elements and whether it is an expert's, of every tensor of a layer on
        one rank.
        """
        tp = self.degree("tp")
        ep = self.degree("ep")
        held = []
        for tensor in layer.tensors:
            divided = (
                tp if tensor.split == "tp" and (self.expert_tensor or not tensor.expert) else 1
            )
            copies = tensor.copies // ep if tensor.expert else tensor.copies
            held += [(tensor.name, -(-tensor.count // divided), tensor.expert)] * copies
        return held

    def stages(self) -> list[list[tuple[Layer, ...]]]:
        """Return the layers of every pipeline stage and chunk: `stages()[stage][chunk]`.

        Blocks are divided evenly, or as `stage_layers` says. The embedding belongs to the first
        chunk, the head to the last.
        """
        every = layers_of(self.model)
        parts = self.degree("pp") * self.chunks
        p = self.degree("pp")
        ends = (every[:1], every[-1:]) if isinstance(self.model, Transformer) else ((), ())
        middle = every[len(ends[0]) : len(every) - len(ends[1])]
        even = [number * len(middle) // parts for number in range(parts + 1)]
        edges = [0, *accumulate(self.stage_layers)] if self.stage_layers else even
        pieces = [middle[a:b] for a, b in pairwise(edges)]
        pieces[0] = (*ends[0], *pieces[0])
        pieces[-1] = (*pieces[-1], *ends[1])
        return [[pieces[chunk * p + stage] for chunk in range(self.chunks)] for stage in range(p)]
