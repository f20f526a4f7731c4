"""Compare NCCL's debug log with what netsim derives for the same test.

The lines are those of NCCL 2.18 to 2.30 with NCCL_DEBUG=INFO and the subsystems INIT, GRAPH, NET
and TUNING (src/graph/connect.cc, src/init.cc, src/transport/net.cc, src/transport/net_ib).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from math import exp
from typing import Any

from netsim.base.errors import NetsimError
from netsim.base.units import format_size
from netsim.base.values import dataclass
from netsim.localize.node_tests import NodeTest, SizeQuestion
from netsim.localize.parts import Suspect
from netsim.localize.predictions import SETTING, Predictor
from netsim.nccl.job import Wiring
from netsim.tasks.resolve import ResolvedCell

MESSAGE = re.compile(r"([\w.\-]*[A-Za-z][\w.\-]*):\d+:\d+ \[[-\d]+\] NCCL (?:INFO|WARN) (.*)")
RING = re.compile(r"Channel (\d+)/\d+ : ((?:\s*\d+)+)\s*$")
TREE = re.compile(r"\[(\d+)\] (-?\d+)/(-?\d+)/(-?\d+)->(\d+)->(-?\d+)")
COUNTS = re.compile(r"(\d+) coll channels, (?:\d+ collnet channels, )?(\d+) nvls channels")
CONNECTION = re.compile(r"Channel (\d+)(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\].*? via (\S+)")
NETWORK_USED = re.compile(r"Using network (\S+)")
NICS_USED = re.compile(r"NET/(?:IB|OFI|Socket)\s*: Using ((?:\s*\[\d+\][^\s\[]+)+)")
NIC = re.compile(r"\[(\d+)\]([^\s:\[]+)")
SOCKETS = ("Socket",)
FEWEST_CHANNELS = 1
MOST_NAMED = 4
TEST_SIZE = SizeQuestion(2**27)


@dataclass
class DebugFacts:
    """What a debug log states.

    Args:
        rings: the ranks of the ring of each channel.
        trees: parent and children by (channel, rank).
        connections: transport by (channel, from, to).
        nics: NICs of each host.
        networks: the network that each host uses.
        lines: the first line of each kind.
    """

    hosts: dict[str, None] = field(default_factory=dict)
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trees: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    connections: dict[tuple[int, int, int], str] = field(default_factory=dict)
    connection_hosts: dict[tuple[int, int, int], str] = field(default_factory=dict)
    networks: dict[str, str] = field(default_factory=dict)
    nics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    coll_channels: int | None = None
    nvls_channels: int | None = None
    texts: dict[str, None] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the text has no message of NCCL."""
        return not self.hosts


def read_debug_log(text: str) -> DebugFacts:
    """Return what a debug log states; nothing if the text has no message of NCCL."""
    facts = DebugFacts()
    if "] NCCL " not in text:
        return facts
    for line in text.splitlines():
        if match := MESSAGE.search(line):
            _read_message(facts, match[1], match[2].strip())
    return facts


def _read_message(facts: DebugFacts, host: str, message: str) -> None:
    facts.hosts[host] = None
    facts.texts[message] = None
    if match := CONNECTION.search(message):
        key = (int(match[1]), int(match[2]), int(match[3]))
        facts.connections[key] = match[4]
        facts.connection_hosts[key] = host
        facts.lines.setdefault(match[4], message)
    elif match := RING.match(message):
        facts.rings[int(match[1])] = tuple(int(rank) for rank in match[2].split())
    elif match := COUNTS.search(message):
        facts.coll_channels = int(match[1])
        facts.nvls_channels = int(match[2])
        facts.lines["channels"] = message
    elif match := NETWORK_USED.search(message):
        facts.networks[host] = match[1]
        facts.lines["network"] = message
    elif match := NICS_USED.search(message):
        facts.nics[host] = tuple(name for _, name in NIC.findall(match[1]))
        facts.lines.setdefault(f"nics of {host}", message)
    elif message.startswith("Trees "):
        for channel, *children, rank, parent in TREE.findall(message):
            below = tuple(int(child) for child in children if int(child) >= 0)
            facts.trees[int(channel), int(rank)] = (int(parent), below)


@dataclass(frozen=True)
class Difference:
    """A difference between a debug log and the simulation.

    `costs_percent` is how much longer a test takes with what the log states; None if this cannot be
    simulated.
    """

    log: str
    subject: str
    logged: str
    derived: str
    costs_percent: float | None = None
    evidence: str = ""
    hosts: tuple[str, ...] = field(default_factory=tuple)

    @property
    def values(self) -> dict[str, Any]:
        """The difference as plain values for JSON."""
        return {
            "log": self.log,
            "subject": self.subject,
            "logged": self.logged,
            "derived": self.derived,
            "costs_pct": self.costs_percent,
            "line": self.evidence,
            "hosts": list(self.hosts),
        }

    @property
    def line(self) -> str:
        """The difference as a sentence."""
        cost = "" if self.costs_percent is None else f"; costs {self.costs_percent:+.0f} %"
        where = f" ({', '.join(self.hosts[:MOST_NAMED])})" if self.hosts else ""
        return (
            f"{self.log}: {self.subject}: the log has {self.logged}{where}, the simulation "
            f"{self.derived}{cost}"
        )


def differences(
    log: str,
    facts: DebugFacts,
    test: NodeTest,
    predictor: Predictor,
    choices: Mapping[int, tuple[str, str]],
) -> list[Difference]:
    """Return all differences between a debug log and what the simulation of its test derives.

    `choices` are the algorithm and protocol that the log states for each size.
    """
    resolved = predictor.resolved(test)
    compared = _Compared(log, facts, test, predictor, resolved)
    return [
        *compared.network(),
        *compared.nics(),
        *compared.transports(),
        *compared.channels(),
        *compared.rings(),
        *compared.trees(),
        *compared.algorithms(choices),
    ]


@dataclass(frozen=True)
class _Compared:
    """A debug log, and the resolved scenario of its test."""

    log: str
    facts: DebugFacts
    test: NodeTest
    predictor: Predictor
    derived: ResolvedCell

    def _cost(self, setting: str) -> float | None:
        """Return by how many percent a setting makes this test longer."""
        suspect = Suspect("setting", "cluster", setting=setting)
        return percent_of(self.predictor, self.test, suspect)

    def _cost_of_variables(self, **variables: str) -> float | None:
        """Return by how many percent variables of NCCL make this test longer."""
        settings = dict(self.test.settings)
        settings.update({f"nccl.env.{name}": value for name, value in variables.items()})
        forced = replace(self.test, settings=tuple(settings.items()))
        with suppress(NetsimError):
            seconds = self.predictor.healthy(forced, TEST_SIZE)
            return 100 * (seconds / self.predictor.healthy(self.test, TEST_SIZE) - 1)
        return None

    def network(self) -> Iterator[Difference]:
        """Yield a difference if the log has sockets and the cluster RDMA, or the reverse."""
        used = set(self.facts.networks.values())
        cluster = self.derived.jobs[0].cluster
        transport = cluster.transport.name if cluster.transport else ""
        is_socket = bool(used & set(SOCKETS))
        if used and is_socket != (transport == "tcp") and self.test.node_count > 1:
            hosts = tuple(host for host, name in self.facts.networks.items() if name in SOCKETS)
            cost = self._cost("tcp") if is_socket else None
            line = self.facts.lines.get("network", "")
            yield Difference(
                self.log, "network", " and ".join(sorted(used)), transport, cost, line, hosts
            )

    def nics(self) -> Iterator[Difference]:
        """Yield a difference for each group of hosts that use fewer or more NICs than expected."""
        expected = len(self.predictor.parts.nics)
        for count in sorted({len(names) for names in self.facts.nics.values()} - {expected}):
            hosts = tuple(host for host, names in self.facts.nics.items() if len(names) == count)
            names = self.facts.nics[hosts[0]]
            line = self.facts.lines.get(f"nics of {hosts[0]}", "")
            cost = self._cost("rail-missing") if count == expected - 1 else None
            yield Difference(
                self.log, "NICs", f"{count} ({', '.join(names)})", str(expected), cost, line, hosts
            )

    def transports(self) -> Iterator[Difference]:
        """Yield differences for messages between nodes without GPUDirect, and for GPUs of one node
        that are connected through shared memory instead of peer access.
        """
        if not self.facts.connections:
            return
        kinds = Counter(self.facts.connections.values())
        machine = self.derived.jobs[0].cluster.machine_of(0)
        direct = machine.nics is not None and machine.nics.gpudirect
        plain = [
            key
            for key, name in self.facts.connections.items()
            if name.startswith("NET/") and not name.startswith("NET/Socket") and "GDR" not in name
        ]
        if plain and direct:
            name = self.facts.connections[plain[0]]
            yield Difference(
                self.log,
                "GPUDirect",
                f"{name} on {len(plain)} of {sum(kinds.values())} connections",
                f"{name}/GDRDMA",
                self._cost("gpudirect-off"),
                self.facts.lines.get(name, ""),
                self._hosts_of(plain),
            )
        shared = [key for key, name in self.facts.connections.items() if name.startswith("SHM")]
        if shared and machine.p2p and machine.scale_up is not None:
            name = self.facts.connections[shared[0]]
            yield Difference(
                self.log,
                "peer access",
                f"{name} on {len(shared)} connections",
                "P2P",
                self._cost("no-peer-access"),
                self.facts.lines.get(name, ""),
                self._hosts_of(shared),
            )

    def _hosts_of(self, keys: Iterable[tuple[int, int, int]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.facts.connection_hosts[key] for key in keys))

    def channels(self) -> Iterator[Difference]:
        """Yield differences in the number of channels, and if only the simulation uses NVLS."""
        comm = self.derived.jobs[0].comm
        logged = self.facts.coll_channels
        if logged is None and self.facts.rings:
            logged = max(self.facts.rings) + 1
        line = self.facts.lines.get("channels", "")
        if logged is not None and logged != comm.n_channels and logged >= FEWEST_CHANNELS:
            cost = self._cost_of_variables(
                NCCL_MIN_NCHANNELS=str(logged), NCCL_MAX_NCHANNELS=str(logged)
            )
            yield Difference(self.log, "channels", str(logged), str(comm.n_channels), cost, line)
        if self.facts.nvls_channels == 0 and comm.nvls is not None:
            cost = self._cost("nvls-off")
            yield Difference(self.log, "NVLS channels", "0", str(comm.nvls_channels), cost, line)

    def rings(self) -> Iterator[Difference]:
        """Yield a difference if some logged rings have another order than all simulated rings."""
        if not self.facts.rings:
            return
        simulated = {in_order(ring) for ring in self._wiring().rings}
        missing = {
            channel: ring
            for channel, ring in self.facts.rings.items()
            if in_order(ring) not in simulated
        }
        if missing:
            channel, ring = next(iter(missing.items()))
            yield Difference(
                self.log,
                "rings",
                f"{len(missing)} of {len(self.facts.rings)} rings in another order, as channel "
                f"{channel}: {shortened(ring)}",
                shortened(self._wiring().rings[0]),
            )

    def trees(self) -> Iterator[Difference]:
        """Yield a difference if ranks have other parents in logged trees than in simulated ones."""
        trees = self._wiring().trees
        moved = [
            (channel, rank)
            for (channel, rank), (parent, _) in self.facts.trees.items()
            if channel < len(trees)
            and rank < len(trees[channel].up)
            and trees[channel].up[rank] != parent
        ]
        if moved:
            channel, rank = moved[0]
            parent, _ = self.facts.trees[channel, rank]
            yield Difference(
                self.log,
                "trees",
                f"{len(moved)} of {len(self.facts.trees)} ranks below another rank, as rank {rank} "
                f"below {parent} in channel {channel}",
                f"below {trees[channel].up[rank]}",
            )

    def _wiring(self) -> Wiring:
        return self.derived.jobs[0].wiring

    def algorithms(self, choices: Mapping[int, tuple[str, str]]) -> Iterator[Difference]:
        """Yield a difference for each size at which the log states another algorithm or protocol;
        `choices` are those of the log.
        """
        for size, (algorithm, protocol) in choices.items():
            plan = self.derived.planned(size)
            if plan is None or (plan.algorithm, plan.protocol) == (algorithm, protocol):
                continue
            settings = dict(self.test.settings)
            settings["nccl.env.NCCL_ALGO"] = algorithm
            settings["nccl.env.NCCL_PROTO"] = protocol
            forced = replace(self.test, settings=tuple(settings.items()))
            cost = None
            with suppress(NetsimError):
                seconds = self.predictor.healthy(forced, SizeQuestion(size))
                usual = self.predictor.healthy(self.test, SizeQuestion(size))
                cost = 100 * (seconds / usual - 1)
            yield Difference(
                self.log,
                f"choice at {format_size(size)}",
                f"{algorithm} {protocol}",
                f"{plan.algorithm} {plan.protocol}",
                cost,
            )


def percent_of(predictor: Predictor, test: NodeTest, suspect: Suspect) -> float | None:
    """Return by how many percent a suspect makes a test longer; None if the test cannot run with
    it.
    """
    with suppress(NetsimError):
        effect = predictor.effect(test, TEST_SIZE, suspect, SETTING)
        return 100 * (exp(effect) - 1)
    return None


def in_order(ring: tuple[int, ...]) -> tuple[int, ...]:
    """Return a ring such that it starts at its smallest rank.

    >>> in_order((2, 0, 1))
    (0, 1, 2)
    """
    start = ring.index(min(ring))
    return (*ring[start:], *ring[:start])


def shortened(ring: tuple[int, ...]) -> str:
    """Return the first ranks of a ring as text."""
    shown = " ".join(str(rank) for rank in ring[:8])
    return shown + (" …" if len(ring) > 8 else "")
