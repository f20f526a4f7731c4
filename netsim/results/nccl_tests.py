"""Rows in the text layout of nccl-tests (2.19), so that whatever reads its logs reads them.

The one addition is the first line, which says that the figures are simulated. `#wrong` is N/A, as
with nccl-tests' -c 0: a simulation has no data to check.
"""

from collections.abc import Sequence

from netsim.results.row import Row
from netsim.values import dataclass
from netsim.version import __version__

TESTS_VERSION = "2.19.6"  # of the layout
ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCING = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")  # where nccl-tests names an op
DEFAULT_STEP = 2**20
WARMUP, ITERATIONS = 1, 20  # what the time is the steady state of
OUT_OF_PLACE, IN_PLACE = "time_us", "inplace_time_us"


@dataclass(frozen=True)
class Device:
    """One rank as `Using devices` lists it."""

    rank: int
    group: int
    process: int
    host: str
    device: int
    bus: str
    model: str


@dataclass(frozen=True)
class TestRun:
    """One run of a test: what its header says. `n_gpus` are those of one process."""

    __test__ = False  # no test of ours

    collective: str
    sizes: tuple[int, ...]
    devices: tuple[Device, ...]
    n_gpus: int = 1
    nccl_code: int | None = None  # 23007 for 2.30.7
    cuda_graph: bool = False
    root: int = 0
    dtype: str = "float"
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def test(self) -> str:
        """The name of the program."""
        return f"{self.collective}_perf"

    @property
    def factor(self) -> int | None:
        """By what the sizes grow, if they grow by a factor."""
        return _common([b // a if a and b % a == 0 else 0 for a, b in self._pairs()])

    @property
    def step(self) -> int:
        """By how many bytes the sizes grow; 0 where they follow no rule of nccl-tests."""
        if len(self.sizes) == 1:
            return DEFAULT_STEP
        return _common([b - a for a, b in self._pairs()]) or 0

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.sizes, self.sizes[1:], strict=False))


def opening(run: TestRun) -> str:
    """The comment lines above the rows."""
    libraries = f" nccl-headers={run.nccl_code} nccl-library={run.nccl_code}"
    step = f"{run.factor}(factor)" if run.factor else f"{run.step}(bytes)"
    return "\n".join(
        [
            f"# simulated by netsim {__version__}, not measured",
            f"# nccl-tests version {TESTS_VERSION}{libraries if run.nccl_code else ''}",
            f"# Collective test starting: {run.test}",
            f"# nThread 1 nGpus {run.n_gpus} minBytes {min(run.sizes)} maxBytes {max(run.sizes)} "
            f"step: {step} warmup iters: {WARMUP} iters: {ITERATIONS} agg iters: 1 validation: 0 "
            f"graph: {int(run.cuda_graph)} unalign: 0",
            "#",
            "# Using devices",
            *(_device_line(device) for device in run.devices),
            "#",
            *COLUMN_LINES,
        ]
    )


def line(row: Row, root: int = 0) -> str:
    """One row; what could not be simulated is a comment."""
    if row.status != "ok":
        return f"# {row.size_bytes} B: {row.error}"
    redop = redop_of(row.collective)
    shown = root_of(row.collective, root)
    fixed = f"{row.size_bytes:>12}  {row.count:>12}  {row.dtype:>8}  {redop:>6}  {shown:>6}"
    return fixed + "".join(
        f"  {microseconds(time):>7}  {algbw:>6.2f}  {busbw:>6.2f}  {'N/A':>6}"
        for time, algbw, busbw in (half(row, OUT_OF_PLACE), half(row, IN_PLACE))
    )


def closing(run: TestRun, rows: Sequence[Row]) -> str:
    """The comment lines below the rows."""
    return "\n".join(
        [
            "# Out of bounds values : 0 OK",
            f"# Avg bus bandwidth    : {average_busbw(rows):g} ",
            "#",
            f"# Collective test concluded: {run.test}",
        ]
    )


def half(row: Row, which: str) -> tuple[float, float, float]:
    """Time (us), algbw and busbw (GB/s), out of place or in place.

    nccl-tests runs alltoall and sendrecv "in place" as well: the same transfers once more.
    """
    time = getattr(row, which)
    if time is None:
        time = row.time_us or 0.0
    if time <= 0 or not row.time_us or row.algbw_GBps is None or row.busbw_GBps is None:
        return time, 0.0, 0.0
    return time, row.algbw_GBps * row.time_us / time, row.busbw_GBps * row.time_us / time


def average_busbw(rows: Sequence[Row]) -> float:
    """The mean of every bus bandwidth printed."""
    good = [row for row in rows if row.status == "ok"]
    printed = [half(row, which)[2] for row in good for which in (OUT_OF_PLACE, IN_PLACE)]
    return sum(printed) / len(printed) if printed else 0.0


def redop_of(collective: str) -> str:
    """The reduction that nccl-tests prints."""
    return "sum" if collective in REDUCING else "none"


def root_of(collective: str, root: int) -> int:
    """The root that nccl-tests prints; -1 for collectives without one."""
    return root if collective in ROOTED else -1


def microseconds(time: float) -> str:
    """A time as nccl-tests prints it: as many decimals, at most two, as fit seven characters."""
    for decimals in (2, 1):
        text = f"{time:.{decimals}f}"
        if len(text) <= 7:
            return text
    return f"{time:.0f}"


def _device_line(device: Device) -> str:
    bus = device.bus.removesuffix(".0")
    return (
        f"#  Rank {device.rank:>2} Group {device.group:>2} Pid {device.process:>6} "
        f"on {device.host:>10} device {device.device:>2} [{bus}] {device.model}"
    )


def _common(steps: Sequence[int]) -> int | None:
    """The step that all sizes share, if there is one."""
    return steps[0] if steps and len(set(steps)) == 1 and steps[0] > 1 else None


def _columns(fixed: Sequence[str], halves: Sequence[str]) -> str:
    size, count, dtype, redop, root = fixed
    part = "  {:>7}  {:>6}  {:>6}  {:>6}".format(*halves)
    return f"# {size:>10}  {count:>12}  {dtype:>8}  {redop:>6}  {root:>6}{part}{part} "


COLUMN_LINES = (
    f"#{'out-of-place':>74}{'in-place':>31}{'':10}",
    _columns(("size", "count", "type", "redop", "root"), ("time", "algbw", "busbw", "#wrong")),
    _columns(("(B)", "(elements)", "", "", ""), ("(us)", "(GB/s)", "(GB/s)", "")),
)
