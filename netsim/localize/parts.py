"""Parts of a cluster that may be at fault, and the faults of a scenario that represent them in a
test.

Parts are named as faults name them: `node5`, `node5.nic3`, `leaf2`, `rail1`. In the scenario of a
test, nodes are numbered by their position in the test: node 5 of the cluster is `node0` in a test
in which it is the first node. Switches keep their names, as the fabric of a test is that of the
cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import log

from netsim.base.values import dataclass
from netsim.localize.node_tests import COMPUTE, NodeTest
from netsim.topology.graph import LINK_KINDS, Topology

FRACTIONS = (0.75, 0.45, 0.2)
"""What is left of a link's bandwidth at the severities that are simulated first."""
SLOWDOWNS = (1.4, 2.5, 5.0)
"""The slowdowns of GPUs that are simulated first."""
DEAD = 0.0
"""The severity of a part that is not there: nothing is left of it."""


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault of a part.

    Args:
        id: key in `KINDS`.
        name: kind of part in the output.
        trouble: text on what is wrong.
        weight: its fraction of the prior probability.
        is_slowdown: severities are slowdowns of GPUs (2: twice as long); otherwise they are the
            fraction of a bandwidth that is left.
        may_be_dead: whether a part with no bandwidth left is also considered.
    """

    id: str
    name: str
    trouble: str
    weight: float
    is_slowdown: bool = False
    may_be_dead: bool = False

    @property
    def severities(self) -> tuple[float, ...]:
        """The severities that are simulated first, in the order of increasing effect."""
        return SLOWDOWNS if self.is_slowdown else FRACTIONS

    def strain(self, severity: float) -> float:
        """Return the logarithm of the factor by which the part is slower."""
        return log(severity) if self.is_slowdown else -log(severity)

    def words(self, severity: float) -> str:
        """Return the fault as text: `NIC or its cable: 50% of the bandwidth left`."""
        if severity == DEAD:
            return f"{self.trouble}: dead"
        if self.is_slowdown:
            return f"{self.trouble}: {severity:.2g} times slower"
        return f"{self.trouble}: {severity:.0%} of the bandwidth left"


KINDS = {
    kind.id: kind
    for kind in (
        FaultKind("gpu", "gpu", "slow GPU", 0.12, is_slowdown=True),
        FaultKind("nvlink", "link", "NVLinks of a GPU", 0.12),
        FaultKind("pcie", "link", "PCIe link of a GPU", 0.08),
        FaultKind("nic", "nic", "NIC or its cable", 0.25, may_be_dead=True),
        FaultKind("slow-node", "node", "all GPUs of a node", 0.1, is_slowdown=True),
        FaultKind("node-network", "node", "all NICs of a node", 0.1),
        FaultKind("rail", "rail", "a NIC number on all nodes", 0.05),
        FaultKind("leaf", "leaf", "leaf switch", 0.08),
        FaultKind("spine", "switch", "spine switch", 0.04, may_be_dead=True),
        FaultKind("fabric-link", "link", "link between switches", 0.06, may_be_dead=True),
    )
}


@dataclass(frozen=True, slots=True)
class Suspect:
    """A part that may be at fault.

    Args:
        kind: a key of `KINDS`, or `setting`.
        part: name of the part.
        node: number of its node; -1 for parts that do not belong to one node.
        local: name within the node (`nic3`).
        setting: id of a setting, of one node or (with `node` -1) of all.
    """

    kind: str
    part: str
    node: int = -1
    local: str = ""
    setting: str = ""

    @property
    def kind_name(self) -> str:
        """The kind of part that the output shows."""
        return "setting" if self.setting else KINDS[self.kind].name


@dataclass(frozen=True)
class ClusterParts:
    """The parts of a cluster whose nodes are all equal.

    Args:
        gpus: local names of a node's GPUs.
        nics: local names of a node's NICs.
        nvlinks: for each GPU the nodes at the other end of its NVLinks, as a pattern of faults.
        pcie_links: the same for its PCIe link.
        leaves: for each node its leaf switches in the order of its NICs.
        above: names of the links from leaves to other switches.
        spines: names of these other switches.
        nodes_at: numbers of the nodes at each leaf.
    """

    node_count: int
    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    nvlinks: Mapping[str, str] = field(default_factory=dict)
    pcie_links: Mapping[str, str] = field(default_factory=dict)
    leaves: tuple[tuple[str, ...], ...] = ()
    above: tuple[str, ...] = ()
    spines: tuple[str, ...] = ()
    nodes_at: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @property
    def leaf_names(self) -> list[str]:
        """All leaf switches that have a node."""
        return sorted({leaf for leaves in self.leaves for leaf in leaves})

    @property
    def has_node_leaves(self) -> bool:
        """Whether every node has all its NICs on one leaf, and there are several leaves."""
        return len(self.leaf_names) > 1 and all(len(set(leaves)) == 1 for leaves in self.leaves)

    def suspects(self) -> Iterator[Suspect]:
        """Yield every part that may be at fault, once for each kind of fault."""
        for node in range(self.node_count):
            yield from self.suspects_of_node(node)
        if self.node_count < 2:
            return
        yield from self._network_suspects()

    def suspects_of_node(self, node: int) -> Iterator[Suspect]:
        """Yield the parts of one node that may be at fault, once for each kind of fault."""
        name = f"node{node}"
        yield Suspect("slow-node", name, node)
        for gpu in self.gpus:
            yield Suspect("gpu", f"{name}.{gpu}", node, gpu)
            if gpu in self.nvlinks:
                yield Suspect("nvlink", self._link(name, gpu, self.nvlinks[gpu]), node, gpu)
            if gpu in self.pcie_links:
                yield Suspect("pcie", self._link(name, gpu, self.pcie_links[gpu]), node, gpu)
        if self.node_count < 2:
            return
        if len(self.nics) > 1:
            yield Suspect("node-network", name, node)
        for nic in self.nics:
            yield Suspect("nic", f"{name}.{nic}", node, nic)

    def _network_suspects(self) -> Iterator[Suspect]:
        if len(self.nics) > 1:
            for nic in self.nics:
                yield Suspect("rail", f"rail{nic.removeprefix('nic')}", local=nic)
        if len(self.leaf_names) > 1:
            for leaf in self.leaf_names:
                yield Suspect("leaf", leaf, local=leaf)
        for spine in self.spines:
            yield Suspect("spine", spine, local=spine)
        for link in self.above:
            yield Suspect("fabric-link", link, local=link)

    @staticmethod
    def _link(name: str, gpu: str, end: str) -> str:
        """Return the name of a link of a GPU, in the form in which faults name it; `end` is a
        pattern of `nvlinks`.
        """
        return f"{name}.{gpu}-{end.replace('NODE', name)}"

    def fault(self, suspect: Suspect, severity: float, position: int) -> dict[str, object]:
        """Return the fault of a scenario that represents a suspect, whose node has the number
        `position` in a test.
        """
        name = f"node{position}"
        left = f"{severity * 100:.6g}%"
        if suspect.kind == "gpu":
            return {"gpu": f"{name}.{suspect.local}", "slowdown": severity}
        if suspect.kind == "slow-node":
            return {"host": position, "slowdown": severity}
        if suspect.kind == "node-network":
            return {"host": position, "bandwidth": left}
        if suspect.kind == "nvlink":
            link = self._link(name, suspect.local, self.nvlinks[suspect.local])
            return {"link": link, "bandwidth": left}
        if suspect.kind == "pcie":
            link = self._link(name, suspect.local, self.pcie_links[suspect.local])
            return {"link": link, "bandwidth": left}
        key, value = {
            "nic": ("nic", f"{name}.{suspect.local}"),
            "rail": ("rail", suspect.local.removeprefix("nic")),
            "leaf": ("switch", suspect.local),
            "spine": ("switch", suspect.local),
            "fabric-link": ("link", suspect.local),
            "fabric-links": ("link", suspect.local),
        }[suspect.kind]
        if severity == DEAD and key != "link":
            return {key: value}
        return {key: value, "bandwidth": left}

    def touches(self, suspect: Suspect, test: NodeTest) -> bool:
        """Whether a fault of a suspect can make a test slower at all."""
        if suspect.node >= 0 and suspect.node not in test.nodes:
            return False
        if test.collective == COMPUTE:
            return self._touches_step(suspect, test)
        if suspect.setting or suspect.kind == "slow-node":
            return True
        if suspect.kind in ("gpu", "nvlink", "pcie"):
            number = int(suspect.local.removeprefix("gpu"))
            return not test.gpus or number in test.gpus or suspect.kind == "nvlink"
        if test.node_count < 2:
            return False
        if suspect.kind == "leaf":
            return not self.nodes_at[suspect.local].isdisjoint(test.nodes)
        if suspect.kind == "fabric-link":
            leaf = suspect.local.partition("-")[0]
            return not self.nodes_at[leaf].isdisjoint(test.nodes) and self.crosses(test)
        if suspect.kind == "spine":
            return self.crosses(test)
        return True

    @staticmethod
    def _touches_step(suspect: Suspect, test: NodeTest) -> bool:
        if suspect.kind == "slow-node":
            return True
        if suspect.kind != "gpu":
            return False
        return not test.gpus or int(suspect.local.removeprefix("gpu")) in test.gpus

    def crosses(self, test: NodeTest) -> bool:
        """Whether messages of a test may pass above the leaves: the NICs of its nodes are on
        several leaves.
        """
        first = self.leaves[test.nodes[0]][:1]
        return any({*self.leaves[node]} != {*first} for node in test.nodes)

    def pattern_of(self, suspects: Sequence[Suspect]) -> str | None:
        """Return a pattern of faults that matches exactly the parts of these suspects
        (`node5.nic*`); None if there is none.

        There is one for all NICs or all GPUs of one node, or of all nodes.
        """
        kinds = {suspect.kind for suspect in suspects}
        if len(kinds) != 1 or kinds & {"nvlink", "pcie"}:
            return None
        kind = kinds.pop()
        nodes = {suspect.node for suspect in suspects}
        locals_of_kind = {
            "gpu": self.gpus,
            "nic": self.nics,
            "slow-node": ("",),
            "node-network": ("",),
        }.get(kind)
        if locals_of_kind is None:
            return None
        if len(suspects) != len(nodes) * len(locals_of_kind):
            return None
        if len(nodes) not in (1, self.node_count):
            return None
        node_name = f"node{nodes.pop()}" if len(nodes) == 1 else "node*"
        return node_name if locals_of_kind == ("",) else f"{node_name}.{kind}*"


def parts_of(topology: Topology, node_count: int) -> ClusterParts:
    """Return the parts of a cluster, given its topology; its nodes are all of one kind."""
    names = [str(name) for name in topology.nodes]
    links = topology.links
    ends: dict[str, list[tuple[str, str]]] = {}
    for tail, head, kind in zip(
        links.tail.tolist(), links.head.tolist(), links.kind.tolist(), strict=True
    ):
        ends.setdefault(names[tail], []).append((names[head], LINK_KINDS[kind]))
    gpus = tuple(
        str(gpu).partition(".")[2] for gpu in topology.gpus if str(gpu).startswith("node0.")
    )
    nics = tuple(name.partition(".")[2] for name in names if name.startswith("node0.nic"))
    switches = [name for name in names if "." not in name]
    leaves = [
        tuple(_cables(ends, f"node{node}.{nic}") for nic in nics) for node in range(node_count)
    ]
    nodes_at: dict[str, set[int]] = {}
    for node, names_of_node in enumerate(leaves):
        for leaf in names_of_node:
            nodes_at.setdefault(leaf, set()).add(node)
    leaf_names = set(nodes_at)
    above = dict.fromkeys(
        f"{leaf}-{head}"
        for leaf in switches
        if leaf in leaf_names
        for head, kind in ends.get(leaf, ())
        if kind == "fabric"
    )
    return ClusterParts(
        node_count,
        gpus,
        nics,
        _link_patterns(ends, gpus, ("nvlink", "xgmi")),
        _link_patterns(ends, gpus, ("pcie", "c2c")),
        tuple(leaves) if all(all(row) for row in leaves) else ((),) * node_count,
        tuple(above),
        tuple(name for name in switches if name not in leaf_names and name in ends and above),
        {leaf: frozenset(nodes) for leaf, nodes in nodes_at.items()},
    )


def _cables(ends: Mapping[str, Sequence[tuple[str, str]]], nic: str) -> str:
    """Return the name of the switch that the first port of a NIC is cabled to; empty if no port is.
    `ends` are the names (tail, head) of links.
    """
    return next((head for head, kind in ends.get(nic, ()) if kind == "nic"), "")


def _link_patterns(
    ends: Mapping[str, Sequence[tuple[str, str]]], gpus: Sequence[str], kinds: Sequence[str]
) -> dict[str, str]:
    """For each GPU of a node, a pattern of the nodes at the other end of its links of these kinds.

    The name of the node is replaced by NODE: `{"gpu0": "NODE.nvswitch*"}` if all of GPU 0's NVLinks
    go to the NVSwitches of the node.
    """
    patterns = {}
    for gpu in gpus:
        heads = [head for head, kind in ends.get(f"node0.{gpu}", ()) if kind in kinds]
        if not heads:
            continue
        stems = {head.rstrip("0123456789") for head in heads}
        end = heads[0] if len(heads) == 1 else f"{stems.pop()}*"
        patterns[gpu] = end.replace("node0.", "NODE.")
    return patterns


def common_pattern(links: Sequence[str]) -> str:
    """Return a pattern that matches all links between leaves and the switches above them.

    >>> common_pattern(["leaf0-spine0", "leaf1-spine0"])
    'leaf*-spine*'
    """
    tails, heads = zip(*(link.partition("-")[::2] for link in links), strict=True)
    return "-".join(f"{names[0].rstrip('0123456789')}*" for names in (tails, heads))
