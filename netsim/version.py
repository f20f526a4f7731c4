"""Versions: of the package, and of the model, which changes whenever an answer may change."""

__version__ = "0.1.0"
MODEL_VERSION = "2"
