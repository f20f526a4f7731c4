"""What verbs print: lines, names of written files, errors; and checks of files to be written."""

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import typer

from netsim.base.errors import InputError, NetsimError
from netsim.base.files import check_writable, is_same_file
from netsim.base.units import UnitError

T = TypeVar("T")
INTERRUPTED = 130  # the exit code


def parsed(parse: Callable[[str], T], flag: str, text: str) -> T:
    """Parse the value of an option; a UnitError becomes an InputError that names the
    option `flag`.
    """
    try:
        return parse(text)
    except UnitError as error:
        raise InputError(f"{flag} {text}: {error}") from None


def check_outputs(files: Mapping[str, Path | None], **folders: Path | None) -> None:
    """Raise an InputError for outputs that cannot be written, before anything is simulated.

    `files` are keyed by their flags (`--json`), `folders` by their options without dashes.
    """
    for flag, file in files.items():
        if file is not None:
            check_writable(flag, file)
    for name, folder in folders.items():
        if folder is not None and folder.exists() and not folder.is_dir():
            raise InputError(f"--{name} {folder}: this is a file, expected a folder")


def refuse_output_as_input(output: Path | None, inputs: Iterable[Path]) -> None:
    """Raise an InputError if `output` is one of the files or folders that are read.

    A link counts as its target. Devices and pipes (/dev/null, a terminal) may be both, because
    writing to them overwrites nothing.
    """
    if output is None or not (output.is_file() or output.is_dir()):
        return
    for path in inputs:
        if is_same_file(output, path):
            raise InputError(
                f"{output}: is read as {path}, and would be overwritten",
                hint="name another file to write",
            )


def plain_text(value: object) -> str:
    """A value of an axis as text; dicts and lists as in YAML's flow style: `{kind: ring}`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {plain_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(plain_text, value)) + "]"
    return str(value)


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines one by one as the iterable yields them; to standard error if `err`."""
    for line in lines:
        typer.echo(line, err=err)


def tell(text: str) -> None:
    """Print a line on standard error: a message for the user that is no result."""
    typer.echo(text, err=True)


def wrote(*files: Path) -> None:
    """Print "wrote FILE" for each file on standard error."""
    print_lines((f"wrote {file}" for file in files), err=True)


def report_error(error: Exception | KeyboardInterrupt, *, can_resume: bool) -> int:
    """Print the message of an error that ended a verb; return the exit code.

    `can_resume` adds to the message of an interruption that finished rows are kept.
    """
    if isinstance(error, NetsimError):
        typer.echo(str(error), err=True)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        remark = "; what was finished is kept" if can_resume else ""
        typer.echo(f"interrupted{remark}", err=True)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # When the interpreter ends, it flushes standard output, which would raise the error again.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0
    if isinstance(error, MemoryError):
        typer.echo("netsim: out of memory; fewer ranks, sizes or chunks need less", err=True)
        return 2
    if isinstance(error, OSError):  # a full disk, a closed terminal
        file_name = f"{error.filename}: " if error.filename else ""
        typer.echo(f"netsim: {file_name}{error.strerror or error}", err=True)
        return 2
    if isinstance(error, UnicodeEncodeError):
        problem = f"this system's names of files ({error.encoding}) have no {error.object!r}"
        typer.echo(f"netsim: {problem} (LC_ALL=C.UTF-8 has all; -o names a folder)", err=True)
        return 2
    return _report_bug(error)


def _report_bug(error: Exception) -> int:
    """Print one line about an unexpected error, which is a bug of netsim; return the exit code.

    With NETSIM_DEBUG in the environment, print the traceback as well.
    """
    if os.environ.get("NETSIM_DEBUG"):
        traceback.print_exc()
    where = traceback.extract_tb(error.__traceback__)[-1]
    typer.echo(
        f"netsim: a bug in netsim, not in your input: {type(error).__name__}: {error} "
        f"({os.path.basename(where.filename)}:{where.lineno}); please report it "
        "(NETSIM_DEBUG=1 shows where it comes from)",
        err=True,
    )
    return 2
