"""Imported by the process that workers are forked from, and by nothing else: they are silent from
their first moment on."""

import os
import sys

# A worker whose parent was killed fails wherever it is, which is no news.
if not os.environ.get("NETSIM_DEBUG"):
    sys.excepthook = lambda *_: None
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (for as long as the process lives)
