"""Golden texts of the open benchmark: its questions in both formats, and the table of a score.

The times are made up, so that no constant of the model changes these texts."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from netsim.measured.benchmark import (
    Benchmark,
    benchmark_of,
    parse_predictions,
    questions_csv,
    questions_yaml,
)
from netsim.measured.benchmark_score import score_lines, score_of
from netsim.measured.compare import ALL
from netsim.measured.index import read_index
from netsim.measured.noise_floor import BandNoise
from netsim.results.row import BANDS

Writer = Callable[[], list[str]]

INDEX = """
- id: one_host
  system: lab
  file: one_host.csv
  gpu: NVIDIA H100 80GB HBM3
  topology: {machine: dgx-h100, nodes: 1, gpus_per_node: 8}
  collective: all_reduce
  nccl: 2.26.2
  env: {NCCL_ALGO: Ring}
  launch: single_process
  command: all_reduce_perf -b 8 -e 1G -g 8
  healthy: 'yes'
  date: '2026-03'
- id: four_hosts
  system: cloud
  file: four_hosts.csv
  gpu: NVIDIA A100-SXM4-80GB
  topology: {machine: dgx-a100, nodes: 4, gpus_per_node: 8, transport: roce, nics_per_node: 8,
    nic_gbps: 200}
  collective: broadcast
  nccl: unknown (CUDA 12.2)
  launch: unknown
  healthy: 'yes'
"""
TABLES = {
    "one_host": "8,2,float,sum,-1,20,,,19,,\n2097152,524288,float,sum,-1,60,,,61,,\n",
    "four_hosts": "131072,32768,half,none,0,90,,,,,\n1073741824,0,half,none,0,9000,,,,,\n",
}
COLUMNS = (
    "size_bytes,count,dtype,redop,root,oop_time_us,oop_algbw_gbps,oop_busbw_gbps,"
    "ip_time_us,ip_algbw_gbps,ip_busbw_gbps\n"
)
PREDICTIONS = """run,size_bytes,time_us,time_low_us,time_high_us
one_host,8,22.8,18,25
one_host,2097152,54,50,58
four_hosts,131072,,,
four_hosts,1073741824,18000,15000,20000
"""
NOISE = {
    **{band: BandNoise(0.014, 0.01, 40, 4) for band in BANDS[:2]},
    ALL: BandNoise(0.007, 0.005, 60, 4),
}


@cache
def benchmark() -> Benchmark:
    """A benchmark of two runs on two systems."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "index.yaml"
        path.write_text(INDEX, encoding="utf-8")
        for name, rows in TABLES.items():
            (path.parent / f"{name}.csv").write_text(COLUMNS + rows, encoding="utf-8")
        return benchmark_of(read_index(path))


def score() -> list[str]:
    """The table of predictions of which one is missing."""
    predictions = parse_predictions(PREDICTIONS, "predictions.csv", benchmark())
    heading = (
        "The score of made-up predictions: 20 % too slow, 10 % too fast, none, 100 % too slow."
    )
    return [heading, "", *score_lines(score_of(predictions, benchmark(), NOISE))]


WRITERS: dict[str, Writer] = {
    "benchmark/questions-csv": lambda: questions_csv(benchmark()).splitlines(),
    "benchmark/questions-yaml": lambda: questions_yaml(benchmark()).splitlines(),
    "benchmark/score": score,
}
