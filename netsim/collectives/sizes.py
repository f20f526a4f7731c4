"""Collectives of a size in bytes, rounded as nccl-tests rounds them."""

from collections.abc import Sequence

from netsim.collectives.collective import Collective, CollectiveError

# These share the size among the ranks, in blocks of whole 16 bytes.
DIVIDED = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"})
ALIGNMENT = 16


def collective_of(
    name: str,
    ranks: int,
    size_bytes: int,
    element_bytes: int = 4,
    *,
    root: int = 0,
    in_place: bool = False,
    matrix: Sequence[Sequence[int]] = (),
    pairs: Sequence[tuple[int, int]] = (),
) -> Collective:
    """The collective that nccl-tests runs when asked for a size; `size_bytes` of it may be less.

    For alltoallv, `matrix` holds whole weights (all equal by default): the busiest rank sends or
    receives the size.
    """
    if size_bytes < 0 or element_bytes < 1 or ranks < 1:
        got = (size_bytes, element_bytes, ranks)
        raise CollectiveError("size", f"expected bytes, element bytes and ranks, got {got}")
    count = size_bytes // element_bytes
    if name in DIVIDED:
        step = max(1, ALIGNMENT // element_bytes)
        count = count // ranks // step * step
    if name == "alltoallv":
        matrix, count = scaled(matrix or [[1] * ranks] * ranks, count), 0
    if name == "barrier":
        count = 0
    blocks, ends = tuple(map(tuple, matrix)), tuple((s, d) for s, d in pairs)
    return Collective(name, ranks, count, element_bytes, root, in_place, blocks, ends)


def scaled(weights: Sequence[Sequence[int]], count: int) -> tuple[tuple[int, ...], ...]:
    """Whole counts in proportion to weights, such that no row or column adds up to more."""
    rows = [[int(w) for w in row] for row in weights]
    busiest = max([sum(row) for row in rows] + [sum(column) for column in zip(*rows, strict=False)])
    if busiest == 0:
        return tuple(tuple(row) for row in rows)
    return tuple(tuple(w * count // busiest for w in row) for row in rows)
