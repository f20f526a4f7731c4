"""A comparison as text: a row a size, then the error by size band."""

from collections.abc import Iterator, Mapping

from netsim.measured.bands import ALL, BANDS, Error
from netsim.results import Row
from netsim.results.nccl_tests import microseconds


def header() -> str:
    """The lines above the rows."""
    return (
        f"# {'size':>11}  {'measured':>9}  {'simulated':>9}  {'error':>7}  "
        f"{'measured':>9}  {'simulated':>9}  algorithm      protocol\n"
        f"# {'(B)':>11}  {'(us)':>9}  {'(us)':>9}  {'(%)':>7}  {'busbw':>9}  {'busbw':>9}"
    )


def line(row: Row, logged: Mapping[int, tuple[str, str]]) -> str:
    """One size; where the log tells another choice of NCCL's, that as well."""
    size, measured = row.size_bytes or 0, row.measured_time_us or 0.0
    if row.status != "ok" or row.time_us is None or row.busbw_GBps is None:
        return f"{size:>13}  {microseconds(measured):>9}  not simulated: {row.error}"
    busbw = row.busbw_GBps * row.time_us / measured
    said = logged.get(size)
    other = said is not None and said != (row.algorithm, row.protocol)
    choice = f"{row.algorithm:<14} {row.protocol}"
    return (
        f"{size:>13}  {microseconds(measured):>9}  {microseconds(row.time_us):>9}  "
        f"{row.error_pct or 0.0:>+7.1f}  {busbw:>9.2f}  {row.busbw_GBps:>9.2f}  "
        f"{choice}{f'  (the log: {said[0]} {said[1]})' if said and other else ''}"
    )


def summary(bands: Mapping[str, Error], what: str = "sizes") -> Iterator[str]:
    """The error by band."""
    for band in (*BANDS, ALL):
        if band in bands:
            error = bands[band]
            yield (
                f"# {band:>12}: median error {error.median:6.1%}, 90th percentile "
                f"{error.p90:6.1%}, bias {error.bias:+.1%} ({error.points} {what})"
            )
