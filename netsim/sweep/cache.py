"""Finished rows of all sweeps on this machine, by the id of what was asked.

A file of SQLite that several sweeps may use at once; only rows without an error are kept.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from netsim.errors import InputError
from netsim.results import Row
from netsim.results.row import row_from
from netsim.version import __version__

_TABLE = (
    "create table if not exists rows (cell text, size integer, engine text, version text, row text,"
    " primary key (cell, size, engine, version))"
)
_FIND = "select row from rows where cell = ? and size = ? and engine = ? and version = ?"
_KEEP = "insert or replace into rows values (?, ?, ?, ?, ?)"


def cache_file() -> Path:
    """Where the cache is: $NETSIM_CACHE, or in the user's folder for caches."""
    given = os.environ.get("NETSIM_CACHE")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "netsim" / "rows.sqlite"


class Cache:
    """Rows that were computed before; found by cell, size, engine and version of netsim."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._told():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(path, timeout=30.0, isolation_level=None)
            self._base.execute(_TABLE)
        self.found = 0

    def find(self, key: tuple[str, int], engine: str) -> Row | None:
        """The row of a cell at a size, or None."""
        with self._told():
            entry = self._base.execute(_FIND, (*key, engine, __version__)).fetchone()
        if entry is None:
            return None
        with suppress(ValueError, TypeError, InputError):
            row = row_from(json.loads(entry[0]))
            self.found += 1
            return row
        return None

    def keep(self, key: tuple[str, int], engine: str, row: Row) -> None:
        """Keep a row for other sweeps."""
        with self._told():
            text = json.dumps(asdict(row))
            self._base.execute(_KEEP, (*key, engine, __version__, text))

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            message = f"{self.path}: cannot be used as a cache: {error}"
            raise InputError(message, hint="set NETSIM_CACHE, or run without --cache") from None
