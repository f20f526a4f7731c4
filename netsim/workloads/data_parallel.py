"""Kinds of data parallelism: replicas (DDP), ZeRO, FSDP, a parameter server; what each exchanges,
and in which groups of ranks.

Dense weights are the same on all ranks of a pipeline stage that differ in data or in their part of
the sequence. Experts' weights have fewer copies, as expert parallelism divides them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from functools import cached_property

import numpy as np

from netsim.base.values import dataclass
from netsim.workloads.model import Layer
from netsim.workloads.setting import SIZES, Ranks, Setting
from netsim.workloads.tape import Deps, Emitted, StageRanks, Tape

KIND = "dp"
WHOLE = 1 << 62  # bytes that no bucket has


@dataclass(frozen=True)
class Replica:
    """One pipeline stage as data parallelism sees it; `layers` are the layers of all chunks of the
    stage.
    """

    tape: Tape
    setting: Setting
    stage: StageRanks
    layers: tuple[Layer, ...]

    @cached_property
    def groups(self) -> dict[bool, Ranks]:
        """The groups of ranks that hold the same dense weights (key False) and the same expert
        weights (key True), within one island each.
        """
        grid = self.setting.grid
        s = self.setting
        all_groups = {
            kind: grid.groups(some, self.stage.number) for kind, some in s.replica_axes.items()
        }
        return {
            kind: all.reshape(-1, all.shape[1] // s.islands) for kind, all in all_groups.items()
        }

    def held(self, layers: Iterable[Layer]) -> dict[bool, int]:
        """The number of elements of some layers' weights on one rank: dense (key False) and
        experts' (key True).
        """
        elements = {False: 0, True: 0}
        for layer in layers:
            for _, count, expert in self.setting.held(layer):
                elements[expert] += count
        return elements

    def trained(self, layers: Iterable[Layer]) -> dict[bool, int]:
        """The number of elements of the weights of `layers` that have gradients, on one rank: dense
        (key False) and experts' (key True).
        """
        elements = {False: 0, True: 0}
        for layer in layers:
            for _, count, expert in self.setting.trained(layer):
                elements[expert] += count
        return elements

    @cached_property
    def elements(self) -> dict[bool, int]:
        """The number of elements of the weights of all layers of the stage that have gradients, on
        one rank: dense (key False) and experts' (key True).
        """
        return self.trained(self.layers)

    def exchange(
        self,
        name: str,
        collective: str,
        nbytes: int,
        after: Deps,
        *,
        expert: bool = False,
        groups: Ranks | None = None,
        dtype: str = "",
        stream: str = KIND,
    ) -> Deps:
        """Add a collective of `nbytes` bytes among replicas to the tape; return its entry, or () if
        it moves nothing.

        Args:
            name: name of the entry.
            collective: name of the collective.
            nbytes: its size in bytes, as nccl-tests counts it.
            after: entries that it waits for.
            expert: whether it runs in the groups of ranks with the same expert weights, instead of
                those with the same dense weights.
            groups: the groups in which it runs, if they are neither of these.
            dtype: data type (default: that of gradients).
            stream: stream of the entry.
        """
        where = self.groups[expert] if groups is None else groups
        return self.tape.collective(
            name,
            KIND,
            collective,
            where,
            nbytes,
            after,
            stream=stream,
            dtype=dtype or self.setting.gradient_dtype,
        )


@dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together.

    - `number`: position among the buckets.
    - `count`: elements.
    - `expert`: whether they are experts' gradients.
    - `layer`: number of the layer whose backward pass completes the bucket.
    """

    number: int
    count: int
    expert: bool
    layer: int


def buckets_of(
    setting: Setting, layers: Sequence[Layer], cap: int, first: int, element: int
) -> list[Bucket]:
    """The trained parameters of a stage in buckets, from the last layer to the first.

    Args:
        cap: bytes at which a bucket is complete.
        first: the same for the first bucket.
        element: bytes of a gradient.

    A parameter tensor is never divided; experts have buckets of their own.
    """
    buckets: list[Bucket] = []
    filled = {False: 0, True: 0}
    for number in reversed(range(len(layers))):
        for _, count, expert in reversed(setting.trained(layers[number])):
            filled[expert] += count
            limit = first if not any(one.expert == expert for one in buckets) else cap
            if filled[expert] * element >= limit:
                buckets.append(Bucket(len(buckets), filled[expert], expert, number))
                filled[expert] = 0
    buckets += [
        Bucket(len(buckets) + expert, count, expert, 0) for expert, count in filled.items() if count
    ]
    return buckets


@dataclass
class DataParallelism:
    """The base class of all kinds of data parallelism, and a step without any.

    The step calls its methods at the moments at which data parallelism may act. In all methods,
    `layer` is the number of a layer in the stage, and `last` says whether this is the last
    micro-batch. A returned tuple has the numbers of tape entries; what the step writes next waits
    for them. `reduced` are the exchanges of gradients, for which the optimizer waits.
    """

    replica: Replica
    reduced: list[int] = field(default_factory=list)

    def has_no_exchange(self, kind: str, micro_batch: int, *, last: bool) -> bool:
        """Whether a pass ("F" or "B") of a micro-batch runs without any exchange of data
        parallelism.
        """
        s = self.replica.setting
        if kind == "F":
            return micro_batch > 0 or not (s.delayed or s.forward_prefetch)
        return not last and s.no_sync

    def before_forward(self, layer: int) -> Deps:
        """Called before the forward pass of a layer; return the entries that it waits for."""
        return ()

    def after_forward(self, layer: int, done: Emitted) -> None:
        """Called when the forward pass of a layer is on the tape."""

    def before_backward(self, layer: int) -> Deps:
        """Called before the backward pass of a layer; return the entries that it waits for."""
        return ()

    def when_made(self, layer: int, kernel: str, entry: int) -> None:
        """Called when a kernel of the backward pass has made gradients that are reduced in this
        micro-batch.

        `kernel` is its name, `entry` its number on the tape.
        """

    def after_backward(self, layer: int, done: Deps, *, last: bool) -> None:
        """Called when all gradients of a layer exist; `done` are the entries that made them."""

    def finish(self) -> Deps:
        """Called after all backward passes; return the entries that the optimizer waits for."""
        return tuple(self.reduced)

    def shard(self) -> int:
        """The number of ranks among which the optimizer's work is divided."""
        return 1

    def after_optimizer(self, done: int) -> None:
        """Called when the optimizer is on the tape, as entry `done`."""


# ZeRO stages 1 and 2, and Megatron's distributed optimizer: replicas divide the optimizer's work.
# Gradients are reduced and scattered, each rank updates its part, and the new weights (not the
# optimizer's states) are gathered: together the bytes of one all-reduce.

DEEPSPEED = 500_000_000  # elements of a bucket
MEGATRON = 40_000_000  # elements, or a million for each rank of the group


@dataclass
class Zero(DataParallelism):
    """ZeRO 1 and 2: reduce-scatters of buckets, and all-gathers of weights after the optimizer.

    With the setting's `overlap`, gradients are scattered during the backward pass; with
    `forward_prefetch`, weights are gathered during the next forward pass, layer by layer.
    """

    gathered: dict[int, Deps] = field(default_factory=dict)

    @cached_property
    def buckets(self) -> list[Bucket]:
        """The buckets of this stage; experts have buckets of their own."""
        s = self.replica.setting
        stage = self.replica.stage.number
        if s.data != "distributed-optimizer":
            size = s.shard_bucket or DEEPSPEED * s.gradient_element
            return buckets_of(s, self.replica.layers, size, size, s.gradient_element)
        elements = max(MEGATRON, 1_000_000 * self.replica.groups[False].shape[1])
        buckets: list[Bucket] = []
        before = len(self.replica.layers)
        for number, chunk in reversed([*enumerate(s.stages()[stage])]):
            before -= len(chunk)
            # Only the first chunk of the model is divided into buckets: the exchanges of later
            # chunks have time while other chunks compute.
            usual = s.shard_bucket or elements * s.gradient_element
            size = WHOLE if stage + number or not s.overlap else usual
            for bucket in buckets_of(s, chunk, size, size, s.gradient_element):
                buckets.append(replace(bucket, number=len(buckets), layer=bucket.layer + before))
        return buckets

    def before_forward(self, layer: int) -> Deps:
        """The gathered weights of this layer and of all layers before it, if they arrive during the
        forward pass.
        """
        if not self.replica.setting.forward_prefetch or not self.buckets:
            return ()
        for bucket in reversed(self.buckets):
            if bucket.number not in self.gathered:
                self._gather(bucket, ())
        first = [b for b in self.buckets if b.layer <= layer]
        last = first[0].number if first else self.buckets[-1].number
        return tuple(
            one for number, made in self.gathered.items() if number >= last for one in made
        )

    def after_backward(self, layer: int, done: Deps, *, last: bool) -> None:
        """Scatter the buckets that this layer completes, if the setting overlaps them with
        backward.
        """
        s = self.replica.setting
        if s.overlap and (last or not s.no_sync):
            for bucket in self.buckets:
                if bucket.layer == layer:
                    self._scatter(bucket, done)

    def finish(self) -> Deps:
        """Scatter all buckets, if that was not done during the backward pass; return the
        exchanges.
        """
        if not self.replica.setting.overlap:
            end = self.replica.tape.last_kernel(self.replica.stage.ranks)
            for bucket in self.buckets:
                self._scatter(bucket, end)
        return super().finish()

    def shard(self) -> int:
        """The number of ranks with the same dense weights, each of which updates a part."""
        return int(self.replica.groups[False].shape[1])

    def after_optimizer(self, done: int) -> None:
        """Gather the new weights after the optimizer (entry `done`), unless the next forward pass
        gathers them.
        """
        if not self.replica.setting.forward_prefetch:
            for bucket in self.buckets:
                self._gather(bucket, (done,))

    def _scatter(self, bucket: Bucket, after: Deps) -> None:
        """Reduce and scatter the gradients of a bucket after some entries."""
        nbytes = bucket.count * self.replica.setting.gradient_element
        self.reduced += self.replica.exchange(
            f"gradients {bucket.number}", "reduce_scatter", nbytes, after, expert=bucket.expert
        )

    def _gather(self, bucket: Bucket, after: Deps) -> None:
        """Gather the updated weights of a bucket after some entries."""
        s = self.replica.setting
        with self.replica.tape.naming(""):  # whichever layer is about to run
            self.gathered[bucket.number] = self.replica.exchange(
                f"weights {bucket.number}",
                "all_gather",
                bucket.count * SIZES[s.gathered],
                after,
                expert=bucket.expert,
                dtype=s.gathered,
            )


# Fully sharded data parallelism (FSDP, FSDP2, ZeRO-3): weights are gathered layer by layer. A unit
# is one layer; embedding and head together form the outermost unit. A unit's weights are gathered
# before its forward pass and, if they were released after it, again before its backward pass; its
# gradients are reduced and scattered. All this uses one communicator on one stream, so gathers and
# scatters wait for each other.

AHEAD = 2  # units gathered and not yet given up, that limit_all_gathers allows
OUTERMOST = "root"
ACROSS = "dp replicas"  # the stream of the communicator between copies of a sharded model


@dataclass
class Fsdp(DataParallelism):
    """FSDP of one stage. A unit is named by its first layer.

    - `gathered`: by unit whose full weights are on the GPU, the entries that gathered them.
    - `freed`: the kernels after which units were released, in order.
    - `released_after`: by unit, the last of these kernels.
    - `copied`: by unit, the kernel that copied the gathered weights (FSDP2).

    The outermost unit is kept until the end of the step.
    """

    gathered: dict[int, Deps] = field(default_factory=dict)
    freed: list[int] = field(default_factory=list)
    released_after: dict[int, int] = field(default_factory=dict)
    copied: dict[int, int] = field(default_factory=dict)

    def has_no_exchange(self, kind: str, micro_batch: int, *, last: bool) -> bool:
        """Whether a pass runs without any exchange: if units are kept, after the first micro-batch
        and before the last.
        """
        s = self.replica.setting
        return not s.reshard and s.no_sync and micro_batch > 0 and not last

    @cached_property
    def root(self) -> tuple[int, ...]:
        """The layers of the outermost unit: embedding and head."""
        kinds = [layer.kind for layer in self.replica.layers]
        return tuple(n for n, kind in enumerate(kinds) if kind in ("embedding", "head"))

    def before_forward(self, layer: int) -> Deps:
        """Gather the unit of a layer (the outermost unit before all others); return what the layer
        waits for.
        """
        if self.root and layer == 0:
            self._gather(self.root[0])
        unit = self._unit(layer)
        self._gather(unit)
        return self._ready(unit)

    def after_forward(self, layer: int, done: Emitted) -> None:
        """Release the unit, if the setting gathers it again for the backward pass."""
        if self.replica.setting.reshard and layer not in self.root:
            self._release(layer, done.last)

    def before_backward(self, layer: int) -> Deps:
        """Gather the unit of a layer if it was released, and with prefetch "pre" the next one;
        return what the layer waits for.
        """
        unit = self._unit(layer)
        self._gather(unit)
        if self.replica.setting.backward_prefetch == "pre":
            self._prefetch(layer)
        return self._ready(unit)

    def after_backward(self, layer: int, done: Deps, *, last: bool) -> None:
        """Once all layers of a unit have their gradients, release the unit and scatter the
        gradients.
        """
        s = self.replica.setting
        unit = self._unit(layer)
        if layer != unit:
            return
        if done and (s.reshard or last or not s.no_sync):
            self._release(unit, done[0])
        if s.backward_prefetch == "post":
            self._prefetch(layer)
        if last or not s.no_sync:
            self._scatter(unit, done)

    def shard(self) -> int:
        """The number of ranks that share the weights, each of which updates its part."""
        return self.replica.setting.shard or self.replica.groups[False].shape[1]

    def _unit(self, layer: int) -> int:
        return self.root[0] if layer in self.root else layer

    def _ready(self, unit: int) -> Deps:
        """Return the entries after which the full weights of a unit can be used.

        These are the all-gathers of the unit; with FSDP2 a kernel, added here, that copies what was
        gathered into the weights.
        """
        if self.replica.setting.data != "fsdp2" or not self.gathered[unit]:
            return self.gathered[unit]
        if unit not in self.copied:
            moved = 2 * self.replica.setting.element
            self.copied[unit] = self._copy("copy out", unit, moved, self.gathered[unit])
        return (self.copied[unit],)

    def _copy(
        self, name: str, unit: int, bytes_: int, after: Deps, *, is_trained: bool = False
    ) -> int:
        """Add a kernel that moves `bytes_` bytes for each element of a unit, or for each one with a
        gradient; return its entry.
        """
        padded = self._padded(unit, is_trained=is_trained)
        seconds = self.replica.setting.roofline.stream_seconds(float(bytes_) * sum(padded.values()))
        ranks = self.replica.stage.ranks
        return self.replica.tape.compute(name, ranks, seconds, after, moving=seconds)

    def _release(self, unit: int, kernel: int) -> None:
        """Release the weights of a unit after a kernel; those of the outermost unit are kept."""
        self.copied.pop(unit, None)
        if self.gathered.pop(unit, None) is not None and unit not in self.root:
            self.freed.append(kernel)
            self.released_after[unit] = kernel

    def _prefetch(self, layer: int) -> None:
        if layer > 0:
            self._gather(self._unit(layer - 1))

    def _kernel_to_wait_for(self) -> Deps:
        """Return, as a tuple of one entry, the kernel that must be done before one more unit is
        gathered, so that at most `AHEAD` released units are still in use; () if fewer were
        released, or if the setting does not limit gathers.
        """
        if not self.replica.setting.limit_all_gathers or len(self.freed) < AHEAD:
            return ()
        return (self.freed[-AHEAD],)

    def _gather(self, unit: int) -> None:
        """Gather the weights of a unit, unless they are on the GPU already."""
        if unit in self.gathered:
            return
        s = self.replica.setting
        made = list[int]()
        again = (self.released_after[unit],) if unit in self.released_after else ()
        after = (*self._kernel_to_wait_for(), *again)
        with self.replica.tape.naming(self._name(unit)):
            for expert, count in self._padded(unit).items():
                made += self.replica.exchange(
                    "weights",
                    "all_gather",
                    count * SIZES[s.gathered],
                    after,
                    expert=expert,
                    groups=self._inner(expert),
                    dtype=s.gathered,
                )
        self.gathered[unit] = tuple(made)

    def _scatter(self, unit: int, after: Deps) -> None:
        """Write the exchange of a unit's gradients to the tape, after the entries `after`.

        If several ranks share a copy of the weights, a kernel copies the gradients together and
        casts them, and a reduce-scatter among these ranks follows. Then the parts are all-reduced
        between the ranks that hold the same part in different copies of the model.
        """
        s = self.replica.setting
        with self.replica.tape.naming(self._name(unit)):
            padded = self._padded(unit, is_trained=True)
            if any(self._inner(expert).shape[1] > 1 for expert in padded):
                moved = s.element + s.gradient_element
                after = (self._copy("copy in", unit, moved, after, is_trained=True),)
            for expert, count in padded.items():
                inner = self._inner(expert)
                scattered = self.replica.exchange(
                    "gradients",
                    "reduce_scatter",
                    count * s.gradient_element,
                    after,
                    expert=expert,
                    groups=inner,
                )
                part = count // inner.shape[1] * s.gradient_element
                outer = self.replica.exchange(
                    "gradients across",
                    "all_reduce",
                    part,
                    scattered or after,
                    expert=expert,
                    groups=self._outer(expert),
                    stream=ACROSS,
                )
                self.reduced += (*scattered, *outer)

    def _name(self, unit: int) -> str:
        return OUTERMOST if unit in self.root else self.replica.layers[unit].name

    def _padded(self, unit: int, *, is_trained: bool = False) -> dict[bool, int]:
        """The elements of a unit on one rank, or those with gradients, dense (False) and experts'
        (True), padded so that all ranks have equal parts.
        """
        numbers = self.root if unit in self.root else (unit,)
        layers = [self.replica.layers[number] for number in numbers]
        held = self.replica.trained(layers) if is_trained else self.replica.held(layers)
        return {
            expert: -(-count // width) * width
            for expert, count in held.items()
            for width in [self._inner(expert).shape[1]]
            if count
        }

    def _width(self, expert: bool) -> int:
        """Return the number of ranks that share one copy of the dense weights, or of the expert
        weights.
        """
        members = int(self.replica.groups[expert].shape[1])
        return min(self.replica.setting.shard or members, members)

    def _inner(self, expert: bool) -> Ranks:
        """The groups of ranks that share the weights of one copy of the model."""
        return self.replica.groups[expert].reshape(-1, self._width(expert))

    def _outer(self, expert: bool) -> Ranks:
        """The groups of ranks that hold the same part of the weights in different copies of the
        model.
        """
        groups = self.replica.groups[expert]
        width = self._width(expert)
        parts = groups.reshape(len(groups), -1, width)
        return parts.transpose(0, 2, 1).reshape(-1, parts.shape[1])


# Data parallelism with a parameter server: one GPU gathers, averages and returns the gradients. All
# others are idle from the end of their backward pass until the average comes back.


@dataclass
class Server(DataParallelism):
    """A parameter server: the first rank of every group, which processes a part of the batch as
    well.
    """

    def finish(self) -> Deps:
        """Gather the gradients at the server, average them there, and broadcast the average."""
        replica, s = self.replica, self.replica.setting
        end = replica.tape.last_kernel(replica.stage.ranks)
        made: list[int] = []
        for expert, count in replica.elements.items():
            groups = replica.groups[expert]
            nbytes = count * s.gradient_element
            members = groups.shape[1]
            gathered = replica.exchange(
                "gradients to server", "gather", nbytes * members, end, expert=expert
            )
            if not gathered:
                continue
            seconds = s.roofline.stream_seconds((members + 1.0) * nbytes)
            servers = np.ascontiguousarray(groups[:, 0])
            mean = replica.tape.compute("average", servers, seconds, gathered)
            made += replica.exchange(
                "average from server", "broadcast", nbytes, (mean,), expert=expert
            )
        return tuple(made)


# Compression of gradients: lower precision, or only the largest gradients. Kernels before and after
# the exchange cost passes over memory. With lower precision the exchange is still an all-reduce.
# The positions of the largest gradients differ from rank to rank, so values and indices are
# gathered instead.

DTYPES = {"fp16": "half", "bf16": "bfloat16", "fp8": "f8e4m3"}
INDEX = 4  # bytes of the place of a gradient
SELECT_PASSES = 4  # over all gradients: to sample, to count, to select, to write


def _reduce_plain(replica: Replica, bucket: Bucket, name: str, after: Deps) -> Deps:
    """All-reduce a bucket without compression, after the entries `after`; return the entries that
    the optimizer waits for.
    """
    nbytes = bucket.count * replica.setting.gradient_element
    return replica.exchange(name, "all_reduce", nbytes, after, expert=bucket.expert)


def _reduce_narrow(replica: Replica, bucket: Bucket, name: str, after: Deps) -> Deps:
    """Cast a bucket to fewer bits, all-reduce it and cast it back, after the entries `after`;
    return the entries that the optimizer waits for.

    Each cast reads one format and writes the other.
    """
    s = replica.setting
    ranks = replica.stage.ranks
    dtype = DTYPES[replica.setting.compression]
    seconds = s.roofline.stream_seconds(bucket.count * (s.gradient_element + SIZES[dtype]))
    cast = replica.tape.compute(f"cast {name}", ranks, seconds, after)
    made = replica.exchange(
        name, "all_reduce", bucket.count * SIZES[dtype], (cast,), expert=bucket.expert, dtype=dtype
    )
    if made:
        replica.tape.defer(f"cast {name} back", ranks, seconds, made)
    return made


def _gather_largest(replica: Replica, bucket: Bucket, name: str, after: Deps) -> Deps:
    """Exchange only the largest gradients of a bucket, after the entries `after`; return the
    entries that the optimizer waits for.

    Values and indices of every rank are all-gathered, and each rank adds up what it receives.
    """
    s = replica.setting
    ranks = replica.stage.ranks
    members = replica.groups[bucket.expert].shape[1]
    kept_count = max(1, int(bucket.count * s.top_k))
    select = s.roofline.stream_seconds(SELECT_PASSES * bucket.count * s.gradient_element)
    add = s.roofline.stream_seconds(
        (bucket.count + 2 * members * kept_count) * s.gradient_element
        + members * kept_count * INDEX
    )
    chosen = replica.tape.compute(f"select {name}", ranks, select, after)
    made: list[int] = []
    values = ("values", s.gradient_element, s.gradient_dtype)
    for part_name, element, dtype in (values, ("indices", INDEX, "int32")):
        made += replica.exchange(
            f"{name} {part_name}",
            "all_gather",
            members * kept_count * element,
            (chosen,),
            expert=bucket.expert,
            dtype=dtype,
        )
    if made:
        replica.tape.defer(f"add {name}", ranks, add, tuple(made))
    return tuple(made)


# By compression, the function that reduces a bucket: it adds entries to the tape and returns those
# that the optimizer waits for.
REDUCED = {"none": _reduce_plain, "top-k": _gather_largest, **dict.fromkeys(DTYPES, _reduce_narrow)}


# Replicated data parallelism: one all-reduce after the backward pass, or PyTorch DDP's buckets
# during it. DDP fills buckets with gradients in the order in which the backward pass makes them (it
# has recorded that order in the first step), copies gradients into them, and reduces a bucket when
# its last gradient exists, on a stream of its own beside the rest of the backward pass. Then it
# copies them back.

PASSES_OF_COPY = 2  # a copy reads and writes


@dataclass
class Ddp(DataParallelism):
    """Replicas that all-reduce buckets of gradients.

    With the setting's `delayed`, the gradients of the step before are reduced while this step
    computes.

    - `filled`: elements of the gradients in the open bucket, dense (False) and experts' (True).
    - `buckets`: by bucket of this pass, whether it is one of experts.
    - `kernels`: names of the kernels of this layer whose gradients are in buckets already.
    """

    filled: dict[bool, list[int]] = field(default_factory=lambda: {False: [], True: []})
    buckets: list[bool] = field(default_factory=list)
    kernels: tuple[str, ...] = ()

    @property
    def within(self) -> bool:
        """Whether buckets are reduced during the backward pass."""
        s = self.replica.setting
        return s.overlap and not s.delayed and s.data != "allreduce"

    def before_forward(self, layer: int) -> Deps:
        """With delayed gradients, reduce those of the step before from the beginning of this step
        on.
        """
        if self.replica.setting.delayed and layer == 0 and not self.reduced:
            self._reduce_all(())
        return ()

    def when_made(self, layer: int, kernel: str, entry: int) -> None:
        """Put the gradients that a kernel has made into buckets. The name of the kernel ends with
        the name of the weights whose gradients these are.
        """
        if self.within:
            stem = kernel.rpartition("+")[2].removesuffix(" wgrad")
            self._fill_buckets(layer, stem, (entry,))
            self.kernels += (stem,)

    def after_backward(self, layer: int, done: Deps, *, last: bool) -> None:
        """Put those gradients of the layer into buckets that are not in buckets yet; `done` are the
        entries that made them.
        """
        if self.within and (last or not self.replica.setting.no_sync):
            self._fill_buckets(layer, "", done)
            self.kernels = ()

    def finish(self) -> Deps:
        """Reduce all gradients, if that was not done during the backward pass; return the
        exchanges.
        """
        if not self.replica.setting.delayed and not self.within:
            self._reduce_all(self.replica.tape.last_kernel(self.replica.stage.ranks))
        return super().finish()

    def _reduce_all(self, after: Deps) -> None:
        """Put the gradients of all layers into buckets and reduce them."""
        for layer in reversed(range(len(self.replica.layers))):
            self._fill_buckets(layer, "", after)

    def _fill_buckets(self, layer: int, stem: str, after: Deps) -> None:
        """Put gradients of a layer into buckets, and reduce each bucket that is full.

        Args:
            layer: number of the layer in the stage.
            stem: begin of the names of the tensors whose gradients are meant. "" means all that are
                not in buckets yet; in the first layer, buckets that are not full are then reduced
                as well.
            after: entries that made the gradients.
        """
        s = self.replica.setting
        cap, first = (WHOLE, WHOLE) if s.data == "allreduce" else (s.bucket, s.first_bucket)
        for name, count, expert in reversed(s.trained(self.replica.layers[layer])):
            if name.startswith(stem) and not name.startswith(self.kernels):
                self.filled[expert].append(count)
                limit = cap if expert in self.buckets else first
                if sum(self.filled[expert]) * s.gradient_element >= limit:
                    self._reduce(after, expert=expert)
        if layer == 0 and not stem:
            for expert in (one for one, counts in self.filled.items() if counts):
                self._reduce(after, expert=expert)
            self.buckets.clear()

    def _reduce(self, after: Deps, *, expert: bool) -> None:
        """Reduce the open bucket, of experts or of dense weights, and open a new one."""
        replica, s, counts = self.replica, self.replica.setting, self.filled[expert]
        bucket = Bucket(len(self.buckets), sum(counts), expert, layer=0)
        name = "gradients" if s.data == "allreduce" else f"bucket {bucket.number}"
        moved = float(PASSES_OF_COPY * bucket.count * s.gradient_element)
        seconds = s.roofline.stream_seconds(moved, len(counts))  # gradients are copied one by one
        self.buckets.append(expert)
        self.filled[expert] = []
        ranks = replica.stage.ranks
        copied = self.within and replica.groups[expert].shape[1] > 1
        if copied:
            after = (replica.tape.compute("copy in", ranks, seconds, after, len(counts), seconds),)
        made = REDUCED[s.compression](replica, bucket, name, after)
        if copied:
            replica.tape.defer("copy out", ranks, seconds, made)
        self.reduced += made
