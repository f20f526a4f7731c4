"""Collectives to test with: every name, at some counts and roots, out of place and in place."""

from collections.abc import Iterator

from netsim.collectives.collective import HAS_IN_PLACE, ROOTED, Collective
from netsim.collectives.table import ALGORITHMS, build
from netsim.schedule.schedule import Schedule

SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 17)
LARGE = 32  # rows grow with its square
# Swings take powers of two only: test_torus.py.
TABLE = [
    (name, algorithm)
    for name, table in ALGORITHMS.items()
    for algorithm in table
    if algorithm != "swing"
]


def make(name: str, n: int, count: int = 3, root: int = 0, in_place: bool = False) -> Collective:
    """A collective of any name; uneven blocks and pairs where it has them."""
    if name == "alltoallv":
        matrix = [[(7 * s + 3 * d + count) % 5 for d in range(n)] for s in range(n)]
        return Collective(name, n, matrix=matrix)
    if name == "p2p":
        pairs = [(rank, (3 * rank + 1) % n) for rank in range(n)] + [(0, n - 1), (n - 1, n - 1)]
        return Collective(name, n, count, pairs=pairs)
    count = 0 if name == "barrier" else count
    return Collective(name, n, count, root=root, in_place=in_place)


def cases(name: str, n: int) -> Iterator[Collective]:
    """Counts that divide and do not, smaller than n, one and none; few of them for large n."""
    counts = (0, 1, 2 * n, 2 * n + 3) if n < 16 else (n + 3,)
    roots = {0, n // 2, n - 1} if name in ROOTED and n <= 8 else {n // 3}
    places = (False, True) if name in HAS_IN_PLACE else (False,)
    for count in counts:
        for root in sorted(roots):
            for in_place in places:
                yield make(name, n, count, root, in_place)


def build_small(collective: Collective, algorithm: str) -> Schedule:
    """A schedule with several groups even of few ranks, where it has groups."""
    pairs = algorithm == "hierarchical" and collective.ranks % 2 == 0
    return build(collective, algorithm, **({"node_size": 2} if pairs else {}))
