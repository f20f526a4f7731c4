"""Which tests are considered as the next test: combinations of nodes, collectives, GPUs and
sizes.
"""

from collections.abc import Iterator, Mapping, Sequence

from netsim.localize.node_tests import COMPUTE, NodeTest, SizeQuestion
from netsim.localize.parts import Suspect
from netsim.localize.predictions import Predictor
from netsim.localize.search import FaultSearch

TEST_SIZE = 2**27  # bytes of the next test, unless the logs have another largest size
MOST_SIZE = 2**33
SHARES = (0.5, 0.25)  # of the probability of all suspected nodes that a group of nodes has
FEW_NODES = 4  # suspected nodes that are tried one by one
LEAST_SHARE = 0.05  # of the probability, from which a node is tried by itself
CLEARED = 0.3  # of the largest probability of a node, below which a node is almost cleared
LEAST_OF_FABRIC = 0.1  # probability of parts of the fabric from which leaves are compared


def candidate_tests(
    search: FaultSearch,
    suspects: Sequence[Suspect],
    shares: Mapping[int, float],
    excluded: frozenset[int],
) -> Iterator[tuple[NodeTest, SizeQuestion]]:
    """Yield tests that may separate suspects.

    These are tests of single nodes, of pairs with a node that is not suspected, of groups with a
    half of the probability, of nodes within and across leaves, and of single GPUs and their NICs.

    Args:
        search: the search so far.
        suspects: the suspects, the most probable first.
        shares: the fraction of the probability that each suspected node has.
        excluded: nodes with a fault that was found already, which would hide other faults.
    """
    predictor = search.predictor
    settings = common_settings(search)
    question = SizeQuestion(next_size(search))
    likely = [node for node in shares if shares[node] >= LEAST_SHARE]
    nodes = sorted(likely, key=lambda node: -shares[node])
    free = [
        node for node in range(predictor.node_count) if node not in shares and node not in excluded
    ]
    groups: list[tuple[int, ...]] = [(node,) for node in nodes[:FEW_NODES]]
    groups += [
        (node, partner)
        for node in nodes[:FEW_NODES]
        for partner in _partners(predictor, node, free, excluded)
    ]
    groups += list(_shares_of_nodes(predictor, shares, free))
    if sum(shares.values()) < 1 - LEAST_OF_FABRIC:
        groups += list(_by_leaves(predictor, suspects, excluded))
    for group in dict.fromkeys(groups):
        if not group:
            continue
        if predictor.gpus_per_node * len(group) > 1:
            yield NodeTest(group, "all_reduce", settings=settings), question
        # A sendrecv of all GPUs crosses the network only from the last GPU of a node to the next
        # node.
        if len(group) <= 2 and (len(group) == 1) != (predictor.gpus_per_node == 1):
            yield NodeTest(group, "sendrecv", settings=settings), question
        if len(group) == 2 and predictor.gpus_per_node > 1:
            for gpu in _gpus_in_question(predictor, suspects):
                yield NodeTest(group, "sendrecv", (gpu,), settings=settings), question
            half = tuple(range(predictor.gpus_per_node // 2))
            yield NodeTest(group, "all_reduce", half, settings=settings), question


def _gpus_in_question(predictor: Predictor, suspects: Sequence[Suspect]) -> list[int]:
    """Return the numbers of up to 4 suspected GPUs and NICs, the most probable first."""
    numbers = [
        int(suspect.local.lstrip("gpunic"))
        for suspect in suspects
        if suspect.local[:3] in ("gpu", "nic")
    ]
    return [n for n in dict.fromkeys(numbers) if n < predictor.gpus_per_node][:4]


def _partners(
    predictor: Predictor, node: int, free: Sequence[int], excluded: frozenset[int]
) -> list[int]:
    """Return up to two nodes to test `node` with: one on the same leaf switches, one on others.

    They are taken from `free`, the nodes that are not suspected; if there are none, from all nodes
    that are not `excluded`.
    """
    leaves = predictor.parts.leaves
    if not free:
        everyone = range(predictor.node_count)
        free = [other for other in everyone if other != node and other not in excluded]
    near = [other for other in free if leaves[other] == leaves[node]]
    far = [other for other in free if leaves[other] != leaves[node]]
    return near[:1] + far[:1]


def _shares_of_nodes(
    predictor: Predictor, shares: Mapping[int, float], free: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Yield groups of suspected nodes that together have a half, or a quarter, of the probability;
    nodes on the same leaves are grouped together.

    `shares` has the fraction of the probability of each node. A group of a single node is completed
    by a node of `free`, the nodes that are not suspected.
    """
    if len(shares) < 2:
        return
    leaves = predictor.parts.leaves
    # Nodes that are almost cleared come last; otherwise they would be in each half.
    least = CLEARED * max(shares.values())
    order = sorted(shares, key=lambda node: (shares[node] < least, leaves[node], node))
    total = sum(shares.values())
    for share in SHARES:
        group: list[int] = []
        probability = 0.0
        for node in order:
            # Stop if the group is closer to the wanted fraction without this node.
            if group and probability + shares[node] / 2 > share * total:
                break
            group.append(node)
            probability += shares[node]
        if len(group) == 1:
            group += free[:1]
        yield tuple(group)


def _by_leaves(
    predictor: Predictor, suspects: Sequence[Suspect], excluded: frozenset[int]
) -> Iterator[tuple[int, ...]]:
    """Yield pairs of nodes within a suspected leaf, from it to another leaf, and within and across
    other leaves.
    """
    leaves = predictor.parts.leaves
    names = [suspect.local.partition("-")[0] for suspect in suspects if suspect.node < 0]
    usable = [node for node in range(len(leaves)) if node not in excluded]
    for name in list(dict.fromkeys(names))[:8]:
        inside = [node for node in usable if name in leaves[node]]
        outside = [node for node in usable if name not in leaves[node]]
        yield tuple(inside[:2])
        if inside and outside:
            yield inside[0], outside[0]
        yield tuple(outside[:2])
        if len(outside) > 1:
            across = [node for node in outside if leaves[node] != leaves[outside[0]]]
            yield (outside[0], *across[:1])


def common_settings(search: FaultSearch) -> tuple[tuple[str, str], ...]:
    """Return the settings of NCCL that the first log states; the next test keeps them."""
    tests = [timed.test for timed in search.tests if timed.test.collective != COMPUTE]
    return tests[0].settings if tests else ()


def next_size(search: FaultSearch) -> int:
    """Return the largest size of the logs in bytes, at most `MOST_SIZE`: a slow NIC has the largest
    effect there.
    """
    sizes = [
        question.size_bytes
        for timed in search.tests
        if timed.test.collective != COMPUTE
        for question in timed.times
    ]
    return min(max(sizes, default=TEST_SIZE), MOST_SIZE)
