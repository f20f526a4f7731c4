"""What NAME means to `netsim topo`: a machine, a scenario's cluster, or a foreign file."""

from dataclasses import field
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError, ScenarioError, nearest
from netsim.base.files import SUFFIXES, Preset, content_of, find_preset, is_path, preset_names
from netsim.base.startup import on
from netsim.base.units import format_bandwidth, parse_bandwidth
from netsim.base.values import dataclass
from netsim.cli.output import parsed
from netsim.topology.cluster import Cluster, build_cluster, placed_in
from netsim.topology.config import ClusterConfig
from netsim.topology.foreign import infragraph, smi
from netsim.topology.foreign.formats import detect, read_foreign
from netsim.topology.foreign.nccl import most_links
from netsim.topology.graph import Topology, TopologyError
from netsim.topology.load import FOLDER
from netsim.topology.machine import Machine
from netsim.yamlio.models import FieldError, apply_overrides, override
from netsim.yamlio.read import Source, parse_value, read_source
from netsim.yamlio.validate import validate


@dataclass(frozen=True)
class TopologyOptions:
    """The options of the cluster, as they were given; None for an option that was not given."""

    nodes: int | None = None
    fabric: str | None = None
    nic: str | None = None
    nics_per_node: int | None = None
    gpus_per_node: int | None = None
    gpu: str | None = None
    settings: list[str] | None = None

    @property
    def of_cluster(self) -> dict[str, tuple[str, object]]:
        """The options that set a key of the cluster section: by key, (the option as text, its
        value).
        """
        return {
            key: (f"--{key.replace('_', '-')} {value}", value)
            for key in ("nodes", "nic", "nics_per_node", "gpus_per_node")
            if (value := getattr(self, key)) is not None
        }


_HEAD = 2**20  # bytes that are looked at to tell a format
FORMATS = {
    "nccl": "NCCL topology XML",
    "node-link": "node-link JSON",
    "astra-sim": "ASTRA-sim network",
    "nvidia-smi": "nvidia-smi topo -m",
    "infragraph": "InfraGraph",
    "amd-smi": "rocm-smi --showtopo or amd-smi topology",
}


@dataclass(frozen=True)
class Foreign:
    """What a file of another program describes, its format, and messages for the user."""

    content: Machine | Topology
    form: str
    notes: tuple[str, ...] = ()


def is_foreign(path: Path) -> bool:
    """Whether an importer reads a file: every file but YAML, and YAML of ASTRA-sim and
    InfraGraph.
    """
    if path.suffix not in (".yaml", ".yml"):
        return True
    return _form(path) in ("astra-sim", "infragraph")


def foreign(
    path: Path, *, gpu: str | None = None, nic: str | None = None, nics: str | None = None
) -> Foreign:
    """Read a file of another program, such as the output of `nvidia-smi topo -m`.

    Args:
        gpu: model of the GPUs; needed for a matrix of nvidia-smi or amd-smi, which has no speeds
        nic: rate of the NICs, with its unit, for a file of a host that does not state it
        nics: names of the NICs to take from a matrix of nvidia-smi, or `all`; by default those that
            are not excluded as storage or management
    """
    form = _form(path)
    if form in MATRICES and not gpu:
        message = f"a matrix of {form} has no speeds: name the GPU model, as {MATRICES[form]}"
        raise ScenarioError(message, source=path.as_posix())
    if form in NETWORKS:
        for flag, value in (("--gpu", gpu), ("--nic", nic)):
            if value is not None:
                raise InputError(f"{path}: a whole network; {flag} has no meaning for it")
    if nics is not None and form != "nvidia-smi":
        raise InputError(f"--nics {nics}: {path} is no matrix of nvidia-smi, whose NICs it chooses")
    rate = None if nic is None else parsed(parse_bandwidth, "--nic", nic)
    content = read_foreign(path, gpu=gpu or "", nic_rate=rate, nics=nics or "")
    notes = _assumed(content, form, gpu, rate)
    if form == "nvidia-smi" and nics is None:
        notes += _storage(path)
    if form == "infragraph":
        links = infragraph.unrated_links(path.read_text("utf-8-sig"), path.as_posix())
        unrated = f"assumed: rates of links without a bandwidth ({', '.join(links)})"
        notes += [unrated] if links else []
    return Foreign(content, form, tuple(notes))


def refuse_file_options(name: str, gpu: str | None, nics: str | None = None) -> None:
    """Raise an InputError if `gpu` or `nics` is given for a NAME that is not a file of another
    program.
    """
    for flag, value in (("--gpu", gpu), ("--nics", nics)):
        if value is not None:
            raise InputError(
                f"{flag} {value}: has no effect on {name}, which describes its GPUs and NICs "
                "itself; it completes files of other programs, such as nvidia-smi topo -m"
            )


def unused_rate(path: Path, file: Foreign, gpu: str | None, nic: str | None) -> tuple[str, ...]:
    """A note if --nic has no effect, because the file states the rates of all NICs or
    has no NICs.
    """
    if nic is None or not isinstance(file.content, Machine):
        return ()
    rates = file.content.nics.rates if file.content.nics else ()
    if rates and file.form != "nccl":
        return ()
    usual = read_foreign(path, gpu=gpu or "") if rates else file.content
    if isinstance(usual, Machine) and usual.nics == file.content.nics:
        why = "tells the rates of its NICs" if rates else "has no NICs"
        return (f"--nic {nic} has no effect: {path} {why}",)
    return ()


MATRICES = {"nvidia-smi": "--gpu H100", "amd-smi": "--gpu MI300X"}
NETWORKS = ("node-link", "astra-sim", "infragraph")  # formats of graphs of GPUs without models


def _storage(path: Path) -> list[str]:
    """A note about the NICs of a matrix that are excluded as storage or management, and how to take
    them.
    """
    matrix = smi.parse_matrix(path.read_text("utf-8-sig", errors="replace"), path.as_posix())
    names = [name for name in matrix.devices if name not in matrix.computing().devices]
    shown = ", ".join(dict(matrix.legend).get(name, name) for name in names)
    left = f"left out as storage or management, not below a GPU's PCIe switch: {shown}"
    return [f"{left} (topo import --nics all takes them, or names those to take)"] if names else []


ASTRA_READING = (
    "bandwidths in GB of 2^30 bytes as ASTRA-sim reads them, or of what a key gb_bytes (1e9) says; "
    "switches pass data on as it comes, or store a message first, as ASTRA-sim's congestion-aware "
    "network does, where a key switching says store-and-forward"
)


LARGEST_FOREIGN = 256 * 2**20  # bytes of a topology; exports of thousands of GPUs are as large


def _form(path: Path) -> str:
    """The format of a file of another program (a key of FORMATS), recognized by its first bytes."""
    content = content_of(path, LARGEST_FOREIGN, near=(*SUFFIXES, *FOREIGN))
    return detect(content[:_HEAD].decode("utf-8-sig", errors="replace"))


def _assumed(
    content: Machine | Topology, form: str, gpu: str | None, rate: float | None
) -> list[str]:
    """Return notes for the user about what was assumed because a file of another program does not
    state it.

    Args:
        content: what the file describes.
        form: its format, a key of FORMATS.
        gpu: model of the GPUs that the user gave; None: not given.
        rate: line rate of the NICs that the user gave, in bytes/s; None: not given.
    """
    if not isinstance(content, Machine):
        return [ASTRA_READING] * (form == "astra-sim")
    notes = []
    if form == "nccl" and not gpu:
        arch = content.gpu.arch
        figure_name = "compute capability" if content.gpu.sm else f"architecture {arch}"
        notes.append(f"assumed from the {figure_name}: {content.gpu.model} (--gpu names another)")
    no_links = content.scale_up is None and content.gpu.count > 1
    if form == "nvidia-smi" and no_links and most_links(content.gpu.sm):
        notes.append(
            "the matrix shows no NVLink between any two GPUs (nvidia-smi topo -mp never shows "
            "them, nvidia-smi topo -m does)"
        )
    if form in MATRICES:
        notes.append(
            "speeds of GPUs, links between them, PCIe and CPUs are those of the machine with "
            f"{content.gpu.model} that is most like it"
        )
        if form == "amd-smi":
            beside = "one beside each GPU" if content.nics else "none is taken"
            notes.append(f"NICs are not in it: {beside}")
        if content.nics and rate is None:
            usual = format_bandwidth(content.nics.rates[0], bits=True)
            notes.append(f"assumed: NICs of {usual} (--nic tells another rate)")
    return notes


# The second half of this module: NAME becomes a Subject, which has a topology and, if there are
# hosts, the Cluster that the topology belongs to.

FOREIGN = (".xml", ".txt", ".json", ".log")  # names that end so are files, even if missing


@dataclass(frozen=True)
class Subject:
    """A topology with its name, the cluster behind it (None for graphs), and the files it was read
    from.

    `config` and `section` are its cluster section, validated and as written; `notes` are for the
    user.
    """

    name: str
    topology: Topology
    cluster: Cluster | None = None
    config: ClusterConfig | None = None
    notes: tuple[str, ...] = ()
    section: dict[str, Any] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    @property
    def hosts(self) -> int:
        """The number of hosts; 0 for graphs."""
        return 0 if self.cluster is None else len(self.cluster.host_class)


def find_subject(name: str, options: TopologyOptions) -> Subject:
    """The topology that a name (of a machine, scenario or file) and options select."""
    on(name)
    if Path(name).is_file() or is_path(name) or Path(name).suffix in FOREIGN:
        preset = Preset(Path(name).stem, Path(name))
        if is_foreign(preset.path):
            return _foreign(preset, options)
    else:
        preset = _named(name)
    source = read_source(preset.path)
    refuse_file_options(name, options.gpu)
    notes = (preset.note,) if preset.note else ()
    if "cluster" in source.data:
        return _built(preset.name, _with_options(source, options), notes, preset.path)
    if "gpu" in source.data or "machine" in source.data:
        machine = str(preset.path) if Path(name) == preset.path else name
        return _machine(preset.name, machine, options, notes, preset.path)
    raise InputError(
        f"{preset.path}: neither a machine (with gpu) nor a scenario (with cluster) nor a topology "
        "file of NCCL, nvidia-smi, networkx, ASTRA-sim or InfraGraph"
    )


def _named(name: str) -> Preset:
    """The machine with a name, or else the scenario."""
    try:
        return find_preset(FOLDER, name, "machine")
    except InputError:
        local = any(Path("scenarios", f"{name}{end}").is_file() for end in (".yaml", ".yml"))
        if name in preset_names("scenarios") or local:
            return find_preset("scenarios", name, "scenario")
        raise


def _foreign(preset: Preset, options: TopologyOptions) -> Subject:
    """The topology of a file of another program, completed by options."""
    content = foreign(preset.path, gpu=options.gpu, nic=options.nic)
    flags = [flag.split()[0] for flag, _ in options.of_cluster.values()]
    if options.fabric:
        flags.append("--fabric")
    if options.settings:
        flags.append("--set")
    if flags and not isinstance(content.content, Machine):
        raise InputError(f"{preset.path}: a whole network; {flags[0]} has no meaning for it")
    return imported(preset.name, content, options, preset.path)


def imported(name: str, file: Foreign, options: TopologyOptions, path: Path) -> Subject:
    """The topology of an imported file: a machine with options, or a graph."""
    if isinstance(file.content, Machine):
        return _machine(name, file.content, options, file.notes, path)
    return Subject(name, file.content, notes=file.notes, files=(path,))


def _machine(
    name: str, machine: str | Machine, options: TopologyOptions, notes: tuple[str, ...], path: Path
) -> Subject:
    """The topology of a machine (its name, or the machine itself), alone or in a cluster that
    options describe.

    `path` is the file that it was read from.
    """
    source = Source(name, {"cluster": {"machine": machine}})
    return _built(name, _with_options(source, options), notes, path)


def _with_options(source: Source, options: TopologyOptions) -> Source:
    """The source, with values of the cluster section replaced by those of the command line."""
    for key, (flag, value) in options.of_cluster.items():
        parsed_value = parse_value(str(value), flag) if isinstance(value, str) else value
        source = override(source, f"cluster.{key}", parsed_value, flag)
    if options.fabric is not None:
        cluster = source.data.get("cluster") or {}
        fabric = cluster.get("fabric") if isinstance(cluster, dict) else None
        if not isinstance(fabric, dict) or fabric.get("kind") != options.fabric:
            flag = f"--fabric {options.fabric}"
            source = override(source, "cluster.fabric", {"kind": options.fabric}, flag)
    for text in options.settings or ():
        key, equals, _ = text.partition("=")
        first, dot, rest = key.strip().partition(".")
        if equals and first != "cluster":
            keys = ClusterConfig.model_fields
            near = first if first in keys else nearest(first, keys)
            hint = f" (did you mean cluster.{near}{dot}{rest}?)" if near else ""
            raise InputError(f"--set {text}: expected a key such as cluster.nodes{hint}")
    return apply_overrides(source, options.settings or ())


def _built(name: str, source: Source, notes: tuple[str, ...], path: Path) -> Subject:
    """Build the cluster or graph of a source, which was read from the file `path`."""
    if not isinstance(source.data.get("cluster"), dict):
        raise source.error(("cluster",), "expected a section with machine, groups or graph")
    config = validate(ClusterConfig, source, ("cluster",))
    try:
        if config.graph is not None:
            return Subject(name, config.graph.build(), None, config, notes, files=(path,))
        cluster = build_cluster(config)
    except FieldError as error:
        raise source.error(("cluster", *error.path), error.message) from None
    except TopologyError as error:
        raise placed_in(source, error, ("cluster",)) from None
    if config.fabric is not None and len(cluster.host_class) == 1 and cluster.fabric is None:
        notes += (f"the fabric ({config.fabric.kind}) has no effect on one host",)
    return Subject(
        name,
        cluster.topology,
        cluster,
        config,
        tuple(dict.fromkeys([*notes, *cluster.notes])),
        source.data["cluster"],
        (path, *machine_files(config)),
    )


def machine_files(config: ClusterConfig) -> tuple[Path, ...]:
    """The files of the machines that a cluster section names."""
    if config.graph is not None:
        return ()
    paths = [group.loaded.path for group in config.members]
    return tuple(path for path in paths if path is not None)
