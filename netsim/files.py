"""Files that are written whole or not at all: beside their place first, then moved there at once.

Whoever reads meanwhile, kills the process or runs out of room finds the old file as it was.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from netsim.errors import InputError

_HALF = re.compile(r"\.(.+)\.[0-9]+\.half")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content takes the place of a file when the block ends well."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.half")
    try:
        with beside.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> Path:
    """Replace a file as a whole."""
    with replacing(path) as stream:
        stream.write(content)
    return path


def write_text(path: Path, text: str) -> Path:
    """Replace a file as a whole."""
    return write_bytes(path, text.encode())


def half_written(folder: Path) -> list[Path]:
    """What was begun in a folder, or below it, by processes that were killed."""
    found = folder.rglob(".*.half")
    return [file for file in found if _HALF.fullmatch(file.name) and file.is_file()]
