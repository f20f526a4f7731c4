"""Golden texts of NCCL's choices: algorithm, protocol, channels and threads by size."""

from collections.abc import Callable
from dataclasses import fields
from functools import partial

from netsim.base.units import format_size
from netsim.extent.budget import USUAL_BUDGET
from netsim.nccl.choice import plan_call
from netsim.nccl.communicator import Communicator
from netsim.nccl.facts import FUNCTIONS, parse_version
from netsim.nccl.node import communicator, search_node
from netsim.nccl.tuning import TunedCall, choose, launch, timed_costs
from tests.golden.layout import significant
from tests.nccl.nccl_nodes import searched_communicator, system_of

Writer = Callable[[], list[str]]
SIZES = [2**power for power in (3, 10, 13, 15, 17, 19, 20, 22, 24, 27, 30)]
CASES = (
    ("h100_8nic", 1), ("h100_8nic", 2), ("h100_8nic", 5), ("h100_1nic", 3), ("dgxa100", 1),
    ("dgxa100", 2), ("a100x4_1nic", 2), ("dgx1v_4nic", 1), ("dgx1v_4nic", 3), ("l40s8sw", 1),
    ("a10pcie8_amd", 1), ("a100_tcp", 2),
)  # fmt: skip
VERSIONS = ("2.10", "2.14", "2.18.5", "2.20.5", "2.22.3", "2.24.3", "2.27.7")


THRESHOLDS = USUAL_BUDGET.thresholds


def choice_text(comm: Communicator, function: str, size: int) -> str:
    """Return what NCCL chooses: algorithm, protocol, channels and threads of a block."""
    choice = choose(comm, TunedCall(function, size))
    used = launch(comm, size, choice.algorithm, choice.protocol, choice.n_channels)
    return f"{choice.algorithm} {choice.protocol} {used.n_channels}x{used.n_threads}"


def table(comm: Communicator) -> list[str]:
    """Return the choices by size, a column for each function of NCCL."""
    lines = ["size       " + "".join(f"{name:<24}" for name in FUNCTIONS)]
    for size in SIZES:
        cells = [choice_text(comm, function, size) for function in FUNCTIONS]
        lines.append(f"{format_size(size):<11}" + "".join(f"{cell:<24}" for cell in cells))
    return lines


def choices(config: str, nodes: int) -> list[str]:
    """Return what NCCL chooses on some nodes of a system."""
    comm = searched_communicator(config, nodes)
    lines = [
        f"NCCL {comm.version} on {nodes} x {config}: algorithm, protocol, channels x threads.",
        f"{comm.n_ranks} ranks, {comm.n_channels} channels, {comm.nvls_channels} of NVLS.",
        "",
    ]
    return [*lines, *table(comm)]


def by_version(config: str, nodes: int) -> list[str]:
    """Return what versions of NCCL choose on the same system."""
    lines = [f"all_reduce and all_gather on {nodes} x {config} by version of NCCL."]
    for text in VERSIONS:
        version = parse_version(text)
        node = search_node(system_of(config), networked=nodes > 1, version=version)
        comm = communicator(node, nodes, version=version)
        lines += ["", f"NCCL {text}: {comm.n_channels} channels"]
        for size in SIZES[::2]:
            cells = [choice_text(comm, name, size) for name in ("AllReduce", "AllGather")]
            lines.append(f"{format_size(size):<11}" + "".join(f"{cell:<24}" for cell in cells))
    return lines


def costs(config: str, nodes: int) -> list[str]:
    """Return NCCL's own cost table: latency and bandwidth, or why an entry is barred."""
    comm = searched_communicator(config, nodes)
    lines = [
        f"NCCL's cost table on {nodes} x {config}: time in us of its model at three sizes,",
        "latency in us and algorithm bandwidth in GB/s, or why the entry is barred.",
    ]
    for function in FUNCTIONS:
        lines += ["", function]
        columns = [timed_costs(comm, TunedCall(function, size)) for size in (2**13, 2**20, 2**27)]
        for entries in zip(*columns, strict=True):
            cost = entries[0].cost
            name = f"{cost.algorithm} {cost.protocol}"
            times = [entry.time_us for entry in entries]
            if None in times:
                lines.append(f"  {name:<22} barred: {entries[0].disabled or cost.disabled}")
                continue
            told = " ".join(f"{significant(time):>9}" for time in times if time is not None)
            rest = f"{significant(cost.latency_us)} us, {significant(cost.bandwidth)} GB/s"
            lines.append(f"  {name:<22} {told}   {rest}")
    return lines


def splits(config: str, nodes: int) -> list[str]:
    """Return how calls are split over channels: elements and chunk of each channel."""
    comm = searched_communicator(config, nodes)
    lines = [f"How NCCL splits AllReduce of floats over channels on {nodes} x {config}."]
    for size in (64, 4096, 100_000, 2**20 + 12, 2**24):
        plan = plan_call(comm, TunedCall("AllReduce", size), size // 4, 4)
        lines += ["", f"{size} B: {plan.algorithm} {plan.protocol}, {plan.n_channels} channels"]
        earlier = ""
        for work in plan.work:
            text = f"{work.count} elements, chunk {work.chunk} B, last {work.last} B"
            if text != earlier:
                lines.append(f"  from channel {work.channel}, element {work.offset}: {text}")
            earlier = text
    return lines


def thresholds() -> list[str]:
    """Return the thresholds of methods that choose how much of a task is simulated."""
    title = "Thresholds by which netsim chooses how much of a task it simulates (extent/budget.py)."
    values = [f"{field.name}: {getattr(THRESHOLDS, field.name)}" for field in fields(THRESHOLDS)]
    return [title, "", *values]


WRITERS: dict[str, Writer] = {
    **{f"decisions/{config}-{nodes}": partial(choices, config, nodes) for config, nodes in CASES},
    "decisions/versions-h100x2-2": partial(by_version, "h100x2", 2),
    "decisions/versions-dgx1v_4nic-1": partial(by_version, "dgx1v_4nic", 1),
    "decisions/costs-h100_8nic-2": partial(costs, "h100_8nic", 2),
    "decisions/costs-dgx1v_4nic-1": partial(costs, "dgx1v_4nic", 1),
    "decisions/splits-h100_8nic-1": partial(splits, "h100_8nic", 1),
    "decisions/thresholds": thresholds,
    "decisions/splits-dgxa100-2": partial(splits, "dgxa100", 2),
}
