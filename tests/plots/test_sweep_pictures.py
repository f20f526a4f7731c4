"""Pictures of sweeps and explanations: what is marked, and that no name covers another."""

from itertools import combinations
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from netsim.plots.explanation import scaled, scaling_figure, tornado_figure
from netsim.plots.results import pareto_figure, pareto_front

FIGURES = st.floats(1, 1000)


@given(st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=30))
def test_a_front_is_what_nothing_beats(cells: list[tuple[float, float]]) -> None:
    cost, time = zip(*cells, strict=True)
    front = pareto_front(cost, time)
    for place in range(len(cells)):
        no_dearer = [other for other in front if cost[other] <= cost[place]]
        assert min(time[other] for other in no_dearer) <= time[place] / (1 - 1e-3)
    for one, other in combinations(front, 2):
        assert cost[one] <= cost[other]
        assert time[other] < time[one] * (1 - 1e-3)


def test_a_dearer_cell_that_only_rounding_tells_apart_is_not_on_the_front() -> None:
    assert pareto_front([1, 2, 3], [100.0, 99.99, 99.0]) == [0, 2]


def no_text_covers_another(figure: Figure) -> bool:
    figure.draw_without_rendering()
    (panel,) = figure.axes
    boxes = [text.get_window_extent() for text in panel.texts if text.get_text()]
    assert len(boxes) > 1
    return not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_the_cells_of_a_front_are_numbered_and_listed() -> None:
    times = [900.0, 850, 840, 500, 490]
    table = pd.DataFrame({
        "cell": list("abcde"), "size_bytes": [1] * 5, "time_us": times,
        "cost": [1.0e6, 1.05e6, 1.08e6, 1.1e6, 1.15e6],
        "axis:cluster.nic": ["100Gbps", "200Gbps", "400Gbps", "800Gbps", "1600Gbps"],
    })  # fmt: skip
    figure = pareto_figure(table, "cost", "cost (USD)")
    assert figure is not None
    assert no_text_covers_another(figure)
    assert [text.get_text() for text in figure.axes[0].texts] == list("12345")
    (legend,) = figure.legends
    assert legend.get_texts()[4].get_text() == "5  nic 1600Gbps"


def parameter(label: str, worse: float, better: float) -> dict[str, Any]:
    """One of an explanation, of a time of 100 µs."""
    return {
        "label": label, "value": 1.0, "unit": "GB/s", "on_path_us": 1.0, "per_percent_us": -1.0,
        "worse_10pct_us": worse, "better_10pct_us": better,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("worse", "better", "words"),
    [
        (103, 98, {"+3.0%", "-2.0%"}),
        (99.5, 98.7, {"-1.3% better, -0.5% worse"}),
        (100.9, 100.4, {"+0.9% worse, +0.4% better"}),
        (101, 100, {"+1.0%"}),
    ],
)
def test_both_changes_of_a_parameter_can_be_read(worse: float, better: float, words) -> None:
    rows = [parameter("other", 104, 96), parameter("this", worse, better)]
    figure = tornado_figure({"time_us": 100.0, "parameters": rows})
    assert figure is not None
    assert no_text_covers_another(figure)
    said = {text.get_text() for text in figure.axes[0].texts}
    assert said == {"+4.0%", "-4.0%"} | words


def test_steps_on_several_numbers_of_gpus_have_a_line_for_each_other_choice() -> None:
    axes = ("axis:cluster.nodes", "axis:workload.batch", "axis:workload.data")
    cells = [(n, 64 * n, data) for n in (4, 1, 2) for data in ("ddp", "fsdp")]
    steps = pd.DataFrame(
        {"scenario": "s", "cell": [str(k) for k in range(6)], "mfu_pct": 40.0,
         "tokens_per_s": [1000.0 * n for n, *_ in cells],
         **{name: [one[k] for one in cells] for k, name in enumerate(axes)}}
    )  # fmt: skip
    results = pd.DataFrame({"cell": steps["cell"], "ranks": [8 * n for n, *_ in cells]})
    rows = scaled(steps, results)
    assert rows["gpus"].tolist() == [8, 8, 16, 16, 32, 32]
    assert set(rows["line"]) == {"data ddp", "data fsdp"}  # the batch goes with the nodes
    left, right = scaling_figure(rows).axes
    solid = [line for line in left.lines if line.get_linestyle() == "-"]
    assert [line.get_ydata().tolist() for line in solid] == [[125.0] * 3] * 2
    assert right.get_ylabel() == "MFU (%)"
    assert scaled(steps, results.assign(ranks=8)).empty
