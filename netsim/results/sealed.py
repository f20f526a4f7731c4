"""Lines of JSON with a checksum: how journals and manifests are written and read."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

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


def damaged(path: Path, number: int, error: Exception) -> str:
    """Return the message for a line that cannot be used: file, line number, reason."""
    return f"{path}:{number}: damaged: {error}"
