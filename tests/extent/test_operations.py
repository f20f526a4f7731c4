"""Operations back to back: how many are simulated, and what they tell of all."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.collectives.collective import Collective
from netsim.engines.engine import ends_of_operations
from netsim.extent import engine_runs
from netsim.extent.back_to_back import period_of
from netsim.extent.budget import USUAL_BUDGET
from netsim.extent.engine_runs import BackToBackRun, Bench
from netsim.extent.forms import Form, form_of
from netsim.extent.operations import TOO_MANY_ROWS
from netsim.extent.solve import solve_form
from netsim.metrics.links import needed
from netsim.program.program import Operations, operations
from netsim.scenario.cells import expand
from netsim.schedule.repeat import Launch
from netsim.tasks.answer import checked_cells
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.topology.routing import switch
from netsim.workloads.task import Task
from netsim.yamlio.read import parse_source
from tests.extent.cells import bench_of, budget_with, folded, simulate_size, timed

MIB = 1 << 20
TIMED = 20


def row_of(one: ResolvedCell, size: int, **launch: float) -> BackToBackRun:
    """Operations of a cell, one after the other."""
    here = bench_of(one, size, "compiled")
    here = replace(here, launch=replace(here.launch, **{"host": 0.0, **launch}))
    return BackToBackRun(here.standalone(folded(one, size).schedule()), here.launch, "compiled")


def in_a_row(row: BackToBackRun, times: int = 12) -> np.ndarray:
    """When operations end, by busy rank, all of them simulated together."""
    many = operations(row.standalone.program, times, row.launch)
    return ends_of_operations(many, row.engine)[:, row.standalone.busy]


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many operations in a row were simulated, run by run; -1: one by itself."""
    runs: list[int] = []

    def noted(many: Operations, *how: object) -> np.ndarray:
        runs.append(len(many.launched))
        return ends_of_operations(many, *how)

    goes_on = BackToBackRun._is_steady

    def asked_for(row: BackToBackRun, ends: list[np.ndarray]) -> bool:
        found = goes_on(row, ends)
        runs.extend([-1] * (not found))
        return found

    monkeypatch.setattr(BackToBackRun, "_is_steady", asked_for)
    monkeypatch.setattr(engine_runs, "ends_of_operations", noted)
    return runs


def cell(nodes: int, size: str, collective: str = "all_reduce", **flags: object) -> ResolvedCell:
    given = QuestionOptions(nodes, fabric="rail-optimized", sizes=size, **flags)
    return resolve(checked_cells(source_of_question("dgx-h100", collective, given).source)[0])


def size_of(one: ResolvedCell) -> int:
    return one.cell.scenario.collective.size_list()[0]


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "size"), [(64, "256K"), (64, "1M"), (128, "64K"), (128, "1M")])
def test_trees_need_but_a_second_operation(simulated: list[int], nodes: int, size: str) -> None:
    one = cell(nodes, size, algo="Tree")
    found = timed(one, size_of(one))
    assert simulated == [-1]
    ends = in_a_row(row_of(one, size_of(one), host=one.launch(size_of(one)).host), TIMED)
    assert found.seconds == pytest.approx(ends[-1].mean() / TIMED, rel=1e-9)
    assert (found.approximation, found.uncertainty) == ("", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [3, 6])
def test_operations_that_overlap_are_simulated_in_a_row(simulated: list[int], nodes: int) -> None:
    one = cell(nodes, "64M", algo="NVLSTree")
    found = timed(one, size_of(one))
    assert simulated[0] == 3
    ends = in_a_row(row_of(one, size_of(one), host=one.launch(size_of(one)).host), TIMED)
    assert found.approximation == ""
    assert found.seconds == pytest.approx(ends[-1].mean() / TIMED, rel=1e-6)


NO_OTHER = frozenset({"busy_link", "recurring_operations"})


def test_more_are_run_only_while_those_leave_a_doubt(simulated: list[int]) -> None:
    """Twice as many, and twice as many again, then all; four first where that saves rows."""
    one, many = (
        cell(3, "64M", algo="NVLSTree"),
        budget_with(
            USUAL_BUDGET, max_rows_of_few_operations=1, min_rows_for_pace=1, excluded=NO_OTHER
        ),
    )
    for restless, first in (
        (USUAL_BUDGET.thresholds.max_rows_of_several_operations, [3, 4, 6]),
        (1, [3, 6]),
    ):
        simulated.clear()
        found = timed(
            one,
            size_of(one),
            budget_with(
                many,
                max_idle_fraction=0.0,
                max_error_of_large_runs=0.0,
                max_rows_of_several_operations=restless,
            ),
        )
        assert (simulated, found.uncertainty) == ([*first, 12, TIMED], 0.0)
    few = budget_with(
        many,
        operation_counts=(3,),
        max_rows_of_few_operations=7 * len(found.program),
        min_rows_for_pace=7 * len(found.program),
        max_idle_fraction=0.0,
        max_error_of_large_runs=0.0,
        agreement=1.0,
    )
    for less in (budget_with(many, max_idle_fraction=1.0, max_error_of_large_runs=1.0), few):
        simulated.clear()
        sure = timed(one, size_of(one), less)
        assert simulated == [3]
        assert sure.seconds == pytest.approx(found.seconds, rel=sure.uncertainty)


def test_each_that_does_not_overlap_is_simulated_alone() -> None:
    """Even if it takes longer on some ranks: what they show is the same as together."""
    one = cell(7, "256K", algo="Tree")
    row = row_of(one, size_of(one), kernel=20e-6)
    ends, apart = row.ends(8)
    assert apart
    assert ends == pytest.approx(in_a_row(row, 8), rel=1e-9)


def one_after_the_other(launch: Launch) -> Form:
    collective = Collective("broadcast", 6, 250_000, 4)
    where = switch(6, 50e9, 1e-6), np.arange(6, dtype=np.int32), (tuple(range(6)),)
    return form_of(Task(collective, *where, algorithm="binomial", launch=launch))


@pytest.mark.parametrize("kernel", [0.0, 10e-6, 39e-6, 41e-6, 90e-6])
def test_a_second_operation_tells_only_if_it_begins_after_the_first(
    simulated: list[int], kernel: float
) -> None:
    """The first rank of a broadcast is over 41 µs before the last one."""
    call = one_after_the_other(Launch(kernel=kernel))
    alone = Bench(call.topology, call.task.gpus, call.task.launch).standalone(
        call.loop_schedule.schedule()
    )
    spread = float(np.ptp(alone.first))
    found = solve_form(call)
    assert (simulated[0] == -1) == (kernel >= spread)
    ends = in_a_row(BackToBackRun(alone, call.task.launch), TIMED)
    assert found.seconds == pytest.approx(ends[-1].mean() / TIMED, rel=1e-6)


def call_alone(call: Form) -> np.ndarray:
    """When ranks are done with one operation from standstill."""
    where = Bench(call.topology, call.task.gpus, call.task.launch)
    return where.standalone(call.loop_schedule.schedule()).first


def test_the_host_holds_back_what_is_shorter() -> None:
    call = one_after_the_other(Launch(host=500e-6, kernel=90e-6))
    first = float(call_alone(call).mean())
    assert solve_form(call).seconds == pytest.approx(500e-6 + first / TIMED)
    call = one_after_the_other(Launch(host=90e-6, kernel=90e-6, gpus_per_process=6))
    # One process: the launch of the last operation on its last GPU, and until all are done.
    assert 540e-6 < solve_form(call).seconds <= 540e-6 + float(call_alone(call).max()) / TIMED


def test_a_period_of_several_operations_is_one() -> None:
    """As broadcasts over 16 nodes that in turn find the chain full and empty."""
    took = np.tile([373e-6, 125e-6], 10)
    ends = np.cumsum(took)[:, None] + np.array([0.0, 90e-6])
    assert period_of(ends) == (2, pytest.approx(249e-6))
    assert period_of(ends[:4]) is None
    assert period_of(ends * np.array([1.0, 1.001])) is None  # one rank falls behind


def test_sends_take_what_the_nic_needs_where_ranks_run_ahead_of_it() -> None:
    """Those that stay in a host are done first, up to as many operations as there are between."""
    one = cell(2, "512M", "sendrecv")
    row = simulate_size(one, size_of(one))[0]
    assert row.busbw_GBps < 50
    assert row.busbw_GBps > 41
    assert (row.approximation, row.approximation_pct) == ("", None)


RESTLESS = [("broadcast", 3, "128M"), ("all_reduce", 8, "256M")]


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "nodes", "size"), RESTLESS)
def test_operations_that_do_not_repeat_are_all_run_or_said_to_be_some(
    collective: str, nodes: int, size: str
) -> None:
    one = cell(nodes, size, collective)
    found = timed(one, size_of(one))
    row = row_of(one, size_of(one), host=one.launch(size_of(one)).host)
    ends = in_a_row(row, TIMED)
    assert period_of(ends) is None
    assert (found.approximation, found.uncertainty) == ("", 0.0)
    assert found.seconds == pytest.approx(ends[-1].mean() / TIMED, rel=1e-6)
    few = 6 * len(found.program)
    fewer = timed(
        one,
        size_of(one),
        budget_with(
            USUAL_BUDGET,
            max_rows_of_few_operations=1,
            min_rows_for_pace=1,
            max_rows_of_several_operations=few,
            max_rows_of_all_operations=few,
        ),
    )
    assert fewer.approximation in ("3 of 20 operations", "4 of 20 operations")
    assert fewer.uncertainty > 0
    assert fewer.seconds == pytest.approx(found.seconds, rel=fewer.uncertainty)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collective", "nodes", "size"), [*RESTLESS, ("broadcast", 4, "128M"), ("broadcast", 8, "1M")]
)
def test_many_take_hardly_longer_than_one_alone_and_no_less_than_the_wire(
    collective: str, nodes: int, size: str
) -> None:
    one = cell(nodes, size, collective)
    found = timed(
        one,
        size_of(one),
        budget_with(USUAL_BUDGET, max_rows_of_fewest_operations=1, max_rows_of_loop_run=1),
    )
    assert found.approximation == f"1 of 20 operations ({TOO_MANY_ROWS})"
    least, _ = needed(found.use, found.program.links)
    assert found.slowest * (1 - found.uncertainty) == pytest.approx(least, rel=0.02)
    told = timed(one, size_of(one)).seconds / found.seconds
    assert 1 - found.uncertainty <= told <= 1 + (1.1e-3 if size == "1M" else 1e-3)


def chain(**thresholds: float) -> tuple[float, float]:
    """The seconds of a reduction along a chain of 64 GPUs, and the error that is stated."""
    text = (
        "cluster: {machine: dgx-h100, nodes: 8, placement: random, "
        "fabric: {kind: leaf-spine, nodes_per_leaf: 2}}\n"
        "workload: {collective: reduce, sizes: [1MiB]}\n"
    )
    one = resolve(expand(parse_source(text, "x.yaml"))[0])
    result = timed(one, MIB, one.budget.with_thresholds(**thresholds))
    return result.seconds, result.uncertainty


def test_more_operations_are_simulated_where_some_would_tell_little() -> None:
    few_rows = {"max_rows_of_few_operations": 1.0, "max_rows_of_all_operations": 1.0}
    few, error_of_few = chain(**few_rows, max_rows_of_doubtful_operations=1.0)
    more, error_of_more = chain(**few_rows, max_rows_of_doubtful_operations=1e9)
    full, error_of_full = chain(
        max_rows_of_all_operations=1e9,
        max_rows_of_few_operations=1.0,
        max_error_of_large_runs=0.0,
    )
    assert error_of_full == 0.0
    assert error_of_more < USUAL_BUDGET.thresholds.doubtful_error < error_of_few
    assert abs(more - full) <= min(error_of_more * full, abs(few - full))
