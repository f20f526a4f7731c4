"""Group tests by halving: which groups of nodes are tested next to find all slow nodes.

All halves of one round run at the same time, as they have no node in common. They are first
compared with each other, because the error of the simulation is the same for halves of equal size,
and then with the simulation:

- A test is *slow* if another one of its kind is faster by more than noise, or if it takes longer
  than the simulation by more than the usual error of the simulation.
- It is *clear* if it takes no longer than the simulation, or if others of its kind are as fast:
  two in all if a third one is slower, else three. Two halves that are equally slow may have a fault
  each; their quarters show it, as the quarters without a fault are faster.
- In between it is *doubtful*: its nodes are tested again after the slow groups are solved.

The suspects of a slow test are its nodes that are in no clear or doubtful test. They are halved
until each is alone, tested together with nodes that are clear.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from netsim.base.values import dataclass

MODEL_ERROR = 0.15  # log ratio by which the simulation of large tests may well be off
LEAST_SLOWER = 0.05  # log ratio by which a slow test is slower than a fast one, at least
NOISE_FACTOR = 4.0  # standard deviations of noise by which it is slower
MOST_UNEQUAL = 1.15  # ratio of node counts up to which two tests are of one kind
FEW_EQUAL = 2  # equally fast tests that are clear if others of their kind are slow
MANY_EQUAL = 3  # equally fast tests that are clear in any case
FEWEST_TO_HALVE_AGAIN = 4  # nodes of a tested group whose halves are tested, too


@dataclass(frozen=True)
class GroupResult:
    """The result of one test of a group of nodes.

    Args:
        nodes: numbers of the nodes.
        deviation: log ratio of the measured time to the simulation.
        noise: standard deviation of this.
        kind: collective, size and GPUs; only tests of equal kind and of about equally many nodes
            are compared.
    """

    nodes: frozenset[int]
    deviation: float
    noise: float
    kind: object

    @property
    def least_slower(self) -> float:
        """The least log ratio between two tests from which the slower one counts as slow."""
        return max(LEAST_SLOWER, NOISE_FACTOR * self.noise)


@dataclass(frozen=True)
class GroupState:
    """What group tests show about nodes.

    Args:
        slow: the suspects of slow tests that no smaller group explains; groups of two and more are
            to be halved.
        clear: nodes of clear tests.
        doubtful: nodes of doubtful tests that are neither clear nor at fault.
    """

    slow: tuple[frozenset[int], ...]
    clear: frozenset[int]
    doubtful: frozenset[int]


def is_comparable(first: GroupResult, second: GroupResult) -> bool:
    """Whether two tests are so similar that the error of the simulation is the same for both."""
    counts = sorted((len(first.nodes), len(second.nodes)))
    return first.kind == second.kind and counts[1] <= MOST_UNEQUAL * counts[0]


def has_contrast(results: Sequence[GroupResult]) -> bool:
    """Whether a test is slower than another one of its kind by more than noise."""
    return any(
        result.deviation > other.deviation + result.least_slower
        for result in results
        for other in results
        if is_comparable(result, other)
    )


def judged(result: GroupResult, results: Sequence[GroupResult]) -> str:
    """Return whether a test is `slow`, `clear` or `doubtful`, compared with all results and with
    the simulation.
    """
    similar = [other for other in results if is_comparable(result, other)]
    fastest = min(other.deviation for other in similar)
    if result.deviation > fastest + result.least_slower:
        return "slow"
    equal = [other for other in similar if other.deviation <= fastest + other.least_slower]
    equal_count = _disjoint_count(reversed(equal))
    if equal_count >= MANY_EQUAL:
        return "clear"
    slowest = max(other.deviation for other in similar)
    is_contrast = slowest > result.deviation + result.least_slower
    if result.deviation <= result.least_slower:
        # It is as fast as the simulation. If no other test is of its kind, or if a test of all
        # nodes of these equal tests is slow, the simulation may be too slow, which would hide a
        # fault.
        is_doubtful = len(similar) == 1
        if not is_contrast:
            is_doubtful |= _are_parts_of_slow(result, equal, results)
        return "doubtful" if is_doubtful else "clear"
    # Equal tests that are all slower than the simulation may all have faults, or the simulation may
    # be too fast. If another test of the kind is slower still, they are good at least in
    # comparison, so they count as clear up to twice the usual error of the simulation.
    if is_contrast and equal_count >= FEW_EQUAL and result.deviation <= 2 * MODEL_ERROR:
        return "clear"
    return "slow" if result.deviation > MODEL_ERROR else "doubtful"


def _are_parts_of_slow(
    result: GroupResult, equal: Sequence[GroupResult], results: Sequence[GroupResult]
) -> bool:
    """Whether a test that has all nodes of `result`, and no others than those of `equal`, takes
    longer than the simulation.
    """
    together = frozenset().union(*(other.nodes for other in equal))
    return any(
        other.deviation > other.least_slower and result.nodes < other.nodes <= together
        for other in results
    )


def _disjoint_count(results: Iterable[GroupResult]) -> int:
    """Return the number of results, taken greedily in order, that have at most a quarter of their
    nodes in common: clear nodes are in several tests.
    """
    chosen: list[frozenset[int]] = []
    for result in results:
        if all(len(result.nodes & nodes) <= len(nodes) / 4 for nodes in chosen):
            chosen.append(result.nodes)
    return len(chosen)


def group_state(results: Sequence[GroupResult], at_fault: AbstractSet[int]) -> GroupState:
    """Return what the results show. `at_fault` are nodes that certainly have a fault; all slow
    tests that they are in are explained.
    """
    by_judgment: dict[str, list[frozenset[int]]] = {"slow": [], "clear": [], "doubtful": []}
    for result in results:
        by_judgment[judged(result, results)].append(result.nodes)
    clear = frozenset().union(*by_judgment["clear"])
    doubtful = frozenset().union(*by_judgment["doubtful"])
    suspect_groups: list[frozenset[int]] = []
    for nodes in by_judgment["slow"]:
        if not nodes.isdisjoint(at_fault):
            continue
        # A doubtful test of all these nodes and more does not show that some of them are not slow.
        others = [group for group in by_judgment["doubtful"] if not nodes - clear <= group]
        suspects = nodes - clear - frozenset().union(*others)
        if suspects:
            suspect_groups.append(suspects)
    smallest: list[frozenset[int]] = []
    for suspects in sorted(suspect_groups, key=lambda nodes: (len(nodes), min(nodes))):
        if not any(group & suspects for group in smallest):
            smallest.append(suspects)
    return GroupState(
        tuple(smallest),
        clear - at_fault,
        doubtful - clear - at_fault,
    )


def next_groups(
    results: Sequence[GroupResult], at_fault: AbstractSet[int], order: Sequence[int]
) -> list[tuple[int, ...]]:
    """Return the groups of nodes to test next, all at the same time; none if every node is clear,
    at fault, or alone in a slow group, or if all groups were tested that could show more.

    Doubtful nodes are tested in halves, then in quarters, and so on.

    Args:
        results: the results so far.
        at_fault: nodes that certainly have a fault.
        order: all nodes, those on the same leaves together; groups are halved in this order.
    """
    state = group_state(results, at_fault)
    solved = set(at_fault)
    halved = [nodes for nodes in state.slow if len(nodes) > 1]
    if not halved:
        for nodes in state.slow:
            solved |= nodes
        if state.doubtful - solved:
            halved = _untested_halves(state.doubtful - solved, results, order)
    return _halves_of(halved, state, results, at_fault, order)


def _untested_halves(
    doubtful: frozenset[int], results: Sequence[GroupResult], order: Sequence[int]
) -> list[frozenset[int]]:
    """Return the doubtful nodes as one group, or as halves, quarters and so on, such that the
    halves of the groups were not all tested; none if there are no such groups.
    """
    place = {node: number for number, node in enumerate(order)}
    # Clear nodes in a test show nothing about the doubtful ones.
    tested = {result.nodes & doubtful for result in results}
    groups = [doubtful]
    while groups:
        halves = []
        for nodes in groups:
            members = sorted(nodes, key=place.__getitem__)
            middle = (len(members) + 1) // 2
            halves += [frozenset(members[:middle]), frozenset(members[middle:])]
        if any(half not in tested for half in halves if half):
            return groups
        groups = [half for half in halves if len(half) >= FEWEST_TO_HALVE_AGAIN]
    return []


def _halves_of(
    halved: Sequence[frozenset[int]],
    state: GroupState,
    results: Sequence[GroupResult],
    at_fault: AbstractSet[int],
    order: Sequence[int],
) -> list[tuple[int, ...]]:
    """Return both halves of each group of nodes, completed by clear nodes."""
    place = {node: number for number, node in enumerate(order)}
    tested = {node for nodes in halved for node in nodes}
    suspects = tested.union(*state.slow, at_fault)
    test_counts = Counter(node for result in results for node in result.nodes)
    fillers = sorted(
        (state.clear | state.doubtful) - suspects,
        key=lambda node: (node not in state.clear, test_counts[node], place[node]),
    )
    groups: list[tuple[int, ...]] = []
    for nodes in halved:
        members = sorted(nodes, key=place.__getitem__)
        middle = (len(members) + 1) // 2
        count = max(middle, 2)
        for half in (members[:middle], members[middle:]):
            # Clear nodes are added to make halves equal, and as partners of a single node.
            missing = count - len(half)
            group = half + fillers[:missing]
            del fillers[:missing]
            if len(group) > 1:
                groups.append(tuple(sorted(group, key=place.__getitem__)))
    return groups
