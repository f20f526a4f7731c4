"""Tests of subsets of nodes: what ran or may be run, and the times that a log gives for it.

A *node test* is one run of nccl-tests on some nodes of a cluster. Its rows are the times by size.
Times of training steps by rank are node tests of one GPU, too, whose collective is `COMPUTE`."""

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
    """One test on some nodes. `nodes` are numbers of nodes in rank order. `gpus` are the numbers of
    the GPUs that take part on every node; all of them if empty. `settings` are what the log says
    about NCCL, as (key of a scenario, value as text): version, launch, variables, iterations.

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
    """A test with its measured times in seconds by size, as a file has it. `hosts` are in rank
    order; `gpu_count` ranks on each of them (None: all GPUs), on the GPUs with `gpu_numbers` if the
    file says so. `label` names the file or the part of it."""

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
        """The test with numbers of nodes in place of host names, on a cluster whose nodes have
        `gpus_per_node` GPUs."""
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
    """The number of the node of every host name, and the other way round."""

    names: Mapping[int, str]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of the node of every host name."""
        return {name: number for number, name in self.names.items()}

    def number_of(self, host: str) -> int:
        """The number of a host's node; an InputError if no log or host file names it."""
        if host not in self.numbers:
            raise InputError(f"{host}: this host is in no log and in no list of hosts")
        return self.numbers[host]

    def name_of(self, number: int) -> str:
        """The host name of a node; `node7` if no log names it."""
        return self.names.get(number, f"node{number}")


DIGITS = re.compile(r"\d+")


def natural_key(name: str) -> list[tuple[int, str]]:
    """The sort key by which `node10` comes after `node9`.

    >>> sorted(["n10", "n9"], key=natural_key)
    ['n9', 'n10']
    """
    words = re.split(r"(\d+)", name)
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]


def number_hosts(hosts: Iterable[str], node_count: int | None) -> HostNumbers:
    """Return the node of every host.

    If the names differ in one number only and all numbers are below `node_count`, that number is
    the node's (names that count from 1 to `node_count` are shifted by 1). Otherwise the hosts are
    numbered in natural order.

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
    """The numbers in which host names differ, the rest of them being equal; None otherwise.

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
    """Return the node test that a run of a log has made.

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
        # With one visible device for each process, all of them have number 0.
        tuple(numbers) if len(numbers) == counts[0] and numbers[0] >= 0 else (),
        dtype_of(first.dtype),
        max(first.root, 0),
        settings_of(run),
    )


def settings_of(run: LogRun) -> tuple[tuple[str, str], ...]:
    """What a log says about NCCL and about how it was timed, as keys of a scenario."""
    proposal = proposal_of(run)
    settings = {
        "nccl.version": proposal.nccl,
        "launch": proposal.launch,
        **{f"nccl.env.{name}": value for name, value in proposal.variables},
        **{f"timing.{name}": str(value) for name, value in proposal.timing.items()},
    }
    return tuple((key, value) for key, value in settings.items() if value)


def times_of_run(run: LogRun) -> dict[SizeQuestion, float]:
    """The measured times of a run by size, in seconds; one for each size."""
    times: dict[SizeQuestion, float] = {}
    for row in run.rows:
        seconds = row.seconds(run.collective)
        if seconds is None or row.size_bytes <= 0:
            continue
        in_place = row.is_in_place(run.collective) and run.collective in HAS_IN_PLACE
        times.setdefault(SizeQuestion(row.size_bytes, in_place), seconds)
    return times
