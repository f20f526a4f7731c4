"""`python -m netsim` is the command `netsim`. Ctrl-C ends it without a traceback, even during
start-up.
"""

import atexit
import gc
import os
import signal
import sys
import threading
from importlib import import_module

INTERRUPTED = 130
# Environment variables that turn off what libraries do without need at import: start threads for
# products of large matrices, which wait for work in a busy loop; search all installed packages for
# plugins.
UNASKED = {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}


def main() -> int:
    """Load the command line, run one command, and end the process with its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a shell ignores it
        signal.signal(signal.SIGINT, _leave)
    try:
        code: object = _command(lambda: import_module("netsim.base.files").listen())
    except SystemExit as ended:
        code = ended.code
    finally:  # the interpreter would end by the signal while it cleans up
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    # After Ctrl-C the interpreter must not clean up: that may restore the usual meaning of a
    # signal, and a second Ctrl-C would then end the process without its exit code.
    if code == INTERRUPTED or not _watched():
        _end(0 if code is None else code)
    sys.exit(code)  # type: ignore[arg-type]


def _command(*started: object) -> int:
    for name, value in UNASKED.items():
        os.environ.setdefault(name, value)
    is_output_closed = sys.stdout is None
    for name in ("stdout", "stderr"):  # None where the one who asks has closed it
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115
        stream.reconfigure(errors="replace")  # what a terminal cannot show
        setattr(sys, name, stream)
    os.environ["MPLBACKEND"] = "Agg"  # a notebook's own, which its cells hand on, may not be here
    gc.disable()  # what is imported stays; looking through it takes a tenth of a small run
    closed = {"is_output_closed": True} if is_output_closed else {}
    code: int = import_module("netsim.cli").main(None, *started, **closed)
    return code


def _watched() -> bool:
    """Whether the process must end through the interpreter: because of threads, helper processes or
    a profiler.
    """
    others = threading.active_count() > 1 or "multiprocessing" in sys.modules
    looking = getattr(sys, "monitoring", None)  # from Python 3.12 on
    tools = looking and any(map(looking.get_tool, range(looking.OPTIMIZER_ID + 1)))
    return bool(others or tools or sys.getprofile() or sys.gettrace() or sys.flags.inspect)


def _end(code: object) -> None:
    """Run the exit functions, flush the standard streams, and end the process with `code` at once.

    This skips the destruction of all objects, which takes a tenth of a small run. If a stream
    cannot be flushed, return, and leave the message and the exit code to the interpreter.
    """
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
    """The handler of Ctrl-C during imports: end at once, because an exception inside an import
    breaks some modules.
    """
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
