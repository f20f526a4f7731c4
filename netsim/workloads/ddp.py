"""Replicated data parallelism: one all-reduce after backward, or PyTorch DDP's buckets within it.

DDP fills buckets from the last parameter to the first and reduces each, in order, as soon as its
last gradient is there, on a stream of its own beside the rest of backward.
"""

from dataclasses import dataclass, field
from functools import cached_property

from netsim.workloads.compression import Compression, compression_of
from netsim.workloads.replicas import Alone, Bucket, buckets_of
from netsim.workloads.tape import Deps

WHOLE = 1 << 62


@dataclass
class Ddp(Alone):
    """All-reduces of buckets; `delayed`: those of the step before, while this one computes."""

    made: list[int] = field(default_factory=list)

    @cached_property
    def buckets(self) -> list[Bucket]:
        """The buckets of this stage, in the order in which they are reduced."""
        s = self.replica.setting
        cap, first = (WHOLE, WHOLE) if s.data == "allreduce" else (s.bucket, s.first_bucket)
        return buckets_of(s, self.replica.layers, cap, first, s.gradient_element)

    @cached_property
    def compression(self) -> Compression:
        """What becomes of gradients before they travel."""
        return compression_of(self.replica.setting)

    def before_forward(self, layer: int) -> Deps:
        """With delayed gradients, those of the step before travel from its beginning on."""
        s = self.replica.setting
        if s.delayed and layer == 0 and not self.made:
            for bucket in self.buckets:
                self._reduce(bucket, ())
        return ()

    def after_backward(self, layer: int, done: Deps, *, last: bool) -> None:
        """Reduce the buckets that this layer completes."""
        s = self.replica.setting
        if s.delayed or s.data == "allreduce" or not s.overlap or not (last or not s.no_sync):
            return
        for bucket in self.buckets:
            if bucket.layer == layer:
                self._reduce(bucket, done)

    def finish(self) -> Deps:
        """What was not reduced on the way is reduced now."""
        s = self.replica.setting
        if not s.delayed and (s.data == "allreduce" or not s.overlap):
            end = self.replica.tape.last_of(self.replica.stage.ranks)
            for bucket in self.buckets:
                self._reduce(bucket, end)
        return tuple(self.made)

    def _reduce(self, bucket: Bucket, after: Deps) -> None:
        name = "gradients" if len(self.buckets) == 1 else f"bucket {bucket.number}"
        self.made += self.compression.reduce(self.replica, bucket, name, after)
