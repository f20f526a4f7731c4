"""python -m tests.bench.cliffs [--seed N] [--count N] [--case N…]: settings that cost far more.

Draws cases on 1,024 GPUs: a collective and a size, one or two settings that people change (NCCL's
variables, forced algorithms and protocols, launch styles, faults, placements, versions), on rails,
on hashed leaf and spine switches, or on a dragonfly. Every case runs as a process of its own within
60 s of processor time. Printed are the cases that are refused, or that take over 60 s or 4 GB, each
with its reason, and how the others spread. Aim: at most 5 of 100 cases.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.same.draw import Draw
from tests.same.workloads import WITH_PROTOCOL

Mapping = dict[str, Any]

MOST_SECONDS = 60.0
MOST_BYTES = 4e9
GPUS = 1024
MOST_OF_MESSAGE = 400
FABRICS: tuple[tuple[str, Mapping], ...] = (
    ("rails", {"kind": "rail-optimized"}),
    ("hashed", {"kind": "leaf-spine", "transport": "roce", "routing": "ecmp"}),
    (
        "hashed 2:1",
        {"kind": "leaf-spine", "oversubscription": 2, "transport": "roce", "routing": "ecmp"},
    ),
    ("dragonfly", {"kind": "dragonfly"}),
)
MACHINES = (
    ("dgx-h100", 8),
    ("dgx-h100", 8),
    ("dgx-a100", 8),
    ("dgx-b200", 8),
    ("hgx-h200", 8),
    ("a100-x4", 4),
    ("gh200-x4", 4),
)
WITH_NVLS = ("dgx-h100", "dgx-b200", "hgx-h200")
COLLECTIVES = (
    "all_reduce",
    "all_reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "sendrecv",
)
SIZES = ("1KiB", "64KiB", "1MiB", "8MiB", "64MiB", "256MiB", "1GiB", "4GiB", "16GiB")
ALGORITHMS = {
    "all_reduce": ("Ring", "Ring", "Tree", "Tree", "NVLSTree"),
    "all_gather": ("Ring",),
    "reduce_scatter": ("Ring",),
}
PROTOCOLS = ("LL", "LL128", "Simple")
VARIABLES: tuple[Mapping, ...] = (
    {"NCCL_ALGO": "^Tree"},
    {"NCCL_PROTO": "^LL128"},
    {"NCCL_MIN_NCHANNELS": 32},
    {"NCCL_MIN_NCHANNELS": 16},
    {"NCCL_MAX_NCHANNELS": 2},
    {"NCCL_MAX_CTAS": 8},
    {"NCCL_NCHANNELS_PER_NET_PEER": 1},
    {"NCCL_NCHANNELS_PER_NET_PEER": 4},
    {"NCCL_MAX_P2P_NCHANNELS": 4},
    {"NCCL_MIN_P2P_NCHANNELS": 16},
    {"NCCL_NVLS_ENABLE": 0},
    {"NCCL_NVLS_NCHANNELS": 8},
    {"NCCL_PAT_ENABLE": 0},
    {"NCCL_NTHREADS": 256},
    {"NCCL_BUFFSIZE": 1048576},
    {"NCCL_BUFFSIZE": 16777216},
    {"NCCL_LL128_BUFFSIZE": 262144},
    {"NCCL_P2P_DISABLE": 1},
    {"NCCL_NET_GDR_LEVEL": "LOC"},
    {"NCCL_PXN_DISABLE": 1},
    {"NCCL_CROSS_NIC": 1},
    {"NCCL_CROSS_NIC": 0},
    {"NCCL_IB_QPS_PER_CONNECTION": 2},
    {"NCCL_IB_QPS_PER_CONNECTION": 4},
    {"NCCL_IB_QPS_PER_CONNECTION": 4, "NCCL_IB_SPLIT_DATA_ON_QPS": 1},
    {"NCCL_IB_DISABLE": 1},
    {"NCCL_P2P_NET_CHUNKSIZE": 524288},
    {"NCCL_P2P_NET_CHUNKSIZE": 65536},
    {"NCCL_IB_HCA": "^=mlx5_0"},
)
VERSIONS = ("2.14", "2.18", "2.20", "2.21.5", "2.23", "2.26", "2.28")
LAUNCHES: tuple[Any, ...] = ("cuda_graph", "process_per_gpu", {"host": "9us"})
FAULTS: tuple[Mapping, ...] = (
    {"nic": "node8.nic3"},
    {"link": "node5.nic1-*", "bandwidth": "50%"},
    {"gpu": "node3.gpu2", "slowdown": 1.5},
    {"link": "node7.nic*-*", "latency": "2us"},
)


@dataclass(frozen=True)
class Outcome:
    """What a case took."""

    case: int
    title: str
    seconds: float
    megabytes: float
    error_pct: float
    refusal: str

    @property
    def is_cliff(self) -> bool:
        """Whether it was refused, or took too long or too much memory."""
        too_large = self.megabytes * 1e6 > MOST_BYTES
        return bool(self.refusal) or self.seconds > MOST_SECONDS or too_large


def drawn_case(seed: int, number: int) -> tuple[str, Mapping]:
    """A case by its number: its title and its scenario."""
    draw = Draw("cliffs", seed, number)
    machine, gpus_per_node = draw.choose(MACHINES)
    fabric_name, fabric = draw.choose(FABRICS)
    collective = draw.choose(COLLECTIVES)
    size = draw.choose(SIZES)
    cluster: Mapping = {"machine": machine, "nodes": GPUS // gpus_per_node, "fabric": dict(fabric)}
    work: Mapping = {"collective": collective, "sizes": [size]}
    scenario: Mapping = {"cluster": cluster, "workload": work, "nccl": {}, "outputs": ["csv"]}
    kinds = ["variable"] * 5 + ["algorithm", "algorithm", "launch", "fault", "placement", "version"]
    chosen = draw.sample(kinds, draw.choose((1, 2, 2)))
    settings = [_set(draw, kind, scenario, collective) for kind in chosen]
    if "algorithm" in work:
        scenario["nccl"].get("env", {}).pop("NCCL_ALGO", None)  # one of them may say it
    title = f"{collective} {size}, {machine}, {fabric_name}: {', '.join(settings)}"
    return title, scenario


def _set(draw: Draw, kind: str, scenario: Mapping, collective: str) -> str:
    """Change one setting of a scenario, and return how it is written."""
    cluster, work, nccl = scenario["cluster"], scenario["workload"], scenario["nccl"]
    if kind == "variable":
        variables = draw.choose(VARIABLES)
        nccl.setdefault("env", {}).update(variables)
        return " ".join(f"{name}={value}" for name, value in variables.items())
    if kind == "algorithm":
        if collective in ALGORITHMS and draw.happens(0.7):
            work["algorithm"] = draw.choose(ALGORITHMS[collective])
        if collective in WITH_PROTOCOL and draw.happens(0.5):
            work["protocol"] = draw.choose(PROTOCOLS)
        if work.get("algorithm") == "NVLSTree":
            work.pop("protocol", None)  # it has Simple only
            if cluster["machine"] not in WITH_NVLS:
                work["algorithm"] = "Tree"
        return " ".join(work[key] for key in ("algorithm", "protocol") if key in work) or "default"
    if kind == "launch":
        scenario["launch"] = draw.choose(LAUNCHES)
        return f"launch {scenario['launch']}"
    if kind == "fault":
        fault = dict(draw.choose(FAULTS))
        cluster["faults"] = [fault]
        return " ".join(f"{key} {value}" for key, value in fault.items())
    if kind == "placement":
        cluster["placement"] = draw.choose(("spread", "random"))
        return f"placement {cluster['placement']}"
    nccl["version"] = draw.choose(VERSIONS)
    return f"NCCL {nccl['version']}"


def outcome(case: int, title: str, scenario: Mapping) -> Outcome:
    """Run a case as a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "case.yaml").write_text(yaml.safe_dump(scenario), encoding="utf-8")
        run = [sys.executable, "-m", "netsim", "run", str(folder / "case.yaml")]
        run += ["--jobs", "1", "--quiet", "-o", str(folder / "results")]
        limit = f'ulimit -t {MOST_SECONDS + 1:.0f}; exec "$@"'
        command = ["bash", "-c", limit, "bash", *run]
        with (folder / "messages").open("w+") as messages:
            process = subprocess.Popen(command, stdout=messages, stderr=messages)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            messages.seek(0)
            message = re.sub(r"\s+", " ", messages.read().strip())[-MOST_OF_MESSAGE:]
        refusal, error_pct = "", 0.0
        if process.returncode < 0:
            refusal = f"stopped by signal {-process.returncode}"
        elif process.returncode:
            refusal = message or f"exit code {process.returncode}"
        else:
            with (folder / "results" / "results.csv").open(encoding="utf-8") as file:
                error_pct = float(next(csv.DictReader(file))["approximation_pct"] or 0.0)
    seconds = used.ru_utime + used.ru_stime
    return Outcome(case, title, seconds, used.ru_maxrss * 1024 / 1e6, error_pct, refusal)


def main() -> None:
    """Run the cases and print what is far from the others."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cliffs", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, default=300, help="cases")
    parser.add_argument("--case", type=int, nargs="+", help="only these")
    parser.add_argument("--show", action="store_true", help="print the scenarios, run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add outcomes, a line each")
    given = parser.parse_args()
    outcomes = []
    for number in given.case or range(given.first, given.first + given.count):
        title, scenario = drawn_case(given.seed, number)
        if given.show:
            print(f"# {number}: {title}\n{yaml.safe_dump(scenario)}")
            continue
        one = outcome(number, title, scenario)
        outcomes.append(one)
        if given.json:
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(one)) + "\n")
        if one.is_cliff or given.case:
            print(_line(one), flush=True)
    if outcomes:
        _print_summary(outcomes)


def _line(one: Outcome) -> str:
    took = f"{one.seconds:.1f} s, {one.megabytes:,.0f} MB"
    stated = "exact" if not one.error_pct else f"within {one.error_pct:.2g} %"
    return f"{one.case:>4} {one.title}\n     {took}; {one.refusal or stated}"


def _print_summary(outcomes: list[Outcome]) -> None:
    cliffs = sum(one.is_cliff for one in outcomes)
    answered = [one for one in outcomes if not one.is_cliff]
    print(f"{cliffs} of {len(outcomes)} cases ({cliffs / len(outcomes):.1%}) are cliffs")
    if answered:
        for name, values in (
            ("seconds", [one.seconds for one in answered]),
            ("MB", [one.megabytes for one in answered]),
            ("stated error, %", [one.error_pct for one in answered]),
        ):
            print(f"{name}: {_spread(values)}")


def _spread(values: list[float]) -> str:
    """The median, the ninth decile and the largest of some values."""
    ordered = sorted(values)
    middle, high = ordered[len(ordered) // 2], ordered[int(0.9 * len(ordered))]
    return f"median {middle:.3g}, nine of ten below {high:.3g}, largest {ordered[-1]:.3g}"


if __name__ == "__main__":
    main()
