"""python -m tests.bench.paired BEFORE [NOW] [--runs N]: processor seconds and memory of two trees.

BEFORE and NOW (default: this one) are folders of checkouts. Each question runs in processes of its
own, in turn on both trees, from a folder of neither. Printed are the medians of processor seconds
and the most memory, with the ratios of NOW to BEFORE.
"""

import argparse
import os
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench.measure import process_use

QUESTIONS = {
    "tree on 512 GPUs, dead NIC, 1 GiB": (
        "dgx-h100 all_reduce --nodes 64 --algo Tree --sizes 1G "
        "--set 'cluster.faults=[{nic: node8.nic3}]'"
    ),
    "ring on 1,024 GPUs, 1 GiB": "dgx-h100 all_reduce --nodes 128 --algo Ring --sizes 1G",
    "auto on 1,024 GPUs, two sizes": "dgx-h100 all_reduce --nodes 128 --sizes 8M,1G",
    "alltoall on 512 GPUs, 64 MiB": "dgx-h100 alltoall --nodes 64 --sizes 64M",
    "alltoall on 256 GPUs, hashed": (
        "dgx-h100 alltoall --nodes 32 --fabric leaf-spine --transport roce "
        "--set cluster.fabric.routing=ecmp --sizes 16M"
    ),
    "textbook ring on 8,192 GPUs": "dgx-h100 all_reduce --nodes 1024 --algo ring --sizes 1G",
    "two queue pairs, 4 GiB": (
        "dgx-h100 all_reduce --nodes 128 --transport roce --nic 400Gbps --algo Ring --proto LL128 "
        "--nccl 2.26 --env NCCL_MIN_NCHANNELS=32 --env NCCL_IB_QPS_PER_CONNECTION=2 --sizes 4G"
    ),
}


def used_by(question: str, tree: Path) -> tuple[float, float]:
    """Processor seconds and megabytes of one process that answers a question."""
    command = [sys.executable, "-m", "netsim", "expect", *shlex.split(question)]
    with tempfile.TemporaryDirectory() as folder:
        return process_use(command, Path(folder), {**os.environ, "PYTHONPATH": str(tree)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("now", type=Path, nargs="?", default=Path.cwd())
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    trees = arguments.before.resolve(), arguments.now.resolve()
    for name, question in QUESTIONS.items():
        runs = [[used_by(question, tree) for tree in trees] for _ in range(arguments.runs)]
        seconds = [statistics.median(run[side][0] for run in runs) for side in (0, 1)]
        memory = [max(run[side][1] for run in runs) for side in (0, 1)]
        print(
            f"{name:34} {seconds[0]:7.2f} s {seconds[1]:7.2f} s x{seconds[1] / seconds[0]:.2f}"
            f"  {memory[0]:6.0f} MB {memory[1]:6.0f} MB x{memory[1] / memory[0]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
