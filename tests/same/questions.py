"""The questions that two commits are asked: each a pure function of a seed and its number.

A question is text: files (a scenario, perhaps an algorithm of its own) and what to do with them,
either to compute all rows of the scenario or to run command lines. There are three sources:

- every second question, until all have been asked, is one about a feature that is written out
  (`tests/data/feature_questions.yaml`, `features.py`): the same whatever the seed;
- a third of the others are those behind the digests that the tests had in November 2026
  (`tests/data/digest_questions.yaml`); 2,000 questions have all of them;
- the rest is drawn with the seed.

A table of which kind of drawn question has which feature:

    features                                             kinds
    machines, hosts, fabrics, routing, transports        hosts, textbook, mixture, topo, expect
    trees, dragonflies and tori of up to 130 hosts       fabric, topo
    plain graphs                                         graph, explain, run
    faults: permanent, in time, of each part in turn     faults, hosts, sweep
    NCCL's versions, variables, launches, noise, limits  all kinds with collectives
    communicators (split, ranks), p2p, exact answers     hosts, groups
    steps of training                                    step, run, optimize
    jobs, background                                     jobs, background, run
    own algorithms; MSCCL's and MSCCL++'s files          own, run
    outputs and files of every verb                      the kinds named after verbs
    mistakes in scenarios, machines and options          mistakes, check
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import yaml

from tests.same import clusters, commands, more_commands, workloads
from tests.same.commands import SCENARIO
from tests.same.draw import Draw
from tests.same.features import DIGESTS, feature_questions, file_text

FEATURE_STRIDE = 2  # one question of so many is about a feature, until all have been asked
DIGEST_FRACTION = 0.37  # of the other questions; 2,000 questions have all of them
DIGEST_STRIDE = 101  # a prime: neighboring questions come from different families

Mapping = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """What is asked: rows of `question.yaml` (one cell of its sweep, or all), or commands."""

    number: int
    kind: str
    files: dict[str, str]
    cell: int | None = None  # which cell of the sweep; None: all
    commands: list[str] = field(default_factory=list)
    engine: str = "auto"

    @property
    def text(self) -> str:
        """All that is asked, as a text in which patterns of declared differences are sought."""
        parts = [f"{name}:\n{content}" for name, content in self.files.items()]
        parts += [f"netsim {command}" for command in self.commands]
        if self.cell is not None:
            parts.append(f"cell {self.cell}")
        if self.engine != "auto":
            parts.append(f"engine {self.engine}")
        return "\n".join([f"kind: {self.kind}", *parts])

    @property
    def key(self) -> str:
        """A digest of all that is asked; equal questions of other numbers have the same."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:24]

    def line(self) -> str:
        """The question as a line of JSON."""
        return json.dumps(asdict(self))


# **** Kinds of drawn questions ****

Drawn = tuple[Mapping, dict[str, str]]  # a scenario, and other files


def _graph(draw: Draw) -> Drawn:
    """A textbook algorithm on a plain graph."""
    cluster = clusters.drawn_graph(draw)
    ranks = len(cluster["graph"].get("nodes", "1234")) - ("nodes" in cluster["graph"])
    work = workloads.drawn_collective(
        draw, textbook=True, ranks=cluster["graph"].get("gpus", ranks)
    )
    scenario: Mapping = {"cluster": cluster, "workload": work}
    workloads.add_conditions(draw, scenario)
    return scenario, {}


def _on_hosts(draw: Draw, cluster: Mapping, *, textbook: bool) -> Drawn:
    """A collective on a cluster of hosts."""
    ranks = cluster["nodes"] * cluster.get("gpus_per_node", 8)
    scenario: Mapping = {
        "cluster": cluster,
        "workload": workloads.drawn_collective(draw, textbook=textbook, ranks=ranks),
    }
    workloads.add_conditions(draw, scenario)
    return scenario, {}


def _hosts(draw: Draw) -> Drawn:
    """NCCL on several hosts or one."""
    machines = clusters.MACHINES if draw.happens(0.5) else clusters.COMMON_MACHINES
    return _on_hosts(draw, clusters.drawn_hosts(draw, machines=machines), textbook=False)


def _textbook(draw: Draw) -> Drawn:
    """A textbook algorithm on hosts."""
    cluster = clusters.drawn_hosts(draw, machines=clusters.COMMON_MACHINES, most_hosts=8)
    return _on_hosts(draw, cluster, textbook=True)


def _mixture(draw: Draw) -> Drawn:
    """Hosts that differ, chosen GPUs, placements."""
    cluster = clusters.drawn_mixture(draw)
    work = workloads.drawn_collective(draw, textbook=draw.happens(0.3))
    scenario: Mapping = {"cluster": cluster, "workload": work}
    workloads.add_conditions(draw, scenario)
    return scenario, {}


def _faults(draw: Draw) -> Drawn:
    """One or two faults, permanent or in time, on hosts that are simulated in full."""
    cluster = clusters.drawn_hosts(draw, machines=clusters.COMMON_MACHINES, most_hosts=4)
    cluster.setdefault("gpus_per_node", draw.choose((1, 2, 4)))
    known = clusters.known_faults(cluster)
    count = draw.choose((1, 1, 2, 2))
    cluster["faults"] = [clusters.drawn_fault(draw, known, 0.5) for _ in range(count)]
    work = workloads.drawn_collective(draw, textbook=draw.happens(0.3))
    return {"cluster": cluster, "workload": work}, {}


def _step(draw: Draw) -> Drawn:
    """A training step."""
    return workloads.drawn_step(draw), {}


def _jobs(draw: Draw) -> Drawn:
    """Two jobs in one cluster, perhaps messages in the background."""
    cluster: Mapping = {
        "machine": draw.choose(("dgx-h100", "dgx-a100")),
        "nodes": draw.choose((3, 4)),
        "gpus_per_node": draw.choose((1, 2)),
        "fabric": {
            "kind": "leaf-spine",
            "nodes_per_leaf": draw.choose((1, 2)),
            "oversubscription": draw.choose((1, 2)),
        },
    }
    jobs: list[Mapping] = []
    for name in ("first", "second"):
        collective = draw.choose(("all_reduce", "alltoall", "all_gather", "broadcast"))
        work = {"collective": collective, "sizes": [draw.choose(("64KiB", "1MiB", "4MiB"))]}
        job: Mapping = {"name": name, "nodes": draw.choose((1, 2)), "workload": work}
        draw.maybe_set(job, 0.3, "repeat", (1, 2, 3))
        draw.maybe_set(job, 0.3, "start", ("10us", "100us"))
        draw.maybe_set(job, 0.3, "placement", ("spread", "random"))
        jobs.append(job)
    if draw.happens(0.2):
        jobs[0]["workload"] = {
            "model": workloads.DENSE_MODELS[1],
            "batch": 8,
            "parallelism": {"dp": jobs[0]["nodes"] * cluster["gpus_per_node"]},
        }
    scenario: Mapping = {"cluster": cluster, "jobs": jobs}
    background = {
        "pattern": draw.choose(("uniform", "permutation", "incast", "hotspot")),
        "load": draw.choose(("10%", "30%")),
        "size": draw.choose(("64KiB", "1MiB")),
        "seed": draw.integer(0, 3),
    }
    if draw.happens(0.5):
        scenario["background"] = [background]
    if draw.happens(0.2):
        scenario["noise"] = "quiet"
        scenario["samples"] = 3
    draw.maybe_set(scenario, 0.3, "limits", (True,))
    draw.maybe_set(scenario, 0.2, "launch", workloads.LAUNCHES)
    return scenario, {}


def _background(draw: Draw) -> Drawn:
    """A collective beside messages between other hosts."""
    cluster = {
        "machine": draw.choose(("dgx-h100", "dgx-a100", "mi300x")),
        "nodes": draw.choose((2, 3)),
        "gpus_per_node": draw.choose((1, 2, 4)),
        "fabric": {"kind": draw.choose(("leaf-spine", "rail-optimized", "single-switch"))},
    }
    work = workloads.drawn_collective(draw, textbook=draw.happens(0.4), sizes=workloads.SMALL_SIZES)
    background = {
        "pattern": draw.choose(("uniform", "permutation", "incast", "hotspot")),
        "load": draw.choose(("5%", "20%", "50%")),
    }
    return {"cluster": cluster, "workload": work, "background": [background]}, {}


def _sweep(draw: Draw) -> Drawn:
    """A small sweep."""
    cluster = clusters.drawn_hosts(draw, machines=clusters.COMMON_MACHINES, most_hosts=4)
    work = workloads.drawn_collective(draw, textbook=False, sizes=workloads.SMALL_SIZES)
    scenario: Mapping = {"cluster": cluster, "workload": work}
    sweeps: tuple[Mapping, ...] = (
        {"workload.dtype": ["half", "float"], "launch": ["process_per_gpu", "cuda_graph"]},
        {"cluster.nodes": [1, 2, 4]},
        {"nccl.version": ["2.10", "2.18", "2.23"]},
        {"cluster.nic": {"from": "100Gbps", "to": "400Gbps", "factor": 2}},
        {"zip": [{"workload.dtype": ["float", "half"], "workload.sizes": [["64KiB"], ["32KiB"]]}]},
        {"variants": {"launch": {"usual": None, "graph": {"launch": "cuda_graph"}}}},
        {"seeds": 2},
    )
    scenario["sweep"] = draw.choose(sweeps)
    if "seeds" in scenario["sweep"]:
        scenario["noise"] = "quiet"
        scenario["samples"] = 3
    return scenario, {}


def _groups(draw: Draw) -> Drawn:
    """Several communicators at once, or some of the ranks, once from standstill."""
    cluster = clusters.drawn_hosts(draw, machines=clusters.COMMON_MACHINES, most_hosts=4)
    cluster["gpus_per_node"] = draw.choose((2, 2, 3, 4))
    work = workloads.drawn_collective(draw, textbook=draw.happens(0.3))
    work["timing"] = "single"
    work.pop("ranks", None)
    work.pop("split", None)
    work.update(draw.choose(workloads.GROUPS))
    scenario: Mapping = {"cluster": cluster, "workload": work}
    workloads.add_conditions(draw, scenario)
    return scenario, {}


OWN_BROADCAST = '''\
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import ARRIVED, IN, LOCAL_COPY, Schedule, Style


def star(collective) -> Schedule:
    """The root sends to each of the others."""
    others = [rank for rank in range(collective.ranks) if rank != collective.root]
    builder = Builder(collective.ranks, collective.element_bytes)
    everything = builder.pieces(collective.count)
    sent = builder.rows(Style(src_buffer=IN), collective.root, others, everything)
    builder.marks(others, after=[(sent, ARRIVED)])
    if not collective.in_place:
        root = collective.root
        builder.rows(Style(LOCAL_COPY, src_buffer=IN), root, root, everything)
    return builder.finish()


def nothing(collective) -> Schedule:
    """Move nothing, which netsim must refuse."""
    return Builder(collective.ranks, collective.element_bytes).finish()


def mistaken(collective) -> Schedule:
    """Stop with an error, which netsim must tell."""
    return collective.no_such_attribute
'''


def _own_algorithm(draw: Draw) -> Drawn:
    """An algorithm of a file, on a graph or on hosts; some are wrong."""
    function = draw.choose(("star", "star", "star", "star", "nothing", "mistaken"))
    if draw.happens(0.5):
        cluster = clusters.drawn_graph(draw)
    else:
        cluster = clusters.drawn_hosts(draw, machines=clusters.COMMON_MACHINES, most_hosts=2)
    work = {
        "collective": "broadcast",
        "sizes": [draw.choose(workloads.SMALL_SIZES)],
        "algorithm": f"own.py:{function}",
        "root": draw.choose((0, 1)),
    }
    draw.maybe_set(work, 0.3, "timing", ("single",))
    return {"cluster": cluster, "workload": work}, {"own.py": OWN_BROADCAST}


ROWS: dict[str, Callable[[Draw], Drawn]] = {
    "graph": _graph,
    "hosts": _hosts,
    "textbook": _textbook,
    "mixture": _mixture,
    "faults": _faults,
    "step": _step,
    "jobs": _jobs,
    "background": _background,
    "sweep": _sweep,
    "own": _own_algorithm,
    "groups": _groups,
}
KINDS = (
    *("hosts",) * 8,
    *("graph",) * 4,
    *("textbook",) * 3,
    *("mixture",) * 3,
    *("faults",) * 4,
    *("step",) * 5,
    *("jobs",) * 3,
    *("background",) * 2,
    *("sweep",) * 2,
    *("own",) * 1,
    *("expect",) * 3,
    *("explain",) * 2,
    *("topo",) * 2,
    *("check",) * 1,
    *("diff",) * 1,
    *("compare",) * 1,
    *("run",) * 4,
    *("groups",) * 2,
    *("machine",) * 3,
    *("fabric",) * 2,
    *("mistakes",) * 3,
    *("logs",) * 2,
    *("whole sweep",) * 3,
)
COMMANDS = {**commands.DRAWN, **more_commands.DRAWN}


def question_at(number: int, seed: int = 1) -> Question:
    """Return the question of a number; the same for all time, unless this package changes.

    >>> question_at(3) == question_at(3)
    True
    """
    features = feature_questions()
    is_feature = number % FEATURE_STRIDE == 0 and number // FEATURE_STRIDE < len(features)
    if is_feature:
        feature = features[number // FEATURE_STRIDE]
        kind = f"feature: {feature.feature}"
        return Question(number, kind, feature.files, commands=feature.commands)
    # Questions before this one that are about no feature.
    place_of_others = number - min(len(features), -(-number // FEATURE_STRIDE))
    digest_count = int(place_of_others * DIGEST_FRACTION)
    is_digest = int((place_of_others + 1) * DIGEST_FRACTION) > digest_count
    if is_digest and digest_count < len(digest_questions()):
        place = digest_count * DIGEST_STRIDE % len(digest_questions())
        kind, files, cell, lines = digest_questions()[place]
        return Question(number, kind, files, cell, lines)
    draw = Draw(seed, number)
    kind = draw.choose(KINDS)
    if kind in COMMANDS:
        lines, files = COMMANDS[kind](draw)
        return Question(number, kind, files, commands=lines)
    scenario, files = ROWS[kind](draw)
    engine = draw.choose(("auto", "auto", "auto", "auto", "compiled"))
    if kind == "graph" and draw.happens(0.2):
        engine = "simpy"  # the plain engine takes long for more than such small ones
    return Question(number, kind, {SCENARIO: file_text(scenario), **files}, engine=engine)


# **** Questions behind the digests ****

Digest = tuple[str, dict[str, str], int | None, list[str]]  # kind, files, cell, commands


@cache
def digest_questions() -> list[Digest]:
    """Return the questions behind the digests: kind, files, cell of a sweep, commands."""
    return list(_read_digests())


def _read_digests() -> Iterator[Digest]:
    data = yaml.safe_load(DIGESTS.read_text(encoding="utf-8"))
    for name, entry in data["sweeps"].items():
        files = {SCENARIO: file_text(entry["scenario"])}
        for cell in range(entry["cells"]):
            yield f"figures {name}", files, cell, []
    for name, texts in data["scenarios"].items():
        for text in texts:
            yield f"pins {name}", {SCENARIO: text}, None, []
    for name, lines in data["commands"].items():
        for line in lines:
            asked = [line] if isinstance(line, str) else line
            files = _named_files(data["files"], " ".join(asked))
            yield f"pins {name}", files, None, asked


def _named_files(files: dict[str, str], text: str) -> dict[str, str]:
    """The files that a text names, and those that these name."""
    named = {name: content for name, content in files.items() if name in re.split(r"[\s'\"]", text)}
    inner = {name: files[name] for name in files if f"file: {name}" in "".join(named.values())}
    return {**named, **inner}
