"""`python -m netsim` is the command `netsim`; Ctrl-C ends it quietly, even while it starts."""

import gc
import os
import signal
import sys
from importlib import import_module

INTERRUPTED = 130


def main() -> int:
    """Load the command line and run one command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a shell ignores it
        signal.signal(signal.SIGINT, _leave)
    try:
        return _command(lambda: import_module("netsim.interrupts").listen())
    finally:  # the interpreter would end by the signal while it cleans up
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _command(*started: object) -> int:
    gc.disable()  # what is imported stays; looking through it takes a tenth of a small run
    code: int = import_module("netsim.cli").main(None, *started)
    return code


def _leave(*_: object) -> None:
    """While modules are imported, nothing needs to be kept, and not all of them stand an exception
    in their middle.
    """
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
