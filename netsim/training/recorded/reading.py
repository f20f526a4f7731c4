"""Reading a trace in Chrome's format, packed or not; what is wrong with a file is told once."""

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from netsim.errors import InputError

GZIP = b"\x1f\x8b"
OTHERS = {b"PK\x03\x04": "zip", b"(\xb5/\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}


HEAD = 64 * 1024
MARKS = (b'"schemaVersion"', b'"traceEvents"', b'"baseTimeNanoseconds"', b'"distributedInfo"')


def is_trace(path: Path) -> bool:
    """Whether a file looks like a trace by how it begins: in JSON, with what only traces have."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    if head[:2] == GZIP:
        try:
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, HEAD)
        except zlib.error:
            head = b""
        if not head:
            return path.name.endswith(".json.gz")  # damaged, and told so when it is read
    begun = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    events = begun == b"[" and b'"ph"' in head
    return events or (begun == b"{" and any(mark in head for mark in MARKS))


def read_json(path: Path) -> dict[str, Any]:
    """The trace in a file: a mapping with `traceEvents`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if content[:2] == GZIP:
        while content[:2] == GZIP:  # some pipelines pack what is packed already
            content = _unpacked(path, content)
    elif path.suffix == ".gz":
        raise InputError(f"{path}: is not packed by gzip, though its name ends in .gz")
    for magic, name in OTHERS.items():
        if content.startswith(magic):
            raise InputError(f"{path}: is packed by {name}", hint="unpack it, or pack it by gzip")
    try:
        found = json.loads(content)
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected a trace in JSON, got binary data") from None
    except json.JSONDecodeError as error:
        ended = error.pos >= len(error.doc.rstrip()) - len("false")
        cut = ended or error.msg.startswith("Unterminated")
        what = (
            "ends in the middle (was the profiler stopped?)" if cut else f"is no JSON: {error.msg}"
        )
        raise InputError(f"{path}:{error.lineno}:{error.colno}: {what}") from None
    if isinstance(found, list):
        found = {"traceEvents": found}
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise InputError(f"{path}: expected a trace with traceEvents")
    return found


def _unpacked(path: Path, content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error):
        raise InputError(f"{path}: the gzip data is cut or damaged") from None
