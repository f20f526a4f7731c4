"""Expand a scenario into its cells: every combination of the values of its sweep axes, each with an
id.

A cell is a scenario without a sweep. Its id is a hash of everything that its times depend on: the
contents of machine and fabric files, parameters, the seed and the version of the model. It does not
depend on names, sizes or outputs, so that equal cells of different files have equal ids.
"""

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
from netsim.scenario.models import Scenario, Workload, cluster_question, hosts_label, node_count
from netsim.scenario.sweep import WORDS, Change, Condition, Sweep, SweepPoint, looked_up, read_sweep
from netsim.topology.config import ClusterConfig
from netsim.topology.fabrics.config import DragonflyFabric
from netsim.topology.machine import TRANSPORTS
from netsim.yamlio.models import Model, apply_overrides, override
from netsim.yamlio.read import KeyPath, Source
from netsim.yamlio.validate import validate


def last_part(axis: str) -> str:
    """Return the last part of a dotted key, which names an axis in output: `nodes` of
    `cluster.nodes`.
    """
    return axis.rpartition(".")[2]


def named(axes: Mapping[str, Any]) -> str:
    """Return the values of axes as text: `nodes 4, nic 400Gbps`."""
    return ", ".join(f"{last_part(key)} {value}" for key, value in axes.items())


@dataclass(frozen=True)
class Cell:
    """A scenario without a sweep, its id, and its values on the sweep axes.

    `cluster` is a hash of the part of the id that describes the cluster: cells with equal hashes
    have the same topology.
    """

    id: str
    scenario: Scenario
    source: Source
    axes: Mapping[str, Any]
    cluster: str = ""

    def title(self, subject: str, *notes: str) -> str:
        """Return a title of a plot from the subject, the machines, the values on the axes, and
        notes.
        """
        parts = f"{subject}, {hosts_label(self.scenario.cluster)}", named(self.axes), *notes
        return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class Invalid:
    """A point of a sweep at which the scenario is invalid, with the error."""

    id: str
    axes: Mapping[str, Any]
    error: ScenarioError


@dataclass(frozen=True)
class Expansion:
    """All points of a sweep in order, and the sweep itself."""

    sweep: Sweep
    points: tuple[Cell | Invalid, ...]

    @property
    def cells(self) -> list[Cell]:
        """The cells of the valid points."""
        return [point for point in self.points if isinstance(point, Cell)]

    @property
    def invalid(self) -> list[Invalid]:
        """The invalid points."""
        return [point for point in self.points if isinstance(point, Invalid)]

    @property
    def lost_parts(self) -> list[Invalid]:
        """The invalid points of a sweep over failing parts whose healthy cell is valid.

        They are results of such a sweep: without this part the job cannot run.
        """
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
        """Whether no part fails at a point of a sweep over failing parts."""
        return all(point.axes.get(axis) == HEALTHY for axis in self.sweep.part_axes)

    @property
    def mistakes(self) -> list[Invalid]:
        """The invalid points that are errors of the file, not results."""
        answers = {id(point) for point in self.lost_parts}
        return [point for point in self.invalid if id(point) not in answers]

    def refuse_invalid(self) -> None:
        """Raise the errors of all invalid points, each error once. A part without which the job
        cannot run is no error.
        """
        if self.mistakes:
            raise joined(point.error for point in self.mistakes)


def _without_axes(axes: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the values of a point on all axes but `names`, as a key of a dictionary."""
    return tuple((axis, str(value)) for axis, value in axes.items() if axis not in names)


def expand(source: Source) -> list[Cell]:
    """Return all cells of a scenario; the last sweep axis changes fastest.

    Raises:
        ScenarioError: any of the points is invalid; all errors are listed.
    """
    expansion = expand_all(source)
    expansion.refuse_invalid()
    return expansion.cells


def expand_all(source: Source) -> Expansion:
    """Return all points of the sweep of a scenario, including invalid ones."""
    bare = replace(source, data=_without(source.data, "sweep"))
    try:
        sweep = read_sweep(source)
    except ScenarioError as error:
        raise joined([*_wrong(bare), error]) from None
    if not sweep.axes:
        return Expansion(sweep, (_cell(bare, SweepPoint({}, ())),))
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
            mark = _hash({"axes": {axis: str(value) for axis, value in point.axes.items()}})[:8]
            points.append(Invalid(f"invalid-{mark}", point.axes, error))
    if not points:
        raise source.error(("sweep",), "every cell is left out by skip or only", key=True)
    return Expansion(sweep, tuple(points))


def _check_base(bare: Source, sweep: Sweep) -> None:
    """Raise errors that do not depend on the axes once, rather than for each cell. `bare` is the
    scenario without its sweep.
    """
    changes = [change for axis in sweep.axes for step in axis.steps for change in step[1]]
    swept = {key.partition(".")[0] for key, _, _ in changes}
    independent = [error for error in _wrong(bare) if error.field.partition(".")[0] not in swept]
    if independent:
        for change in next(iter(sweep.points())).changes:  # add the errors of the first cell
            bare = override(bare, change[0], change[1], _origin(bare, change))
        raise joined([*independent, *_wrong(bare)])


def _wrong(bare: Source) -> Sequence[ScenarioError]:
    """Return all errors of a scenario without its sweep."""
    try:
        validate(Scenario, with_job(bare))
    except ScenarioError as error:
        return error.errors
    return ()


def _origin(source: Source, change: Change) -> str:
    """Return the position of a value that a sweep sets, for its errors: `file:line:column:
    sweep.key`.
    """
    key, _, path = change
    place = source.locate(path, key=True)
    if not place.line:
        return place.name
    return f"{place.name}:{place.line}:{place.column}: sweep.{key}"


def _left_out(source: Source, placed: Source, point: SweepPoint, sweep: Sweep) -> bool:
    """Whether `skip` or `only` excludes a point; `placed` is the scenario with the values of the
    point.
    """
    if any(_holds(condition, source, placed, point) for condition in sweep.skip):
        return True
    return not all(_holds(condition, source, placed, point) for condition in sweep.only)


def _holds(condition: Condition, source: Source, placed: Source, point: SweepPoint) -> bool:
    """Whether a condition of `skip` or `only` holds at a sweep point.

    `placed` is the scenario file with the values of the point in place of the section `sweep`. A
    condition on a key that has no value there is an error of the file.
    """

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
    """Yield all dotted keys of a mapping of mappings; `prefix` precedes each."""
    for key, value in data.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _cell(placed: Source, point: SweepPoint) -> Cell:
    """Validate the scenario of a sweep point and return its cell, with id and cluster hash.

    `placed` is the scenario file with the values of the point in place of the section `sweep`.
    """
    placed = _with_code(with_job(placed))
    scenario = validate(Scenario, placed)
    cluster = cluster_question(scenario.cluster)
    return Cell(
        id=cell_id(scenario, cluster),
        scenario=scenario,
        source=placed,
        axes=point.axes,
        cluster=_hash(cluster),
    )


def with_job(source: Source, name: str = "") -> Source:
    """Return a scenario of several jobs with the workload of one job as its `workload`.

    That is the job called `name`, else the one that the key `job` names, else the first. A scenario
    without `jobs` is returned as it is. Errors: jobs of equal names, no such job, no workload.
    """
    jobs = source.data.get("jobs")
    name = name or source.data.get("job", "")
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
    """Return the scenario with the text of the Python file that its algorithm names, if it names
    one.

    With the text, the algorithm is part of the id of the cell and is sent to worker processes. The
    file is beside the scenario, or in the current folder.
    """
    workload = source.data.get("workload")
    work = workload if isinstance(workload, Mapping) else {}
    name = work.get("algorithm")
    if not isinstance(name, str) or not is_own(name) or work.get("code"):
        return source
    path = Path(name.rpartition(":")[0] or name)
    path = path if path.suffix == ".py" else Path(name)
    path_found = named_in(source.name, path)
    place = ("workload", "algorithm")
    if not path_found.is_file():
        message = f"there is no file {path} beside the scenario, nor in the current folder"
        neighbors = Path(source.name).parent.glob("*")
        beside = sorted(file.name for file in neighbors if is_own(file.name))
        raise source.error(place, message + suggest(path.name, beside))
    try:
        text = text_of(path_found)
    except ScenarioError as error:
        raise source.error(place, f"{path_found} cannot be read: {error.message}") from None
    return replace(source, data={**source.data, "workload": {**work, "code": text}})


def cell_of(source: Source, axes: Mapping[str, Any]) -> Cell:
    """Return the cell of a scenario without a sweep; `axes` are its values on the axes of the sweep
    that it is from.
    """
    return _cell(source, SweepPoint(dict(axes), ()))


NOT_ASKED = frozenset({"name", "sweep", "outputs", "report", "prices", "measured", "job"})
"""Keys of a scenario that do not change its times: its name, its outputs, and comparisons.
All other keys are part of the id, also keys that are added in the future."""

SPELLED_APART = frozenset({"cluster", "workload", "launch", "jobs", "background"})
"""Keys that are part of an id in resolved form: machine files by their contents, all defaults."""

CONTENTS = ("trace", "times")
"""Keys of a workload that name a file: its contents are part of an id, its name is not."""


def cell_id(scenario: Scenario, cluster: Mapping[str, Any] | None) -> str:
    """Return the id of a scenario without a sweep: a hash of everything that its times depend on.

    `cluster` has the plain values of its section `cluster`; computed if None.
    """
    has_code = isinstance(scenario.workload, Workload) and scenario.workload.code != ""
    without = {"sizes"} if has_code else {"sizes", "code"}
    workload = scenario.workload.model_dump(mode="json", exclude=without)
    hashed = scenario.model_dump(mode="json", exclude=set(NOT_ASKED | SPELLED_APART))
    hashed["model_version"] = MODEL_VERSION
    hashed["cluster"] = cluster_question(scenario.cluster) if cluster is None else cluster
    hashed["workload"] = _with_contents(workload)
    hashed["launch"] = scenario.launch_costs().model_dump(mode="json")
    if scenario.shared:
        names = {"jobs", "job", "background"}
        hashed["shared"] = scenario.model_dump(mode="json", include=names)
    return _hash(hashed)


def _with_contents(value: Any) -> Any:
    """Return the values of a workload with digests of files in place of their names."""
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
    """Return a digest of a file, or of all files of a folder; the name if there is no such file."""
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
    """Return the digest of a file. The time of its last change and its size identify its state, so
    that it is read only once.
    """
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _hash(values: Mapping[str, Any]) -> str:
    """Return a hash of plain values as 16 hexadecimal digits."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_FIELDS = {"collective": "collective", "root": "root", "pairs": "pairs", "matrix": "matrix"}


def placed(cell: Cell, error: CollectiveError) -> ScenarioError:
    """Return the error of a collective as an error of the scenario, at the position of the key that
    it is about.
    """
    path: tuple[str, ...] = ("workload", _FIELDS.get(error.field, "algorithm"))
    if error.field in cell.scenario.collective.parameters:
        path = ("workload", "parameters", error.field)
    message = error.message.removeprefix(f"{error.field}: ")
    return cell.source.error(path, message, hint=error.hint)


# Settings of the command line (`--set KEY=VALUE`). A key that is set is no longer swept. If the key
# is the name of an axis of variants, the value selects one of the variants.


def with_settings(source: Source, assignments: Iterable[str]) -> Source:
    """Return the scenario with every `KEY=VALUE` applied in turn."""
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
    """Return the scenario with `sweep` as its section `sweep`; unchanged if the setting `key` is
    itself in that section.
    """
    if key.partition(".")[0] == "sweep":
        return source
    data = {**source.data, "sweep": dict(sweep)} if sweep else _without(source.data, "sweep")
    return replace(source, data=data)


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a mapping without a key."""
    return {name: value for name, value in values.items() if name != key}


def _variants(sweep: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the axes of variants of a sweep, by name."""
    variants = sweep.get("variants")
    return variants if isinstance(variants, Mapping) else {}


def _with_variant(
    sweep: Mapping[str, Any], axis: str, name: str, assignment: str
) -> dict[str, Any]:
    """Return the sweep with only the variant `name` of an axis. `assignment` is the setting, for
    messages.
    """
    named = _variants(sweep)[axis]
    names = {str(variant): variant for variant in named} if isinstance(named, Mapping) else {}
    if name not in names:
        names_text = ", ".join(names)
        hint = suggest(name, names)
        raise InputError(
            f"--set {assignment}: expected a variant ({names_text}), got '{name}'{hint}"
        )
    chosen = {**_variants(sweep), axis: {names[name]: named[names[name]]}}
    return _without_base({**sweep, "variants": chosen}, axis, unless=name)


def _without_base(sweep: dict[str, Any], axis: str, unless: str | None = None) -> dict[str, Any]:
    """Return the sweep without an axis in its base line, unless the base line has the value
    `unless` on it.
    """
    base = sweep.get("base")
    if not isinstance(base, Mapping) or axis not in base or str(base[axis]) == unless:
        return sweep
    left = _without(base, axis)
    return {**sweep, "base": left} if left else _without(sweep, "base")


def _refuse_in_vain(sweep: Mapping[str, Any], key: str, assignment: str) -> None:
    """Raise an error for a setting of `key` that every point of the sweep would change again.
    `assignment` is the setting, for messages.
    """
    for axis, keys in _set_by(sweep):
        for rival in keys:
            if (key == rival and axis != f"sweep.{key}") or key.startswith(f"{rival}."):
                message = f"--set {assignment}: every point of {axis} sets {rival} again"
                hint = f"--set '{axis}=…' replaces that, --set sweep=null all axes"
                raise InputError(message, hint=hint)


def _set_by(sweep: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each axis of a sweep with the keys that all of its points set."""
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
    """Whether the cluster is a single host."""
    return scenario.cluster.graph is None and node_count(scenario.cluster) == 1


def is_textbook(scenario: Scenario) -> bool:
    """Whether the workload is a collective with an algorithm that is not one of NCCL's."""
    if not isinstance(scenario.workload, Workload):
        return False
    work = scenario.workload
    return work.algorithm not in NCCL_ALGORITHMS and work.collective != "p2p"


def _by_value(where: str, values: str) -> Callable[[Scenario], bool]:
    """Return a function that takes a scenario and returns whether a key has no effect in it, judged
    by the value of another key.

    `where` is that other key of the workload, with dots; `values` lists values separated by blanks.
    The function returns True if the value is not in the list or, if `values` begins with `!`, if it
    is in the list.
    """

    def is_idle(scenario: Scenario) -> bool:
        value = _workload_value(scenario, where)
        if where == "parallelism.data":
            value = value or "ddp"
        return (str(value) in values.removeprefix("!").split()) is values.startswith("!")

    return is_idle


def _workload_value(scenario: Scenario, where: str) -> object:
    """Return the value of a dotted key of the workload, or None if the workload has no such key."""
    value: object = scenario.workload
    for part in where.split("."):
        if not isinstance(value, Model) or part not in type(value).model_fields:
            return None
        value = getattr(value, part)
    return value


# Each rule: a key, a function of a scenario that is True if the key has no effect in it, and the
# reason.
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
    """Yield a warning for every key, or variable of NCCL, that has no effect in any of the
    cells.
    """
    reported: list[KeyPath] = []
    idle = [
        (path, why)
        for path, idle, why in RULES
        if all(_written(cell, path) and idle(cell.scenario) for cell in cells)
    ]
    idle_variables = [without_effect(cell.scenario.nccl.env) for cell in cells]
    idle += [
        (("nccl", "env", name), why)
        for name, why in idle_variables[0].items()
        if all(name in of_cell for of_cell in idle_variables)
    ]
    for path, reason in idle:
        if any(path[: len(earlier)] == earlier for earlier in reported):
            continue
        reported.append(path)
        place = cells[0].source.locate(path, key=True)
        where = ":".join(str(p) for p in (place.name, place.line, place.column) if p)
        yield f"{where}: {'.'.join(map(str, path))} changes nothing: {reason}"


def idle_axis(cells: Sequence[Cell], axis: str) -> str:
    """Return the reason why an axis has no effect in any cell; empty if no rule says so."""
    key = tuple(axis.split("."))
    for path, idle, reason in RULES:
        if key[: len(path)] == path and all(idle(cell.scenario) for cell in cells):
            return reason
    return ""


def _written(cell: Cell, path: KeyPath) -> bool:
    """Whether the file of a cell states a value at a path of keys."""
    value: object = cell.source.data
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True


def assumed_defaults(cell: Cell) -> Iterator[str]:
    """Yield a sentence for each default value that often decides the result of a scenario."""
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
    """Yield a sentence on the oversubscription between groups of a dragonfly with default link
    counts."""
    counted = {"ports_per_router", "global_links", "groups"} & fabric.model_fields_set
    ports = sum(group.nodes * group.nic_count for group in cluster.members)
    if counted or ports <= fabric.routers * fabric.ports_per_router:
        return  # all hosts are in one group, so that nothing crosses between groups
    ratio = fabric.ports_per_router / fabric.global_links
    yield (
        f"assumed: a dragonfly whose routers have {fabric.ports_per_router} ports to hosts and "
        f"{fabric.global_links} links to other groups, which is {ratio:.3g}:1 between groups "
        "(cluster.fabric.ports_per_router and global_links say others)"
    )


def _assumed_static_paths(cluster: ClusterConfig, fabric: Any) -> Iterator[str]:
    """Yield a sentence if a dead NIC's traffic collides on static paths by default.

    The messages that the dead NIC carried use the fixed paths of other NICs.
    """
    hosts = sum(group.nodes for group in cluster.members)
    if hosts == 1 or (fabric is not None and fabric.routing is not None):
        return
    named = None if fabric is None else fabric.transport
    transport = TRANSPORTS[named or cluster.usual_transport]
    dead = [fault.nic for fault in cluster.faults if fault.nic]
    missing = any(override.nics is not None for override in cluster.overrides)
    if transport.routing_for(_fastest_nic(cluster)) != "static" or not (dead or missing):
        return
    dead_text = ", ".join(dead[:3]) + (" and more" if len(dead) > 3 else "")
    left_out = dead_text or "the NICs that are left out"
    yield (
        f"assumed: static paths, as {transport.name} of this generation usually has them: what "
        f"{left_out} carried keeps to the fixed paths of other NICs and "
        "may collide there (cluster.fabric.routing: spray or adaptive spreads it)"
    )


def _fastest_nic(cluster: ClusterConfig) -> float:
    """The highest line rate of all NICs of a cluster, in bytes/s; 0 without NICs."""
    rates = [0.0]
    for group in cluster.members:
        nics = group.loaded.machine.nics
        if nics is not None:
            rates.append(cluster.nic_rate_of(group) or max(nics.rates))
    return max(rates)


_SLOWER = 0.9  # a PCIe slot is fast enough for a NIC if it has this fraction of the NIC's rate


def slow_slots(cell: Cell) -> Iterator[str]:
    """Yield a sentence for each machine whose PCIe slots are slower than the requested NIC rate."""
    cluster = cell.scenario.cluster
    for group in cluster.members:
        loaded = group.loaded
        rate = cluster.nic_rate_of(group)
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
