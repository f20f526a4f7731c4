"""The models of the `cluster` section of a scenario: machines, groups of hosts, or a graph of
GPUs.
"""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, Tag, model_validator

from netsim.base import constants
from netsim.base.errors import InputError, ScenarioError, suggest
from netsim.topology.fabrics.config import FabricConfig
from netsim.topology.faults import Fault
from netsim.topology.graph import GraphSketch, Switching, Topology, TopologyError
from netsim.topology.load import Loaded, find_machine
from netsim.topology.machine import Machine, oldest_machine
from netsim.topology.routing import (
    StaticRouter,
    cheapest_paths,
    check_grid,
    full_mesh,
    ring,
    switch,
    torus,
)
from netsim.yamlio import models
from netsim.yamlio.models import Bandwidth, Count, Delays, FieldError, Index, ListOf, Model, Seconds

MOST_NODES = 65_536
FIBRE = constants.value("wire.fibre")  # seconds a metre
MOST_NICS_A_GPU = 4  # 32 EFA devices beside 8 GPUs (p5.48xlarge)


def _existing_machine(name: str) -> str:
    """Return the name of a machine; raise a ValueError if there is no such machine."""
    try:
        find_machine(name)
    except ScenarioError:
        raise
    except InputError as error:
        raise ValueError(str(error)) from None
    return name


MachineName = Annotated[str, AfterValidator(_existing_machine)]
MachineChoice = MachineName | Annotated[Machine, Tag("Machine")]


class HostGroup(Model):
    """A group of equal hosts in a mixed cluster.

    - `machine`: the machine, by name or in full.
    - `nodes`: number of hosts.
    - `gpus_per_node`, `gpus`: how many GPUs of each host are used, or which.
    - `nics_per_node`: how many NICs of each host are used.
    - `nic`: line rate of each NIC, bytes per second.
    - `p2p`: whether GPUs may reach each other's memory over PCIe.
    """

    machine: MachineChoice
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1
    gpus_per_node: Count | None = None
    gpus: ListOf[Index] | None = None
    nics_per_node: Index | None = None
    nic: Bandwidth | None = None
    p2p: bool | None = None

    @model_validator(mode="after")
    def _gpus_exist(self) -> "HostGroup":
        check_gpus(self.loaded.machine, self.gpus_per_node, self.gpus)
        check_nics(self.loaded.machine, self.nics_per_node)
        return self

    @property
    def nic_count(self) -> int:
        """The number of NICs that each host uses."""
        nics = self.loaded.machine.nics
        in_machine = nics.count if nics else 0
        return in_machine if self.nics_per_node is None else self.nics_per_node

    @property
    def loaded(self) -> Loaded:
        """The machine; read from its file if it is given by name."""
        return loaded(self.machine)


class Override(Model):
    """Changed values for hosts, or for links.

    - `node`: the host or hosts; without it, all.
    - `nics`: the numbers of the NICs that these hosts have.
    - `machine`: changed figures of the machine, nested as in its file.
    - `link`: name or pattern of links, as in faults; they get another line rate `bandwidth` (bytes
      per second) or `latency` (seconds).
    """

    node: Index | ListOf[Index] | None = None
    nics: ListOf[Index] | None = None
    machine: dict[str, Any] = Field(default_factory=dict)
    link: str | None = None
    bandwidth: Bandwidth | None = None
    latency: Seconds | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> "Override":
        figures = self.model_fields_set & {"bandwidth", "latency"}
        if self.link is None and figures:
            raise FieldError("has no meaning without a link", min(figures))
        if self.link is not None and not figures:
            raise FieldError("a link needs bandwidth or latency", "link")
        foreign = self.model_fields_set & {"node", "nics", "machine"}
        if self.link is not None and foreign:
            raise FieldError("has no meaning beside link", min(foreign))
        return self

    @property
    def hosts(self) -> tuple[int, ...]:
        """The hosts that `node` names; () if it applies to all."""
        if self.node is None:
            return ()
        return (self.node,) if isinstance(self.node, int) else self.node

    def applies(self, host: int) -> bool:
        """Whether the override applies to a host."""
        return self.node is None or host in self.hosts


def loaded(machine: str | Machine) -> Loaded:
    """Return the machine with its name, given the name or the machine itself."""
    return find_machine(machine) if isinstance(machine, str) else Loaded("machine", machine)


def check_nics(machine: Machine, per_node: int | None) -> None:
    """Refuse a `nics_per_node` above 4 NICs a GPU, unless the machine has that many. A number that
    differs from the machine's is a what-if, and is allowed.
    """
    most = max(MOST_NICS_A_GPU * machine.gpu.count, machine.nics.count if machine.nics else 0)
    if per_node is not None and per_node > most:
        raise FieldError(
            f"expected at most {most} ({MOST_NICS_A_GPU} a GPU), got {per_node}", "nics_per_node"
        )


def check_gpus(machine: Machine, per_node: int | None, gpus: tuple[int, ...] | None) -> None:
    """Refuse a number of GPUs, or numbers of GPUs, that the machine does not have; `per_node` and
    `gpus` are the keys `gpus_per_node` and `gpus`.
    """
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


MOST_GPUS = 262_144
MOST_MESHED = 2048
GpuCount = Annotated[int, Field(ge=1, le=MOST_GPUS)]
NodeKind = Literal["gpu", "nvswitch", "pcie", "cpu", "nic", "switch", "memory"]
LinkKind = Literal["nvlink", "xgmi", "c2c", "pcie", "upi", "hostmem", "nic", "fabric"]


class _GeneratedGraph(Model):
    """The keys of all generated graphs: bytes per second of a link in each direction, and seconds
    of a hop.
    """

    bandwidth: Bandwidth
    latency: Seconds = 0.0


class PlainGraph(_GeneratedGraph):
    """GPUs on one switch, in a ring, or with a link between every two.

    `latency`: seconds of one link; for a switch, seconds of the whole route from GPU to GPU.
    """

    kind: Literal["switch", "ring", "full-mesh"]
    gpus: GpuCount

    @model_validator(mode="after")
    def _bounded(self) -> "PlainGraph":
        if self.kind == "full-mesh" and self.gpus > MOST_MESHED:
            raise FieldError(f"expected at most {MOST_MESHED}, got {self.gpus}", "gpus")
        return self

    def build(self) -> Topology:
        """Return the topology of the graph."""
        made = {"switch": switch, "ring": ring, "full-mesh": full_mesh}[self.kind]
        return made(self.gpus, self.bandwidth, self.latency)


class TorusGraph(_GeneratedGraph):
    """A torus of GPUs.

    - `dims`: number of GPUs in each dimension.
    - `bandwidth`, `latency`: one value, or a list with one value for each dimension.
    - `twist`: whether the links that close a dimension of length k are shifted by k in the
      dimensions of length 2k.
    - `cube`: GPUs along the edge of a cube; links between cubes pass optical switches.
    - `optical`: seconds that such links take longer.
    """

    kind: Literal["torus"]
    dims: Annotated[ListOf[Count], Field(min_length=1, max_length=6)]
    bandwidth: models.Bandwidths  # type: ignore[assignment]
    latency: Delays = (0.0,)  # type: ignore[assignment]
    twist: bool = False
    cube: Index = 0
    optical: Seconds = 0.0

    @model_validator(mode="after")
    def _bounded(self) -> "TorusGraph":
        if np.prod(self.dims, dtype=np.float64) > MOST_GPUS:
            raise FieldError(f"expected at most {MOST_GPUS} GPUs, got {list(self.dims)}", "dims")
        for name in ("bandwidth", "latency"):
            count = len(getattr(self, name))
            if count not in (1, len(self.dims)):
                message = (
                    f"expected one, or one for each of {len(self.dims)} dimensions, got {count}"
                )
                raise FieldError(message, name)
        try:
            check_grid(self.dims, twist=self.twist, cube=self.cube)
        except TopologyError as error:
            key, _, message = error.message.partition(": ")
            raise FieldError(message, key) from None
        return self

    def build(self) -> Topology:
        """Return the topology of the torus."""
        shape = {"twist": self.twist, "cube": self.cube, "optical": self.optical}
        return torus(self.dims, self.bandwidth, self.latency, **shape)


class NodeConfig(Model):
    """A node of a graph.

    - `forwards`: whether a GPU forwards traffic between others (default: no; other nodes: yes).
    - `reduces`: whether a switch adds up data that passes it.
    """

    name: Annotated[str, Field(min_length=1)]
    kind: NodeKind = "gpu"
    forwards: bool | None = None
    reduces: bool = False


class LinkConfig(Model):
    """A link from node `from` to node `to`; also in the other direction unless `both: false`.

    The two directions of a half-duplex link share one bandwidth (bytes per second).
    """

    tail: Annotated[str, Field(alias="from")]
    head: Annotated[str, Field(alias="to")]
    bandwidth: Bandwidth
    latency: Seconds = 0.0
    kind: LinkKind = "fabric"
    duplex: Literal["full", "half"] = "full"
    both: bool = True


class InlineGraph(Model):
    """A graph that lists its nodes and links.

    `switching` says whether a node forwards a message as it arrives (cut-through), or once it has
    arrived completely (store-and-forward).
    """

    kind: Literal["inline"] = "inline"
    nodes: ListOf[NodeConfig]
    links: ListOf[LinkConfig] = ()
    switching: Switching = "cut-through"

    @model_validator(mode="before")
    @classmethod
    def _has_nodes(cls, value: Any) -> Any:
        if isinstance(value, dict) and not {"nodes", "links"} & set(value):
            kinds = ", ".join(GRAPHS)
            raise FieldError(f"missing key 'kind' (one of {kinds}), or nodes and links")
        return value

    @model_validator(mode="after")
    def _sound(self) -> "InlineGraph":
        names: set[str] = set()
        for number, node in enumerate(self.nodes):
            if node.name in names:
                raise FieldError(f"two nodes are called '{node.name}'", "nodes", number, "name")
            names.add(node.name)
        if not any(node.kind == "gpu" for node in self.nodes):
            raise FieldError("expected at least one node of kind gpu", "nodes")
        self._check_links(names)
        self._check_connected()
        return self

    def _check_links(self, names: set[str]) -> None:
        seen: set[tuple[str, str]] = set()
        for number, link in enumerate(self.links):
            for key, end in (("from", link.tail), ("to", link.head)):
                if end not in names:
                    hint = suggest(end, names)
                    raise FieldError(f"there is no node '{end}'{hint}", "links", number, key)
            if link.tail == link.head:
                raise FieldError(f"a link from '{link.tail}' to itself", "links", number)
            ends = [(link.tail, link.head), *([(link.head, link.tail)] if link.both else [])]
            if seen & set(ends):
                message = f"a second link between '{link.tail}' and '{link.head}'"
                raise FieldError(message, "links", number)
            seen.update(ends)

    def _check_connected(self) -> None:
        topology = self.build()
        nodes = topology.gpu_nodes
        first = np.full(len(nodes), nodes[0])
        for ends in ((first, nodes), (nodes, first)):
            if cheapest_paths(topology, *ends) is not None:
                continue
            pairs = (np.array(pair)[:, None] for pair in zip(*ends, strict=True))
            apart = next(pair for pair in pairs if cheapest_paths(topology, *pair) is None)
            names = " to ".join(f"'{topology.nodes[int(node[0])]}'" for node in apart)
            raise FieldError(
                f"not connected: there is no path from {names} (a GPU passes on traffic of others "
                "only with forwards: true)",
                "links",
            )

    def build(self) -> Topology:
        """Return the topology of the graph. Its routes are cheapest paths, see StaticRouter."""
        graph = GraphSketch()
        for node in self.nodes:
            forwards = node.kind != "gpu" if node.forwards is None else node.forwards
            graph.node(node.name, kind=node.kind, forwards=forwards, reduces=node.reduces)
        for link in self.links:
            attributes = link.model_dump(include={"bandwidth", "latency", "kind", "duplex"})
            graph.edge(link.tail, link.head, both=link.both, **attributes)
        gpus = tuple(node.name for node in self.nodes if node.kind == "gpu")
        return Topology("graph", graph, gpus, StaticRouter(), switching=self.switching)


GRAPHS = ("switch", "ring", "full-mesh", "torus")


def _with_kind(value: object) -> object:
    """Add `kind: inline` to a graph without a kind, which lists its nodes and links; refuse the
    name of a file.
    """
    named = value.get("file") if isinstance(value, dict) else value
    if isinstance(named, str) and "." in named:
        makes = f"`netsim topo import {named}` makes a scenario of another tool's network"
        raise FieldError(f"expected a kind of {', '.join(GRAPHS)}, or nodes and links; {makes}")
    return {"kind": "inline", **value} if isinstance(value, dict) else value


GraphConfig = Annotated[
    PlainGraph | TorusGraph | InlineGraph, Field(discriminator="kind"), BeforeValidator(_with_kind)
]
"""A graph of GPUs: a generator by its kind, or nodes and links."""


class Sites(Model):
    """Several sites that share one job; hosts fill them in order.

    - `count`: number of sites with equally many hosts; or `nodes`: the number of hosts of each.
    - `links`: cables between every two sites, each of `bandwidth` (bytes per second).
    - `latency`: seconds from site to site (one way); or `distance`: metres of fiber.
    """

    count: Annotated[int, Field(ge=2, le=64)] | None = None
    nodes: Annotated[ListOf[Count], Field(min_length=2, max_length=64)] | None = None
    distance: models.Metres | None = None
    latency: Seconds | None = None
    bandwidth: Bandwidth
    links: Annotated[int, Field(ge=1, le=1024)] = 1

    @model_validator(mode="after")
    def _stated_once(self) -> "Sites":
        for first, second in (("distance", "latency"), ("count", "nodes")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise FieldError(f"give {first} or {second}, not both", second)
        if self.distance is None and self.latency is None:
            raise FieldError("expected distance (such as 100km) or latency (one way)")
        return self

    @property
    def delay(self) -> float:
        """Seconds from one site to another, one way."""
        return (self.distance or 0) * FIBRE if self.latency is None else self.latency

    def hosts(self, total: int) -> tuple[int, ...]:
        """Return the number of hosts of every site, if the cluster has `total` hosts."""
        count = self.count or 2
        host_counts = self.nodes or (max(1, total // count),) * count
        if sum(host_counts) != total:
            terms = " + ".join(map(str, host_counts))
            problem = f"{terms} are not the {total} hosts of the cluster"
            raise FieldError(problem, "sites", "nodes" if self.nodes else "count")
        return host_counts


class ClusterConfig(Model):
    """The `cluster` section of a scenario: hosts joined by a fabric, or a graph of GPUs."""

    machine: MachineChoice | None = None
    graph: GraphConfig | None = None
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1
    groups: ListOf[HostGroup] = ()
    gpus_per_node: Count | None = None
    gpus: ListOf[Index] | None = None
    nics_per_node: Index | None = None
    nic: Bandwidth | None = None
    p2p: bool | None = None
    fabric: FabricConfig | None = None
    sites: Sites | None = None
    placement: Literal["contiguous", "spread", "random"] | ListOf[Index] = "contiguous"
    seed: Index = 0
    overrides: ListOf[Override] = ()
    faults: ListOf[Fault] = ()

    @model_validator(mode="after")
    def _one_kind(self) -> "ClusterConfig":
        stated = [name for name in ("machine", "graph", "groups") if getattr(self, name)]
        if len(stated) != 1:
            got = " and ".join(stated) or "none of them"
            raise FieldError(f"expected one of machine, groups or graph, got {got}", *stated[-1:])
        foreign = self.model_fields_set - {"graph", "faults", "seed"} if self.graph else set()
        single = self.model_fields_set & {"nodes", "gpus_per_node", "gpus", "nics_per_node"}
        if self.groups:
            foreign = single | (self.model_fields_set & {"nic", "p2p"})
        if foreign:
            name = sorted(foreign)[0]
            raise FieldError(f"has no meaning beside {stated[0]}", name)
        if self.sites is not None and self.placement != "contiguous":
            raise FieldError("has no meaning beside sites, which hosts fill in order", "placement")
        if self.machine is not None:
            machine = loaded(self.machine).machine
            check_gpus(machine, self.gpus_per_node, self.gpus)
            check_nics(machine, self.nics_per_node)
        return self

    @property
    def network(self) -> Any:
        """The fabric that joins hosts or NVLink domains: `fabric.between` of NVLink domains if it
        is given, else `fabric`; None if not given.
        """
        fabric = self.fabric
        if fabric is not None and fabric.kind == "nvlink-domain":
            return fabric.between or fabric
        return fabric

    def nic_rate_of(self, group: HostGroup) -> float | None:
        """Return the line rate in bytes/s that the file sets for the NICs of a group; None: that of
        their machine.

        The rate of a group takes precedence over that of the fabric, which all hosts share.
        """
        if group.nic:
            return group.nic
        return self.network.nic if self.network else None

    @property
    def nic_rate(self) -> float | None:
        """The line rate in bytes/s that the file sets for all NICs; None: that of their
        machines.
        """
        if self.nic:
            return self.nic
        return self.network.nic if self.network else None

    @property
    def usual_transport(self) -> str:
        """The name of the transport that applies if the fabric names none: that of the oldest
        machine.
        """
        return oldest_machine(group.loaded.machine for group in self.members).transport

    @property
    def members(self) -> tuple[HostGroup, ...]:
        """The hosts as groups; a cluster with one `machine` is a single group."""
        if self.machine is None:
            return self.groups
        names = set(HostGroup.model_fields) & set(ClusterConfig.model_fields)
        return (HostGroup.model_construct(**{name: getattr(self, name) for name in names}),)
