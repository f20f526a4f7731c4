"""What a process is: versions of the package, the model and others, and the memory that it has."""

import os
from contextlib import suppress
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


def resident(pid: int | None = None) -> int:
    """The bytes of memory that a process has (this one, or another); 0 where nobody tells."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def memory_limit() -> int:
    """The bytes that this process may have at most; 0: as many as there are."""
    limits = import_module("resource")  # which not every system has
    soft, _ = limits.getrlimit(limits.RLIMIT_DATA)
    return 0 if soft == limits.RLIM_INFINITY else int(soft)


def limit_memory(most: int) -> None:
    """Let this process have so many bytes: what needs more hears so, before the system is out of
    memory and ends whatever it likes.
    """
    limits = import_module("resource")
    _, hard = limits.getrlimit(limits.RLIMIT_DATA)
    most = most if hard == limits.RLIM_INFINITY else min(most, hard)
    with suppress(OSError, ValueError):
        limits.setrlimit(limits.RLIMIT_DATA, (most, hard))
