"""What a scenario file may say, as models: every key, its type and its default.

Whether the parts fit together (an algorithm and its collective, ranks and GPUs) is checked where
they meet, in `resolve`; how a cluster is described belongs to the topology layer.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from netsim.errors import shown, suggest
from netsim.scenario.names import DTYPES, CollectiveName
from netsim.topology.config import ClusterConfig
from netsim.units import size_steps
from netsim.yamlio.model import FieldError, ListOf, Model
from netsim.yamlio.quantities import Bytes, Index, Seconds

LARGEST_SIZES = 1000  # sizes of one workload; more is a mistake in a range


def _dtype(value: object) -> object:
    if value in DTYPES:
        return value
    known = ", ".join(DTYPES)
    near = suggest(value, DTYPES) if isinstance(value, str) else ""
    raise ValueError(f"expected a data type ({known}), got {shown(value)}{near}")


Dtype = Annotated[str, BeforeValidator(_dtype), Field(json_schema_extra={"enum": list(DTYPES)})]


class SizeRange(Model):
    """Sizes from one to another, each `factor` times the last (or `step` more)."""

    first: Bytes = Field(alias="from")
    last: Bytes = Field(alias="to")
    factor: Annotated[int, Field(ge=2)] | None = None
    step: Bytes | None = None

    @model_validator(mode="after")
    def _check(self) -> "SizeRange":
        if self.factor is not None and self.step is not None:
            raise FieldError("give either a factor or a step, not both", "step")
        if self.last < self.first:
            raise FieldError(f"ends at {self.last} B, before it begins at {self.first} B", "to")
        if self.step and (self.last - self.first) // self.step >= LARGEST_SIZES:
            raise FieldError(f"makes more than {LARGEST_SIZES} sizes", "step")
        return self

    def sizes(self) -> list[int]:
        """The sizes in bytes."""
        if self.step:
            return list(range(self.first, self.last + 1, self.step))
        return size_steps(self.first, self.last, self.factor or 2)


class Workload(Model):
    """A collective to time, as nccl-tests would."""

    collective: CollectiveName
    sizes: SizeRange | ListOf[Bytes] | Bytes = Field(
        default_factory=lambda: SizeRange.model_validate({"from": 8, "to": 2**30})
    )
    dtype: Dtype = "float"
    algorithm: str = "auto"
    parameters: dict[str, Any] = Field(default_factory=dict)
    root: Index = 0
    ranks: ListOf[Index] | None = None
    split: str | None = None
    pairs: ListOf[ListOf[Index]] = ()
    matrix: ListOf[ListOf[Index]] = ()
    timing: Literal["throughput", "single"] = "throughput"

    @model_validator(mode="after")
    def _check(self) -> "Workload":
        if isinstance(self.sizes, tuple) and not self.sizes:
            raise FieldError("expected at least one size, got an empty list", "sizes")
        if self.ranks is not None and len(set(self.ranks)) < max(1, len(self.ranks)):
            raise FieldError("expected different GPUs, at least one", "ranks")
        for number, pair in enumerate(self.pairs):
            if len(pair) != 2:
                raise FieldError("expected [source, destination]", "pairs", number)
        if self.collective == "p2p" and not self.pairs:
            raise FieldError("p2p needs pairs such as [[0, 1]]", "collective")
        return self

    def size_list(self) -> list[int]:
        """The sizes in bytes, as listed."""
        if isinstance(self.sizes, SizeRange):
            return self.sizes.sizes()
        return list(self.sizes) if isinstance(self.sizes, tuple) else [self.sizes]


class LaunchCosts(Model):
    """How operations are issued: by one process a GPU, or by one for all GPUs of a node."""

    style: Literal["process_per_gpu", "single_process"] = "process_per_gpu"
    host: Seconds = 0.0
    kernel: Seconds = 0.0


class Scenario(Model):
    """One scenario file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    cluster: ClusterConfig
    workload: Workload
    launch: LaunchCosts | Literal["process_per_gpu", "single_process"] = "process_per_gpu"
    sweep: dict[str, list[Any]] = Field(default_factory=dict)
    outputs: ListOf[Literal["csv", "plots", "trace"]] = ("csv", "plots", "trace")
    seed: Index = 1

    def launch_costs(self) -> LaunchCosts:
        """The launch section in full."""
        if isinstance(self.launch, LaunchCosts):
            return self.launch
        return LaunchCosts(style=self.launch)
