"""Imported by the process that workers are forked from, and by nothing else: what they need, and
silence from their first moment on.
"""

from netsim.sweep import orders, worker

__all__ = ["orders"]

worker.hush()
