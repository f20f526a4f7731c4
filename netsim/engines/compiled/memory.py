"""Memory as the system gives it: nothing until it is touched, and nothing once it is freed."""

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def give_back() -> None:
    """Return it to the system, where the C library is one that can (glibc).

    Placing frees tens of MB in pieces between what is kept; the engine's large arrays would not
    fit into those, and come on top.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def untouched(count: int, dtype: DTypeLike) -> NDArray[Any]:
    """Zeros of which only what is written takes memory; numpy's own may be recycled memory, which
    is cleared first.
    """
    size = max(1, count * np.dtype(dtype).itemsize)
    if sys.platform == "win32":
        return np.frombuffer(mmap.mmap(-1, size), dtype, count)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, size, flags=private), dtype, count)
