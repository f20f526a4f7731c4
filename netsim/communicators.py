"""Which GPUs talk to which: the communicators of a workload, in rank order."""

import re
from collections.abc import Callable

_SPLIT = re.compile(r"(MOD|DIV|AND|OR)\s*(0[xX][0-9a-fA-F]+|[0-9]+)", re.IGNORECASE)

_COLOURS: dict[str, Callable[[int, int], int]] = {
    "MOD": lambda rank, value: rank % value,
    "DIV": lambda rank, value: rank // value,
    "AND": lambda rank, value: rank & value,
    "OR": lambda rank, value: rank | value,
}


def split_ranks(text: str | None, ranks: int) -> list[list[int]]:
    """Ranks by communicator, as NCCL_TESTS_SPLIT divides them: `MOD 8`, `DIV 4`, `AND 0x7`."""
    if text is None:
        return [list(range(ranks))]
    found = _SPLIT.fullmatch(text.strip())
    if not found:
        raise ValueError(f"expected a split such as 'MOD 8', 'DIV 4' or 'AND 0x7', got {text!r}")
    operation, value = found[1].upper(), int(found[2], 0)
    if operation in ("MOD", "DIV") and value < 1:
        raise ValueError(f"expected {operation} with a number of at least 1, got {text!r}")
    groups: dict[int, list[int]] = {}
    for rank in range(ranks):
        groups.setdefault(_COLOURS[operation](rank, value), []).append(rank)
    if len(sizes := sorted({len(group) for group in groups.values()})) > 1:
        raise ValueError(f"makes communicators of unequal sizes {sizes}")
    return list(groups.values())
