"""Measured runs beside simulated ones: indexes and logs read, mapped to scenarios, compared."""

from netsim.lazy import promised

__getattr__ = promised(__name__, "overlay")
