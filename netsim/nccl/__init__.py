"""NCCL's deterministic front end: graph search, tuning model, work split, p2p rounds.

Pure functions of values; the source of every rule is NCCL's documented behaviour by version.
"""

from netsim.lazy import promised

__getattr__ = promised(
    __name__,
    "environment",
    "folding",
    "graph_xml",
    "plan",
    "schedules",
    "tuner_csv",
    "variables",
    "version",
)
