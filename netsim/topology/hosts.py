"""The hosts of a `cluster` section: their machines, groups of equal ones, figures of some."""

from typing import Annotated, Any, Union

from pydantic import AfterValidator, Field, model_validator

from netsim.errors import InputError, ScenarioError
from netsim.topology.config import MOST_NODES
from netsim.topology.load import Loaded, find_machine
from netsim.topology.machine import Machine
from netsim.yamlio.model import FieldError, ListOf, Model
from netsim.yamlio.quantities import Bandwidth, Count, Index

MOST_NICS_A_GPU = 4  # 32 EFA devices beside 8 GPUs (p5.48xlarge)


def _known(name: str) -> str:
    """The name of a machine that can be read."""
    try:
        find_machine(name)
    except ScenarioError:
        raise
    except InputError as error:
        raise ValueError(str(error)) from None
    return name


MachineName = Annotated[str, AfterValidator(_known)]
MachineChoice = Union[MachineName, Machine]  # noqa: UP007 - an Annotated member cannot use |


class Group(Model, defer_build=False):
    """Equal hosts of a mixed cluster."""

    machine: MachineChoice
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1
    gpus_per_node: Count | None = None
    gpus: ListOf[Index] | None = None
    nics_per_node: Index | None = None
    nic: Bandwidth | None = None
    p2p: bool | None = None

    @model_validator(mode="after")
    def _gpus_exist(self) -> "Group":
        check_gpus(self.loaded.machine, self.gpus_per_node, self.gpus)
        check_nics(self.loaded.machine, self.nics_per_node)
        return self

    @property
    def loaded(self) -> Loaded:
        """The machine, read from its file if it was named."""
        return loaded(self.machine)


class Override(Model, defer_build=False):
    """Other figures for one host, some, or (without `node`) all; `nics`: only these are there."""

    node: Index | ListOf[Index] | None = None
    nics: ListOf[Index] | None = None
    machine: dict[str, Any] = Field(default_factory=dict)

    @property
    def hosts(self) -> tuple[int, ...]:
        """The hosts that are named."""
        if self.node is None:
            return ()
        return (self.node,) if isinstance(self.node, int) else self.node

    def applies(self, host: int) -> bool:
        """Whether it is about a host."""
        return self.node is None or host in self.hosts


def loaded(machine: str | Machine) -> Loaded:
    """A machine that was named or written out."""
    return find_machine(machine) if isinstance(machine, str) else Loaded("machine", machine)


def check_nics(machine: Machine, per_node: int | None) -> None:
    """Refuse more NICs than any host has; fewer or more than the machine's own are a what-if."""
    most = max(MOST_NICS_A_GPU * machine.gpu.count, machine.nics.count if machine.nics else 0)
    if per_node is not None and per_node > most:
        raise FieldError(
            f"expected at most {most} ({MOST_NICS_A_GPU} a GPU), got {per_node}", "nics_per_node"
        )


def check_gpus(machine: Machine, per_node: int | None, gpus: tuple[int, ...] | None) -> None:
    """Refuse GPUs that a machine does not have."""
    count = machine.gpu.count
    if per_node is not None and gpus is not None:
        raise FieldError("give gpus_per_node or gpus, not both", "gpus")
    if per_node is not None and per_node > count:
        raise FieldError(f"the machine has {count} GPUs, got {per_node}", "gpus_per_node")
    if gpus is not None and not gpus:
        raise FieldError("expected at least one GPU", "gpus")
    for number, gpu in enumerate(gpus or ()):
        if gpu >= count:
            raise FieldError(f"the machine has GPUs 0 to {count - 1}, got {gpu}", "gpus", number)
        if gpu in (gpus or ())[:number]:
            raise FieldError(f"GPU {gpu} twice", "gpus", number)
