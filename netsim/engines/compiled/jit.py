"""Compiling, and where compiled code is kept from one run to the next.

The folder is chosen here and not left to numba: it carries a digest of this package's sources, so
that no run ever uses code of another version, and there is one even where neither the package nor
the home can be written.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])

_PRIVATE = 0o700

# Nothing is allocated in compiled code, so nothing has to be counted: counting references would
# take most of the time of short functions.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}


def inner(function: Function) -> Function:
    """Compile a function that only compiled code calls."""
    return cast(Function, numba.njit(function, **_OPTIONS))


def entry(function: Function) -> Function:
    """Compile a function that Python calls, and keep the result for the next run."""
    folder, config = cache_folder(), cast(Any, numba.config)
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder or "")
    try:
        return cast(Function, numba.njit(function, cache=folder is not None, **_OPTIONS))
    finally:
        config.CACHE_DIR = before


@cache
def cache_folder() -> Path | None:
    """The first folder that can be written; None if there is none, then nothing is kept."""
    return next((folder for folder in _candidates() if _usable(folder)), None)


def _candidates() -> Iterator[Path]:
    name = f"netsim-{sources_digest()}"
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        yield Path(given) / name
    yield Path(__file__).parent / "__pycache__" / name
    yield _user_cache() / "netsim" / name
    yield Path(tempfile.gettempdir()) / f"netsim-{_user()}" / name


def sources_digest() -> str:
    """A digest of the sources that are compiled."""
    digest = blake2b(digest_size=8)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~\\AppData\\Local").expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Caches").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _usable(folder: Path) -> bool:
    """Whether we can write there and nobody else could have: loading runs what lies in it."""
    try:
        folder.mkdir(_PRIVATE, parents=True, exist_ok=True)
        for level in (folder, folder.parent):
            owner = level.lstat()
            if hasattr(os, "getuid") and (owner.st_mode & 0o002 or owner.st_uid not in _trusted()):
                return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _trusted() -> tuple[int, int]:
    return 0, _user()
