"""The law of the ladder: each rung differs from the run in full by no more than it states."""

import random
from dataclasses import replace

import numpy as np
import pytest

from netsim.base.errors import InputError
from netsim.cli import shown
from netsim.extent import one_operation, steady_state
from netsim.extent.all_rows import WITH_EQUAL_HEADS, all_rows
from netsim.extent.budget import USUAL_BUDGET, Budget, budget_for
from netsim.extent.channels_apart import ONE_CHANNEL, channels_apart
from netsim.extent.engine_runs import Bench, LoopRuns
from netsim.extent.fit import EXACT_METHODS, EXACT_REMEDY, bytes_of_form, why_not_fit
from netsim.extent.forms import Form
from netsim.extent.long_rings import long_rings
from netsim.extent.one_operation import (
    END_TOGETHER,
    KEEPS_BUSY,
    LONG_TREE_ERROR,
    MAX_LONG_TREE_SPREAD,
    SHORT_TREE_ERROR,
)
from netsim.extent.operations import TOO_MANY_ROWS
from netsim.extent.result import MethodInput, Offer, OneOperation, Refusal, Result
from netsim.extent.rounds_of_sends import rounds_of_sends
from netsim.extent.solve import solve_form
from netsim.metrics.links import link_amounts
from netsim.results.nccl_tests import microseconds
from netsim.scenario.cells import expand
from netsim.sweep.summary import best_row
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.topology.graph import LINK_KINDS
from netsim.yamlio.read import parse_source
from tests.extent.cells import IN_FULL, budget_with, form_at, simulate_size, timed, within

MIB = 1 << 20
WRITTEN_OUT = budget_with(
    IN_FULL,
    excluded=frozenset({"lockstep", "long_rings", "representatives"}),
    max_rows_of_fewest_operations=1e12,
    max_rows_of_loop_run=1000000000000.0,
    max_rows_of_few_operations=1e12,
    min_rows_for_pace=1000000000000.0,
)
NOT_FOLDED = frozenset({"representatives"})
FORCED = {
    "representatives": IN_FULL,
    "long_rings": budget_with(
        IN_FULL, min_long_ring_rows=0, max_partition_rounds=0, excluded=NOT_FOLDED
    ),
    "lockstep": budget_with(IN_FULL, min_lockstep_steps=0, max_lockstep_spread=1e9),
    "fewer_loops": budget_with(
        USUAL_BUDGET,
        max_rows_in_full=0,
        max_loop_fraction=0.5,
        max_rows_of_few_operations=1e5,
        min_rows_for_pace=100000.0,
    ),
    "some_operations": budget_with(
        USUAL_BUDGET,
        max_rows_of_few_operations=1,
        min_rows_for_pace=1,
        max_rows_of_several_operations=2e4,
        max_rows_of_all_operations=2e4,
    ),
}
WIDE = budget_with(USUAL_BUDGET, min_crowded_rows=0.0, wide_instant=4e-7)
TIMINGS = ("single", "throughput")
SIMPLE = "{collective: %s, algorithm: %s, protocol: Simple, sizes: [%dB], timing: %s}"
FABRICS = ("{kind: rail-optimized}", "{kind: leaf-spine}", "{kind: single-switch}")


def drawn(seed: int) -> ResolvedCell:
    """Some call of NCCL's over buffers so small that it takes many loops, the last not full."""
    some = random.Random(seed)
    nodes, gpus = some.choice((1, 2, 3, 4)), some.choice((1, 2, 4, 8))
    nodes += nodes * gpus == 1
    name, algorithm = some.choice(
        [
            ("all_reduce", "Ring"),
            ("all_gather", "Ring"),
            ("reduce_scatter", "Ring"),
            ("broadcast", "Ring"),
            ("reduce", "Ring"),
            ("all_reduce", "Tree" if nodes > 1 else "Ring"),
        ]
    )
    size = some.randint(MIB, 4 * MIB) // 4 * 4
    work = SIMPLE % (name, algorithm, size, some.choice(("single", "throughput")))
    variables = "{NCCL_BUFFSIZE: '65536', NCCL_MAX_NCHANNELS: '2'}"
    return cell(
        f"machine: dgx-h100, nodes: {nodes}, gpus_per_node: {gpus}, fabric: {some.choice(FABRICS)}",
        work,
        f"nccl: {{env: {variables}}}",
    )


def textbook(seed: int) -> ResolvedCell:
    """Some textbook algorithm that folds, keeps step or is followed in (max,+)."""
    some = random.Random(seed)
    nodes, gpus = some.randint(3, 8), some.choice((2, 4))
    name, algorithm = some.choice(
        [("all_reduce", "ring"), ("all_gather", "ring"), ("alltoall", "hierarchical")]
    )
    size = 4 * (nodes * gpus) ** 2 * some.choice((64, 4096))
    work = SIMPLE.replace(", protocol: Simple", "") % (name, algorithm, size, "single")
    return cell(
        f"machine: dgx-h100, nodes: {nodes}, gpus_per_node: {gpus}, fabric: {some.choice(FABRICS)}",
        work,
    )


def cell(cluster: str, work: str, more: str = "") -> ResolvedCell:
    text = f"cluster: {{{cluster}}}\nworkload: {work}\n{more}\n"
    return resolve(expand(parse_source(text, "x.yaml"))[0])


def size_of(one: ResolvedCell) -> int:
    return one.cell.scenario.collective.size_list()[0]


def assert_within(told: Result, full: Result) -> None:
    off = told.uncertainty + full.uncertainty + 1e-9
    assert told.seconds == pytest.approx(full.seconds, rel=off)


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize("rung", ["representatives", "fewer_loops", "some_operations"])
@pytest.mark.parametrize("seed", range(5))
def test_rungs_of_nccl_are_off_by_no_more_than_they_state(rung: str, seed: int) -> None:
    one = drawn(seed)
    told, full = (timed(one, size_of(one), limits) for limits in (FORCED[rung], WRITTEN_OUT))
    assert_within(told, full)


HASHED = (
    "leaf-spine, nodes_per_leaf: 2, oversubscription: 2, transport: roce",
    "dragonfly, routers: 2, ports_per_router: 8, global_links: 4",
    "leaf-spine, nodes_per_leaf: 3, oversubscription: 4, transport: roce",
)


def crowded(seed: int) -> tuple[ResolvedCell, Budget]:
    """Messages of many on few links, and limits within which rates are solved at wide instants."""
    some, crowd = random.Random(seed), 1 if seed % 3 == 2 else WIDE.thresholds.rows_of_wide_instants
    nodes, gpus, timing = some.randint(5, 8), some.choice((2, 4)), TIMINGS[seed % 2]
    cluster = f"machine: dgx-h100, nodes: {nodes}, gpus_per_node: {gpus}"
    size, env = int(2 ** some.uniform(18, 23)), "{NCCL_BUFFSIZE: '65536'}"
    work = f"{{collective: alltoall, sizes: [{size}B], timing: {timing}}}"
    more = f"fold: off\nnccl: {{env: {env if crowd == 1 else {}}}}"
    one = cell(f"{cluster}, fabric: {{kind: {some.choice(HASHED)}}}", work, more)
    return one, budget_with(WIDE, rows_of_wide_instants=crowd)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_wide_instants_are_off_by_no_more_than_they_state(seed: int) -> None:
    one, wide = crowded(seed)
    told, full = (timed(one, size_of(one), limits) for limits in (wide, WRITTEN_OUT))
    assert "rates solved anew" in told.approximation
    loops = form_at(one, size_of(one)).loop_schedule.loops
    whole = f"{loops} of {loops} loops" in told.approximation
    assert whole == (len(told.program) == len(full.program))
    assert told.uncertainty > 0.0
    assert_within(told, full)
    if (
        one.cell.scenario.collective.timing == "single"
        and wide.thresholds.rows_of_wide_instants > 1
    ):
        narrow = timed(one, size_of(one), budget_with(wide, wide_instant=0.0))
        assert narrow.seconds == pytest.approx(full.seconds, rel=1e-9)


@pytest.mark.parametrize("fabric", ["rail-optimized", "single-switch", "leaf-spine"])
def test_wide_instants_of_sends_that_fold_are_within_what_they_state(fabric: str) -> None:
    one = cell(
        f"machine: dgx-h100, nodes: 4, gpus_per_node: 4, fabric: {{kind: {fabric}}}",
        "{collective: alltoall, sizes: [4MiB], timing: single}",
    )
    limits = budget_with(WIDE, min_written_share=0.0)
    told, full = (timed(one, size_of(one), some) for some in (limits, WRITTEN_OUT))
    assert "rates solved anew" in told.approximation
    assert len(told.program) < len(full.program)
    assert_within(told, full)
    assert not timed(one, size_of(one), budget_with(limits, min_written_share=0.5)).approximation


@pytest.mark.parametrize("seed", range(4))
def test_instants_that_tell_little_are_halved(seed: int) -> None:
    cluster = (
        f"machine: dgx-h100, nodes: {5 + seed}, gpus_per_node: 2, fabric: {{kind: {HASHED[0]}}}"
    )
    one = cell(cluster, "{collective: alltoall, sizes: [2MiB], timing: single}", "fold: off")
    usual, wide = (
        timed(one, size_of(one), budget_with(WIDE, wide_instant=x)) for x in (4e-7, 8e-5)
    )
    full = timed(one, size_of(one), WRITTEN_OUT)
    assert_within(wide, full)
    assert wide.uncertainty < 0.2
    assert usual.uncertainty < 0.2


ROUNDS = budget_with(USUAL_BUDGET, min_rows_for_channels=0.0, min_rows_of_sends=0.0, far_rows=0.0)
MANY = (
    "dragonfly",
    "fat-tree",
    "leaf-spine, nodes_per_leaf: 5, oversubscription: 4",
    "leaf-spine, nodes_per_leaf: 4, oversubscription: 2, transport: roce",
)


def sent_to_all(seed: int) -> ResolvedCell:
    """Messages among so many that channels have a dozen turns, the last one mostly not whole."""
    some = random.Random(seed)
    machine, nodes = some.choice(
        (
            ("a100-x4", some.randint(26, 40)),
            ("gh200-x4", some.randint(26, 40)),
            ("dgx-h100", some.randint(13, 20)),
        )
    )
    cluster = f"machine: {machine}, nodes: {nodes}, fabric: {{kind: {some.choice(MANY)}}}"
    size, timing = int(2 ** some.uniform(16, 26)), TIMINGS[seed % 2]
    work = f"{{collective: alltoall, sizes: [{size}B], timing: {timing}}}"
    return cell(cluster, work, "nccl: {env: {NCCL_MAX_P2P_NCHANNELS: '1'}}")


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_sends_told_from_their_first_rounds_are_off_by_no_more_than_they_state(seed: int) -> None:
    one = sent_to_all(seed)
    told, full = (timed(one, size_of(one), limits) for limits in (ROUNDS, USUAL_BUDGET))
    assert "rounds of sends" in told.approximation
    assert "rounds of sends" not in full.approximation
    assert len(told.program) < 0.6 * len(full.program)
    assert_within(told, full)


def test_first_rounds_are_those_of_sends_to_all_and_told_once() -> None:
    one = sent_to_all(0)
    call = form_at(one, size_of(one))
    assert isinstance(rounds_of_sends(MethodInput(call, ROUNDS)), Offer)
    assert not isinstance(
        rounds_of_sends(MethodInput(call, USUAL_BUDGET)), Offer
    )  # few enough rows
    assert not isinstance(
        rounds_of_sends(MethodInput(call, budget_with(ROUNDS, is_exact=True))), Offer
    )
    assert not isinstance(rounds_of_sends(MethodInput(call.with_distance(40), ROUNDS)), Offer)
    few = budget_with(ROUNDS, rows_of_wide_instants=0)
    assert 0 < bytes_of_form(call, few) < 0.5 * bytes_of_form(call, USUAL_BUDGET)
    part = (
        call.with_distance(40).loop_schedule.schedule().amount.sum()
        / call.loop_schedule.schedule().amount.sum()
    )
    assert part == pytest.approx(40 / call.collective.ranks, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["leaf-spine, transport: roce", "dragonfly, routing: static"])
def test_sends_that_take_very_long_are_refused_with_how_long(
    fabric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 64 * 10**9)
    many = f"machine: dgx-h100, nodes: 512, fabric: {{kind: {fabric}}}"
    with pytest.raises(InputError, match=r"9.1e\+07 rows .* some 15 minutes a size"):
        cell(many, "{collective: alltoall, sizes: [1GiB]}")
    small = cell(many.replace("512", "256"), "{collective: alltoall, sizes: [1GiB]}")
    call = form_at(small, 1 << 30)
    assert why_not_fit(call.task, USUAL_BUDGET) == ""
    assert "minutes" in why_not_fit(call.task, budget_with(USUAL_BUDGET, max_rows_of_sends=6e7))


def test_wide_instants_are_for_sends_that_are_many_and_nothing_exact() -> None:
    one = cell(
        "machine: dgx-h100, nodes: 2, gpus_per_node: 2, fabric: {kind: leaf-spine}",
        "{collective: alltoall, sizes: [1MiB], timing: single}",
    )
    for limits in (USUAL_BUDGET, budget_with(WIDE, is_exact=True)):
        assert not timed(one, size_of(one), limits).approximation


def test_very_many_loops_of_few_sends_are_told_from_fewer_and_no_crowd() -> None:
    """Sends to one peer are few at once, however many loops they take."""
    one = cell(
        "machine: dgx-h100, nodes: 8, fabric: {kind: rail-optimized}",
        "{collective: sendrecv, sizes: [8GiB, 1GiB]}",
    )
    large, small = (timed(one, size) for size in (8 << 30, 1 << 30))
    assert " loops" in large.approximation
    assert large.uncertainty < 0.02
    assert large.seconds == pytest.approx(8 * small.seconds, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["representatives", "long_rings", "lockstep"])
@pytest.mark.parametrize("seed", range(6))
def test_rungs_of_textbooks_are_exact(rung: str, seed: int) -> None:
    one, limits = textbook(seed), FORCED[rung]
    told, full = timed(one, size_of(one), limits), timed(one, size_of(one), WRITTEN_OUT)
    assert (told.approximation, told.uncertainty) == ("", 0.0)
    assert told.seconds == pytest.approx(full.seconds, rel=1e-9)


def test_every_exact_rung_is_asked_for_somewhere() -> None:
    seen = set()
    for limits in (*FORCED.values(), WRITTEN_OUT):
        for one in (*map(textbook, range(6)), drawn(0)):
            asked = MethodInput(form_at(one, size_of(one)), limits)
            rungs = [rung for rung in EXACT_METHODS if rung.__name__ not in limits.excluded]
            seen.add(next(rung.__name__ for rung in rungs if isinstance(rung(asked), Offer)))
    assert seen == {rung.__name__ for rung in EXACT_METHODS}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_law_holds_at_other_limits(seed: int) -> None:
    one, full = drawn(seed), timed(drawn(seed), size_of(drawn(seed)), WRITTEN_OUT)
    for some in (
        {"max_loop_fraction": 0.1},
        {"max_loop_fraction": 1.0, "max_rows_of_all_operations": 0.0},
        {"max_loop_fraction": 0.5, "negligible_launch_fraction": 0.0},
    ):
        assert_within(
            timed(one, size_of(one), budget_with(USUAL_BUDGET, max_rows_in_full=0, **some)), full
        )


def test_whether_loops_may_be_cut_is_asked_of_the_limits_of_the_question() -> None:
    one = next(
        one for one in map(drawn, range(8)) if form_at(one, size_of(one)).loop_schedule.loops >= 64
    )
    call = form_at(one, size_of(one))
    bench = Bench(call.topology, call.task.gpus, call.task.launch)
    for part in (0.25, 0.0):
        found = all_rows(
            MethodInput(call, budget_with(IN_FULL, max_loop_fraction=part, excluded=NOT_FOLDED))
        )
        assert isinstance(found, Offer)
        told = found.run(bench, None)
        assert isinstance(told, OneOperation)
        assert (told.fewer_loops is not None) == (part > 0)


# **** One channel for all ****


def trees(seed: int, timing: str) -> ResolvedCell:
    """Trees whose channels share no link which can saturate, over a few loops."""
    some = random.Random(seed)
    nodes, size = some.choice((3, 4, 6, 9, 17)), some.randint(MIB, 8 * MIB) // 4 * 4
    work = SIMPLE % ("all_reduce", "Tree", size, timing)
    return cell(
        f"machine: gh200-x4, nodes: {nodes}, fabric: {{kind: dragonfly}}",
        work.replace("Simple", some.choice(("LL128", "LL"))),
        "nccl: {env: {NCCL_BUFFSIZE: '262144'}}",
    )


BY_CHANNEL = budget_with(
    IN_FULL,
    min_rows_for_channels=0,
    min_rows_of_sends=0,
    far_rows=0,
    max_rows_of_all_operations=0,
    max_rows_of_several_operations=0,
)


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_one_channel_for_all_is_off_by_no_more_than_it_states(seed: int) -> None:
    one = trees(seed, "single")
    told, full = (timed(one, size_of(one), limits) for limits in (BY_CHANNEL, WRITTEN_OUT))
    assert told.approximation == ONE_CHANNEL
    assert told.uncertainty < 0.1
    assert len(told.program) < 0.6 * len(full.program)
    assert_within(told, full)
    between = one.topology.links.kind == LINK_KINDS.index("fabric")
    amounts = [link_amounts(timing.program)[: len(between)][between] for timing in (told, full)]
    assert amounts[0] == pytest.approx(amounts[1], rel=1e-9)


def test_one_channel_for_all_is_taken_where_loops_are_too_few_to_be_left_out() -> None:
    one = trees(2, "single")
    for part, kind in ((0.0, Offer), (1e9, Refusal)):
        asked = MethodInput(
            form_at(one, size_of(one)),
            budget_with(
                USUAL_BUDGET,
                min_rows_for_channels=0,
                min_rows_of_sends=0,
                far_rows=0,
                max_rows_of_all_operations=0,
                max_loop_fraction=part,
            ),
        )
        assert isinstance(channels_apart(asked), kind)


@pytest.mark.slow
def test_engines_agree_on_one_channel_for_all() -> None:
    one = trees(2, "single")
    fast, other = (timed(one, size_of(one), BY_CHANNEL, engine) for engine in ("compiled", "simpy"))
    assert fast.approximation == other.approximation == ONE_CHANNEL
    assert fast.seconds == pytest.approx(other.seconds, rel=1e-9)


def test_one_channel_for_all_tells_neither_exactly_nor_operations_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = trees(2, "throughput")
    two, full = (timed(one, size_of(one), limits) for limits in (BY_CHANNEL, WRITTEN_OUT))
    assert two.approximation == f"{ONE_CHANNEL}, {ONE_OF_ALL}"
    assert two.uncertainty == LONG_TREE_ERROR
    assert_within(two, full)
    short = timed(
        one,
        size_of(one),
        budget_with(
            BY_CHANNEL, hop_tolerance=MAX_LONG_TREE_SPREAD, max_tree_spread=MAX_LONG_TREE_SPREAD
        ),
    )
    assert short.uncertainty == SHORT_TREE_ERROR
    monkeypatch.setattr(one_operation, "MAX_LONG_TREE_SPREAD", 0.0)
    told = timed(one, size_of(one), BY_CHANNEL)
    assert told.approximation == f"{ONE_CHANNEL}, 1 of 20 operations ({TOO_MANY_ROWS})"
    assert 0.0 < told.uncertainty < 1.0
    assert_within(told, full)
    asked = MethodInput(form_at(one, size_of(one)), budget_with(BY_CHANNEL, is_exact=True))
    assert isinstance(channels_apart(asked), Refusal)


# All operations of any tree are too many rows, and so are three.
LARGE = budget_with(
    IN_FULL,
    max_loop_fraction=0.0,
    max_rows_of_all_operations=0.0,
    max_rows_of_several_operations=0.0,
)
ODD = ("", "{nic: node0.nic1}", "{gpu: node1.gpu2, slowdown: 1.3}")


ONE_OF_ALL = f"1 of 20 operations ({END_TOGETHER})"


def any_tree(seed: int) -> ResolvedCell:
    """Trees of some machines on some fabrics, perhaps with something odd, of not too many rows."""
    some = random.Random(seed)
    machine = some.choice(("dgx-h100", "dgx-a100", "dgx-b200", "a100-x4", "gh200-x4", "h100-x4"))
    fabric = some.choice(("rail-optimized", "leaf-spine", "dragonfly", "fat-tree"))
    nodes, odd = some.choice((3, 5, 8, 12, 17, 24)), some.choice(ODD)
    exponents = (18, 24) if seed < 200 else (21, 26)  # of few loops, of many
    protocol, size = some.choice(("LL", "LL128")), int(2 ** some.uniform(*exponents)) // 4 * 4
    work = SIMPLE % ("all_reduce", "Tree", size, "throughput")
    cluster = f"machine: {machine}, nodes: {nodes}, fabric: {{kind: {fabric}}}"
    return cell(f"{cluster}, faults: [{odd}]", work.replace("Simple", protocol))


SEEDS_OF_ONE_CHANNEL = (33, 71, 74)
MANY_LOOPS = (227, 229, 240, 247)
TOLD_BY_ONE = (*SEEDS_OF_ONE_CHANNEL, *MANY_LOOPS, 3, 14, 17, 29, 56, 63, 72, 78, 81, 88, 97, 114)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", TOLD_BY_ONE)
def test_one_operation_of_a_tree_tells_all_within_what_is_stated(seed: int) -> None:
    one = any_tree(seed)
    told, full = (timed(one, size_of(one), limits) for limits in (LARGE, WRITTEN_OUT))
    words = f"{ONE_CHANNEL}, {ONE_OF_ALL}" if seed in SEEDS_OF_ONE_CHANNEL else ONE_OF_ALL
    assert told.approximation == words
    assert told.uncertainty == (SHORT_TREE_ERROR, LONG_TREE_ERROR)[seed in MANY_LOOPS]
    assert_within(told, full)


def test_operations_of_trees_are_run_where_one_does_not_tell_them() -> None:
    one = any_tree(14)
    for some in (
        {"hop_tolerance": 0.0, "max_tree_spread": 0.0},
        {"max_tree_loops": 0},
        {"is_exact": True},
        {"max_rows_of_all_operations": np.inf},
    ):
        told = timed(
            one, size_of(one), budget_with(LARGE, max_rows_of_several_operations=1e12, **some)
        )
        assert END_TOGETHER not in told.approximation


EQUAL_HEADS = budget_with(
    IN_FULL,
    max_rows_of_fewest_operations=1e12,
    max_rows_of_loop_run=1000000000000.0,
    max_rows_of_few_operations=1e12,
    min_rows_for_pace=1000000000000.0,
    min_equal_heads=0.0,
)


def uneven_heads(seed: int) -> ResolvedCell:
    """NVLSTree over hosts of which one may be odd; sizes are such that last loops mostly differ."""
    some = random.Random(seed)
    machine, nodes = some.choice(("dgx-h100", "dgx-b200")), some.choice((3, 4, 5, 8, 12, 16))
    size, odd = int(2 ** some.uniform(22, 29)) // 4 * 4, some.choice(ODD)
    work = SIMPLE % ("all_reduce", "NVLSTree", size, some.choice(TIMINGS))
    fabric = some.choice(("rail-optimized", "leaf-spine"))
    cluster = f"machine: {machine}, nodes: {nodes}, fabric: {{kind: {fabric}}}"
    return cell(f"{cluster}, faults: [{odd}]", work)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_heads_that_are_made_equal_are_off_by_no_more_than_they_state(seed: int) -> None:
    one = uneven_heads(seed)
    told, full = (timed(one, size_of(one), limits) for limits in (EQUAL_HEADS, WRITTEN_OUT))
    assert WITH_EQUAL_HEADS in told.approximation
    assert len(told.program) < len(full.program)
    assert_within(told, full)


def test_heads_are_made_equal_in_large_calls_only_and_nothing_exact() -> None:
    one = uneven_heads(0)
    for limits in (
        USUAL_BUDGET,
        budget_with(EQUAL_HEADS, is_exact=True),
        budget_with(EQUAL_HEADS, min_equal_heads=1e9),
    ):
        assert WITH_EQUAL_HEADS not in timed(one, size_of(one), limits).approximation
    even = cell(
        "machine: dgx-h100, nodes: 4, fabric: {kind: rail-optimized}",
        SIMPLE % ("all_reduce", "NVLSTree", 16 * MIB, "single"),
    )
    assert timed(even, 16 * MIB, EQUAL_HEADS).uncertainty == 0.0


def test_calls_of_many_loops_share_their_runs_though_their_last_loops_differ() -> None:
    work = SIMPLE % ("all_reduce", "NVLSTree", 4 << 30, "single")
    one = cell("machine: dgx-h100, nodes: 4, faults: [{nic: node0.nic1}]", work)
    calls = [form_at(one, size) for size in (4 << 30, 8 << 30)]
    assert calls[0].loop_schedule.key_of(64) != calls[1].loop_schedule.key_of(64)
    level = [call.with_equal_heads for call in calls]
    assert level[0].loop_schedule.key_of(64) == level[1].loop_schedule.key_of(64)
    for call, same in zip(calls, level, strict=True):
        more = same.collective.count / call.collective.count - 1
        assert same.loop_schedule.loops == call.loop_schedule.loops
        assert 0 < more < min(same.uncertainty, 1 / call.loop_schedule.loops)


PACED = budget_with(
    USUAL_BUDGET,
    max_rows_of_few_operations=20_000,
    min_rows_for_pace=20000,
    max_rows_of_fewest_operations=1e7,
    max_rows_of_loop_run=10000000.0,
)
TOLD_BY_PACE = 6, 58, 122
BUSY_LOOPS = 3, 5, 37, 48


def many_loops(seed: int) -> ResolvedCell:
    """Some call over hundreds of loops of FIFOs that are small, perhaps with something odd."""
    some = random.Random(seed)
    algorithm = some.choice(("Tree", "NVLSTree", "Ring"))
    machines = ("dgx-h100", "dgx-b200", "gh200-x4", "dgx-a100", "a100-x4", "h100-x4")
    machine = some.choice(machines[: 2 if algorithm == "NVLSTree" else None])
    name = some.choice(("broadcast", "reduce")) if algorithm == "Ring" else "all_reduce"
    fabric = some.choice(("rail-optimized", "leaf-spine", "dragonfly"))
    nodes, odd, memory = some.choice((2, 3, 5, 8, 12)), some.choice(ODD), some.choice((16, 17, 18))
    work = SIMPLE % (name, algorithm, int(2 ** some.uniform(25, 28)) // 4 * 4, "single")
    cluster = f"machine: {machine}, nodes: {nodes}, fabric: {{kind: {fabric}}}, faults: [{odd}]"
    return cell(cluster, work, f"nccl: {{env: {{NCCL_BUFFSIZE: '{1 << memory}'}}}}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", TOLD_BY_PACE)
def test_loops_that_do_not_recur_are_told_by_their_pace_within_what_is_stated(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoopRuns, "need", lambda *_: np.inf)  # as if no link were busy
    one = many_loops(seed)
    told, full = (timed(one, size_of(one), limits) for limits in (PACED, IN_FULL))
    assert steady_state.AT_LAST_RATE in told.approximation
    assert told.uncertainty <= 0.011
    assert len(told.program) < 0.26 * len(full.program)
    assert_within(told, full)
    few = budget_with(PACED, max_rows_of_few_operations=1e12, min_rows_for_pace=1000000000000.0)
    assert steady_state.AT_LAST_RATE not in timed(one, size_of(one), few).approximation


@pytest.mark.slow
@pytest.mark.parametrize("seed", BUSY_LOOPS)
def test_loops_that_take_what_a_link_has_to_do_are_told_by_two_runs(seed: int) -> None:
    one = many_loops(seed)
    told, full = (timed(one, size_of(one), limits) for limits in (PACED, IN_FULL))
    first = form_at(one, size_of(one)).loop_schedule.first
    assert told.approximation.startswith(f"{2 * first} of ")
    assert steady_state.AT_LAST_RATE in told.approximation
    assert told.uncertainty <= 0.002
    assert_within(told, full)


NO_ONE = frozenset({"trees_end_together", "busy_link"})  # of which fewer operations would be run
THREE = budget_with(
    IN_FULL,
    operation_counts=(3,),
    max_rows_of_fewest_operations=1e12,
    max_rows_of_loop_run=1000000000000.0,
    max_rows_of_all_operations=0.0,
    excluded=NO_ONE,
)
TWENTY = budget_with(THREE, operation_counts=(20,), excluded=NO_ONE | {"recurring_operations"})


def in_a_row(seed: int) -> ResolvedCell:
    """Some call on some machine and fabric, perhaps with something odd, of any number of rows."""
    some = random.Random(seed)
    machine = some.choice(("dgx-h100", "dgx-a100", "dgx-b200", "a100-x4", "gh200-x4", "h100-x4"))
    fabric = some.choice(("rail-optimized", "leaf-spine", "dragonfly", "fat-tree"))
    nodes, odd = some.choice((3, 5, 8, 12, 17)), some.choice(ODD)
    name, algorithm = some.choice(
        (
            ("all_reduce", "Tree"),
            ("all_reduce", "Ring"),
            ("all_gather", "Ring"),
            ("reduce_scatter", "Ring"),
            ("broadcast", "Ring"),
            ("alltoall", ""),
            ("all_reduce", ""),
        )
    )
    algorithm = algorithm and f", algorithm: {algorithm}"
    work = f"collective: {name}{algorithm}, sizes: [{int(2 ** some.uniform(18, 25)) // 4 * 4}B]"
    cluster = f"machine: {machine}, nodes: {nodes}, fabric: {{kind: {fabric}}}"
    return cell(f"{cluster}, faults: [{odd}]", f"{{{work}}}")


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_three_operations_tell_twenty_within_what_is_stated(seed: int) -> None:
    one = in_a_row(seed)
    told, full = (timed(one, size_of(one), limits) for limits in (THREE, TWENTY))
    if "3 of 20 operations" in told.approximation:
        assert told.uncertainty > 0.015
        assert_within(told, full)


BUSY = budget_with(
    IN_FULL,
    max_rows_of_few_operations=0.0,
    min_rows_for_pace=0.0,
    min_equal_heads=np.inf,
    excluded=frozenset({"trees_end_together"}),
)
EACH_TIMED = budget_with(
    WRITTEN_OUT,
    operation_counts=(20,),
    max_rows_of_all_operations=1e12,
    min_equal_heads=np.inf,
    excluded=TWENTY.excluded,
)
KEPT_BUSY = 17, 37, 48, 74, 86, 91, 94, 102, 111, 123, 133


def busy_links(seed: int) -> ResolvedCell:
    """Some call of some loops, perhaps with something odd, of which ranks end at some times."""
    some = random.Random(seed)
    algorithm = some.choice(("Tree", "NVLSTree", "Ring"))
    machines = ("dgx-h100", "dgx-b200", "gh200-x4", "dgx-a100", "a100-x4", "h100-x4")
    machine = some.choice(machines[: 2 if algorithm == "NVLSTree" else None])
    rings = ("all_reduce", "all_gather", "reduce_scatter")
    name = some.choice(rings) if algorithm == "Ring" else "all_reduce"
    fabric = some.choice(("rail-optimized", "leaf-spine", "dragonfly", "fat-tree", HASHED[0]))
    nodes, odd = some.choice((2, 3, 5, 8, 12)), some.choice(ODD)
    work = SIMPLE % (name, algorithm, int(2 ** some.uniform(23, 28)) // 4 * 4, "throughput")
    if some.random() < 0.4 and algorithm != "NVLSTree":
        work = work.replace("Simple", "LL128")
    cluster = f"machine: {machine}, nodes: {nodes}, fabric: {{kind: {fabric}}}, faults: [{odd}]"
    memory = some.choice((17, 18, 19, 22))
    return cell(cluster, work, f"nccl: {{env: {{NCCL_BUFFSIZE: '{1 << memory}'}}}}")


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", KEPT_BUSY)
def test_one_that_keeps_a_link_busy_tells_those_in_a_row_within_what_is_stated(seed: int) -> None:
    one = busy_links(seed)
    told, full = (timed(one, size_of(one), limits) for limits in (BUSY, EACH_TIMED))
    assert KEEPS_BUSY in told.approximation
    assert 0.0 < told.uncertainty <= BUSY.thresholds.max_idle_fraction
    assert full.uncertainty == 0.0
    assert_within(told, full)


def test_one_alone_is_taken_for_those_in_a_row_where_they_are_many_rows_and_a_link_is_busy() -> (
    None
):
    one = busy_links(91)
    for some in (
        {"max_idle_fraction": 0.01, "max_error_of_large_runs": 0.01},
        {"max_rows_of_few_operations": 1e9, "min_rows_for_pace": 1000000000.0},
        {"is_exact": True},
    ):
        told = timed(one, size_of(one), budget_with(BUSY, **some))
        assert KEEPS_BUSY not in told.approximation


@pytest.mark.slow
@pytest.mark.parametrize("timing", ["single", "throughput"])
def test_rings_of_one_channel_take_what_those_of_all_do(
    timing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = (SIMPLE % ("all_reduce", "Ring", 8 * MIB, timing)).replace("Simple", "LL128")
    one = cell("machine: gh200-x4, nodes: 17, fabric: {kind: dragonfly}", work)
    few, hops = (
        timed(one, 8 * MIB, budget_with(USUAL_BUDGET, max_ring_rows=0)),
        "of 67 hops of rings",
    )
    monkeypatch.setattr(Form, "with_fewer_channels", None)
    full, all_hops = (
        timed(one, 8 * MIB, budget_with(USUAL_BUDGET, max_ring_rows=n)) for n in (0, np.inf)
    )
    assert hops in few.approximation
    assert 3.5 * len(few.program) < len(full.program)
    assert few.seconds == pytest.approx(full.seconds, rel=1e-3 if timing == "single" else 2e-3)
    assert_within(few, all_hops)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "kib", "protocol"),
    [
        (24, 8192, "LL128"),
        (19, 700, "LL"),
        (17, 3000, "LL128"),
        (17, 40_000, "Simple"),
        (20, 20_000, "LL128"),
    ],
)
def test_rings_with_empty_chunks_are_told_by_hops_within_what_they_state(
    nodes: int, kib: int, protocol: str
) -> None:
    """Before NCCL 2.22 the last chunks of a ring may be empty; what that may be off is stated."""
    work = (SIMPLE % ("all_reduce", "Ring", kib << 10, "single")).replace("Simple", protocol)
    one = cell(
        f"machine: h100-x4, nodes: {nodes}, fabric: {{kind: leaf-spine}}",
        work,
        "nccl: {version: '2.18'}",
    )
    told, full = (
        timed(one, kib << 10, budget_with(USUAL_BUDGET, max_ring_rows=n)) for n in (0, np.inf)
    )
    assert "hops of rings" in told.approximation
    assert_within(told, full)


# **** Exactly ****


@pytest.mark.slow
def test_exactly_is_in_full_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    some, exact = FORCED["fewer_loops"], budget_for(is_exact=True)
    calls = ((one, size_of(one)) for one in map(drawn, range(16)))
    one, size = next(call for call in calls if "loops" in timed(*call, some).approximation)
    told = timed(one, size, exact)
    assert "loops" not in told.approximation
    assert_within(timed(one, size, some), told)
    call = form_at(one, size)
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 1000)
    with pytest.raises(InputError, match="rows would take"):
        solve_form(call, exact)
    why = why_not_fit(call.task, exact)
    assert why.startswith("too large to be simulated exactly: about ")
    assert "rows would take" in why
    assert why.endswith(EXACT_REMEDY)


def test_operations_that_cannot_be_followed_are_not_told_exactly() -> None:
    size = 4 * 24 * 24 * 4096
    work = SIMPLE.replace(", protocol: Simple", "") % (
        "alltoall",
        "hierarchical",
        size,
        "throughput",
    )
    one = cell(
        "machine: dgx-h100, nodes: 12, gpus_per_node: 2, fabric: {kind: rail-optimized, ports: 8}",
        work,
    )
    steps = budget_with(min_lockstep_steps=0, max_lockstep_spread=1e9)
    found = timed(one, size, steps)
    assert found.approximation == f"1 of 20 operations ({TOO_MANY_ROWS})"
    assert 0.05 < found.uncertainty < 1.0
    row = simulate_size(within(one, steps), size)[0]
    assert row.doubtful
    assert row.validated == "not validated (approximated)"
    assert f"~{microseconds(row.time_us)}" in shown.line(row)
    assert best_row([row, replace(row, time_us=2 * row.time_us, approximation_pct=1.0)]) is not row
    with pytest.raises(InputError, match="operations in a row are not followed"):
        timed(one, size, budget_with(steps, is_exact=True))


def test_operations_back_to_back_are_told_exactly_too() -> None:
    work = SIMPLE % ("broadcast", "Ring", MIB, "throughput")
    one = cell("machine: dgx-h100, nodes: 2, fabric: {kind: rail-optimized}", work)
    exact, usual = (timed(one, MIB, limits) for limits in (budget_for(is_exact=True), USUAL_BUDGET))
    assert exact.seconds == pytest.approx(usual.seconds, rel=1e-6)
    assert exact.uncertainty == usual.uncertainty == 0.0


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical"])
def test_rings_of_few_ranks_are_followed_by_sums_and_maxima(algorithm: str) -> None:
    work = f"{{collective: all_reduce, algorithm: {algorithm}, sizes: [64KiB], timing: single}}"
    one = cell(f"machine: dgx-h100, nodes: 4, gpus_per_node: 2, fabric: {FABRICS[0]}", work)
    assert isinstance(long_rings(MethodInput(form_at(one, 65536), FORCED["long_rings"])), Offer)
    told, full = (timed(one, 65536, limits) for limits in (FORCED["long_rings"], WRITTEN_OUT))
    assert len(told.program) < len(full.program)
    assert told.seconds == pytest.approx(full.seconds, rel=1e-9)
