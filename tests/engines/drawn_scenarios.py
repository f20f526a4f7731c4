"""Scenarios drawn at random, with faults: both engines must agree on each, and a third opinion.

    python -m tests.engines.drawn_scenarios --count 10000 --seed 1

Draws machines, fabrics, collectives and faults (dead, 1 %, 50 %; all the time or for a time; of
links, NICs, switches and GPUs) and asks of every draw:

- both engines end every row at the same time, or both say that the run cannot finish;
- on small programs the fluid oracle agrees, too;
- no invariant fails: none that is asked in every run, nor the proven limit.

What is wrong is printed with the scenario, and the exit code is 1."""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml

from netsim.base.errors import InputError, InvariantError, StalledError
from netsim.collectives.table import ALGORITHMS
from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled_engine
from netsim.program.program import Program
from netsim.scenario.cells import expand
from netsim.tasks.limits import limit_at
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.topology.cluster import build_topology
from netsim.topology.graph import NODE_KINDS
from netsim.yamlio.read import parse_source
from tests.engines.agreement import MARGIN, RELATIVE, apart, outcome, own_spread
from tests.engines.fluid_oracle import row_ends
from tests.extent.cells import simulate_size

MACHINES = (
    "dgx-a100",
    "dgx-h100",
    "hgx-h200",
    "dgx-1-v100",
    "rtx4090-x8",
    "a10-pcie-x4",
    "mi300x",
    "gh200-x4",
    "gb200-nvl72",
)
FABRICS = (
    {"kind": "single-switch"},
    {"kind": "rail-optimized"},
    {"kind": "leaf-spine", "oversubscription": 2, "nodes_per_leaf": 1},
    {"kind": "leaf-spine", "nodes_per_leaf": 1, "routing": "ecmp"},
    {"kind": "leaf-spine", "nodes_per_leaf": 1, "routing": "spray", "delivery": "out-of-order"},
    {"kind": "dual-plane", "routing": "spray", "delivery": "out-of-order"},
)
GRAPHS = (
    {"kind": "switch", "gpus": 4, "bandwidth": "50GB/s", "latency": "1us"},
    {"kind": "ring", "gpus": 5, "bandwidth": "25GB/s", "latency": "500ns"},
    {"kind": "full-mesh", "gpus": 4, "bandwidth": "25GB/s"},
    {"kind": "torus", "dims": [3, 2], "bandwidth": "25GB/s", "latency": "300ns"},
    {
        "nodes": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "s", "kind": "switch"}],
        "links": [
            {"from": name, "to": "s", "bandwidth": "10GB/s", "duplex": duplex}
            for name, duplex in (("a", "half"), ("b", "full"), ("c", "half"))
        ],
    },
)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv")
TEXTBOOK = {name: tuple(ALGORITHMS[name]) for name in COLLECTIVES}
SIZES = ("8B", "4KiB", "256KiB", "2MiB")
LEFT = ("0%", "0%", "1%", "50%")
MOST_ROWS = 3_000  # for the plain engine
MOST_ORACLE_ROWS = 150
LIMIT_ROUNDING = 1e-9


def drawn(seed: int) -> dict[str, Any]:
    """The scenario of a seed, as a file would have it."""
    random = np.random.default_rng([seed, 50])

    def one_of(values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    is_graph = random.random() < 0.3
    cluster = _drawn_graph(one_of) if is_graph else _drawn_hosts(one_of, random)
    work: dict[str, Any] = {"collective": one_of(COLLECTIVES), "sizes": [one_of(SIZES)]}
    if random.random() < 0.6:
        work["timing"] = "single"
    names = TEXTBOOK[work["collective"]]
    by_nccl = ("Ring", "Tree") if work["collective"] == "all_reduce" else ("auto",)
    if is_graph:
        work["algorithm"] = one_of(names)
    elif cluster["nodes"] * cluster["gpus_per_node"] > 1:
        work["algorithm"] = one_of(("auto", "auto", *names, *by_nccl))
    scenario = {"cluster": cluster, "workload": work}
    count = int(one_of((1, 1, 1, 2)))
    cluster["faults"] = [drawn_fault(cluster, random) for _ in range(count)]
    return scenario


def _drawn_graph(one_of: Any) -> dict[str, Any]:
    return {"graph": dict(one_of(GRAPHS))}


def _drawn_hosts(one_of: Any, random: np.random.Generator) -> dict[str, Any]:
    cluster = {"machine": one_of(MACHINES), "nodes": int(random.integers(1, 4))}
    cluster["gpus_per_node"] = int(one_of((1, 2, 4)))
    if cluster["nodes"] > 1:
        cluster["fabric"] = dict(one_of(FABRICS))
    return cluster


def drawn_fault(cluster: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """A fault of a part that the healthy cluster has."""
    healthy = {key: value for key, value in cluster.items() if key != "faults"}
    try:
        topology = build_topology(healthy)
    except InputError:  # a fabric that this machine cannot have
        return {"gpu": "node0.gpu0", "slowdown": 2.0}

    def one_of(values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    names = [str(name) for name in topology.nodes]
    nics = [name for name in names if ".nic" in name]
    is_switch = [NODE_KINDS[kind] == "switch" for kind in topology.node_kinds.tolist()]
    switches = [name for name, found in zip(names, is_switch, strict=True) if found]
    part = one_of(("link", "link", "link", "link", "gpu", "nic", "switch"))
    fault: dict[str, Any] = {}
    if part == "gpu":
        fault = {"gpu": one_of([str(gpu) for gpu in topology.gpus]), "slowdown": one_of((1.3, 4.0))}
    elif part == "nic" and nics:
        fault = {"nic": one_of(nics), "bandwidth": one_of(LEFT)}
    elif part == "switch" and switches:
        fault = {"switch": one_of(switches), "bandwidth": one_of(LEFT)}
    else:
        name = topology.link_name(int(random.integers(len(topology.links))))
        name = name if random.random() < 0.5 else name.replace("->", "-")
        fault = {"link": name, "bandwidth": one_of(LEFT)}
    if random.random() < 0.4:
        fault["at"] = one_of(("0s", "3us", "40us"))
        if random.random() < 0.7:
            fault["for"] = one_of(("2us", "30us", "1ms"))
            if random.random() < 0.3:
                fault["every"] = one_of(("2ms", "3ms"))
        if fault.get("bandwidth") == "0%" and random.random() < 0.8:
            fault["loss"] = False
    return fault


@dataclass
class Outcome:
    """What a draw showed: how it ended, and what was wrong with it ("": nothing)."""

    ending: str
    wrong: str = ""
    notes: list[str] = field(default_factory=list)


def checked(scenario: dict[str, Any]) -> Outcome:
    """Run a scenario and say what is wrong with its answer."""
    try:
        cell = expand(parse_source(yaml.safe_dump(scenario), "drawn.yaml"))[0]
        resolved = resolve(cell)
    except InputError as error:
        return Outcome("refused", notes=[str(error)])
    size = cell.scenario.collective.size_list()[0]
    try:
        _, timing = simulate_size(resolved, size, engine="compiled")
    except StalledError as error:
        return _checked_stall(resolved, size, str(error))
    except InvariantError as error:
        return Outcome("invariant", str(error))
    wrong = _compared(timing.program)
    wrong = wrong or _below_limit(resolved, size, timing.seconds, timing.uncertainty)
    return Outcome("answered", wrong)


def _checked_stall(resolved: ResolvedCell, size: int, message: str) -> Outcome:
    """Both engines must say that a run cannot finish."""
    try:
        simulate_size(resolved, size, engine="simpy")
    except StalledError:
        return Outcome("stalled", notes=[message])
    return Outcome("stalled", f"only the compiled engine cannot finish: {message}")


def _compared(program: Program) -> str:
    """How the engines, or the oracle, differ on a program; "" if they do not."""
    if len(program) > MOST_ROWS:
        return ""
    fast, plain = outcome(compiled_engine, program), outcome(simpy, program)
    off = apart(plain, fast)
    if off > RELATIVE and off > MARGIN * own_spread(program):
        return f"engines differ by {off:.3g}: {plain!r} (simpy), {fast!r} (compiled)"
    plain_enough = program.paths.choices is None and not program.links.senders
    if len(program) <= MOST_ORACLE_ROWS and plain_enough and not program.instant:
        ends = row_ends(program)
        if isinstance(fast, str) or ends is None:
            return "" if isinstance(fast, str) and ends is None else "the oracle differs on an end"
        off = float((np.abs(ends - fast.end) / np.maximum(ends, 1e-300)).max(initial=0.0))
        if off > RELATIVE and off > MARGIN * own_spread(program):
            return f"the oracle differs by {off:.3g}"
    return ""


def _below_limit(resolved: ResolvedCell, size: int, seconds: float, uncertainty: float) -> str:
    """Whether a time is below what no algorithm beats."""
    limit = limit_at(resolved, size)
    if limit.bandwidth <= seconds * (1 + uncertainty + LIMIT_ROUNDING):
        return ""
    return f"{seconds!r} s is below the limit {limit.bandwidth!r} s ({limit.cut})"


def main(arguments: list[str]) -> int:
    """Check draws of many seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="say why draws have no answer")
    options = parser.parse_args(arguments)
    endings: Counter[str] = Counter()
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        scenario = drawn(seed)
        found = checked(scenario)
        endings[found.ending] += 1
        if options.verbose and found.notes:
            print(f"seed {seed}: {found.ending}: {found.notes[0][:300]}")
        if found.wrong:
            wrong += 1
            print(f"seed {seed}: {found.wrong}\n{yaml.safe_dump(scenario, sort_keys=False)}")
            sys.stdout.flush()
    print(f"{options.count} draws, {wrong} wrong; {dict(endings)}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
