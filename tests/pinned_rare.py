"""What only slow tests ask otherwise, of the smallest question each: what runs say of constants,
stars over hosts, ways that are tried, axes that change nothing, traces beside their simulation,
records of other tools (see `tests.pins`)."""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from importlib import import_module
from itertools import product
from math import sin
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any
from unittest import mock

import numpy as np

import netsim
from netsim.base.constants import TABLE, Constant
from netsim.base.errors import NetsimError
from netsim.collectives.collective import collective_of
from netsim.collectives.forest import Links, links_of, packed
from netsim.measured import estimate
from netsim.measured.index import Entry, read_index
from netsim.scenario.cells import expand_all
from netsim.sweep.summary import Idle, reason
from netsim.tasks.explained import explained_paths
from netsim.tasks.resolve import resolve
from netsim.topology.foreign import infragraph
from netsim.topology.graph import empty_graph
from netsim.training import compared
from netsim.training.recorded import chakra
from netsim.training.recorded.kineto import read_profile
from netsim.training.resolve import resolve_step
from netsim.training.run import simulate_step
from netsim.workloads.step import training_step
from netsim.yamlio.read import parse_source
from tests.collectives.test_forest import nodes
from tests.pinned import links, rows
from tests.pins import Found, family, spelled
from tests.topology.test_infragraph import RACK
from tests.training.profiler import steps_of_data_parallelism
from tests.training.steps import setting
from tests.training.test_chakra import observed, recorded

MEASURED = Path(__file__).parents[1] / "scenarios" / "measured"


def outcome(ask: Any, *given: Any) -> object:
    """What a question gives, or the words with which it is refused."""
    try:
        found = ask(*given)
        return list(found) if isinstance(found, Iterator) else found
    except (NetsimError, ValueError) as error:
        return str(error)


# **** What measured runs say of constants ****


def said_of(constant: Constant, entry: Entry) -> estimate.Floats:
    """What a run might say, of three points where the estimator tries values: waves around them."""
    assert constant.fitted is not None
    if "by_s" not in constant.fitted.estimator:
        return np.array([constant.value * (1 + 0.3 * sin(len(entry.id) + n)) for n in range(3)])
    at = np.log(estimate.tried_values(constant) / constant.value)
    middle = [0.3 * sin(len(entry.id) + len(constant.id) + n) for n in range(3)]
    return np.array([0.2 * (at - one) for one in middle])


def fitted() -> list[Constant]:
    """The constants that stand on runs, but for those of steps."""
    every = (one for one in TABLE.values() if one.fitted is not None and one.value)
    return [one for one in every if not one.fitted.estimator.endswith("by_steps")]  # type: ignore[union-attr]


@family
def estimates() -> Found:
    """Values of constants from what runs might say, all of them and without each system."""
    entries = read_index(MEASURED / "index.yaml")
    shown = {
        one.id: {entry.id: said_of(one, entry) for entry in estimate.looked_at(one, entries)}
        for one in fitted()
    }
    for one in fitted():
        told = [estimate.tried_values(one), list(shown[one.id])]
        if shown[one.id]:
            told.append(estimate.estimate_of(one, list(shown[one.id].values())))
        yield one.id, told
    at_sizes = np.array([8.0, 64.0, 1e6]), np.ones(3)
    with mock.patch.object(estimate, "_points", return_value=at_sizes):
        for system in sorted({entry.system for entry in entries}):
            yield f"without {system}", list(estimate.without(system, fitted(), entries, shown))
    yield "off", [outcome(estimate.switched_off, one) for one in (*TABLE, "launch.hots")]


SHOW_IT = {  # runs of small systems, whose channels are soon found
    "launch.host": "a100_superbench_8_all_reduce_1",
    "launch.each_channel.2_10": "a100_superbench_8_all_reduce_1",
    "cxi.eager_bytes": "alps_gh200_2x4_all_reduce_1",
    "tcp.nic_cap": "polaris_a100_tcp_2x4_all_reduce_1",
    "efa.usable": "aws_p4d_a100_2x8_all_reduce_1",
}


@family
def shown_by_runs() -> Found:
    """What single runs say of constants, and which figures of theirs change without them."""
    entries = {entry.id: entry for entry in read_index(MEASURED / "index.yaml")}
    for id, run in SHOW_IT.items():
        yield id, outcome(estimate.shown_by, TABLE[id], entries[run])
    several = [estimate.Without(one.id, "", 1.3) for one in fitted()]
    for run in dict.fromkeys(SHOW_IT.values()):
        yield f"figures of {run}", estimate.figures_without(entries[run], several)


# **** Stars over hosts, ways that are tried, axes that change nothing ****


@family
def stars() -> Found:
    """Trees over hosts of several GPUs, whose NICs are slower than what joins these."""
    for hosts, gpus in ((2, 2), (3, 2), (2, 4), (4, 3)):
        ranks = hosts * gpus
        known: Links = links_of(nodes(hosts, gpus), np.arange(ranks, dtype=np.int32))
        for name, root in (("all_gather", 0), ("broadcast", 1), ("reduce_scatter", 0)):
            asked = collective_of(name, ranks, 4 * 60 * ranks, root=root)
            yield f"{name} {hosts} {gpus}", rows(packed(asked, links=known))


PATHS = (
    "nodes: 4, gpus_per_node: 2, fabric: {kind: leaf-spine, nodes_per_leaf: 1, routing: ecmp}",
    "nodes: 4, gpus_per_node: 1, placement: random, fabric: {kind: leaf-spine, nodes_per_leaf: 2}",
    "nodes: 4, gpus_per_node: 2, fabric: {kind: fat-tree, k: 6, routing: spray}",
    "nodes: 2, gpus_per_node: 2",
)


@family
def paths() -> Found:
    """How connections spread over links, and what other settings of the network would change."""
    for place, work in product(PATHS, ("all_reduce, algorithm: ring", "alltoall")):
        text = (
            f"cluster: {{machine: dgx-a100, {place}}}\n"
            f"workload: {{collective: {work}, sizes: [64KiB]}}\n"
        )
        made = resolve(expand_all(parse_source(text, "paths.yaml")).cells[0])
        yield f"{place} {work}", outcome(lambda made=made: explained_paths(made, 65536, seeds=2))


IDLE = {
    "workload.dtype": "[half, bfloat16]",
    "cluster.seed": "[1, 2]",
    "cluster.nic": "[100Gbps, 200Gbps]",
    "cluster.fabric.latency": "[1us, 2us]",
    "cluster.fabric.oversubscription": "[1, 2]",
    "nccl.version": "['2.26', '2.27']",
    "nccl.env.NCCL_NTHREADS": "[256, 512]",
    "nccl.env.NCCL_IB_QPS_PER_CONNECTION": "[1, 2]",
    "nccl.env.NCCL_DEBUG": "[INFO, WARN]",
}


@family
def idle() -> Found:
    """Why an axis changes nothing, told of cells whose times are taken to be the same."""
    for axis, values in IDLE.items():
        for hosts in (1, 2):
            text = (
                f"cluster: {{machine: dgx-a100, nodes: {hosts}, gpus_per_node: 2, "
                f"fabric: {{kind: leaf-spine, nodes_per_leaf: 1}}}}\n"
                f"workload: {{collective: all_reduce, sizes: [64KiB]}}\n"
                f"sweep: {{{axis}: {values}}}\n"
            )
            yield f"{axis} {hosts}", outcome(why_idle, text, axis)


def why_idle(text: str, axis: str) -> str:
    """The words on the first and the last cell of a sweep."""
    cells = expand_all(parse_source(text, "idle.yaml")).cells
    return reason(Idle(axis, (cells[0], cells[-1]), 65536))


# **** Traces ****


@family
def beside_traces() -> Found:
    """Calls of a trace beside those of its own replay and of a step."""
    made = steps_of_data_parallelism(900, 500, 600)
    with TemporaryDirectory() as folder:
        path = made.write(Path(folder) / "t.json")
        profile = read_profile(path)
        yield "measured", list(compared.measured_calls(profile))
        for work in (f"trace: {path}", "model: bert-base, batch: 8, parallelism: {dp: 8}"):
            text = f"cluster: {{machine: dgx-h100}}\nworkload: {{{work}}}\n"
            step = simulate_step(resolve_step(expand_all(parse_source(text, "t.yaml")).cells[0]))
            found = compared.compare_trace("t", "m", profile, step)
            yield work.partition(":")[0], [found, [line.error for line in found.lines]]


LAYOUTS: Sequence[dict[str, Any]] = (
    {"dp": 4}, {"tp": 2, "pp": 2}, {"pp": 2, "dp": 2, "schedule": "gpipe"},
    {"dp": 4, "data": "fsdp"},
)  # fmt: skip


@family
def execution_traces() -> Found:
    """Steps as execution traces, written and read back; what PyTorch's observer writes."""
    for number, given in enumerate(LAYOUTS):
        tape = training_step(setting(batch=8, **given))
        with TemporaryDirectory() as folder:
            for path in chakra.write_ranks(Path(folder), "s", tape, range(4), {1: 1.5}):
                if path.suffix == ".et":
                    yield f"{number} {path.name}", chakra.read_rank(path)
    kernel = {"cat": "kernel", "exclusive_dur": 30.6}
    groups = '[{"pg_name": "0", "backend_id": 77, "ranks": [], "group_size": 8}, ' + (
        '{"pg_name": "1", "backend_id": 78, "ranks": [0, 1, 2, 3], "group_size": 4}]'
    )
    told = [
        observed(3, "## process_group:init ##", [groups], ["String"]),
        observed(4, "gemm", [], [], **kernel), recorded(5, "allreduce", 100, 77),
        {**observed(6, "ncclKernel", [], [], **kernel), "ctrl_deps": 5},
        observed(7, "gemm", [], [], **kernel, sync_dep=[4]), recorded(8, "send", 6, ["1", "tp"], 3),
        observed(9, "record_param_comms", [8, 0, 0, "wait", [], [], 1], ["Int"]),
        observed(10, "gemm", [], [], **kernel), recorded(11, "recv", 7, 77, 2),
        recorded(12, "allreduce", 50, 77), observed(13, "cpu", [], []),
    ]  # fmt: skip
    with TemporaryDirectory() as folder:
        path = Path(folder) / "p.json"
        path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": told}))
        yield "observed", chakra.read_rank(path)
    numbers = (0, 1, 7, 127, 128, 1 << 63, (1 << 64) - 3)
    yield "typed", [[chakra.typed(kind, one) for kind in range(30) for one in (*numbers, 1.5)]]


# **** What is taken where nothing is given ****

# Of which some do something when imported, or keep numbers while they run; what is registered
# (`table`) is other tests' too.
APART = ("__main__", "quiet", "startup", "cli", "report", "plots", "table")


def numeric(value: object) -> bool:
    """Whether it is a number or holds one, and can be spelled."""
    if isinstance(value, Mapping):
        return any(map(numeric, (*value, *value.values()))) and spells(value)
    if isinstance(value, str) or not isinstance(value, Sequence | Set):
        return isinstance(value, int | float) or is_dataclass(value)
    return any(map(numeric, value)) and spells(value)


def spells(value: object) -> bool:
    """Whether it can be spelled."""
    try:
        return bool(spelled(value))
    except TypeError:
        return False


def given_by(place: object, module: str) -> Iterator[tuple[str, object]]:
    """Numbers that a module or a class defines, and those that its functions take by default."""
    for name, value in vars(place).items():
        filled = isinstance(value, list) or (name.startswith("_") and isinstance(value, Mapping))
        if name.startswith("__") or getattr(value, "__module__", module) != module or filled:
            continue  # not theirs, or what they keep while they run
        told: object = value
        if isinstance(value, type):
            yield from ((f"{name}.{rest}", one) for rest, one in given_by(value, module))
            some = fields(value) if is_dataclass(value) else ()
            told = [(one.name, one.default) for one in some if numeric(one.default)]
        elif isinstance(value, FunctionType):
            given = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            told = list(filter(numeric, given))
        if numeric(told) and spells(told):
            yield name, told


@family
def definitions() -> Found:
    """Limits, tolerances, tables and defaults of every module: no number there moves unseen."""
    for one in walk_packages(netsim.__path__, "netsim."):
        if not {*one.name.split(".")} & {*APART}:
            found = dict(given_by(import_module(one.name), one.name))
            yield one.name, found


# **** InfraGraph, without its package ****


def graph(kinds: dict[str, str], edges: Sequence[tuple[str, str, dict[str, Any]]]) -> Any:
    """A graph as the package expands it."""
    made = empty_graph()
    for node, kind in kinds.items():
        made.add_node(node, type=kind)
    for a, b, data in edges:
        made.add_edge(a, b, **data)
        made.add_edge(b, a, **data)
    return made


LINKS = ("nvlink_4", "nvl2", "nvlink", "xgmi", "pcie_gen5", "pci_3", "pcie_9", "hostmem-30-0", "x")
RATED = ({}, {"bandwidth": "400 Gbps"}, {"bandwidth": "50 GBps", "latency": "500 ns"},
         {"bandwidth": "32 GT/s"}, {"bandwidth": "x Gbps"}, {"latency": "2 us"})  # fmt: skip
BESIDE = ("switch", "nvswitch-reducing", "pcie", "custom", "memory")


def hosted(link: str, rated: dict[str, Any], beside: str) -> object:
    """Two hosts of two GPUs with a NIC on a switch: the topology, and what of it is not rated."""
    host = [("xpu", 0), ("xpu", 1), (beside, 0), ("cpu", 0), ("nic", 0)]
    kinds = {f"h.{n}.{kind}.{k}": kind for n in (0, 1) for kind, k in host}
    kinds |= {"s.0.asic.0": "cpu", "s.0.port.0": "port"}
    near = {"link": link, **rated}
    edges = [
        (f"h.{n}.{kind}.{k}", f"h.{n}.{beside}.0", near)
        for n in (0, 1)
        for kind, k in host
        if kind != beside
    ]
    edges += [(f"h.{n}.nic.0", "s.0.port.0", {**near, "link": "cable"}) for n in (0, 1)]
    edges += [("s.0.port.0", "s.0.asic.0", near)]
    with mock.patch.object(infragraph, "graph_of", return_value=graph(kinds, edges)):
        bare = outcome(infragraph.unrated_links, "", "x.yaml")
        return [bare, links(infragraph.read_infragraph("", "x.yaml"))]


@family
def infrastructures() -> Found:
    """Hosts whose links have such names and rates; how large they may be."""
    for link in LINKS:
        yield link, [outcome(hosted, link, *one) for one in product(RATED, BESIDE)]
    data = parse_source(RACK, "rack.yaml").data
    for count, scheme, span in product(
        (1, 2, 20_000, 60_000),
        ("one2one", "many2many"),
        ("xpu", "xpu[0:2000]", "xpu[3]", "a.xpu[1:9]"),
    ):
        device = data["devices"][0]
        edge = {"scheme": scheme, "ep1": {"component": span}, "ep2": {"component": "nic[0:1500]"}}
        big = {**data, "devices": [{**device, "edges": [edge]}, data["devices"][1]],
               "instances": [{**data["instances"][0], "count": count}, "x"]}  # fmt: skip
        yield f"{count} {scheme} {span}", outcome(infragraph._check_size, big, "rack.yaml")
