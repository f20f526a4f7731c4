"""Chunks: how data is cut for channels and pipelines, and small checks of parameters."""

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.collective import CollectiveError

# Pipelines by default: pieces of no less than 128 KiB, and no more than 64 of them.
LEAST_PIECE_BYTES = 128 * 1024
MOST_PIECES = 64


def positive(name: str, value: int) -> int:
    """A parameter that must be a whole number from 1 up."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise CollectiveError(name, f"expected a whole number from 1 up, got {value!r}")
    return int(value)


def rank_of(name: str, value: int, ranks: int) -> int:
    """A parameter that must be one of the ranks."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < ranks:
        raise CollectiveError(name, f"expected a rank in 0..{ranks - 1}, got {value!r}")
    return int(value)


def piece_count(
    count: int, element_bytes: float, chunks: int | None, chunk_bytes: int | None
) -> int:
    """The number of pipeline pieces of `count` elements; there are no empty ones."""
    if chunks is not None and chunk_bytes is not None:
        raise CollectiveError("chunk_bytes", "give chunks or chunk_bytes, not both")
    if chunks is not None:
        wanted = positive("chunks", chunks)
    elif chunk_bytes is not None:
        wanted = -int(-count * element_bytes // positive("chunk_bytes", chunk_bytes))
    else:
        wanted = min(int(count * element_bytes) // LEAST_PIECE_BYTES, MOST_PIECES)
    return max(1, min(wanted, count))


def edges(count: int, parts: int) -> NDArray[np.int64]:
    """Where `parts` chunks of `count` elements begin, and the end; they differ by at most one."""
    return (np.arange(parts + 1, dtype=np.int64) * count) // parts


def ceil_log2(n: int) -> int:
    """The rounds that doubling takes to reach n."""
    return (n - 1).bit_length()
