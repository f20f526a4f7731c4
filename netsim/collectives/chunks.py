"""Chunks: how data is cut for channels and pipelines, and small checks of parameters."""

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.collective import CollectiveError
from netsim.units import UnitError, parse_size

# Pipelines by default: pieces of no less than 128 KiB, and no more than 64 of them.
LEAST_PIECE_BYTES = 128 * 1024
MOST_PIECES = 64
MOST_PARTS = 1_000_000  # pieces, and channels, that anybody can mean
MOST_CHANNELS = 4096


def at_most(name: str, value: int, most: int) -> int:
    """A number that would make a schedule of absurd size if it were larger."""
    if value > most:
        raise CollectiveError(name, f"expected at most {most}, got {value}")
    return value


def positive(name: str, value: int) -> int:
    """A parameter that must be a whole number from 1 up."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise CollectiveError(name, f"expected a whole number from 1 up, got {value!r}")
    return int(value)


def nbytes(name: str, value: int | str) -> int:
    """A parameter that is a size: a number of bytes, or a text such as 1MiB."""
    try:
        return parse_size(value)
    except UnitError as error:
        raise CollectiveError(name, str(error)) from None


def channel_count(channels: int) -> int:
    """The number of channels that share the data."""
    return at_most("channels", positive("channels", channels), MOST_CHANNELS)


def flag(name: str, value: bool) -> bool:
    """A parameter that is true or false."""
    if not isinstance(value, bool):
        raise CollectiveError(name, f"expected true or false, got {value!r}")
    return value


def rank_of(name: str, value: int, ranks: int) -> int:
    """A parameter that must be one of the ranks."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < ranks:
        raise CollectiveError(name, f"expected a rank in 0..{ranks - 1}, got {value!r}")
    return int(value)


def piece_count(
    count: int, element_bytes: float, chunks: int | None, chunk_bytes: int | str | None
) -> int:
    """The number of pipeline pieces of `count` elements; there are no empty ones."""
    if chunks is not None and chunk_bytes is not None:
        raise CollectiveError("chunk_bytes", "give chunks or chunk_bytes, not both")
    if chunks is not None:
        wanted = positive("chunks", chunks)
    elif chunk_bytes is not None:
        wanted = -int(-count * element_bytes // nbytes("chunk_bytes", chunk_bytes))
    else:
        wanted = min(int(count * element_bytes) // LEAST_PIECE_BYTES, MOST_PIECES)
    return at_most("chunks", max(1, min(wanted, count)), MOST_PARTS)


def edges(count: int, parts: int) -> NDArray[np.int64]:
    """Where `parts` chunks of `count` elements begin, and the end; they differ by at most one."""
    return (np.arange(parts + 1, dtype=np.int64) * count) // parts


def ceil_log2(n: int) -> int:
    """The rounds that doubling takes to reach n."""
    return (n - 1).bit_length()
