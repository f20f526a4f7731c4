"""Files of other programs on the command line: what they hold, and what had to be assumed."""

from pathlib import Path

from netsim.errors import InputError, ScenarioError, nearest
from netsim.topology.graph import Topology
from netsim.topology.importers import infragraph
from netsim.topology.importers.read import detect, read_foreign
from netsim.topology.machine import Machine
from netsim.units import format_bandwidth, parse_bandwidth
from netsim.values import dataclass

_HEAD = 2**20  # bytes that are looked at to tell a format
FORMATS = {
    "nccl": "NCCL topology XML",
    "node-link": "node-link JSON",
    "astra-sim": "ASTRA-sim network",
    "nvidia-smi": "nvidia-smi topo -m",
    "infragraph": "InfraGraph",
}


@dataclass(frozen=True)
class Foreign:
    """What a foreign file holds, its format, and what the user should be told."""

    content: Machine | Topology
    form: str
    notes: tuple[str, ...] = ()


def is_foreign(path: Path) -> bool:
    """Whether a file is read by an importer: any but YAML, and that of ASTRA-sim and InfraGraph."""
    if path.suffix not in (".yaml", ".yml"):
        return True
    return _form(path) in ("astra-sim", "infragraph")


def foreign(path: Path, *, gpu: str | None = None, nic: str | None = None) -> Foreign:
    """Read a file of another program; `gpu` and `nic` are for what it leaves open."""
    form = _form(path)
    if form == "nvidia-smi" and not gpu:
        message = "a matrix of nvidia-smi has no speeds: name the GPU model, as --gpu H100"
        raise ScenarioError(message, source=path.as_posix())
    rate = _rate(nic)
    content = read_foreign(path, gpu=gpu or "", nic_rate=rate)
    notes = _assumed(content, form, gpu, rate)
    if form == "infragraph":
        notes += _unrated(path)
    return Foreign(content, form, tuple(notes))


def _unrated(path: Path) -> list[str]:
    """What an infrastructure leaves open."""
    links = infragraph.unrated_links(path.read_text("utf-8-sig"), path.as_posix())
    return [f"assumed: rates of links without a bandwidth ({', '.join(links)})"] if links else []


def _rate(nic: str | None) -> float | None:
    if nic is None:
        return None
    try:
        return parse_bandwidth(nic)
    except ValueError as error:
        raise InputError(f"--nic {nic}: {error}") from None


def _form(path: Path) -> str:
    """The format that a file looks like; missing files are refused here."""
    try:
        with path.open("rb") as stream:
            return detect(stream.read(_HEAD).decode("utf-8-sig", errors="replace"))
    except FileNotFoundError:
        raise ScenarioError("no such file", source=path.as_posix(), hint=_sibling(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"cannot be read: {reason}", source=path.as_posix()) from None


def _sibling(path: Path) -> str:
    """A file beside it with a name that is much alike."""
    beside = path.parent.iterdir() if path.parent.is_dir() else iter(())
    near = nearest(path.name, sorted(file.name for file in beside if file.is_file()))
    return f"did you mean {path.with_name(near).as_posix()}?" if near else ""


def _assumed(
    content: Machine | Topology, form: str, gpu: str | None, rate: float | None
) -> list[str]:
    """What was taken from elsewhere because the file does not say it."""
    if not isinstance(content, Machine):
        return []
    notes = []
    if form == "nccl" and not gpu:
        notes.append(
            f"assumed from the compute capability: {content.gpu.model} (--gpu names another)"
        )
    if form == "nvidia-smi":
        notes.append(
            "speeds of GPUs, NVLink, PCIe and CPUs are those of the machine with "
            f"{content.gpu.model} that is most like it"
        )
        if content.nics and rate is None:
            usual = format_bandwidth(content.nics.rates[0], bits=True)
            notes.append(f"assumed: NICs of {usual} (--nic tells another rate)")
    return notes
