"""The sentences at the head of a report, against tables whose answer is plain."""

import re

import pandas as pd
import pytest

from netsim.report.words import longer, summary_of, trust
from netsim.results.differences import thresholds
from netsim.results.row import ratio_span

KIB, MIB = 2**10, 2**20


def table(**times: dict[int, float]) -> pd.DataFrame:
    """Rows of cells named by their variant: µs by size."""
    return pd.DataFrame(
        [
            {
                "cell": name,
                "axis:fabric": name,
                "size_asked": size,
                "time_us": time,
                "collective": "all_reduce",
                "topology": "box",
                "bound_by": "NIC egress 93 %",
                "validated": "",
                "status": "ok",
                "error": "",
            }
            for name, by_size in times.items()
            for size, time in by_size.items()
        ]
    )


def answer(good: pd.DataFrame, **manifest: object) -> str:
    return summary_of(good, good, manifest).headline


@pytest.mark.slow
def test_few_cells_are_compared_one_by_one() -> None:
    good = table(rails={MIB: 100.0}, tree={MIB: 127.0}, torus={MIB: 350.0})
    assert answer(good) == (
        "Rails is fastest at 1 MiB: 100 µs; tree takes 27% longer, torus takes 3.5 times as long. "
        "It is bound by NIC egress, which is used to 93 %."
    )


@pytest.mark.slow
def test_many_cells_are_compared_with_the_slowest_or_the_base() -> None:
    good = table(**{f"n{k}": {MIB: 10.0 + k} for k in range(9)})
    assert "; the slowest (n8) takes 80% longer." in answer(good)
    assert "; the base line (n3) takes 30% longer." in answer(good, base={"fabric": "n3"})


@pytest.mark.slow
def test_where_another_cell_wins_at_other_sizes() -> None:
    good = table(
        ring={KIB: 30.0, 64 * KIB: 40.0, MIB: 100.0}, tree={KIB: 10.0, 64 * KIB: 20.0, MIB: 200.0}
    )
    assert "At other sizes another is faster: tree from 1 KiB to 64 KiB." in answer(good)
    flips = {KIB: 1.0, 2 * KIB: 3.0, 4 * KIB: 1.0, 8 * KIB: 3.0, MIB: 1.0}
    other = dict.fromkeys(flips, 2.0)
    text = answer(table(a=flips, b=other))
    assert "Which is fastest changes 4 times between 1 KiB and 1 MiB." in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("small", "said"),
    [
        (10.04, "Up to 1 KiB all are equal within the uncertainty."),
        (15.0, "No other is faster at any size from 1 KiB to 1 MiB."),
    ],
)
def test_where_the_winner_always_wins(small: float, said: str) -> None:
    assert said in answer(table(a={KIB: 10.0, MIB: 20.0}, b={KIB: small, MIB: 40.0}))


@pytest.mark.slow
def test_equals_are_called_equal() -> None:
    text = answer(table(a={KIB: 10.0, MIB: 20.0}, b={KIB: 9.99, MIB: 20.02}))
    assert "b takes as long" in text
    assert "All are equal at every size from 1 KiB to 1 MiB within the uncertainty." in text


@pytest.mark.slow
def test_a_difference_between_the_thresholds_is_called_likely() -> None:
    limits = thresholds()["same collective"]
    between = 100.0 * (limits.likely * limits.sure) ** 0.5
    good = table(a={MIB: 100.0}, b={MIB: between}, c={MIB: 200.0})
    spans = {"time_low_us": good["time_us"] * 0.9, "time_high_us": good["time_us"] * 1.1}
    text = answer(good.assign(**spans, size_bytes=MIB))
    assert re.search(r"b takes \d+% longer \(likely\), c takes 2 times as long\.", text)


@pytest.mark.slow
def test_what_intervals_cannot_tell_apart_is_called_equal() -> None:
    good = table(a={MIB: 100.0}, b={MIB: 103.0}, c={MIB: 200.0})
    spans = {"time_low_us": good["time_us"] * 0.9, "time_high_us": good["time_us"] * 1.1}
    text = answer(good.assign(**spans, size_bytes=MIB))
    assert "b takes 3% longer (equal within the uncertainty), c takes 2 times as long." in text
    low, high = ratio_span(("all_reduce",) * 2, MIB, ((0.9, 1.1), (0.9, 1.1)), same=True)
    assert f"80 % are measured at {low:.2f} to {high:.2f} times the simulated one" in text
    assert "equal, as" not in answer(good)


@pytest.mark.slow
def test_what_may_be_off_by_much_is_not_called_the_best() -> None:
    good = table(ring={MIB: 100.0}, tree={MIB: 127.0}, torus={MIB: 350.0})
    unsure = good.assign(approximation_pct=["6.1", "4.9", ""])
    found = summary_of(unsure, unsure, {})
    assert found.headline.startswith("Tree is fastest at 1 MiB: 127 µs; torus takes 2.76 times")
    line = "1 row has an error bound above 5 % (approximation_pct) and is not compared."
    assert found.left_out == [line]
    assert answer(good.head(1).assign(approximation_pct=6.1)).startswith(
        "All-reduce takes ~100 µs at 1 MiB."
    )
    assert summary_of(good, good, {}).left_out == []


@pytest.mark.slow
def test_what_bounds_a_cell_in_words() -> None:
    one = table(a={MIB: 10.0}, b={MIB: 20.0})
    assert answer(one.assign(bound_by="latency 52 %")).endswith(
        "It is bound by latency, 52 % of its time."
    )
    assert answer(one.assign(bound_by="nothing")).endswith("It is bound by nothing.")
    assert "bound" not in answer(one.assign(bound_by=""))
    assert longer(1.99) == "99% longer"
    assert longer(2.01) == "2.01 times as long"
    assert longer(0.9) == "10% less"


def conditions(**times: dict[str, float]) -> pd.DataFrame:
    """Rows of fabrics at 1 MiB: µs by collective."""
    parts = [
        table(**{name: {MIB: time}}).assign(
            **{
                "axis:workload.collective": collective,
                "cell": f"{name} {collective}",
                "collective": collective,
            }
        )
        for name, by_collective in times.items()
        for collective, time in by_collective.items()
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.slow
def test_choices_are_compared_under_equal_conditions_only() -> None:
    good = conditions(
        rails={"all_reduce": 100.0, "alltoall": 900.0}, torus={"all_reduce": 200.0, "alltoall": 950}
    )
    found = summary_of(good, good, {})
    assert found.headline == (
        "Rails is the fastest at 1 MiB under both conditions. "
        "Against the fastest under equal conditions, rails takes as long; torus takes 45% longer "
        "on average (6% longer for alltoall to 2 times as long for all_reduce) (geometric means). "
        "The fastest are bound by NIC egress under both conditions."
    )
    assert [(name, rows[0]["choice"]) for name, rows in found.answers] == [
        ("all_reduce", "rails"),
        ("alltoall", "rails"),
    ]
    mixed = conditions(
        rails={"all_reduce": 100.0, "alltoall": 900.0}, torus={"all_reduce": 200.0, "alltoall": 800}
    )
    text = answer(mixed)
    assert "No choice is fastest at 1 MiB under both conditions:" in text
    assert "rails is, or equals the fastest, under 1, torus under 1." in text


@pytest.mark.slow
def test_what_each_choice_costs_against_the_base_line() -> None:
    good = conditions(
        rails={"all_reduce": 100.0, "alltoall": 900.0}, torus={"all_reduce": 200.0, "alltoall": 450}
    )
    text = answer(good, base={"fabric": "rails"})
    assert (
        "Against the base line (rails), torus takes as long on average "
        "(50% less for alltoall to 2 times as long for all_reduce)." in text
    )


@pytest.mark.slow
def test_where_only_the_question_differs_nothing_is_chosen() -> None:
    text = answer(conditions(rails={"all_reduce": 100.0, "alltoall": 900.0}))
    assert text.startswith("All-reduce takes 100 µs for all_reduce, 900 µs for alltoall at 1 MiB.")
    assert "There is nothing to choose between" in text


@pytest.mark.slow
def test_what_is_left_out_is_said() -> None:
    good = table(a={KIB: 1.0, MIB: 2.0}, b={KIB: 2.0, MIB: 3.0}, d={2 * KIB: 1.0})
    points = [{"cell": name, "sizes": [KIB, MIB]} for name in "abd"]
    points.append({"cell": "c", "error": "no such nic"})
    found = summary_of(good, good, {"points": points})
    assert found.left_out == [
        "1 of 6 rows is missing: the run did not finish; netsim run with --resume continues it.",
        "1 of 4 cells cannot be built: no such nic",
        "1 cell lacks the size at which others are compared: d.",
    ]
    part = summary_of(good, good, {"points": points, "shard": [2, 4]}).left_out[0]
    assert part.endswith("this is part 2 of 4, netsim merge puts parts together.")


def test_trust_says_what_the_column_validated_means() -> None:
    good = pd.DataFrame(
        {
            "validated": [
                "9% (2 runs)",
                "9% (2 runs)",
                "not validated (all_reduce: 8%)",
                "not validated",
                "",
            ],
            "approximation": [
                "14 of 64 loops",
                "14 of 128 loops",
                "",
                "",
                "",
            ],
            "approximation_pct": [0.001, 0.02, None, None, None],
            "measured_time_us": [10.0, None, None, None, None],
            "error_pct": [-4.0, None, None, None, None],
        }
    )
    lines = trust(good)
    assert lines[0].startswith("2 rows: of this machine, network, collective and size range, 2 run")
    assert lines[0].endswith("with a median error of 9 %.")
    assert "1 row: not validated; all-reduce on the same machine" in " ".join(lines)
    assert "1 row: not validated: no measured run of such a machine" in " ".join(lines)
    assert any("textbook" in line for line in lines)
    assert "1 row with a measured time: median error 4.0 %, largest 4.0 %." in lines
    assert lines[-1] == ("2 rows approximate (fewer loops), within 0.02 %.")
