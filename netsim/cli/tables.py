"""Rows as text: the table that nccl-tests users know, exactly or with what netsim adds."""

from collections.abc import Sequence

from netsim.results import Row

_REDUCING = ("all_reduce", "reduce_scatter", "reduce")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


_WIDTH = 16  # of the column of an axis
_HEADER = (
    "#                                                              out-of-place"
    "                       in-place",
    "#       size         count      type   redop    root"
    "     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong",
    "#        (B)    (elements)                          "
    "     (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)",
)


def header(axes: Sequence[str] = (), *, plain: bool = False) -> str:
    """The lines above the rows; `plain` is the very layout of nccl-tests."""
    if plain:
        return "\n".join(_HEADER)
    names = "".join(f"  {_short(axis):<{_WIDTH}}" for axis in axes)
    half = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}"
    units = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}"
    return "\n".join(
        [
            f"#{'out-of-place':>61}{'in-place':>25}",
            f"# {'size':>10}  {'count':>12}  {'type':>8}{half}{half}{names}  bound by",
            f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}{units}{units}",
        ]
    )


def line(row: Row, axes: Sequence[str] = (), *, plain: bool = False, root: int = 0) -> str:
    """One row in the columns of the header."""
    values = "".join(f"  {row.axes.get(axis)!s:<{_WIDTH}}" for axis in axes)
    if row.status != "ok":
        return f"# {row.size_bytes} B{'' if plain else values}: {row.error}"
    fixed = f"{row.size_bytes:>12}  {row.count:>12}  {row.dtype:>8}"
    if not plain:
        halves = _half(row, row.time_us) + _half(row, row.inplace_time_us)
        return f"{fixed}{halves}{values}  {row.bound_by}"
    redop = "sum" if row.collective in _REDUCING else "none"
    shown = root if row.collective in _ROOTED else -1
    halves = "".join(f"{_half(row, t)}  {'N/A':>6}" for t in (row.time_us, row.inplace_time_us))
    return f"{fixed}  {redop:>6}  {shown:>6}{halves}"


def footer(rows: Sequence[Row]) -> str:
    """nccl-tests' closing lines: the mean of every bus bandwidth printed."""
    good = [row for row in rows if row.status == "ok"]
    printed = [_bandwidths(row, time)[1] for row in good for time in _times(row)]
    mean = sum(printed) / len(printed) if printed else 0.0
    return f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {mean:g}\n#"


def _times(row: Row) -> list[float]:
    return [time for time in (row.time_us, row.inplace_time_us) if time is not None]


def _half(row: Row, time: float | None) -> str:
    if time is None:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}"
    algbw, busbw = _bandwidths(row, time)
    return f"  {microseconds(time):>7}  {algbw:>6.2f}  {busbw:>6.2f}"


def _bandwidths(row: Row, time: float) -> tuple[float, float]:
    if time <= 0 or not row.time_us or not row.algbw_GBps or row.busbw_GBps is None:
        return 0.0, 0.0
    return row.algbw_GBps * row.time_us / time, row.busbw_GBps * row.time_us / time


def microseconds(time: float) -> str:
    """A time as nccl-tests prints it: as many decimals, at most two, as fit seven characters."""
    for decimals in (2, 1):
        text = f"{time:.{decimals}f}"
        if len(text) <= 7:
            return text
    return f"{time:.0f}"


def _short(axis: str) -> str:
    """The last part of a dotted key, by which the title of a column is read."""
    return axis.rpartition(".")[2]
