"""A Setting: a training step with every option resolved, its grid of ranks, its rooflines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import accumulate, pairwise
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from netsim.base.constants import value
from netsim.base.values import dataclass
from netsim.workloads.model import Adapters, Layer, Model, Tensor, Transformer, layers_of

AXES = ("tp", "cp", "ep", "dp", "pp")
Ranks = NDArray[np.int32]


@dataclass(frozen=True)
class Grid:
    """The degree of parallelism along each axis, and the order of the axes: ranks that differ by
    one are neighbors along the first axis.
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
        """The groups of ranks that differ only along `axes`, one line for each; with `stage`, those
        of one pipeline stage.
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
        """The ranks of one pipeline stage in ascending order."""
        return np.sort(self.groups([axis for axis in AXES if axis != "pp"], number).reshape(-1))

    @cached_property
    def stages(self) -> list[int]:
        """The pipeline stage of each rank."""
        place = self.order[::-1].index("pp")
        stages: list[int] = np.indices(self._ranks.shape)[place].ravel().tolist()
        return stages

    def pairs(self, source: int, target: int) -> Ranks:
        """Return the (sender, receiver) pairs of ranks between the pipeline stages `source` and
        `target`, one line for each pair.
        """
        names = list(reversed(self.order))
        place = names.index("pp")
        sides = [np.take(self._ranks, stage, axis=place).reshape(-1) for stage in (source, target)]
        return np.stack(sides, axis=1)


# Times of kernels on the roofline of a GPU. A matrix product is divided into tiles, which the SMs
# compute in waves; the time of SMs that are idle in the last wave is lost. Other kernels move bytes
# through memory. Every kernel also costs the gap between kernels.


# Tiles of a thread block: rows, columns (or exchanged), and the rate relative to the best tile. A
# tile of a x b reads (a + b) / (a b) elements for each product, so small tiles lack bandwidth.
TILES = (
    (256, 128, 1.0), (192, 128, 0.97), (128, 128, 0.92), (256, 64, 0.85), (128, 64, 0.75),
    (64, 64, 0.55),
)  # fmt: skip
SPLITS = (1, 2, 3, 4, 6, 8)  # blocks that share the K of a tile
LEAST_K = 256  # least K of such a block
PARTIAL = 4  # bytes of an element of the partial sums of such blocks
ONE_TILE_A_BLOCK = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89")  # before Hopper's TMA stores
# Bytes of an element that a narrow product reads, including its part of the scale factor. The
# result has 16 bits.
NARROW = {"fp8": 1.0, "mxfp8": 33 / 32, "nvfp4": 9 / 16}
HEAD_WIDTH = 2 * 128  # features of a key and a value for which rates of attention hold
BLOCK = 128  # rows and keys of a tile of fused attention; tiles on the diagonal are masked


@dataclass(frozen=True)
class Roofline:
    """One kind of GPU: its peaks, and the fractions of them that kernels reach.

    Args:
        flops: dense peaks by data type, FLOP/s.
        bandwidth: memory bandwidth, bytes/s.
        sms: number of SMs.
        gemm: fraction of the peak that large products reach.
        narrow: the same by narrow data type.
        attention: the same for attention, forward and backward, with a head of 128 features and
            long sequences.
        memory: fraction of the memory bandwidth that kernels reach.
        routed: a further factor for tokens that are routed to experts.
        scan: fraction of the rates of attention and of streams that scans of Mamba-2 layers reach.
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
    scan: float = value("scan.rate")
    kernel: float = value("kernel.gap")
    element: int = field(default=2)
    exponents: float = 0.0
    unhidden: float = value("gemm.unhidden")

    def peak(self, dtype: str) -> float:
        """The dense peak in FLOP/s for a data type, or for the data type that the GPU uses in its
        place.
        """
        for name in (dtype, "half", "bfloat16", "float"):
            if name in self.flops:
                return self.flops[name]
        return max(self.flops.values())

    def rate(self, dtype: str) -> float:
        """The FLOP/s that large products of a data type reach."""
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
        """The seconds of `batch` products of m x k by k x n in one kernel.

        `result`: if the result is added to memory, the bytes that this moves for each element.
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
        """The seconds of full waves of tiles, with the best shape of tile.

        `split` blocks share the K of a tile, and then add up their results. `rate` is in FLOP/s.
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
        """The seconds of `kernels` kernels that only move bytes, `nbytes` together.

        `routed`: they move tokens by index between the tensors of experts, which is slower.
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
        """The seconds of a fused attention kernel of `flops` FLOPs.

        Args:
            width: features of a key and a value of one head together.
            keys: keys that a query meets. The work of blocks before and after their loop over keys
                takes the time of a constant number of additional keys.
            backward: whether it is the backward kernel.
        """
        if flops <= 0:
            return 0.0
        more = value("attention.keys.backward" if backward else "attention.keys") / keys
        scores = 1 - self.exponents + self.exponents * HEAD_WIDTH / width
        return (
            flops * scores * (1 + more) / (self.peak(dtype) * self.attention[backward])
            + self.kernel
        )

    def scan_seconds(self, flops: float, moved: float, dtype: str) -> float:
        """The seconds of a kernel that computes like attention and moves `moved` bytes."""
        computing = flops / (self.peak(dtype) * self.attention[0])
        moving = moved / (self.bandwidth * self.memory)
        return max(computing, moving) / self.scan + self.kernel

    def plain_seconds(self, flops: float, moved: float, dtype: str) -> float:
        """The seconds of a layer of which only the FLOPs and the bytes that it moves are known."""
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
# The data type in memory and in messages, if it differs from that of products: TF32 and types of
# less than 16 bits are types of products only. Inputs of products and gathered weights may be
# narrow in messages, too (`CAST`).
STORED = {"tf32": "float", **dict.fromkeys(NARROW, "bfloat16")}
CAST = {"fp8": "f8e4m3", "mxfp8": "f8e4m3", "nvfp4": "f8e4m3"}
SIZES = {**ELEMENT, "f8e4m3": 1}


@dataclass(frozen=True)
class ExtraCollective:
    """A small additional collective, as real steps have them: the axes of its groups, its size in
    bytes, and the moment of the step at which it runs (`when`).
    """

    name: str
    collective: str
    axes: tuple[str, ...]
    nbytes: int
    when: str
    dtype: str = "float"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything that a training step depends on besides its cluster; every option is resolved.

    Args:
        roofline: roofline of every GPU, or of the slowest kind.
        batch: samples (sequences) of one step of the job.
        micro: samples of one micro-batch of one rank.
        sequence: tokens of a sequence.
        dtype: data type of products.
        scaling: how scales of narrow types are found.
        data: kind of data parallelism.
        context: kind of context parallelism (p2p, all_gather, a2a).
        recompute: what is recomputed in the backward pass.
        schedule: pipeline schedule; `chunks`: chunks of layers of each stage.
        blocking_sends: whether later passes wait for sends; None: only those in the same direction.
        imbalance: tokens of the busiest expert rank over the mean.
        expert_tensor: whether tensor parallelism divides the matrices of experts.
        apart: whether products of the same input are separate kernels.
        joined: number of GPUs that NVLink joins.
        bucket: bytes of a bucket of gradients; `first_bucket`: of the first one.
        shard_bucket: bytes of buckets of ZeRO and Megatron; 0 for the frameworks' default.
        no_sync: whether gradients are reduced in the last micro-batch only.
        shard: number of ranks that share the weights with FSDP; 0: all replicas.
        reshard: whether weights are released after the forward pass.
        islands: number of islands. Replicas of an island exchange gradients in each step, islands
            their weights every `sync_every` steps.
        layer_seconds: by layer, measured seconds of its forward and backward pass.
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
        """The degree of parallelism along an axis."""
        return self.grid.degrees[axis]

    @property
    def replicas(self) -> int:
        """The number of groups of ranks that work on different samples."""
        return self.degree("dp") * self.degree("ep")

    @property
    def copies(self) -> int:
        """The number of ranks that hold the same dense weights."""
        return self.replicas * self.degree("cp")

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of each rank in a step."""
        return self.batch // (self.micro * self.replicas)

    @property
    def element(self) -> int:
        """The bytes of a weight or an activation."""
        return ELEMENT[self.stored]

    @property
    def stored(self) -> str:
        """The data type of weights and activations in memory and in messages."""
        return STORED.get(self.dtype, self.dtype)

    @property
    def beside(self) -> str:
        """The data type of products that are not narrow even if others are: attention, routers,
        logits.
        """
        return self.stored if self.dtype in NARROW else self.dtype

    @property
    def narrow(self) -> bool:
        """Whether products are of a narrow type (8 bits or less, such as FP8), to which their
        inputs are cast.
        """
        return self.dtype in NARROW and self.dtype in self.roofline.flops

    @property
    def cast(self) -> str:
        """The data type in which inputs of column-parallel products are gathered among the ranks of
        tp.
        """
        return CAST[self.dtype] if self.narrow and self.scaling != "row" else self.stored

    @property
    def gathered(self) -> str:
        """The data type in which weights are gathered from replicas."""
        return self.gather_dtype or self.stored

    @property
    def added(self) -> float | None:
        """The bytes that move for each element if products add gradients of weights to memory; None
        if they overwrite it.

        Megatron adds them to the buffer that replicas reduce.
        """
        return 2.0 * self.gradient_element if self.data == "distributed-optimizer" else None

    @property
    def gradient_element(self) -> int:
        """The bytes of a gradient."""
        return ELEMENT[self.gradient_dtype]

    @property
    def pieces(self) -> int:
        """The number of kernels into which products divide rows that are gathered or scattered."""
        is_whole = self.tensor_overlap != "pipelined" or not self.sequence_parallel
        return 1 if is_whole else self.degree("tp")

    @property
    def tokens(self) -> int:
        """The tokens of one micro-batch on one rank, before sequence parallelism divides them; for
        a list of layers, its samples.
        """
        if not isinstance(self.model, Transformer):
            return self.micro
        return self.micro * self.sequence // self.degree("cp")

    @property
    def replica_axes(self) -> dict[bool, tuple[str, ...]]:
        """The axes along which ranks have the same weights but different gradients: of dense
        weights (False) and of experts (True).
        """
        experts = ("cp", "dp") if self.expert_tensor else ("tp", "cp", "dp")
        return {False: ("cp", "ep", "dp"), True: experts}

    @property
    def adapters(self) -> Adapters | None:
        """The adapters that are trained beside frozen weights; None if all weights are trained."""
        return self.model.adapters if isinstance(self.model, Transformer) else None

    def held(self, layer: Layer) -> list[tuple[str, int, bool]]:
        """(name, elements, whether it is an expert's) of every tensor of a layer on one rank."""
        return self._held(layer.tensors)

    def trained(self, layer: Layer) -> list[tuple[str, int, bool]]:
        """The same of those tensors of a layer that have gradients."""
        return self._held(tensor for tensor in layer.tensors if not tensor.frozen)

    def _held(self, tensors: Iterable[Tensor]) -> list[tuple[str, int, bool]]:
        """The same of some tensors."""
        tp = self.degree("tp")
        ep = self.degree("ep")
        held = []
        for tensor in tensors:
            divided = (
                tp if tensor.split == "tp" and (self.expert_tensor or not tensor.expert) else 1
            )
            copies = tensor.copies // ep if tensor.expert else tensor.copies
            held += [(tensor.name, -(-tensor.count // divided), tensor.expert)] * copies
        return held

    def stages(self) -> list[list[tuple[Layer, ...]]]:
        """The layers of every pipeline stage and chunk: `stages()[stage][chunk]`.

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
