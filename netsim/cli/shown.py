"""Rows as lines of text, in the columns of nccl-tests and those that netsim adds."""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from netsim.base.files import write_text
from netsim.nccl.facts import parse_version
from netsim.results import nccl_tests
from netsim.results.row import NOT_VALIDATED, Row
from netsim.scenario.cells import last_part
from netsim.scenario.models import SizeRange, Workload
from netsim.schedule.repeat import BackToBack
from netsim.tasks.resolve import ResolvedCell
from netsim.topology.nccl_view import gpu_bus

MANY_SIZES = 6  # from which the start-up of the compiled engine pays, whatever their rows
_WIDTH = 16  # of the column of an axis
SURE = 14  # characters of how a case is validated; the whole text is in the CSV
SURENESS = f"  {'80 %':>8}  {'validated':<{SURE}}"  # titles of the columns that `sureness` fills


FULL_WIDTH = 150  # columns of a terminal from which tables are printed with all their columns


def compact_width(*, wide: bool) -> int | None:
    """The width in characters to which a table is limited; None if all columns are printed.

    All columns are printed to files and pipes (for programs), with `wide`, and on terminals of at
    least FULL_WIDTH characters.
    """
    if wide or not sys.stdout.isatty():
        return None
    columns = shutil.get_terminal_size((80, 24)).columns
    return columns if columns < FULL_WIDTH else None


def shortened(line: str, width: int) -> str:
    """The line, cut to at most `width` characters; `…` marks a cut."""
    line = line.rstrip()
    return line if len(line) <= width else line[: max(0, width - 1)].rstrip() + "…"


def compact_figures(row: Row) -> str:
    """Size, time and bus bandwidth of a row, in the columns of `COMPACT_TITLES`."""
    size = f"{row.size_bytes:>12}"
    if row.time_us is None or row.busbw_GBps is None:
        return f"{size}  {'N/A':>8}  {'N/A':>7}"
    time, _, busbw = nccl_tests.half(row, nccl_tests.OUT_OF_PLACE)
    text = nccl_tests.microseconds(time)
    if row.doubtful:
        text = f"~{text}"
    return f"{size}  {text:>8}  {busbw:>7.2f}"


COMPACT_TITLES = f"# {'size':>10}  {'time':>8}  {'busbw':>7}"
COMPACT_UNITS = f"# {'(B)':>10}  {'(us)':>8}  {'(GB/s)':>7}"


def compact_header(axis_widths: Mapping[str, int], width: int) -> str:
    """The header lines above `compact_line`: size, time, bus bandwidth, axes, what bounds the time.

    `axis_widths` has the characters of the column of each axis.
    """
    names = "".join(f"  {last_part(axis):<{cells}}" for axis, cells in axis_widths.items())
    title = shortened(f"{COMPACT_TITLES}{names}  bound by", width)
    return f"{title}\n{COMPACT_UNITS}"


def compact_line(row: Row, axis_widths: Mapping[str, int], width: int) -> str:
    """The line of a row in the columns of `compact_header`; a row without a time has its error,
    uncut.
    """
    values = "".join(f"  {row.axes.get(axis)!s:<{cells}}" for axis, cells in axis_widths.items())
    if row.status != "ok":
        return f"# {row.size_bytes} B{values}: {row.error}"
    return shortened(f"{compact_figures(row)}{values}  {row.bound_by}", width)


def header(axes: Sequence[str] = (), *, validated: bool = False) -> str:
    """The header lines above `line`; with `validated`, columns about the expected error."""
    sure = SURENESS if validated else ""
    names = "".join(f"  {last_part(axis):<{_WIDTH}}" for axis in axes)
    return titles(names + sure)


def titles(more: str) -> str:
    """The header lines with the columns of nccl-tests, then the titles in `more`."""
    part = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}"
    units = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}"
    return "\n".join(
        [
            f"#{'out-of-place':>61}{'in-place':>25}",
            f"# {'size':>10}  {'count':>12}  {'type':>8}{part}{part}{more}  bound by",
            f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}{units}{units}",
        ]
    )


def line(row: Row, axes: Sequence[str] = (), *, validated: bool = False) -> str:
    """The line of a row in the columns of `header`; a row without a time has its error."""
    values = "".join(f"  {row.axes.get(axis)!s:<{_WIDTH}}" for axis in axes)
    if row.status != "ok":
        return f"# {row.size_bytes} B{values}: {row.error}"
    fixed = f"{row.size_bytes:>12}  {row.count:>12}  {row.dtype:>8}"
    return f"{fixed}{halves(row)}{values}{sureness(row) if validated else ''}  {row.bound_by}"


def sureness(row: Row) -> str:
    """The interval that holds 80 % of measured times, relative to the row's time, and how it was
    validated.

    As two columns: `-8+12%`, then the median error of comparable runs, or that there are none.
    """
    low = row.time_low_us
    high = row.time_high_us
    time = row.time_us
    ends = (
        f"{low / time - 1:+.0%}{high / time - 1:+.0%}".replace("%", "", 1)
        if low and high and time
        else ""
    )
    class_text = row.validated.partition(")")[0] + ")" * bool(row.validated)
    if row.validated.startswith(NOT_VALIDATED):  # else the error and from how many runs
        class_text = NOT_VALIDATED
    return f"  {ends:>8}  {class_text:<{SURE}}"


def footer(rows: Sequence[Row]) -> str:
    """The last lines of the table: the mean of all bus bandwidths (GB/s), as nccl-tests
    prints it.
    """
    return f"# Avg bus bandwidth    : {nccl_tests.average_busbw(rows):g}\n#"


def halves(row: Row) -> str:
    """Time and bandwidths out of place, then in place; N/A for a half that was not simulated."""
    return _half(row, nccl_tests.OUT_OF_PLACE) + _half(row, nccl_tests.IN_PLACE)


def _half(row: Row, which: str) -> str:
    """Time (µs), algorithm and bus bandwidth (GB/s) of one half; `which` is the field of Row with
    its time.
    """
    if getattr(row, which) is None or row.algbw_GBps is None:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}"
    time, algbw, busbw = nccl_tests.half(row, which)
    time_text = (
        f"~{nccl_tests.microseconds(time)}" if row.doubtful else nccl_tests.microseconds(time)
    )
    return f" {time_text:>8}  {algbw:>6.2f}  {busbw:>6.2f}"


def run_of(resolved: ResolvedCell) -> nccl_tests.TestRun:
    """What nccl-tests prints at the top of a run, for a cell.

    The process ids are made up (1, 2, ...), because no process of nccl-tests runs.
    """
    scenario = resolved.cell.scenario
    work = resolved.cell.scenario.collective
    style = scenario.launch_costs().style
    variables = dict(scenario.nccl.env)
    if work.split is not None:
        variables["NCCL_TESTS_SPLIT"] = work.split
    timing = resolved.back_to_back or BackToBack(iterations=1)
    return nccl_tests.TestRun(
        collective=work.collective,
        sizes=tuple(work.size_list()),
        devices=_devices(resolved, one_process=style == "single_process"),
        n_gpus=resolved.gpus_per_node if style == "single_process" else 1,
        nccl_code=parse_version(scenario.nccl.version).code if resolved.is_nccl else None,
        cuda_graph=style == "cuda_graph",
        root=work.root,
        dtype=work.dtype,
        variables=tuple(variables.items()),
        requested=_requested_sizes(work),
        iterations=timing.iterations,
        over_processes=timing.over_processes,
    )


def _requested_sizes(work: Workload) -> tuple[int, int] | None:
    """The first and the last size in bytes of a range, before rounding; None for a list
    of sizes.
    """
    if isinstance(work.sizes, SizeRange):
        return work.sizes.first, work.sizes.last
    return None


def time_of_day() -> str:
    """The local time as nccl-tests writes it.

    If SOURCE_DATE_EPOCH is set (seconds since 1970), that time, so that files are the same in every
    run (reproducible-builds.org).
    """
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    if fixed.isdecimal():
        return datetime.fromtimestamp(int(fixed), UTC).strftime(nccl_tests.TIME_OF_DAY)
    return datetime.now().strftime(nccl_tests.TIME_OF_DAY)


def write_json(path: Path, run: nccl_tests.TestRun, rows: Sequence[Row]) -> Path:
    """Write the JSON file of -J and return its path; an existing file is kept and a number added,
    as nccl-tests does.
    """
    free_path = path
    number = 0
    while free_path.is_file():
        number += 1
        free_path = path.with_name(f"{path.name}.{number}")
    return write_text(free_path, json.dumps(nccl_tests.document(run, rows), indent=1) + "\n")


def _devices(resolved: ResolvedCell, *, one_process: bool) -> tuple[nccl_tests.Device, ...]:
    """The device of each rank in order; its host and number are taken from the GPU's name
    (node0.gpu3).

    `one_process` gives all ranks of a host the same process id.
    """
    group = {rank: number for number, ranks in enumerate(resolved.groups) for rank in ranks}
    hosts: dict[str, int] = {}
    devices = []
    models = _models(resolved)
    for rank, gpu in enumerate(resolved.gpus.tolist()):
        host, _, name = str(resolved.topology.gpus[gpu]).rpartition(".")
        number = hosts.setdefault(host, len(hosts))
        digits = name.removeprefix("gpu")
        device = int(digits) if digits.isdecimal() else gpu
        process = number + 1 if one_process else rank + 1
        devices.append(
            nccl_tests.Device(
                rank, group[rank], process, host or "graph", device, gpu_bus(device), models[gpu]
            )
        )
    return tuple(devices)


def _models(resolved: ResolvedCell) -> list[str]:
    """The name of every GPU of the cluster, as the driver reports it."""
    if not resolved.is_nccl:
        return ["GPU"] * len(resolved.topology)
    cluster = resolved.jobs[0].cluster
    hosts = cluster.gpu_host.tolist()
    return [nccl_tests.device_name(cluster.machine_of(host).gpu.model) for host in hosts]
