"""What figures of a log tell, and may not say: ranks, collectives, times that do not fit."""

from pathlib import Path

import pytest

from netsim.base.errors import InputError
from netsim.collectives.collective import Collective
from netsim.measured.logs import parse_log, read_log, true_ranks

HEADER = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong"
SUMS = ("all_reduce", "reduce_scatter", "reduce")
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def log(
    collective: str,
    ranks: int,
    rates: tuple[float, ...] = (150.0, 41.3),
    head: str = "",
    longer: float = 1.0,
) -> str:
    """A table as nccl-tests prints it: rates of two decimals, at sizes of a power of two."""
    factor = Collective(collective, ranks, 0).bus_factor
    lines = [f"# Collective test starting: {head}_perf"] if head else []
    lines.append(HEADER)
    for number, rate in enumerate(rates):
        size, redop = 1 << (24 + number), "sum" if collective in SUMS else "none"
        root = 0 if collective in ROOTED else -1
        half = f"{size / rate / 1e3 * longer:.2f} {rate:.2f} {rate * factor:.2f} 0"
        lines.append(f"{size} {size // 4} float {redop} {root} {half} {half}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16, 24, 72])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "alltoall"])
def test_bus_bandwidth_tells_how_many_ranks_there_were(collective: str, ranks: int) -> None:
    (run,) = parse_log(log(collective, ranks, head=collective), "x.log")
    assert run.collective == collective
    low, high = true_ranks(run)
    assert low <= ranks <= high
    if ranks <= 24:
        assert (low, high) == (ranks, ranks)
    # Two digits of a slow rate tell less.
    (slow,) = parse_log(log(collective, ranks, (1.5, 0.9), head=collective), "x.log")
    wide = true_ranks(slow)
    assert wide is None or wide[0] <= low <= high <= wide[1]


@pytest.mark.parametrize("collective", ["broadcast", "reduce", "sendrecv"])
def test_where_both_are_the_same_they_tell_no_ranks(collective: str) -> None:
    (run,) = parse_log(log(collective, 8, head=collective), "x.log")
    assert run.collective == collective
    assert true_ranks(run) is None


@pytest.mark.parametrize(
    ("collective", "ranks", "others"),
    [
        ("all_reduce", 8, ""),
        ("reduce_scatter", 8, ""),
        ("reduce", 8, ""),
        ("broadcast", 8, ""),
        ("all_gather", 8, "all_gather or alltoall"),
        ("alltoall", 8, "all_gather or alltoall"),
        ("gather", 8, "gather or scatter"),
        ("all_reduce", 2, "all_reduce or sendrecv"),
    ],
)
def test_figures_tell_the_collective_where_no_other_has_such(
    tmp_path: Path, collective: str, ranks: int, others: str
) -> None:
    path = tmp_path / "x.log"
    path.write_text(log(collective, ranks))
    if others:
        with pytest.raises(InputError, match=f"what it timed .{others}."):
            read_log(path)
    (run,) = read_log(path, presumed=collective if others else None)
    assert run.collective == collective
    (run,) = read_log(path, collective)
    assert run.collective == collective


@pytest.mark.parametrize(
    ("longer", "fits"), [(1.049, True), (1.051, False), (0.951, True), (0.949, False)]
)
def test_times_fit_their_bandwidth_to_a_twentieth(longer: float, fits: bool) -> None:
    (run,) = parse_log(log("all_reduce", 8, head="all_reduce", longer=longer), "x.log")
    assert len(run.rows) == 2 * fits
    assert len(run.problems) == 2 * (not fits)
    assert fits or "do not fit 16777216 B" in run.problems[0]


def test_rates_of_few_digits_are_not_held_against_times() -> None:
    (run,) = parse_log(log("all_reduce", 8, (1.0, 0.9), "all_reduce", longer=2.0), "x.log")
    assert len(run.rows) == 2


@pytest.mark.parametrize("time", ["-1.5", "0.00", "nan", "inf", "1e999", "12,5"])
def test_impossible_times_are_named_with_their_line(time: str) -> None:
    good = log("all_reduce", 8, head="all_reduce")
    row = good.splitlines()[-1].split()
    row[5] = time
    (run,) = parse_log(good + " ".join(row) + "\n", "x.log")
    assert len(run.rows) == 2
    assert len(run.problems) == 1 or "a second time" in " ".join(run.notes)
