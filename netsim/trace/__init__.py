"""Traces of a run: trace.json for timeline viewers, and the same facts as CSV."""

from netsim.trace.chrome import write_trace
from netsim.trace.counters import link_counters
from netsim.trace.operation import Operation, distributed_info, kineto_args
from netsim.trace.selection import Selection, Written, first_rows
from netsim.trace.tables import (
    LINK_COLUMNS,
    LOAD_COLUMNS,
    ROW_COLUMNS,
    write_links,
    write_links_over_time,
    write_rows,
)

__all__ = [
    "LINK_COLUMNS",
    "LOAD_COLUMNS",
    "ROW_COLUMNS",
    "Operation",
    "Selection",
    "Written",
    "distributed_info",
    "first_rows",
    "kineto_args",
    "link_counters",
    "write_links",
    "write_links_over_time",
    "write_rows",
    "write_trace",
]
