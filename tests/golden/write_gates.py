"""Golden texts of gates in every format, and of what a comparison of two sets of logs says.

The figures are made up, so that no constant of the model changes these texts."""

from collections.abc import Callable
from functools import partial

from netsim.cli.regression import closing_lines, junit_cases, lines_of_change
from netsim.measured.logs import LogRun, MeasuredRow
from netsim.measured.regression import KindChange, changes_between
from netsim.results.gates import GroupGate, SizeGate, gate_text, min_bandwidth_lines
from netsim.results.junit import junit_text
from netsim.results.row import Row

Writer = Callable[[], list[str]]

SIZES = (2**20, 2**34)
FORMATS = ("nccl-tests", "aicr", "cre", "junit")


def size_gate(collective: str, size: int, busbw: float) -> SizeGate:
    """A gate of 80 % of an expected bus bandwidth in GB/s."""
    factor = 1.75 if collective == "all_reduce" else 0.875
    time_us = size / (busbw / factor) / 1e3
    row = Row(
        collective=collective,
        dtype="float",
        size_bytes=size,
        count=size // 4,
        time_us=time_us,
        inplace_time_us=time_us,
        algbw_GBps=busbw / factor,
        busbw_GBps=busbw,
    )
    return SizeGate(row, 0.8)


def group_gate(kind: str, name: str, nodes: int, fabric: str, collective: str) -> GroupGate:
    """The gate of a group of nodes of an NVLink system."""
    sizes = tuple(
        size_gate(collective, size, busbw) for size, busbw in zip(SIZES, (90, 700), strict=True)
    )
    return GroupGate(
        kind=kind,
        name=name,
        nodes=nodes,
        ranks=4 * nodes,
        collective=collective,
        fabric=fabric,
        confidence=0.95,
        sizes=sizes,
        has_nvlink_racks=True,
    )


def groups(collective: str) -> list[GroupGate]:
    """A node, a rack and all nodes of an NVLink system with three racks."""
    return [
        group_gate("node", "one node", 1, "NVLink inside a node", collective),
        group_gate("rack", "one rack of 18 nodes", 18, "nvlink", collective),
        group_gate("racks", "a pair of racks of 18 and 18 nodes", 36, "infiniband", collective),
        group_gate("all", "all 54 nodes", 54, "infiniband", collective),
    ]


def gates(form: str) -> list[str]:
    """Gates in one format: two collectives where the format has several."""
    collectives = ("all_reduce", "alltoall") if form == "cre" else ("all_reduce",)
    members = [gate for collective in collectives for gate in groups(collective)]
    lines = [f"Gates of 80 % of made-up bandwidths, as {form} reads them.", ""]
    lines += gate_text(members, form).splitlines()
    if form == "nccl-tests":
        lines += ["", *min_bandwidth_lines(members)]
    return lines


def change() -> KindChange:
    """Two logs before and two after a change that made sizes from 1 MiB on 20 % slower."""

    def run(noise: float, factor: float) -> LogRun:
        times = {8: 20e-6, 2**16: 24e-6, 2**20: 60e-6, 2**22: 120e-6, 2**30: 15e-3}
        rows = tuple(
            MeasuredRow(size, out_of_place=time * noise * (factor if size >= 2**20 else 1.0))
            for size, time in times.items()
        )
        return LogRun("log", collective="all_reduce", rows=rows)

    before = [run(0.995, 1.0), run(1.005, 1.0)]
    after = [run(0.995, 1.2), run(1.005, 1.2)]
    return changes_between(before, after)[0]


def regression() -> list[str]:
    """The text of the comparison, then its JUnit."""
    found = change()
    lines = ["Two logs before and two after a change: 20 % slower from 1 MiB on.", ""]
    for line in (*lines_of_change(found), *closing_lines([found])):
        lines += line.splitlines()
    return [*lines, "", *junit_text("netsim compare", list(junit_cases([found]))).splitlines()]


WRITERS: dict[str, Writer] = {
    **{f"gates/{form}": partial(gates, form) for form in FORMATS},
    "gates/regression": regression,
}
