"""Golden texts of readers: what is taken and what is refused where one value of a file is another.

Each value of a small file is replaced by others, one at a time: nothing, a word, numbers out of
range. A line says for which values the reader answers as before, otherwise, or with an error."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from netsim.base.errors import NetsimError
from netsim.collectives.collective import collective_of
from netsim.collectives.msccl import AlgoFile, PlanFile
from netsim.collectives.msccl import algorithm as read_algorithm
from netsim.measured.index import IndexEntry, read_index
from netsim.nccl.facts import facts_of
from netsim.nccl.graph_xml import graphs_of, read_graph_file, write_graphs
from netsim.nccl.node import search_node
from netsim.nccl.tuning import parse_tuner
from netsim.scenario.cells import expand_all
from netsim.topology.foreign.formats import read_astra, read_node_link, write_node_link
from netsim.topology.foreign.nccl import machine_of
from netsim.topology.foreign.nccl_xml import parse_system
from netsim.topology.foreign.smi import parse_matrix, preset_of
from netsim.topology.load import load_machine
from netsim.trace.goal import read_goal, replayed
from netsim.training.recorded.kineto import read_profile, step_of, tape_of
from netsim.yamlio.read import parse_source
from tests.collectives.collective_cases import build_small
from tests.golden.layout import MOST_LINES, schedule_lines, topology_lines
from tests.nccl.nccl_nodes import system_of
from tests.topology.topology_tools import topology
from tests.training.profiler import NAME, said, steps_of_data_parallelism

ROOT = Path(__file__).parents[2]
# The last is more than fits into any memory, where it is taken for how many there are.
VALUES: tuple[Any, ...] = (None, "x", -1, 0, 1, 2, 17, 0.5, 100, 2**40)
Reader = Callable[[str], Any]
Changes = Iterator[tuple[str, Any, str]]


def outcome(read: Reader, text: str) -> str:
    """Return what a reader makes of a text, or the message with which it refuses it."""
    try:
        return repr(read(text))
    except (NetsimError, ValueError) as error:
        return f"refused: {error}".replace(str(ROOT), "")


def of_file(name: str, read: Callable[[Path], Any]) -> Reader:
    """A reader of files as one of texts."""

    def found(text: str) -> Any:
        with TemporaryDirectory() as folder, chdir(folder):
            Path(name).write_text(text, encoding="utf-8")
            return read(Path(name))

    return found


# **** Values of files, each of which is another in turn ****


def in_xml(text: str) -> Changes:
    """Yield (element and attribute, value, text) for every attribute of an XML text."""
    seen: set[str] = set()
    for match in re.finditer(r' ([\w.]+)="([^"]*)"', text):
        element = re.findall(r"<(\w+)", text[: match.start()])[-1]
        name = f"{element} {match[1]}"
        if name not in seen:
            seen.add(name)
            for value in VALUES:
                new = "" if value is None else f' {match[1]}="{value}"'
                yield name, value, text[: match.start()] + new + text[match.end() :]


def in_values(values: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (key, value, values) for every leaf of nested values, of lists the first and last."""
    if isinstance(values, dict):
        for key, part in values.items():
            without = {name: other for name, other in values.items() if name != key}
            yield f"{place}.{key}", None, without
            for name, value, changed in in_values(part, f"{place}.{key}"):
                yield name, value, {**values, key: changed}
    elif isinstance(values, list):
        for number in sorted({0, len(values) - 1} if values else ()):
            for name, value, changed in in_values(values[number], place):
                yield name, value, [*values[:number], changed, *values[number + 1 :]]
    else:
        for value in VALUES[1:]:
            yield place, value, value


def in_json(text: str) -> Changes:
    """Yield the changes of a JSON text."""
    for name, value, values in in_values(json.loads(text)):
        yield name, value, json.dumps(values)


def in_yaml(text: str) -> Changes:
    """Yield the changes of a YAML text."""
    for name, value, values in in_values(yaml.safe_load(text)):
        yield name, value, yaml.safe_dump(values, sort_keys=False)


def in_lines(text: str) -> Changes:
    """Yield changes of the words of the first, second, middle and last line of a text."""
    lines = text.splitlines()
    for number in sorted({0, 1, len(lines) // 2, len(lines) - 1}):
        for match in re.finditer(r"[^\s,;:]+", lines[number]):
            for value in VALUES:
                new = "" if value is None else str(value)
                line = lines[number][: match.start()] + new + lines[number][match.end() :]
                changed = "\n".join([*lines[:number], line, *lines[number + 1 :]])
                yield f"line {number + 1} {match[0]}", value, changed


# **** Readers ****


def of_system(text: str) -> Any:
    """A host of NCCL's, as it is and as a machine."""
    system = parse_system(text)
    return [system, outcome(lambda _: machine_of(system), "")]


@cache
def pair() -> Any:
    """Two GPUs with a port each, as NCCL has searched them."""
    return search_node(system_of("h100x2"), networked=True)


def of_graphs(path: Path) -> Any:
    """Graphs that are given to NCCL."""
    return graphs_of(read_graph_file(path), pair().table, facts_of())


def of_matrix(text: str) -> Any:
    """A matrix of links, as it is and as a machine."""
    matrix = parse_matrix(text, "m.txt")
    return [matrix, outcome(lambda _: preset_of(matrix, "H100"), "")]


def of_goal(path: Path) -> Any:
    """An application in GOAL, and what it becomes."""
    goal = read_goal(path)
    return [goal.ranks, goal.table, schedule_lines(replayed(goal, 8)[1].schedule)]


def of_profile(path: Path) -> Any:
    """A trace of a profiler's, and a step of it."""
    found = read_profile(path)
    step, notes = step_of(found, None)
    return [found.calls, found.kernels, found.steps, found.world, tape_of(step).entries, notes]


def of_scenario(text: str) -> Any:
    """The points of a scenario."""
    points = expand_all(parse_source(text, "s.yaml")).points
    return [getattr(one, "scenario", one).__repr__() for one in points[:2]]


SHAPES = collective_of("all_reduce", 2, 2 * 2 * 840)
HANDMADE = """\
<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:04:00.0" count="4" tclass="0x030200"/>
          <c2c bw="450000" count="1"/>
        </gpu>
      </pci>
      <pci busid="0000:04:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8">
        <gpu dev="1" sm="90" rank="1" gdr="1">
          <nvlink target="0000:02:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:05:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.5" guid="0x1" maxconn="9"
               gdr="1" coll="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
"""
RING = "graph: {kind: ring, gpus: 3, bandwidth: 25GB/s, latency: 0s}"
ASTRA = "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [50.0, 25.0]\nlatency: [5, 7]\n"
TUNER = """\
# collective, sizes, algorithm, protocol, channels, nodes, ranks, pipelined operations, registered
allreduce,0,65536,tree,ll,4,2,16,-1,-1
broadcast,65537,1048576,ring,simple,8,-1,-1,0,1
"""


def profile() -> str:
    """A small trace."""
    made = steps_of_data_parallelism(900, 500, 600)
    made.kernel(2100, 30, name=NAME, stream=20, **said("allgather", dtype="Float"))
    made.events = made.events[-12:] + made.events[:6]
    with TemporaryDirectory() as folder:
        return made.write(Path(folder) / "t.json").read_text(encoding="utf-8")


def read(*parts: str) -> str:
    """The text of a file of ours."""
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def ring() -> Any:
    """A small algorithm."""
    return build_small(SHAPES, "ring")


def as_sheet(name: str) -> Reader:
    """A reader of algorithms."""
    return lambda text: schedule_lines(read_algorithm(name, text)(SHAPES))


STEP = """\
name: step
cluster: {machine: dgx-h100, nodes: 2, gpus_per_node: 4}
workload:
  model: {layers: 4, hidden: 512, heads: 8, kv_heads: 4, ffn: 1024, vocabulary: 1000, sequence: 256}
  batch: 16
  parallelism: {tp: 2, pp: 2, dp: 2, sequence_parallel: true}
"""
JOBS = """\
name: jobs
cluster: {machine: dgx-h100, nodes: 4, gpus_per_node: 2,
          fabric: {kind: leaf-spine, nodes_per_leaf: 2, oversubscription: 2}}
jobs:
  - {name: gradients, nodes: 2, workload: {collective: all_reduce, sizes: [1MiB]}}
  - {name: experts, nodes: 2, workload: {collective: alltoall, sizes: [1MiB]}}
sweep:
  variants:
    hosts:
      a leaf each:
      mixed: {jobs.0.placement: [0, 2], jobs.1.placement: [1, 3]}
outputs: [csv, plots, trace]
"""
NOISY = """\
name: noisy
cluster: {machine: dgx-h100, gpus_per_node: 4}
workload: {collective: all_reduce, sizes: [64KiB, 1MiB]}
sweep: {seed: [1, 2, 3]}
noise: quiet
samples: 4
outputs: [csv, plots]
"""
SCENARIOS = {"step": STEP, "jobs": JOBS, "noisy": NOISY}


FILE = "tests/data/"
# Small files, with what reads them and what becomes of them.
DOCUMENTS: dict[str, tuple[Reader, Callable[[], Changes]]] = {
    "a host by hand": (of_system, lambda: in_xml(HANDMADE)),
    "cards": (of_system, lambda: in_xml(read(FILE, "nccl/topo/a10pcie8_amd.xml"))),
    "graphs": (of_file("g.xml", of_graphs), lambda: in_xml(write_graphs(pair()))),
    "tuner": (parse_tuner, lambda: in_lines(TUNER)),
    "gh200": (of_matrix, lambda: in_lines(read(FILE, "smi/gh200.txt"))),
    "rocm": (of_matrix, lambda: in_lines(read(FILE, "smi/rocm.txt"))),
    "node-link": (
        lambda text: topology_lines(read_node_link(text, "n.json")),
        lambda: in_json(write_node_link(topology(RING))),
    ),
    "ASTRA-sim": (lambda text: topology_lines(read_astra(text, "a.yml")), lambda: in_yaml(ASTRA)),
    "GOAL": (of_file("a.goal", of_goal), lambda: in_lines(read(FILE, "goal/small.goal"))),
    "MSCCL": (as_sheet("x.xml"), lambda: in_xml(AlgoFile("x", ring(), SHAPES).text())),
    "MSCCL++": (
        as_sheet("x.json"),
        lambda: islice(in_json(PlanFile("x", ring(), SHAPES).text()), 0, None, 3),
    ),
    "profile": (of_file("t.json", of_profile), lambda: in_json(profile())),
    **{
        name: (
            of_file("m.yaml", load_machine),
            lambda name=name: in_yaml(read("topologies", f"{name}.yaml")),
        )
        for name in ("gh200-x4", "l40s-pcie-x8")
    },
    **{
        name: (of_scenario, lambda name=name: in_yaml(SCENARIOS[name]))
        for name in ("jobs", "noisy", "step")
    },
}


def edges(name: str) -> list[str]:
    """Return which values a reader takes and which it refuses, key by key of one file."""
    reader, changed = DOCUMENTS[name]
    answers: dict[str, dict[bool, dict[str, None]]] = {}
    for place, value, text in changed():
        is_refused = outcome(reader, text).startswith("refused")
        shown = "missing" if value is None else str(value)
        answers.setdefault(place, {}).setdefault(is_refused, {})[shown] = None
    lines = [f"Reader of {name}: the values that each place of a small file may have.", ""]
    for place, by_answer in answers.items():
        parts = [
            f"{word} {', '.join(by_answer[is_refused])}"
            for is_refused, word in ((False, "takes"), (True, "refuses"))
            if is_refused in by_answer
        ]
        lines.append(f"{place}: {'; '.join(parts)}")
    return lines[:MOST_LINES]


def measured_index() -> list[str]:
    """Return a line for each measured system: what it is taken for, and its runs by collective."""
    lines = ["Measured runs by system: machine, transports, ranks, rows of each collective.", ""]
    systems: dict[str, list[IndexEntry]] = {}
    for entry in read_index(ROOT / "scenarios" / "measured" / "index.yaml"):
        systems.setdefault(entry.system, []).append(entry)
    for system, entries in systems.items():
        runs = Counter(entry.collective for entry in entries)
        rows = sum(len(list(entry.rows())) for entry in entries)
        machines = " ".join(sorted({str(entry.machine) for entry in entries}))
        transports = " ".join(sorted({str(entry.transport) for entry in entries}))
        ranks = " ".join(str(number) for number in sorted({entry.ranks for entry in entries}))
        counted = ", ".join(f"{name} {count}" for name, count in sorted(runs.items()))
        lines.append(f"{system}: {machines}; {transports}; ranks {ranks}; {counted}; {rows} rows")
    return lines[:MOST_LINES]


WRITERS: dict[str, Callable[[], list[str]]] = {
    **{f"readers/{name.replace(' ', '-')}": partial(edges, name) for name in DOCUMENTS},
    "readers/measured-index": measured_index,
}
