"""Evaluate `netsim localize` on drawn clusters with injected faults.

    python -m tests.bench.localize [--seed N --draws N --clusters N --gpus N --plans N --kind KIND]
    python -m tests.bench.localize --nodes 1000 --draws 1 --kind "one fault"

For each draw: a cluster (rails, or leaf and spine), a plan of tests, and no fault, one fault or
two on different nodes. The logs are simulated with the fault in the scenario (not by the
predictions of the search), get 1 % of noise (6 % alltoall), are written as nccl-tests text and read
back. Printed: how often the culprit or its class comes first, how often both culprits are among the
first three, and how often a healthy cluster is called healthy. `--kind "fabric fault"` draws spine
switches and links above the leaves with 5 to 50 % of their bandwidth, on clusters with leaves and
static routes: sprayed packets keep away from a slow cable, so that no test of a few nodes shows it.

Nodes have two GPUs and two NICs, as a simulation then takes 0.05 s of processor time; one of whole
nodes (`--gpus 0`) takes 0.25 s. The plan is all nodes alone and pairs of nodes; `--plans 2` takes
turns with a plan that has alltoall and racks of four nodes, too, which needs many more simulations.
Simulations are kept from draw to draw, so the first draws are the slowest. `--nodes N` draws on N
nodes on rails instead, of which only pairs are tested, each node with three others.
"""

import argparse
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from netsim.cli.localize import localize
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.localize.answer import LocalizeResult
from netsim.localize.node_tests import HostTest, NodeTest, host_test_of
from netsim.localize.predictions import Predictor
from netsim.measured.logs import parse_text
from netsim.results.nccl_tests import microseconds
from netsim.tasks.answer import checked_cells
from netsim.tasks.outcome import simulate_one
from netsim.tasks.resolve import resolve
from netsim.yamlio.models import override
from netsim.yamlio.read import Source

NOISE = 0.01
ALLTOALL_NOISE = 0.06
SIZES = (2**24, 2**28)
LEAST_EFFECT = 0.2  # log ratio that an injected fault has on some test at least
NODE = re.compile(r"\bnode(\d+)\b")

Fault = dict[str, Any]
DrawFault = Callable[["Lab", np.random.Generator], tuple[str, Fault]]


@dataclass
class Lab:
    """A cluster on which tests are run by simulation, with faults in the scenario. `hosts` are the
    names of its nodes. Healthy times and times with equal faults are simulated once."""

    source: Source
    node_count: int
    hosts: Sequence[str]
    predictor: Predictor
    seconds: dict[object, float] = field(default_factory=dict)

    def log(
        self,
        test: NodeTest,
        faults: Sequence[Fault],
        rng: np.random.Generator,
        sizes: Sequence[int] = SIZES,
    ) -> str:
        """The log of a test, as nccl-tests would print it."""
        placed = [here for fault in faults if (here := placed_fault(fault, test)) is not None]
        spread = ALLTOALL_NOISE if test.collective == "alltoall" else NOISE
        rows = []
        for size in sizes:
            seconds = self.time_of(test, size, placed) * float(np.exp(rng.normal(0, spread)))
            rows.append((size, seconds))
        hosts = [self.hosts[node] for node in test.nodes]
        return log_text(test, hosts, self.predictor.gpus_per_node, rows)

    def time_of(self, test: NodeTest, size: int, faults: Sequence[Fault]) -> float:
        """The simulated time of a test with faults; equal questions are simulated once."""
        # Faults of nodes are placed by rank already; those of the fabric depend on the nodes.
        of_fabric = any(map(is_of_fabric, faults))
        key = (self.predictor.shape(test), size, repr(faults), test.nodes if of_fabric else ())
        if key not in self.seconds:
            source = self.predictor.scenario_with(test, ())
            if faults:
                source = override(source, "cluster.faults", list(faults), "injected")
            resolved = resolve(checked_cells(source)[0])
            self.seconds[key] = simulate_one(resolved, size, engine="compiled").seconds
        return self.seconds[key]


def is_of_fabric(fault: Fault) -> bool:
    """Whether a fault is of a switch, or of a link between switches."""
    is_link = "link" in fault and not NODE.search(fault["link"])
    return is_link or bool(set(fault) & {"switch", "leaf", "spine"})


def lab(
    machine: str, node_count: int, fabric: Mapping[str, Any] | None = None, gpu_count: int = 0
) -> Lab:
    """A cluster of nodes of a machine with so many GPUs and NICs each; 0 for all of them."""
    options = (
        QuestionOptions(gpus_per_node=gpu_count, nics_per_node=gpu_count)
        if gpu_count
        else QuestionOptions()
    )
    source, _ = source_of_question(machine, "all_reduce", options)
    if fabric is not None:
        source = override(source, "cluster.fabric", dict(fabric), "the bench")
    source = override(source, "cluster.nodes", node_count, "the bench")
    hosts = [f"host-{number:03d}" for number in range(node_count)]
    return Lab(source, node_count, hosts, Predictor(source, node_count))


def placed_fault(fault: Fault, test: NodeTest) -> Fault | None:
    """A fault of the cluster in the scenario of a test, whose nodes are numbered in rank order;
    None if its node is not in the test. Parts of the fabric are as in the cluster."""
    result = dict(fault)
    for key, value in fault.items():
        if key == "host":
            if value not in test.nodes:
                return None
            result[key] = test.nodes.index(value)
        elif isinstance(value, str) and NODE.search(value):
            number = int(NODE.search(value)[1])  # type: ignore[index]
            if number not in test.nodes:
                return None
            result[key] = NODE.sub(f"node{test.nodes.index(number)}", value)
    if test.node_count == 1 and set(result) & {"nic", "rail", "switch", "leaf", "spine"}:
        return None
    if test.node_count == 1 and (
        "leaf" in str(result.get("link")) or ("bandwidth" in result and "host" in result)
    ):
        return None
    return result


def log_text(
    test: NodeTest, hosts: Sequence[str], gpu_count: int, rows: Sequence[tuple[int, float]]
) -> str:
    """A log as nccl-tests writes it, of rows (size, seconds), with so many GPUs on each host."""
    gpus = test.gpus or tuple(range(gpu_count))
    lines = [
        f"# Collective test starting: {test.collective}_perf",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 1 "
        "iters: 20 agg iters: 1 validation: 1 graph: 0",
        "# Using devices",
    ]
    for rank, (host, gpu) in enumerate((host, gpu) for host in hosts for gpu in gpus):
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {rank + 1:6d} on {host:>10} device {gpu:2d} "
            f"[0000:{gpu:02x}:00] NVIDIA H100 80GB HBM3"
        )
    lines += [
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
        "     time   algbw   busbw  #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)",
    ]
    redop = "sum" if test.collective in ("all_reduce", "sendrecv") else "none"
    for size, seconds in rows:
        rate = size / seconds / 1e9
        half = f"{microseconds(seconds * 1e6):>9} {rate:7.2f} {rate:7.2f}      0"
        lines.append(f"{size:>12} {size // 4:>13}     float  {redop:>6}      -1{half}{half}")
    return "\n".join(lines) + "\n"


def host_tests(
    cluster: Lab,
    plan: Sequence[NodeTest],
    faults: Sequence[Fault],
    rng: np.random.Generator,
    sizes: Sequence[int] = SIZES,
) -> list[HostTest]:
    """The logs of a plan, written and read back."""
    tests = []
    for number, test in enumerate(plan):
        text = cluster.log(test, faults, rng, sizes)
        (run,) = parse_text(text, f"log{number}.txt")
        tests.append(host_test_of(run))
    return tests


# Plans of tests


def singles_and_pairs(node_count: int, rng: np.random.Generator) -> list[NodeTest]:
    """Every node alone; and rounds of pairs, in which every node meets three others."""
    plan = [NodeTest((node,), "all_reduce") for node in range(node_count)]
    return plan + pairs(node_count, rng)


def pairs(node_count: int, rng: np.random.Generator) -> list[NodeTest]:
    """Three rounds of pairs of all nodes; all pairs of at most 8 nodes."""
    if node_count <= 8:
        return [NodeTest(pair, "all_reduce") for pair in combinations(range(node_count), 2)]
    plan = []
    for _ in range(3):
        order = rng.permutation(node_count)
        plan += [
            NodeTest((int(order[n]), int(order[n + 1])), "all_reduce")
            for n in range(0, node_count - 1, 2)
        ]
    return plan


def with_racks(node_count: int, rng: np.random.Generator) -> list[NodeTest]:
    """Every node alone, pairs, alltoall of pairs, and racks of four nodes."""
    plan = singles_and_pairs(node_count, rng)
    plan += [replace(test, collective="alltoall") for test in plan if test.node_count == 2][::2]
    plan += [
        NodeTest(tuple(range(first, first + 4)), "all_reduce")
        for first in range(0, node_count - 3, 4)
    ]
    return plan


PLANS = {"singles and pairs": singles_and_pairs, "with racks": with_racks, "pairs": pairs}


# Faults


def drawn_fault(cluster: Lab, rng: np.random.Generator) -> tuple[str, Fault]:
    """A fault of one part, with the part as faults name it."""
    parts = cluster.predictor.parts
    node = int(rng.integers(cluster.node_count))
    gpu = parts.gpus[int(rng.integers(len(parts.gpus)))]
    nic = parts.nics[int(rng.integers(len(parts.nics)))]
    index = int(rng.integers(64))
    left = f"{int(rng.integers(15, 66))}%"
    slowdown = round(float(rng.uniform(1.4, 3.0)), 2)
    nvlinks = f"node{node}.{gpu}-{parts.nvlinks[gpu].replace('NODE', f'node{node}')}"
    rail = int(nic.removeprefix("nic"))
    kinds: list[tuple[str, Fault]] = [
        (f"node{node}.{nic}", {"nic": f"node{node}.{nic}", "bandwidth": left}),
        (f"node{node}.{nic}", {"nic": f"node{node}.{nic}"}),
        (f"node{node}", {"host": node, "bandwidth": left}),
        (f"node{node}", {"host": node, "slowdown": slowdown}),
        (f"node{node}.{gpu}", {"gpu": f"node{node}.{gpu}", "slowdown": slowdown}),
        (nvlinks, {"link": nvlinks, "bandwidth": left}),
        (f"rail{rail}", {"rail": rail, "bandwidth": left}),
    ]
    leaf = cluster.predictor.parts.leaf_names[index % len(cluster.predictor.parts.leaf_names)]
    kinds.append((leaf, {"switch": leaf, "bandwidth": left}))
    return kinds[int(rng.integers(len(kinds)))]


def drawn_fabric_fault(cluster: Lab, rng: np.random.Generator) -> tuple[str, Fault]:
    """A fault of a spine switch, or of a link between a leaf and a spine."""
    parts = cluster.predictor.parts
    key, names = [("switch", parts.spines), ("link", parts.above)][int(rng.integers(2))]
    name = names[int(rng.integers(len(names)))]
    return name, {key: name, "bandwidth": f"{int(rng.integers(5, 50))}%"}


def has_effect(cluster: Lab, plan: Sequence[NodeTest], fault: Fault) -> bool:
    """Whether a fault makes some test of a plan slower by `LEAST_EFFECT`."""
    for test in plan:
        placed = placed_fault(fault, test)
        if placed is None:
            continue
        for size in SIZES:
            slow = cluster.time_of(test, size, [placed])
            if slow > cluster.time_of(test, size, []) * (1 + LEAST_EFFECT):
                return True
    return False


def drawn_faults(
    cluster: Lab,
    plan: Sequence[NodeTest],
    count: int,
    rng: np.random.Generator,
    draw: DrawFault = drawn_fault,
) -> list[tuple[str, Fault]]:
    """Faults that each make some test of a plan slower, with their parts. Several are on different
    nodes, as faults of the fabric may hide others; all are drawn anew if they are not."""
    while True:
        faults = [draw(cluster, rng) for _ in range(count)]
        separate = not any(
            overlap(first, second) for (first, _), (second, _) in combinations(faults, 2)
        )
        if separate and all(has_effect(cluster, plan, fault) for _, fault in faults):
            return faults


def is_hit(result: LocalizeResult, place: int, part: str) -> bool:
    """Whether a part is, or is a member of, the suspect at a place of the ranking."""
    ranking = result.verdict.ranking
    if place >= len(ranking):
        return False
    return part in {fit.suspect.part for fit in ranking[place].members}


CLUSTERS = (
    ("dgx-h100", 8, None),
    ("dgx-h100", 8, {"kind": "leaf-spine", "nodes_per_leaf": 4}),
    ("h100-x4", 16, {"kind": "leaf-spine", "nodes_per_leaf": 4}),
    ("h100-x4", 32, None),
    ("dgx-a100", 64, {"kind": "leaf-spine", "nodes_per_leaf": 8}),
)
"""Machine, nodes and fabric (None: rail-optimized) of the clusters that are drawn."""

KINDS_OF_DRAWS = ("one fault", "two faults", "one fault", "healthy")
FAULT_COUNTS = {"one fault": 1, "two faults": 2, "healthy": 0, "fabric fault": 1}


@dataclass
class Score:
    """Counts of one kind of draw."""

    draws: int = 0
    hits: int = 0
    misses: list[str] = field(default_factory=list)
    seconds: float = 0.0


def evaluate(
    draws: int,
    seed: int,
    clusters: Sequence[Any],
    gpu_count: int,
    kinds: Sequence[str] = KINDS_OF_DRAWS,
    plans: Sequence[str] = ("singles and pairs",),
) -> Iterator[str]:
    """The lines of the evaluation. `kinds` are the kinds of draws, which take turns; so do the
    `plans`, names of `PLANS`."""
    rng = np.random.default_rng(seed)
    scores = {name: Score() for name in FAULT_COUNTS}
    if "fabric fault" in kinds:
        clusters = [
            (machine, nodes, {**fabric, "routing": "static"})
            for machine, nodes, fabric in clusters
            if fabric is not None
        ]
    labs = [lab(*cluster, gpu_count) for cluster in clusters]
    for number in range(draws):
        cluster = labs[number % len(labs)]
        turn = number // len(labs) // len(kinds)
        name = plans[turn % len(plans)]
        plan = PLANS[name](cluster.node_count, rng)
        kind = kinds[number // len(labs) % len(kinds)]
        draw = drawn_fabric_fault if kind == "fabric fault" else drawn_fault
        faults = drawn_faults(cluster, plan, FAULT_COUNTS[kind], rng, draw)
        tests = host_tests(cluster, plan, [fault for _, fault in faults], rng)
        begun = time.process_time()
        result = localize(cluster.source, tests, predictor=cluster.predictor)
        score = scores[kind]
        score.draws += 1
        score.seconds += time.process_time() - begun
        if kind == "healthy":
            hit = not result.verdict.faults
        elif FAULT_COUNTS[kind] == 1:
            hit = is_hit(result, 0, faults[0][0])
        else:
            hit = all(any(is_hit(result, n, part) for n in range(3)) for part, _ in faults)
        score.hits += hit
        if not hit:
            answer = [
                f"{group.best.suspect.part} ({group.best.suspect.kind}, {group.probability:.2f})"
                for group in result.verdict.ranking[:3]
            ]
            score.misses.append(f"{cluster.node_count} nodes, {name}: {faults} -> {answer}")
            yield f"  miss: {kind}, {score.misses[-1]}"
        if number % 8 == 7:
            yield from summary(scores)
    yield from summary(scores)


def summary(scores: Mapping[str, Score]) -> Iterator[str]:
    """A line for each kind of draw."""
    words = {
        "one fault": "culprit or its class first",
        "two faults": "both culprits among the first three",
        "healthy": "healthy clusters called healthy",
        "fabric fault": "spine or link, or its class, first",
    }
    for kind, score in scores.items():
        if score.draws:
            yield (
                f"{words[kind]}: {score.hits} of {score.draws} ({score.hits / score.draws:.1%}), "
                f"{score.seconds / score.draws:.1f} s each"
            )


def overlap(first: str, second: str) -> bool:
    """Whether two parts are of one node, or both of the fabric, so that one may hide the other."""
    one, two = NODE.search(first), NODE.search(second)
    if one is None or two is None:
        return True
    return one[1] == two[1]


def main() -> None:
    """Print the evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draws", type=int, default=64)
    parser.add_argument("--clusters", type=int, default=2, help="only the first ones")
    parser.add_argument("--gpus", type=int, default=2, help="of each node; 0 for all")
    parser.add_argument("--kind", choices=list(FAULT_COUNTS), help="only draws of this kind")
    parser.add_argument("--plans", type=int, default=1, choices=(1, 2))
    parser.add_argument("--nodes", type=int, help="of one cluster instead, of pairs alone")
    arguments = parser.parse_args()
    clusters: Sequence[Any] = CLUSTERS[: arguments.clusters]
    plans = list(PLANS)[: arguments.plans]
    if arguments.nodes:
        clusters = [("dgx-h100", arguments.nodes, None)]
        plans = ["pairs"]
    kinds = [arguments.kind] if arguments.kind else KINDS_OF_DRAWS
    lines = evaluate(arguments.draws, arguments.seed, clusters, arguments.gpus, kinds, plans)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
