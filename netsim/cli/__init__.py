"""The command line: a table of verbs, and the only place that prints.

A verb's module is imported when the verb is used, so that `--help` answers at once. Results go to
standard output, diagnostics to standard error."""

import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from netsim.base.errors import InputError, NetsimError, suggest
from netsim.base.files import check_writable, is_same_file, table_beside
from netsim.base.startup import __version__, enduring, watched
from netsim.base.units import UnitError

T = TypeVar("T")


# Verb: its function, or those of its own verbs; what it does.
VERBS = {row["verb"]: (row["home"], row["help"]) for row in table_beside(__file__, "verbs.csv")}

INTERRUPTED = 130
WRITING = ("run", "optimize", "report", "merge", "plot")  # files, always; others with an option
OUTPUTS = (
    "-o",
    "--out",
    "-J",
    "--json",
    "--tuner-out",
    "--graph-out",
    "--pa",
    "--pl",
    "--predict",
    "--questions",
)
GARBAGE = 50_000  # objects from which it is looked for: what a small run makes is not worth it


def main(
    argv: Sequence[str] | None = None,
    started: Callable[[], Any] = lambda: None,
    *,
    is_output_closed: bool = False,
) -> int:
    """Run one command; returns the exit code. `started()` is called when all is imported.

    With standard output closed (`>&-`), a command that writes no files is refused: nobody would
    ever see what it finds."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    asked = next((word for word in arguments if not word.startswith("-")), "")
    writes_files = asked in WRITING or any(one.startswith(OUTPUTS) for one in arguments)
    if is_output_closed and not writes_files:
        typer.echo("netsim: standard output is closed, and nothing else is written", err=True)
        raise SystemExit(2)
    with enduring(files=writes_files):
        return _run(arguments, asked, started)


def _run(arguments: Sequence[str], asked: str, started: Callable[[], Any]) -> int:
    if asked and asked not in VERBS:
        hint = suggest(asked, VERBS)
        typer.echo(f"netsim: expected one of {', '.join(VERBS)}, got {asked!r}{hint}", err=True)
        raise SystemExit(2)
    try:
        app = _app(asked)
        started()
        gc.freeze()  # what is imported stays, so it is not looked through
        gc.set_threshold(GARBAGE)
        gc.enable()
        app(arguments, prog_name="netsim")
    except KeyboardInterrupt:  # while the verb's module was still being imported
        typer.echo("interrupted", err=True)
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:  # help that nobody can read
        typer.echo(f"netsim: standard output: {error.strerror}", err=True)
        raise SystemExit(2) from None
    return 0


def _app(asked: str) -> typer.Typer:
    """The application, with the module of the verb that is asked for and no other."""
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="A discrete-event simulator of collectives on GPU clusters.",
    )
    app.callback()(_options)
    for verb, (home, text) in VERBS.items():
        if verb != asked:
            app.command(verb, help=text)(lambda: None)
            continue
        module, _, name = home.rpartition(".")
        found = getattr(import_module(module), name)
        if isinstance(found, dict):
            group = typer.Typer(no_args_is_help=True, help=text)
            for name, function in found.items():
                group.command(name)(guarded(function, f"{verb} {name}"))
            app.add_typer(group, name=verb)
        else:
            app.command(verb, help=text)(guarded(found, verb))
    return app


def guarded(function: Callable[..., Any], verb: str) -> Callable[..., Any]:
    """A verb with its options, whose errors become one message and an exit code."""
    plain_parameters = signature(function).parameters

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with watched(function.__module__.rpartition(".")[2], quiet=bool(kwargs.get("quiet"))):
                return function(*args, **kwargs)
        except typer.Exit:
            raise
        except (KeyboardInterrupt, Exception) as error:
            code = _report_error(error, can_resume="resume" in plain_parameters)
            raise typer.Exit(code) from None

    options = _options_of(verb)
    for parameter in plain_parameters.values():
        if parameter.annotation in (bool, bool | None):
            options[parameter.name].metavar = ""  # a flag takes no value
    parameters = [
        parameter.replace(annotation=Annotated[parameter.annotation, options[parameter.name]])
        for parameter in plain_parameters.values()
    ]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _report_error(error: Exception | KeyboardInterrupt, *, can_resume: bool) -> int:
    """Print the one message of an error that ended a verb; return the exit code."""
    if isinstance(error, NetsimError):
        typer.echo(str(error), err=True)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        kept = "; what was finished is kept" if can_resume else ""
        typer.echo(f"interrupted{kept}", err=True)
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
    return _bug(error)


def _options_of(verb: str) -> dict[str, Any]:
    """The options and arguments that a verb may have, by parameter: of `options.csv`, whose rows of
    a verb, or of a group of them, count before those of all."""
    found: dict[str, Any] = {}
    table = table_beside(__file__, "options.csv")
    rows = [row for row in table if verb.startswith(row["verb"])]
    for row in sorted(rows, key=lambda row: len(row["verb"])):
        told: dict[str, Any] = {"help": row["help"], "metavar": row["metavar"] or None}
        if row["least"]:
            told["min"] = int(row["least"])
        flags = row["flags"].split()
        found[row["parameter"]] = typer.Option(*flags, **told) if flags else typer.Argument(**told)
    return found


def with_options(kind: Any, *without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the fields of a kind, but those `without`, options in the place of the parameter that
    is of this kind."""
    fields = {name: of for name, of in kind.__annotations__.items() if name not in without}

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        parameter_of_kind = next(
            parameter.name
            for parameter in signature(function).parameters.values()
            if parameter.annotation is kind
        )

        @wraps(function)
        def verb(**values: Any) -> None:
            options = kind(**{name: values.pop(name) for name in fields})
            function(**{parameter_of_kind: options}, **values)

        parameters: list[Parameter] = []
        for one in signature(function).parameters.values():
            shared = (
                Parameter(name, one.kind, default=getattr(kind, name), annotation=annotation)
                for name, annotation in fields.items()
            )
            parameters += shared if one.name == parameter_of_kind else [one]
        verb.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return verb

    return decorated


def parsed(parse: Callable[[str], T], flag: str, text: str) -> T:
    """What the text of an option means; an error names the option."""
    try:
        return parse(text)
    except UnitError as error:
        raise InputError(f"{flag} {text}: {error}") from None


def check_outputs(files: Mapping[str, Path | None], **folders: Path | None) -> None:
    """Refuse what options name and nobody could write, before anything is simulated for it."""
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


def wrote(*files: Path) -> None:
    """Say what was written."""
    print_lines((f"wrote {file}" for file in files), err=True)


def _bug(error: Exception) -> int:
    """What a user sees of a mistake of ours: one line, and how to get the rest."""
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


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit()


def _options(
    version: bool = typer.Option(
        False,
        "--version",
        metavar="",
        help="Print the version and exit.",
        is_eager=True,
        callback=_print_version,
    ),
) -> None:
    del version
