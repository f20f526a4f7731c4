"""Calls of very many loops: with most of them left out they take as long as in full."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from netsim.base.errors import ScenarioError
from netsim.cell.answer import checked_cells
from netsim.cell.prepare import prepare
from netsim.cell.simulate import bench_of, simulate_size
from netsim.cli.questions import Given, asked
from netsim.collectives.collective import Collective
from netsim.nccl.schedules.plan import Plan, Work
from netsim.nccl.schedules.smaller import loops_of, shorter
from netsim.schedule.repeat import Launch
from netsim.timing import bench as timing
from netsim.timing.bench import Bench, Timing
from netsim.timing.loops import looped_build
from netsim.topology.routing import switch

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


def prepared_of(machine, collective, nodes, algorithm, gpus, size, variables=BUFFER):
    flags = {"nodes": nodes, "gpus_per_node": gpus}
    if algorithm != "auto":
        flags |= {"algo": algorithm, "proto": "Simple"}
    source = asked(machine, collective, Given(**flags, sizes=size, env=variables)).source
    prepared = prepare(checked_cells(source)[0])
    return prepared, prepared.cell.scenario.collective.size_list()[0]


def both(monkeypatch, bench: Bench, work) -> tuple[Timing, Timing]:
    """The time in full, and with a budget that is too small for it."""
    full = bench.time(work.schedule(work.loops))
    monkeypatch.setattr(timing, "BUDGET_ROWS", work.rows(work.loops) // 2)
    return full, bench.time_looped(work)


def assert_alike(full: Timing, short: Timing) -> None:
    most = short.uncertainty + full.uncertainty + 1e-9
    assert short.seconds == pytest.approx(full.seconds, rel=most)
    assert short.use.link.tolist() == full.use.link.tolist()
    assert short.use.amount == pytest.approx(full.use.amount, rel=most + 1e-4)
    assert short.use.utilisation == pytest.approx(full.use.utilisation, rel=most + 1e-4)


@pytest.mark.parametrize("case", NCCL, ids=lambda case: "-".join(map(str, case[:4])))
def test_nccl_with_fewer_loops_takes_as_long_as_in_full(monkeypatch, case) -> None:
    prepared, size = prepared_of(*case)
    work = prepared.looped(size)
    assert work.worth_shortening
    back_to_back = bench_of(prepared, size, engine="compiled")
    for bench in (back_to_back, replace(back_to_back, single=True)):
        full, short = both(monkeypatch, bench, work)
        assert_alike(full, short)
        assert short.approximation.startswith("steady state of ")
        assert len(short.program) < len(full.program) / 3
        assert short.uncertainty < 1e-2


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_both_engines_leave_out_the_same(monkeypatch, engine: str) -> None:
    prepared, size = prepared_of("dgx-h100", "all_reduce", 1, "Ring", 2, "3M")
    full, short = both(monkeypatch, bench_of(prepared, size, engine), prepared.looped(size))
    assert_alike(full, short)
    assert (short.engine, short.approximation) == (engine, "steady state of 16 of 48 loops")


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
    monkeypatch, collective: str, algorithm: str, parameters, count: int, single: bool
) -> None:
    work = looped_build(
        Collective(collective, 6, count), algorithm, parameters, lambda made: made[0]
    )
    gpus = np.arange(6, dtype=np.int32)
    bench = Bench(switch(6, 50e9, 1e-8), gpus, Launch(kernel=1e-6), single, "compiled")
    full, short = both(monkeypatch, bench, work)
    assert_alike(full, short)
    assert "steady state" in short.approximation
    pieces = work.loops * (2 if algorithm == "double-binary-tree" else 1)
    # Pieces that differ by an element count as equal: by so much the answer may be off.
    assert (short.uncertainty > 1e-6) == (count % pieces != 0)


@pytest.mark.parametrize("case", [NCCL[1], NCCL[4], NCCL[9], NCCL[11], NCCL[14]])
def test_what_is_left_is_what_it_was(case) -> None:
    """Loops go one by one; the last, partial one keeps its size, and rows grow evenly."""
    prepared, size = prepared_of(*case)
    work = prepared.looped(size)
    rows = [len(work.schedule(work.least + k)) for k in range(4)]
    assert len({b - a for a, b in pairwise(rows)}) == 1
    last = [work.schedule(work.least + k).amount for k in (0, 3)]
    smallest = [amount[amount > 0].min() for amount in last]
    assert smallest[0] == smallest[1]


def test_a_channel_keeps_its_remainder_and_the_collective_its_sum() -> None:
    collective = Collective("all_gather", 4, 100_000)
    work = (Work(0, 0, 60_000, 4096), Work(1, 60_000, 40_000, 4096))
    plan = Plan("Ring", "Simple", (0, 0, 0, 0), work)
    assert loops_of(collective, plan) == (59, 40)
    less, short = shorter(collective, plan, 30)
    assert loops_of(less, short) == (29, 10)
    assert [one.count for one in short.work] == [60_000 - 30 * 1024, 40_000 - 30 * 1024]
    assert less.count == 100_000 - 60 * 1024
    assert shorter(collective, plan, 0) == (collective, plan)


def test_small_runs_are_exact() -> None:
    prepared, size = prepared_of("dgx-h100", "all_reduce", 1, "Ring", 2, "3M")
    row, _ = simulate_size(prepared, size, engine="compiled")
    assert (row.approximation, row.approximation_pct) == ("", None)


def test_the_row_says_what_was_left_out(monkeypatch) -> None:
    monkeypatch.setattr(timing, "BUDGET_ROWS", 100)
    prepared, size = prepared_of("dgx-h100", "all_reduce", 1, "Ring", 2, "3M")
    row, found = simulate_size(prepared, size, engine="compiled")
    assert row.approximation == "steady state of 16 of 48 loops"
    assert 0 <= row.approximation_pct < 1e-3
    assert row.rows == len(found.program)


def test_chunks_grow_where_nothing_else_fits(monkeypatch) -> None:
    prepared, size = prepared_of("dgx-h100", "all_reduce", 1, "Ring", 4, "3M")
    work = prepared.looped(size)
    bench = bench_of(prepared, size, "compiled")
    full = bench.time(work.schedule(work.loops))
    monkeypatch.setattr("netsim.timing.steady.extrapolate", lambda *given: None)
    for name in ("BUDGET_ROWS", "MOST_ROWS"):
        monkeypatch.setattr(timing, name, int(work.rows(work.loops) * 0.6))
    monkeypatch.setattr("netsim.timing.loops.WORTH", 1)
    coarse = bench.time_looped(work)
    assert coarse.approximation == "chunks 2 times as large"
    assert len(coarse.program) < 0.6 * len(full.program)
    assert coarse.uncertainty > 0


def test_sends_that_are_too_many_to_fold_are_refused_before_they_are_planned(monkeypatch) -> None:
    monkeypatch.setattr("netsim.timing.fits.available_memory", lambda: 24 * 10**9)
    message = (
        r"about 8\.6e\+09 rows would take 4295 GB of memory, but 24 GB are free .* about 4\d+ ranks"
    )
    with pytest.raises(ScenarioError, match=message):
        prepared_of("dgx-h100", "alltoall", 8192, "auto", 8, "1G", ())
