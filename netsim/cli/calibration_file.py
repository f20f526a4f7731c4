"""A topology file with a calibration: the machine's own text, and the figures that were fitted."""

import re
from collections.abc import Mapping
from pathlib import Path

from netsim.errors import InputError
from netsim.files import write_text
from netsim.presets import SUFFIXES, find_preset, is_path
from netsim.topology.load import FOLDER, load_machine
from netsim.topology.machine import Machine
from netsim.topology.stamped import Figure
from netsim.yamlio.source import parse_source, read_source
from netsim.yamlio.validate import validate

SECTION = re.compile(r"^calibration:.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


def machine_text(name: str) -> str:
    """The text of the machine file that a calibration is added to."""
    if is_path(name) and Path(name).suffix not in SUFFIXES:
        raise InputError(f"--topology {name}: only a machine of a topology file can be calibrated")
    path = find_preset(FOLDER, name, "machine").path
    if "gpu" not in read_source(path).data:
        raise InputError(f"--topology {name}: this is no machine (with gpu), which is calibrated")
    load_machine(path)
    return path.read_text(encoding="utf-8")


def written_file(path: Path, text: str, figures: Mapping[str, Figure], logs: str) -> Path:
    """Write the machine with these figures; earlier ones that were not fitted again are kept."""
    before = parse_source(text, str(path)).data.get("calibration") or {}
    lines = [f"calibration:  # fitted by netsim calibrate to {logs}"]
    for name, given in before.items():
        if name not in figures:
            items = ", ".join(f"{key}: {value}" for key, value in given.items())
            lines.append(f"  {name}: {{{items}}}")
    for name, figure in figures.items():
        lines.append(
            f"  {name}: {{value: {figure.value}, stamp: {figure.stamp}, low: {figure.low}, "
            f"high: {figure.high}}}"
        )
    bare = SECTION.sub("", text).rstrip() + "\n"
    whole = bare + ("\n".join(lines) + "\n" if len(lines) > 1 else "")
    validate(Machine, parse_source(whole, str(path)))
    return write_text(path, whole)
