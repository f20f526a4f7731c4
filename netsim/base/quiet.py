"""Silence worker processes from the start. The process that workers are forked from imports this
module.
"""

import os
import sys

# If the parent of a worker is killed, the worker fails somewhere; its traceback would tell the user
# nothing.
if not os.environ.get("NETSIM_DEBUG"):
    sys.excepthook = lambda *_: None
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (for as long as the process lives)
