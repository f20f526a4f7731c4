"""Topologies that a user already has, read into machines and graphs; and written back."""

from netsim.lazy import promised

__getattr__ = promised(__name__, "astra", "infragraph", "nccl", "node_link", "smi")
