"""Measured runs beside simulated ones: indexes and logs read, mapped to scenarios, compared."""
