"""python -m tests.bench.kills [--times N] [--seed S] [--kind KIND…]: verbs killed at random.

Every time a verb is started, something of it is killed at a random moment, perhaps again while it
is resumed (or begun again, where there is nothing to resume), and at the end every file must have
the bytes of an uninterrupted run (the journal and the wall times apart), with nothing beside them
and no process left behind. A verb of which only workers were killed has to end well by itself.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.cluster import Cluster
from tests.bench.victims import RESUMED, Sweep, Wrong

SCENARIO = """\
name: killed
cluster:
  graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}
workload: {collective: all_reduce, algorithm: ring, sizes: [64KiB, 1MiB, 16MiB]}
sweep:
  cluster.graph.gpus: [8, 10, 12, 14, 16, 18, 20, 22]
  workload.algorithm: [ring, tree]
  base: {workload.algorithm: ring}
  seeds: 2
outputs: [csv, plots]
"""
HEADER = (
    "size_bytes,count,dtype,redop,root,oop_time_us,oop_algbw_gbps,oop_busbw_gbps,"
    "ip_time_us,ip_algbw_gbps,ip_busbw_gbps\n"
)
ENTRY = """\
- id: run{number}
  file: run.csv
  collective: all_reduce
  healthy: 'yes'
  nccl: 2.20.3
  topology: {{machine: dgx-h100, nodes: {nodes}, gpus_per_node: 8}}
"""
SIZES = [1 << n for n in range(10, 27, 4)]


def given() -> dict[str, str]:
    """The files that verbs are asked with."""
    rows = [
        f"{size},{size // 4},float,sum,-1,{30 + size / 2e5},,,{30 + size / 2e5},," for size in SIZES
    ]
    entries = [ENTRY.format(number=nodes, nodes=nodes) for nodes in range(1, 6)]
    log = "\n".join(
        f"{size:12d} {size // 4:12d}     float     sum      -1 {time:8.2f}   1.00   1.00      0"
        f" {time:8.2f}   1.00   1.00      0"
        for size, time in ((size, 30 + size / 2e5) for size in SIZES)
    )
    return {
        "killed.yaml": SCENARIO,
        "run.csv": HEADER + "\n".join(rows) + "\n",
        "index.yaml": "".join(entries),
        "run.log": LOG + log + "\n",
    }


LOG = (
    "# nThread 1 nGpus 1 minBytes 1024 maxBytes 67108864 step: 4(factor) warmup: 5 iters: 20\n"
    "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
)
VERBS = ("optimize", "accuracy", "calibrate", "report")
KINDS = ("one", "jobs", "dask", *VERBS)
WITH_WORKERS = ("jobs", "accuracy", "calibrate", "report")
PARTS = ("it", "its group", "a worker", "what workers are forked from")
SIGNALS = ("KILL", "TERM", "INT")


def local(sweep: Sweep, rng: random.Random, kind: str) -> str:
    """Kill a verb on this machine, or one of its workers."""
    options = ("--jobs", 2) if kind in WITH_WORKERS else ()
    told = []
    for number in range(rng.randint(1, 2)):
        again = ("--resume",) if number and sweep.verb in RESUMED else ()
        process = sweep.start(*options, *again)
        after = rng.uniform(0.1, 1.0) * sweep.seconds
        name = rng.choice(SIGNALS)
        whom = rng.choice(PARTS if kind in WITH_WORKERS else PARTS[:2])
        told.append(f"{name} to {whom} after {after:.2f} s: {process.hurt(name, whom, after)}")
    sweep.finish(*options, resume=True)
    return "; ".join(told)


def on_dask(sweep: Sweep, rng: random.Random, cluster: Cluster) -> str:
    """Kill the client of a Dask cluster, a worker of it, or the scheduler."""
    whom = rng.choice(("client", "worker", "worker", "scheduler"))
    after = rng.uniform(0.1, 1.0) * sweep.seconds
    process = sweep.start("--dask", cluster.address)
    if whom == "client":
        name = rng.choice(SIGNALS)
        told = f"{name} to the client after {after:.2f} s: {process.hurt(name, 'it', after)}"
    elif whom == "worker":
        time.sleep(after)
        cluster.replace_worker(rng.randrange(2))
        code = process.wait()
        told = f"KILL to a worker after {after:.2f} s: {code}"
        if code:
            raise Wrong(f"{told}: {process.said}")
    else:
        time.sleep(after)
        cluster.replace_scheduler()
        code = process.wait()
        told = f"KILL to the scheduler after {after:.2f} s: {code}"
        if code not in (0, 2) or (code and process.said.count("\n") > 1):
            raise Wrong(f"{told}: {process.said}")
    sweep.finish("--dask", cluster.address, resume=True)
    return told


def rounds(kinds: list[str], times: int, seed: int, folder: Path) -> int:
    """All rounds; the number of those that went wrong."""
    verbs = {kind if kind in VERBS else "run" for kind in kinds}
    sweeps = {verb: Sweep(folder / verb, given(), verb) for verb in sorted(verbs)}
    for verb, sweep in sweeps.items():
        print(f"{verb} left alone: {sweep.seconds:.1f} s, {len(sweep.whole)} files", flush=True)
    cluster = Cluster(folder) if "dask" in kinds else None
    wrong = 0
    try:
        for number in range(times):
            rng = random.Random(seed + number)
            kind = kinds[number % len(kinds)]
            sweep = sweeps[kind if kind in VERBS else "run"]
            sweep.forget()
            work: Callable[[], str] = (
                (lambda s=sweep, r=rng: on_dask(s, r, cluster))  # type: ignore[misc]
                if kind == "dask" and cluster is not None
                else (lambda s=sweep, r=rng, k=kind: local(s, r, k))  # type: ignore[misc]
            )
            try:
                told = work()
                sweep.compare()
                print(f"{seed + number:>6} {kind:<5} same bytes  {told}", flush=True)
            except Wrong as error:
                wrong += 1
                print(f"{seed + number:>6} {kind:<5} WRONG       {error}", flush=True)
    finally:
        if cluster is not None:
            cluster.stop()
    return wrong


def main() -> None:
    """Kill, resume, compare; exit code 1 where something differed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.kills", description=__doc__)
    parser.add_argument("--times", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--kind", nargs="+", default=list(KINDS), choices=KINDS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = rounds(given.kind, given.times, given.seed, Path(folder))
    print(f"{given.times - wrong} of {given.times} ended with the bytes of an uninterrupted run")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
