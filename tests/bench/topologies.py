"""python -m tests.bench.topologies [--gpus N…] [--fabric KIND…]: time and memory to build a fabric.

Each builds in a process of its own, on DGX H100 (gb200-nvl72 for NVLink domains), and then routes a
hundred thousand random pairs (a thousand on rings and where they are sprayed); seconds, and MB at
the most beyond what importing takes.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

from netsim.topology.cluster import build_cluster
from netsim.topology.config import ClusterConfig

PAIRS = 100_000
FEW = 1_000  # where every pair has hundreds of paths or hops
FABRICS = {
    "single-switch": {},
    "leaf-spine": {"ports": 2048},
    "fat-tree": {},
    "rail-optimized": {},
    "rail-only": {"ports": 256},
    "dual-plane": {"ports": 512},
    "dragonfly": {"routers": 32, "ports_per_router": 16, "global_links": 8},
    "torus": {},
    "ring": {},
    "nvlink-domain": {"hosts": 18, "between": {"kind": "rail-optimized"}},
    "custom": {"switches": ["s"], "links": [{"from": "node*.nic*", "to": "s"}]},
}


def main() -> None:
    """Measure every fabric at every size."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.topologies", description=__doc__)
    parser.add_argument("--gpus", nargs="+", type=int, default=[1024, 16384, 65536], metavar="N")
    parser.add_argument("--fabric", nargs="+", default=list(FABRICS), choices=list(FABRICS))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(_measured(given.one[0], int(given.one[1]))))
        return
    print(
        f"{'fabric':<16}{'GPUs':>7}{'nodes':>9}{'links':>9}{'build s':>9}{'routes s':>9}{'MB':>7}"
    )
    for kind in given.fabric:
        for gpus in given.gpus:
            command = [sys.executable, "-m", "tests.bench.topologies", "--one", kind, str(gpus)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{kind:<16}{gpus:>7}  {done.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            one = json.loads(done.stdout)
            print(
                f"{kind:<16}{gpus:>7}{one['nodes']:>9}{one['links']:>9}{one['build']:>9.2f}"
                f"{one['routes']:>9.2f}{one['memory']:>7.0f}",
                flush=True,
            )


def _measured(kind: str, gpus: int) -> dict[str, float]:
    """Figures of one fabric, built here."""
    before = _peak()
    began = time.perf_counter()
    topology = build_cluster(ClusterConfig.model_validate(_cluster(kind, gpus))).topology
    links = len(topology.links)
    built = time.perf_counter()
    pairs = FEW if kind in ("dual-plane", "ring") else PAIRS
    ends = np.random.default_rng(1).integers(0, gpus, (2, pairs)).astype(np.int32)
    topology.routes(*ends, np.zeros(pairs, np.int32))
    return {
        "nodes": len(topology.nodes),
        "links": links,
        "build": built - began,
        "routes": time.perf_counter() - built,
        "memory": _peak() - before,
    }


def _cluster(kind: str, gpus: int) -> dict[str, object]:
    """The cluster section of a fabric for so many GPUs."""
    fabric: dict[str, object] = {"kind": kind, **FABRICS[kind]}
    machine, each = ("gb200-nvl72", 4) if kind == "nvlink-domain" else ("dgx-h100", 8)
    hosts = gpus // each
    if kind == "torus":
        side = 2 ** (hosts.bit_length() // 3)
        fabric["dims"] = [side, side, hosts // side**2]
    return {"machine": machine, "nodes": hosts, "fabric": fabric}


def _peak() -> float:
    """The most memory that this process has had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
