"""The ladder: how calls are timed, held against the run in full, as cells and inside steps."""

import random
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from netsim.base.errors import InputError
from netsim.collectives.collective import Collective
from netsim.extent import fewer_loops
from netsim.extent.all_rows import all_rows
from netsim.extent.budget import Budget
from netsim.extent.decisions import listening
from netsim.extent.distance import extrapolate_distance, ring_distances, why_not_fewer_hops
from netsim.extent.fewer_hops import fewer_hops
from netsim.extent.fit import bytes_of_form
from netsim.extent.result import MethodInput, Offer, Refusal
from netsim.extent.shown import are_same
from netsim.extent.solve import solve_form
from netsim.extent.steady_state import Recurrence
from netsim.nccl.choice import schedule_of
from netsim.nccl.schedules.ring import repeat_short_chunks
from netsim.scenario.cells import expand
from netsim.schedule.extent import Extent
from netsim.tasks.cluster import wishes_of
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.training.costs import Costs
from netsim.workloads.lower import Coarse
from netsim.workloads.tape import TapeEntry
from netsim.yamlio.read import parse_source
from tests.extent.cells import budget_with, form_at, simulate_size, within
from tests.nccl.nccl_plans import small_plan

MIB = 1 << 20
FULL = budget_with(max_rows_in_full=1e18, max_ring_rows=1e18, min_folded_ring_rows=1 << 60)
FOLDED = budget_with(max_rows_in_full=1e18, max_ring_rows=1e18)
HOPS = budget_with(max_ring_rows=0)
NEVER = budget_with(
    max_ring_rows=0, hop_tolerance=-1.0, max_tree_spread=-1.0
)  # no hops are alike enough
CELL = """\
cluster: {{machine: dgx-h100, nodes: {nodes}, gpus_per_node: {gpus}, fabric: {fabric}{faults}}}
workload:
  {{collective: {name}, algorithm: Ring, protocol: {protocol}, sizes: [{size}B], timing: {timing}}}
launch: {{style: process_per_gpu, host: 0s, kernel: 0s}}
fold: {fold}
"""
FABRICS = (
    "{kind: rail-optimized}",
    "{kind: leaf-spine}",
    "{kind: fat-tree}",
    "{kind: leaf-spine, oversubscription: 2}",
    "{kind: single-switch}",
)


@dataclass(frozen=True)
class Case:
    """A call of a ring."""

    nodes: int
    size: int
    gpus: int = 8
    name: str = "all_reduce"
    protocol: str = "Simple"
    fabric: str = "{kind: rail-optimized}"
    timing: str = "single"
    fold: str = "auto"
    faults: str = ""

    @property
    def ready(self) -> ResolvedCell:
        """It as a cell."""
        text = CELL.format(**{k: getattr(self, k) for k in self.__dataclass_fields__})
        return resolve(expand(parse_source(text, "x.yaml"))[0])

    @property
    def shared(self) -> "Case":
        """It with the next size that a step asks for: all ranks share it evenly."""
        even = self.nodes * self.gpus * 16
        return replace(self, size=-(-self.size // even) * even)


@cache
def in_cell(case: Case, limits: Budget) -> tuple[float, str, float]:
    """Seconds of a cell, in which way, and by how much these may be off."""
    row = simulate_size(within(case.ready, limits), case.size)[0]
    return row.time_us * 1e-6, row.approximation, (row.approximation_pct or 0.0) / 100


def made_in_step(case: Case, limits: Budget) -> Coarse:
    ready = case.ready
    costs = Costs(ready.jobs[0].cluster, wishes_of(ready.cell.scenario), budget=limits)
    group = tuple(range(case.nodes * case.gpus))
    task = TapeEntry(
        case.name, "", "", "", [group], (), collective=case.name, nbytes=case.size, dtype="float"
    )
    return costs(task, group)


def in_step(case: Case, limits: Budget) -> tuple[float, str]:
    """Seconds of the same inside a training step, after its launch, and in which way."""
    made = made_in_step(case, limits)
    return made.seconds - made.styles[0].latency, made.approximation


def drawn(seed: int) -> Case:
    """Some ring of 72 ranks or more."""
    some = random.Random(seed)
    gpus, protocol = some.choice((1, 2, 4, 8)), some.choice(("Simple", "Simple", "LL", "LL128"))
    most = {"Simple": 8.0, "LL": 2.0, "LL128": 4.0}[protocol]
    return Case(
        some.randint(-(-72 // gpus), 96 // gpus),
        int(2 ** some.uniform(-1, most) * MIB) // 4 * 4,
        gpus,
        some.choice(("all_reduce", "all_reduce", "all_gather", "reduce_scatter")),
        protocol,
        some.choice(FABRICS),
        some.choice(("single", "single", "throughput")),
    )


# All chunks of a channel but the last one are equal here, and the message is one loop.
UNEVEN = Case(24, 512 * MIB)


@pytest.mark.full
def test_a_short_chunk_counts_as_in_full_in_cells_and_in_steps() -> None:
    case = UNEVEN.shared
    full, words, _ = in_cell(case, FULL)
    assert not words
    assert in_cell(case, budget_with())[0] == full
    assert in_step(case, budget_with()) == (pytest.approx(full, rel=1e-9), "")
    told, words, off = in_cell(case, HOPS)
    assert "hops" in words
    assert abs(told / full - 1) <= off <= 0.025
    step, words = in_step(case, HOPS)
    assert step == pytest.approx(told, rel=1e-9)
    assert f"off by up to {off:.1%}" in words


@pytest.mark.slow
def test_what_a_hop_adds_is_what_it_adds_in_full() -> None:
    case = UNEVEN
    full = in_cell(case, FULL)[0]
    assert in_cell(case, budget_with(HOPS, hop_tolerance=0.0, max_tree_spread=0.0))[
        0
    ] == pytest.approx(full, rel=1e-6)


@pytest.mark.slow
def test_rings_that_could_be_run_are_told_by_hops_where_what_these_add_agrees() -> None:
    full = in_cell(UNEVEN, FULL)
    tried = budget_with(
        FULL, min_folded_ring_rows=0, max_ring_rows=1e9, min_hop_fraction=0.0, far_ring_fraction=0.5
    )
    told, words, off = in_cell(UNEVEN, tried)
    assert "hops" in words
    assert told == pytest.approx(full[0], rel=1e-6)
    assert 0 < off < 0.025
    assert in_cell(UNEVEN, budget_with(tried, far_ring_fraction=0.125)) == full


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 7, 8])
def test_cells_are_off_by_no_more_than_they_state(seed: int) -> None:
    case = drawn(seed)
    full, _, moves = in_cell(case, FULL)
    told, _, off = in_cell(case, HOPS)
    assert abs(told / full - 1) <= off + moves + 1e-9


@pytest.mark.full
@pytest.mark.parametrize("seed", [101, 102, 104])
def test_steps_are_off_by_no_more_than_they_state(seed: int) -> None:
    case = replace(drawn(seed).shared, timing="single")
    full, told, (cell, _, off) = in_step(case, FULL)[0], in_step(case, HOPS)[0], in_cell(case, HOPS)
    assert told == pytest.approx(cell, rel=1e-9)
    assert abs(told / full - 1) <= off + 1e-9
    assert in_step(case, FOLDED)[0] == pytest.approx(full, rel=1e-9)


@pytest.mark.slow
def test_rings_are_folded_without_a_trace() -> None:
    case = Case(9, 20 * MIB)
    assert in_cell(case, FULL)[0] == pytest.approx(
        in_cell(replace(case, fold="off"), FULL)[0], 1e-9
    )


@pytest.mark.slow
def test_what_may_not_be_folded_is_run_in_full() -> None:
    case = Case(9, MIB, fold="off")
    assert in_cell(case, HOPS) == in_cell(case, FULL)


@pytest.mark.slow
def test_a_slow_link_hidden_in_the_ring_changes_the_answer() -> None:
    fault = ", faults: [{link: node9.nic0->leaf0, bandwidth: 2%}]"
    usual, slow = (
        in_cell(Case(17, 64 * MIB, name="all_gather", faults=x), HOPS) for x in ("", fault)
    )
    assert slow[0] > 1.2 * usual[0]


def test_hops_that_differ_too_much_tell_nothing() -> None:
    runs, alike = (7, 15, 23, 31, 39), (0.02, 0.02)
    assert extrapolate_distance(135, iter(runs), lambda hops: hops**2.0, alike, 17) is None
    even = extrapolate_distance(135, iter(runs), lambda hops: 2.0 * hops + 1, alike, 17)
    assert even is not None
    assert (even.seconds, even.run, even.full) == (271.0, 31, 135)
    assert even.uncertainty == pytest.approx(2 / 271)


def test_what_few_hops_add_has_to_agree_better_than_what_many_do() -> None:
    """Steps that differ by 2e-4: more than a steady state may, less than is tolerated later."""

    def times(hops: int) -> float:
        return hops + 1e-4 * hops * (-1) ** (hops // 8)

    runs, alike = range(7, 64, 8), (1e-4, 0.02)
    late, early = (extrapolate_distance(135, iter(runs), times, alike, far) for far in (17, 135))
    assert early is None
    assert late is not None
    assert late.seconds == pytest.approx(135, rel=1e-3)


@pytest.mark.parametrize(("nodes", "gpus"), [(17, 8), (20, 4), (65, 3)])
def test_shorter_ways_end_where_the_whole_ring_does(nodes: int, gpus: int) -> None:
    """At the same GPU of a host, and each is longer than the last one."""
    plan = small_plan("Ring", "Simple", nodes, gpus, 40_000)
    found = list(ring_distances(Collective("all_gather", nodes * gpus, 40_000, 4), plan, 1))
    assert len(found) > 3
    assert {(nodes * gpus - 1 - hops) % gpus for hops in found} == {0}
    assert found == sorted({*found})
    assert found[-1] <= nodes * gpus / 2


@pytest.mark.parametrize(("nodes", "runs"), [(7, 3), (8, 4)])
def test_three_increments_need_four_runs(nodes: int, runs: int) -> None:
    """Of 7, 15, 23 (and 31) hops: whole hosts, up to half of the ring."""
    plan = small_plan("Ring", "Simple", nodes, 8, 40_000)
    call = Collective("all_gather", nodes * 8, 40_000, 4)
    assert list(ring_distances(call, plan, 1)) == [8 * n - 1 for n in range(1, runs + 1)]
    assert bool(why_not_fewer_hops(call, plan, 1)) == (runs < 4)


def test_runs_grow_by_hosts_at_first_and_then_by_as_many_hops_as_ever() -> None:
    """So each of the last three increments is as long as all before it together."""
    plan, asked = small_plan("Ring", "Simple", 66, 8, 40_000), list[int]()

    def seconds(hops: int) -> float:
        asked.append(hops)
        return hops + 0.1 * (hops > 30)

    runs = list(ring_distances(Collective("all_gather", 66 * 8, 40_000, 4), plan, 8))
    assert runs == [7, 15, 23, 31, 63, 127, 255]
    found = extrapolate_distance(527, iter(runs), seconds, (1e-6, 0.02), 100)
    assert found is not None
    assert asked == runs[:-1]
    assert found.seconds == pytest.approx(127.1 + 400 * (1 + 0.1 / 112), rel=1e-12)


@pytest.mark.full
@pytest.mark.parametrize(("protocol", "same"), [("LL", True), ("Simple", False)])
def test_rings_told_by_hops_are_alike_if_a_few_end_as_soon(protocol: str, same: bool) -> None:
    """Out of place each rank copies its own block, which is over before the ring is; in Simple its
    first step stores it as well."""
    case = Case(17, 4 * MIB, name="all_gather", protocol=protocol)
    calls = [form_at(case.ready, case.size, in_place=place) for place in (False, True)]
    assert are_same(*(call.task for call in calls), HOPS) == same
    out, here = (solve_form(call, HOPS).seconds for call in calls)
    assert (out == pytest.approx(here, rel=1e-6)) == same


@pytest.mark.parametrize("period", [1, 2, 3, 5, 7])
def test_loops_that_recur_go_on_by_whole_periods(
    period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that tells is no longer than the first, by less than a period; all end so much later
    as whole periods take that are left out, but for what ended before its kernel began."""
    seconds = 0.25
    recurs = Recurrence(period, seconds * period, 0.0, 0.0)
    runs = SimpleNamespace(
        schedules=SimpleNamespace(loops=100),
        recurs=lambda size: recurs,
        ends=lambda size: np.array([0.0, size * seconds + 1]),
        bench=SimpleNamespace(launch=SimpleNamespace(kernel=0.5)),
    )
    monkeypatch.setattr(fewer_loops, "_with_all_loops", lambda runs, last, found: (last, found))
    last, found = fewer_loops._from_recurrence(runs, 20)
    assert 20 - period < last <= 20
    assert (100 - last) % period == 0
    assert found.ends.tolist() == [0.0, 100 * seconds + 1]


@pytest.mark.slow
def test_rings_that_hops_do_not_tell_are_run_in_full_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(9, MIB, name="all_gather")
    assert in_cell(case, NEVER) == in_cell(case, FULL)
    call = form_at(case.ready, case.size)
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 1000)
    lines: list[str] = []
    words = "too large to be simulated: about .* rows would take .* GB"
    with listening(lines.append), pytest.raises(InputError, match=words):
        solve_form(call, NEVER)
    assert any("what a few hops add differs too much" in line for line in lines)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"may_fold": False}, "ranks are not taken for equal"),
        ({"algorithm": "Tree"}, "only rings"),
        ({"node": (0, *(rank // 8 for rank in range(135)))}, "different numbers of ranks"),
        ({"node": tuple(rank // 8 for rank in range(32))}, "31 hops is too short"),
    ],
)
def test_hops_refuse_with_words(change: dict[str, object], why: str) -> None:
    call = form_at(Case(17, MIB, name="all_gather").ready, MIB)
    other = (
        call.changed(may_fold=False)
        if "may_fold" in change
        else call.changed(plans=(replace(call.plans[0], **change),))  # type: ignore[arg-type]
    )
    found = fewer_hops(
        MethodInput(other, budget_with(HOPS, excluded=frozenset({"representatives"})))
    )
    assert isinstance(found, Refusal)
    assert why in found.words


def test_rows_decide_and_are_counted_before_they_are_written() -> None:
    call = form_at(Case(17, MIB, name="all_gather").ready, MIB).with_representatives
    assert call is not None
    counted = call.ring_rows
    assert 0.5 * len(call.loop_schedule.schedule()) < counted < len(call.loop_schedule.schedule())
    assert isinstance(
        all_rows(MethodInput(call, budget_with(max_ring_rows=counted, min_hop_fraction=1.0))), Offer
    )
    assert isinstance(
        all_rows(MethodInput(call, budget_with(max_ring_rows=counted - 1, min_hop_fraction=1.0))),
        Refusal,
    )
    told = call.changed(may_fold=True)
    offers = [
        fewer_hops(MethodInput(told, budget_with(max_ring_rows=counted - k, min_hop_fraction=1.0)))
        for k in (0, 1)
    ]
    assert [isinstance(offer, Offer) for offer in offers] == [False, True]


@pytest.mark.slow
def test_operations_of_long_rings_overlap_as_those_of_fewer_hops_tell() -> None:
    """Where those in a row would be many rows: what they tell is stated, and holds."""
    case = Case(17, 4 * MIB, name="all_gather", protocol="LL")
    far, half = (
        solve_form(
            form_at(case.ready, case.size),
            budget_with(HOPS, max_rows_of_several_operations=rows),
        )
        for rows in (HOPS.thresholds.max_rows_of_several_operations, 0)
    )
    assert half.hops < far.hops
    full = in_cell(case, FULL)[0]
    for told in (far, half):
        assert told.seconds == pytest.approx(full, rel=told.uncertainty + 1e-3)


@pytest.mark.slow
def test_rings_of_very_many_rows_are_told_by_fewer_hops_and_memory() -> None:
    """Where paths are hashed no two hops add the same: enough rows have to tell."""
    hashed = "{kind: leaf-spine, oversubscription: 2, transport: roce}"
    case = Case(34, 64 * MIB, name="all_gather", fabric=hashed)
    call = form_at(case.ready, case.size)
    alike = budget_with(HOPS, agreement=2e-3)
    few, many = budget_with(alike, min_rows_for_channels=0, min_rows_of_sends=0, far_rows=0), alike
    told = [solve_form(call, limits) for limits in (few, many)]
    assert told[0].hops < told[1].hops
    full = in_cell(case, FULL)[0]
    for each in told:
        assert each.seconds == pytest.approx(full, rel=each.uncertainty + 1e-3)
    bytes_of_few, bytes_of_many = (bytes_of_form(call, each) for each in (few, many))
    assert bytes_of_few < bytes_of_many < bytes_of_form(call, FULL)


def test_shorter_chunks_come_round_again() -> None:
    count = np.array([[9] * 10, [5] * 8 + [2, 0]])
    found = repeat_short_chunks(count, 4)
    assert found.tolist() == [[9] * 10, [5, 5, 2, 0, 5, 5, 2, 0, 2, 0]]
    assert (repeat_short_chunks(count, 10) == count).all()
    assert (repeat_short_chunks(count[:1], 4) == count[:1]).all()


@pytest.mark.slow
def test_a_ring_cut_after_some_hops_moves_that_part_of_its_bytes() -> None:
    ready = Case(12, 96 * MIB).ready
    collective, plan = (
        ready.collective(96 * MIB),
        form_at(ready, 96 * MIB).plans[0],
    )
    whole, part = (
        _sent(schedule_of(collective, plan, Extent(distance=distance))) for distance in (0, 23)
    )
    np.testing.assert_allclose(part, whole * 23 / 95, rtol=2e-3)


@pytest.mark.slow
def test_rings_of_steps_send_as_much_written_with_few_hops_as_in_full() -> None:
    case = Case(12, 96 * MIB)
    full, few = (made_in_step(case, limits) for limits in (FULL, HOPS))
    assert (few.src.tolist(), few.dst.tolist()) == (full.src.tolist(), full.dst.tolist())
    np.testing.assert_allclose(few.amount, full.amount, rtol=2e-3)


def _sent(schedule) -> np.ndarray:
    amount = (
        schedule.amount * schedule.style_column("multiplicity") * (schedule.src != schedule.dst)
    )
    return np.bincount(schedule.src, amount, schedule.ranks)
