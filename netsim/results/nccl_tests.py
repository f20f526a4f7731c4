"""Rows in the formats of nccl-tests 2.19, text and JSON, for programs that read its logs.

The only addition is the first line, which says that the figures are simulated. The column `#wrong`
is 0, which nccl-tests prints if all values are right: nccl-tests checks values unless -c 0 is
given, and scripts take any other text as a failure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import pairwise
from typing import Any

from netsim.base.files import csv_of, table_beside
from netsim.base.startup import __version__
from netsim.base.values import dataclass
from netsim.results.row import Row
from netsim.schedule.repeat import ITERATIONS, OverProcesses

TESTS_VERSION = "2.19.6"  # the version of nccl-tests whose layout is written
ROOTED = ("broadcast", "reduce", "gather", "scatter")
# Collectives for which nccl-tests prints a reduction.
REDUCING = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")
DEFAULT_STEP = 2**20
WARMUP = 1
# How the times of all processes are combined, by the number that option `-a` takes.
AVERAGES = ("first", "mean", "min", "max")
OUT_OF_PLACE = "time_us"
IN_PLACE = "inplace_time_us"
# Collectives whose values nccl-tests does not check in place, where it prints N/A (reportErrors in
# src/alltoall.cu, src/alltoallv.cu and src/sendrecv.cu).
UNCHECKED_IN_PLACE = ("alltoall", "alltoallv", "sendrecv")


@dataclass(frozen=True)
class Device:
    """One rank in the list `Using devices`; fields have the names of the JSON layout (-J)."""

    rank: int
    group: int
    pid: int
    hostname: str
    device: int
    device_hex: str
    device_info: str


@dataclass(frozen=True)
class TestRun:
    """One run of a test: the values of its header. `n_gpus` is the number of GPUs of one process.

    `requested` are the smallest and the largest requested size in bytes (-b and -e); if None, those
    of `sizes` are taken. The requested largest may be above all sizes if no step ends at it.
    `started` and `ended` are times of day for the JSON, as `%Y-%m-%d %H:%M:%S`.
    """

    __test__ = False  # pytest would take a class of this name for a test

    collective: str
    sizes: tuple[int, ...]
    devices: tuple[Device, ...]
    n_gpus: int = 1
    nccl_code: int | None = None  # 23007 for 2.30.7
    cuda_graph: bool = False
    root: int = 0
    dtype: str = "float"
    variables: tuple[tuple[str, str], ...] = ()
    requested: tuple[int, int] | None = None
    started: str | None = None
    ended: str | None = None
    iterations: int = ITERATIONS
    over_processes: OverProcesses = "mean"

    @property
    def smallest(self) -> int:
        """The smallest requested size in bytes."""
        return min(self.sizes) if self.requested is None else self.requested[0]

    @property
    def largest(self) -> int:
        """The largest requested size in bytes."""
        return max(self.sizes) if self.requested is None else self.requested[1]

    @property
    def test(self) -> str:
        """The name of the program, such as `all_reduce_perf`."""
        return f"{self.collective}_perf"

    @property
    def factor(self) -> int | None:
        """The factor by which the sizes grow, or None if they do not grow by one factor."""
        return _common([b // a if a and b % a == 0 else 0 for a, b in pairwise(self.sizes)])

    @property
    def step(self) -> int:
        """The bytes by which the sizes grow; 0 if they do not grow by equal steps."""
        if len(self.sizes) == 1:
            return DEFAULT_STEP
        return _common([b - a for a, b in pairwise(self.sizes)]) or 0


def opening(run: TestRun) -> str:
    """The comment lines of a log above the rows."""
    libraries = f" nccl-headers={run.nccl_code} nccl-library={run.nccl_code}"
    step = f"{run.factor}(factor)" if run.factor else f"{run.step}(bytes)"
    return "\n".join(
        [
            f"# simulated by netsim {__version__}, not measured",
            f"# nccl-tests version {TESTS_VERSION}{libraries if run.nccl_code else ''}",
            f"# Collective test starting: {run.test}",
            f"# nThread 1 nGpus {run.n_gpus} minBytes {run.smallest} maxBytes {run.largest} "
            f"step: {step} warmup iters: {WARMUP} iters: {run.iterations} agg iters: 1 "
            f"validation: 1 graph: {int(run.cuda_graph)} unalign: 0",
            "#",
            "# Using devices",
            *(_device_line(device) for device in run.devices),
            "#",
            *COLUMN_LINES,
        ]
    )


def line(row: Row, root: int = 0) -> str:
    """The line of a log for one row; a row that could not be simulated becomes a comment."""
    if row.status != "ok":
        return f"# {row.size_bytes} B: {row.error}"
    redop = redop_of(row.collective)
    shown = root_of(row.collective, root)
    fixed = f"{row.size_bytes:>12}  {row.count:>12}  {row.dtype:>8}  {redop:>6}  {shown:>6}"
    return fixed + _half_text(row, OUT_OF_PLACE) + _half_text(row, IN_PLACE)


def _half_text(row: Row, which: str) -> str:
    """Time, bandwidths and `#wrong` of a row as text, for one half: out of place or in place.

    `which` is the field of Row with the half's time.
    """
    time, algbw, busbw = half(row, which)
    # One blank less before N/A, as in nccl-tests (src/util.cu, writeBenchmarkLineBody).
    wrong = f"  {0:>6}" if _is_checked(row, which) else "    N/A"
    return f"  {microseconds(time):>7}  {algbw:>6.2f}  {busbw:>6.2f}{wrong}"


def _is_checked(row: Row, which: str) -> bool:
    """Whether nccl-tests checks the values of a half (`which`), and so prints how many
    are wrong.
    """
    return which == OUT_OF_PLACE or row.collective not in UNCHECKED_IN_PLACE


def closing(run: TestRun, rows: Sequence[Row]) -> str:
    """The comment lines of a log below the rows."""
    return "\n".join(
        [
            "# Out of bounds values : 0 OK",
            f"# Avg bus bandwidth    : {average_busbw(rows):g} ",
            "#",
            f"# Collective test concluded: {run.test}",
        ]
    )


def half(row: Row, which: str) -> tuple[float, float, float]:
    """Time (µs), algorithm bandwidth and bus bandwidth (GB/s) of a row, out of place or in place.

    `which` is the field of Row with that time. nccl-tests also runs alltoall and sendrecv "in
    place", which repeats the same transfers.
    """
    time = getattr(row, which)
    if time is None:
        time = row.time_us or 0.0
    if time <= 0 or not row.time_us or row.algbw_GBps is None or row.busbw_GBps is None:
        return time, 0.0, 0.0
    return time, row.algbw_GBps * row.time_us / time, row.busbw_GBps * row.time_us / time


def average_busbw(rows: Sequence[Row]) -> float:
    """The mean in GB/s of all bus bandwidths that a log of the rows prints."""
    good = [row for row in rows if row.status == "ok"]
    printed = [half(row, which)[2] for row in good for which in (OUT_OF_PLACE, IN_PLACE)]
    return sum(printed) / len(printed) if printed else 0.0


def redop_of(collective: str) -> str:
    """The reduction that nccl-tests prints for a collective."""
    return "sum" if collective in REDUCING else "none"


def root_of(collective: str, root: int) -> int:
    """The root that nccl-tests prints; -1 for collectives without one."""
    return root if collective in ROOTED else -1


def microseconds(time: float) -> str:
    """A time in microseconds as nccl-tests prints it: with up to two decimals in seven
    characters."""
    for decimals in (2, 1):
        text = f"{time:.{decimals}f}"
        if len(text) <= 7:
            return text
    return f"{time:.0f}"


@cache
def _device_names() -> Mapping[str, str]:
    """The names by which the driver lists GPUs, by their model in the presets."""
    return {row["model"]: row["name"] for row in table_beside(__file__, "device_names.csv")}


def device_name(model: str) -> str:
    """The name by which the driver lists a GPU (`NVIDIA H100 80GB HBM3`), or else the model."""
    return _device_names().get(model, model)


def _device_line(device: Device) -> str:
    """The line of a rank in the list `Using devices`."""
    bus = device.device_hex.removesuffix(".0")
    return (
        f"#  Rank {device.rank:>2} Group {device.group:>2} Pid {device.pid:>6} "
        f"on {device.hostname:>10} device {device.device:>2} [{bus}] {device.device_info}"
    )


def _common(steps: Sequence[int]) -> int | None:
    """The step (difference or factor) between sizes if all steps are equal, else None."""
    return steps[0] if steps and len(set(steps)) == 1 and steps[0] > 1 else None


def _columns(fixed: Sequence[str], halves: Sequence[str]) -> str:
    """A header line of the log; the titles in `halves` are printed twice, out of place and in
    place.
    """
    size, count, dtype, redop, root = fixed
    part = "  {:>7}  {:>6}  {:>6}  {:>6}".format(*halves)
    return f"# {size:>10}  {count:>12}  {dtype:>8}  {redop:>6}  {root:>6}{part}{part} "


COLUMN_LINES = (
    f"#{'out-of-place':>74}{'in-place':>31}{'':10}",
    _columns(("size", "count", "type", "redop", "root"), ("time", "algbw", "busbw", "#wrong")),
    _columns(("(B)", "(elements)", "", "", ""), ("(us)", "(GB/s)", "(GB/s)", "")),
)


# Rows in the JSON layout (version 3) of nccl-tests' option -J. As in nccl-tests, booleans and roots
# are texts, times are in µs and bandwidths in GB/s. `start_time` and `end_time` say when the
# simulation ran, in the format of nccl-tests (src/util.cu, TIME_STRING_FORMAT).

LAYOUT = 3
TIME_OF_DAY = "%Y-%m-%d %H:%M:%S"


def document(run: TestRun, rows: Sequence[Row]) -> dict[str, Any]:
    """The JSON file of -J as plain values; rows that failed are listed among its errors."""
    return {
        "version": LAYOUT,
        "start_time": run.started,
        "args": arguments(run),
        "env": [f"{name}={value}" for name, value in run.variables],
        "nccl_version": run.nccl_code,
        "config": _config(run),
        "results": [_result(row, run.root) for row in rows if row.status == "ok"],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": average_busbw(rows), "okay": "unchecked"},
        "errors": [f"{row.size_bytes} B: {row.error}" for row in rows if row.status != "ok"],
        "end_time": run.ended,
    }


def arguments(run: TestRun) -> list[str]:
    """The command line of nccl-tests for the same sizes and options."""
    step = ["-f", str(run.factor)] if run.factor else ["-i", str(run.step)]
    timed = [] if run.iterations == ITERATIONS else ["-n", str(run.iterations)]
    if run.over_processes != "mean":
        timed += ["-a", str(AVERAGES.index(run.over_processes))]
    if run.cuda_graph:
        timed += ["-G", "1"]  # all operations in one graph, which is launched once
    root = ["-r", str(run.root)] if root_of(run.collective, run.root) > 0 else []
    sizes = ["-b", str(run.smallest), "-e", str(run.largest), *step]
    return [run.test, "-g", str(run.n_gpus), *sizes, "-d", run.dtype, *timed, *root]


def _config(run: TestRun) -> dict[str, Any]:
    """The section `config` of the JSON file of -J."""
    step = {"step_factor": run.factor} if run.factor else {"step_bytes": run.step}
    return {
        "nthreads": 1,
        "ngpus": run.n_gpus,
        "minimum_bytes": run.smallest,
        "maximum_bytes": run.largest,
        **step,
        "warmup_iters": WARMUP,
        "iterations": run.iterations,
        "aggregated_iterations": 1,
        "validation": 1,
        "graph": int(run.cuda_graph),
        "blocking_collectives": "false",
        "per_iter_timing": "false",
        "parallel_init": "false",
        "devices": [asdict(device) for device in run.devices],
    }


def _result(row: Row, root: int) -> dict[str, Any]:
    """The entry of a row in the section `results` of the JSON file of -J."""
    return {
        "size": row.size_bytes,
        "count": row.count,
        "type": row.dtype,
        "redop": redop_of(row.collective),
        "root": str(root_of(row.collective, root)),
        "out_of_place": _half(row, OUT_OF_PLACE),
        "in_place": _half(row, IN_PLACE),
    }


def _half(row: Row, which: str) -> dict[str, Any]:
    """The figures of a row in the JSON file for one half; `which` is the field of Row with its
    time.
    """
    time, algbw, busbw = half(row, which)
    wrong = 0.0 if _is_checked(row, which) else None
    return {"time": time, "alg_bw": algbw, "bus_bw": busbw, "nwrong": wrong}


# The smallest bandwidth by size that a healthy machine should reach: a fraction of the simulated
# one. The table has the columns of measured runs; its times are the longest that pass.

PASSES = 0.9  # nccl-tests passes at this fraction of NCCL_TESTS_MIN_BW (nccl-model.md §6)
COLUMNS = (
    *("size_bytes", "count", "dtype", "redop", "root"),
    *("oop_time_us", "oop_algbw_gbps", "oop_busbw_gbps"),
    *("ip_time_us", "ip_algbw_gbps", "ip_busbw_gbps"),
)


def acceptance_csv(rows: Sequence[Row], part: float, root: int) -> str:
    """The least bandwidth of each size as CSV; `part` is the fraction of the simulated one to
    reach.
    """
    lines: list[Sequence[object]] = [COLUMNS]
    done = [row for row in rows if row.status == "ok" and row.size_bytes]
    lines += [least_values(row, part, root) for row in done]
    return csv_of(lines)


def least_values(row: Row, fraction: float, root: int) -> list[object]:
    """The values of a row in `COLUMNS` if only a fraction of its bandwidths is reached; times grow
    accordingly.
    """
    fixed = [row.size_bytes, row.count, row.dtype, redop_of(row.collective)]
    figures = [*_least(row, OUT_OF_PLACE, fraction), *_least(row, IN_PLACE, fraction)]
    return [*fixed, root_of(row.collective, root), *figures]


def min_bandwidth(rows: Sequence[Row], part: float) -> float:
    """The value of NCCL_TESTS_MIN_BW (GB/s) that demands the fraction `part` of the simulated
    average.
    """
    return part * average_busbw(rows) / PASSES


def _least(row: Row, which: str, part: float) -> list[str]:
    """Time (µs) and bandwidths (GB/s) of a half as text, if the fraction `part` of its bandwidths
    is reached.
    """
    time, algbw, busbw = half(row, which)
    return [f"{time / part:.6g}", f"{algbw * part:.6g}", f"{busbw * part:.6g}"]
