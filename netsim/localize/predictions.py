"""Simulated times of node tests, healthy and with a fault; equivalent tests are simulated once.

Two tests are equivalent (of one *shape*) if they have equally many nodes and their nodes share leaf
switches in the same way: the first test of a shape that is simulated represents the others. A fault
of a node's part is simulated at the position of the node in the test, a fault of a leaf at the leaf
of the same position. A fault above the leaves is simulated in the first test of a shape whose
messages use its links in the same way (`fabric_use`); if that is unknown, in each test itself.

Tests of more than `LARGE_NODES` nodes are simulated with fewer nodes: the *stand-in* of the test.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import log
from typing import Any

from netsim.base.errors import InputError, NetsimError
from netsim.base.memo import Memo
from netsim.base.startup import at
from netsim.base.values import dataclass
from netsim.localize.fabric_use import NOT_USED, uses_of_fabric
from netsim.localize.node_tests import COMPUTE, NodeTest, SizeQuestion
from netsim.localize.parts import DEAD, KINDS, ClusterParts, Suspect, parts_of
from netsim.localize.settings import SETTINGS, changes_of_setting
from netsim.tasks.answer import checked_cells
from netsim.tasks.cluster import built
from netsim.tasks.outcome import simulate_one
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.yamlio.models import override
from netsim.yamlio.read import Source

IMPOSSIBLE = 9.0
"""The log ratio of a test that cannot run with a fault, though it did: e⁹ times the time."""
EXACT_NODES = 4  # nodes up to which each position in a test is simulated by itself
LARGE_NODES = 12  # nodes above which effects are those on a stand-in, a test of fewer nodes
STAND_IN_NODES = 8
STAND_IN_SIZE = 2**28  # bytes from which effects on a stand-in no longer depend on the size
CLASS_SIZE = 2**27  # bytes at which the GPUs or NICs of a node are compared
SETTING = 0.5  # the severity of settings, which have none
ABOVE_LEAVES = ("spine", "fabric-link")  # kinds of faults of links and switches above the leaves
BRIEF_ITERATIONS = 4
"""Operations back to back of which the effect of a fault is taken, unless it has to be exact. It is
within 1 % of the effect on 20 operations (5 % at small sizes) and takes a third of the time."""

Change = tuple[Suspect, float]
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class PlacedFault:
    """A fault at its position in the test that represents others; equal ones have equal effects.

    Args:
        kind: kind of fault (`parts.KINDS`), or `setting`.
        local: name of the part within its node; for a leaf, the number of the node's NIC at it.
        position: position in the test of the node, or of the first node at the leaf; -1 for parts
            that do not belong to a node.
        severity: severity of the fault.
        setting: id of the setting.
    """

    kind: str
    local: str
    position: int
    severity: float
    setting: str = ""


class Predictor:
    """Simulates node tests on one cluster. `source` is a scenario of the cluster with all nodes."""

    def __init__(self, source: Source, node_count: int) -> None:
        self.node_count = node_count
        self.source = _with_fabric(source, node_count)
        cell = checked_cells(self._scenario(NodeTest(tuple(range(node_count)), "all_reduce")))[0]
        self.parts: ClusterParts = parts_of(built(cell).topology, node_count)
        self.simulated_count = 0
        self._representatives: dict[Key, NodeTest] = {}
        self._seconds: dict[Key, float | None] = {}
        self._resolved: Memo = Memo(64)
        self._index_classes: dict[Key, dict[str, str]] = {}
        self._stand_ins: dict[tuple[NodeTest, SizeQuestion], tuple[NodeTest, SizeQuestion]] = {}
        self._names_above = frozenset((*self.parts.above, *self.parts.spines))
        self._uses: dict[Key, Mapping[str, str] | None] = {}

    @property
    def gpus_per_node(self) -> int:
        """The GPUs of a node that the cluster uses."""
        return len(self.parts.gpus)

    def shape(self, test: NodeTest) -> Key:
        """Return the shape of a test, which is equal for tests with equal healthy times: which of
        its nodes share which leaves, in rank order, and what is run.
        """
        numbers: dict[tuple[str, ...], int] = {}
        groups = tuple(
            numbers.setdefault(self.parts.leaves[node], len(numbers)) for node in test.nodes
        )
        return (groups, test.collective, test.gpus, test.dtype, test.root, test.settings)

    def healthy(self, test: NodeTest, question: SizeQuestion) -> float:
        """Return the time of a test in seconds if nothing is wrong.

        It is 1 for step times, which are not simulated but compared with each other.
        """
        if test.collective == COMPUTE:
            return 1.0
        seconds = self._simulated(test, question, None)
        assert seconds is not None  # errors of healthy tests are raised
        return seconds

    def effect(
        self,
        test: NodeTest,
        question: SizeQuestion,
        suspect: Suspect,
        severity: float,
        *,
        exact: bool = True,
        brief: bool | None = None,
    ) -> float:
        """Return the logarithm of the factor by which a fault makes a test slower.

        Without `exact`, the fault is simulated at an equivalent position that represents others,
        and tests of many nodes by their stand-in. With `brief`, few operations back to back are
        simulated; that is usual for what is not exact.
        """
        if not self.parts.touches(suspect, test):
            return 0.0
        if test.collective == COMPUTE:
            return KINDS[suspect.kind].strain(severity)
        if test.node_count > LARGE_NODES and not exact:
            test, question, suspect = self._on_stand_in(test, question, suspect)
        is_brief = not exact if brief is None else brief
        if is_brief:
            test = _with_few_iterations(test)
        fault = self._placed(test, suspect, severity, exact=exact)
        seconds = self._simulated(test, question, fault)
        return IMPOSSIBLE if seconds is None else log(seconds / self.healthy(test, question))

    def is_simulated(
        self, test: NodeTest, question: SizeQuestion, suspect: Suspect, severity: float
    ) -> bool:
        """Whether the effect of a suspect on a test, not exact, needs no further simulation."""
        if not self.parts.touches(suspect, test) or test.collective == COMPUTE:
            return True
        if test.node_count > LARGE_NODES:
            test, question, suspect = self._on_stand_in(test, question, suspect)
        test = _with_few_iterations(test)
        fault = self._reaching(test, self._placed(test, suspect, severity, exact=False))
        return self._key(test, question, fault) in self._seconds

    def _on_stand_in(
        self, test: NodeTest, question: SizeQuestion, suspect: Suspect
    ) -> tuple[NodeTest, SizeQuestion, Suspect]:
        """Return a test of fewer nodes (the stand-in), a size and a suspect, such that the suspect
        has about the same effect there as on a test of many nodes.

        The stand-in runs the algorithm and the protocol of the large test. With a ring, its size is
        reduced such that a step has the same bytes; with trees, the size is the same.
        """
        if (test, question) not in self._stand_ins:
            self._stand_ins[test, question] = self._stand_in(test, question)
        stand_in, smaller = self._stand_ins[test, question]
        leaves = self.parts.leaves[stand_in.nodes[1]]
        if suspect.node >= 0:
            suspect = replace(suspect, node=stand_in.nodes[1])
        elif suspect.kind == "leaf":
            suspect = replace(suspect, local=leaves[self._place_at_leaf(test, suspect)[1]])
        elif suspect.kind == "fabric-link":
            # Which link a message takes is known only after a simulation, so all links of the leaf
            # have the fault.
            tail, _, head = suspect.local.partition("-")
            place = self._place_at_leaf(test, replace(suspect, local=tail))[1]
            end = head.rstrip("0123456789")
            suspect = replace(suspect, local=f"{leaves[place]}-{end}*")
        elif suspect.kind == "spine":
            suspect = replace(suspect, local=self.parts.spines[0])
        return stand_in, smaller, suspect

    def _stand_in(self, test: NodeTest, question: SizeQuestion) -> tuple[NodeTest, SizeQuestion]:
        count = test.node_count
        nodes = test.nodes
        if len({self.parts.leaves[node] for node in nodes}) > 1:
            nodes = tuple(range(self.node_count))  # all tests of nodes on several leaves share one
        places = [len(nodes) * number // STAND_IN_NODES for number in range(STAND_IN_NODES)]
        stand_in = replace(test, nodes=tuple(nodes[place] for place in places))
        plan = self._resolve(test, None).planned(question.size_bytes)
        size = question.size_bytes
        if plan is not None and plan.algorithm != "SendRecv":
            settings = dict(stand_in.settings)
            settings["nccl.env.NCCL_ALGO"] = plan.algorithm
            settings["nccl.env.NCCL_PROTO"] = plan.protocol
            stand_in = replace(stand_in, settings=tuple(settings.items()))
            if plan.algorithm == "Ring":
                size = max(size * STAND_IN_NODES // count, 1)
        # Rounded sizes and common nodes let tests share simulations.
        size = min(2 ** round(log(size, 2)), STAND_IN_SIZE)
        stand_in = self._representatives.setdefault(self.shape(stand_in), stand_in)
        return stand_in, replace(question, size_bytes=size)

    def _place_at_leaf(self, test: NodeTest, suspect: Suspect) -> tuple[int, int]:
        """Return the first position in a test whose node is at the leaf `suspect`, and which of the
        node's NICs is at it.
        """
        at_leaf = self.parts.nodes_at[suspect.local]
        return next(
            (position, self.parts.leaves[node].index(suspect.local))
            for position, node in enumerate(test.nodes)
            if node in at_leaf
        )

    def _placed(
        self, test: NodeTest, suspect: Suspect, severity: float, *, exact: bool
    ) -> PlacedFault:
        """Return the fault of a suspect in the test that represents `test`; without `exact` at an
        equivalent position.
        """
        if suspect.node >= 0:
            position = test.nodes.index(suspect.node)
            local = suspect.local
            if suspect.kind == "slow-node" and self._ranks_per_node(test) == 1:
                # The only GPU of the node that takes part: the same as a fault of this GPU.
                gpu = test.gpus[0] if test.gpus else 0
                return self._placed(
                    test,
                    replace(suspect, kind="gpu", local=self.parts.gpus[gpu]),
                    severity,
                    exact=exact,
                )
            if not exact:
                local = self._representative_local(test, suspect)
                if test.node_count > EXACT_NODES:
                    position = _representative_position(self.shape(test)[0], position)
            return PlacedFault(suspect.kind, local, position, severity, suspect.setting)
        if suspect.kind == "leaf":
            position, place = self._place_at_leaf(test, suspect)
            return PlacedFault("leaf", str(place), position, severity)
        return PlacedFault(suspect.kind, suspect.local, -1, severity, suspect.setting)

    def _ranks_per_node(self, test: NodeTest) -> int:
        """Return the number of GPUs of each node that take part in a test."""
        return len(test.gpus) or self.gpus_per_node

    def seat(self, test: NodeTest, suspect: Suspect) -> Hashable:
        """Return where a suspect is in a test: in tests of one shape, suspects of one kind with
        equal seats have equal effects.
        """
        if test.node_count > LARGE_NODES and test.collective != COMPUTE:
            return 1  # the position in the stand-in
        if is_by_nodes(suspect.kind, suspect.setting):
            return test.nodes
        if suspect.kind == "leaf":
            return self._place_at_leaf(test, suspect)
        if suspect.node < 0:
            return -1
        position = test.nodes.index(suspect.node)
        if test.collective == COMPUTE:
            return test.gpus  # tests of different GPUs are of one class
        if test.node_count <= EXACT_NODES:
            return position
        return _representative_position(self.shape(test)[0], position)

    def local_in(self, test: NodeTest, suspect: Suspect) -> str:
        """Return the name of the GPU, NIC or link that is simulated in a test in place of the
        suspect's.
        """
        if test.collective == COMPUTE:
            return suspect.local
        if suspect.kind in ABOVE_LEAVES:
            return "" if test.node_count > LARGE_NODES else suspect.local
        if test.node_count > LARGE_NODES:
            test = replace(test, nodes=test.nodes[:2])
        return self._representative_local(test, suspect)

    def _representative_local(self, test: NodeTest, suspect: Suspect) -> str:
        """Return the first GPU or NIC of the node that has the same effect as that of the suspect
        on a test, or on the first two nodes of a test of many.
        """
        if not suspect.local:
            return suspect.local
        few = test if test.node_count <= EXACT_NODES else replace(test, nodes=test.nodes[:2])
        key = (suspect.kind, self.shape(few))
        if key not in self._index_classes:
            self._index_classes[key] = self._classes_of_locals(few, suspect.kind)
        return self._index_classes[key].get(suspect.local, suspect.local)

    def _classes_of_locals(self, test: NodeTest, kind: str) -> dict[str, str]:
        """Return for each local name of a part of this kind the first one with the same effects at
        every position of a test.
        """
        question = SizeQuestion(CLASS_SIZE)
        names = self.parts.nics if kind == "nic" else self.parts.gpus
        severity = KINDS[kind].severities[-1]
        representatives: dict[tuple[float, ...], str] = {}
        classes = {}
        for name in names:
            effects = tuple(
                round(self.effect(test, question, Suspect(kind, "", node, name), severity), 2)
                for node in test.nodes
            )
            classes[name] = representatives.setdefault(effects, name)
        return classes

    def _simulated(
        self, test: NodeTest, question: SizeQuestion, fault: PlacedFault | None
    ) -> float | None:
        """Return the simulated time of a test with a fault in seconds; None if it cannot run with
        the fault.
        """
        fault = self._reaching(test, fault)
        key = self._key(test, question, fault)
        if key not in self._seconds:
            # Other tests may use other links in the same way: a fault above the leaves names the
            # links of this test.
            is_named = fault is not None and is_by_nodes(fault.kind, fault.setting)
            first = test if is_named else self._representatives.setdefault(key[0], test)
            self._seconds[key] = self._simulate(first, question, fault)
        return self._seconds[key]

    def _key(self, test: NodeTest, question: SizeQuestion, fault: PlacedFault | None) -> Key:
        """Return what is equal for tests with equal times with a fault."""
        shape = self.shape(test)
        if fault is None or not is_by_nodes(fault.kind, fault.setting):
            return shape, fault, question
        use = self._use(test, fault)
        if use is None:
            return (*shape, test.nodes), fault, question
        return (*shape, use), replace(fault, local=""), question

    def _reaching(self, test: NodeTest, fault: PlacedFault | None) -> PlacedFault | None:
        """Return the fault, or None if no message of the test can pass the links that it slows."""
        if fault is None or self._use(test, fault) == NOT_USED:
            return None
        return fault

    def _use(self, test: NodeTest, fault: PlacedFault) -> str | None:
        """Return how a test uses the links of a fault above the leaves; None if it is unknown, and
        for other faults or patterns of links.
        """
        if fault.kind not in ABOVE_LEAVES or "*" in fault.local:
            return None
        key = (test.nodes, test.gpus)
        if key not in self._uses:
            self._uses[key] = uses_of_fabric(self._resolve(test, None), self._names_above)
        uses = self._uses[key]
        return None if uses is None else uses.get(fault.local, NOT_USED)

    def _simulate(
        self, test: NodeTest, question: SizeQuestion, fault: PlacedFault | None
    ) -> float | None:
        self.simulated_count += 1
        at(f"{self.simulated_count} simulated", 0, 0)
        if fault is None:
            return self._run(self._resolve(test, None), question)
        with suppress(NetsimError):
            return self._run(self._resolve(test, fault), question)
        return None

    @staticmethod
    def _run(resolved: ResolvedCell, question: SizeQuestion) -> float:
        size = question.size_bytes
        while size and not resolved.collective(size).size_bytes:
            size *= 2  # newer nccl-tests would round the size to nothing
        result = simulate_one(resolved, size, in_place=question.is_in_place, engine="compiled")
        return float(result.seconds)

    def resolved(self, test: NodeTest) -> ResolvedCell:
        """Return the resolved scenario of a test without faults."""
        return self._resolve(test, None)

    def _resolve(self, test: NodeTest, fault: PlacedFault | None) -> ResolvedCell:
        def make() -> ResolvedCell:
            source = self._scenario(test)
            for key, value in self._changes(source, test, fault):
                source = override(source, key, value, "a fault")
            return resolve(checked_cells(source)[0])

        return self._resolved.of((test, fault), make)

    def _changes(
        self, source: Source, test: NodeTest, fault: PlacedFault | None
    ) -> Iterable[tuple[str, Any]]:
        """Return the changes (key, value) that add a fault to the scenario of a test."""
        if fault is None:
            return ()
        if fault.setting:
            setting = SETTINGS[fault.setting]
            return changes_of_setting(setting, source, fault.position, len(self.parts.nics))
        local = fault.local
        if fault.kind == "leaf":
            local = self.parts.leaves[test.nodes[fault.position]][int(local)]
        suspect = Suspect(fault.kind, "", fault.position, local)
        before = source.data["cluster"].get("faults") or []
        entry = self.parts.fault(suspect, fault.severity, fault.position)
        return (("cluster.faults", [*before, entry]),)

    def scenario_with(self, test: NodeTest, changes: Sequence[Change]) -> Source:
        """Return the scenario of a test on a cluster with some faults, as a user would write it."""
        source = self._scenario(test)
        for suspect, severity in changes:
            if self.parts.touches(suspect, test):
                fault = self._placed(test, suspect, severity, exact=True)
                for key, value in self._changes(source, test, fault):
                    source = override(source, key, value, "a fault")
        return source

    def _scenario(self, test: NodeTest) -> Source:
        """Return the scenario of a test without faults."""
        cluster: dict[str, Any] = {**self.source.data["cluster"], "nodes": test.node_count}
        cluster["placement"] = list(test.nodes)
        if test.gpus:
            cluster.pop("gpus_per_node", None)
            cluster["gpus"] = list(test.gpus)
        work: dict[str, Any] = {
            "collective": test.collective,
            "sizes": [2**20],
            "dtype": test.dtype,
        }
        if test.root:
            work["root"] = test.root
        source = replace(
            self.source, data={**self.source.data, "cluster": cluster, "workload": work}
        )
        for key, value in test.settings:
            source = _with_setting(source, key, value)
        return source


def is_by_nodes(kind: str, setting: str) -> bool:
    """Whether the effect of a kind of fault, or of a setting, depends on which nodes are in a test,
    and not only on its shape.

    That is so for links above the leaves: which of them a message uses depends on its source and
    destination.
    """
    return kind in ABOVE_LEAVES or (bool(setting) and SETTINGS[setting].by_nodes)


def _with_few_iterations(test: NodeTest) -> NodeTest:
    """Return a test with at most `BRIEF_ITERATIONS` operations back to back.

    >>> _with_few_iterations(NodeTest((0, 1), "all_reduce")).settings
    (('timing.iterations', '4'),)
    """
    settings = dict(test.settings)
    count = settings.get("timing.iterations", "")
    if count.isdecimal() and int(count) <= BRIEF_ITERATIONS:
        return test
    settings["timing.iterations"] = str(BRIEF_ITERATIONS)
    return replace(test, settings=tuple(settings.items()))


def _with_setting(source: Source, key: str, value: str) -> Source:
    """Return the scenario with a key that a log states, unless the scenario states the key
    itself.
    """
    section, _, name = key.partition(".")
    if section == "launch":
        return source if source.data.get("launch") else override(source, key, value, "the log")
    if key.startswith("nccl.env."):
        variables = dict((source.data.get("nccl") or {}).get("env") or {})
        variable = key.removeprefix("nccl.env.")
        return override(source, "nccl.env", {variable: value, **variables}, "the log")
    if name in (source.data.get(section) or {}):
        return source
    is_count = value.isdecimal()
    return override(source, key, int(value) if is_count else value, "the log")


def _with_fabric(source: Source, node_count: int) -> Source:
    """Return the scenario with a fabric that joins all nodes of the cluster, although a test uses
    only some of them.
    """
    cluster = source.data.get("cluster")
    if not isinstance(cluster, Mapping) or not cluster.get("machine"):
        raise InputError(
            f"{source.name}: expected a cluster of equal nodes (cluster.machine); a graph or a "
            "mixed cluster cannot be searched for a slow part"
        )
    for key in ("sites", "gpus"):
        if cluster.get(key) is not None:
            raise InputError(f"{source.name}: cluster.{key}: is not supported by localize")
    for number, entry in enumerate(cluster.get("overrides") or []):
        if "node" in entry:
            message = "a node of its own figures is not supported by localize; expected none"
            raise InputError(f"{source.name}: cluster.overrides.{number}: {message}")
    if node_count == 1:
        return source
    fabric = dict(cluster.get("fabric") or {"kind": _usual_kind(source)})
    inner = dict(fabric.get("between") or fabric)
    inner["nodes"] = node_count
    fabric = {**fabric, "between": inner} if "between" in fabric else inner
    return override(source, "cluster.fabric", fabric, "the nodes of the cluster")


def _usual_kind(source: Source) -> str:
    """Return the kind of fabric of a cluster that names none: rail-optimized if nodes have several
    NICs, else a single switch.
    """
    data = {**source.data["cluster"], "nodes": 2}
    two_nodes = replace(source, data={"cluster": data, "workload": {"collective": "all_reduce"}})
    nics = built(checked_cells(two_nodes)[0]).cluster
    several = nics is not None and len(nics.ports.owner) > len(set(nics.ports.owner.tolist()))
    return "rail-optimized" if several else "single-switch"


def _representative_position(groups: Sequence[int], position: int) -> int:
    """Return the position that represents `position` in tests of many nodes: the first and the last
    represent themselves; else it is the first one between them on the same leaves.

    `groups` is the number of the leaf group of each position.
    """
    if position in (0, len(groups) - 1):
        return position
    same = [
        place
        for place, group in enumerate(groups)
        if group == groups[position] and 0 < place < len(groups) - 1
    ]
    return same[0]


__all__ = ["DEAD", "IMPOSSIBLE", "Change", "Predictor"]
