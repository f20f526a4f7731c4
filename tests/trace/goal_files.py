"""GOAL in the binary form of `txt2bin`."""

import struct
from itertools import pairwise

import numpy as np

from netsim.trace.goal import COLUMNS, COOKIE, Goal

NODE = np.dtype(
    [
        ("waits", "<u4"),
        ("kind", "i1"),
        ("peer", "<u4"),
        ("size", "<u8"),
        ("tag", "<u4"),
        ("cpu", "u1"),
        ("nic", "u1"),
        ("then", "<u4"),
        ("then_at", "<u4"),
        ("begun", "<u4"),
        ("begun_at", "<u4"),
    ]
)


def as_binary(goal: Goal) -> bytes:
    """The bytes that `txt2bin` makes of it."""
    waits = np.array(sorted(goal.waits, key=lambda one: (one[1], one[2], one[0])))
    firsts = np.searchsorted(goal.table[:, 0], np.arange(goal.ranks + 1))
    ends = np.searchsorted(waits[:, 1], firsts).tolist()
    at, table, parts = 6 + 16 * goal.ranks, list[bytes](), list[bytes]()
    for (first, end), (low, high) in zip(pairwise(firsts.tolist()), pairwise(ends), strict=True):
        one, other, way = (waits[low:high] - [first, first, 0]).T
        nodes = np.zeros(end - first, NODE)
        for number, name in enumerate(COLUMNS[1:7], 1):
            nodes[name] = goal.table[first:end, number]
        nodes["waits"], nodes["then"], nodes["begun"] = (
            np.bincount(some, minlength=len(nodes))
            for some in (one, other[way == 0], other[way == 1])
        )
        both = nodes["then"] + nodes["begun"]
        nodes["then_at"] = np.cumsum(both) - both
        nodes["begun_at"] = nodes["then_at"] + nodes["then"]
        roots = np.flatnonzero(nodes["waits"] == 0).astype("<u4")
        part = struct.pack("<II", len(nodes), len(roots)) + roots.tobytes() + nodes.tobytes()
        parts.append(part + one.astype("<u4").tobytes())
        table.append(struct.pack("<QQ", at, at + len(parts[-1])))
        at += len(parts[-1])
    most = (int(goal.table[:, number].max(initial=0)) for number in (5, 6))
    return struct.pack("<QIBB", COOKIE, goal.ranks, *most) + b"".join(table + parts)
