"""From functions to machine code, compiled on first use and kept for later runs.

numba turns the functions into LLVM's language; from there on only LLVM is needed. So a run that
finds its code ready imports no compiler, which would take longer than simulating a million rows.
Nothing is allocated in compiled code.
"""

import ctypes
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from netsim.engines.compiled.store import SYMBOL, machine_code

P = ParamSpec("P")
R = TypeVar("R")

# Counting references would take most of the time of short functions, and nobody needs it here.
_OPTIONS = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True}


class Inner(Generic[P, R]):
    """Decorates a function that compiled code calls; called from Python it runs as written."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function as Python."""
        return self.function(*args, **kwargs)

    @cached_property
    def _compiled(self) -> Any:
        return import_module("numba").njit(self.function, no_cfunc_wrapper=True, **_OPTIONS)

    @property
    def _numba_type_(self) -> object:
        """What numba sees where compiled code refers to this function."""
        return self._compiled._numba_type_


class Entry(Generic[P]):
    """Decorates a function to call from Python, with integers, arrays and named tuples of arrays;
    it returns an integer.
    """

    def __init__(self, function: Callable[P, int]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self._ready: dict[str, Callable[..., int]] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """Run the function as machine code."""
        return self.ready(*args, **kwargs)()

    def ready(self, *args: P.args, **kwargs: P.kwargs) -> Callable[[], int]:
        """The call with these arguments, compiled if need be but not yet made."""
        assert not kwargs
        code = self._code(args)

        def call() -> int:
            result, error = ctypes.c_int64(), ctypes.c_void_p()
            if status := code(ctypes.byref(result), ctypes.byref(error), *_words(args)):
                raise RuntimeError(f"{self.function.__name__}: compiled code failed ({status})")
            return result.value

        return call

    def _code(self, args: tuple[Any, ...]) -> Callable[..., int]:
        kind = repr(tuple(map(_kind, args)))
        if kind not in self._ready:
            name = f"{self.function.__module__}.{self.function.__name__}"
            address = machine_code(name, kind, lambda: self._translate(args))
            words = [ctypes.c_int64 for _ in _words(args)]
            prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *words)
            self._ready[kind] = prototype(address)
        return self._ready[kind]

    def _translate(self, args: tuple[Any, ...]) -> str:
        """The function in LLVM's language."""
        numba = import_module("numba")
        function = numba.njit(self.function, no_cfunc_wrapper=True, **_OPTIONS)
        signature = tuple(_numba_type(numba, arg) for arg in args)
        function.compile(signature)
        found = function.overloads[signature]
        text: str = found.library.get_llvm_str()
        return text.replace(found.fndesc.llvm_func_name, SYMBOL)


def _kind(arg: Any) -> object:
    """What the machine code for an argument depends on. What is only read may have any strides: a
    column whose entries are all the same then takes no memory.
    """
    if isinstance(arg, tuple):
        return tuple(map(_kind, arg))
    if isinstance(arg, np.ndarray):
        return (arg.ndim, arg.dtype.descr, arg.flags.writeable)
    return "int"


def _numba_type(numba: Any, arg: Any) -> Any:
    if isinstance(arg, tuple):
        return numba.types.NamedTuple([_numba_type(numba, item) for item in arg], type(arg))
    if isinstance(arg, np.ndarray):
        strides = "C" if arg.flags.writeable else "A"
        return numba.types.Array(numba.from_dtype(arg.dtype), arg.ndim, strides)
    return numba.types.int64


def _words(arg: Any) -> Iterator[int]:
    """An argument as compiled code takes it: an array is its owner and parent (not needed), size,
    size of an item, address, shape and strides.
    """
    if isinstance(arg, tuple):
        for item in arg:
            yield from _words(item)
    elif isinstance(arg, np.ndarray):
        assert arg.flags.c_contiguous or not arg.flags.writeable
        yield from (0, 0, arg.size, arg.itemsize, arg.ctypes.data, *arg.shape, *arg.strides)
    else:
        yield int(arg)
