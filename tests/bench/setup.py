"""python -m tests.bench.setup [--nodes N…] [--collective NAME…] [--fabric KIND…] [--profile]

What everything before the first schedule takes: building a cluster of DGX H100 and NCCL's search
on it, all rings, trees and ways, and the plans of 31 sizes (8 B to 8 GiB). Every case runs in a
process of its own; seconds of CPU and MB at the most beyond what importing takes. The exponents say
how they grow with GPUs between the two largest of `--nodes`.
"""

import argparse
import cProfile
import json
import math
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product

import numpy as np

from netsim.collectives.collective import collective_of
from netsim.nccl.choice import nccl_plan, planned
from netsim.nccl.job import NcclJob, job_of
from netsim.scenario.cells import expand
from netsim.tasks.cluster import built, wishes_of
from netsim.yamlio.read import parse_source

FLOAT = 4  # bytes
NODES = (16, 128, 512, 2048)
FABRICS = ("rail-optimized", "single-switch")
COLLECTIVES = ("all_reduce", "all_gather", "alltoall")
PARTS = ("build", "wiring", "plans", "whole", "memory")
Figures = dict[str, float]


def main() -> None:
    """Measure every case, print it, and how its family grows with the number of GPUs."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.setup", description=__doc__)
    parser.add_argument("--nodes", nargs="+", type=int, default=list(NODES), metavar="N")
    parser.add_argument("--fabric", nargs="+", default=list(FABRICS), metavar="KIND")
    parser.add_argument("--collective", nargs="+", default=list(COLLECTIVES), metavar="NAME")
    parser.add_argument("--profile", action="store_true", help="where the time goes, one case")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(_measured(*given.one)))
        return
    cases = list(product(given.fabric, given.collective))
    if given.profile:
        _profiled(*cases[0], given.nodes[0])
        return
    print(f"{'fabric':<16}{'collective':<14}{'GPUs':>7}" + "".join(f"{p:>9}" for p in PARTS))
    for fabric, collective in cases:
        found = [_process(fabric, collective, nodes) for nodes in given.nodes]
        if len(found) > 1:
            grows = [
                f"{_exponent(given.nodes, [one[part] for one in found]):9.2f}" for part in PARTS
            ]
            print(f"{'':<30}{'GPUs^':>7}{''.join(grows)}", flush=True)


def _process(fabric: str, collective: str, nodes: int) -> Figures:
    command = [sys.executable, "-m", "tests.bench.setup", "--one", fabric, collective, str(nodes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"{fabric} {collective}: {done.returncode}")
    one: Figures = json.loads(done.stdout)
    figures = "".join(f"{one[part]:9.2f}" for part in PARTS)
    print(f"{fabric:<16}{collective:<14}{8 * nodes:>7}{figures}", flush=True)
    return one


def _measured(fabric: str, collective: str, nodes: str) -> Figures:
    """Figures of one case, in this process."""
    before = _peak()
    ticks = [time.process_time()]
    for part in _parts(fabric, collective, int(nodes)):
        part()
        ticks.append(time.process_time())
    took = [later - earlier for earlier, later in pairwise(ticks)]
    whole = [*took, sum(took), _peak() - before]
    return dict(zip(PARTS, whole, strict=True))


def _parts(fabric: str, collective: str, nodes: int) -> Iterator[Callable[[], None]]:
    """The parts of one case, in order, each to be run before the next."""
    cluster = {"machine": "dgx-h100", "nodes": nodes, "fabric": {"kind": fabric}}
    sizes = {"from": "8B", "to": "8GiB", "factor": 2}
    workload = {"collective": collective, "algorithm": "auto", "sizes": sizes}
    source = parse_source(json.dumps({"cluster": cluster, "workload": workload}), "bench")
    jobs: list[NcclJob] = []

    def build() -> None:
        """The cluster, NCCL's search, and its communicator."""
        (cell,) = expand(source)
        found = built(cell).cluster
        assert found is not None
        gpus = np.arange(len(found.topology), dtype=np.int32)
        jobs.append(job_of(found, gpus, wishes_of(cell.scenario)))

    def wiring() -> None:
        """All rings, trees and ways, whatever runs."""
        found = jobs[0].wiring
        for channel, (ring, tree) in enumerate(zip(found.rings, found.trees, strict=True)):
            found.ring_routes.get((channel, ring[0], ring[1]))
            found.tree_routes.get((channel, ring[0], ring[1]))
            assert tree.up[tree.root] < 0

    def plans() -> None:
        """What NCCL decides for every size."""
        for power in range(3, 34):
            call = collective_of(collective, len(jobs[0].gpus), 2**power, FLOAT)
            planned(jobs[0], call, "float")
            nccl_plan(jobs[0], call, "float")

    yield from (build, wiring, plans)


def _profiled(fabric: str, collective: str, nodes: int) -> None:
    with cProfile.Profile() as profile:
        for part in _parts(fabric, collective, nodes):
            part()
    pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


def _exponent(nodes: Sequence[int], seconds: Sequence[float]) -> float:
    """Between the two largest: what start-up takes hides growth among small ones."""
    (few, many), (less, more) = sorted(nodes)[-2:], list(seconds)[-2:]
    return math.log(max(more, 1e-3) / max(less, 1e-3)) / math.log(many / few)


def _peak() -> float:
    """The most memory that this process has had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
