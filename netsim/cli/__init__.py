"""The command line: a table of verbs, and the only place that prints.

Each verb has a module in `netsim/cli/verbs/` with its options and their help. That module imports
next to nothing, so that `--help` answers at once. Its function imports the modules that do the work
and returns a function without arguments that does it. Results go to standard output, diagnostics to
standard error.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from netsim.base.errors import suggest
from netsim.base.startup import __version__, begin_stage, enduring
from netsim.cli.output import INTERRUPTED, report_error

# The verbs, each with its line of `netsim --help`.
VERBS = {
    "run": "Simulate all cells of a scenario.",
    "expect": "Print the table that nccl-tests would print, and why.",
    "compare": "Hold measured logs against the prediction.",
    "localize": "Find the part that makes logs of node subsets slow, and the next test.",
    "diff": "Show by size which of two is faster, and why.",
    "calibrate": "Fit a few physical parameters to logs of a system.",
    "accuracy": "Hold the simulator against an index of measured runs.",
    "explain": "Show where the time goes and what would change it.",
    "merge": "Put together the results of the parts of a sweep.",
    "list": "List scenarios, with their questions, and machines.",
    "topo": "List and show machines and topologies.",
    "check": "Validate scenarios and topologies without running them.",
    "schema": "Print the JSON Schema of scenario or topology files.",
    "plot": "Redraw plots from results alone.",
    "report": "Write one HTML file of a folder of results.",
    "optimize": "Search the choices of a scenario for the best.",
    "doctor": "Show versions, extras and folders.",
}

# Verbs that always write files, and options with which any verb writes a file.
WRITING_VERBS = ("run", "optimize", "report", "merge", "plot")
WRITING_OPTIONS = (
    "-o",
    "--output",
    "-J",
    "--json",
    "--junit",
    "--gate-out",
    "--tuner-out",
    "--graph-out",
    "--page",
    "--plots",
    "--predict",  # --predictions, too
    "--questions",
)
# The garbage collector runs after this many new objects; a small command creates fewer, so that it
# never runs for one.
GARBAGE = 50_000

# The function of a verb: it takes the options, imports the modules that do the work, and returns a
# function without arguments that does the work.
VerbFunction = Callable[..., Callable[[], None]]


def main(
    argv: Sequence[str] | None = None,
    started: Callable[[], Any] = lambda: None,
    *,
    is_output_closed: bool = False,
) -> int:
    """Run one command and return its exit code. `started()` is called when all modules are
    imported.

    With standard output closed (`>&-`), a command that writes no files is refused, because nobody
    would ever see its results.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in arguments if not word.startswith("-")), "")
    writes_files = verb in WRITING_VERBS or any(
        word.startswith(WRITING_OPTIONS) for word in arguments
    )
    if is_output_closed and not writes_files:
        typer.echo("netsim: standard output is closed, and nothing else is written", err=True)
        raise SystemExit(2)
    with enduring(files=writes_files):
        try:
            app = application(has_options=arguments[:1] != [verb])
            app(arguments, prog_name="netsim", obj=started)
        except KeyboardInterrupt:  # while the verb's module was still being imported
            typer.echo("interrupted", err=True)
            raise SystemExit(INTERRUPTED) from None
        except OSError as error:  # help that nobody can read
            typer.echo(f"netsim: standard output: {error.strerror}", err=True)
            raise SystemExit(2) from None
    return 0


class VerbGroup(TyperGroup):
    """The group of all verbs, which imports the module of a verb only when that verb is used.

    `netsim --help` needs only the one line of help of each verb, so it lists placeholder commands.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, command and remaining arguments of the verb that `args[0]` names.

        An unknown verb ends the process with a message and exit code 2.
        """
        verb = args[0]
        if verb not in VERBS:
            hint = suggest(verb, VERBS)
            typer.echo(f"netsim: expected one of {', '.join(VERBS)}, got {verb!r}{hint}", err=True)
            raise SystemExit(2)
        self.commands[verb] = verb_command(verb, ctx.obj)
        return super().resolve_command(ctx, args)


def application(*, has_options: bool = True) -> typer.Typer:
    """The command line with all verbs, and with the options that stand before a verb (`--help`,
    `--version`).

    `has_options` False leaves those options out, for command lines that begin with a verb: to find
    that they were not given, typer imports pydantic, which takes a third of the time of `netsim
    VERB --help`.
    """
    app = typer.Typer(
        cls=VerbGroup,
        add_completion=has_options,
        add_help_option=has_options,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="A discrete-event simulator of collectives on GPU clusters.",
    )
    app.callback()(_main_options)
    for verb, text in VERBS.items():
        app.command(verb, help=text)(_placeholder)
    return app


def _placeholder() -> None:
    """Do nothing: a placeholder in the list of verbs, which `VerbGroup` replaces before it is
    called.
    """


def verb_command(verb: str, started: Callable[[], Any] = lambda: None) -> Any:
    """The click command that typer makes from the signature of a verb's function.

    For `topo` it is the group of its commands. `started()` is called when the command has imported
    the modules that it needs.
    """
    module = import_module(f"netsim.cli.verbs.{verb}")
    app = typer.Typer(add_completion=False, no_args_is_help=True, help=VERBS[verb])
    if verb == "topo":
        for name, function in module.COMMANDS.items():
            app.command(name)(guarded(function, verb, started))
    else:
        app.command(verb)(guarded(module.command, verb, started))
    return typer.main.get_command(app)


def guarded(
    function: VerbFunction, verb: str, started: Callable[[], Any] = lambda: None
) -> Callable[..., None]:
    """Return a function with the options of `function`, the function of the command `verb`, for
    typer to call.

    It calls `function`, does the work that this returns, and turns any error into one message and
    an exit code. `started()` is called once, between the two, when all modules are imported.
    """

    @wraps(function)
    def run(**options: Any) -> None:
        try:
            work = function(**options)
            _after_imports(started)
            _run_with_progress(work, verb, is_quiet=bool(options.get("quiet")))
        except typer.Exit:
            raise
        except (KeyboardInterrupt, Exception) as error:
            code = report_error(error, can_resume="resume" in signature(function).parameters)
            raise typer.Exit(code) from None

    return run


def _run_with_progress(work: Callable[[], None], verb: str, *, is_quiet: bool) -> None:
    """Do the work of a verb; show its progress if standard error is a terminal, unless
    `is_quiet`.
    """
    is_shown = sys.stderr.isatty() and not is_quiet
    begin_stage(is_shown=is_shown)
    if not is_shown:
        work()
        return
    from netsim.cli.progress import shown_progress

    with shown_progress(verb):
        work()


def _after_imports(started: Callable[[], Any]) -> None:
    """Call `started()` and turn the garbage collector on.

    `netsim/__main__.py` keeps the collector off while modules are imported. The objects of the
    imported modules stay until the end, so `gc.freeze` excludes them from every search. This saves
    0.035 s of the 0.52 s of processor time that `expect dgx-h100 all_reduce --sizes 1M` takes (15
    pairs, 2026-11-29).
    """
    started()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    gc.enable()


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(__version__)
        raise typer.Exit


def _main_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            help="Print the version and exit.",
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
) -> None:
    """Declare the options that stand before the verb, for typer. The function does nothing itself:
    each option has a callback that acts on it.
    """
    del version
