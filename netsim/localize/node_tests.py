"""Tests of subsets of nodes: what ran or may be run, and the times that a log states for it.

A *node test* is one run of nccl-tests on some nodes of a cluster, with a time for each size. Times
of training steps by rank are node tests of one GPU, too; their collective is `COMPUTE`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from netsim.base.errors import InputError
from netsim.base.values import dataclass
from netsim.collectives.collective import HAS_IN_PLACE
from netsim.measured.index import dtype_of, proposal_of
from netsim.measured.logs import LogRun

COMPUTE = "compute"
"""The collective of a step time: nothing is sent, one GPU computes."""


@dataclass(frozen=True, slots=True)
class NodeTest:
    """One test on some nodes.

    Args:
        nodes: numbers of the nodes in rank order.
        collective: the collective.
        gpus: numbers of the GPUs that take part on every node; empty: all of them.
        settings: what the log states about NCCL, as (key of a scenario, value as text): version,
            launch, variables, iterations.

    >>> NodeTest((4, 5), "all_reduce").node_count
    2
    """

    __test__ = False  # pytest: no test case

    nodes: tuple[int, ...]
    collective: str
    gpus: tuple[int, ...] = ()
    dtype: str = "float"
    root: int = 0
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def node_count(self) -> int:
        """The number of nodes that take part."""
        return len(self.nodes)


@dataclass(frozen=True, slots=True)
class SizeQuestion:
    """One size of a test, in place or out of place."""

    size_bytes: int
    is_in_place: bool = False


@dataclass(frozen=True)
class HostTest:
    """A test with host names and its measured times in seconds by size, as a file has it.

    Args:
        hosts: names of the hosts in rank order.
        gpu_count: number of ranks on each host; None: all GPUs.
        gpu_numbers: the GPUs of these ranks, if the file states them.
        label: name of the file or of the part of it.
    """

    label: str
    hosts: tuple[str, ...]
    collective: str
    times: Mapping[SizeQuestion, float]
    gpu_count: int | None = None
    gpu_numbers: tuple[int, ...] = ()
    dtype: str = "float"
    root: int = 0
    settings: tuple[tuple[str, str], ...] = ()

    def on_nodes(self, hosts: "HostNumbers", gpus_per_node: int) -> "TimedTest":
        """Return the test with numbers of nodes in place of host names.

        `hosts` has the numbers; the nodes of the cluster have `gpus_per_node` GPUs.
        """
        if self.gpu_count is not None and self.gpu_count > gpus_per_node:
            raise InputError(
                f"{self.label}: {self.gpu_count} ranks on a host, but a node of the topology has "
                f"{gpus_per_node} GPUs"
            )
        gpus: tuple[int, ...] = ()
        if self.gpu_count is not None and self.gpu_count < gpus_per_node:
            gpus = self.gpu_numbers or tuple(range(self.gpu_count))
            if max(gpus) >= gpus_per_node:
                gpus = tuple(range(self.gpu_count))
        nodes = tuple(hosts.number_of(host) for host in self.hosts)
        test = NodeTest(nodes, self.collective, gpus, self.dtype, self.root, self.settings)
        return TimedTest(self.label, test, self.times)


@dataclass(frozen=True)
class TimedTest:
    """A node test with its measured times in seconds, by size. `label` names the log."""

    label: str
    test: NodeTest
    times: Mapping[SizeQuestion, float] = field(default_factory=dict)


@dataclass(frozen=True)
class HostNumbers:
    """The number of the node of every host name, and the name of the host of every node."""

    names: Mapping[int, str]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of the node of every host name."""
        return {name: number for number, name in self.names.items()}

    def number_of(self, host: str) -> int:
        """Return the number of a host's node; raise an InputError if no log or host file names the
        host.
        """
        if host not in self.numbers:
            raise InputError(f"{host}: this host is in no log and in no list of hosts")
        return self.numbers[host]

    def name_of(self, number: int) -> str:
        """Return the host name of a node; `node7` if no log names it."""
        return self.names.get(number, f"node{number}")


DIGITS = re.compile(r"\d+")


def natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key with which `node10` comes after `node9`.

    >>> sorted(["n10", "n9"], key=natural_key)
    ['n9', 'n10']
    """
    words = re.split(r"(\d+)", name)
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]


def number_hosts(hosts: Iterable[str], node_count: int | None) -> HostNumbers:
    """Return the node of every host.

    If the names differ in a single number, and all these numbers are below `node_count`, it is the
    number of the node (1 is subtracted if names count from 1 to `node_count`). Otherwise the hosts
    are numbered in natural order.

    >>> number_hosts(["n03", "n07"], 8).names
    {3: 'n03', 7: 'n07'}
    """
    names = sorted(set(hosts), key=natural_key)
    numbers = numbers_in_names(names)
    if node_count is not None and numbers is not None:
        if max(numbers) < node_count:
            return HostNumbers(dict(zip(numbers, names, strict=True)))
        if min(numbers) >= 1 and max(numbers) == node_count:
            return HostNumbers({n - 1: name for n, name in zip(numbers, names, strict=True)})
    if node_count is not None and len(names) > node_count:
        raise InputError(
            f"the logs name {len(names)} hosts, the cluster has {node_count}",
            hint="--nodes says how many it has",
        )
    return HostNumbers(dict(enumerate(names)))


def numbers_in_names(names: Sequence[str]) -> list[int] | None:
    """Return the numbers in which host names differ, if all the rest of the names is equal; else
    None.

    >>> numbers_in_names(["gpu-3.site1", "gpu-12.site1"])
    [3, 12]
    """
    digits = [DIGITS.findall(name) for name in names]
    frames = {DIGITS.sub("0", name) for name in names}
    if len(frames) != 1 or not digits[0]:
        return None
    columns = list(zip(*digits, strict=True))
    varying = [column for column in columns if len({int(text) for text in column}) > 1]
    if len(names) == 1:
        varying = columns[:1]
    if len(varying) != 1:
        return None
    numbers = [int(text) for text in varying[0]]
    return numbers if len(set(numbers)) == len(names) else None


def host_test_of(run: LogRun) -> HostTest:
    """Return the node test that a run of a log is.

    Raises an InputError if the log does not list all ranks, or if hosts have different numbers of
    ranks.
    """
    if not run.devices:
        raise InputError(
            f"{run.file}: lists no devices, so its hosts are not known",
            hint="keep the lines '#  Rank  0 … on HOST device  0' of nccl-tests",
        )
    if len(run.devices) != run.listed_ranks:
        raise InputError(
            f"{run.file}: lists {len(run.devices)} of {run.listed_ranks} ranks; expected all"
        )
    counts = sorted(set(run.hosts.values()))
    if len(counts) > 1:
        raise InputError(
            f"{run.file}: the hosts have {' or '.join(map(str, counts))} ranks each; expected "
            "equally many on all"
        )
    if not run.rows:
        raise InputError(f"{run.file}: {run.problems[0] if run.problems else 'no rows'}")
    first_host = run.devices[0].host
    numbers = sorted({device.number for device in run.devices if device.host == first_host})
    first = run.rows[0]
    return HostTest(
        run.file,
        tuple(run.hosts),
        run.collective,
        times_of_run(run),
        counts[0],
        # If each process has a single visible device, all of them have the number 0.
        tuple(numbers) if len(numbers) == counts[0] and numbers[0] >= 0 else (),
        dtype_of(first.dtype),
        max(first.root, 0),
        settings_of(run),
    )


def settings_of(run: LogRun) -> tuple[tuple[str, str], ...]:
    """Return what a log states about NCCL and about the timing, as (key of a scenario, value)."""
    proposal = proposal_of(run)
    settings = {
        "nccl.version": proposal.nccl,
        "launch": proposal.launch,
        **{f"nccl.env.{name}": value for name, value in proposal.variables},
        **{f"timing.{name}": str(value) for name, value in proposal.timing.items()},
    }
    return tuple((key, value) for key, value in settings.items() if value)


def times_of_run(run: LogRun) -> dict[SizeQuestion, float]:
    """Return the measured times of a run in seconds, one for each size."""
    times: dict[SizeQuestion, float] = {}
    for row in run.rows:
        seconds = row.seconds(run.collective)
        if seconds is None or row.size_bytes <= 0:
            continue
        in_place = row.is_in_place(run.collective) and run.collective in HAS_IN_PLACE
        times.setdefault(SizeQuestion(row.size_bytes, in_place), seconds)
    return times
