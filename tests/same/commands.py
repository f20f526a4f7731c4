"""Drawn command lines of every verb, on small inputs; their output and files are compared."""

from typing import Any

from tests.same import clusters, workloads
from tests.same.draw import Draw
from tests.same.features import file_text

Mapping = dict[str, Any]
Commands = tuple[list[str], dict[str, str]]  # command lines, and the files that they read

MACHINES = ("dgx-h100", "dgx-h100", "dgx-a100", "mi300x", "gb200-nvl72", "l40s-pcie-x8", "gh200-x4")
FABRICS = ("leaf-spine", "rail-optimized", "fat-tree", "single-switch", "dual-plane", "rail-only")
SIZES = ("8,64K,1M", "64K", "1K,1M,16M", "4M", "256K,64M", "8:1K:8")
SCENARIO = "question.yaml"


def _add_options(draw: Draw, words: list[str], *, hosts: bool = True) -> None:
    """Add options that verbs about a machine share."""
    if hosts and draw.happens(0.6):
        words += ["--nodes", str(draw.choose((2, 2, 3, 4)))]
        if draw.happens(0.4):
            words += ["--fabric", draw.choose(FABRICS)]
        if draw.happens(0.2):
            words += ["--nic", draw.choose(("100Gbps", "200Gbps"))]
    if draw.happens(0.4):
        words += ["--gpus-per-node", draw.choose(("1", "2", "4"))]


def _add_call_options(draw: Draw, words: list[str]) -> None:
    """Add options that verbs about a collective share."""
    if draw.happens(0.2):
        words += ["--algo", draw.choose(("Ring", "Tree", "ring", "direct", "NVLS"))]
    if draw.happens(0.2):
        words += ["--proto", draw.choose(("LL", "LL128", "Simple"))]
    if draw.happens(0.15):
        words += ["--dtype", draw.choose(("half", "double", "bfloat16"))]
    if draw.happens(0.15):
        words += ["--launch", draw.choose(("cuda_graph", "single_process", "unknown"))]
    if draw.happens(0.1):
        words += ["--host", draw.choose(("bare-metal", "azure-vm", "9us"))]
    if draw.happens(0.2):
        words += ["--nccl", draw.choose(("2.10", "2.18", "2.20", "2.23"))]
    if draw.happens(0.15):
        words += ["--env", draw.choose(("NCCL_ALGO=Ring", "NCCL_MAX_NCHANNELS=4", "NCCL_NO=1"))]
    if draw.happens(0.1):
        words += ["--transport", draw.choose(("roce", "efa"))]


def drawn_expect(draw: Draw) -> Commands:
    """Return `netsim expect`, which prints the table of nccl-tests."""
    words = ["expect", draw.choose(MACHINES), draw.choose(workloads.NCCL_COLLECTIVES[:-1])]
    words += ["--sizes", draw.choose(SIZES)]
    _add_options(draw, words)
    _add_call_options(draw, words)
    if draw.happens(0.3):
        words += ["--format", draw.choose(("csv", "json"))]
    if draw.happens(0.2):
        words += ["--why", draw.choose(("64K", "1M"))]
    if draw.happens(0.1):
        words += ["--noise", "quiet", "--samples", "3"]
    if draw.happens(0.05):
        words += ["--tuner-out", "tuner.csv"]
    if draw.happens(0.05):
        words += ["--graph-out", "graph.xml"]
    return [" ".join(words)], {}


def drawn_explain(draw: Draw) -> Commands:
    """Return `netsim explain` of a collective on a machine, or of a drawn scenario."""
    if draw.happens(0.4):
        cluster = clusters.drawn_graph(draw)
        textbook = True
        if draw.happens(0.5):
            cluster = clusters.drawn_hosts(draw, machines=clusters.COMMON_MACHINES, most_hosts=2)
            textbook = draw.happens(0.3)
        work = workloads.drawn_collective(draw, textbook=textbook, sizes=workloads.SMALL_SIZES)
        text = file_text({"cluster": cluster, "workload": work})
        state = draw.choose(("", " --state", " --paths"))
        return [f"explain {SCENARIO}{state}"], {SCENARIO: text}
    words = ["explain", draw.choose(MACHINES), draw.choose(workloads.NCCL_COLLECTIVES[:-2])]
    words += ["--size", draw.choose(("64K", "1M"))]
    _add_options(draw, words)
    _add_call_options(draw, words)
    if draw.happens(0.4):
        words += ["--format", draw.choose(("csv", "json"))]
    return [" ".join(words)], {}


def drawn_topology(draw: Draw) -> Commands:
    """Return `netsim topo show`, `lint`, `list` or `export`."""
    verb = draw.choose(("show", "show", "show", "lint", "export", "list"))
    if verb == "list":
        return ["topo list"], {}
    words = ["topo", verb]
    files = {}
    if draw.happens(0.5):
        cluster = clusters.drawn_hosts(draw, machines=clusters.COMMON_MACHINES, most_hosts=4)
        if draw.happens(0.2):
            cluster = clusters.drawn_graph(draw)
        work = {"collective": "all_reduce", "sizes": ["1MiB"], "algorithm": "ring"}
        files = {SCENARIO: file_text({"cluster": cluster, "workload": work})}
        words.append(SCENARIO)
    else:
        words.append(draw.choose(clusters.MACHINES))
        _add_options(draw, words)
    if verb == "show":
        words += draw.choose(([], ["--routes"], ["--sources"]))
    if verb == "export":
        words += ["--format", draw.choose(("json", "nccl", "custom"))]
    return [" ".join(words)], files


def drawn_check(draw: Draw) -> Commands:
    """Return `netsim check` of a scenario, sometimes of one with a mistake in it."""
    cluster = clusters.drawn_hosts(draw, most_hosts=4)
    work = workloads.drawn_collective(draw, textbook=draw.happens(0.3))
    scenario: Mapping = {"cluster": cluster, "workload": work}
    workloads.add_conditions(draw, scenario)
    mistakes: tuple[Mapping, ...] = (
        {"workload": {**work, "sizes": ["many"]}},
        {"workload": {**work, "dtype": "flaot"}},
        {"cluster": {**cluster, "machine": "dgx-h1000"}},
        {"cluster": {**cluster, "faults": [{"nic": "node9.nic9"}]}},
        {"cluster": {**cluster, "fabric": {"kind": "leafspine"}}},
        {"nodes": 3},
    )
    draw.maybe_update(scenario, 0.6, mistakes)
    return [f"check {SCENARIO}"], {SCENARIO: file_text(scenario)}


def drawn_diff(draw: Draw) -> Commands:
    """Return `netsim diff` of two machines."""
    first, second = draw.sample(("dgx-h100", "dgx-a100", "hgx-h200", "mi300x", "hgx-a800"), 2)
    words = ["diff", first, second, "--collective", draw.choose(workloads.NCCL_COLLECTIVES[:7])]
    words += ["--sizes", draw.choose(("64K,1M", "4M"))]
    _add_options(draw, words)
    return [" ".join(words)], {}


LOG_HEADER = """\
# nThread 1 nGpus {gpus} minBytes 65536 maxBytes 16777216 step: 16(factor) warmup iters: 5 iters: 20
#
# Using devices
{devices}
#
#                                       out-of-place                       in-place
#  size   count  type  redop  root   time   algbw   busbw #wrong   time   algbw   busbw #wrong
#   (B)  (elements)                  (us)  (GB/s)  (GB/s)          (us)  (GB/s)  (GB/s)
"""


def drawn_compare(draw: Draw) -> Commands:
    """Return `netsim compare` of a made-up log of nccl-tests with its prediction."""
    machine, name = draw.choose(
        (("dgx-h100", "NVIDIA H100 80GB HBM3"), ("dgx-a100", "NVIDIA A100-SXM4-80GB"))
    )
    device = "#  Rank {0} Group  0 Pid 4711 on host0 device {0:2d} [0x{1:02x}] {2}"
    devices = "\n".join(device.format(rank, 15 + 16 * rank, name) for rank in range(8))
    lines = [LOG_HEADER.format(gpus=8, devices=devices)]
    slowness = draw.choose((0.9, 1.0, 1.3, 3.0))
    for size in (65536, 1048576, 16777216):
        microseconds = slowness * (20 + size / 150e3)
        algbw = size / microseconds / 1e3
        figures = f"{microseconds:8.2f} {algbw:7.2f} {1.75 * algbw:7.2f}      0"
        count = size // 4
        lines.append(f"{size:12d} {count:13d}     float     sum      -1 {figures} {figures}\n")
    lines.append("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100\n")
    command = f"compare log.txt --topology {machine}"
    return [command], {"log.txt": "".join(lines)}


COLLECTIVE_OUTPUTS: tuple[list[str], ...] = (
    [],
    ["goal"],
    ["connections"],
    ["msccl"],
    ["mscclpp"],
    ["trace_per_rank"],
    ["parquet", "trace_per_rank"],
)
STEP_OUTPUTS: tuple[list[str], ...] = ([], ["trace_per_rank"], ["chakra"], ["goal", "parquet"])
SWEEPS: tuple[Mapping, ...] = (
    {"workload.dtype": ["half", "float"]},
    {"workload.sizes": [["4KiB"], ["64KiB"]]},
    {"seed": [1, 2]},
)


def _drawn_run_of_collective(draw: Draw) -> Mapping:
    """Return a scenario of a collective, perhaps in parts, with noise or with a sweep."""
    if draw.happens(0.5):
        cluster = clusters.drawn_graph(draw)
        textbook = True
    else:
        cluster = clusters.drawn_hosts(draw, machines=clusters.COMMON_MACHINES, most_hosts=3)
        cluster["gpus_per_node"] = draw.choose((1, 2, 4))
        textbook = draw.happens(0.3)
    work = workloads.drawn_collective(draw, textbook=textbook, sizes=workloads.SMALL_SIZES)
    if "ranks" in work or "split" in work:
        work["timing"] = "single"  # twenty operations of several communicators take long
    outputs = ["csv", "trace", *draw.choose(COLLECTIVE_OUTPUTS)]
    scenario: Mapping = {"cluster": cluster, "workload": work, "outputs": outputs}
    draw.maybe_set(scenario, 0.6, "fold", ("off",))
    draw.maybe_set(scenario, 0.3, "limits", (True,))
    draw.maybe_set(scenario, 0.3, "launch", workloads.LAUNCHES)
    if draw.happens(0.15):
        scenario["noise"] = draw.choose(workloads.NOISES)
        scenario["samples"] = 4
    draw.maybe_set(scenario, 0.3, "sweep", SWEEPS)
    return scenario


def _drawn_run_of_step(draw: Draw) -> Mapping:
    """Return a scenario of a training step on eight GPUs or four."""
    scenario = workloads.drawn_step(draw)
    scenario["outputs"] = ["csv", "trace", *draw.choose(STEP_OUTPUTS)]
    draw.maybe_set(scenario, 0.3, "prices", ("default",))
    return scenario


def drawn_run(draw: Draw) -> Commands:
    """Return `netsim run` of a small scenario with the tables and traces that it writes."""
    if draw.happens(0.35):
        scenario = _drawn_run_of_step(draw)
    else:
        scenario = _drawn_run_of_collective(draw)
    commands = [f"run {SCENARIO} --jobs 1 -o made"]
    if draw.happens(0.25):
        commands.append(f"explain {SCENARIO}")
    return commands, {SCENARIO: file_text(scenario)}


DRAWN = {
    "expect": drawn_expect,
    "explain": drawn_explain,
    "topo": drawn_topology,
    "check": drawn_check,
    "diff": drawn_diff,
    "compare": drawn_compare,
    "run": drawn_run,
}
