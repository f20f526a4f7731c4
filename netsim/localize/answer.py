"""The answer of `netsim localize` as text and as plain values: suspects, their probabilities, the
next test.
"""

from collections.abc import Iterator, Sequence
from math import exp
from typing import Any

import numpy as np

from netsim.base.units import format_size
from netsim.base.values import dataclass
from netsim.localize.conclusion import Conclusion, SuspectClass
from netsim.localize.debug_log import Difference
from netsim.localize.evidence import Evidence
from netsim.localize.next_test import NextTest
from netsim.localize.node_tests import COMPUTE, HostNumbers, NodeTest
from netsim.localize.observed import simulated_sizes
from netsim.localize.parts import KINDS, Suspect
from netsim.localize.predictions import Predictor
from netsim.localize.search import FaultSearch
from netsim.localize.settings import SETTINGS, confirmations

MOST_SHOWN = 5
MOST_NAMES = 6
COMMON = 0.05  # log ratio from which a deviation of all tests of a shape is mentioned


@dataclass(frozen=True)
class LocalizeResult:
    """All that `netsim localize` has found.

    Args:
        search: the search, with the tests.
        verdict: the faults that it concludes.
        hosts: names of the hosts.
        proposal: the next test to run; None if none is needed.
        differences: where NCCL's debug log differs from the simulation.
    """

    search: FaultSearch
    verdict: Conclusion
    hosts: HostNumbers
    proposal: NextTest | None
    differences: tuple[Difference, ...] = ()

    @property
    def predictor(self) -> Predictor:
        """The predictor of the search."""
        return self.search.predictor


def as_values(result: LocalizeResult) -> dict[str, Any]:
    """Return the answer as the values of the JSON file."""
    verdict = result.verdict
    hosts = result.hosts
    ranking = verdict.ranking
    return {
        "suspects": [_suspect_values(result, group, ranking) for group in ranking],
        "tests": len(result.search.tests),
        "healthy_probability": round(verdict.healthy_probability, 6),
        "next_test": _test_values(result),
        "slow_tests": [
            {
                "log": result.search.tests[number].label,
                "hosts": [hosts.name_of(n) for n in result.search.tests[number].test.nodes],
            }
            for number in verdict.slow_logs
        ],
        "common_deviation": [
            {"test": words, "percent": round(100 * (exp(center) - 1), 1)}
            for words, center in common_deviations(result)
        ],
        "settings": [
            {
                "setting": setting.id,
                "title": setting.title,
                "modeled": setting.is_modeled,
                "not_modeled": setting.not_modeled,
                "confirm": list(confirmations(setting)),
            }
            for setting in SETTINGS.values()
        ],
        "debug_log": [difference.values for difference in result.differences],
        "nodes": {f"node{number}": name for number, name in sorted(hosts.names.items())},
    }


def part_of(result: LocalizeResult, group: SuspectClass) -> str:
    """Return the part that a class of suspects means, in the form in which faults name it.

    If all members of the kind of the best member have a common pattern (`node5.nic*`), it is this
    pattern, else the part of the best member.
    """
    kind = group.best.suspect.kind
    same = [fit.suspect for fit in group.members if fit.suspect.kind == kind]
    pattern = result.predictor.parts.pattern_of(same)
    return pattern if pattern is not None and len(same) > 1 else group.best.suspect.part


def _suspect_values(
    result: LocalizeResult, group: SuspectClass, ranking: Sequence[SuspectClass]
) -> dict[str, Any]:
    best = group.best
    rivals = [other.probability for other in ranking if other is not group]
    rival = max(rivals, default=0.0)
    healthy = max(result.verdict.healthy_probability, 1e-12)
    return {
        "part": part_of(result, group),
        "kind": best.suspect.kind_name,
        "setting": best.suspect.setting,
        "explains_pct": round(100 * group.explains, 1),
        "probability": round(group.probability, 6),
        "fault": fault_words(best.suspect, best.severity),
        "severity": None if best.suspect.setting else round(best.severity, 4),
        "odds_to_next": None if not rival else round(group.probability / rival, 3),
        "odds_to_healthy": round(min(group.probability / healthy, 1e12), 3),
        "hosts": hosts_of(result, [fit.suspect for fit in group.members]),
        "members": [
            {
                "part": fit.suspect.part,
                "kind": fit.suspect.kind_name,
                "fault": fault_words(fit.suspect, fit.severity),
            }
            for fit in group.members
        ],
        "confirm": list(confirmations(SETTINGS[best.suspect.setting]))
        if best.suspect.setting
        else [],
    }


def fault_words(suspect: Suspect, severity: float) -> str:
    """Return what is wrong with a suspect as text, such as `NIC or its cable: 50% of the bandwidth
    left`.
    """
    if suspect.setting:
        return SETTINGS[suspect.setting].title
    return KINDS[suspect.kind].words(severity)


def hosts_of(result: LocalizeResult, suspects: Sequence[Suspect]) -> list[str]:
    """Return the host names of the nodes that suspects are parts of; for a leaf switch those of the
    nodes at it.
    """
    leaves = result.predictor.parts.leaves
    nodes: dict[int, None] = {}
    for suspect in suspects:
        if suspect.node >= 0:
            nodes[suspect.node] = None
        elif suspect.kind == "leaf":
            at_leaf = [node for node, names in enumerate(leaves) if suspect.local in names]
            nodes.update(dict.fromkeys(at_leaf))
    return [result.hosts.name_of(node) for node in nodes]


def _test_values(result: LocalizeResult) -> dict[str, Any] | None:
    proposal = result.proposal
    if proposal is None:
        return None
    test = proposal.test
    return {
        "hosts": [result.hosts.name_of(node) for node in test.nodes],
        "collective": test.collective,
        "size": proposal.question.size_bytes,
        "gpus": list(test.gpus),
        "command": command_of(result, proposal, test),
        "together": [
            {
                "hosts": [result.hosts.name_of(node) for node in test_of_round.nodes],
                "command": command_of(result, proposal, test_of_round),
            }
            for test_of_round in proposal.together
        ],
        "purpose": proposal.purpose,
        "bits": round(proposal.bits, 3),
        "bits_missing": round(proposal.entropy, 3),
        "slow_if": names_of(proposal.slow),
        "not_slow_if": names_of(proposal.not_slow),
    }


def names_of(suspects: Sequence[Suspect]) -> list[str]:
    """Return the names of suspects, each once; those of whole nodes and of settings with what is
    wrong.
    """
    return list(dict.fromkeys(_name_of(suspect) for suspect in suspects))


def _name_of(suspect: Suspect) -> str:
    if suspect.setting:
        return f"{suspect.part} ({SETTINGS[suspect.setting].title})"
    if suspect.kind in ("slow-node", "node-network"):
        return f"{suspect.part} ({KINDS[suspect.kind].trouble})"
    return suspect.part


def command_of(result: LocalizeResult, proposal: NextTest, test: NodeTest) -> str:
    """Return the command that runs a test of a proposal, with Open MPI and one process for each
    GPU.
    """
    rank_count = len(test.gpus) or result.predictor.gpus_per_node
    hosts = ",".join(f"{result.hosts.name_of(node)}:{rank_count}" for node in test.nodes)
    size = proposal.question.size_bytes
    visible = f"-x CUDA_VISIBLE_DEVICES={','.join(map(str, test.gpus))} " if test.gpus else ""
    variables = [
        f"-x {key.removeprefix('nccl.env.')}={value} "
        for key, value in test.settings
        if key.startswith("nccl.env.")
    ]
    if variables:
        variables.append("-x NCCL_DEBUG=INFO ")  # the log then says which variables are set
    program = f"{test.collective}_perf -b {size} -e {size} -g 1"
    return f"mpirun -H {hosts} -N {rank_count} {visible}{''.join(variables)}{program}"


def common_deviations(result: LocalizeResult) -> list[tuple[str, float]]:
    """Return for each kind of test (text) the center of its deviations: the log ratio by which all
    its tests are slower than simulated, beyond the faults that were found.

    Only centers above a threshold, and one size of each kind.
    """
    search = result.search
    if not len(search.observations) or len(result.verdict.baseline) == 0:
        return []
    evidence = Evidence(search.observations, result.verdict.baseline)
    deviations: dict[str, tuple[str, float]] = {}
    for number, (shape, question) in enumerate(search.observed.classes):
        if shape[0] == COMPUTE:
            continue
        center = float(evidence.center[number])
        nodes = "1 node" if len(shape[0]) == 1 else f"{len(shape[0])} nodes"
        if abs(center) > COMMON:
            words = f"{shape[1]} on {nodes}"
            deviations[words] = (f"{words}, {format_size(question.size_bytes)}", center)
    return list(deviations.values())


# The answer as text.


def text_lines(result: LocalizeResult) -> Iterator[str]:
    """Yield the lines of the answer."""
    search = result.search
    verdict = result.verdict
    count = len({node for timed in search.tests for node in timed.test.nodes})
    yield (
        f"# {len(search.tests)} tests of {count} of {result.predictor.node_count} nodes; "
        f"{len(verdict.slow_logs)} slower than healthy"
    )
    yield from _verdict_lines(result)
    for words, center in common_deviations(result):
        more = "longer" if center > 0 else "less"
        yield (
            f"# all tests of one kind ({words}) take {abs(exp(center) - 1):.0%} {more} than "
            "simulated: a setting of all nodes, or a figure of the topology file"
        )
    for difference in result.differences:
        yield f"# {difference.line}"


def _verdict_lines(result: LocalizeResult) -> Iterator[str]:
    verdict = result.verdict
    if not verdict.faults:
        if result.proposal is None:
            yield f"# nothing is wrong, with probability {percent(verdict.healthy_probability)}"
        else:
            yield (
                f"# no part stands out; nothing is wrong with probability "
                f"{percent(verdict.healthy_probability)}, which the next tests confirm or refute"
            )
        yield from _next_lines(result)
        return
    yield (
        f"# something is wrong, with probability {percent(1 - verdict.healthy_probability)} "
        "(of the faults that were tried)"
    )
    yield "# suspect                   kind      probability  explains  what is wrong"
    ranking = verdict.ranking
    shown = [group for group in ranking if group.probability >= 0.005][:MOST_SHOWN]
    for group in shown or ranking[:1]:
        yield _suspect_line(result, group)
    for group in shown:
        yield from _detail_lines(result, group)
    yield from _next_lines(result)


def percent(probability: float) -> str:
    """Return a probability as text in percent: `97 %`, `> 99.9 %`."""
    if probability > 0.9995:
        return "> 99.9 %"
    if 0 < probability < 0.0005:
        return "< 0.1 %"
    return f"{100 * probability:.3g} %"


def _suspect_line(result: LocalizeResult, group: SuspectClass) -> str:
    best = group.best
    part = part_of(result, group)
    fault = fault_words(best.suspect, best.severity)
    return (
        f"  {part:<24}  {best.suspect.kind_name:<8}  {percent(group.probability):>11}  "
        f"{100 * group.explains:>6.0f} %  {fault}"
    )


def _detail_lines(result: LocalizeResult, group: SuspectClass) -> Iterator[str]:
    """Yield lines on a class of suspects: its hosts, the parts that no test separates from it, how
    to confirm a setting.
    """
    part = part_of(result, group)
    hosts = hosts_of(result, [fit.suspect for fit in group.members])
    if hosts:
        yield f"#   {part}: host {shortened(hosts)}"
    others = [
        name
        for name in names_of([fit.suspect for fit in group.members])
        if name not in (part, _name_of(group.best.suspect))
    ]
    if len(group.members) > 1:
        yield f"#   {part}: no test separates it from {shortened(others)}"
    if group.best.suspect.setting:
        for text in confirmations(SETTINGS[group.best.suspect.setting]):
            yield f"#   to confirm: {text}"


def shortened(names: Sequence[str]) -> str:
    """Return a list of names as text; if there are many, only the first ones and the number of the
    others.
    """
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return ", ".join(names[: MOST_NAMES - 1]) + f" and {len(names) - MOST_NAMES + 1} more"


def _next_lines(result: LocalizeResult) -> Iterator[str]:
    proposal = result.proposal
    if proposal is None:
        return
    test = proposal.test
    hosts = ", ".join(result.hosts.name_of(node) for node in test.nodes[:MOST_NAMES])
    if proposal.together:
        counts = ", ".join(str(test_of_round.node_count) for test_of_round in proposal.tests)
        yield f"# next tests, all at the same time: {test.collective} on {counts} nodes"
        for test_of_round in proposal.tests:
            yield f"#   {command_of(result, proposal, test_of_round)}"
        return
    gpus = f" on GPU {', '.join(map(str, test.gpus))}" if test.gpus else ""
    more = ""
    if test.node_count > MOST_NAMES:
        more = f" and {test.node_count - MOST_NAMES} more"
    slow = f"; slow if it is {shortened(names_of(proposal.slow))}" if proposal.slow else ""
    yield (
        f"# next test: {test.collective} of {format_size(proposal.question.size_bytes)} on "
        f"{hosts}{more}{gpus}{slow}"
    )
    yield f"#   {command_of(result, proposal, test)}"


def suspected_nodes(result: LocalizeResult) -> dict[int, float]:
    """Return the largest probability of a suspect in each node, by the number of the node. A class
    of suspects divides its probability among its nodes.
    """
    nodes: dict[int, float] = {}
    for group in result.verdict.ranking:
        share = group.probability / len({fit.suspect.node for fit in group.members})
        for fit in group.members:
            if fit.suspect.node >= 0:
                nodes[fit.suspect.node] = max(nodes.get(fit.suspect.node, 0.0), share)
    return nodes


def pair_ratios(search: FaultSearch) -> dict[tuple[int, int], float]:
    """Return for each pair of nodes the largest measured over expected time of the tests of these
    two nodes.

    Only the sizes that are compared count. A test of a single node is the pair of this node with
    itself.
    """
    ratios: dict[tuple[int, int], float] = {}
    start = 0
    for timed in search.tests:
        count = len(simulated_sizes(timed))
        deviation = search.observations.deviation[start : start + count]
        start += count
        if timed.test.collective == COMPUTE or timed.test.node_count > 2:
            continue
        first = min(timed.test.nodes)
        last = max(timed.test.nodes)
        ratio = float(np.exp(deviation.max()))
        ratios[first, last] = max(ratios.get((first, last), 0.0), ratio)
    return ratios
