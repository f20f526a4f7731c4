"""Compile functions to machine code, and store it for later runs as libraries.

The system loads a stored library without numba and without LLVM. Where that is not possible (no
linker, no folder that can be written, a version of numba or llvmlite with another interface), numba
compiles and keeps the functions itself, after one line in the log.

Numba with its own cache alone would be less code. Measured against it (medians of five pairs, numba
0.68, 2026-11-29): `expect dgx-h100 all_reduce --nodes 4 --sizes 64M --engine compiled` takes 0.77 s
of processor time and 64 MiB with stored libraries, 1.55 s and 194 MiB with numba. Two sizes on
1,024 GPUs take 3.1 s against 5.8 s.
"""

import ctypes
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from netsim.base.errors import InputError
from netsim.base.files import write_bytes
from netsim.base.startup import version_of

_SPEED = 3  # the highest level of optimization
# The functions of the C library that machine code may call; every process has them.
_LIBRARY_FUNCTIONS = {"memcpy", "memset", "memmove", "fmod", "pow"}

LOG = logging.getLogger("netsim")


class NoLibraryError(Exception):
    """Machine code cannot be stored as a library, or not be loaded; the text says why."""


@cache
def _llvm() -> Any:
    """Return LLVM's module. It is imported only when needed: that takes longer than a small run."""
    import llvmlite.binding

    return llvmlite.binding


def assemble(text: str) -> Any:
    """Return optimized machine code, as a module of LLVM, for a text in LLVM's language.

    Only the entry is called from outside. All other functions are marked as internal, so that LLVM
    may inline them and need not pass arguments that they do not use (some seventy words).
    """
    module = _llvm().parse_assembly(text.replace("\ndefine linkonce_odr ", "\ndefine internal "))
    called = {function.name for function in module.functions if function.is_declaration}
    unknown = {name for name in called if not name.startswith("llvm.")} - _LIBRARY_FUNCTIONS
    if unknown:
        raise NoLibraryError(f"compiled code must stand alone, but it calls {sorted(unknown)}")
    options = _llvm().create_pipeline_tuning_options(_SPEED)
    builder = _llvm().create_pass_builder(_target(), options)
    builder.getModulePassManager().run(module, builder)
    return module


def library_of(module: Any) -> bytes:
    """Return the code of LLVM's module as a shared library."""
    return link(bytes(_target().emit_object(module)))


def link(code: bytes) -> bytes:
    """Link position-independent code to a shared library; return its bytes."""
    linker = shutil.which("ld")
    if linker is None or sys.platform != "linux":
        raise NoLibraryError("there is no linker (ld)")
    with tempfile.TemporaryDirectory() as folder:
        object_file = Path(folder) / "code.o"
        made = Path(folder) / "code.so"
        object_file.write_bytes(code)
        command = [linker, "-shared", "-z", "noexecstack", "-o", str(made), str(object_file)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise NoLibraryError(f"{linker} cannot link: {done.stderr.decode().strip()}")
        return made.read_bytes()


def processor() -> str:
    """Return the name and the features of the processor, as LLVM names them."""
    return f"{_llvm().get_host_cpu_name()} {_llvm().get_host_cpu_features().flatten()}"


def _target() -> Any:
    """Return LLVM's description of this machine, for code of a shared library."""
    _llvm().initialize_native_target()
    _llvm().initialize_native_asmprinter()
    return (
        _llvm()
        .Target.from_default_triple()
        .create_target_machine(
            cpu=_llvm().get_host_cpu_name(),
            features=_llvm().get_host_cpu_features().flatten(),
            opt=_SPEED,
            reloc="pic",
            codemodel="default",
        )
    )


# Machine code, and where it is stored. The name of a file contains a digest of all that the code
# depends on: the sources of this package, versions, processor and kinds of arguments. So no run
# uses code of another version, and machines that share a folder do not disturb each other.

SYMBOL = "netsim_entry"

_DIGEST = 16
_PRIVATE = 0o700
_CPUINFO = "/proc/cpuinfo"
_FIRST = 8192  # bytes of the file that describe the first processor
# Beginnings of the lines of that file in which processors differ for LLVM, on x86 and on ARM.
_PROCESSOR_LINES = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")

_libraries: list[ctypes.CDLL] = []


def machine_code(name: str, kind: str, translate: Callable[[], str]) -> int:
    """Return the address of the machine code of a function.

    The code is loaded if it is stored; otherwise the function is compiled, and its code stored.

    - `name`: the name of the function.
    - `kind`: a description of the types of its arguments.
    - `translate`: returns the function in LLVM's language.

    Raises:
        NoLibraryError: the code cannot be stored or loaded; the text says why.
    """
    folder = cache_folder()
    if folder is None:
        raise NoLibraryError("there is no folder that can be written and is this user's alone")
    file = folder / f"{_stem(name)}-{_short(kind)}.so"
    address = _load_library(file)
    if address is not None:
        return address
    library = library_of(assemble(translate()))
    try:
        write_bytes(file, library + _digest(library))
    except InputError as error:
        raise NoLibraryError(error.message) from None
    address = _load_library(file)
    if address is None:
        raise NoLibraryError(f"{file} cannot be loaded")
    return address


def _stem(name: str) -> str:
    """Return the beginning of the names of the files in which a function's code is stored."""
    return f"{name}-{_short(_surroundings())}"


def _short(text: str) -> str:
    """Return a digest of a text as hexadecimal digits."""
    return blake2b(text.encode(), digest_size=_DIGEST).hexdigest()


def _load_library(file: Path) -> int | None:
    """Return the address of the function in a library; None without a library that is intact."""
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
    """Return the code in a file; None if it cannot be read or does not match the digest at its
    end.
    """
    try:
        content = file.read_bytes()
    except OSError:
        return None
    code = content[:-_DIGEST]
    digest = content[-_DIGEST:]
    return code if _digest(code) == digest else None


def _digest(code: bytes) -> bytes:
    """Return a digest of some code."""
    return blake2b(code, digest_size=_DIGEST).digest()


@cache
def _surroundings() -> str:
    """Return a text that differs whenever stored code must not be used.

    It depends on the sources of this package, on versions, the system and the processor.
    """
    digest = blake2b(digest_size=_DIGEST)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    versions = " ".join(version_of(package) for package in ("numba", "llvmlite"))
    return f"{digest.hexdigest()} {sys.platform} {_processor()} {sys.version} {versions}"


def _processor() -> str:
    """Return a description of the processor, from /proc/cpuinfo on Linux.

    Elsewhere it is LLVM's description, which takes longer to get.
    """
    try:
        with open(
            _CPUINFO, "rb", buffering=0
        ) as cpu_file:  # of one alone, for there may be hundreds
            first = cpu_file.read(_FIRST).decode(errors="replace").partition("\n\n")[0]
    except OSError:
        first = ""
    lines = [line for line in first.splitlines() if line.startswith(_PROCESSOR_LINES)]
    return " ".join(lines) or str(processor())


@cache
def cache_folder() -> Path | None:
    """Return the first folder for machine code that can be written; None if there is none.

    Without a folder no code is stored.
    """
    return next((folder for folder in _candidates() if _usable(folder)), None)


def _candidates() -> Iterator[Path]:
    """Yield the folders in which machine code may be stored, the preferred one first."""
    numba_folder = os.environ.get("NUMBA_CACHE_DIR")
    if numba_folder:
        yield Path(numba_folder) / "netsim"
    yield Path(__file__).parent / "__pycache__"
    yield _user_cache() / "netsim"
    yield Path(tempfile.gettempdir()) / f"netsim-{_user()}"


def _user_cache() -> Path:
    """Return the folder for the user's caches, as the operating system defines it."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~\\AppData\\Local").expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Caches").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def _user() -> int:
    """Return the user's number (uid); 0 on systems without such numbers."""
    return os.getuid() if hasattr(os, "getuid") else 0


def _usable(folder: Path) -> bool:
    """Return whether we can write to a folder and nobody else can.

    Others must not, because the code in it will be executed.
    """
    try:
        folder.mkdir(_PRIVATE, parents=True, exist_ok=True)
        owner = folder.lstat()
        if hasattr(os, "getuid") and (owner.st_mode & 0o022 or owner.st_uid != _user()):
            return False
        return os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError):  # RuntimeError: no home is known
        return False


# From functions to machine code. numba translates functions to LLVM's language; then only LLVM is
# needed. A run with stored code imports no compiler, which would take longer than simulating a
# million rows. Compiled code allocates no memory.

P = ParamSpec("P")
R = TypeVar("R")

# Options of numba: reference counting is off, because it would take most of the time of short
# functions.
_OPTIONS = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True}
# Without the global lock, because `attended` listens for Ctrl-C meanwhile.
_OPTIONS_OF_NUMBA = {"error_model": "numpy", "nogil": True}


def _njit(function: Callable[..., Any], **options: Any) -> Any:
    """The function as numba compiles it; its type stubs do not know all options."""
    import numba

    compiler: Any = numba.njit
    return compiler(function, **options)


@cache
def _inner_options() -> dict[str, Any]:
    """The options of inner functions: the usual ones if numba does not know those of libraries."""
    options = {**_OPTIONS, "no_cfunc_wrapper": True}
    try:
        _njit(_zero, **options).compile(())
    except Exception:  # a release of numba may fail in any way
        return {"error_model": _OPTIONS["error_model"]}
    return options


def _zero() -> int:
    return 0


class InnerFunction(Generic[P, R]):
    """Decorator of a function that compiled code calls; called from Python it runs as Python."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function as Python."""
        return self.function(*args, **kwargs)

    @cached_property
    def _compiled(self) -> Any:
        return _njit(self.function, **_inner_options())

    @property
    def _numba_type_(self) -> object:
        """The type that numba sees if compiled code refers to this function."""
        return self._compiled._numba_type_


class CompiledFunction(Generic[P]):
    """Decorator of a function that runs as machine code.

    Its arguments are integers, arrays, and tuples of arrays, and it returns an integer.
    """

    def __init__(self, function: Callable[P, int]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self._ready: dict[str, Callable[..., int]] = {}
        self._is_run_by_numba = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """Run the function as machine code."""
        return self.ready(*args, **kwargs)()

    def ready(self, *args: P.args, **kwargs: P.kwargs) -> Callable[[], int]:
        """Return a function without arguments that makes the call with these arguments.

        The code is compiled when this returns.
        """
        assert not kwargs
        code = self._code(args)
        if code is None:
            plain_args = tuple(map(_plain, args))
            return lambda: int(self._of_numba(*plain_args))

        def call() -> int:
            """Run the machine code, and return its result."""
            result = ctypes.c_int64()
            error = ctypes.c_void_p()
            if status := code(ctypes.byref(result), ctypes.byref(error), *_words(args)):
                raise RuntimeError(f"{self.function.__name__}: compiled code failed ({status})")
            return result.value

        return call

    @property
    def is_ready(self) -> bool:
        """Whether there is machine code of the function, in this process or stored."""
        folder = cache_folder()
        is_stored = folder is not None and any(folder.glob(f"{_stem(self._name)}-*"))
        return bool(self._ready) or self._is_run_by_numba or is_stored

    @property
    def _name(self) -> str:
        """The name of the function with its module."""
        return f"{self.function.__module__}.{self.function.__name__}"

    def _code(self, args: tuple[Any, ...]) -> Callable[..., int] | None:
        """Return the machine code for these arguments; None if numba must run the function."""
        kind = repr(tuple(map(_kind, args)))
        if kind not in self._ready and not self._is_run_by_numba:
            try:
                address = machine_code(self._name, kind, lambda: self._translate(args))
            except Exception as error:  # a release of numba or llvmlite may fail in any way
                _log_once(f"{type(error).__name__}: {error}".removeprefix("NoLibraryError: "))
                self._is_run_by_numba = True
                return None
            words = [ctypes.c_int64 for _ in _words(args)]
            prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *words)
            self._ready[kind] = prototype(address)
        return self._ready.get(kind)

    @cached_property
    def _of_numba(self) -> Callable[..., int]:
        """The function as numba compiles it, which numba keeps where it finds a folder."""
        function: Callable[..., int]
        try:
            function = _njit(self.function, cache=True, **_OPTIONS_OF_NUMBA)
        except RuntimeError:  # there is no such folder
            function = _njit(self.function, **_OPTIONS_OF_NUMBA)
        return function

    def _translate(self, args: tuple[Any, ...]) -> str:
        """The function in LLVM's language."""
        import numba

        function = _njit(self.function, no_cfunc_wrapper=True, **_OPTIONS)
        signature = tuple(_numba_type(numba, arg) for arg in args)
        function.compile(signature)
        overload = function.overloads[signature]
        text: str = overload.library.get_llvm_str()
        return text.replace(overload.fndesc.llvm_func_name, SYMBOL)


@cache
def _log_once(reason: str) -> None:
    """Say once in the log why numba runs functions itself."""
    LOG.warning("machine code is not kept as a library, numba takes longer to start: %s", reason)


def _plain(arg: Any) -> Any:
    """An argument as numba takes it: numbers of all kinds become integers, as in `_words`."""
    if isinstance(arg, tuple):
        return type(arg)(*map(_plain, arg))
    return arg if isinstance(arg, np.ndarray) else int(arg)


def _kind(arg: Any) -> object:
    """Return what the machine code depends on in an argument: for an array, its type of elements.

    For an array it is also the number of axes, and whether it may be written. Arrays that are only
    read may have any strides.
    """
    if isinstance(arg, tuple):
        return tuple(map(_kind, arg))
    if isinstance(arg, np.ndarray):
        return (arg.ndim, arg.dtype.descr, arg.flags.writeable)
    return "int"


def _numba_type(numba: Any, arg: Any) -> Any:
    """Return numba's type of an argument."""
    if isinstance(arg, tuple):
        return numba.types.NamedTuple([_numba_type(numba, item) for item in arg], type(arg))
    if isinstance(arg, np.ndarray):
        strides = "C" if arg.flags.writeable else "A"
        return numba.types.Array(numba.from_dtype(arg.dtype), arg.ndim, strides)
    return numba.types.int64


def _words(arg: Any) -> Iterator[int]:
    """Yield the integers that compiled code takes for an argument.

    An array is (0, 0, size, item size, address, shape, strides), a tuple its items one after the
    other.
    """
    if isinstance(arg, tuple):
        for item in arg:
            yield from _words(item)
    elif isinstance(arg, np.ndarray):
        assert arg.flags.c_contiguous or not arg.flags.writeable
        yield from (0, 0, arg.size, arg.itemsize, arg.ctypes.data, *arg.shape, *arg.strides)
    else:
        yield int(arg)
