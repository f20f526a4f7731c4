"""From a scenario to its cells: every combination of the swept axes, each with an identity.

A cell is a Scenario without a sweep. Its id is a hash of the question (the contents of machine and
fabric files, parameters, seed, model version), not of names, sizes or outputs: equal questions have
equal ids in all files."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError, ScenarioError, joined, suggest
from netsim.base.files import named_in, table_beside, text_of
from netsim.base.startup import MODEL_VERSION
from netsim.base.units import format_bandwidth
from netsim.base.values import dataclass
from netsim.collectives.collective import CollectiveError
from netsim.collectives.table import is_own
from netsim.nccl.environment import without_effect
from netsim.scenario.each_part import HEALTHY
from netsim.scenario.models import Scenario, Workload, hosts_label, node_count, question
from netsim.scenario.sweep import WORDS, Change, Condition, Point, Sweep, looked_up, read_sweep
from netsim.topology.config import ClusterConfig
from netsim.topology.fabrics.config import DragonflyFabric
from netsim.topology.machine import TRANSPORTS
from netsim.yamlio.models import apply_overrides, override
from netsim.yamlio.read import KeyPath, Source
from netsim.yamlio.validate import validate


def last_part(axis: str) -> str:
    """The last part of a dotted key, by which people know an axis."""
    return axis.rpartition(".")[2]


def named(axes: Mapping[str, Any]) -> str:
    """Values of axes in words: `nodes 4, nic 400Gbps`."""
    return ", ".join(f"{last_part(key)} {value}" for key, value in axes.items())


@dataclass(frozen=True)
class Cell:
    """One question: a scenario without a sweep, its id, and where on the axes it lies. `cluster` is
    the part of the id that its cluster makes: cells with the same have one topology."""

    id: str
    scenario: Scenario
    source: Source
    axes: Mapping[str, Any]
    cluster: str = ""

    def title(self, subject: str, *notes: str) -> str:
        """What runs, on which machines, where the cell lies, and what else one must know."""
        parts = f"{subject}, {hosts_label(self.scenario.cluster)}", named(self.axes), *notes
        return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class Invalid:
    """A point of a sweep that no scenario is possible at, and why."""

    id: str
    axes: Mapping[str, Any]
    error: ScenarioError


@dataclass(frozen=True)
class Expansion:
    """All points of a sweep in order, and what the sweep says beyond its axes."""

    sweep: Sweep
    points: tuple[Cell | Invalid, ...]

    @property
    def cells(self) -> list[Cell]:
        """The points that are questions."""
        return [point for point in self.points if isinstance(point, Cell)]

    @property
    def invalid(self) -> list[Invalid]:
        """The points that are not."""
        return [point for point in self.points if isinstance(point, Invalid)]

    @property
    def lost_parts(self) -> list[Invalid]:
        """The invalid points of a sweep over parts whose cell with no part at fault is valid.

        They answer the question of such a sweep: without this part the job cannot run."""
        part_axes = self.sweep.part_axes
        if not part_axes:
            return []
        valid = {
            _without_axes(cell.axes, part_axes) for cell in self.cells if self.is_healthy(cell)
        }
        return [
            point
            for point in self.invalid
            if not self.is_healthy(point) and _without_axes(point.axes, part_axes) in valid
        ]

    def is_healthy(self, point: Cell | Invalid) -> bool:
        """Whether no part is at fault."""
        return all(point.axes.get(axis) == HEALTHY for axis in self.sweep.part_axes)

    @property
    def mistakes(self) -> list[Invalid]:
        """The invalid points that are no answer."""
        answers = {id(point) for point in self.lost_parts}
        return [point for point in self.invalid if id(point) not in answers]

    def refuse_invalid(self) -> None:
        """Raise all that is wrong with any point, each mistake once; a part that the job cannot
        lose is no mistake."""
        if self.mistakes:
            raise joined(point.error for point in self.mistakes)


def _without_axes(axes: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Where a point lies on the other axes, as a key."""
    return tuple((axis, str(value)) for axis, value in axes.items() if axis not in names)


def expand(source: Source) -> list[Cell]:
    """All cells of a file, the last axis fastest; what is wrong with any is raised at once."""
    expansion = expand_all(source)
    expansion.refuse_invalid()
    return expansion.cells


def expand_all(source: Source) -> Expansion:
    """All points of the sweep of a scenario file, those that are invalid as such."""
    bare = replace(source, data={k: v for k, v in source.data.items() if k != "sweep"})
    try:
        sweep = read_sweep(source)
    except ScenarioError as error:
        raise joined([*_wrong(bare), error]) from None
    if not sweep.axes:
        return Expansion(sweep, (_cell(bare, Point({}, ())),))
    _check_base(bare, sweep)
    points: list[Cell | Invalid] = []
    for point in sweep.points():
        try:
            placed = bare
            for change in point.changes:
                placed = override(placed, change[0], change[1], _origin(source, change))
            if not _left_out(source, placed, point, sweep):
                points.append(_cell(placed, point))
        except ScenarioError as error:
            mark = _hash({"axes": {k: str(v) for k, v in point.axes.items()}})[:8]
            points.append(Invalid(f"invalid-{mark}", point.axes, error))
    if not points:
        raise source.error(("sweep",), "every cell is left out by skip or only", key=True)
    return Expansion(sweep, tuple(points))


def _check_base(bare: Source, sweep: Sweep) -> None:
    """Report mistakes that do not depend on the axes once, and not for each cell."""
    swept = {
        key.partition(".")[0] for axis in sweep.axes for step in axis.steps for key, _, _ in step[1]
    }
    apart = [one for one in _wrong(bare) if one.field.partition(".")[0] not in swept]
    if apart:
        for change in next(iter(sweep.points())).changes:  # with what is wrong of a first cell
            bare = override(bare, change[0], change[1], _origin(bare, change))
        raise joined([*apart, *_wrong(bare)])


def _wrong(bare: Source) -> Sequence[ScenarioError]:
    """All that is wrong with a scenario without its sweep."""
    try:
        validate(Scenario, with_job(bare))
    except ScenarioError as error:
        return error.errors
    return ()


def _origin(source: Source, change: Change) -> str:
    key, _, path = change
    place = source.locate(path, key=True)
    if not place.line:
        return place.name
    return f"{place.name}:{place.line}:{place.column}: sweep.{key}"


def _left_out(source: Source, placed: Source, point: Point, sweep: Sweep) -> bool:
    return any(_holds(c, source, placed, point) for c in sweep.skip) or not all(
        _holds(c, source, placed, point) for c in sweep.only
    )


def _holds(condition: Condition, source: Source, placed: Source, point: Point) -> bool:
    def lookup(key: str) -> Any:
        try:
            return looked_up(placed.data, point.axes, key)
        except KeyError:
            keys = [*point.axes, *_keys(placed.data)]
            hint = suggest(key, keys)
            message = f"{key} has no value here{hint}; write it out in the scenario"
            raise InputError(str(source.error(condition.path, message))) from None

    try:
        return condition.holds(lookup)
    except ValueError as error:
        raise InputError(str(source.error(condition.path, str(error)))) from None


def _keys(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in data.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _cell(placed: Source, point: Point) -> Cell:
    placed = _with_code(with_job(placed))
    scenario = validate(Scenario, placed)
    cluster_question = question(scenario.cluster)
    return Cell(
        cell_id(scenario, cluster_question), scenario, placed, point.axes, _hash(cluster_question)
    )


def with_job(source: Source, name: str = "") -> Source:
    """A source of several jobs with the workload of one, which it names or else the first."""
    jobs, name = source.data.get("jobs"), name or source.data.get("job", "")
    job_sections = (
        [job for job in jobs if isinstance(job, Mapping)] if isinstance(jobs, list) else []
    )
    if not job_sections:
        return source
    names = [str(job.get("name")) for job in job_sections]
    if "workload" in source.data and "job" not in source.data:
        raise source.error(("workload",), "stands in jobs, where there are several", key=True)
    for number, job_name in enumerate(names):
        if job_name in names[:number]:
            raise source.error(("jobs", number, "name"), f"two jobs are called {job_name}")
        if job_name == "background" and job_name in source.data:
            raise source.error(("jobs", number, "name"), "the background is called that")
    if name and name not in names:
        raise source.error(("job",), f"there is no job '{name}'{suggest(name, names)}")
    number = names.index(name) if name else 0
    if "workload" not in job_sections[number]:
        raise source.error(("jobs", number), "missing key 'workload'")
    data = {**source.data, "job": names[number], "workload": job_sections[number]["workload"]}
    return replace(source, data=data, aliases={"workload": ("jobs", number, "workload")})


def _with_code(source: Source) -> Source:
    """The source with the text of the Python file that its algorithm names, from where it goes into
    the id of the cell and to workers. The file is beside the scenario, or in the current folder."""
    workload = source.data.get("workload")
    work = workload if isinstance(workload, Mapping) else {}
    name = work.get("algorithm")
    if not isinstance(name, str) or not is_own(name) or work.get("code"):
        return source
    path = Path(name.rpartition(":")[0] or name)
    path = path if path.suffix == ".py" else Path(name)
    path_found, place = named_in(source.name, path), ("workload", "algorithm")
    if not path_found.is_file():
        message = f"there is no file {path} beside the scenario, nor in the current folder"
        beside = sorted(f.name for f in Path(source.name).parent.glob("*") if is_own(f.name))
        raise source.error(place, message + suggest(path.name, beside))
    try:
        text = text_of(path_found)
    except ScenarioError as error:
        raise source.error(place, f"{path_found} cannot be read: {error.message}") from None
    return replace(source, data={**source.data, "workload": {**work, "code": text}})


def cell_of(source: Source, axes: Mapping[str, Any]) -> Cell:
    """The cell that a scenario without a sweep is."""
    return _cell(source, Point(dict(axes), ()))


NOT_ASKED = frozenset({"name", "sweep", "outputs", "report", "prices", "measured", "job"})
"""Keys of a scenario that change no row: its name, its outputs and what is compared with it later.
All other keys are part of the question, including those of the future."""

SPELLED_APART = frozenset({"cluster", "workload", "launch", "jobs", "background"})
"""Keys that enter an id resolved: machine files by their contents, launch costs in full."""

CONTENTS = ("trace", "times")
"""Keys of a workload that name a file: it enters an id with its contents, not with its name."""


def cell_id(scenario: Scenario, cluster: Mapping[str, Any] | None) -> str:
    """The hash of the question that a scenario without a sweep asks."""
    without = {"sizes"} if getattr(scenario.workload, "code", "") else {"sizes", "code"}
    workload = scenario.workload.model_dump(mode="json", exclude=without)
    hashed = scenario.model_dump(mode="json", exclude=set(NOT_ASKED | SPELLED_APART))
    hashed["model_version"] = MODEL_VERSION
    hashed["cluster"] = question(scenario.cluster) if cluster is None else cluster
    hashed["workload"] = _with_contents(workload)
    hashed["launch"] = scenario.launch_costs().model_dump(mode="json")
    if scenario.shared:
        names = {"jobs", "job", "background"}
        hashed["shared"] = scenario.model_dump(mode="json", include=names)
    return _hash(hashed)


def _with_contents(value: Any) -> Any:
    """What a workload says, files that it names as digests of their contents."""
    if isinstance(value, list):
        return [_with_contents(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    resolved = {}
    for key, entry in value.items():
        is_file = key in CONTENTS and isinstance(entry, str)
        resolved[key] = _digest_of_files(entry) if is_file else _with_contents(entry)
    return resolved


def _digest_of_files(name: str) -> str:
    """A digest of a file, or of all files of a folder; the name where there is no such file."""
    path = Path(name)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    digest = hashlib.sha256()
    has_contents = False
    for file in files:
        if file.is_file():
            has_contents = True
            stat = file.stat()
            digest.update(_contents_digest(file, stat.st_mtime_ns, stat.st_size))
    return digest.hexdigest() if has_contents else name


@lru_cache(maxsize=256)
def _contents_digest(file: Path, _changed: int, _size: int) -> bytes:
    """The digest of a file that has not changed since it was read last."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _hash(question: Mapping[str, Any]) -> str:
    text = json.dumps(question, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_FIELDS = {"collective": "collective", "root": "root", "pairs": "pairs", "matrix": "matrix"}


def placed(cell: Cell, error: CollectiveError) -> ScenarioError:
    """The error with the place of the argument at fault."""
    path: tuple[str, ...] = ("workload", _FIELDS.get(error.field, "algorithm"))
    if error.field in cell.scenario.collective.parameters:
        path = ("workload", "parameters", error.field)
    message = error.message.removeprefix(f"{error.field}: ")
    return cell.source.error(path, message, hint=error.hint)


# Settings of the command line (`--set`) on a scenario that may sweep the very keys that they set.
# A swept key that is set is an axis no more; the name of an axis of variants chooses one of these.


def with_settings(source: Source, assignments: Iterable[str]) -> Source:
    """The source with every `KEY=VALUE` applied in turn."""
    for assignment in assignments:
        key, _, value = (part.strip() for part in assignment.partition("="))
        sweep = source.data.get("sweep")
        if not isinstance(sweep, Mapping):
            source = apply_overrides(source, [assignment])
        elif key in _variants(sweep):
            source = _swept(source, _with_variant(sweep, key, value, assignment))
        else:
            _refuse_in_vain(sweep, key, assignment)
            is_axis = key not in WORDS and key in sweep
            left = _without_base(_without(sweep, key), key) if is_axis else dict(sweep)
            source = _swept(apply_overrides(source, [assignment]), left, key)
    return source


def _swept(source: Source, sweep: Mapping[str, Any], key: str = "") -> Source:
    if key.partition(".")[0] == "sweep":
        return source
    data = {**source.data, "sweep": dict(sweep)} if sweep else _without(source.data, "sweep")
    return replace(source, data=data)


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def _variants(sweep: Mapping[str, Any]) -> Mapping[str, Any]:
    variants = sweep.get("variants")
    return variants if isinstance(variants, Mapping) else {}


def _with_variant(
    sweep: Mapping[str, Any], axis: str, name: str, assignment: str
) -> dict[str, Any]:
    named = _variants(sweep)[axis]
    names = {str(one): one for one in named} if isinstance(named, Mapping) else {}
    if name not in names:
        names_text, hint = ", ".join(names), suggest(name, names)
        raise InputError(
            f"--set {assignment}: expected a variant ({names_text}), got '{name}'{hint}"
        )
    chosen = {**_variants(sweep), axis: {names[name]: named[names[name]]}}
    return _without_base({**sweep, "variants": chosen}, axis, unless=name)


def _without_base(sweep: dict[str, Any], axis: str, unless: str | None = None) -> dict[str, Any]:
    """The sweep with a base line that says nothing of an axis, unless it says this."""
    base = sweep.get("base")
    if not isinstance(base, Mapping) or axis not in base or str(base[axis]) == unless:
        return sweep
    left = _without(base, axis)
    return {**sweep, "base": left} if left else _without(sweep, "base")


def _refuse_in_vain(sweep: Mapping[str, Any], key: str, assignment: str) -> None:
    """Say so if every point of the sweep sets a key again."""
    for axis, others in _set_by(sweep):
        for rival in others:
            if (key == rival and axis != f"sweep.{key}") or key.startswith(f"{rival}."):
                message = f"--set {assignment}: every point of {axis} sets {rival} again"
                hint = f"--set '{axis}=…' replaces that, --set sweep=null all axes"
                raise InputError(message, hint=hint)


def _set_by(sweep: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for key in sweep:
        if key not in WORDS:
            yield f"sweep.{key}", [str(key)]
    zipped = sweep.get("zip")
    for group in zipped if isinstance(zipped, list) else [zipped]:
        if isinstance(group, Mapping):
            yield "sweep.zip", [str(key) for key in group]
    for axis, named in _variants(sweep).items():
        points = list(named.values()) if isinstance(named, Mapping) else []
        if points and all(isinstance(point, Mapping) for point in points):
            shared = set.intersection(*(set(map(str, point)) for point in points))
            yield f"sweep.variants.{axis}", sorted(shared)


NCCL_ALGORITHMS = (
    "auto",
    "Ring",
    "Tree",
    "NVLS",
    "NVLSTree",
    "CollNetDirect",
    "CollNetChain",
    "PAT",
)


def _one_host(scenario: Scenario) -> bool:
    return scenario.cluster.graph is None and node_count(scenario.cluster) == 1


def is_textbook(scenario: Scenario) -> bool:
    """Whether a collective is timed by an algorithm that is not one of NCCL's."""
    if not isinstance(scenario.workload, Workload):
        return False
    work = scenario.workload
    return work.algorithm not in NCCL_ALGORITHMS and work.collective != "p2p"


def _by_value(where: str, values: str) -> Callable[[Scenario], bool]:
    """Whether a value of the workload is not among those (`!`: is among them)."""

    def idle(scenario: Scenario) -> bool:
        value: object = scenario.workload
        for part in where.split("."):
            value = getattr(value, part, None)
        if where == "parallelism.data":
            value = value or "ddp"
        return (str(value) in values.removeprefix("!").split()) is values.startswith("!")

    return idle


# A key, when it is idle, and why.
RULES: tuple[tuple[KeyPath, Callable[[Scenario], bool], str], ...] = (
    (
        ("workload", "parameters"),
        lambda s: not is_textbook(s),
        "NCCL's algorithms take none; nccl.env sets its variables",
    ),
    (("nccl",), is_textbook, "a textbook algorithm does not ask NCCL"),
    *(
        (("cluster", key), _one_host, "there is one host")
        for key in ("fabric", "placement", "nic", "nics_per_node")
    ),
    (
        ("cluster", "fabric", "sharp"),
        lambda s: not is_textbook(s) and s.nccl.env.get("NCCL_COLLNET_ENABLE") != "1",
        "NCCL has switches reduce only with NCCL_COLLNET_ENABLE=1 in nccl.env",
    ),
    *(
        (tuple(row["key"].split(".")), _by_value(row["where"], row["values"]), row["reason"])
        for row in table_beside(__file__, "idle.csv")
    ),
)


def unused_keys(cells: Sequence[Cell]) -> Iterator[str]:
    """A warning for every key, or variable of NCCL's, that is idle in all cells."""
    reported: list[KeyPath] = []
    idle = [
        (path, why)
        for path, idle, why in RULES
        if all(_written(cell, path) and idle(cell.scenario) for cell in cells)
    ]
    every = [without_effect(cell.scenario.nccl.env) for cell in cells]
    idle += [
        (("nccl", "env", name), why)
        for name, why in every[0].items()
        if all(name in one for one in every)
    ]
    for path, reason in idle:
        if any(path[: len(one)] == one for one in reported):
            continue
        reported.append(path)
        place = cells[0].source.locate(path, key=True)
        where = ":".join(str(p) for p in (place.name, place.line, place.column) if p)
        yield f"{where}: {'.'.join(map(str, path))} changes nothing: {reason}"


def idle_axis(cells: Sequence[Cell], axis: str) -> str:
    """Why an axis changes nothing by the rules of keys; "" where they do not say."""
    key = tuple(axis.split("."))
    for path, idle, reason in RULES:
        if key[: len(path)] == path and all(idle(cell.scenario) for cell in cells):
            return reason
    return ""


def _written(cell: Cell, path: KeyPath) -> bool:
    value: object = cell.source.data
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True


def assumed_defaults(cell: Cell) -> Iterator[str]:
    """What the scenario leaves to defaults that often decide its result, a sentence each."""
    cluster = cell.scenario.cluster
    fabric = cluster.network
    if cluster.graph is not None:
        return
    usual = dict.fromkeys(group.loaded.machine.transport for group in cluster.members)
    if len(usual) > 1 and (fabric is None or fabric.transport is None):
        yield (
            f"assumed: {cluster.usual_transport} joins machines that usually have "
            f"{', '.join(usual)} (cluster.fabric.transport names another)"
        )
    if isinstance(fabric, DragonflyFabric):
        yield from _assumed_dragonfly(cluster, fabric)
    yield from _assumed_static_paths(cluster, fabric)


def _assumed_dragonfly(cluster: ClusterConfig, fabric: DragonflyFabric) -> Iterator[str]:
    """The oversubscription between groups of a dragonfly whose links nobody counted."""
    counted = {"ports_per_router", "global_links", "groups"} & fabric.model_fields_set
    ports = sum(group.nodes * group.nic_count for group in cluster.members)
    if counted or ports <= fabric.routers * fabric.ports_per_router:
        return  # one group holds all, and nothing leaves it
    ratio = fabric.ports_per_router / fabric.global_links
    yield (
        f"assumed: a dragonfly whose routers have {fabric.ports_per_router} ports to hosts and "
        f"{fabric.global_links} links to other groups, which is {ratio:.3g}:1 between groups "
        "(cluster.fabric.ports_per_router and global_links say others)"
    )


def _assumed_static_paths(cluster: ClusterConfig, fabric: Any) -> Iterator[str]:
    """Static paths under a dead NIC: what it carried shares the paths of other NICs, which do not
    move out of the way."""
    hosts = sum(group.nodes for group in cluster.members)
    if hosts == 1 or (fabric is not None and fabric.routing is not None):
        return
    named = None if fabric is None else fabric.transport
    transport = TRANSPORTS[named or cluster.usual_transport]
    dead = [fault.nic for fault in cluster.faults if fault.nic]
    missing = any(override.nics is not None for override in cluster.overrides)
    if transport.routing != "static" or not (dead or missing):
        return
    dead_text = ", ".join(dead[:3]) + (" and more" if len(dead) > 3 else "")
    left_out = dead_text or "the NICs that are left out"
    yield (
        f"assumed: static paths, as {transport.name} usually has them: what "
        f"{left_out} carried keeps to the fixed paths of other NICs and "
        "may collide there (cluster.fabric.routing: adaptive or ecmp spreads it)"
    )


_SLOWER = 0.9  # part of a NIC's rate from which a slot counts as enough


def slow_slots(cell: Cell) -> Iterator[str]:
    """What of a NIC rate that was asked for cannot be used, machine by machine."""
    cluster = cell.scenario.cluster
    for group in cluster.members:
        loaded, rate = group.loaded, cluster.nic_rate_of(group)
        nics = loaded.machine.nics
        if nics is None or not rate:
            continue
        slots = [loaded.machine.link_of(nics, number).usable for number in range(nics.count)]
        if min(slots) < _SLOWER * rate:
            yield (
                f"note: NICs of {rate * 8e-9:.4g}Gbps are faster than their PCIe slots in "
                f"{loaded.name}, which carry {format_bandwidth(min(slots))} of "
                f"{format_bandwidth(rate)}"
            )
