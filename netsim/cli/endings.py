"""The message and the exit code of an error that ends a verb."""

import os
import sys
import traceback

import typer

from netsim.base.errors import NetsimError

INTERRUPTED = 130


def report_error(error: Exception | KeyboardInterrupt, *, can_resume: bool) -> int:
    """Print the one message of an error that ended a verb; return the exit code."""
    if isinstance(error, NetsimError):
        typer.echo(str(error), err=True)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        remark = "; what was finished is kept" if can_resume else ""
        typer.echo(f"interrupted{remark}", err=True)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # The interpreter flushes standard output when it ends, which would fail once more.
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
    """Print one line about an error that is a mistake of netsim; return the exit code.

    NETSIM_DEBUG prints the traceback as well."""
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
