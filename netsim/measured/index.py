"""An index of measured runs: what each entry says, where, and which NCCL it had.

Prose of an entry is for people; what it means for a simulation is decided by `mapped`."""

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
class Entry:
    """One run of an index; `folder` is where its file is looked for."""

    id: str
    folder: Path
    values: Mapping[str, Any]
    source: Source = field(repr=False, compare=False)
    number: int = 0
    problem: InputError | None = field(default=None, repr=False, compare=False)
    asked: bool = False  # its rows are only questions: their times are not read

    @property
    def topology(self) -> Mapping[str, Any]:
        """Machine, transport and counts."""
        found = self.values.get("topology")
        return found if isinstance(found, Mapping) else {}

    @property
    def system(self) -> str:
        """Host, operator and build of NCCL: what is left out together."""
        return self.text("system") or self.id

    @property
    def machine(self) -> str:
        """The name of its machine."""
        return self.text("topology", "machine")

    @property
    def collective(self) -> str:
        """What was timed."""
        return self.text("collective")

    @property
    def healthy(self) -> bool:
        """Whether nobody judged it a problem case; a bare false is the `no` of YAML 1.1."""
        word = self.text("healthy").casefold().split("(")[0].strip() or "yes"
        return word not in (*UNHEALTHY, "false")

    @property
    def transport(self) -> str:
        """What joined its hosts; on one host, what joined its GPUs is the machine's."""
        return self.text("topology", "transport") or "intra"

    @property
    def ranks(self) -> int:
        """Its GPUs; what is not told of hosts, or of GPUs on one, is taken to be 1."""
        counts = [self.text("topology", key) for key in ("nodes", "gpus_per_node")]
        return prod(int(text) if text.isdecimal() else 1 for text in counts)

    def text(self, *path: str) -> str:
        """A value as text; empty where there is none."""
        found: Any = self.values
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return "" if found is None else str(getattr(found, "text", found)).strip()

    def error(self, message: str, *path: str, hint: str = "") -> InputError:
        """An error about a value of this entry."""
        return self.source.error((self.number, *path), message, hint=hint)

    def bus_factor(self) -> float:
        """What turns algorithm bandwidth into bus bandwidth; 0 where its ranks are not known."""
        part = 1 - 1 / self.ranks if self.ranks else 0.0
        kind = logs.FACTOR.get(self.collective.casefold())
        return {logs.WHOLE: 1.0, logs.PART: part, logs.DOUBLE: 2 * part}.get(kind or "", 0.0)

    def rows(self) -> tuple[logs.Measured, ...]:
        """Its measured rows, of a CSV or of a log with one run."""
        if self.problem is not None:
            raise self.problem
        path = self.folder / self.text("file")
        if path.suffix in CSV:
            return logs.read_csv(path, self.bus_factor(), asked=self.asked)
        first, *others = logs.read_log(path, self.collective)
        if others:
            raise self.error(f"{path} has {len(others) + 1} runs, expected one", "file")
        if not first.rows:
            raise InputError(f"{path}: {first.problems[0] if first.problems else 'no rows'}")
        return tuple(map(logs.question, first.rows)) if self.asked else first.rows


def read_index(path: Path, needed: Sequence[str] = NEEDED) -> tuple[Entry, ...]:
    """All entries of an index file, of which each needs some keys besides its id."""
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
    entries = [_entry(n, one, source, path.parent, needed) for n, one in enumerate(data)]
    problems = [entry.problem for entry in entries if entry.problem]
    if problems and len(problems) == len(entries):
        raise problems[0]
    seen: dict[str, int] = {}
    for entry in entries:
        if entry.id in seen:
            raise entry.error(f"two runs are called {entry.id}", "id")
        seen[entry.id] = entry.number
    return tuple(entries)


def _entry(number: int, values: Any, source: Source, folder: Path, needed: Sequence[str]) -> Entry:
    """A run; what it lacks is told where somebody wants its rows, and does not stop the others."""
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
    return Entry(str(values["id"]), folder, values, source, number, problem)


def _months(name: str) -> dict[str, int]:
    """The month of each release in a table, oldest first."""
    rows = table_beside(__file__, name)
    return {row["release"]: int(row["year"]) * 12 + int(row["month"]) for row in rows}


# NCCL's from the release dates of its repository, CUDA's from its toolkits. Who installs a CUDA
# takes the NCCL that is new then, and keeps both.
RELEASED, CUDAS = _months("releases.csv"), _months("cuda.csv")
BEHIND = 6  # months that installed versions are usually behind the newest
NUMBER = re.compile(r"\b2\.\d{1,2}(?:\.\d{1,2})?\b")
IN_PROSE = re.compile(r"\bNCCL\b[^.;]{0,24}?\b(2\.\d{1,2}(?:\.\d{1,2})?)\b", re.IGNORECASE)
CUDA = re.compile(r"\bCUDA[ -]?(\d+\.\d+)", re.IGNORECASE)
DATE = re.compile(r"\b(20[12]\d)(?:-(\d{2}))?")


def version_of(text: str, remarks: str = "", date: str = "") -> tuple[Version, str]:
    """The modelled version to take, and a note where it is not simply the one that was given."""
    given = NUMBER.search(text)
    if given:
        return _nearest(given.group(), f"NCCL {text}")
    hinted = IN_PROSE.search(remarks)
    if hinted:
        return _nearest(hinted.group(1), f"NCCL {text or 'unknown'} ({hinted.group()})")
    cuda = CUDA.search(text)
    if cuda and (then := CUDAS.get(cuda.group(1))):
        return _nearest(_newest(then), f"NCCL {text}")
    dated = next(reversed(list(DATE.finditer(date))), None)  # of a span, its end
    if dated:
        usual = _newest(int(dated.group(1)) * 12 + int(dated.group(2) or 6) - BEHIND)
        return _nearest(usual, f"NCCL {text or 'unknown'}, run in {dated.group()}")
    return NEWEST, f"NCCL {text or 'unknown'}: taken as {NEWEST}"


def _nearest(text: str, said: str) -> tuple[Version, str]:
    version = parse_version(text)
    found = nearest_version(version)
    exact = found == version and said == f"NCCL {version}"
    return found, "" if exact else f"{said}: taken as {found}"


def _newest(month: int) -> str:
    """The release that was the newest then."""
    known = [name for name, then in RELEASED.items() if then <= month]
    return known[-1] if known else next(iter(RELEASED))


# From an entry of an index to the scenario that it measured, as `expect` would ask it.
# What an entry leaves open is taken as the machine has it; every such choice is a note.

LAUNCHES = ("process_per_gpu", "single_process", "cuda_graph")
GPUS_A_THREAD = re.compile(r"(?:^|\s)(?:-g|--ngpus)[ =]?(\d+)")
THREADS = re.compile(r"(?:^|\s)(?:-t|--nthreads)[ =]?(\d+)")  # each launches on its own
ITERATIONS = re.compile(r"(?:^|\s)(?:-n|--iters)[ =]?(\d{1,9})")
AVERAGE = re.compile(r"(?:^|\s)(?:-a|--average)[ =]?([0-3])(?=\s|$)")
REDUCES = re.compile(r"(?<!no )(?<!without )\bSHARP\b(?! (?:off|disabled))", re.IGNORECASE)
KEYS = ("id", "system", "file", "gpu", "topology", "interconnect", "collective", "nccl", "env",
        "env_note", "launch", "command", "healthy", "source", "date", "remarks", "network",
        "duplicate_of")  # fmt: skip
ONLY_CHOICE = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_COLLNET_ENABLE")


@dataclass(frozen=True)
class Mapped:
    """A scenario without sizes, and what had to be decided for it."""

    data: Mapping[str, Any]
    notes: tuple[str, ...]
    figures: Mapping[str, float] = field(default_factory=dict)

    def source(self, name: str, sizes: list[int], dtype: str, root: int = 0) -> Source:
        """The scenario at some sizes."""
        work = {**self.data["workload"], "sizes": sizes, "dtype": dtype}
        if root > 0:
            work["root"] = root
        return with_figures(Source(name, {**self.data, "workload": work}), self.figures)

    def without(self, variables: tuple[str, ...], why: str) -> "Mapped | None":
        """The same without some variables; None where none of them is set."""
        env = self.data["nccl"]["env"]
        gone = [name for name in variables if name in env]
        if not gone:
            return None
        kept = {name: value for name, value in env.items() if name not in gone}
        nccl = {**self.data["nccl"], "env": kept}
        note = f"without {', '.join(gone)}: {why}"
        return Mapped({**self.data, "nccl": nccl}, (*self.notes, note), self.figures)


def with_figures(source: Source, figures: Mapping[str, float]) -> Source:
    """The scenario with some figures of all its hosts replaced, those of wires as latencies."""
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


def mapped(entry: Entry) -> Mapped:
    """The scenario of an entry; what nothing can stand for is an error with its place."""
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
    notes += [note] * bool(note)
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
    """A data type as scenarios call it; float where a table calls it something unknown."""
    name = DTYPE_NAMES.get(text, text)
    return name if name in DTYPES else "float"


def _machine(entry: Entry) -> tuple[str, Machine]:
    name = entry.machine
    known = preset_names(FOLDER)
    alike = [one for one in known if f"-{name.casefold()}-" in f"-{one}-"]
    if name not in known and not is_path(name) and len(alike) == 1:
        name = alike[0]
    try:
        return name, load_machine(name)
    except NetsimError as error:
        raise entry.error(str(error), "topology", "machine") from None


def _count(entry: Entry, key: str) -> int | None:
    text = entry.text("topology", key)
    if text.casefold() in ("", "unknown", "none", "~", "0"):
        return None
    if not text.isdecimal():
        raise entry.error(f"expected a count, got {text!r}", "topology", key)
    return int(text)


def _cluster(entry: Entry, machine: Machine, notes: list[str]) -> dict[str, Any]:
    nodes, gpus = _count(entry, "nodes") or 1, _count(entry, "gpus_per_node")
    nics = _count(entry, "nics_per_node")
    hosts = 1
    if gpus is not None and gpus > machine.gpu.count:
        hosts, gpus, nics = _several_hosts(entry, machine, gpus, nics)
        notes.append(f"{hosts} hosts of {gpus} GPUs make one of its nodes")
    nodes *= hosts
    found: dict[str, Any] = {"nodes": nodes}
    if gpus is not None:
        found["gpus_per_node"] = gpus
    figures = _figures(entry, machine, nodes, hosts, notes)
    if figures:
        found["overrides"] = [{"machine": figures}]
    if entry.topology.get("p2p") is not None:
        found["p2p"] = _flag(entry, "p2p")
    if nodes > 1:
        found |= _network(entry, machine, nics, notes)
    return found


def _several_hosts(
    entry: Entry, machine: Machine, gpus: int, nics: int | None
) -> tuple[int, int, int | None]:
    """Hosts, GPUs and NICs of each where an entry calls a whole NVLink domain a node."""
    count = machine.gpu.count
    most = machine.scale_up.hosts if machine.scale_up else 1
    if gpus % count or gpus // count > most:
        raise entry.error(f"the machine has {count} GPUs, got {gpus}", "topology", "gpus_per_node")
    hosts = gpus // count
    return hosts, count, None if nics is None else max(1, nics // hosts)


def _figures(
    entry: Entry, machine: Machine, nodes: int, hosts: int, notes: list[str]
) -> dict[str, Any]:
    up: dict[str, Any] = {}
    if entry.topology.get("nvlink_bridge") is not None:
        up["fitted"] = _flag(entry, "nvlink_bridge")
    most = machine.scale_up.hosts if machine.scale_up else 1
    if most > 1 and hosts > 1:
        up["hosts"] = hosts
    elif most > 1 and nodes > most:
        domains = -(-nodes // most)
        if nodes % domains == 0 and nodes // domains != most:
            up["hosts"] = nodes // domains
            notes.append(f"{domains} NVLink domains of {nodes // domains} hosts each")
    return {"scale_up": up} if up else {}


def _network(
    entry: Entry, machine: Machine, nics: int | None, notes: list[str]
) -> Iterator[tuple[str, Any]]:
    if nics is not None:
        yield "nics_per_node", nics
    rate = _rate(entry)
    if rate is not None:
        yield "nic", f"{rate:g}Gbps"
    transport, fabric = entry.text("topology", "transport").casefold(), dict[str, Any]()
    if not transport or transport in ("unknown", "intra"):
        notes.append(f"transport unknown: taken as {machine.transport}")
    elif transport not in TRANSPORTS:
        known = f"{suggest(transport, TRANSPORTS)}; known: {', '.join(TRANSPORTS)}"
        raise entry.error(f"unknown transport '{transport}'{known}", "topology", "transport")
    elif transport not in ("nvlink", machine.transport):
        fabric["transport"] = transport
    asked = transport == "infiniband" and entry.text("env", "NCCL_COLLNET_ENABLE") == "1"
    if asked and REDUCES.search(entry.text("network")):
        fabric["sharp"] = True
    if fabric:
        several = (nics or (machine.nics.count if machine.nics else 1)) > 1
        yield "fabric", {"kind": "rail-optimized" if several else "single-switch", **fabric}


def nics_gbps(entry: Entry) -> float:
    """What the NICs of a host carry together, as given or as its machine has them."""
    nics = _machine(entry)[1].nics
    given = _rate(entry)
    own = () if nics is None else nics.rates
    count = _count(entry, "nics_per_node") or len(own)
    if given is not None:
        return given * count
    return sum(own) * count / len(own) * 8 / 1e9 if own else 0.0


def joined_by(entry: Entry) -> Joined:
    """The machines of a run, as a class has them."""
    nvlink = _machine(entry)[1].scale_up is not None
    if entry.topology.get("nvlink_bridge") is not None:
        nvlink = _flag(entry, "nvlink_bridge")
    return joined(entry.machine, entry.transport, nics_gbps(entry), nvlink=nvlink)


def _rate(entry: Entry) -> float | None:
    text = entry.text("topology", "nic_gbps")
    if text.casefold() in ("", "unknown", "none", "0"):
        return None
    try:
        return float(text)
    except ValueError:
        message = f"expected Gb/s such as 400, got {text!r}"
        raise entry.error(message, "topology", "nic_gbps") from None


def _flag(entry: Entry, key: str) -> bool:
    text = entry.text("topology", key).casefold()
    if text in ("true", "yes", "1"):
        return True
    if text in ("false", "no", "0"):
        return False
    raise entry.error(f"expected true or false, got {text!r}", "topology", key)


def _launch(entry: Entry, notes: list[str]) -> str:
    given = entry.text("launch")
    if given in LAUNCHES:
        return given
    if given not in ("", "unknown"):
        known = ", ".join(LAUNCHES)
        raise entry.error(f"expected one of {known} or unknown, got {given!r}", "launch")
    command = entry.text("command")
    match = GPUS_A_THREAD.search(command)
    found = "single_process" if match and int(match.group(1)) > 1 else "process_per_gpu"
    why = "as its command says" if match or THREADS.search(command) else "as is usual"
    notes.append(f"launch unknown: taken as {found}, {why}")
    return found


def timing_of(command: str, iterations: int | None = None) -> dict[str, Any]:
    """The `timing` of a scenario that a command of nccl-tests asks for; empty for its defaults.

    `iterations`, from the head of a log, count before `-n` of the command."""
    found: dict[str, Any] = {}
    given = ITERATIONS.search(command)
    count = iterations or (int(given[1]) if given else 0)
    if count and count != USUAL_ITERATIONS:
        found["iterations"] = min(count, MOST_ITERATIONS)
    average = AVERAGE.search(command)
    if average and AVERAGES[int(average[1])] != "mean":
        found["over_processes"] = AVERAGES[int(average[1])]
    return found


def _variables(entry: Entry, version: Version, notes: list[str]) -> dict[str, str]:
    """NCCL's variables that were set; those that no NCCL knows, or that mean nothing, are told."""
    given = entry.values.get("env") or {}
    if not isinstance(given, Mapping):
        raise entry.error("expected NCCL variables, each NAME: value", "env")
    found: dict[str, str] = {}
    for name in given:
        value = entry.text("env", name)
        if not (name.startswith("NCCL_") or is_known(name)):
            continue
        try:
            if not is_known(name):
                raise InputError(f"{name} is no NCCL variable")
            settings_from({**found, name: value}, version)
        except InputError as error:
            notes.append(f"left out: {error}")
            continue
        found[name] = value
    peers = entry.topology.get("p2p") is not None and _flag(entry, "p2p")
    if peers and not found.keys() & {"NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE"}:
        found["NCCL_P2P_LEVEL"] = "SYS"
        notes.append("peer access is in use: taken at any distance (NCCL_P2P_LEVEL=SYS)")
    return found


# What a log says about the system it ran on: machine, hosts, launch style, NCCL; and whether a
# scenario contradicts it.


@dataclass(frozen=True)
class Cloud:
    """A network of hosts: the GPUs that are offered with it (a pattern), and what of a log (host
    names, variables, messages of plug-ins, the command) tells it."""

    name: str
    gpu: str
    evidence: str
    transport: str
    nic: str
    nics: str


# By the name that nccl-tests prints: machine with up to four GPUs on a host, and with more.
MACHINES = tuple(tuple(row.values()) for row in table_beside(__file__, "machines.csv"))
CLOUDS = tuple(Cloud(**row) for row in table_beside(__file__, "clouds.csv"))


def cloud_of(run: logs.LogRun) -> tuple[Cloud, str] | None:
    """The network that a log tells, and by which words."""
    said = [*run.hosts, run.command, *run.network, *map("=".join, run.variables.items())]
    for one in CLOUDS:
        for text in said:
            if found := re.search(one.evidence, text, re.IGNORECASE):
                return one, found.group()
    return None


@dataclass(frozen=True)
class Proposal:
    """What a log proposes; None where it does not say. `notes` tell from what."""

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
    """What a run of a log says about its system."""
    notes: list[str] = []
    listed, told = run.listed_ranks, logs.true_ranks(run)
    ranks = told if listed is None else (listed, listed)
    if listed is not None and told is not None and not told[0] <= listed <= told[1]:
        notes.append(
            f"the log lists {listed} ranks, but busbw ÷ algbw is that of {_span(told)}: "
            "the latter holds"
        )
        ranks = told
    whole = listed is not None and len(run.devices) == listed
    hosts = len(run.hosts) if whole else None
    most = max(run.hosts.values()) if whole else _most_on_a_host(run)
    machine = machine_named(run.gpu_name, most)
    version = None
    if run.nccl:
        given = str(parse_version(run.nccl)) if run.nccl.isdecimal() else run.nccl
        found, note = version_of(given)
        version = str(found)
        notes += [note] * bool(note)
    return Proposal(
        machine,
        ranks,
        hosts,
        _proposed_launch(run),
        version,
        _proposed_variables(run, notes),
        tuple(notes),
        cloud_of(run),
        timing_of(run.command, run.iterations),
    )


def _most_on_a_host(run: logs.LogRun) -> int:
    """How many GPUs a host may have by a list that is cut: fewer than the rank of another host."""
    first = next((device.host for device in run.devices), "")
    most = min([8, *(device.rank for device in run.devices if device.host != first)])
    return max(each for each in range(1, most + 1) if (run.listed_ranks or most) % each == 0)


def machine_named(gpu: str, gpus: int) -> str | None:
    """The machine that has so many GPUs of this name on a host."""
    for text, small, large in MACHINES:
        if re.search(rf"\b{text}", gpu, re.IGNORECASE):
            return small if gpus <= 4 else large
    return None


def check_ranks(run: logs.LogRun, ranks: int, hosts: int) -> None:
    """Refuse a topology with another number of GPUs than the log had."""
    said = proposal_of(run)
    if said.ranks is not None and not said.ranks[0] <= ranks <= said.ranks[1]:
        how = "by its list of devices" if run.listed_ranks == said.ranks[0] else "busbw ÷ algbw"
        raise InputError(
            f"{run.file}: the log ran on {_span(said.ranks)} ranks ({how}), the topology has "
            f"{ranks} GPUs on {hosts} host{'s' * (hosts > 1)}",
            hint="--nodes and --gpus-per-node say how many",
        )


def contradictions(run: logs.LogRun, launch: str, hosts: int) -> list[str]:
    """What a scenario has otherwise than the log."""
    said = proposal_of(run)
    found = list(said.notes)
    if said.launch is not None and launch not in (said.launch, "cuda_graph"):
        found.append(f"the log was launched as {said.launch}, the scenario has {launch}")
    if said.hosts is not None and said.hosts != hosts:
        found.append(f"the log names {said.hosts} hosts, the scenario has {hosts}")
    return found


def _proposed_launch(run: logs.LogRun) -> str | None:
    """By settings, command, processes and ranks: threads launch as processes do."""
    match = GPUS_A_THREAD.search(run.command)
    serial = run.gpus_per_thread or (int(match.group(1)) if match else None)
    if serial is None and run.devices and len(run.devices) == run.listed_ranks:
        processes = {device.process for device in run.devices}
        serial = 1 + (len(processes) < len(run.devices))
    if serial is None:
        return None
    return "single_process" if serial > 1 else "process_per_gpu"


def _proposed_variables(run: logs.LogRun, notes: list[str]) -> tuple[tuple[str, str], ...]:
    found = []
    for name, value in run.variables.items():
        try:
            if is_known(name):
                settings_from({name: value}, NEWEST)
                found.append((name, value))
        except InputError as error:
            notes.append(f"left out: {error}")
    return tuple(found)


def _span(ranks: tuple[int, int]) -> str:
    return str(ranks[0]) if ranks[0] == ranks[1] else f"{ranks[0]} to {ranks[1]}"
