"""Machine code, and where it is kept from one run to the next.

The name of a kept piece of code holds a digest of all that it depends on: the sources of this
package, versions, processor and kinds of arguments. So no run ever uses code of another version,
and machines that share a folder do not disturb each other.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

from netsim.errors import InputError
from netsim.files import write_bytes
from netsim.lazy import Promised
from netsim.version import version_of

SYMBOL = "netsim_entry"

_DIGEST = 16
_PRIVATE = 0o700
_CPUINFO = "/proc/cpuinfo"
_FIRST = 8192  # bytes, in which the first processor is described
# What Linux calls what LLVM tells processors apart by, on x86 and on ARM.
_TELLING = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")

assembler = Promised("netsim.engines.compiled.assembler")  # LLVM is for what is not kept
_libraries: list[ctypes.CDLL] = []


def machine_code(name: str, kind: str, translate: Callable[[], str]) -> int:
    """The address of a function for arguments of a kind: what was kept, or else compiled now."""
    wanted = blake2b(f"{_surroundings()} {name} {kind}".encode(), digest_size=_DIGEST)
    folder = cache_folder()
    place = None if folder is None else folder / f"{name}-{wanted.hexdigest()}"
    found = None if place is None else _kept(place)
    if found is not None:
        return found
    module = assembler.assemble(translate())
    code = assembler.object_of(module)
    if place is not None:
        _keep(place, code, assembler.library_of(module))
    return int(assembler.load_object(code))


def _kept(place: Path) -> int | None:
    """The address of code that was kept, as a library or as an object."""
    found = _load_library(place.with_name(f"{place.name}.so"))
    if found is not None:
        return found
    code = _read(place.with_name(f"{place.name}.code"))
    return None if code is None else int(assembler.load_object(code))


def _keep(place: Path, code: bytes, library: bytes | None) -> None:
    """Keep code if that is possible; a run can always do without. The object is only for where
    there is no library, or the system would not load it from there.
    """
    with suppress(InputError):
        if library is not None:
            file = place.with_name(f"{place.name}.so")
            write_bytes(file, library + _digest(library))
            if _load_library(file) is not None:
                return
        write_bytes(place.with_name(f"{place.name}.code"), code + _digest(code))


def _load_library(file: Path) -> int | None:
    if _read(file) is None:
        return None
    try:
        library = ctypes.CDLL(str(file))
        address = ctypes.cast(getattr(library, SYMBOL), ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None
    _libraries.append(library)
    return address


def _read(file: Path) -> bytes | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None
    code, digest = content[:-_DIGEST], content[-_DIGEST:]
    return code if _digest(code) == digest else None


def _digest(code: bytes) -> bytes:
    return blake2b(code, digest_size=_DIGEST).digest()


@cache
def _surroundings() -> str:
    digest = blake2b(digest_size=_DIGEST)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    versions = " ".join(version_of(package) for package in ("numba", "llvmlite"))
    return f"{digest.hexdigest()} {sys.platform} {_processor()} {sys.version} {versions}"


def _processor() -> str:
    """What Linux tells of the processor, or else LLVM, which takes longer to ask."""
    try:
        with open(_CPUINFO, "rb", buffering=0) as told:  # of one alone, for there may be hundreds
            first = told.read(_FIRST).decode(errors="replace").partition("\n\n")[0]
    except OSError:
        first = ""
    lines = [line for line in first.splitlines() if line.startswith(_TELLING)]
    return " ".join(lines) or str(assembler.processor())


@cache
def cache_folder() -> Path | None:
    """The first folder that we can write; None if there is none, then nothing is kept."""
    return next((folder for folder in _candidates() if _usable(folder)), None)


def _candidates() -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        yield Path(given) / "netsim"
    yield Path(__file__).parent / "__pycache__"
    yield _user_cache() / "netsim"
    yield Path(import_module("tempfile").gettempdir()) / f"netsim-{_user()}"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~\\AppData\\Local").expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Caches").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _usable(folder: Path) -> bool:
    """Whether we can write there and no stranger can: what lies there will be run."""
    try:
        folder.mkdir(_PRIVATE, parents=True, exist_ok=True)
        owner = folder.lstat()
        if hasattr(os, "getuid") and (owner.st_mode & 0o022 or owner.st_uid != _user()):
            return False
        return os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError):  # RuntimeError: no home is known
        return False
