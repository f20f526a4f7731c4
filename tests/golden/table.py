"""The table of golden texts: the function that writes each anew, by its name (folder/file)."""

import difflib
from collections.abc import Callable
from pathlib import Path

from tests.golden import (
    write_decisions,
    write_estimates,
    write_gates,
    write_inputs,
    write_programs,
    write_readers,
    write_schedules,
    write_steps,
    write_topologies,
    write_traces,
)

FOLDER = Path(__file__).parent
WRITERS: dict[str, Callable[[], list[str]]] = {
    **write_schedules.WRITERS,
    **write_decisions.WRITERS,
    **write_programs.WRITERS,
    **write_readers.WRITERS,
    **write_traces.WRITERS,
    **write_steps.WRITERS,
    **write_topologies.WRITERS,
    **write_estimates.WRITERS,
    **write_inputs.WRITERS,
    **write_gates.WRITERS,
}


def path_of(name: str) -> Path:
    """Return the file of a golden text."""
    return FOLDER / f"{name}.txt"


def text_of(name: str) -> str:
    """Return a golden text as the code writes it now."""
    return "\n".join(line.rstrip() for line in WRITERS[name]()) + "\n"


def difference(name: str, written: str) -> str:
    """Return a unified diff between the golden text and `written`, which the code writes now."""
    path = path_of(name)
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = difflib.unified_diff(
        expected.splitlines(), written.splitlines(), f"{name}.txt", "written now", lineterm=""
    )
    return "\n".join(lines)


def files() -> list[str]:
    """Return the names of all golden texts that are on disk."""
    return sorted(
        path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/*.txt")
    )
