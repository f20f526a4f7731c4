"""NCCL's deterministic front end: graph search, tuning model, work split, p2p rounds.

Pure functions of values; the source of every rule is NCCL's documented behaviour by version.
"""
