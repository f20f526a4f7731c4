"""Calls of very many loops: with most of them left out they take as long as in full."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from netsim.base.errors import ScenarioError
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.collectives.collective import Collective
from netsim.extent import fewer_loops
from netsim.extent.all_rows import all_rows
from netsim.extent.budget import USUAL_BUDGET
from netsim.extent.engine_runs import Bench, LoopRuns
from netsim.extent.forms import Form, form_of
from netsim.extent.result import MethodInput, Offer, Refusal, Result
from netsim.extent.solve import solve_form
from netsim.extent.steady_state import find_recurrence, lanes_of
from netsim.metrics.links import link_amounts, needed
from netsim.nccl.schedules.loops import loops_of, without_loops
from netsim.nccl.schedules.plan import Plan, Work
from netsim.schedule.repeat import BackToBack, Launch
from netsim.tasks.answer import checked_cells
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.topology.routing import switch
from netsim.workloads.task import Task
from tests.extent.cells import (
    IN_FULL,
    bench_of,
    budget_with,
    folded,
    form_at,
    simulate_size,
    within,
)
from tests.nccl.test_folding import resolved as asked_for

# Small buffers make many loops of little data.
BUFFER = ("NCCL_BUFFSIZE=32768", "NCCL_MAX_NCHANNELS=2")
NCCL = [
    # machine, collective, nodes, algorithm, gpus, size
    ("dgx-h100", "all_reduce", 1, "Ring", 2, "6M"),
    ("dgx-h100", "all_reduce", 1, "Ring", 4, "8000004"),
    ("dgx-a100", "all_gather", 1, "Ring", 4, "24M"),
    ("dgx-h100", "reduce_scatter", 2, "Ring", 1, "12000000"),
    ("dgx-h100", "broadcast", 1, "Ring", 4, "10000000"),
    ("dgx-h100", "reduce", 1, "Ring", 2, "9M"),
    ("dgx-h100", "all_reduce", 4, "Tree", 2, "7000004"),
    ("dgx-h100", "all_reduce", 2, "Tree", 8, "4M"),
    ("dgx-h100", "all_reduce", 1, "NVLS", 8, "32M"),
    ("dgx-h100", "all_reduce", 1, "NVLS", 4, "20000000"),
    ("dgx-h100", "all_reduce", 2, "NVLSTree", 4, "20000000"),
    ("dgx-h100", "all_gather", 4, "PAT", 1, "10000000"),
    ("dgx-h100", "reduce_scatter", 5, "PAT", 1, "10000000"),
    ("dgx-h100", "alltoall", 2, "auto", 4, "100M"),
    ("dgx-h100", "alltoall", 1, "auto", 8, "500000000"),
    ("dgx-h100", "sendrecv", 2, "auto", 2, "300000000"),
]


def resolved_of(machine, collective, nodes, algorithm, gpus, size, variables=BUFFER):
    flags = {"nodes": nodes, "gpus_per_node": gpus}
    if algorithm != "auto":
        flags |= {"algo": algorithm, "proto": "Simple"}
    source = source_of_question(
        machine, collective, QuestionOptions(**flags, sizes=size, env=variables)
    ).source
    resolved = resolve(checked_cells(source)[0])
    return resolved, resolved.cell.scenario.collective.size_list()[0]


FEWER = budget_with(
    USUAL_BUDGET, max_rows_in_full=0, max_loop_fraction=0.5
)  # loops are left out of short calls, too


def both(call: Form, engine: str = "compiled") -> tuple[Result, Result]:
    """The time in full, and with fewer loops."""
    return tuple(solve_form(call, some, engine) for some in (IN_FULL, FEWER))  # type: ignore[return-value]


def assert_alike(full: Result, short: Result) -> None:
    most = short.uncertainty + full.uncertainty + 1e-9
    assert short.seconds == pytest.approx(full.seconds, rel=most)
    assert short.use.link.tolist() == full.use.link.tolist()
    assert short.use.amount == pytest.approx(full.use.amount, rel=most + 1e-4)
    assert short.use.utilisation == pytest.approx(full.use.utilisation, rel=most + 1e-4)


@pytest.mark.sample(8)
@pytest.mark.slow
@pytest.mark.parametrize("case", NCCL, ids=lambda case: "-".join(map(str, case[:4])))
@pytest.mark.parametrize("single", [False, True])
def test_nccl_with_fewer_loops_takes_as_long_as_in_full(case, single: bool) -> None:
    resolved, size = resolved_of(*case)
    full, short = both(
        form_at(resolved, size).changed(back_to_back=None if single else BackToBack())
    )
    assert_alike(full, short)
    assert short.uncertainty < 1e-2
    if single or short.approximation:  # else loops did not tell how operations overlap
        assert " loops" in short.approximation
        assert len(short.program) < len(full.program) / 1.5


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_both_engines_leave_out_the_same(engine: str) -> None:
    resolved, size = resolved_of("dgx-h100", "all_reduce", 1, "Ring", 2, "3M")
    full, short = both(form_at(resolved, size), engine)
    assert_alike(full, short)
    assert (short.engine, short.approximation) == (engine, "16 of 48 loops")


@pytest.mark.parametrize(
    ("collective", "algorithm", "parameters", "count"),
    [
        ("broadcast", "ring", {"chunks": 200}, 200 * 4096),
        ("broadcast", "ring", {"chunk_bytes": 16384}, 4096 * 164 + 1000),
        ("reduce", "ring", {"chunk_bytes": 16384}, 4096 * 177),
        ("all_reduce", "double-binary-tree", {"chunks": 800}, 1600 * 512),
        ("all_reduce", "double-binary-tree", {"chunks": 800}, 1600 * 512 + 77),
    ],
)
@pytest.mark.parametrize("single", [False, True])
def test_pipelines_with_fewer_pieces_take_as_long_as_in_full(
    collective: str, algorithm: str, parameters, count: int, single: bool
) -> None:
    gpus, groups = np.arange(6, dtype=np.int32), (tuple(range(6)),)
    task = Task(
        Collective(collective, 6, count),
        switch(6, 50e9, 1e-8),
        gpus,
        groups,
        algorithm=algorithm,
        parameters=parameters,
        launch=Launch(kernel=1e-6),
        back_to_back=None if single else BackToBack(),
    )
    call = form_of(task)
    full, short = both(call)
    assert_alike(full, short)
    assert " loops" in short.approximation
    pieces = call.loop_schedule.loops * (2 if algorithm == "double-binary-tree" else 1)
    # Pieces that differ by an element count as equal: by so much the answer may be off.
    assert (short.uncertainty > 1e-6) == (count % pieces != 0)


@pytest.mark.parametrize("case", [NCCL[1], NCCL[4], NCCL[9], NCCL[11], NCCL[14]])
def test_what_is_left_is_what_it_was(case) -> None:
    """Loops go one by one; the last, partial one keeps its size, and rows grow evenly."""
    resolved, size = resolved_of(*case)
    work = form_at(resolved, size).loop_schedule
    rows = [len(work.schedule(work.least + k)) for k in range(4)]
    assert len({b - a for a, b in pairwise(rows)}) == 1
    last = [work.schedule(work.least + k).amount for k in (0, 3)]
    smallest = [amount[amount > 0].min() for amount in last]
    assert smallest[0] == smallest[1]


def test_a_channel_keeps_its_remainder_and_the_collective_its_sum() -> None:
    collective = Collective("all_gather", 4, 100_000)
    work = (Work(0, 0, 60_000, 4096), Work(1, 60_000, 40_000, 4096))
    plan = Plan("Ring", "Simple", (0, 0, 0, 0), work)
    assert loops_of(collective, plan) == [59, 40]
    less, short = without_loops(collective, plan, 30)
    assert loops_of(less, short) == [29, 10]
    assert [one.count for one in short.work] == [60_000 - 30 * 1024, 40_000 - 30 * 1024]
    assert less.count == 100_000 - 60 * 1024
    assert without_loops(collective, plan, 0) == (collective, plan)


def test_small_runs_are_exact() -> None:
    resolved, size = resolved_of("dgx-h100", "all_reduce", 1, "Ring", 2, "3M")
    row, _ = simulate_size(resolved, size, engine="compiled")
    assert (row.approximation, row.approximation_pct) == ("", None)


def test_the_row_says_what_was_left_out() -> None:
    resolved, size = resolved_of("dgx-h100", "all_reduce", 1, "Ring", 2, "3M")
    row, found = simulate_size(within(resolved, FEWER), size, engine="compiled")
    assert row.approximation == "16 of 48 loops"
    assert 0 <= row.approximation_pct < 1e-3
    assert row.rows == len(found.program)


def test_few_loops_are_not_cut_and_few_rows_not_either() -> None:
    resolved, size = resolved_of("dgx-h100", "all_reduce", 1, "Ring", 2, "3M")
    call = form_at(resolved, size)
    assert call.with_representatives is not None
    call = call.with_representatives
    assert isinstance(
        fewer_loops.fewer_loops(MethodInput(call, budget_with(max_loop_fraction=0.3))), Refusal
    )
    assert isinstance(
        all_rows(MethodInput(call, budget_with(max_loop_fraction=0.3, max_rows_in_full=0))), Offer
    )
    assert isinstance(all_rows(MethodInput(call, FEWER)), Refusal)
    assert isinstance(
        all_rows(MethodInput(call, budget_with(FEWER, max_rows_in_full=10**6))), Offer
    )


def test_sends_that_are_too_many_to_fold_are_refused_before_they_are_planned(monkeypatch) -> None:
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 24 * 10**9)
    message = (
        r"about 8\.6e\+09 rows would take 4295 GB of memory, but 24 GB are free .* about 4\d+ ranks"
    )
    with pytest.raises(ScenarioError, match=message):
        resolved_of("dgx-h100", "alltoall", 8192, "auto", 8, "1G", ())


HASHED = {"fabric": "leaf-spine", "transport": "roce"}


def test_sends_that_hashes_keep_apart_are_refused_by_their_loops(monkeypatch) -> None:
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 24 * 10**9)
    message = (
        r"about 4\.9e\+07 rows would take 29 GB of memory.* not folded: paths are chosen by hash"
    )
    with pytest.raises(ScenarioError, match=message):
        asked_for("dgx-h100", "alltoall", 512, "", sizes="64K:8G:2", **HASHED)


@pytest.mark.parametrize("size", ["64K", "4M", "16M", "64M"])
def test_sends_have_no_fewer_rows_than_they_are_refused_for(size: str) -> None:
    resolved = asked_for("dgx-h100", "alltoall", 4, "", sizes=size, **HASHED)
    call = form_of(
        resolved.task(resolved.cell.scenario.collective.size_list()[0]), resolved.budget
    ).loop_schedule
    assert 2 * call.least * (32 * 31) <= len(call.shortest)


# **** Over several nodes ****


SMALL = ("NCCL_BUFFSIZE=65536", "NCCL_MAX_NCHANNELS=2", "NCCL_NVLSTREE_MAX_CHUNKSIZE=16384")
CASES = [
    # machine, fabric, nodes, algorithm, protocol, size
    ("dgx-h100", "rail-optimized", 2, "NVLSTree", "Simple", "64M"),
    ("dgx-h100", "rail-optimized", 3, "NVLSTree", "Simple", "64M"),
    ("dgx-h100", "rail-optimized", 6, "NVLSTree", "Simple", "50000000"),
    ("dgx-h100", "leaf-spine", 8, "NVLSTree", "Simple", "96M"),
    ("dgx-b200", "rail-optimized", 5, "NVLSTree", "Simple", "64M"),
    ("dgx-h100", "rail-optimized", 4, "Tree", "Simple", "8M"),
    ("dgx-a100", "rail-optimized", 7, "Tree", "Simple", "7000004"),
    ("dgx-a100", "single-switch", 3, "Tree", "LL128", "8M"),
    ("dgx-h100", "rail-optimized", 3, "Ring", "Simple", "48M"),
    ("dgx-a100", "single-switch", 2, "Ring", "LL", "20000000"),
]
RESTLESS = CASES[1:5]  # whose loops never take the same time


def over(case: tuple[object, ...], variables: tuple[str, ...] = SMALL) -> tuple[ResolvedCell, int]:
    machine, fabric, nodes, algorithm, protocol, size = case
    flags = {"nodes": nodes, "fabric": fabric, "algo": algorithm, "proto": protocol}
    source = source_of_question(
        machine, "all_reduce", QuestionOptions(**flags, sizes=size, env=variables)
    ).source
    resolved = resolve(checked_cells(source)[0])
    return resolved, resolved.cell.scenario.collective.size_list()[0]


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:4])))
@pytest.mark.parametrize("single", [True, False])
def test_fewer_loops_take_as_long_as_all(case, single: bool) -> None:
    resolved, size = over(case)
    full, short = both(
        form_at(resolved, size).changed(back_to_back=None if single else BackToBack())
    )
    most = short.uncertainty + full.uncertainty + 1e-9
    assert short.seconds == pytest.approx(full.seconds, rel=most)
    assert short.uncertainty < 3e-2
    if single and short.approximation:  # what was seen to go on, goes on
        assert short.seconds == pytest.approx(full.seconds, rel=1e-6)
    assert short.use.amount == pytest.approx(full.use.amount, rel=1e-6)
    assert short.use.utilisation == pytest.approx(
        full.use.utilisation, rel=short.uncertainty + 0.02
    )


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:4])))
def test_what_recurs_within_a_run_is_what_further_loops_add(case) -> None:
    """From the first run that is steady on, whatever its length."""
    resolved, size = over(case)
    work, bench = folded(resolved, size), bench_of(resolved, size, "compiled")
    full, found = bench.standalone(work.schedule(work.loops)).ends, 0
    for loops in range(work.least + 8, work.loops - 4, max(1, work.loops // 16)):
        run = bench.standalone(work.schedule(loops))
        lanes = lanes_of(run.schedule, work.shortest, loops - work.least)
        assert lanes
        seen = find_recurrence(run.program, run.timeline, lanes)
        periods = (work.loops - loops) / seen.loops if seen else 0.5
        if seen and periods.is_integer():
            found += 1
            busy = run.ends > bench.launch.kernel
            added = (full - run.ends)[busy]
            assert added == pytest.approx(periods * seen.seconds, rel=1e-5)
    assert (found > 0) == (case not in RESTLESS)


@pytest.mark.parametrize(("period", "last"), [(1, 16), (2, 15), (3, 14)])
def test_as_many_loops_are_left_out_as_have_whole_periods(
    period: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 101 loops, as few as possible beyond the 16 that are looked into."""
    program = SimpleNamespace(links=None)
    one = SimpleNamespace(ends=np.zeros((1, 1)), busy=np.array([True]), program=program)
    monkeypatch.setattr(fewer_loops, "needed", lambda *_: (0.0, 0))

    def seconds(loops: int) -> float:
        return 10.0 + 2.0 * loops + (loops % period) / 8

    class Linear(dict):
        schedules = SimpleNamespace(loops=101, least=1, rounding=0.0, uncertainty=0.0)
        ends = staticmethod(lambda loops: np.array([seconds(loops)]))
        use_of_all = staticmethod(lambda loops, end: None)
        __missing__ = staticmethod(lambda loops: one)

    found = fewer_loops._from_equal_increments(Linear(), 16)
    assert found.approximation == f"{last} of 101 loops"
    assert found.ends == pytest.approx([seconds(101)])


def test_lanes_are_told_from_two_schedules_of_a_call() -> None:
    resolved, size = over(CASES[1])
    work = folded(resolved, size)
    schedule = work.schedule(12)
    lanes = lanes_of(schedule, work.shortest, 12 - work.least)
    assert lanes
    assert sum(lane.size * lane.loops for lane in lanes) + schedule.ranks == len(schedule)
    for lane in lanes:
        assert np.ptp(lane.by_loop(schedule.dst), axis=0).max() == 0
    assert lanes_of(schedule, schedule, 3) is None
    other = folded(*over(CASES[5]))
    assert lanes_of(schedule, other.shortest, 5) is None


# **** Sizes that share runs ****


GIB = 1 << 30


def chosen(protocol: str = "Simple") -> ResolvedCell:
    flags = {"fabric": "rail-optimized", "proto": protocol}
    one = asked_for("dgx-h100", "all_reduce", 3, "NVLSTree", **flags)
    return within(
        one, budget_with(USUAL_BUDGET, max_rows_in_full=1000)
    )  # so that few loops are tried


@pytest.mark.slow
def test_a_size_is_answered_the_same_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, runs = Bench.standalone, list[int]()

    def counted(bench: Bench, schedule: object) -> object:
        runs.append(len(schedule))  # type: ignore[arg-type]
        return alone(bench, schedule)  # type: ignore[arg-type]

    monkeypatch.setattr(Bench, "standalone", counted)
    fresh = simulate_size(chosen(), 4 * GIB)[0]
    first = len(runs)
    both = chosen()
    simulate_size(both, 2 * GIB)
    runs.clear()
    assert simulate_size(both, 4 * GIB)[0] == fresh
    assert len(runs) < first


def test_what_moves_other_data_is_another_run() -> None:
    one = chosen()
    calls = [folded(one, size) for size in (GIB, 2 * GIB)]
    assert calls[0].key_of is not None
    assert calls[0].key_of(8) == calls[1].key_of(8)
    assert calls[0].key_of(8) != calls[1].key_of(9)
    assert calls[0].key_of(8) != form_at(one, GIB).loop_schedule.key_of(8)
    assert folded(one, GIB + 4096 * 3).key_of(8) != calls[0].key_of(8)


def test_how_operations_overlap_is_told_by_few_loops() -> None:
    resolved, size = resolved_of("dgx-h100", "broadcast", 1, "Ring", 2, "64M")
    found = solve_form(form_at(resolved, size), FEWER, "compiled")
    assert "the overlap of operations from " in found.approximation


@pytest.mark.slow
def test_loops_that_go_on_faster_than_their_links_are_in_no_steady_state() -> None:
    """The first 14 of 512 loops fill FIFOs: what they add is less than the NICs need for it."""
    size = 4 << 30
    source = source_of_question(
        "gh200-x4", "alltoall", QuestionOptions(nodes=16, sizes=str(size))
    ).source
    timing = solve_form(form_at(resolve(checked_cells(source)[0]), size))
    least, _ = needed(timing.use, timing.program.links)
    assert least <= timing.seconds < 1.001 * least
    assert "of 512 loops" in timing.approximation


def test_links_carry_what_is_theirs_though_few_loops_come_to_them_in_another_order() -> None:
    buffer = ("NCCL_BUFFSIZE=262144",)
    one, size = resolved_of("a100-x4", "all_reduce", 5, "Tree", 4, "100000000", buffer)
    bench, work = bench_of(one, size), form_at(one, size).loop_schedule
    runs = LoopRuns(bench, work)
    use, some = runs.use_of_all(work.first, 0.0), runs[work.first].program.links
    every = bench.placed(work.schedule())
    assert some.resources == every.links.resources != bench.placed(work.shortest).links.resources
    assert use.amount == pytest.approx(link_amounts(every)[use.link], rel=1e-6)
