"""Machine code, and where it is kept from one run to the next.

The name of a kept piece of code holds a digest of all that it depends on: the sources of this
package, versions, processor and kinds of arguments. So no run ever uses code of another version,
and machines that share a folder do not disturb each other.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

SYMBOL = "netsim_entry"

_DIGEST = 16
_PRIVATE = 0o700
_SPEED = 3  # the highest level of optimization
# What machine code may call beside itself: the C library's functions, which any process has.
_KNOWN = {"memcpy", "memset", "memmove", "fmod", "pow"}

_engines: list[llvm.ExecutionEngine] = []  # these own the code


def machine_code(name: str, kind: str, translate: Callable[[], str]) -> bytes:
    """The code of a function for arguments of a kind: what was kept, or else compiled now."""
    wanted = blake2b(f"{_surroundings()} {name} {kind}".encode(), digest_size=_DIGEST)
    folder = cache_folder()
    file = None if folder is None else folder / f"{name}-{wanted.hexdigest()}.code"
    code = None if file is None else _read(file)
    if code is None:
        code = _assemble(translate())
        if file is not None:
            _write(file, code)
    return code


def load_code(code: bytes) -> int:
    """Make machine code ready to run; its address."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(SYMBOL))


def _assemble(text: str) -> bytes:
    """Nobody but the entry is called from outside. As that is told, it may take in whom it calls,
    and others are not handed what they do not use, of some seventy words of arguments.
    """
    module = llvm.parse_assembly(text.replace("\ndefine linkonce_odr ", "\ndefine internal "))
    called = {function.name for function in module.functions if function.is_declaration}
    unknown = {name for name in called if not name.startswith("llvm.")} - _KNOWN
    assert not unknown, f"compiled code must stand alone, but it calls {sorted(unknown)}"
    target = _target()
    _optimize(module, target)
    return bytes(target.emit_object(module))


def _optimize(module: llvm.ModuleRef, target: llvm.TargetMachine) -> None:
    if not hasattr(llvm, "create_pass_builder"):  # llvmlite 0.43: slower, and no more
        return
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(_SPEED))
    builder.getModulePassManager().run(module, builder)


def _target() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=_SPEED,
        jit=True,
        codemodel="jitdefault",
    )


@cache
def _surroundings() -> str:
    digest = blake2b(digest_size=_DIGEST)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    versions = f"{sys.version} {version('numba')} {llvmlite.__version__}"
    return f"{digest.hexdigest()} {llvm.get_process_triple()} {processor} {versions}"


def _read(file: Path) -> bytes | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, code = content[:_DIGEST], content[_DIGEST:]
    return code if blake2b(code, digest_size=_DIGEST).digest() == digest else None


def _write(file: Path, code: bytes) -> None:
    """Keep code if that is possible; a run can always do without."""
    content = blake2b(code, digest_size=_DIGEST).digest() + code
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as temporary:
            temporary.write(content)
        os.replace(temporary.name, file)
    except OSError:
        return


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
    yield Path(tempfile.gettempdir()) / f"netsim-{_user()}"


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
        with tempfile.TemporaryFile(dir=folder):
            return True
    except (OSError, RuntimeError):  # RuntimeError: no home is known
        return False
