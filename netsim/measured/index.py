"""An index of measured runs, and the scenario that each of its entries measured.

The remarks of an entry are for people. `mapped` makes a scenario of an entry.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import prod
from pathlib import Path
from typing import Any

import yaml

from netsim.base.errors import InputError, NetsimError, shown, suggest
from netsim.base.files import is_path, preset_names, table_beside, text_of
from netsim.base.values import dataclass
from netsim.measured import logs
from netsim.nccl.environment import is_known, settings_from
from netsim.nccl.facts import NEWEST, Version, nearest_version, parse_version
from netsim.results.nccl_tests import AVERAGES
from netsim.results.row import Joined, joined
from netsim.scenario.models import MOST_ITERATIONS
from netsim.scenario.names import DTYPE_NAMES, DTYPES, collective_name
from netsim.schedule.repeat import ITERATIONS as USUAL_ITERATIONS
from netsim.topology.load import FOLDER, load_machine
from netsim.topology.machine import TRANSPORTS, Machine, written
from netsim.yamlio.models import override
from netsim.yamlio.read import Source, compose, construct

NEEDED = ("file", "topology", "collective")
CSV = (".csv", "")
UNHEALTHY = ("no", "partly")


@dataclass(frozen=True)
class IndexEntry:
    """One run of an index; `folder` is the directory that its file is relative to."""

    id: str
    folder: Path
    values: Mapping[str, Any]
    source: Source = field(repr=False, compare=False)
    number: int = 0
    problem: InputError | None = field(default=None, repr=False, compare=False)
    is_question: bool = False  # only sizes, types and roots of its rows are read, not their times

    @property
    def topology(self) -> Mapping[str, Any]:
        """The `topology` of the entry: machine, transport and counts; empty without one."""
        values = self.values.get("topology")
        return values if isinstance(values, Mapping) else {}

    @property
    def system(self) -> str:
        """The host, operator and build of NCCL: runs of one system are left out together."""
        return self.text("system") or self.id

    @property
    def machine(self) -> str:
        """The name of the machine on which the run was measured."""
        return self.text("topology", "machine")

    @property
    def collective(self) -> str:
        """The collective that the run timed."""
        return self.text("collective")

    @property
    def healthy(self) -> bool:
        """Whether the run is not a problem case. YAML 1.1 reads a bare `no` as `false`."""
        word = self.text("healthy").casefold().split("(")[0].strip() or "yes"
        return word not in (*UNHEALTHY, "false")

    @property
    def transport(self) -> str:
        """The transport between the hosts; `intra` for a run inside one host."""
        return self.text("topology", "transport") or "intra"

    @property
    def ranks(self) -> int:
        """The number of GPUs; a number of hosts, or of GPUs of a host, that is not stated counts as
        1.
        """
        counts = [self.text("topology", key) for key in ("nodes", "gpus_per_node")]
        return prod(int(text) if text.isdecimal() else 1 for text in counts)

    def text(self, *path: str) -> str:
        """Return the value at a path of keys as text; empty without such a value."""
        value: Any = self.values
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return "" if value is None else str(getattr(value, "text", value)).strip()

    def error(self, message: str, *path: str, hint: str = "") -> InputError:
        """Return (not raise) an error about a value of this entry, with its position in the
        index.
        """
        return self.source.error((self.number, *path), message, hint=hint)

    def bus_factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth; 0 if the number of ranks is unknown."""
        part = 1 - 1 / self.ranks if self.ranks else 0.0
        kind = logs.FACTOR.get(self.collective.casefold())
        return {logs.WHOLE: 1.0, logs.PART: part, logs.DOUBLE: 2 * part}.get(kind or "", 0.0)

    def rows(self) -> tuple[logs.MeasuredRow, ...]:
        """Return the measured rows of the entry's file: a CSV table, or a log with one run."""
        if self.problem is not None:
            raise self.problem
        path = self.folder / self.text("file")
        if path.suffix in CSV:
            return logs.read_csv(path, self.bus_factor(), without_times=self.is_question)
        first, *others = logs.read_log(path, self.collective)
        if others:
            raise self.error(f"{path} has {len(others) + 1} runs, expected one", "file")
        if not first.rows:
            raise InputError(f"{path}: {first.problems[0] if first.problems else 'no rows'}")
        return tuple(map(logs.question, first.rows)) if self.is_question else first.rows


def read_index(path: Path, needed: Sequence[str] = NEEDED) -> tuple[IndexEntry, ...]:
    """Return all entries of an index file; each needs an id and the keys `needed`."""
    name = path.as_posix()
    text = text_of(path)
    root = compose(text, name)
    data = None if root is None else construct(root, name)
    if not data:
        raise InputError(f"{name}: the file is empty")
    if isinstance(data, dict) and isinstance(data.get("runs"), list):
        assert isinstance(root, yaml.MappingNode)
        root = next(value for key, value in root.value if key.value == "runs")
        data = data["runs"]
    source = Source(name, {}, root)
    if not isinstance(data, list):
        raise source.error((), f"expected a list of runs, each with id and file, got {shown(data)}")
    entries = [
        _entry(number, values, source, path.parent, needed) for number, values in enumerate(data)
    ]
    problems = [entry.problem for entry in entries if entry.problem]
    if problems and len(problems) == len(entries):
        raise problems[0]
    seen: dict[str, int] = {}
    for entry in entries:
        if entry.id in seen:
            raise entry.error(f"two runs are called {entry.id}", "id")
        seen[entry.id] = entry.number
    return tuple(entries)


def _entry(
    number: int, values: Any, source: Source, folder: Path, needed: Sequence[str]
) -> IndexEntry:
    """Return an entry of an index. A missing key is an error only when the rows of the entry are
    read.

    So an incomplete entry does not prevent the others from being used.
    """
    if not isinstance(values, dict):
        raise source.error((number,), f"expected a run with id and file, got {shown(values)}")
    if not values.get("id"):
        raise source.error((number,), "a run needs id")
    missing = (key for key in needed if not values.get(key))
    problem = next((source.error((number,), f"a run needs {key}") for key in missing), None)
    topology = values.get("topology")
    placed = isinstance(topology, dict) and topology.get("machine")
    if needed is NEEDED and problem is None and not placed:
        problem = source.error((number, "topology"), "expected machine, nodes and gpus_per_node")
    return IndexEntry(
        id=str(values["id"]),
        folder=folder,
        values=values,
        source=source,
        number=number,
        problem=problem,
    )


def _months(name: str) -> dict[str, int]:
    """Return the month of each release in a table, counted from year 0; the oldest release comes
    first.
    """
    rows = table_beside(__file__, name)
    return {row["release"]: int(row["year"]) * 12 + int(row["month"]) for row in rows}


# Months of the releases of NCCL (by its repository) and of CUDA (by its toolkits). An installation
# is assumed to have the NCCL that was the newest when its CUDA was released.
RELEASED = _months("releases.csv")
CUDAS = _months("cuda.csv")
BEHIND = 6  # months by which an installed version is usually older than the newest one
NUMBER = re.compile(r"\b2\.\d{1,2}(?:\.\d{1,2})?\b")
IN_PROSE = re.compile(r"\bNCCL\b[^.;]{0,24}?\b(2\.\d{1,2}(?:\.\d{1,2})?)\b", re.IGNORECASE)
CUDA = re.compile(r"\bCUDA[ -]?(\d+\.\d+)", re.IGNORECASE)
DATE = re.compile(r"\b(20[12]\d)(?:-(\d{2}))?")


def version_of(text: str, remarks: str = "", date: str = "") -> tuple[Version, str]:
    """Return the version of NCCL to simulate, and a note unless it is exactly the version in
    `text`.

    Without a version in `text` it is taken from the remarks, from the CUDA version in `text`, or
    from the date of the run; without any of these it is the newest.
    """
    stated = NUMBER.search(text)
    if stated:
        return _nearest(stated.group(), f"NCCL {text}")
    hinted = IN_PROSE.search(remarks)
    if hinted:
        return _nearest(hinted.group(1), f"NCCL {text or 'unknown'} ({hinted.group()})")
    cuda = CUDA.search(text)
    if cuda and (cuda_month := CUDAS.get(cuda.group(1))):
        return _nearest(_newest(cuda_month), f"NCCL {text}")
    dates = list(DATE.finditer(date))
    if dates:
        last_date = dates[-1]  # the end of a span of dates
        run_month = int(last_date.group(1)) * 12 + int(last_date.group(2) or 6)
        usual = _newest(run_month - BEHIND)
        return _nearest(usual, f"NCCL {text or 'unknown'}, run in {last_date.group()}")
    return NEWEST, f"NCCL {text or 'unknown'}: taken as {NEWEST}"


def _nearest(text: str, origin: str) -> tuple[Version, str]:
    """Return the modeled version of NCCL nearest to the version in `text`, and a note unless both
    are equal.

    `origin` says in the note where the version is from.
    """
    version = parse_version(text)
    modeled = nearest_version(version)
    is_exact = modeled == version and origin == f"NCCL {version}"
    return modeled, "" if is_exact else f"{origin}: taken as {modeled}"


def _newest(month: int) -> str:
    """Return the newest release of NCCL in a month (counted from year 0), or the oldest release if
    there was none yet.
    """
    releases = [name for name, released in RELEASED.items() if released <= month]
    return releases[-1] if releases else next(iter(RELEASED))


# From an entry of an index to the scenario that it measured. What an entry does not state is
# taken from its machine; a note records every such choice.

LAUNCHES = ("process_per_gpu", "single_process", "cuda_graph")
GPUS_A_THREAD = re.compile(r"(?:^|\s)(?:-g|--ngpus)[ =]?(\d+)")
THREADS = re.compile(r"(?:^|\s)(?:-t|--nthreads)[ =]?(\d+)")  # each thread launches for itself
ITERATIONS = re.compile(r"(?:^|\s)(?:-n|--iters)[ =]?(\d{1,9})")
AVERAGE = re.compile(r"(?:^|\s)(?:-a|--average)[ =]?([0-3])(?=\s|$)")
REDUCES = re.compile(r"(?<!no )(?<!without )\bSHARP\b(?! (?:off|disabled))", re.IGNORECASE)
KEYS = ("id", "system", "file", "gpu", "topology", "interconnect", "collective", "nccl", "env",
        "env_note", "launch", "command", "healthy", "source", "date", "remarks", "network",
        "duplicate_of")  # fmt: skip
# Variables that only force a choice of NCCL. If NCCL does not have the choice on the simulated
# system, the run is simulated without them.
ONLY_CHOICE = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_COLLNET_ENABLE")


@dataclass(frozen=True)
class Mapped:
    """The scenario of an entry without its sizes (`data`), notes on what was assumed, and changed
    calibration values (`figures`).
    """

    data: Mapping[str, Any]
    notes: tuple[str, ...]
    figures: Mapping[str, float] = field(default_factory=dict)

    def source(self, name: str, sizes: list[int], dtype: str, root: int = 0) -> Source:
        """Return the scenario at some sizes in bytes, with a data type and a root; `name` is its
        name.
        """
        work = {**self.data["workload"], "sizes": sizes, "dtype": dtype}
        if root > 0:
            work["root"] = root
        return with_figures(Source(name, {**self.data, "workload": work}), self.figures)

    def without(self, variables: tuple[str, ...], why: str) -> "Mapped | None":
        """Return the same scenario without some variables, with a note that states the reason
        `why`; None if none of the variables is set.
        """
        env = self.data["nccl"]["env"]
        gone = [name for name in variables if name in env]
        if not gone:
            return None
        remaining = {name: value for name, value in env.items() if name not in gone}
        nccl = {**self.data["nccl"], "env": remaining}
        note = f"without {', '.join(gone)}: {why}"
        return Mapped({**self.data, "nccl": nccl}, (*self.notes, note), self.figures)


def with_figures(source: Source, figures: Mapping[str, float]) -> Source:
    """Return the scenario with other calibration values for all hosts; a value named
    `latencies.KIND` replaces the latency of links of this kind.
    """
    if not figures:
        return source
    machine: dict[str, dict[str, object]] = {}
    for name, value in figures.items():
        part, _, field = name.partition(".")
        if part == "latencies":
            machine.setdefault(part, {})[field] = written(name, value)
        else:
            machine.setdefault("calibration", {})[name] = {"value": written(name, value)}
    before = list(source.data["cluster"].get("overrides") or [])
    return override(source, "cluster.overrides", [*before, {"machine": machine}], "other figures")


def mapped(entry: IndexEntry) -> Mapped:
    """Return the scenario that an entry measured.

    Raises:
        InputError: a value that cannot be simulated, with its position in the index.
    """
    near = {key: suggest(key, KEYS) for key in entry.values if key not in KEYS}
    notes = [f"{key} is not read{hint}" for key, hint in near.items() if hint]
    name, machine = _machine(entry)
    if name != entry.machine:
        notes.append(f"machine {entry.machine}: taken as {name}, the only one so called")
    try:
        collective = collective_name(entry.collective)
    except ValueError as error:
        raise entry.error(str(error), "collective") from None
    version, note = version_of(entry.text("nccl"), entry.text("remarks"), entry.text("date"))
    if note:
        notes.append(note)
    cluster = {"machine": name, **_cluster(entry, machine, notes)}
    data = {
        "name": re.sub(r"[^A-Za-z0-9._-]", "-", entry.id).lstrip("._-") or "run",
        "cluster": cluster,
        "workload": {"collective": collective},
        "nccl": {"version": str(version), "env": _variables(entry, version, notes)},
        "launch": _launch(entry, notes),
    }
    if timing := timing_of(entry.text("command")):
        data["timing"] = timing
    return Mapped(data, tuple(notes))


def dtype_of(text: str) -> str:
    """Return the name that scenarios use for a data type; `float` for a name that is unknown."""
    name = DTYPE_NAMES.get(text, text)
    return name if name in DTYPES else "float"


def _machine(entry: IndexEntry) -> tuple[str, Machine]:
    """Return the name of the machine of an entry, and the machine.

    A part of the name of a preset suffices if only one preset contains it.
    """
    name = entry.machine
    known_names = preset_names(FOLDER)
    similar_names = [known for known in known_names if f"-{name.casefold()}-" in f"-{known}-"]
    if name not in known_names and not is_path(name) and len(similar_names) == 1:
        name = similar_names[0]
    try:
        return name, load_machine(name)
    except NetsimError as error:
        raise entry.error(str(error), "topology", "machine") from None


def _count(entry: IndexEntry, key: str) -> int | None:
    """Return a number in the topology of an entry, such as `nodes`; None if it is unknown."""
    text = entry.text("topology", key)
    if text.casefold() in ("", "unknown", "none", "~", "0"):
        return None
    if not text.isdecimal():
        raise entry.error(f"expected a count, got {text!r}", "topology", key)
    return int(text)


def _cluster(entry: IndexEntry, machine: Machine, notes: list[str]) -> dict[str, Any]:
    """Return the section `cluster` of the scenario: nodes, GPUs, NICs and network. Assumptions are
    added to `notes`.
    """
    nodes = _count(entry, "nodes") or 1
    gpus = _count(entry, "gpus_per_node")
    nics = _count(entry, "nics_per_node")
    hosts = 1
    if gpus is not None and gpus > machine.gpu.count:
        hosts, gpus, nics = _several_hosts(entry, machine, gpus, nics)
        notes.append(f"{hosts} hosts of {gpus} GPUs make one of its nodes")
    nodes *= hosts
    cluster: dict[str, Any] = {"nodes": nodes}
    if gpus is not None:
        cluster["gpus_per_node"] = gpus
    figures = _figures(entry, machine, nodes, hosts, notes)
    if figures:
        cluster["overrides"] = [{"machine": figures}]
    if entry.topology.get("p2p") is not None:
        cluster["p2p"] = _flag(entry, "p2p")
    if nodes > 1:
        cluster |= _network(entry, machine, nics, notes)
    return cluster


def _several_hosts(
    entry: IndexEntry, machine: Machine, gpus: int, nics: int | None
) -> tuple[int, int, int | None]:
    """Return the numbers of hosts, of GPUs of a host and of NICs of a host if a node of the entry
    is an NVLink domain of several hosts.
    """
    count = machine.gpu.count
    most = machine.scale_up.hosts if machine.scale_up else 1
    if gpus % count or gpus // count > most:
        raise entry.error(f"the machine has {count} GPUs, got {gpus}", "topology", "gpus_per_node")
    hosts = gpus // count
    return hosts, count, None if nics is None else max(1, nics // hosts)


def _figures(
    entry: IndexEntry, machine: Machine, nodes: int, hosts: int, notes: list[str]
) -> dict[str, Any]:
    """Return the keys of the machine that the entry overrides: those of NVLink domains and NVLink
    bridges. Assumptions are added to `notes`.
    """
    scale_up: dict[str, Any] = {}
    if entry.topology.get("nvlink_bridge") is not None:
        scale_up["fitted"] = _flag(entry, "nvlink_bridge")
    most = machine.scale_up.hosts if machine.scale_up else 1
    if most > 1 and hosts > 1:
        scale_up["hosts"] = hosts
    elif most > 1 and nodes > most:
        domains = -(-nodes // most)
        if nodes % domains == 0 and nodes // domains != most:
            scale_up["hosts"] = nodes // domains
            notes.append(f"{domains} NVLink domains of {nodes // domains} hosts each")
    return {"scale_up": scale_up} if scale_up else {}


def _network(
    entry: IndexEntry, machine: Machine, nics: int | None, notes: list[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the keys of the section `cluster` that describe the network, with their values."""
    if nics is not None:
        yield "nics_per_node", nics
    rate = _rate(entry)
    if rate is not None:
        yield "nic", f"{rate:g}Gbps"
    transport = entry.text("topology", "transport").casefold()
    fabric = dict[str, Any]()
    if not transport or transport in ("unknown", "intra"):
        notes.append(f"transport unknown: taken as {machine.transport}")
    elif transport not in TRANSPORTS:
        suggestion = f"{suggest(transport, TRANSPORTS)}; known: {', '.join(TRANSPORTS)}"
        raise entry.error(f"unknown transport '{transport}'{suggestion}", "topology", "transport")
    elif transport not in ("nvlink", machine.transport):
        fabric["transport"] = transport
    has_collnet = transport == "infiniband" and entry.text("env", "NCCL_COLLNET_ENABLE") == "1"
    if has_collnet and REDUCES.search(entry.text("network")):
        fabric["sharp"] = True
    if fabric:
        several = (nics or (machine.nics.count if machine.nics else 1)) > 1
        yield "fabric", {"kind": "rail-optimized" if several else "single-switch", **fabric}


def nics_gbps(entry: IndexEntry) -> float:
    """Return the line rate of all NICs of a host together in Gbit/s, as the entry states it or as
    its machine has it.
    """
    nics = _machine(entry)[1].nics
    stated_rate = _rate(entry)
    machine_rates = () if nics is None else nics.rates
    count = _count(entry, "nics_per_node") or len(machine_rates)
    if stated_rate is not None:
        return stated_rate * count
    if not machine_rates:
        return 0.0
    return sum(machine_rates) * count / len(machine_rates) * 8 / 1e9


def joined_by(entry: IndexEntry) -> Joined:
    """Return the machine, the transport and the line rate of a run: the part of its class that does
    not depend on the operation.
    """
    nvlink = _machine(entry)[1].scale_up is not None
    if entry.topology.get("nvlink_bridge") is not None:
        nvlink = _flag(entry, "nvlink_bridge")
    return joined(entry.machine, entry.transport, nics_gbps(entry), nvlink=nvlink)


def _rate(entry: IndexEntry) -> float | None:
    """Return the line rate of a NIC in Gbit/s, or None if the entry does not state it."""
    text = entry.text("topology", "nic_gbps")
    if text.casefold() in ("", "unknown", "none", "0"):
        return None
    try:
        return float(text)
    except ValueError:
        message = f"expected Gb/s such as 400, got {text!r}"
        raise entry.error(message, "topology", "nic_gbps") from None


def _flag(entry: IndexEntry, key: str) -> bool:
    """Return a truth value (`key`) in the topology of an entry."""
    text = entry.text("topology", key).casefold()
    if text in ("true", "yes", "1"):
        return True
    if text in ("false", "no", "0"):
        return False
    raise entry.error(f"expected true or false, got {text!r}", "topology", key)


def _launch(entry: IndexEntry, notes: list[str]) -> str:
    """Return the launch style of an entry: as it states, else by its command, else a process per
    GPU.

    It is unknown for one node without a command, where both styles are usual.
    """
    stated = entry.text("launch")
    if stated in LAUNCHES:
        return stated
    if stated not in ("", "unknown"):
        styles = ", ".join(LAUNCHES)
        raise entry.error(f"expected one of {styles} or unknown, got {stated!r}", "launch")
    command = entry.text("command")
    match = GPUS_A_THREAD.search(command)
    if match or THREADS.search(command):
        style = "single_process" if match and int(match.group(1)) > 1 else "process_per_gpu"
        notes.append(f"launch unknown: taken as {style}, as its command says")
        return style
    if command or int(entry.text("topology", "nodes") or 1) > 1:
        notes.append("launch unknown: taken as process_per_gpu, as is usual")
        return "process_per_gpu"
    notes.append("launch unknown: simulated with a process per GPU and with one process")
    return "unknown"


def timing_of(command: str, iterations: int | None = None) -> dict[str, Any]:
    """Return the section `timing` of a scenario for a command of nccl-tests; empty for its
    defaults.

    `iterations` are those in the head of a log; they take precedence over `-n` of the command.
    """
    timing: dict[str, Any] = {}
    option = ITERATIONS.search(command)
    count = iterations or (int(option[1]) if option else 0)
    if count and count != USUAL_ITERATIONS:
        timing["iterations"] = min(count, MOST_ITERATIONS)
    average = AVERAGE.search(command)
    if average and AVERAGES[int(average[1])] != "mean":
        timing["over_processes"] = AVERAGES[int(average[1])]
    return timing


def _variables(entry: IndexEntry, version: Version, notes: list[str]) -> dict[str, str]:
    """Return the variables of NCCL that a run set; those that NCCL `version` does not have are
    noted.
    """
    stated = entry.values.get("env") or {}
    if not isinstance(stated, Mapping):
        raise entry.error("expected NCCL variables, each NAME: value", "env")
    variables: dict[str, str] = {}
    for name in stated:
        value = entry.text("env", name)
        if not (name.startswith("NCCL_") or is_known(name)):
            continue
        try:
            if not is_known(name):
                raise InputError(f"{name} is no NCCL variable")
            settings_from({**variables, name: value}, version)
        except InputError as error:
            notes.append(f"left out: {error}")
            continue
        variables[name] = value
    peers = entry.topology.get("p2p") is not None and _flag(entry, "p2p")
    if peers and not variables.keys() & {"NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE"}:
        variables["NCCL_P2P_LEVEL"] = "SYS"
        notes.append("peer access is in use: taken at any distance (NCCL_P2P_LEVEL=SYS)")
    return variables


# What a log says about its system (machine, hosts, launch style, version of NCCL), and whether a
# scenario contradicts that.


@dataclass(frozen=True)
class Cloud:
    """A network that a cloud offers, and the patterns by which it is recognized.

    `gpu` matches the GPUs that are offered with it; `evidence` matches host names, variables,
    messages of plugins, or the command in a log.
    """

    name: str
    gpu: str
    evidence: str
    transport: str
    nic: str
    nics: str


# Rows of (pattern of the GPU name that nccl-tests prints, machine with up to four such GPUs,
# machine with more).
MACHINES = tuple(tuple(row.values()) for row in table_beside(__file__, "machines.csv"))
CLOUDS = tuple(Cloud(**row) for row in table_beside(__file__, "clouds.csv"))


def cloud_of(run: logs.LogRun) -> tuple[Cloud, str] | None:
    """Return the cloud network that a log shows, and the text that shows it; None if there is
    none.
    """
    texts = [*run.hosts, run.command, *run.network, *map("=".join, run.variables.items())]
    for cloud in CLOUDS:
        for text in texts:
            if match := re.search(cloud.evidence, text, re.IGNORECASE):
                return cloud, match.group()
    return None


@dataclass(frozen=True)
class Proposal:
    """The system that a log shows; fields are None if the log does not show their value.

    `ranks` are the fewest and the most possible, `notes` say what the values were taken from.
    """

    machine: str | None
    ranks: tuple[int, int] | None
    hosts: int | None
    launch: str | None
    nccl: str | None
    variables: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    cloud: tuple[Cloud, str] | None = None
    timing: Mapping[str, Any] = field(default_factory=dict)


def proposal_of(run: logs.LogRun) -> Proposal:
    """Return the system that a run of a log shows."""
    notes: list[str] = []
    listed = run.listed_ranks
    by_factor = logs.true_ranks(run)
    ranks = by_factor if listed is None else (listed, listed)
    if listed is not None and by_factor is not None and not _is_within(listed, by_factor):
        notes.append(
            f"the log lists {listed} ranks, but busbw ÷ algbw is that of {_span(by_factor)}: "
            "the latter holds"
        )
        ranks = by_factor
    is_complete = listed is not None and len(run.devices) == listed
    hosts = len(run.hosts) if is_complete else None
    most = max(run.hosts.values()) if is_complete else _most_on_a_host(run)
    machine = machine_named(run.gpu_name, most)
    version = None
    if run.nccl:
        stated = str(parse_version(run.nccl)) if run.nccl.isdecimal() else run.nccl
        modeled, note = version_of(stated)
        version = str(modeled)
        if note:
            notes.append(note)
    return Proposal(
        machine=machine,
        ranks=ranks,
        hosts=hosts,
        launch=_proposed_launch(run),
        nccl=version,
        variables=_proposed_variables(run, notes),
        notes=tuple(notes),
        cloud=cloud_of(run),
        timing=timing_of(run.command, run.iterations),
    )


def _most_on_a_host(run: logs.LogRun) -> int:
    """Return the most GPUs that a host may have if the list of devices in a log is incomplete.

    It is at most the lowest rank of the second host, at most 8, and a divisor of the number of
    ranks.
    """
    first = next((device.host for device in run.devices), "")
    most = min([8, *(device.rank for device in run.devices if device.host != first)])
    total = run.listed_ranks or most
    return max(count for count in range(1, most + 1) if total % count == 0)


def machine_named(gpu: str, gpus: int) -> str | None:
    """Return the machine with `gpus` GPUs of the name `gpu` in a host; None for a name that is
    unknown.
    """
    for text, small, large in MACHINES:
        if re.search(rf"\b{text}", gpu, re.IGNORECASE):
            return small if gpus <= 4 else large
    return None


def check_ranks(run: logs.LogRun, ranks: int, hosts: int) -> None:
    """Raise an error if a topology has another number of GPUs than the log ran on."""
    shown_ranks = proposal_of(run).ranks
    if shown_ranks is None or shown_ranks[0] <= ranks <= shown_ranks[1]:
        return
    origin = "by its list of devices" if run.listed_ranks == shown_ranks[0] else "busbw ÷ algbw"
    raise InputError(
        f"{run.file}: the log ran on {_span(shown_ranks)} ranks ({origin}), the topology has "
        f"{ranks} GPUs on {hosts} {'host' if hosts == 1 else 'hosts'}",
        hint="--nodes and --gpus-per-node say how many",
    )


def contradictions(run: logs.LogRun, launch: str, hosts: int) -> list[str]:
    """Return the contradictions between a scenario and what a log shows, one sentence each.

    `launch` and `hosts` are the launch style and the number of hosts of the scenario.
    """
    proposal = proposal_of(run)
    differences = list(proposal.notes)
    if proposal.launch is not None and launch not in (proposal.launch, "cuda_graph"):
        differences.append(f"the log was launched as {proposal.launch}, the scenario has {launch}")
    if proposal.hosts is not None and proposal.hosts != hosts:
        differences.append(f"the log names {proposal.hosts} hosts, the scenario has {hosts}")
    return differences


def _proposed_launch(run: logs.LogRun) -> str | None:
    """Return the launch style that a log shows by its settings, its command, or its list of
    devices.

    Threads launch in the same way as processes, so it only matters whether a thread has several
    GPUs.
    """
    match = GPUS_A_THREAD.search(run.command)
    gpus_per_thread = run.gpus_per_thread or (int(match.group(1)) if match else None)
    if gpus_per_thread is None and run.devices and len(run.devices) == run.listed_ranks:
        processes = {device.process for device in run.devices}
        has_several = len(processes) < len(run.devices)
        gpus_per_thread = 2 if has_several else 1
    if gpus_per_thread is None:
        return None
    return "single_process" if gpus_per_thread > 1 else "process_per_gpu"


def _proposed_variables(run: logs.LogRun, notes: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the variables of NCCL that a log shows, as (name, value). Those with an invalid value
    are left out with a note in `notes`, those that netsim does not know without a note.
    """
    variables = []
    for name, value in run.variables.items():
        try:
            if is_known(name):
                settings_from({name: value}, NEWEST)
                variables.append((name, value))
        except InputError as error:
            notes.append(f"left out: {error}")
    return tuple(variables)


def _is_within(ranks: int, limits: tuple[int, int]) -> bool:
    """Whether a number of ranks lies within (fewest, most), both included."""
    return limits[0] <= ranks <= limits[1]


def _span(ranks: tuple[int, int]) -> str:
    """Return a text on the number of ranks, such as `8` or `8 to 16`."""
    return str(ranks[0]) if ranks[0] == ranks[1] else f"{ranks[0]} to {ranks[1]}"
