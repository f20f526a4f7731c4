"""ZeRO stages 1 and 2, and Megatron's distributed optimizer: replicas divide the optimizer's work.

Gradients are reduced and scattered, each rank updates its part, and the new weights (not the
optimizer's states) are gathered: together the bytes of one all-reduce.
"""

from dataclasses import dataclass, field
from functools import cached_property

from netsim.workloads.replicas import Alone, Bucket, buckets_of
from netsim.workloads.tape import Deps

DEEPSPEED = 500_000_000  # elements of a bucket
MEGATRON = 40_000_000  # elements, or a million for each rank of the group


@dataclass
class Zero(Alone):
    """Reduce-scatters of buckets, and all-gathers of weights after the optimizer.

    With `overlap`, gradients are scattered during backward; `forward_prefetch` hides the gathers in
    the next forward pass, layer by layer.
    """

    scattered: list[int] = field(default_factory=list)
    gathered: dict[int, int] = field(default_factory=dict)

    @cached_property
    def buckets(self) -> list[Bucket]:
        """The buckets of this stage; those of experts apart."""
        s = self.replica.setting
        elements = DEEPSPEED
        if s.data == "distributed-optimizer":
            elements = max(MEGATRON, 1_000_000 * self.replica.groups[False].shape[1])
            if not s.overlap or self.replica.stage.number > 0:
                elements = 1 << 60  # later stages have time enough while the pipeline drains
        size = elements * s.gradient_element
        return buckets_of(s, self.replica.layers, size, size, s.gradient_element)

    def before_forward(self, layer: int) -> Deps:
        """Weights that the step before has updated arrive bucket by bucket."""
        if not self.replica.setting.forward_prefetch:
            return ()
        for bucket in reversed(self.buckets):
            if bucket.number not in self.gathered:
                self._gather(bucket, ())
        first = [b for b in self.buckets if b.layer <= layer]
        last = first[0].number if first else self.buckets[-1].number
        return tuple(made for number, made in self.gathered.items() if number >= last and made >= 0)

    def after_backward(self, layer: int, done: Deps, *, last: bool) -> None:
        """Scatter the buckets that this layer completes."""
        s = self.replica.setting
        if s.overlap and (last or not s.no_sync):
            for bucket in self.buckets:
                if bucket.layer == layer:
                    self._scatter(bucket, done)

    def finish(self) -> Deps:
        """What was not scattered on the way is scattered now."""
        if not self.replica.setting.overlap:
            end = self.replica.tape.last_of(self.replica.stage.ranks)
            for bucket in self.buckets:
                self._scatter(bucket, end)
        return tuple(self.scattered)

    def shard(self) -> int:
        """Every rank of a group updates its part."""
        return int(self.replica.groups[False].shape[1])

    def after_optimizer(self, done: int) -> None:
        """Gather the new weights, unless the next forward pass does."""
        if not self.replica.setting.forward_prefetch:
            for bucket in self.buckets:
                self._gather(bucket, (done,))

    def _scatter(self, bucket: Bucket, after: Deps) -> None:
        nbytes = bucket.count * self.replica.setting.gradient_element
        made = self.replica.exchange(
            f"gradients {bucket.number}", "reduce_scatter", nbytes, after, expert=bucket.expert
        )
        self.scattered += [] if made is None else [made]

    def _gather(self, bucket: Bucket, after: Deps) -> None:
        s = self.replica.setting
        with self.replica.tape.naming(""):  # whichever layer is about to run
            made = self.replica.exchange(
                f"weights {bucket.number}", "all_gather", bucket.count * s.element, after,
                expert=bucket.expert, dtype=s.dtype,
            )  # fmt: skip
        self.gathered[bucket.number] = -1 if made is None else made
