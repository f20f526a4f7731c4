"""python -m tests.bench.sweeps [--case NAME…]: how fast sweeps are, and what is made of them.

Every case is one command, with all the processes that it starts: seconds on the clock, seconds of
CPU of all of them (which other work on the machine changes less), and MB of the largest.
"""

import argparse
import csv
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from netsim.results.row import Row, csv_text
from netsim.scenario.cells import expand_all
from netsim.sweep.summary import about
from netsim.yamlio.read import parse_source
from tests.bench.processes import Cost, netsim

CELLS = 500

NCCL = """\
name: nccl
cluster: {machine: dgx-h100}
workload: {collective: all_reduce, sizes: {from: 8B, to: 8GiB, factor: 2}}
outputs: [csv]
sweep:
  nccl.version: ["2.18", "2.19", "2.20", "2.21", "2.22", "2.23", "2.24", "2.25", "2.26", "2.27"]
  workload.dtype: [float, half]
  workload.algorithm: [auto, Ring, Tree, NVLS, ring]
  launch: [process_per_gpu, single_process, {style: process_per_gpu, host: 2us},
           {style: process_per_gpu, host: 4us}, cuda_graph]
"""
# No two cells have anything in common: every one has a topology and channels of its own.
FRESH = """\
name: fresh
cluster: {machine: dgx-h100, overrides: [{machine: {scale_up: {link_bandwidth: 25GB/s}}}]}
workload: {collective: all_reduce, sizes: {from: 8B, to: 8GiB, factor: 2}}
outputs: [csv]
sweep:
  nccl.env.NCCL_MAX_NCHANNELS: [1, 2, 3, 4, 6, 8, 12, 16, 20, 24]
  workload.protocol: [LL128, Simple]
  cluster.overrides.0.machine.scale_up.link_bandwidth: {from: 16GB/s, to: 28GB/s, step: 0.5GB/s}
"""
TEXTBOOK = """\
name: textbook
cluster: {graph: {kind: switch, gpus: 8, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: {from: 8B, to: 8GiB, factor: 2}}
outputs: [csv]
sweep:
  cluster.graph.bandwidth: {from: 10GB/s, to: 500GB/s, step: 10GB/s}
  cluster.graph.latency: {from: 0.5us, to: 5us, step: 0.5us}
"""
# One size of a collective that takes next to nothing: what is left is the overhead of a cell.
SMALL = TEXTBOOK.replace("gpus: 8", "gpus: 2").replace("{from: 8B, to: 8GiB, factor: 2}", "[1KiB]")
CHECKED = """\
name: checked
cluster: {machine: dgx-h100, nodes: 2, fabric: {kind: rail-optimized}}
workload: {collective: all_reduce}
sweep:
  workload.dtype: [float, half]
  workload.algorithm: [auto, Ring, Tree, NVLSTree, ring]
  nccl.version: ["2.23", "2.27"]
  cluster.nodes: [2, 8, 32, 128]
  cluster.fabric.nic: [100Gbps, 200Gbps, 400Gbps]
  cluster.fabric.latency: {from: 0.5us, to: 2.5us, step: 0.5us}
"""
LARGE = TEXTBOOK.replace("to: 5us, step: 0.5us", "to: 32.5us, step: 0.5us")  # 50 · 65 cells


def _run(folder: Path, text: str, *options: object) -> Cost:
    (folder / "sweep.yaml").write_text(text)
    return netsim(folder, "run", "sweep.yaml", "-q", "-o", "out", *options)


def _sweep(text: str, *options: object) -> Callable[[Path], Cost]:
    def case(folder: Path) -> Cost:
        cost = _run(folder, text, *options)
        with (folder / "out/results.csv").open(newline="") as file:
            bad = [row["error"] for row in csv.DictReader(file) if row["status"] != "ok"]
        if bad:
            raise SystemExit(f"{len(bad)} rows failed: {bad[0]}")
        return cost

    return case


def _check(folder: Path) -> Cost:
    (folder / "sweep.yaml").write_text(CHECKED)
    return netsim(folder, "check", "sweep.yaml")


def _made_up(folder: Path, text: str) -> int:
    """The folder of a sweep without the time that it would take; the number of its rows."""
    source = parse_source(text, "sweep.yaml")
    (folder / "sweep.yaml").write_text(text)
    expansion, rows = expand_all(source), []
    for place, cell in enumerate(expansion.cells):
        for size in cell.scenario.workload.size_list():
            seconds = 1e-5 * (1 + place % 50) + size / (1 + place // 50) / 1e9
            rate = size / seconds / 1e9
            rows.append(
                Row(
                    scenario="textbook",
                    cell=cell.id,
                    topology="switch",
                    ranks=8,
                    nodes=1,
                    workload="collective",
                    collective="all_reduce",
                    algorithm="ring",
                    dtype="float",
                    size_bytes=size,
                    time_us=seconds * 1e6,
                    algbw_GBps=rate,
                    busbw_GBps=rate * 1.75,
                    axes=cell.axes,
                )
            )
    out = folder / "out"
    out.mkdir()
    (out / "results.csv").write_text(csv_text(rows, expansion.sweep.names))
    manifest = about(expansion, folder / "sweep.yaml", [], "compiled")
    (out / "run.json").write_text(json.dumps({"scenario": "textbook", **manifest}, default=str))
    return len(rows)


def _plot(folder: Path) -> Cost:
    rows = _made_up(folder, LARGE)
    assert rows >= 100_000
    return netsim(folder, "plot", "out")


def _report(folder: Path) -> Cost:
    _made_up(folder, TEXTBOOK)
    cost = netsim(folder, "report", "out")
    size = (folder / "out/report.html").stat().st_size / 1e6
    print(f"    report.html: {size:.2f} MB")
    return cost


CASES: dict[str, tuple[str, Callable[[Path], Cost]]] = {
    "nccl": (f"{CELLS} cells of 8 H100, 31 sizes each", _sweep(NCCL, "--jobs", 2)),
    "fresh": (f"{CELLS} such cells without anything in common", _sweep(FRESH, "--jobs", 2)),
    "textbook": (f"{CELLS} cells on one switch, 31 sizes each", _sweep(TEXTBOOK, "--jobs", 2)),
    "overhead": (f"{CELLS} cells of next to nothing", _sweep(SMALL)),
    "check": ("check 1,200 cells of up to 128 hosts", _check),
    "plot": ("plot 100,750 rows", _plot),
    "report": (f"report of {CELLS} cells", _report),
}


def _measured(names: list[str]) -> Iterator[str]:
    for name in names:
        title, case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            cost = case(Path(folder))
        cells = name in ("nccl", "fresh", "textbook", "overhead")
        per = f"{cost.cpu_s / CELLS * 1e3:8.1f} ms" if cells else " " * 11
        yield (
            f"{name:<10}{cost.wall_s:9.1f} s {cost.cpu_s:9.1f} s {per} {cost.peak_mb:9.0f} MB"
            f"   {title}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sweeps", description=__doc__)
    parser.add_argument("--case", nargs="+", default=list(CASES), choices=list(CASES))
    print(f"{'case':<10}{'wall':>11} {'CPU':>11} {'CPU a cell':>11} {'largest':>12}")
    for line in _measured(parser.parse_args().case):
        print(line, flush=True)


if __name__ == "__main__":
    main()
