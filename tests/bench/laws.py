"""python -m tests.bench.laws [--count N] [--seed N] [--show]: do extents keep what they state?

Draws tasks (NCCL's collectives on hosts and fabrics, with faults, launch styles and variables, and
textbook algorithms), forces one or two axes of `netsim/extent/` on them by thresholds, and holds
each answer against the full simulation. Law (b) of the extents: an answer differs by no more than
it states in at least 99 of 100 draws, and never by more than twice; exact ones by 1e-9.

Printed are, by what was simulated: how many draws there were, the errors that were stated, what
was kept of them, and each draw that was off by more than it states.
"""

import argparse
import random
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netsim.base.errors import NetsimError
from netsim.extent.budget import USUAL_BUDGET, Budget
from netsim.extent.forms import form_of
from netsim.extent.result import Result
from netsim.extent.solve import solve_form
from netsim.scenario.cells import expand
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.yamlio.read import parse_source

ROUNDING = 1e-9
IN_FULL = replace(
    USUAL_BUDGET.thresholds.without_limits(),
    min_crowded_rows=np.inf,
    min_rows_of_sends=np.inf,
    min_rows_for_channels=np.inf,
)
WRITTEN_OUT = frozenset({"lockstep", "long_rings", "representatives"})
AXES: dict[str, dict[str, float]] = {
    "loops": {"max_rows_in_full": 0, "max_loop_fraction": 0.5, "min_rows_for_pace": 1e5},
    "hops": {"max_ring_rows": 0},
    "operations": {
        "max_rows_of_few_operations": 1,
        "max_rows_of_several_operations": 2e4,
        "max_rows_of_all_operations": 2e4,
        "max_rows_of_doubtful_operations": 0,
    },
    "resolution": {"min_crowded_rows": 0, "wide_instant": 4e-7, "rows_of_wide_instants": 20_000},
    "rounds": {"min_rows_of_sends": 0},
    "channels": {"min_rows_for_channels": 0},
    "representatives": {},
    "lockstep": {"min_lockstep_steps": 0},
    "long rings": {"min_long_ring_rows": 0, "max_partition_rounds": 0},
}
AXES_OF = {
    "ring": ("loops", "hops", "hops", "operations", "representatives"),
    "tree": ("loops", "operations", "channels", "representatives"),
    "sends": ("resolution", "rounds", "rounds", "operations", "representatives"),
    "textbook": ("lockstep", "long rings", "representatives", "operations"),
}
FABRICS = (
    "{kind: rail-optimized}",
    "{kind: single-switch}",
    "{kind: leaf-spine, nodes_per_leaf: 2}",
    "{kind: leaf-spine, nodes_per_leaf: 2, oversubscription: 2, transport: roce, routing: ecmp}",
    "{kind: dragonfly}",
)
FAULTS = (
    "",
    "",
    "",
    ", faults: [{nic: node1.nic0}]",
    ", faults: [{link: node0.nic0-*, bandwidth: 50%}]",
    ", faults: [{gpu: node0.gpu0, slowdown: 1.5}]",
)
LAUNCHES = ("", "", "launch: cuda_graph", "launch: process_per_gpu", "launch: single_process")
RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True)
class Kept:
    """How far an answer is from the full simulation. `off` and `stated` are relative."""

    number: int
    title: str
    methods: str
    off: float
    stated: float

    @property
    def ratio(self) -> float:
        """How many times what is stated it is off."""
        return self.off / (self.stated + ROUNDING)


def drawn_task(seed: int, number: int) -> tuple[str, ResolvedCell, tuple[str, ...]]:
    """A cell by its number, and the axes that are forced on it."""
    some = random.Random(f"laws {seed} {number}")
    kind = some.choice(("ring", "ring", "tree", "sends", "textbook"))
    machine = some.choice(("dgx-h100", "dgx-h100", "dgx-a100", "hgx-h200"))
    nodes, gpus = some.randint(2, 6), some.choice((1, 2, 4))
    axes = AXES_OF[kind]
    chosen = tuple(dict.fromkeys(some.sample(axes, some.choice((1, 2)))))
    if "hops" in chosen:
        nodes = -(-some.randint(72, 96) // gpus)
    if "rounds" in chosen:
        nodes = some.randint(16, 40)
    has_many_loops = "loops" in chosen and "hops" not in chosen
    if kind == "textbook":
        work = _textbook_work(some, nodes * gpus)
        text = f"machine: {machine}, nodes: {nodes}, gpus_per_node: {gpus}"
        text += f", fabric: {some.choice(FABRICS[:2])}"
    else:
        work = _nccl_work(some, kind, has_many_loops)
        text = f"machine: {machine}, nodes: {nodes}, gpus_per_node: {gpus}"
        text += f", fabric: {some.choice(FABRICS)}{some.choice(FAULTS)}"
    timing = some.choice(("timing: single", "", "", "timing: {iterations: 7}"))
    variables = "{NCCL_BUFFSIZE: '65536', NCCL_MAX_NCHANNELS: '2', NCCL_MAX_P2P_NCHANNELS: '2'}"
    lines = [
        f"cluster: {{{text}}}",
        f"workload: {{{work}}}",
        timing,
        some.choice(LAUNCHES),
        "" if kind == "textbook" else f"nccl: {{env: {variables}}}",
    ]
    source = "\n".join(line for line in lines if line) + "\n"
    cell = expand(parse_source(source, "drawn.yaml"))[0]
    return source, resolve(cell), chosen


def _nccl_work(some: random.Random, kind: str, has_many_loops: bool) -> str:
    if kind == "sends":
        name = some.choice(("alltoall", "alltoall", "sendrecv"))
        return f"collective: {name}, sizes: [{int(2 ** some.uniform(14, 22)) // 4096 * 4096}B]"
    name = "all_reduce" if kind == "tree" else some.choice(RINGS)
    size = int(2 ** some.uniform(17, 22)) // 4 * 4 * (8 if has_many_loops else 1)
    protocol = some.choice(("Simple", "Simple", "LL128", "LL"))
    algorithm = "Tree" if kind == "tree" else "Ring"
    return f"collective: {name}, algorithm: {algorithm}, protocol: {protocol}, sizes: [{size}B]"


def _textbook_work(some: random.Random, ranks: int) -> str:
    name, algorithm = some.choice(
        (("all_reduce", "ring"), ("all_gather", "ring"), ("alltoall", "hierarchical"))
    )
    size = 4 * ranks**2 * some.choice((64, 4096))
    return f"collective: {name}, algorithm: {algorithm}, sizes: [{size}B]"


def budget_of(axes: tuple[str, ...], base: Budget) -> Budget:
    """A budget that forces some axes."""
    thresholds: dict[str, Any] = {}
    for axis in axes:
        thresholds.update(AXES[axis])
    return Budget(may_fold=base.may_fold).with_thresholds(**thresholds)


def law_of(seed: int, number: int) -> Kept | None:
    """How a drawn answer keeps what it states; None if no method can give it."""
    source, one, axes = drawn_task(seed, number)
    size = one.cell.scenario.collective.size_list()[0]
    task = one.task(size)
    try:
        budget = budget_of(axes, one.budget)
        told = solve_form(form_of(task, budget), budget, "compiled")
    except NetsimError:
        return None
    whole_budget = Budget(excluded=WRITTEN_OUT, may_fold=False, thresholds=IN_FULL)
    whole = solve_form(form_of(task, whole_budget), whole_budget, "compiled")
    off = abs(told.seconds - whole.seconds) / told.seconds
    title = f"{' and '.join(axes)}: {source.strip()}"
    return Kept(number, title, _methods(told), off, told.uncertainty + whole.uncertainty)


def _methods(told: Result) -> str:
    return ", ".join(decision.method for decision in told.decisions if decision.is_taken)


def main() -> None:
    """Draw, and print what was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.laws", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print every draw")
    given = parser.parse_args()
    by_methods: dict[str, list[Kept]] = defaultdict(list)
    refused, began = 0, time.process_time()
    for number in range(given.first, given.first + given.count):
        kept = law_of(given.seed, number)
        if kept is None:
            refused += 1
            continue
        by_methods[kept.methods].append(kept)
        if given.show or kept.ratio > 1:
            print(f"{number}: off by {kept.off:.3%}, stated {kept.stated:.3%} ({kept.methods})")
            if kept.ratio > 1:
                print(kept.title, flush=True)
    _print_table(by_methods)
    every = [kept for draws in by_methods.values() for kept in draws]
    beyond = sum(kept.ratio > 1 for kept in every)
    twice = sum(kept.ratio > 2 for kept in every)
    seconds = time.process_time() - began
    print(
        f"{len(every)} draws: {beyond} off by more than is stated, {twice} by more than twice; "
        f"{refused} refused; {seconds:.0f} s of processor time"
    )


def _print_table(by_methods: dict[str, list[Kept]]) -> None:
    print(f"{'methods':<50}{'draws':>7}{'beyond':>8}{'stated: median, largest':>26}")
    for methods, draws in sorted(by_methods.items(), key=lambda item: -len(item[1])):
        stated = sorted(kept.stated for kept in draws)
        beyond = sum(kept.ratio > 1 for kept in draws)
        middle = f"{stated[len(stated) // 2]:.3%}, {stated[-1]:.3%}"
        print(f"{methods:<50}{len(draws):>7}{beyond:>8}{middle:>26}")


if __name__ == "__main__":
    main()
