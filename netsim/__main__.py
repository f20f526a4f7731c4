"""`python -m netsim` is the command `netsim`; Ctrl-C ends it quietly, even while it starts."""

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable

INTERRUPTED = 130
# What libraries do when they are imported, and what is of no use here: threads for products of
# large matrices, which wait for work busily; a search for plugins through all installed packages.
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
    # After Ctrl-C the interpreter must not clean up: that may give a signal its usual meaning back,
    # and a second Ctrl-C would then end the process without its exit code.
    if code == INTERRUPTED or not _watched():
        _end(0 if code is None else code)
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
    gc.disable()  # what is imported stays; looking through it takes a tenth of a small run
    from netsim.cli import main as run_command

    return run_command(None, started, is_output_closed=is_output_closed)


def _listen() -> None:
    """Let Ctrl-C end the command as it does while a command works."""
    from netsim.base.files import listen

    listen()


def _watched() -> bool:
    """Whether somebody waits for the interpreter's own end: threads, helpers, a profiler."""
    others = threading.active_count() > 1 or "multiprocessing" in sys.modules
    looking = getattr(sys, "monitoring", None)  # from Python 3.12 on
    tools = looking and any(map(looking.get_tool, range(looking.OPTIMIZER_ID + 1)))
    return bool(others or tools or sys.getprofile() or sys.gettrace() or sys.flags.inspect)


def _end(code: object) -> None:
    """End as the interpreter does, but for taking every object apart, which takes a tenth of a
    small run. What cannot be written is left to it, to tell that and its exit code."""
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    if isinstance(code, int):
        os._exit(code & 0xFF)


def _leave(*_: object) -> None:
    """While modules are imported: some of them cannot stand an exception in their middle."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
