"""The topology of a scenario: the models of its `cluster` section."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import AfterValidator, Field, model_validator

from netsim.errors import InputError, ScenarioError
from netsim.topology.faults import Fault
from netsim.topology.load import Loaded, find_machine
from netsim.topology.machine import Machine
from netsim.yamlio.elsewhere import Elsewhere
from netsim.yamlio.model import FieldError, ListOf, Model
from netsim.yamlio.quantities import Bandwidth, Count, Index

if TYPE_CHECKING:
    from netsim.topology.fabrics.config import FabricConfig
    from netsim.topology.inline import GraphConfig
else:
    FabricConfig = Annotated[Any, Elsewhere("netsim.topology.fabrics.config", "FabricConfig")]
    GraphConfig = Annotated[Any, Elsewhere("netsim.topology.inline", "GraphConfig")]

MOST_NODES = 65_536
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


class Group(Model):
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


class Override(Model):
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


class ClusterConfig(Model, defer_build=False):
    """Hosts of a machine joined by a fabric, or a graph of GPUs."""

    machine: MachineChoice | None = None
    graph: GraphConfig | None = None
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1
    groups: ListOf[Group] = ()
    gpus_per_node: Count | None = None
    gpus: ListOf[Index] | None = None
    nics_per_node: Index | None = None
    nic: Bandwidth | None = None
    p2p: bool | None = None
    fabric: FabricConfig | None = None
    placement: Literal["contiguous", "spread", "random"] | ListOf[Index] = "contiguous"
    seed: Index = 0
    overrides: ListOf[Override] = ()
    faults: ListOf[Fault] = ()

    @model_validator(mode="after")
    def _one_kind(self) -> "ClusterConfig":
        given = [name for name in ("machine", "graph", "groups") if getattr(self, name)]
        if len(given) != 1:
            what = " and ".join(given) or "none of them"
            raise FieldError(f"expected one of machine, groups or graph, got {what}", *given[-1:])
        foreign = self.model_fields_set - {"graph", "faults", "seed"} if self.graph else set()
        single = self.model_fields_set & {"nodes", "gpus_per_node", "gpus", "nics_per_node"}
        if self.groups:
            foreign = single | (self.model_fields_set & {"nic", "p2p"})
        if foreign:
            name = sorted(foreign)[0]
            raise FieldError(f"has no meaning beside {given[0]}", name)
        if self.machine is not None:
            check_gpus(loaded(self.machine).machine, self.gpus_per_node, self.gpus)
            check_nics(loaded(self.machine).machine, self.nics_per_node)
        return self

    @property
    def network(self) -> Any:
        """The fabric between hosts, or between NVLink domains; None where none is given."""
        return getattr(self.fabric, "between", None) or self.fabric

    @property
    def members(self) -> tuple[Group, ...]:
        """The hosts as groups, also where there is only one kind."""
        if self.machine is None:
            return self.groups
        names = set(Group.model_fields) & set(ClusterConfig.model_fields)
        return (Group.model_construct(**{name: getattr(self, name) for name in names}),)


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
