"""Schedules that are written down once for all that is alike take the time of those in full."""

import numpy as np
import pytest
from numpy.typing import NDArray

from netsim.base.errors import ScenarioError
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.engines.engine import simulate
from netsim.metrics.links import link_use
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.scenario.cells import expand
from netsim.schedule.schedule import MULTICAST, SWITCH_REDUCE, TRANSFER, Fold, Schedule
from netsim.tasks.resolve import ResolvedCell, resolve
from tests.extent.cells import folded, form_at, simulate_size

NANOSECOND = 1e-9


def resolved(
    machine: str, collective: str, nodes: int, algorithm: str = "", *settings: str, **flags: object
) -> ResolvedCell:
    given = {"nodes": nodes, "sizes": "64K", **({"algo": algorithm} if algorithm else {}), **flags}
    source = source_of_question(
        machine, collective, QuestionOptions(**given, settings=settings)
    ).source
    return resolve(expand(source)[0])


def run(ready: ResolvedCell, schedule: Schedule, engine: str) -> tuple[Program, Timeline]:
    program = place(schedule, ready.topology, ready.gpus.tolist())
    return program, simulate(program, engine)


def ends(program: Program, timeline: Timeline, fold: Fold, leader: int) -> NDArray[np.float64]:
    """The different times at which what a rank sends, or those like it send or add up, ends."""
    schedule = program.schedule
    worker = np.where(schedule.kind == SWITCH_REDUCE, schedule.dst, schedule.src)
    moves = np.isin(schedule.kind, (TRANSFER, MULTICAST, SWITCH_REDUCE))
    mine = (fold.ranks.first[worker] == leader) & moves
    return np.unique(np.round(timeline.end[mine] / (NANOSECOND / 1000)))


def compare(ready: ResolvedCell, size: int, engine: str = "compiled") -> float:
    """Hold every transfer and every link against the run in full; by how much rows are fewer."""
    whole, part = (
        form_at(ready, size).loop_schedule.schedule(),
        folded(ready, size).schedule(),
    )
    fold = part.fold
    assert fold is not None
    big, small = run(ready, whole, engine), run(ready, part, engine)
    assert small[1].makespan == pytest.approx(big[1].makespan, rel=1e-9)
    for leader in fold.leaders.tolist():
        here, there = ends(*small, fold, leader), ends(*big, fold, leader)
        assert len(here), leader
        assert_close(here, there)
        assert_close(there, here)
    amounts = np.zeros(len(big[0].links))
    use = link_use(*big)
    amounts[use.link] = use.amount
    use, wires = link_use(*small), len(ready.topology.links)
    for link, amount in zip(use.link.tolist(), use.amount.tolist(), strict=True):
        if link < wires:
            alike = np.flatnonzero(fold.wires.first == link)
            assert amounts[alike] == pytest.approx(amount, rel=1e-9)
    drawn = np.isin(np.flatnonzero(amounts[:wires] > 0), fold.wires.first)
    assert set(fold.wires.first[np.flatnonzero(amounts[:wires] > 0)]) <= set(use.link.tolist())
    assert drawn.any()
    return len(whole) / len(part)


def assert_close(some: NDArray[np.float64], others: NDArray[np.float64]) -> None:
    """Each of some times (in ps) is one of the others."""
    after = np.clip(np.searchsorted(others, some), 0, len(others) - 1)
    off = np.minimum(np.abs(others[after] - some), np.abs(others[np.maximum(after - 1, 0)] - some))
    assert off.max() <= 2


CASES = [
    ("dgx-h100", "all_gather", 2, "Ring", 8),
    ("dgx-h100", "all_reduce", 4, "Ring", 16),
    ("dgx-h100", "reduce_scatter", 6, "Ring", 4),
    ("dgx-a100", "all_reduce", 3, "Ring", 2),
    ("dgx-h100", "all_reduce", 4, "Tree", 12),
    ("dgx-h100", "all_reduce", 5, "Tree", 6),
    ("dgx-a100", "all_reduce", 7, "Tree", 2),
    ("hgx-h200", "all_reduce", 1, "Ring", 4),
    ("dgx-h100", "all_reduce", 1, "NVLS", 4),
    ("dgx-h100", "all_gather", 1, "NVLS", 8),
    ("dgx-b200", "reduce_scatter", 1, "NVLS", 8),
    ("dgx-h100", "all_reduce", 4, "NVLSTree", 4),
    ("dgx-b200", "all_reduce", 5, "NVLSTree", 4),
]


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.parametrize(("machine", "collective", "nodes", "algorithm", "least"), CASES)
def test_the_same_times_from_fewer_rows(
    machine: str, collective: str, nodes: int, algorithm: str, least: float
) -> None:
    ready = resolved(machine, collective, nodes, algorithm)
    assert compare(ready, 4 << 20) >= least
    compare(ready, 96 * 1024)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 4])
def test_engines_agree_on_what_is_folded(nodes: int) -> None:
    ready = resolved("dgx-h100", "all_reduce", nodes, "Tree")
    compare(ready, 256 * 1024, "simpy")


BROKEN = [
    "cluster.overrides=[{node: 1, nics: [0, 1, 2, 3, 4, 5, 6]}]",
    "cluster.faults=[{link: node1.nic3-leaf3, bandwidth: 50%}]",
    "cluster.faults=[{gpu: node1.gpu2, slowdown: 1.5}]",
    "cluster.fabric={kind: leaf-spine, nodes_per_leaf: 2, oversubscription: 2}",
    "cluster.placement=random",
]


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("algorithm", ["Ring", "Tree"])
def test_what_is_not_alike_is_told_apart(broken: str, algorithm: str) -> None:
    ready = resolved("dgx-h100", "all_reduce", 4, algorithm, broken)
    compare(ready, 1 << 20)


SLOW, SLOWER = "{gpu: node0.gpu2, slowdown: 1.5}", "{gpu: node0.gpu5, slowdown: 2}"
ODD = [
    ("all_reduce", 4, "NVLSTree", SLOW, 3), ("all_reduce", 5, "NVLSTree", f"{SLOW}, {SLOWER}", 2),
    ("all_reduce", 4, "NVLSTree", "{link: node3.nic3-leaf3, bandwidth: 50%}", 3),
    ("all_reduce", 1, "NVLS", f"{SLOW}, {SLOWER}", 1.5), ("all_gather", 1, "NVLS", SLOW, 5),
    ("reduce_scatter", 1, "NVLS", f"{SLOW}, {SLOWER}", 3),
]  # fmt: skip


@pytest.mark.parametrize(("collective", "nodes", "algorithm", "faults", "least"), ODD)
def test_heads_that_are_not_odd_stay_alike(
    collective: str, nodes: int, algorithm: str, faults: str, least: float
) -> None:
    faults = f"cluster.faults=[{faults}]"
    ready = resolved("dgx-h100", collective, nodes, algorithm, faults)
    assert compare(ready, 4 << 20) >= least


def test_chunks_of_different_sizes_are_not_alike() -> None:
    ready = resolved("dgx-h100", "all_reduce", 4, "Ring")
    assert compare(ready, (1 << 20) + 4096) >= 1


def test_the_rows_of_a_table_are_the_same() -> None:
    for algorithm in ("Ring", "Tree"):
        folded = resolved("dgx-h100", "all_reduce", 4, algorithm)
        full = resolved("dgx-h100", "all_reduce", 4, algorithm, "fold=off")
        here, there = (simulate_size(one, 1 << 20)[0] for one in (folded, full))
        assert here.time_us == pytest.approx(there.time_us, rel=1e-9)
        assert here.bound_by == there.bound_by
        assert here.rows is not None
        assert there.rows is not None
        assert here.rows < there.rows


def test_a_single_process_starts_its_gpus_in_turn() -> None:
    folded = resolved("dgx-h100", "all_reduce", 2, "Ring", launch="single_process")
    full = resolved("dgx-h100", "all_reduce", 2, "Ring", "fold=off", launch="single_process")
    for size in (4096, 1 << 19):
        here, there = (simulate_size(one, size)[0] for one in (folded, full))
        assert here.time_us == pytest.approx(there.time_us, rel=1e-6)


def test_rings_that_fold_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 4_000_000)
    assert resolved("dgx-h100", "all_reduce", 8, "Ring").jobs
    with pytest.raises(ScenarioError, match="not folded: fold is off"):
        resolved("dgx-h100", "all_reduce", 8, "Ring", "fold=off")
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 400_000)
    fault = "cluster.faults=[{link: node1.nic3-leaf3, bandwidth: 50%}]"
    with pytest.raises(ScenarioError, match=r"not folded: link node1.nic3->leaf3 has 24.55 GB/s"):
        resolved("dgx-h100", "all_reduce", 16, "Ring", fault)
