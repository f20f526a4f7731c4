"""The topology of a scenario: the models of its `cluster` section."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from netsim.topology import hosts
from netsim.yamlio.elsewhere import Elsewhere
from netsim.yamlio.model import FieldError, ListOf, Model
from netsim.yamlio.quantities import Bandwidth, Count, Index

if TYPE_CHECKING:
    from netsim.topology.fabrics.config import FabricConfig
    from netsim.topology.faults import Fault
    from netsim.topology.hosts import Group, MachineChoice, Override
    from netsim.topology.inline import GraphConfig
else:
    FabricConfig = Annotated[Any, Elsewhere("netsim.topology.fabrics.config", "FabricConfig")]
    Fault = Annotated[Any, Elsewhere("netsim.topology.faults", "Fault")]
    Group = Annotated[Any, Elsewhere("netsim.topology.hosts", "Group")]
    MachineChoice = Annotated[Any, Elsewhere("netsim.topology.hosts", "MachineChoice")]
    Override = Annotated[Any, Elsewhere("netsim.topology.hosts", "Override")]
    GraphConfig = Annotated[Any, Elsewhere("netsim.topology.inline", "GraphConfig")]

MOST_NODES = 65_536


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
            machine = hosts.loaded(self.machine).machine
            hosts.check_gpus(machine, self.gpus_per_node, self.gpus)
            hosts.check_nics(machine, self.nics_per_node)
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
        names = set(hosts.Group.model_fields) & set(ClusterConfig.model_fields)
        return (hosts.Group.model_construct(**{name: getattr(self, name) for name in names}),)
