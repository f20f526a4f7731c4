"""The sentences at the head of a report, against tables whose answer is plain."""

import pandas as pd
import pytest

from netsim.report.words import bound_sentence, headline, longer, trust

KIB, MIB = 2**10, 2**20


def table(**times: dict[int, float]) -> pd.DataFrame:
    """Rows of cells named by their variant: µs by size."""
    return pd.DataFrame(
        [
            {"cell": name, "axis:fabric": name, "size_bytes": size, "time_us": time,
             "bound_by": "NIC egress 93 %", "status": "ok"}
            for name, by_size in times.items() for size, time in by_size.items()
        ]
    )  # fmt: skip


def answer(good: pd.DataFrame, bases: tuple[str, ...] = ()) -> str:
    largest = good[good["size_bytes"] == good["size_bytes"].max()]
    rows = largest.assign(time=largest["time_us"]).sort_values("time").to_dict("records")
    return headline(rows, good, ["fabric"], bases, "1 MiB")


def test_few_cells_are_compared_one_by_one() -> None:
    good = table(rails={MIB: 100.0}, tree={MIB: 127.0}, torus={MIB: 350.0})
    assert answer(good) == (
        "Rails is fastest at 1 MiB: 100 µs; tree takes 27% longer, torus takes 3.5 times as long. "
        "It is bound by NIC egress, which is used to 93 %."
    )


def test_many_cells_are_compared_with_the_slowest_or_the_base() -> None:
    good = table(**{f"n{k}": {MIB: 10.0 + k} for k in range(9)})
    assert "; the slowest (n8) takes 80% longer." in answer(good)
    assert "; the base line (n3) takes 30% longer." in answer(good, bases=("n3",))


def test_where_another_cell_wins_at_other_sizes() -> None:
    good = table(
        ring={KIB: 30.0, 64 * KIB: 40.0, MIB: 100.0}, tree={KIB: 10.0, 64 * KIB: 20.0, MIB: 200.0}
    )
    assert "At other sizes another is faster: tree from 1 KiB to 64 KiB." in answer(good)
    flips = {KIB: 1.0, 2 * KIB: 3.0, 4 * KIB: 1.0, 8 * KIB: 3.0, MIB: 1.0}
    other = dict.fromkeys(flips, 2.0)
    text = answer(table(a=flips, b=other))
    assert "Which is fastest changes 4 times between 1 KiB and 1 MiB." in text


@pytest.mark.parametrize(
    ("small", "said"),
    [
        (10.1, "Up to 1 KiB all are within 2% of each other."),
        (15.0, "No other is faster at any size from 1 KiB to 1 MiB."),
    ],
)
def test_where_the_winner_always_wins(small: float, said: str) -> None:
    assert said in answer(table(a={KIB: 10.0, MIB: 20.0}, b={KIB: small, MIB: 40.0}))


def test_equals_are_called_equal() -> None:
    text = answer(table(a={KIB: 10.0, MIB: 20.0}, b={KIB: 9.99, MIB: 20.02}))
    assert "b takes as long" in text
    assert "All are within 2% of each other at every size from 1 KiB to 1 MiB." in text


def test_what_bounds_a_cell_in_words() -> None:
    assert bound_sentence("latency 52 %") == "It is bound by latency, 52 % of its time."
    assert bound_sentence("nothing") == "It is bound by nothing."
    assert bound_sentence("") == ""
    assert longer(199.0, 100.0) == "99% longer"
    assert longer(201.0, 100.0) == "2.01 times as long"


def test_trust_says_what_the_column_validated_means() -> None:
    good = pd.DataFrame(
        {
            "validated": ["9% (2 runs)", "9% (2 runs)", "not validated (all_reduce: 8%)",
                          "not validated", ""],
            "approximation": ["steady state of 14 of 64 loops", "steady state of 14 of 128 loops",
                              "", "", ""],
            "approximation_pct": [0.001, 0.02, None, None, None],
            "measured_time_us": [10.0, None, None, None, None],
            "error_pct": [-4.0, None, None, None, None],
        }
    )  # fmt: skip
    lines = trust(good)
    assert lines[0].startswith("2 rows: of this machine, network, collective and size range, 2 run")
    assert lines[0].endswith("with a median error of 9 %.")
    assert "1 row: not validated; all-reduce on the same machine" in " ".join(lines)
    assert "1 row: not validated: no measured run of such a machine" in " ".join(lines)
    assert any("textbook" in line for line in lines)
    assert "1 row with a measured time beside: median error 4.0 %, largest 4.0 %." in lines
    assert lines[-1] == ("2 rows approximated (steady state of fewer loops), at most 0.02 % off.")
