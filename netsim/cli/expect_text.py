"""Rows of `netsim expect` as text: nccl-tests' columns, and NCCL's choice beside them."""

from netsim.cli.tables import SURE, halves, sure
from netsim.results import Row

_CHOICE = f"  {'algorithm':<13}  {'protocol':<9}  {'chan':>4}"


def header() -> str:
    """The lines above the rows."""
    half = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}"
    units = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}"
    return "\n".join(
        [
            f"#{'out-of-place':>61}{'in-place':>25}",
            f"# {'size':>10}  {'count':>12}  {'type':>8}{half}{half}{_CHOICE}"
            f"  {'validated':<{SURE}}  bound by",
            f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}{units}{units}",
        ]
    )


def line(row: Row) -> str:
    """One row in the columns of the header; without a time where there is none."""
    fixed = f"{row.size_bytes:>12}  {row.count:>12}  {row.dtype:>8}"
    channels = "" if row.channels is None else str(row.channels)
    choice = f"  {row.algorithm:<13}  {row.protocol:<9}  {channels:>4}"
    last = row.bound_by if row.status == "ok" else row.error
    return f"{fixed}{halves(row)}{choice}  {sure(row.validated):<{SURE}}  {last}"
