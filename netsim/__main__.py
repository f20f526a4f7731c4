"""`python -m netsim` is the command `netsim`. Ctrl-C ends it without a traceback, even during
start-up.
"""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

INTERRUPTED = 130
# Environment variables that turn off what libraries do without need at import: start threads for
# products of large matrices, which wait for work in a busy loop; search all installed packages for
# plugins. This saves 0.05 of the 0.54 s of processor time that
# `expect dgx-h100 all_reduce --sizes 1M` takes.
UNASKED = {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}


def main() -> int:
    """Load the command line, run one command, and end the process with its exit code."""
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
    """End the process with the exit code of an interrupt, without the clean-up of the interpreter.

    That clean-up may restore the usual meaning of a signal, and a second Ctrl-C would then end the
    process without its exit code.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(INTERRUPTED)


def _leave(*_: object) -> None:
    """The handler of Ctrl-C during imports: end at once, because an exception inside an import
    breaks some modules.
    """
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
