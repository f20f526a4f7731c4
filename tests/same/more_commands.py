"""More drawn command lines: drawn machines, large fabrics, mistakes, logs, whole sweeps."""

import json
from copy import deepcopy
from typing import Any

from tests.same import clusters, workloads
from tests.same.draw import Draw
from tests.same.features import feature_questions, file_text

Mapping = dict[str, Any]
Commands = tuple[list[str], dict[str, str]]  # command lines, and the files that they read
Place = tuple[str | int, ...]  # keys and indices that lead to a value of a scenario

# **** Machines ****

PLACES = ("cpu0", "cpu0.1", "cpu1", "pcie0", "pcie1")
GPUS: tuple[Mapping, ...] = (
    {"model": "H100 PCIe 80GB", "arch": "sm_90", "sms": 114, "memory_bandwidth": "2000GB/s"},
    {"model": "A100 PCIe 40GB", "arch": "sm_80", "sms": 108, "memory_bandwidth": "1500GB/s"},
    {"model": "V100 SXM2 32GB", "arch": "sm_70", "sms": 80, "memory_bandwidth": "900GB/s"},
)


def drawn_machine(draw: Draw) -> Mapping:
    """Return a machine of two to eight GPUs at drawn places, joined in drawn ways."""
    count = draw.choose((2, 3, 4, 4, 6, 8))
    gpu = {**draw.choose(GPUS), "count": count, "memory": "40GB"}
    gpu["flops"] = {"bfloat16": "312TFLOPS"}
    gpu["at"] = [draw.choose(PLACES) for _ in range(count)]
    machine: Mapping = {"description": "A drawn machine", "gpu": gpu}
    joined = draw.choose(("none", "switches", "uneven", "all", "peers", "peers"))
    scale_up: Mapping = {"kind": "nvlink", "link_bandwidth": draw.choose(("20GB/s", "20.6GB/s"))}
    if joined in ("switches", "uneven"):
        scale_up.update({"links": 18, "switches": draw.choose((2, 4, 6))})
    if joined == "uneven":
        scale_up["links_each"] = [18, *(draw.choose((18, 18, 9, 0)) for _ in range(count - 1))]
    if joined == "all":
        scale_up["links"] = draw.choose((1, 2, 6))
    if joined == "peers":
        pairs = {tuple(sorted(draw.sample(range(count), 2))) for _ in range(count)}
        scale_up["peers"] = [[*pair, draw.choose((1, 2, 4))] for pair in sorted(pairs)]
    if joined != "none":
        machine["scale_up"] = scale_up
    machine["pcie"] = {
        "generation": draw.choose((3, 4, 5)),
        "switches": [draw.choose(("cpu0", "cpu1")), draw.choose(("cpu1", "pcie0"))],
    }
    draw.maybe_set(machine["pcie"], 0.2, "width", (8, 16))
    draw.maybe_set(machine["pcie"], 0.2, "bridged", (True,))
    machine["cpu"] = {
        "vendor": draw.choose(("intel", "amd")),
        "model": "a processor",
        "domains": 2,
        "memory_bandwidth": draw.choose(("150GB/s", "245GB/s")),
        "link": draw.choose(("10GB/s", "30GB/s")),
    }
    nics = draw.choose((1, 2, 2, 4))
    machine["nics"] = {
        "model": "ConnectX-7",
        "count": nics,
        "rate": draw.choose(("100Gbps", "200Gbps", "400Gbps")),
        "at": [draw.choose(PLACES) for _ in range(nics)],
    }
    draw.maybe_set(machine["nics"], 0.15, "gpudirect", (False,))
    draw.maybe_set(machine, 0.15, "p2p", (False,))
    return machine


def drawn_machines(draw: Draw) -> Commands:
    """Return what netsim says of a drawn machine, and what collectives take on it."""
    files = {"drawn.yaml": file_text(drawn_machine(draw))}
    nodes = draw.choose(("", "", " --nodes 2", " --nodes 3"))
    collectives = ",".join(draw.sample(workloads.WITH_PROTOCOL, 2))
    commands = [
        "check drawn.yaml",
        f"topo show drawn.yaml{nodes}",
        "topo lint drawn.yaml --nodes 2",
        f"expect drawn.yaml {collectives} --sizes 8,64K,16M{nodes}",
        f"expect drawn.yaml {draw.choose(('alltoall', 'sendrecv'))} --sizes 256K{nodes}",
        "expect drawn.yaml all_reduce --sizes 1M --nodes 2 --why 1M",
        "topo export drawn.yaml --format nccl -o made.xml",
        "topo show made.xml",
        f"expect drawn.yaml all_reduce --sizes 64K --graph-out graph.xml{nodes}",
        f"expect drawn.yaml all_reduce --sizes 1M --graph graph.xml{nodes}",
    ]
    return commands, files


# **** Fabrics of many hosts ****

LARGE_FABRICS: tuple[Mapping, ...] = (
    {"kind": "single-switch"},
    {"kind": "leaf-spine"},
    {"kind": "leaf-spine", "oversubscription": 2},
    {"kind": "leaf-spine", "ports": 16, "oversubscription": 3},
    {"kind": "leaf-spine", "ports": 32, "oversubscription": 4, "nodes_per_leaf": 6},
    {"kind": "leaf-spine", "oversubscription": [1, 2], "nodes_per_leaf": 4},
    {"kind": "rail-optimized"},
    {"kind": "rail-optimized", "ports": 16},
    {"kind": "rail-optimized", "levels": 3, "nodes_per_unit": 4, "units_per_pod": 2},
    {"kind": "rail-only", "nodes_per_unit": 8},
    {"kind": "dual-plane"},
    {"kind": "dual-plane", "ports": 32, "oversubscription": 2},
    {"kind": "fat-tree"},
    {"kind": "fat-tree", "levels": 2},
    {"kind": "fat-tree", "levels": 2, "oversubscription": 2},
    {"kind": "fat-tree", "oversubscription": [2, 2]},
    {"kind": "fat-tree", "k": 12, "oversubscription": 2},
    {"kind": "dragonfly"},
    {"kind": "dragonfly", "routers": 4, "ports_per_router": 3, "global_links": 3},
    {"kind": "torus", "dims": [4, 3, 3]},
    {"kind": "torus", "dims": [2, 4, 4], "twist": True},
    {"kind": "ring"},
)


def drawn_fabrics(draw: Draw) -> Commands:
    """Return figures, mistakes and times of two drawn fabrics of 5 to 130 hosts."""
    commands = []
    files = {}
    for number in range(2):
        fabric = dict(draw.choose(LARGE_FABRICS))
        draw.maybe_set(fabric, 0.4, "routing", clusters.ROUTINGS)
        draw.maybe_set(fabric, 0.2, "transport", clusters.TRANSPORTS)
        draw.maybe_set(fabric, 0.15, "sharp", (True,))
        cluster: Mapping = {
            "machine": draw.choose(("dgx-h100", "dgx-a100", "h100-x4", "mi300x")),
            "nodes": draw.integer(5, 40) if draw.happens(0.8) else draw.integer(64, 130),
            "gpus_per_node": draw.choose((1, 1, 2)),
            "nics_per_node": draw.choose((1, 1, 2, 4)),
            "fabric": fabric,
        }
        if "dims" in fabric:
            cluster["nodes"] = 36 if fabric["dims"] == [4, 3, 3] else 32
        work: Mapping = {"collective": "sendrecv", "sizes": ["64KiB"], "timing": "single"}
        scenario = {"cluster": cluster, "workload": work, "outputs": ["csv"], "limits": True}
        name = f"fabric{number}.yaml"
        files[name] = file_text(scenario)
        commands += [f"topo show {name} --routes", f"topo lint {name}"]
        commands.append(f"run {name} --jobs 1 -q -o made{number} --format csv")
        if cluster["nodes"] <= 40:
            commands.append(f"topo export {name} --format custom")
    return commands, files


# **** Mistakes ****

ODD_VALUES = (
    -1,
    0,
    1,
    3,
    1.5,
    10**12,
    "",
    "many",
    "no-such",
    "3",
    "10GB",
    "400Gbps",
    "5us",
    "50%",
    "200%",
    "0%",
    "-1us",
    None,
    True,
    False,
    [],
    {},
    [0, 1],
    ["ring", "ring"],
    {"from": 1, "to": 8, "factor": 2},
    {"kind": "fat-tree"},
)
ODD_KEYS = ("kinds", "node", "gpus", "bandwith", "Sizes", "seed", "at", "for")
MISTAKES = 14  # scenarios of a question
CHECKED_KEYS = ("cluster", "workload", "jobs")


def scenarios_of_features() -> list[Mapping]:
    """Return the scenarios of all questions about features."""
    scenarios = []
    for question in feature_questions():
        for name, text in question.files.items():
            if name.endswith(".yaml") and text.startswith('"'):
                lines = (line.partition(": ") for line in text.splitlines() if line)
                scenario = {json.loads(key): json.loads(value) for key, _, value in lines}
                if any(key in scenario for key in CHECKED_KEYS):
                    scenarios.append(scenario)
    return scenarios


def places_of(value: Any, place: Place = ()) -> list[Place]:
    """Return the places of all values inside a value.

    >>> places_of({"a": [1, {"b": 2}]})
    [('a',), ('a', 0), ('a', 1), ('a', 1, 'b')]
    """
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return []
    places: list[Place] = []
    for key, inner in items:
        places.append((*place, key))
        places += places_of(inner, (*place, key))
    return places


def with_mistake(draw: Draw, scenario: Mapping) -> Mapping:
    """Return a copy with one value replaced, removed or doubled, or with a key more."""
    copy = deepcopy(scenario)
    place = draw.choose(places_of(copy))
    parent: Any = copy
    for key in place[:-1]:
        parent = parent[key]
    last: Any = place[-1]
    kind = draw.choose(("replaced",) * 5 + ("removed", "doubled", "scaled", "key"))
    if kind == "removed":
        del parent[last]
    elif kind == "doubled" and isinstance(parent, list):
        parent.append(parent[last])
    elif kind == "scaled" and isinstance(parent[last], int):
        parent[last] = parent[last] * 2 + 1
    elif kind == "key" and isinstance(parent, dict):
        parent[draw.choose(ODD_KEYS)] = parent[last]
    else:
        parent[last] = draw.choose(ODD_VALUES)
    return copy


def drawn_mistakes(draw: Draw) -> Commands:
    """Return `netsim check` of scenarios with a mistake each, and of a machine with one."""
    scenarios = scenarios_of_features()
    files = {}
    commands = []
    for number in range(MISTAKES):
        name = f"mistake{number}.yaml"
        files[name] = file_text(with_mistake(draw, draw.choose(scenarios)))
        commands.append(f"check {name}")
    for number in range(3):
        name = f"machine{number}.yaml"
        files[name] = file_text(with_mistake(draw, drawn_machine(draw)))
        commands += [f"check {name}", f"topo show {name}"]
    return commands, files


# **** Logs of nccl-tests ****

DEVICES = {"dgx-h100": "NVIDIA H100 80GB HBM3", "dgx-a100": "NVIDIA A100-SXM4-80GB"}
FACTORS = {"all_reduce": 1.5, "all_gather": 0.75, "reduce_scatter": 0.75, "broadcast": 1.0}


def log_text(draw: Draw, machine: str, collective: str, hosts: int, slowness: float) -> str:
    """Return a made-up log of nccl-tests, launched by threads, processes or both."""
    per_host = 4 // hosts
    gpus = per_host * hosts
    style = draw.choose(("processes", "threads", "one thread", "unknown"))
    threads, gpus_per_thread = {
        "processes": (1, 1),
        "threads": (per_host, 1),
        "one thread": (1, per_host),
        "unknown": (1, 1),
    }[style]
    lines = []
    if draw.happens(0.4):
        lines.append(f"# Collective test starting: {collective}_perf")
    if draw.happens(0.5):
        lines.append(f"mpirun -np {hosts} {collective}_perf -b 64K -e 16M -g {gpus_per_thread}")
    lines.append(
        f"# nThread {threads} nGpus {gpus_per_thread} minBytes 65536 maxBytes 16777216 "
        "step: 16(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0"
    )
    lines += ["#", "# Using devices"]
    for rank in range(gpus):
        host, device = divmod(rank, per_host)
        process = 4711 + (rank if style == "processes" else host)
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {process:6d} on host{host} device {device:2d} "
            f"[0x{15 + device * 16:02x}] {DEVICES[machine]}"
        )
    if draw.happens(0.5):
        lines.append("host0:4711:4711 [0] NCCL INFO NCCL version 2.21.5+cuda12.4")
    if draw.happens(0.3):
        lines.append("host0:4711:4711 [0] NCCL INFO NCCL_ALGO set by environment to Ring")
    lines += [
        "#",
        "#                                 out-of-place                       in-place",
        "#  size   count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong",
        "#   (B)  (elements)                (us)  (GB/s)  (GB/s)         (us)  (GB/s)  (GB/s)",
    ]
    for size in (65536, 1048576, 16777216):
        microseconds = slowness * (25 + size / 200e3)
        algbw = size / microseconds / 1e3
        busbw = FACTORS[collective] * algbw
        figures = f"{microseconds:8.2f} {algbw:7.2f} {busbw:7.2f}      0"
        redop = "sum" if "reduce" in collective else "none"
        lines.append(f"{size:12d} {size // 4:13d} float {redop} -1 {figures} {figures}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 100", ""]
    return "\n".join(lines)


def drawn_logs(draw: Draw) -> Commands:
    """Return `netsim compare`, `diff`, `calibrate` or `accuracy` of made-up measurements."""
    machine = draw.choose(tuple(DEVICES))
    collective = draw.choose(tuple(FACTORS))
    hosts = draw.choose((1, 1, 1, 2))
    slowness = draw.choose((0.7, 1.0, 1.0, 1.0, 1.3, 3.0))
    files = {"log.txt": log_text(draw, machine, collective, hosts, slowness)}
    files["other.txt"] = log_text(draw, machine, collective, hosts, 1.1)
    index = {
        "id": "drawn",
        "system": draw.choose(("h100_sxm", "a100_sxm", "a_system")),
        "file": "measured.csv",
        "gpu": DEVICES[machine],
        "topology": {"machine": machine, "nodes": 1, "gpus_per_node": draw.choose((2, 4, 8))},
        "interconnect": "NVLink",
        "collective": collective,
        "nccl": draw.choose(("2.18.3", "2.21.5", "2.26.2")),
        "env": draw.choose(({}, {"NCCL_ALGO": "Ring"}, {"NCCL_PROTO": "Simple"})),
        "env_note": "",
        "launch": draw.choose(("single_process", "process_per_gpu")),
        "command": f"{collective}_perf -b 64K -e 16M -f 16",
        "healthy": "yes",
        "source": "made up",
        "date": "2026-01-01",
        "remarks": "",
    }
    header = "size_bytes,count,dtype,redop,root,oop_time_us,oop_algbw_gbps,oop_busbw_gbps"
    rows = [header + ",ip_time_us,ip_algbw_gbps,ip_busbw_gbps"]
    for size in (1024, 65536, 1048576, 67108864):
        time = slowness * (20 + size / 200e3)
        rows.append(f"{size},{size // 4},float,sum,-1,{time:.2f},1.0,1.0,{time * 0.98:.2f},1.0,1.0")
    files["index.yaml"] = json.dumps([index])
    files["measured.csv"] = "\n".join([*rows, ""])
    named = f" --topology {machine}" if draw.happens(0.5) else ""
    commands = [f"compare log.txt{named} --collective {collective} --json made.json"]
    if draw.happens(0.5):
        commands.append(f"compare log.txt other.txt{named} --collective {collective} -o compared")
    commands.append(f"diff log.txt other.txt --collective {collective}")
    if hosts == 1:
        commands.append(f"diff log.txt {machine} --gpus-per-node 4 --collective {collective}")
    commands.append("accuracy index.yaml --jobs 1 --json accuracy.json")
    if draw.happens(0.3):
        commands.append(
            f"calibrate measured.csv --topology {machine} --gpus-per-node 2 --jobs 1 "
            f"--collective {collective} -o calibrated.yaml"
        )
    return commands, files


# **** Sweeps from their run to their report ****


def drawn_whole_sweep(draw: Draw) -> Commands:
    """Return a small sweep that is run, perhaps in parts, then plotted, reported or searched."""
    cluster: Mapping = {
        "machine": draw.choose(("dgx-h100", "dgx-a100", "mi300x")),
        "nodes": draw.choose((1, 2)),
        "gpus_per_node": draw.choose((1, 2)),
    }
    if cluster["nodes"] == 1:
        cluster["gpus_per_node"] = draw.choose((2, 4))
    work: Mapping = {
        "collective": draw.choose(("all_reduce", "all_gather")),
        "sizes": draw.sample(workloads.SMALL_SIZES, 2),
    }
    axes = draw.sample(
        (
            {"workload.algorithm": ["ring", "direct"]},
            {"workload.algorithm": ["Ring", "auto"]},
            {"workload.dtype": ["half", "float", "double"]},
            {"nccl.version": ["2.18", "2.27"]},
            {"cluster.nic": ["100Gbps", "400Gbps"]},
            {"workload.timing": ["single", "throughput"]},
            {"launch": ["process_per_gpu", "cuda_graph"]},
        ),
        2,
    )
    sweep: Mapping = {**axes[0], **axes[1]}
    draw.maybe_update(
        sweep,
        0.5,
        (
            {"base": {key: values[0] for key, values in axes[0].items()}},
            {"seeds": 2},
            {"skip": "workload.dtype == 'half'"},
        ),
    )
    scenario: Mapping = {"cluster": cluster, "workload": work, "sweep": sweep}
    scenario["outputs"] = ["csv", *draw.choose(([], ["trace"]))]
    draw.maybe_set(scenario, 0.5, "prices", ("default",))
    draw.maybe_set(scenario, 0.3, "limits", (True,))
    if "seeds" in sweep:
        scenario["noise"] = "quiet"
        scenario["samples"] = 3
    files = {"sweep.yaml": file_text(scenario)}
    ways: tuple[list[str], ...] = (
        ["run sweep.yaml --jobs 1 -o a", "report a --no-explain --jobs 1"],
        ["run sweep.yaml --jobs 1 -o a", "run sweep.yaml --jobs 1 -o a --resume", "plot a -o p"],
        [
            "run sweep.yaml --jobs 1 --shard 1/2 -o a",
            "run sweep.yaml --jobs 1 --shard 2/2 -o b",
            "merge a b -o c",
        ],
        ["optimize sweep.yaml --jobs 1 -o a --objective busbw_GBps"],
        ["optimize sweep.yaml --jobs 1 -o a --subject-to 'time_us < 40'"],
        ["run sweep.yaml --jobs 1 -o a --skip-invalid --format json --quiet"],
        ["run sweep.yaml --jobs 1 -o a --format nccl-tests", "explain sweep.yaml"],
    )
    return draw.choose(ways), files


DRAWN = {
    "machine": drawn_machines,
    "fabric": drawn_fabrics,
    "mistakes": drawn_mistakes,
    "logs": drawn_logs,
    "whole sweep": drawn_whole_sweep,
}
