"""Journals: files to which a run appends what it has finished, so that `--resume` can continue.

A journal has one mapping a line, as JSON that ends with its checksum. The results of `netsim run`
and the accuracy of collectives and of training steps are kept so; `sealed` and `unsealed`, which
write and read a line, also serve for manifests and for the cache of rows.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self
from zlib import crc32

from netsim.base.errors import InputError

JOURNAL_HINT = "what was finished is kept; make room, then --resume continues"
LONGEST_LINE = 64 * 2**20  # bytes of a line; a row has some kilobytes
MOST_NAMED = 10  # damaged lines of which messages are printed
NOT_OF_A_JOURNAL = "not a line of a journal"

_SEAL = re.compile(rb', "crc": "([0-9a-f]{8})"\}\s*\Z')


def sealed(values: Mapping[str, Any]) -> str:
    """Return a mapping as a line of JSON that ends with its checksum."""
    text = json.dumps(values, default=str)
    return f'{text[:-1]}, "crc": "{crc32(text.encode()):08x}"}}\n'


def unsealed(line: bytes) -> dict[str, Any]:
    """Return the mapping of a line; a ValueError says what is wrong with the line.

    Lines without a checksum, as older versions wrote them, are read as well."""
    seal = _SEAL.search(line)
    if seal is not None:
        line = line[: seal.start()] + b"}"
        if crc32(line) != int(seal[1], 16):
            raise ValueError("its checksum is that of another line")
    try:
        values = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from None
    except RecursionError:
        raise ValueError("brackets without end") from None
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(values, dict):
        raise ValueError("not a mapping")
    return values


def damaged(path: Path, number: int, error: Exception | str) -> str:
    """Return the message for a line that cannot be used: file, line number, reason."""
    return f"{path}:{number}: damaged: {error}"


def few_of(lines: Sequence[str]) -> Iterator[str]:
    """Yield the first lines, and the number of the others."""
    yield from lines[:MOST_NAMED]
    if len(lines) > MOST_NAMED:
        yield f"... and {len(lines) - MOST_NAMED} more"


class Journal:
    """An open journal: `open` to append to it, `open_to_read` to read what it has so far.

    Only one process at a time can append. `shown_path` is how messages about its lines name the
    file; `damage` has such a message for each complete line that `read` could not use.
    """

    def __init__(self, path: Path, stream: IO[bytes], shown_path: Path | None = None) -> None:
        self.path = path
        self.shown_path = shown_path or path
        self.damage: list[str] = []
        self._stream = stream

    @classmethod
    def open(cls, path: Path, shown_path: Path | None = None) -> Self:
        """Open a journal, which is made if it is missing, and lock it for this process.

        An OSError says why that is not possible; BlockingIOError: another process has the lock.
        """
        stream = path.open("ab+")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            raise
        return cls(path, stream, shown_path)

    @classmethod
    def open_to_read(cls, path: Path) -> Self:
        """Open a journal, to which another process may be appending, to read it only."""
        return cls(path, path.open("rb"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release its lock."""
        self._stream.close()

    def append(self, values: Mapping[str, Any]) -> None:
        """Append a line at once; if there is no room for it, nothing of it remains."""
        file = self._stream.fileno()
        with self._errors_named():
            good = os.fstat(file).st_size
            try:
                left = memoryview(sealed(values).encode())
                while left:
                    left = left[os.write(file, left) :]
            except OSError:
                os.ftruncate(file, good)
                raise

    def sync(self) -> None:
        """Write everything that was appended to disk, so that it survives a loss of power."""
        with self._errors_named():
            os.fsync(self._stream.fileno())

    def lines(self) -> Iterator[bytes]:
        """Yield the lines from the first; the last one may be cut off, which ends without \\n.

        A line without end, which no netsim has written, is not read further."""
        self._stream.seek(0)
        while line := self._stream.readline(LONGEST_LINE):
            yield line
            if not line.endswith(b"\n"):
                return

    def read(self, take: Callable[[dict[str, Any]], None]) -> None:
        """Call `take` with the mapping of each complete line, and list damaged lines in `damage`.

        `take` raises an InputError that says what is wrong with a mapping, or fails in any way in
        which code fails that expects other values."""
        for number, line in enumerate(self.lines(), 1):
            if not line.endswith(b"\n"):
                return
            try:
                values = unsealed(line)
            except ValueError as error:
                self.damage.append(damaged(self.shown_path, number, error))
                continue
            try:
                take(values)
            except InputError as error:
                self.damage.append(damaged(self.shown_path, number, error.message))
            except (ValueError, KeyError, TypeError, AttributeError):
                self.damage.append(damaged(self.shown_path, number, NOT_OF_A_JOURNAL))

    def remove_unfinished_line(self) -> None:
        """Remove the last line if its end is missing, because the process that wrote it died."""
        lines = self.lines()
        self._stream.truncate(sum(len(line) for line in lines if line.endswith(b"\n")))

    def clear(self) -> None:
        """Remove all lines."""
        self._stream.truncate(0)

    def is_gone(self) -> bool:
        """Whether another process has deleted or replaced the file."""
        try:
            return not os.path.samestat(os.stat(self.path), os.fstat(self._stream.fileno()))
        except OSError:
            return True

    def delete(self) -> None:
        """Delete the file: everything is finished, so there is nothing to resume."""
        self.path.unlink(missing_ok=True)

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Turn an error of the system into one that names the journal; nothing in it is lost."""
        try:
            yield
        except OSError as error:
            message = f"{self.path}: cannot be written: {error.strerror}"
            raise InputError(message, hint=JOURNAL_HINT) from None


def line_count(path: Path) -> int:
    """The number of complete lines of a journal; 0 if there is no file."""
    with suppress(OSError), Journal.open_to_read(path) as journal:
        return sum(line.endswith(b"\n") for line in journal.lines())
    return 0
