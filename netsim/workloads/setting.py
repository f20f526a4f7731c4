"""A Setting: one training step as asked, with every choice made: degrees, sizes, options.

It is what scenario files become; nothing in it is optional. Sizes are in elements and bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from netsim.workloads.grid import Grid
from netsim.workloads.model import Layer, Model, Transformer, layers_of
from netsim.workloads.roofline import Roofline

ELEMENT = {"float": 4, "tf32": 4, "half": 2, "bfloat16": 2, "fp8": 1}


@dataclass(frozen=True)
class Extra:
    """A small collective that real steps have: over which axes, how large, and when."""

    name: str
    collective: str
    axes: tuple[str, ...]
    nbytes: int
    when: str
    dtype: str = "float"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All that a step depends on besides its cluster.

    `batch` is the number of samples (sequences) of one step of the whole job; `micro` those of one
    micro-batch of one rank. `data` names the kind of data parallelism.
    """

    model: Model
    grid: Grid
    roofline: Roofline
    batch: int
    micro: int
    sequence: int
    dtype: str = "bfloat16"
    gradient_dtype: str = "bfloat16"
    data: str = "ddp"
    sequence_parallel: bool = False
    context: str = "p2p"
    recompute: str = "none"
    attention: str = "fused"
    elementwise: str = "fused"
    schedule: str = "1f1b"
    chunks: int = 1
    stage_layers: tuple[int, ...] = ()
    blocking_sends: bool = True
    imbalance: float = 1.0
    expert_tensor: bool = True
    optimizer: str = "adam"
    bucket: int = 25 * 2**20
    first_bucket: int = 2**20
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
    extras: tuple[Extra, ...] = ()
    layer_seconds: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def degree(self, axis: str) -> int:
        """The degree of one axis."""
        return self.grid.degrees[axis]

    @property
    def replicas(self) -> int:
        """Groups of ranks that work on different samples."""
        return self.degree("dp") * self.degree("ep")

    @property
    def micro_batches(self) -> int:
        """Micro-batches that each rank works through in a step."""
        return self.batch // (self.micro * self.replicas)

    @property
    def element(self) -> int:
        """Bytes of a weight or an activation."""
        return ELEMENT[self.dtype]

    @property
    def gradient_element(self) -> int:
        """Bytes of a gradient."""
        return ELEMENT[self.gradient_dtype]

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one rank, before sequence parallelism divides them."""
        if not isinstance(self.model, Transformer):
            return self.micro
        return self.micro * self.sequence // self.degree("cp")

    @property
    def dense_axes(self) -> tuple[str, ...]:
        """Axes whose ranks hold the same dense weights and different gradients."""
        return ("cp", "ep", "dp")

    @property
    def expert_axes(self) -> tuple[str, ...]:
        """The same for the weights of experts."""
        return ("cp", "dp") if self.expert_tensor else ("tp", "cp", "dp")

    def held(self, layer: Layer) -> list[tuple[int, bool]]:
        """Elements of every tensor of a layer on one rank, and whether it is an expert's."""
        tp, ep = self.degree("tp"), self.degree("ep")
        found = []
        for tensor in layer.tensors:
            divided = (
                tp if tensor.split == "tp" and (self.expert_tensor or not tensor.expert) else 1
            )
            copies = tensor.copies // ep if tensor.expert else tensor.copies
            found += [(-(-tensor.count // divided), tensor.expert)] * copies
        return found

    def stages(self) -> list[list[tuple[Layer, ...]]]:
        """The layers of every pipeline stage, chunk by chunk: `stages()[stage][chunk]`.

        Blocks are divided evenly, or as `stage_layers` says; the embedding goes with the first
        chunk, the head with the last.
        """
        every = layers_of(self.model)
        parts, p = self.degree("pp") * self.chunks, self.degree("pp")
        ends = (every[:1], every[-1:]) if isinstance(self.model, Transformer) else ((), ())
        middle = every[len(ends[0]) : len(every) - len(ends[1])]
        even = [number * len(middle) // parts for number in range(parts + 1)]
        edges = [0, *accumulate(self.stage_layers)] if self.stage_layers else even
        pieces = [middle[a:b] for a, b in pairwise(edges)]
        pieces[0] = (*ends[0], *pieces[0])
        pieces[-1] = (*pieces[-1], *ends[1])
        return [[pieces[chunk * p + stage] for chunk in range(self.chunks)] for stage in range(p)]
