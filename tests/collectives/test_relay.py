"""Long rings followed without a row a step take the times of those in full."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.base.units import format_time
from netsim.collectives.first_steps import FirstSteps
from netsim.extent import max_plus
from netsim.extent.budget import USUAL_BUDGET
from netsim.extent.long_rings import long_rings
from netsim.extent.max_plus import LongRings, _crowded, long_rings_of
from netsim.extent.result import MethodInput, Refusal
from netsim.extent.sketches import LONG_RINGS
from netsim.program.program import LinkTable, Paths
from netsim.results.row import Row
from netsim.scenario.cells import expand
from netsim.schedule.schedule import REDUCE, Style
from netsim.tasks.explained import shown_of
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.yamlio.read import parse_source
from tests.extent.cells import bench_of, budget_with, form_at, simulate_size, within

MIB = 1 << 20
FABRICS = {
    "torus": "graph: {kind: torus, dims: [3, 5], bandwidth: 50GB/s, latency: 1us}",
    "line": "graph: {kind: ring, gpus: 11, bandwidth: 20GB/s, latency: 700ns}",
    "fat-tree": "machine: dgx-h100, nodes: 9, fabric: {kind: fat-tree, k: 8, levels: 3}",
    "old fat-tree": "machine: dgx-1-v100, nodes: 5, fabric: {kind: fat-tree, k: 8, levels: 2}",
    "rails": "machine: dgx-a100, nodes: 7, fabric: {kind: rail-optimized, nodes_per_unit: 3}",
    "oversubscribed": "machine: dgx-h100, nodes: 7, fabric: {kind: leaf-spine, nodes_per_leaf: 2, "
    "oversubscription: 4}",
    "scattered": "machine: dgx-h100, nodes: 7, placement: random, seed: 5, fabric: "
    "{kind: leaf-spine, nodes_per_leaf: 2}",
    "part of a host": "machine: dgx-h100, nodes: 6, gpus_per_node: 3, fabric: {kind: fat-tree}",
    "mixed": "groups: [{machine: dgx-h100, nodes: 3}, {machine: dgx-a100, nodes: 4}]",
    "slow link": "machine: dgx-h100, nodes: 7, fabric: {kind: leaf-spine, nodes_per_leaf: 2}, "
    "faults: [{link: node3.nic4-leaf1, bandwidth: 40%}]",
    "slow cable": "machine: dgx-h100, nodes: 7, fabric: {kind: leaf-spine, nodes_per_leaf: 1, "
    "spines: 4}, faults: [{link: leaf2-spine1, bandwidth: 1%}, {link: leaf4-spine0, latency: 9us}]",
}


# Small rings are followed, and nothing is folded; operations in full are repeated as often.
SHORT = budget_with(
    USUAL_BUDGET,
    min_long_ring_rows=0,
    max_partition_rounds=0,
    max_rows_of_fewest_operations=1e9,
    max_rows_of_loop_run=1000000000.0,
    max_rows_of_few_operations=1e9,
    min_rows_for_pace=1000000000.0,
    excluded=frozenset({"representatives"}),
)


def ready(
    cluster: str, collective: str, algorithm: str, size: int, more: str = "", fold: str = "auto"
) -> ResolvedCell:
    work = f"collective: {collective}, algorithm: {algorithm}, sizes: [{size}B]{more}"
    text = f"cluster: {{{cluster}}}\nworkload: {{{work}}}\nfold: {fold}\n"
    return within(resolve(expand(parse_source(text, "scene.yaml"))[0]), SHORT)


def even(one: ResolvedCell, times: int) -> int:
    return 4 * len(one.gpus) ** 2 * times


def both(cluster: str, collective: str, algorithm: str, times: int, more: str = "") -> list[Row]:
    """The row of what is followed, and of what is run in full."""
    size = even(ready(cluster, collective, algorithm, MIB), times)
    cases = [ready(cluster, collective, algorithm, size, more, fold) for fold in ("auto", "off")]
    # Whether a cell is folded is part of its id, and of nothing else in its row.
    return [replace(simulate_size(case, size)[0], cell="") for case in cases]


def found_in(cluster: str, collective: str, algorithm: str, more: str = "") -> LongRings | str:
    one = ready(cluster, collective, algorithm, MIB, more)
    whole = one.collective(even(one, 3))
    return long_rings_of(whole, algorithm, one.parameters, one.topology, one.gpus)


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize(("collective", "algorithm"), sorted(LONG_RINGS))
@pytest.mark.parametrize(
    ("fabric", "times"), [(next(iter(FABRICS)), 1), *((fabric, 5000) for fabric in FABRICS)]
)
def test_the_time_is_that_of_all_steps(
    fabric: str, collective: str, algorithm: str, times: int
) -> None:
    here, there = both(FABRICS[fabric], collective, algorithm, times)
    assert here.time_us == pytest.approx(there.time_us, rel=1e-9)
    assert here.inplace_time_us == pytest.approx(there.inplace_time_us, rel=1e-9)
    if (fabric, algorithm) == ("mixed", "hierarchical"):  # several ways are as long as each other
        return
    assert here.bound_by == there.bound_by


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.parametrize("fabric", [name for name in FABRICS if name != "slow cable"])
def test_rings_are_followed_where_no_link_is_crowded(fabric: str) -> None:
    found = found_in(FABRICS[fabric], "all_reduce", "ring")
    assert isinstance(found, LongRings)
    ranks = found.first_steps.ranks
    assert len(found.program) == 4 * ranks  # three steps, and marks
    full, short = both(FABRICS[fabric], "all_reduce", "ring", 1)[::-1]
    assert (short.rows, full.rows) == (4 * ranks, (2 * ranks - 1) * ranks)


@pytest.mark.slow
def test_one_slow_link_of_many_changes_the_time() -> None:
    cluster = "machine: dgx-h100, nodes: 61, fabric: {kind: fat-tree}"
    whole, slow = (
        simulate_size(
            ready(c, "all_reduce", "ring", even(ready(c, "all_reduce", "ring", MIB), 9)),
            even(ready(c, "all_reduce", "ring", MIB), 9),
        )[0]
        for c in (cluster, f"{cluster}, faults: [{{link: node40.nic0-leaf40, bandwidth: 20%}}]")
    )
    assert slow.time_us is not None
    assert whole.time_us is not None
    assert slow.time_us > whole.time_us * 1.5


CROWDED = [
    ("machine: dgx-h100, nodes: 6, nics_per_node: 4", "hierarchical", ""),
    (
        "machine: dgx-h100, nodes: 6, fabric: {kind: leaf-spine, nodes_per_leaf: 1, "
        "oversubscription: 4}",
        "hierarchical",
        "",
    ),
    ("graph: {kind: switch, gpus: 6, bandwidth: 50GB/s}", "ring", ", parameters: {channels: 2}"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "algorithm", "more"), CROWDED)
def test_what_is_in_each_others_way_is_run_in_full(cluster: str, algorithm: str, more: str) -> None:
    one = ready(cluster, "all_reduce", algorithm, MIB, more)
    size = even(one, 3)
    assert isinstance(long_rings(MethodInput(form_at(one, size), SHORT)), Refusal)
    why = found_in(cluster, "all_reduce", algorithm, more)
    if "channels" not in more:
        assert isinstance(why, str)
        assert "is asked for" in why
    here, there = both(cluster, "all_reduce", algorithm, 3, more)
    assert here == there


@pytest.mark.parametrize(
    ("capacity", "lanes", "crowded"),
    [
        (1.0, [0, 0], False),
        (1.0, [0, 1], True),
        (2.0, [0, 1], False),
        (0.5, [0, 0], True),
        (np.inf, [0, 1], False),
    ],
)
def test_a_lane_asks_of_a_link_what_the_most_of_its_rows_asks(
    capacity: float, lanes: list[int], crowded: bool
) -> None:
    """Two ways over one link at 1 byte/s, of one lane one after the other, of two at once."""
    paths = Paths(
        np.array([0, 2, 4]),
        np.array([0, 1, 0, 2], np.int32),
        np.ones(4),
        np.ones(4, bool),
        np.zeros(2),
    )
    capacities = np.array([capacity, 9.0 * capacity, np.inf])
    links = LinkTable("abc".__getitem__, str, capacities, np.zeros(3))
    program = SimpleNamespace(paths=paths, links=links, path=np.array([0, 1], np.int32))
    told = _crowded(program, np.array(lanes), np.array([1.0, 0.75]))
    assert told.startswith("a is asked for ") == crowded
    assert crowded or not told


def test_unequal_chunks_are_run_in_full() -> None:
    one = ready(FABRICS["rails"], "all_reduce", "ring", MIB)
    assert isinstance(long_rings(MethodInput(form_at(one, even(one, 1) + 4), SHORT)), Refusal)


@pytest.mark.slow
@pytest.mark.parametrize(
    "launch",
    [
        "single_process",
        "{style: single_process, host: 3us}",
        "{style: process_per_gpu, host: 40us, kernel: 5us}",
    ],
)
@pytest.mark.parametrize("timing", ["throughput", "single"])
def test_operations_follow_each_other_as_in_full(launch: str, timing: str) -> None:
    """Ranks that are launched in turn, and those that end before others."""
    rows = []
    for fold in ("auto", "off"):
        text = (
            f"cluster: {{{FABRICS['rails']}}}\nworkload: {{collective: all_reduce, algorithm: "
            f"ring, sizes: [{4 * 56 * 64}B], timing: {timing}}}\nlaunch: {launch}\nfold: {fold}\n"
        )
        one = within(resolve(expand(parse_source(text, "scene.yaml"))[0]), SHORT)
        rows.append(simulate_size(one, 4 * 56 * 64)[0])
    assert rows[0].rows != rows[1].rows
    assert rows[0].time_us == pytest.approx(rows[1].time_us, rel=1e-9)
    assert rows[0].approximation == rows[1].approximation


@pytest.mark.slow
@given(
    ends=st.lists(st.sampled_from([0.0, 0.5, 3.0, 40.0]), min_size=2, max_size=23),
    kinds=st.lists(st.sampled_from([0.0, 1e-3, 1.0, 1.25]), min_size=1, max_size=3),
    seed=st.integers(0, 9999),
    steps=st.integers(0, 120),
)
def test_laps_in_closed_form_are_those_one_by_one(
    ends: list[float], kinds: list[float], seed: int, steps: int
) -> None:
    random = np.random.default_rng(seed)
    begin = np.array([ends])
    took = random.choice(kinds, begin.shape)
    way = random.choice([0.0, 0.01, 0.7, 2.0], begin.shape)
    long = np.stack([max_plus.ends_in_closed_form(begin[0], took[0], way[0], steps)])
    assert long == pytest.approx(
        max_plus.ends_step_by_step(begin, took, way, steps), rel=1e-12, abs=1e-12
    )


def test_what_is_shown_of_long_rings_says_how_long_they_take() -> None:
    one = ready(FABRICS["fat-tree"], "all_reduce", "ring", 4 * 72 * 72)
    shown = shown_of(within(one, budget_with(SHORT, max_shown_rows=10)), 4 * 72 * 72)
    assert len(shown.schedule) == 4 * 72
    full = ready(FABRICS["fat-tree"], "all_reduce", "ring", 4 * 72 * 72, fold="off")
    whole = (
        bench_of(full, 4 * 72 * 72)
        .standalone(form_at(full, 4 * 72 * 72).loop_schedule.schedule())
        .timeline.makespan
    )
    assert shown.notes == (
        "of about 1e+04 rows those of the first 3 steps of every ring are shown, and what follows "
        f"them; the whole takes {format_time(whole)}",
    )


def test_the_engine_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were costs wrong, the first steps would not end as the engine says."""
    monkeypatch.setattr("netsim.extent.max_plus.ends_after_steps", lambda ends, *_: ends)
    why = found_in(FABRICS["fat-tree"], "all_reduce", "ring")
    assert why == "its first steps end at other times than sums of their parts"


def test_steps_of_a_ring_are_alike_only_where_all_chunks_and_ways_are() -> None:
    """One chunk of another size, or one style that moves in another way, and none is left out."""

    def refused(count: list[int], styles: set[int]) -> str:
        first_steps = FirstSteps()
        first_steps._rings.append((styles, np.array([0, 2]), 2))
        known = (Style(channel=0), Style(channel=1, op=REDUCE), Style(wire=2.0))
        first_steps.end(
            SimpleNamespace(styles=known, pieces=SimpleNamespace(count=np.array(count)))
        )
        return first_steps.refused

    assert refused([5, 5, 5, 5], {0, 1}) == ""
    assert refused([5, 5, 5, 6], {0}) == "chunks of a ring differ"
    assert refused([5, 5, 6, 6], {0}) == "chunks of a ring differ"
    assert refused([5, 5, 5, 5], {0, 2}) == "steps of a ring differ"
