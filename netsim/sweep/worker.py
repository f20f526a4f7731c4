"""What a worker of this machine is: gone with the process that it works for, and silent."""

import multiprocessing
import os
import sys
import threading
from multiprocessing import connection

DEBUG = "NETSIM_DEBUG"


def begin() -> None:
    """Do not outlive the parent."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """End this process as soon as the one that waits for its work has ended."""
    connection.wait([sentinel])
    os._exit(1)


def hush() -> None:
    """Say nothing: a worker whose parent was killed fails wherever it is, which is no news."""
    if not os.environ.get(DEBUG):
        sys.excepthook = lambda *_: None
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (for as long as the process lives)
