"""Versions: of this package and others, and of the model: another whenever answers may change."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
MODEL_VERSION = "2"


def late(name: str) -> Any:
    """A function of a part that most runs do without, imported when it is asked for.

    Only what takes a tenth of a second and more is asked for so; `tests/core/test_house.py` has all
    of it.
    """
    module, _, function = name.rpartition(".")
    return getattr(import_module(module), function)


def version_of(package: str) -> str:
    """As `metadata.version`, which would read all that a package says of itself as an e-mail."""
    metadata = import_module("importlib.metadata")  # which not every command needs
    told = metadata.distribution(package).read_text("METADATA") or ""
    words = (line.partition(": ") for line in told.splitlines())
    found = (value for key, _, value in words if key == "Version")
    return next(found, None) or str(metadata.version(package))
