"""What NAME means to the verbs of `netsim topo`: a machine, a scenario's cluster, a foreign file.

Whatever it was, it becomes a Subject: a topology and, where there are hosts, the Cluster behind it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from netsim.cli.topo.foreign import foreign, is_foreign
from netsim.cli.topo.options import Options
from netsim.errors import InputError, suggest
from netsim.presets import Preset, find_preset, is_path, preset_names
from netsim.topology.build import build_cluster
from netsim.topology.cluster import Cluster
from netsim.topology.config import ClusterConfig
from netsim.topology.graph import Topology
from netsim.topology.layout import TopologyError
from netsim.topology.load import FOLDER
from netsim.topology.machine import Machine
from netsim.values import dataclass
from netsim.yamlio.model import FieldError
from netsim.yamlio.overrides import override
from netsim.yamlio.source import Source, parse_value, read_source
from netsim.yamlio.validate import validate

FOREIGN = (".xml", ".txt", ".json", ".log")  # names that end so are files, even if missing


@dataclass(frozen=True)
class Subject:
    """A topology by name; `cluster` is None for graphs. `notes` are to be told to the user."""

    name: str
    topology: Topology
    cluster: Cluster | None = None
    config: ClusterConfig | None = None
    notes: tuple[str, ...] = ()

    @property
    def hosts(self) -> int:
        """The number of hosts; 0 for graphs."""
        return 0 if self.cluster is None else len(self.cluster.host_class)

    @property
    def machine(self) -> Machine | None:
        """The machine of the first host."""
        return None if self.cluster is None else self.cluster.machine_of(0)


def find_subject(name: str, options: Options) -> Subject:
    """The topology that a name and options stand for."""
    if Path(name).is_file() or is_path(name) or Path(name).suffix in FOREIGN:
        preset = Preset(Path(name).stem, Path(name))
        if is_foreign(preset.path):
            return _foreign(preset, options)
    else:
        preset = _named(name)
    source = read_source(preset.path)
    notes = (preset.note,) if preset.note else ()
    if "cluster" in source.data:
        return _built(preset.name, _with_options(source, options), notes)
    if "gpu" in source.data or "machine" in source.data:
        return _machine(preset.name, str(preset.path), options, notes)
    raise InputError(
        f"{preset.path}: neither a machine (with gpu) nor a scenario (with cluster) nor a topology "
        "file of NCCL, nvidia-smi, networkx, ASTRA-sim or InfraGraph"
    )


def _named(name: str) -> Preset:
    """The file of a machine or else of a scenario."""
    try:
        return find_preset(FOLDER, name, "machine")
    except InputError:
        local = any(Path("scenarios", f"{name}{end}").is_file() for end in (".yaml", ".yml"))
        if name in preset_names("scenarios") or local:
            return find_preset("scenarios", name, "scenario")
        raise


def _foreign(preset: Preset, options: Options) -> Subject:
    """A file of another program: of one host, or of a network of GPUs."""
    found = foreign(preset.path, gpu=options.gpu, nic=options.nic)
    if isinstance(found.content, Machine):
        return _machine(preset.name, found.content, options, found.notes)
    given = [flag.split()[0] for flag, _ in options.of_cluster.values()]
    given += ["--fabric"] * bool(options.fabric) + ["--set"] * bool(options.settings)
    if given:
        raise InputError(f"{preset.path}: a whole network; {given[0]} has no meaning for it")
    return Subject(preset.name, found.content, notes=found.notes)


def _machine(
    name: str, machine: str | Machine, options: Options, notes: tuple[str, ...]
) -> Subject:
    """Hosts of a machine, given as its file or as itself."""
    source = Source(name, {"cluster": {"machine": machine}})
    return _built(name, _with_options(source, options), notes)


def _with_options(source: Source, options: Options) -> Source:
    """The source with what was given on the command line in place of its own values."""
    for key, (flag, value) in options.of_cluster.items():
        given = parse_value(str(value), flag) if isinstance(value, str) else value
        source = override(source, f"cluster.{key}", given, flag)
    if options.fabric is not None:
        cluster = source.data.get("cluster") or {}
        fabric = cluster.get("fabric") if isinstance(cluster, dict) else None
        if not isinstance(fabric, dict) or fabric.get("kind") != options.fabric:
            flag = f"--fabric {options.fabric}"
            source = override(source, "cluster.fabric", {"kind": options.fabric}, flag)
    for text in options.settings:
        source = _with_setting(source, text)
    return source


def _with_setting(source: Source, text: str) -> Source:
    origin = f"--set {text}"
    dotted, equals, value = text.partition("=")
    parts = dotted.strip().split(".")
    if not equals or not all(part.strip() for part in parts):
        message = "expected KEY=VALUE such as cluster.fabric.oversubscription=2"
        raise InputError(f"{origin}: {message}")
    known = ClusterConfig.model_fields
    if parts[0] != "cluster" and parts[0] not in known:
        hint = suggest(parts[0], ["cluster", *known])
        raise InputError(f"{origin}: expected a key of cluster, got '{parts[0]}'{hint}")
    path = parts if parts[0] == "cluster" else ["cluster", *parts]
    return override(source, ".".join(path), parse_value(value, origin), origin)


def _built(name: str, source: Source, notes: tuple[str, ...]) -> Subject:
    config = validate(ClusterConfig, replace(source, data=_section(source)), ("cluster",))
    try:
        if config.graph is not None:
            return Subject(name, config.graph.build(), None, config, notes)
        cluster = build_cluster(config)
    except FieldError as error:
        raise source.error(("cluster", *error.path), error.message) from None
    except TopologyError as error:
        field, _, message = error.message.partition(": ")
        keys = [int(key) if key.isdigit() else key for key in field.split(".")]
        raise source.error(("cluster", *(keys if message else ())), message or field) from None
    told = tuple(dict.fromkeys([*notes, *cluster.notes]))
    return Subject(name, cluster.topology, cluster, config, told)


def _section(source: Source) -> dict[str, Any]:
    """The values with a cluster section that is a mapping."""
    if not isinstance(source.data.get("cluster"), dict):
        raise source.error(("cluster",), "expected a section with machine, groups or graph")
    return source.data
