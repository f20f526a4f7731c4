"""`python -m netsim` is the command `netsim`; Ctrl-C ends it quietly, even while it starts."""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

INTERRUPTED = 130
# Switches off what libraries do when they are imported and what is of no use here: threads for
# products of large matrices, which wait for work busily; a search for plugins through all installed
# packages. Saves 0.05 s of the 0.54 s of processor time of `expect dgx-h100 all_reduce --sizes 1M`.
UNASKED = {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}


def main() -> int:
    """Load the command line and run one command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a shell ignores it
        signal.signal(signal.SIGINT, _leave)
    try:
        code: object = _command(_listen)
    except SystemExit as ended:
        code = ended.code
    finally:  # the interpreter would end by the signal while it cleans up
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    if code == INTERRUPTED:
        _end_interrupted()
    sys.exit(code)  # type: ignore[arg-type]


def _command(started: Callable[[], object]) -> int:
    for name, value in UNASKED.items():
        os.environ.setdefault(name, value)
    is_output_closed = sys.stdout is None
    for name in ("stdout", "stderr"):  # None where the one who asks has closed it
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115
        stream.reconfigure(errors="replace")  # what a terminal cannot show
        setattr(sys, name, stream)
    os.environ["MPLBACKEND"] = "Agg"  # a notebook's own, which its cells hand on, may not be here
    gc.disable()  # netsim/cli/__init__.py enables it again when all is imported
    from netsim.cli import main as run_command

    return run_command(None, started, is_output_closed=is_output_closed)


def _listen() -> None:
    """Let Ctrl-C end the command as it does while a command works."""
    from netsim.base.files import listen

    listen()


def _end_interrupted() -> None:
    """End with the exit code of an interrupt without the clean-up of the interpreter.

    That clean-up may give a signal its usual meaning back, and a second Ctrl-C would then end the
    process by the signal."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(INTERRUPTED)


def _leave(*_: object) -> None:
    """While modules are imported: some of them cannot stand an exception in their middle."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
