"""Groups: how hierarchical algorithms divide the ranks into equal groups, such as nodes."""

from collections.abc import Sequence

import numpy as np

from netsim.collectives.chunks import positive
from netsim.collectives.collective import CollectiveError
from netsim.collectives.lanes import Ints

USUAL_NODE = 8


def groups_of(
    n: int, node_size: int | None = None, groups: Sequence[Sequence[int]] | None = None
) -> Ints:
    """The ranks of every group, one row each: given ones, or `node_size` consecutive ranks.

    By default a group has the largest number of ranks up to 8 that divides n.
    """
    if groups is not None:
        return _given(n, node_size, groups)
    usual = max(size for size in range(1, USUAL_NODE + 1) if n % size == 0)
    size = usual if node_size is None else positive("node_size", node_size)
    if n % size:
        raise CollectiveError("node_size", f"expected a divisor of {n} ranks, got {size}")
    return np.arange(n).reshape(n // size, size)


def _given(n: int, node_size: int | None, groups: Sequence[Sequence[int]]) -> Ints:
    if node_size is not None:
        raise CollectiveError("groups", "give node_size or groups, not both")
    lists = isinstance(groups, list | tuple) and all(isinstance(g, list | tuple) for g in groups)
    if not lists or any(type(rank) is not int for group in groups for rank in group):
        raise CollectiveError(
            "groups", f"expected lists of ranks such as [[0, 1], [2, 3]], got {groups!r}"
        )
    if not groups or len({len(group) for group in groups}) > 1:
        raise CollectiveError("groups", "expected groups of equal size")
    table = np.array(groups)
    if sorted(table.ravel().tolist()) != list(range(n)):
        raise CollectiveError("groups", f"expected each of the ranks 0..{n - 1} once")
    return table
