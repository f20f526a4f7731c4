"""Whatever is refused for its size is refused from one more than its limit says, and in words."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from netsim.base.errors import NetsimError
from netsim.collectives.collective import collective_of
from netsim.collectives.msccl import AlgoFile, algorithm
from netsim.collectives.table import build
from netsim.measured.logs import read_log
from netsim.scenario.cells import expand_all
from netsim.tasks.resolve import resolve
from netsim.topology.foreign import infragraph
from netsim.topology.foreign.formats import read_astra, read_foreign
from netsim.topology.foreign.nccl_xml import parse_elements
from netsim.topology.foreign.smi import parse_matrix
from netsim.topology.routing import ring
from netsim.trace.goal import read_goal
from netsim.training.recorded.kineto import read_profile
from netsim.yamlio.read import parse_source, read_source
from tests.collectives.collective_cases import build_small
from tests.collectives.test_forest import links_between
from tests.golden.write_topologies import ASTRA
from tests.training.profiler import NAME, Recording, said

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
XML = b'<a><b x="12345"><c/></b><d/></a>'
MATRIX = (DATA / "smi" / "gh200.txt").read_text(encoding="utf-8")
LOG = DATA / "logs" / "a100_superbench_8_all_reduce_1.txt"
SHAPES = collective_of("all_reduce", 2, 2 * 2 * 840)
SHEET = AlgoFile("x", build_small(SHAPES, "ring"), SHAPES).text()
GOAL = "num_ranks 3\nrank 0 {\na: calc 17\n}\nrank 1 {\na: calc 2\n}\nrank 2 {\na: calc 3\n}\n"
ALL_GATHER = collective_of("all_gather", 4, 4 * 4 * 60)
BROADCAST = collective_of("broadcast", 4, 4 * 60)
EDGE = {"scheme": "many2many", "ep1": {"component": "a"}, "ep2": {"component": "b"}}
PARTS = {"name": "d", "edges": [EDGE],
         "components": [{"name": "a", "count": 3}, {"name": "b", "count": 5}]}  # fmt: skip
SEVERAL = {"devices": [PARTS], "instances": [{"name": "i", "device": "d", "count": 2}]}


def scenario(cluster: str, work: str = "sizes: [1KiB]", sweep: str = "") -> Callable[[], object]:
    work = f"workload: {{collective: all_reduce, algorithm: ring, {work}}}"
    text = f"cluster: {{{cluster}}}\n{work}\n" + f"sweep: {{{sweep}}}\n" * bool(sweep)

    def made() -> object:
        return [resolve(cell) for cell in expand_all(parse_source(text, "s.yaml")).cells]

    return made


def of_file(name: str, text: str, read: Callable[[Path], object]) -> Callable[[], object]:
    def made() -> object:
        Path(name).write_text(text, encoding="utf-8")
        return read(Path(name))

    return made


def recorded(world: int) -> Callable[[], object]:
    def made() -> object:
        found = Recording(rank=0, world=world)
        found.kernel(0, 5, name=NAME, **said(**{"Process Group Ranks": "[]", "Group size": world}))
        return read_profile(found.write(Path(f"{world}.json")))

    return made


HOSTS = "machine: dgx-h100, gpus_per_node: 1"
RING = "graph: {kind: ring, gpus: 4, bandwidth: 1GB/s}"
# A limit by its module and name, the size of what is asked, and how that is.
LIMITS: dict[tuple[str, str], tuple[int, Callable[[], object]]] = {
    ("topology.foreign.nccl_xml", "LARGEST_FILE"): (len(XML), lambda: parse_elements(XML, "x")),
    ("topology.foreign.nccl_xml", "MOST_ELEMENTS"): (4, lambda: parse_elements(XML, "x")),
    ("topology.foreign.nccl_xml", "DEEPEST"): (3, lambda: parse_elements(XML, "x")),
    ("topology.foreign.nccl_xml", "LARGEST_ATTRIBUTE"): (5, lambda: parse_elements(XML, "x")),
    ("topology.foreign.smi", "LONGEST"): (len(MATRIX), lambda: parse_matrix(MATRIX, "m.txt")),
    ("topology.foreign.formats", "LARGEST"): (len(ASTRA), of_file("a.yml", ASTRA, read_foreign)),
    ("topology.foreign.formats", "MOST_GPUS"): (8, lambda: read_astra(ASTRA, "a.yml")),
    ("topology.foreign.infragraph", "MOST_NODES"): (
        16,
        lambda: infragraph._check_size(SEVERAL, "x.yaml"),
    ),
    ("topology.foreign.infragraph", "MOST_PAIRS"): (
        15,
        lambda: infragraph._check_size(SEVERAL, "x.yaml"),
    ),
    ("yamlio.read", "MOST_DIGITS"): (7, lambda: parse_source("a: 1234567\n", "x.yaml")),
    ("yamlio.read", "MOST_VALUES"): (7, lambda: parse_source("a: {b: [1, 2]}\n", "x.yaml")),
    ("yamlio.read", "LARGEST_FILE"): (5, of_file("x.yaml", "a: 1\n", read_source)),
    ("trace.goal", "MOST_RANKS"): (3, of_file("a.goal", GOAL, read_goal)),
    ("trace.goal", "MOST_SIZE"): (17, of_file("a.goal", GOAL, read_goal)),
    ("measured.logs", "LARGEST_FILE"): (len(LOG.read_bytes()), lambda: read_log(LOG)),
    ("training.recorded.kineto", "MOST_RANKS"): (8, recorded(8)),
    ("collectives.msccl", "MOST_CHUNKS"): (
        2,
        lambda: AlgoFile("x", build_small(SHAPES, "ring"), SHAPES),
    ),
    ("collectives.msccl", "MOST_PARTS"): (2, lambda: algorithm("x.xml", SHEET)),
    ("collectives.writing", "MOST_PARTS"): (5, lambda: build(BROADCAST, "ring", chunks=5)),
    ("collectives.writing", "MOST_CHANNELS"): (3, lambda: build(ALL_GATHER, "ring", channels=3)),
    ("collectives.forest", "MOST_RANKS"): (4, lambda: links_between(ring(4, 1e9))),
    ("scenario.models", "LARGEST_SIZES"): (
        5,
        scenario(RING, "sizes: {from: 64, to: 320, step: 64}"),
    ),
    ("scenario.sweep", "MOST_VALUES"): (
        3,
        scenario(HOSTS, sweep="cluster.nodes: {from: 2, to: 4, step: 1}"),
    ),
    ("scenario.sweep", "MOST_CELLS"): (
        4,
        scenario(HOSTS, sweep="cluster.nodes: [2, 3], nccl.version: ['2.26', '2.27']"),
    ),
    ("topology.config", "MOST_MESHED"): (
        4,
        scenario("graph: {kind: full-mesh, gpus: 4, bandwidth: 1GB/s}"),
    ),
    ("topology.config", "MOST_GPUS"): (
        6,
        scenario("graph: {kind: torus, dims: [3, 2], bandwidth: 1GB/s}"),
    ),
}


@pytest.mark.parametrize(("module", "name"), LIMITS, ids=lambda one: one.rpartition(".")[2])
def test_what_is_as_large_as_a_limit_is_taken_and_one_more_refused(
    module: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, ask = LIMITS[module, name]
    monkeypatch.chdir(tmp_path)
    where: Any = import_module(f"netsim.{module}")
    assert getattr(where, name) >= size
    monkeypatch.setattr(where, name, size)
    ask()
    monkeypatch.setattr(where, name, size - 1)
    with pytest.raises((NetsimError, ValueError)) as refused:
        ask()
    assert str(refused.value).strip()
