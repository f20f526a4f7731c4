"""What is pinned: whole outputs of functions over small inputs, by family (see `tests.pins`)."""

import gzip
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from netsim.base.errors import InputError
from netsim.cli.files import SCHEMAS
from netsim.collectives.collective import BLOCKS, HAS_IN_PLACE, collective_of
from netsim.collectives.msccl import AlgoSheet, PlanSheet
from netsim.collectives.msccl import algorithm as read
from netsim.collectives.table import build
from netsim.engines.engine import simulate
from netsim.measured.calibrate import concerns, parameters_of
from netsim.measured.logs import read_log
from netsim.metrics.bound import bound_by, critical_path, limit_of
from netsim.nccl.choice import schedule_of
from netsim.nccl.facts import ALGORITHMS, COLLECTIVES, FUNCTIONS, PROTOCOLS
from netsim.nccl.graph_xml import write_graphs
from netsim.nccl.schedules.smaller import foldable, loops_of
from netsim.nccl.tuning import Call, choose, launch, timed_costs
from netsim.program.place import place
from netsim.program.program import Program
from netsim.scenario.cells import expand
from netsim.schedule.schedule import Schedule
from netsim.tasks.explained import explained_run, shown_of
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.topology.figures import fabric_figures, gpu_bandwidth, graph_figures, tiers_of
from netsim.topology.foreign.formats import write_node_link
from netsim.topology.foreign.nccl import machine_of
from netsim.topology.foreign.nccl_xml import write_system
from netsim.topology.foreign.smi import parse_matrix
from netsim.topology.graph import Topology
from netsim.topology.routing import switch, torus
from netsim.trace.chrome import write_trace
from netsim.trace.goal import Sheet
from netsim.trace.tables import write_links, write_links_over_time, write_rows
from netsim.training.explain import causes_of, explained_step, hops_of, visits_of
from netsim.training.recorded.chakra import encoded, nodes_of
from netsim.training.recorded.kineto import read_profile, step_of, tape_of
from netsim.training.resolve import memories, model_flops
from netsim.training.run import (
    details_of,
    held_over_time,
    write_collectives,
    write_memory,
    write_memory_over_time,
)
from netsim.training.timeline import write_step_trace
from netsim.workloads.model import MODELS, layers_of
from netsim.workloads.step import DATA, SCHEDULES, training_step
from netsim.yamlio.read import parse_source
from tests.collectives.collective_cases import TABLE, build_small, make
from tests.nccl.nccl_nodes import node_of, searched_communicator, system_of
from tests.nccl.nccl_plans import small_plan
from tests.pins import Found, family
from tests.timing.cells import folded, timed
from tests.topology.test_fabrics import FABRICS, hosts, with_routing
from tests.topology.topology_tools import cluster, topology
from tests.trace.output_runs import chain_run, launched_run, mixed_run, ring_run
from tests.training.profiler import NAME, said, steps_of_data_parallelism
from tests.training.steps import H100, SMALL, setting, step

ROOT = Path(__file__).parents[1]
FILES = ROOT / "tests" / "data"


def rows(schedule: Schedule) -> list[object]:
    """A schedule in full."""
    told = [schedule.styles, schedule.pieces, schedule.lags, schedule.groups, schedule.columns()]
    return [*told, schedule.fold]


def links(topology: Topology) -> list[object]:
    """A topology: nodes and links, and the ways between some GPUs."""
    some = np.arange(len(topology.gpu_nodes), dtype=np.int32)
    src, dst = (each.ravel() for each in np.meshgrid(some[:9], some[-9:]))
    apart = src != dst
    channels = (7 * src + dst)[apart] % 5
    ways = topology.routes(src[apart], dst[apart], channels.astype(np.int32))
    return [topology.layout, topology.capacities, ways]


def placed(program: Program) -> list[object]:
    """A program in full."""
    return [rows(program.schedule), program.path, program.paths, program.links, program.gpus]


# **** Collectives ****


@family
def textbook() -> Found:
    """Schedules of all algorithms, row by row."""
    for name, algorithm in TABLE:
        some = []
        for ranks in (1, 2, 5, 6, 8):
            for in_place in (False, True)[: 1 + (name in HAS_IN_PLACE)]:
                asked = make(name, ranks, 2 * ranks + 3, root=ranks // 2, in_place=in_place)
                some.append(rows(build_small(asked, algorithm)))
        yield f"{name} {algorithm}", some
    for name in ("all_reduce", "all_gather", "reduce_scatter"):
        try:
            yield f"{name} swing", [rows(build(make(name, n, n), "swing")) for n in (2, 8)]
        except InputError:
            continue


@family
def sheets() -> Found:
    """Algorithms as files of MSCCL and plans of MSCCL++, as GOAL, and read again."""
    for name, algorithm in [(a, b) for a, b in TABLE if a in AlgoSheet.names]:
        asked = collective_of(name, 4, 4 * 4 * 840)
        with suppress(InputError):
            made = build_small(asked, algorithm)
            program = place(made, switch(4, 1e9, 1e-6))
            yield f"{name} {algorithm}", [AlgoSheet("x", made, asked).text(), Sheet(program).text()]
            plan = PlanSheet("x", made, asked).text()
            yield f"{name} {algorithm} plan", [plan, rows(read("x.json", plan)(asked))]


@family
def limits() -> Found:
    """What no algorithm beats, for every collective."""
    boxes = {"switch": switch(4, 1e9), "torus": torus((3, 2), 1e9), "ring": torus((5,), 2e9)}
    boxes["mesh"] = topology("machine: dgx-1-v100\n")
    boxes["hosts"] = topology("machine: dgx-h100\nnodes: 2\ngpus_per_node: 2\n")
    for name, made in boxes.items():
        gpus = np.arange(len(made.gpu_nodes))
        for collective in sorted(BLOCKS):
            with suppress(InputError):
                found = [limit_of(made, gpus[:n], collective, 1e6, root=1) for n in (2, len(gpus))]
                yield f"{name} {collective}", found
        demand = np.add.outer(3.0 * gpus, gpus % 3) * 1e5 * (gpus[:, None] != gpus)
        yield f"{name} demand", limit_of(made, gpus, "alltoallv", 0.0, demand=demand)
        yield f"{name} NVLS", limit_of(made, gpus, "all_reduce", 1e6, nvls=True)


# **** NCCL ****

COMMUNICATORS = (
    ("h100_8nic", 1), ("h100_8nic", 2), ("h100_8nic", 5), ("h100_1nic", 3), ("dgxa100", 2),
    ("a100x4_1nic", 1), ("dgx1v_4nic", 2), ("l40s8sw", 1), ("a10pcie8_amd", 1),
)  # fmt: skip
SIZES = (1, 5000, 2**15, 2**18, 3 * 2**20, 2**26, 2**30)


@family
def choices() -> Found:
    """NCCL's channels, its table of costs, its choices and its launches."""
    for config, nodes in COMMUNICATORS:
        comm = searched_communicator(config, nodes)
        node = node_of(config, networked=nodes > 1)
        yield f"{config} {nodes} graphs", [node.ring, node.tree, node.nvls]
        for function in FUNCTIONS:
            calls = [Call(function, size) for size in SIZES]
            told = [(timed_costs(comm, call), choose(comm, call)) for call in calls]
            yield f"{config} {nodes} {function}", told
        launches = [
            launch(comm, size, a, p) for size in SIZES for a in ALGORITHMS for p in PROTOCOLS
        ]
        yield f"{config} {nodes} launches", launches


@family
def graphs() -> Found:
    """NCCL's graphs as files, and what can be calibrated on a system."""
    for config, networked in (("h100_8nic", True), ("dgxa100", False), ("dgx1v_4nic", True)):
        text = write_graphs(node_of(config, networked=networked))
        yield config, text
    for name in ("NVLS", "two hosts", "mesh", "sendrecv over PCIe", "gather", "reduce"):
        told = parameters_of(scene(name))
        fits = [[one.name, [concerns(one, *of) for of in CALLS]] for one in told]
        yield f"parameters: {name}", [told, fits]


CALLS = (("Ring", "LL"), ("Tree", "Simple"), ("NVLS", "Simple"), ("NVLSTree", "Simple"))
SHAPES = ((1, 4), (2, 2), (3, 2), (5, 1))


@family
def written_by_nccl() -> Found:
    """Schedules of NCCL's rings, trees and blocks at small chunks, and what of them is alike."""
    for name in COLLECTIVES:
        for algorithm, protocol in [(a, p) for a in ("Ring", "Tree", "PAT") for p in PROTOCOLS]:
            if (protocol != "Simple" and algorithm == "PAT") or (
                algorithm == "Tree" and name != "all_reduce"
            ):
                continue
            some: list[object] = []
            for nodes, local in SHAPES:
                asked = make(name, nodes * local, 1501, root=1)
                plan = small_plan(algorithm, protocol, nodes, local, asked.count)
                try:
                    some.append(rows(schedule_of(asked, plan)))
                except (InputError, ValueError):
                    continue
                loops = loops_of(asked, plan)
                some.append([(max(loops), min(loops)), foldable(asked, plan)])
            if some:
                yield f"{name} {algorithm} {protocol}", some


# **** Scenes: small questions from end to end ****

COLLNET = "}\nnccl: {env: {NCCL_COLLNET_ENABLE: 1}"
SCENES = {
    "a host": ("machine: dgx-h100", "all_reduce, sizes: [40KiB]"),
    "NVLS": ("machine: dgx-h100, gpus_per_node: 4", "all_reduce, algorithm: NVLS, sizes: [3MiB]"),
    "gathered by NVLS": ("machine: dgx-h100", "all_gather, algorithm: NVLS, sizes: [1MiB]"),
    "two hosts": ("machine: dgx-h100, nodes: 2, gpus_per_node: 2", "all_reduce, sizes: [300KiB]"),
    "trees": (
        "machine: dgx-a100, nodes: 3, gpus_per_node: 2",
        "all_reduce, algorithm: Tree, sizes: [300KiB]",
    ),
    "NVLSTree": ("machine: dgx-h100, nodes: 2", "all_reduce, algorithm: NVLSTree, sizes: [2MiB]"),
    "PAT": (
        "machine: dgx-h100, nodes: 5, gpus_per_node: 1",
        "all_gather, algorithm: PAT, sizes: [200KB]",
    ),
    "ring LL128": (
        "machine: dgx-a100, nodes: 2",
        "reduce_scatter, algorithm: Ring, protocol: LL128, sizes: [200KiB]",
    ),
    "broadcast": ("machine: a100-x4, nodes: 2", "broadcast, root: 3, sizes: [100KiB]"),
    "reduce": ("machine: dgx-1-v100", "reduce, root: 2, sizes: [100KiB]"),
    "alltoall": ("machine: dgx-h100, nodes: 2, gpus_per_node: 4", "alltoall, sizes: [64KiB]"),
    "sendrecv over PCIe": ("machine: l40s-pcie-x8", "sendrecv, sizes: [100KiB]"),
    "gather": ("machine: gh200-x4, nodes: 2", "gather, root: 1, sizes: [64KiB]"),
    "scatter": ("machine: mi300x", "scatter, root: 1, sizes: [64KiB]"),
    "mesh": ("machine: mi300x", "all_reduce, sizes: [2MiB]"),
    "NVL72": ("machine: gb200-nvl72, nodes: 2", "all_reduce, sizes: [1MiB]"),
    "in network": (
        "machine: dgx-a100, nodes: 2, gpus_per_node: 4, fabric: {kind: rail-optimized, "
        "sharp: true}",
        "all_reduce, algorithm: CollNetDirect, sizes: [64KiB]" + COLLNET,
    ),
    "chains": (
        "machine: dgx-a100, nodes: 2, gpus_per_node: 4, fabric: {kind: rail-optimized, "
        "sharp: true}",
        "all_reduce, algorithm: CollNetChain, sizes: [64KiB]" + COLLNET,
    ),
    "gathered": ("machine: dgx-a100, nodes: 4, gpus_per_node: 4", "all_gather, sizes: [256KiB]"),
    "scattered": (
        "machine: dgx-h100, nodes: 2, gpus_per_node: 4",
        "reduce_scatter, algorithm: Ring, protocol: Simple, sizes: [200KiB]",
    ),
    "torus": (
        "graph: {kind: torus, dims: [3, 2], bandwidth: 50GB/s, latency: 1us}",
        "all_reduce, algorithm: ring, sizes: [10KB]",
    ),
    "switch": (
        "graph: {kind: switch, gpus: 6, bandwidth: 50GB/s, latency: 1us}",
        "alltoall, algorithm: pairwise, sizes: [60KB]",
    ),
    "hierarchical": (
        "machine: dgx-h100, nodes: 3, gpus_per_node: 2",
        "all_reduce, algorithm: hierarchical, sizes: [60KB]",
    ),
    "staged": (
        "machine: dgx-h100, nodes: 4, gpus_per_node: 2, fabric: {kind: leaf-spine, "
        "nodes_per_leaf: 2, oversubscription: 2}",
        "alltoall, algorithm: hierarchical, sizes: [60KB]",
    ),
    "hashed": (
        "machine: dgx-a100, nodes: 4, gpus_per_node: 2, fabric: {kind: leaf-spine, "
        "nodes_per_leaf: 1, routing: ecmp}",
        "all_reduce, algorithm: ring, sizes: [90KB]",
    ),
    "adaptive": (
        "machine: dgx-a100, nodes: 4, gpus_per_node: 2, fabric: {kind: leaf-spine, "
        "nodes_per_leaf: 2, routing: adaptive}",
        "alltoall, sizes: [256KiB]",
    ),
    "sprayed": (
        "machine: dgx-h100, nodes: 4, gpus_per_node: 2, fabric: {kind: fat-tree, routing: spray}",
        "reduce_scatter, algorithm: ring, sizes: [90KB]",
    ),
    "dragonfly": (
        "machine: gh200-x4, nodes: 6, fabric: {kind: dragonfly, routers: 2, "
        "ports_per_router: 4, global_links: 6, transport: slingshot}",
        "all_gather, algorithm: ring, sizes: [90KB]",
    ),
    "faults": (
        "machine: dgx-h100, nodes: 2, gpus_per_node: 4, faults: [{link: node1.nic3-leaf3, "
        "bandwidth: 50%}, {gpu: node1.gpu2, slowdown: 1.5}]",
        "all_reduce, sizes: [1MiB]",
    ),
    "forest": ("machine: dgx-1-v100", "all_gather, algorithm: forest, sizes: [64KiB]"),
    "synthesised": (
        "graph: {kind: torus, dims: [3, 2], bandwidth: 50GB/s, latency: 1us}",
        "all_gather, algorithm: synth, sizes: [60KB]",
    ),
    "pairs": (
        "machine: dgx-h100, nodes: 2, gpus_per_node: 2",
        "p2p, pairs: [[0, 3], [1, 2], [3, 1]], sizes: [64KiB]",
    ),
}


def scene(name: str) -> ResolvedCell:
    """The cell of a scene."""
    cluster, work = SCENES[name]
    text = f"cluster: {{{cluster}}}\nworkload: {{collective: {work}}}\n"
    return resolve(expand(parse_source(text, "scene.yaml"))[0])


def become(one: ResolvedCell) -> Found:
    """What a question becomes on its way to an answer."""
    (size,) = one.cell.scenario.collective.size_list()
    plan = one.planned(size)
    yield "links", links(one.topology)
    if plan is not None:
        yield "plan", [plan.algorithm, plan.protocol, plan.work, plan.n_channels]
    yield "folded", rows(folded(one, size).schedule())
    told = timed(one, size)
    yield "timed", [told.seconds, told.approximation, told.uncertainty, told.hops, told.use]
    yield "timed rows", placed(told.program)
    program = place(shown_of(one, size).schedule, one.topology, one.gpus.tolist())
    timeline = simulate(program, "compiled")
    yield "program", placed(program)
    yield "timeline", timeline
    yield "path", [critical_path(program, timeline), bound_by(program, timeline)]
    yield "launch", [one.launch(size), one.memory_needed(size)]
    yield "explained", explained_run(one, size, engine="compiled")[0]


for _name in SCENES:
    family(lambda name=_name: become(scene(name)), f"scene: {_name}")


# **** Networks, machines and files ****


@family
def networks() -> Found:
    """Fabrics of every kind: links, ways by three policies, figures."""
    for fabric in FABRICS:
        hosted = (
            cluster(hosts(12, with_routing(fabric, how))) for how in ("static", "ecmp", "spray")
        )
        static, *others = hosted
        yield fabric, [links(static.topology), *(links(one.topology)[2] for one in others)]
        figures = [fabric_figures(static), gpu_bandwidth(static), tiers_of(static.fabric)]
        yield f"{fabric} figures", [*figures, graph_figures(static.topology)]


@family
def machines() -> Found:
    """One host of every machine."""
    for file in sorted((ROOT / "topologies").glob("*.yaml")):
        if not file.stem.startswith("gb"):
            yield file.stem, links(topology(f"machine: {file.stem}\n"))


@family
def files() -> Found:
    """What is read from logs and matrices, and what is written of topologies."""
    for file in sorted((FILES / "logs").glob("*.txt")):
        yield file.name, [replace(run, file="") for run in read_log(file, "all_reduce")]
    for file in sorted((FILES / "smi").glob("*.txt")):
        try:
            yield file.name, parse_matrix(file.read_text(encoding="utf-8"), file.name)
        except InputError:
            continue
    small = topology(hosts(2, "{kind: rail-optimized}", "dgx-h100"))
    yield "node-link", write_node_link(small)
    xml = system_of("h100_8nic")
    yield "NCCL's XML", [write_system(xml), machine_of(xml)]


@family
def traces() -> Found:
    """Files that show a run: rows, links, loads and traces without their headers."""
    writers = (write_rows, write_links, write_links_over_time)
    for make_run in (ring_run, launched_run, mixed_run, chain_run):
        program, timeline, _ = make_run()
        with TemporaryDirectory() as folder:
            for writer in writers:
                path = Path(folder) / "a.csv"
                writer(path, program, timeline)
                yield f"{make_run.__name__} {writer.__name__}", path.read_text(encoding="utf-8")
            path = Path(folder) / "a.json"
            write_trace(path, program, timeline)
            told = path.read_text(encoding="utf-8").split("\n", 1)[1]
            yield f"{make_run.__name__} trace", told
    done = step("  parallelism: {tp: 2, pp: 2, dp: 2}", model=MODEL, batch=8)
    with TemporaryDirectory() as folder:
        for write in (write_collectives, write_memory, write_memory_over_time):
            text = write(Path(folder), done).read_text(encoding="utf-8")
            yield f"step {write.__name__}", text
        path = write_step_trace(Path(folder) / "a.json.gz", done).path
        trace = gzip.decompress(path.read_bytes()).partition(b'"traceEvents"')
        yield "step trace", trace[2]


@family
def profiles() -> Found:
    """What is read from a trace of torch.profiler, and the tape of its steps."""
    made = steps_of_data_parallelism(900, 500, 600)
    made.kernel(2100, 30, name=NAME, stream=20, **said("allgather", dtype="Float"))
    made.kernel(2200, 30, name=NAME, stream=7, **said("send", **{"Dst Rank": 6, "Rank": 3}))
    with TemporaryDirectory() as folder:
        found = read_profile(made.write(Path(folder) / "t.json"))
        yield "calls", [found.calls, found.kernels, found.steps, found.world]
        for asked in (None, 3, 4, 5):
            chosen, notes = step_of(found, asked)
            yield f"step {asked}", [tape_of(chosen).entries, notes]


ASKED = ("default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "const", "enum")


@family
def keys() -> Found:
    """Which values keys of files have where nothing is said, and which they may have."""
    for kind, model in SCHEMAS.items():
        schema = model.model_json_schema(by_alias=True)
        for name, one in {kind: schema, **schema.get("$defs", {})}.items():
            told = {
                key: sorted((what, str(value)) for what, value in _leaves(given))
                for key, given in one.get("properties", {}).items()
            }
            if told:
                yield f"{kind}: {name}", told


def _leaves(given: Any) -> Iterator[tuple[str, object]]:
    if isinstance(given, dict):
        for what, value in given.items():
            if what in ASKED:
                yield what, value
            else:
                yield from _leaves(value)
    elif isinstance(given, list):
        for one in given:
            yield from _leaves(one)


# **** Models and steps ****


@family
def models() -> Found:
    """Layers of every model, tensor by tensor, and what it computes."""
    for name, model in MODELS.items():
        sequence = getattr(model, "sequence", 1)
        yield name, [model, layers_of(model), model_flops(model, 3, sequence)]


STEPS = {
    "plain": "  parallelism: {dp: 8}",
    "fsdp": "  parallelism: {dp: 8, data: fsdp}\n  replicas: {shard: 4}",
    "zero1": "  parallelism: {dp: 4, tp: 2, data: zero1}",
    "tensors and stages": "  parallelism: {tp: 2, pp: 2, dp: 2, sequence_parallel: true}",
    "zero bubble": "  parallelism: {pp: 4, dp: 2}\n  pipeline: {schedule: zb-h1}",
    "interleaved": "  parallelism: {pp: 2, dp: 4}\n  pipeline: {schedule: interleaved, chunks: 2}",
    "context": "  parallelism: {cp: 2, dp: 4}\n  stragglers: [{rank: 3, slowdown: 1.5}]",
    "delayed": "  parallelism: {dp: 8}\n  replicas: {sync_every: 4, islands: 2}",
    "recomputed": "  parallelism: {dp: 8, data: zero2}\n  recompute: full",
}
MODEL = (
    "{layers: 4, hidden: 512, heads: 8, kv_heads: 4, ffn: 1024, vocabulary: 1000, sequence: 256}"
)
EXPERTS = (
    "{layers: 2, hidden: 512, heads: 8, kv_heads: 8, ffn: 1024, vocabulary: 1000, sequence: 256, "
    "experts: 8, top_k: 2, expert_ffn: 256}"
)


TAPES: dict[str, dict[str, Any]] = {
    **{data: {"dp": 4, "data": data} for data in DATA},
    **{
        f"{kind} compressed": {"dp": 4, "compression": kind, "gradient_dtype": "float"}
        for kind in ("fp16", "bf16", "fp8", "top-k")
    },
    **{
        f"recomputing {kind}": {"tp": 2, "recompute": (kind,), "sequence_parallel": True}
        for kind in ("selective", "full", "non-reentrant", "ops")
    },
    **{
        f"{schedule}": {"pp": 2, "schedule": schedule, "chunks": 1 + (schedule == "interleaved")}
        for schedule in SCHEDULES
    },
    **{
        f"fp8, scaled by {scaling}": {"tp": 2, "dtype": "fp8", "scaling": scaling}
        for scaling in ("delayed", "tensor", "block")
    },
    **{
        f"context by {context}": {"cp": 2, "context": context}
        for context in ("p2p", "all_gather", "a2a")
    },
    **{
        f"tensors {overlap}": {"tp": 2, "sequence_parallel": True, "tensor_overlap": overlap}
        for overlap in ("none", "bulk", "pipelined")
    },
    "hybrid": {"dp": 8, "data": "fsdp", "shard": 2, "no_sync": False},
    "kept": {"dp": 4, "data": "fsdp2", "reshard": False, "forward_prefetch": True},
    "delayed": {"dp": 2, "delayed": True, "gradient_dtype": "float", "overlap": False},
    "eager": {"tp": 2, "loss": "eager", "elementwise": "eager", "attention": "unfused"},
    "small buckets": {"dp": 4, "bucket": 2**18, "first_bucket": 2**16, "micro": 2},
    "apart": {"cp": 2, "apart": True, "optimizer": "sgd-momentum", "connections": 1},
    "copied": {"tp": 2, "dp": 2, "data": "fsdp2", "sequence_parallel": True},
    "stages with zero1": {"pp": 2, "dp": 2, "data": "zero1", "micro": 2, "blocking_sends": None},
    "tensors and context": {
        "tp": 2,
        "cp": 2,
        "data": "fsdp",
        "dtype": "fp8",
        "sequence_parallel": True,
    },
    "islands": {"dp": 4, "islands": 2, "sync_every": 3, "overlap_sync": True},
    "late": {"dp": 2, "launch": 4e-6, "wait": 9e-6, "optimizer": "adam-eager"},
}
MIXED: dict[str, dict[str, Any]] = {
    "experts": {"ep": 4, "dp": 2},
    "deduplicated": {"ep": 4, "deduplicated": True, "fused_experts": True, "imbalance": 1.3},
    "overlapped": {"ep": 2, "tp": 2, "sequence_parallel": True, "expert_tensor": False},
}


@family
def tapes() -> Found:
    """What a step asks of GPUs and links, task by task, and what it keeps in memory."""
    few = replace(SMALL, layers=2)
    experts = replace(few, experts=8, top_k=2, expert_ffn=512, shared_ffn=256, dense_layers=1)
    rates = replace(H100, flops=H100.flops | {"fp8": 1979e12})
    for name, given in (TAPES | MIXED).items():
        model = experts if name in MIXED else replace(few, layers=2 * given.get("chunks", 1) + 2)
        batch = 4 * given.get("dp", 1) * given.get("ep", 1)
        made = setting(batch=batch, model=model, roofline=rates, **given)
        yield name, [training_step(made).entries, memories(made)]


def steps(rest: str, model: str = MODEL) -> Found:
    """A training step: its tasks, its time, its memory, its causes."""
    found = step(rest, model=model, batch=16)
    yield "memory", memories(found.resolved.setting)
    yield "figures", [found.seconds, details_of(found), found.breakdown, held_over_time(found)]
    yield "traced", [encoded(list(nodes_of(found.spans.tape, rank, {}))) for rank in (0, 5)]
    visits = visits_of(found)
    yield "path", [causes_of(visits), list(hops_of(visits))]
    if "fsdp" in rest:
        yield "explained", explained_step(found)
    yield "tasks", [found.spans.tape.entries, found.spans.timeline]
    yield "program", placed(found.program)


for _name, _rest in STEPS.items():
    family(lambda rest=_rest: steps(rest), f"step: {_name}")
family(lambda: steps("  parallelism: {dp: 2, ep: 4}", EXPERTS), "step: experts")
