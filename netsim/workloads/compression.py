"""Gradients that travel in fewer bytes: in lower precision, or only the largest of them.

Kernels before and after cost passes over memory. Reduced precision keeps the all-reduce; the
largest gradients differ from rank to rank, so values and indices are gathered instead.
"""

from dataclasses import dataclass

from netsim.workloads.replicas import Bucket, Replica
from netsim.workloads.setting import Setting
from netsim.workloads.tape import Deps

KINDS = ("none", "fp16", "bf16", "fp8", "top-k")
DTYPES = {"fp16": "half", "bf16": "bfloat16", "fp8": "f8e4m3"}
INDEX = 4  # bytes of the place of a gradient
SELECT_PASSES = 4  # over all gradients: to sample, to count, to select, to write


@dataclass(frozen=True)
class Compression:
    """No compression, and the plain all-reduce that goes with it."""

    setting: Setting

    def reduce(self, replica: Replica, bucket: Bucket, name: str, after: Deps) -> list[int]:
        """Write down how a bucket is reduced; what the optimizer has to wait for."""
        nbytes = bucket.count * self.setting.gradient_element
        made = replica.exchange(name, "all_reduce", nbytes, after, expert=bucket.expert)
        return [] if made is None else [made]


@dataclass(frozen=True)
class LowPrecision(Compression):
    """Gradients are cast, all-reduced and cast back."""

    dtype: str

    def reduce(self, replica: Replica, bucket: Bucket, name: str, after: Deps) -> list[int]:
        """The kernels that cast read one format and write the other."""
        s, element = self.setting, {"half": 2, "bfloat16": 2, "f8e4m3": 1}[self.dtype]
        seconds = s.roofline.stream_seconds(bucket.count * (s.gradient_element + element))
        ranks = replica.stage.ranks
        cast = replica.tape.compute(f"cast {name}", ranks, seconds, after)
        made = replica.exchange(
            name, "all_reduce", bucket.count * element, (cast,),
            expert=bucket.expert, dtype=self.dtype,
        )  # fmt: skip
        if made is None:
            return []
        replica.tape.later(f"cast {name} back", ranks, seconds, (made,))
        return [made]


@dataclass(frozen=True)
class TopK(Compression):
    """Every rank sends its largest gradients with their places, and adds up what it gets."""

    part: float

    def reduce(self, replica: Replica, bucket: Bucket, name: str, after: Deps) -> list[int]:
        """All-gathers of values and of indices instead of one all-reduce."""
        s, ranks = self.setting, replica.stage.ranks
        members = replica.groups[bucket.expert].shape[1]
        kept = max(1, int(bucket.count * self.part))
        select = s.roofline.stream_seconds(SELECT_PASSES * bucket.count * s.gradient_element)
        add = s.roofline.stream_seconds(
            (bucket.count + 2 * members * kept) * s.gradient_element + members * kept * INDEX
        )
        chosen = replica.tape.compute(f"select {name}", ranks, select, after)
        made: list[int] = []
        for what, element, dtype in (
            ("values", s.gradient_element, s.gradient_dtype),
            ("indices", INDEX, "int32"),
        ):
            gathered = replica.exchange(
                f"{name} {what}", "all_gather", members * kept * element, (chosen,),
                expert=bucket.expert, dtype=dtype,
            )  # fmt: skip
            made += [] if gathered is None else [gathered]
        if made:
            replica.tape.later(f"add {name}", ranks, add, tuple(made))
        return made


def compression_of(setting: Setting) -> Compression:
    """What a setting asks for."""
    if setting.compression == "none":
        return Compression(setting)
    if setting.compression == "top-k":
        return TopK(setting, setting.top_k)
    return LowPrecision(setting, DTYPES[setting.compression])
