"""Memory and the system that it comes from: what takes none until it is touched, and what stays."""

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # as <malloc.h> numbers them
_NEVER = -1


def keep_freed() -> None:
    """Keep what is freed for what comes next, where the C library is one that can (glibc).

    Large arrays come and go with every run, and to take their pages from the system again each time
    costs as much as simulating a part of their rows.
    """
    if sys.platform == "linux":
        choose = getattr(ctypes.CDLL(None), "mallopt", None)
        if choose is not None:
            choose(_MMAP_MAX, 0)
            choose(_TRIM_THRESHOLD, _NEVER)


def untouched(count: int, dtype: DTypeLike) -> NDArray[Any]:
    """Zeros of which only what is written takes memory; numpy's own may be recycled memory, which
    is cleared first.
    """
    size = max(1, count * np.dtype(dtype).itemsize)
    if sys.platform == "win32":
        return np.frombuffer(mmap.mmap(-1, size), dtype, count)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, size, flags=private), dtype, count)
