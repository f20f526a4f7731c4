"""Presets: the files that come with netsim, found from any directory.

In a checkout they lie in `topologies/` and `scenarios/` beside the package, in a wheel inside it.
A file of the working directory wins over a preset of the same name, and the result says so.
"""

from pathlib import Path

from netsim.errors import InputError, suggest
from netsim.values import dataclass

SUFFIXES = (".yaml", ".yml")
_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Preset:
    """A file found by name: where it is, and whether it hides a preset of the same name."""

    name: str
    path: Path
    shadows: bool = False

    @property
    def note(self) -> str:
        """What to tell the user about where the file came from; empty where it is a preset."""
        return f"{self.path} is used instead of the preset {self.name}" if self.shadows else ""


def preset_folder(kind: str) -> Path:
    """The folder of presets of a kind (`topologies` or `scenarios`)."""
    installed = _PACKAGE / "_data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def preset_names(kind: str) -> list[str]:
    """The names of all presets of a kind, in alphabetical order."""
    return sorted(file.stem for file in preset_folder(kind).glob("*.yaml"))


def find_preset(kind: str, name: str, noun: str = "") -> Preset:
    """The file for a name or a path; an unknown name is refused with the list of known ones."""
    if is_path(name):
        return Preset(Path(name).stem, Path(name))
    preset = preset_folder(kind) / f"{name}.yaml"
    local = next((f for s in SUFFIXES if (f := Path(kind) / f"{name}{s}").is_file()), None)
    if local is not None:
        apart = preset.is_file() and preset.read_bytes() != local.read_bytes()
        return Preset(name, local, shadows=apart)
    if preset.is_file():
        return Preset(name, preset)
    choices = sorted({*preset_names(kind), *(f.stem for f in Path(kind).glob("*.yaml"))})
    what = noun or kind.removesuffix("s")
    raise InputError(
        f"unknown {what} '{name}'{suggest(name, choices)}; known: {', '.join(choices) or 'none'}"
    )


def is_path(name: str) -> bool:
    """Whether a text names a file by its path rather than a preset."""
    return name.endswith(SUFFIXES) or "/" in name or "\\" in name
