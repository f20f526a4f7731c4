"""What verbs print and write: lines on the two streams, and checks of the files to be written."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import typer

from netsim.base.errors import InputError
from netsim.base.files import check_writable, is_same_file
from netsim.base.units import UnitError

T = TypeVar("T")


def parsed(parse: Callable[[str], T], flag: str, text: str) -> T:
    """The value of an option's text; an error names the option."""
    try:
        return parse(text)
    except UnitError as error:
        raise InputError(f"{flag} {text}: {error}") from None


def check_outputs(files: Mapping[str, Path | None], **folders: Path | None) -> None:
    """Refuse files and folders that nobody could write, before anything is simulated for them.

    `files` are named by their flags, `folders` by their options without dashes."""
    for flag, file in files.items():
        if file is not None:
            check_writable(flag, file)
    for name, folder in folders.items():
        if folder is not None and folder.exists() and not folder.is_dir():
            raise InputError(f"--{name} {folder}: this is a file, expected a folder")


def refuse_output_as_input(output: Path | None, inputs: Iterable[Path]) -> None:
    """Raise an InputError if `output` is one of the files or folders that are read.

    Links count as what they lead to. Devices and pipes (/dev/null, a terminal) may be both, as
    nothing of them is overwritten."""
    if output is None or not (output.is_file() or output.is_dir()):
        return
    for path in inputs:
        if is_same_file(output, path):
            raise InputError(
                f"{output}: is read as {path}, and would be overwritten",
                hint="name another file to write",
            )


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines one by one, as they are found."""
    for line in lines:
        typer.echo(line, err=err)


def tell(text: str) -> None:
    """Print a line on standard error: a message for the user that is no result."""
    typer.echo(text, err=True)


def wrote(*files: Path) -> None:
    """Say which files were written."""
    print_lines((f"wrote {file}" for file in files), err=True)
