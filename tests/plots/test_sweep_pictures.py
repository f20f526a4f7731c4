"""Pictures of sweeps and explanations: what is marked, and that no name covers another."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from netsim.plots import style
from netsim.plots.explanation import published_points, scaled, scaling_figure, tornado_figure
from netsim.plots.results import (
    axes_figure,
    compared,
    facets_figure,
    heat_figure,
    pareto_figure,
    pareto_front,
    question_of,
)
from netsim.plots.sizes import above_rate
from netsim.results.folder import MANIFEST
from netsim.results.journal import sealed

FIGURES = st.floats(1, 1000)


@pytest.mark.slow
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
    table = pd.DataFrame(
        {
            "cell": list("abcde"),
            "size_asked": [1] * 5,
            "time_us": times,
            "cost": [1.0e6, 1.05e6, 1.08e6, 1.1e6, 1.15e6],
            "axis:cluster.nic": ["100Gbps", "200Gbps", "400Gbps", "800Gbps", "1600Gbps"],
        }
    )
    asked = question_of(table, {})
    figure = pareto_figure(compared(table, asked), "cost", "cost (USD)")
    assert figure is not None
    assert no_text_covers_another(figure)
    assert [text.get_text() for text in figure.axes[0].texts] == list("12345")
    (legend,) = figure.legends
    assert legend.get_texts()[4].get_text() == "5  nic 1600Gbps"


def parameter(label: str, worse: float, better: float) -> dict[str, Any]:
    """One of an explanation, of a time of 100 µs."""
    return {
        "label": label,
        "value": 1.0,
        "unit": "GB/s",
        "on_path_us": 1.0,
        "per_percent_us": -1.0,
        "worse_10pct_us": worse,
        "better_10pct_us": better,
    }


@pytest.mark.slow
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
        {
            "scenario": "s",
            "cell": [str(k) for k in range(6)],
            "mfu_pct": 40.0,
            "tokens_per_s": [1000.0 * n for n, *_ in cells],
            **{name: [one[k] for one in cells] for k, name in enumerate(axes)},
        }
    )
    results = pd.DataFrame({"cell": steps["cell"], "ranks": [8 * n for n, *_ in cells]})
    rows = scaled(steps, results)
    assert rows["gpus"].tolist() == [8, 8, 16, 16, 32, 32]
    assert set(rows["line"]) == {"data ddp", "data fsdp"}  # the batch goes with the nodes
    left, right = scaling_figure(rows).axes
    solid = [line for line in left.lines if line.get_linestyle() == "-"]
    assert [line.get_ydata().tolist() for line in solid] == [[125.0] * 3] * 2
    assert right.get_ylabel() == "MFU (%)"
    assert len(scaling_figure(rows.drop(columns="mfu_pct")).axes) == 1  # of layers without FLOPs
    assert scaled(steps, results.assign(ranks=8)).empty


@pytest.mark.slow
def test_published_steps_of_such_a_machine_and_model_stand_beside_scaling(tmp_path: Path) -> None:
    text = "cluster: {machine: dgx-h100}\nworkload: {model: llama3-8b, sequence: 8192}\n"
    told = {"scenario": "s", "text": text, "file": "s.yaml", "settings": []}
    (tmp_path / MANIFEST).write_text(sealed(told))
    rows = pd.DataFrame(
        {
            "cell": ["a", "b"],
            "gpus": [8.0, 16.0],
            "line": "",
            "scenario": "s",
            "mfu_pct": 40.0,
            "tokens_per_s": [64e3, 128e3],
        }
    )
    results = pd.DataFrame({"cell": ["a", "b"], "dtype": "bfloat16", "topology": "dgx-h100"})
    known = published_points(rows, results, tmp_path)
    assert {8, 64, 128} <= {*known["gpus"]}
    assert {*known["line"]} == {"published: TorchTitan, 500W"}
    titan = known[known["gpus"] == 8]["tokens_per_s"].max() / 8
    assert titan == pytest.approx(6667)  # titan_t1: tokens a second and GPU, compiled
    assert (known["mfu_pct"] / known["tokens_per_s"] * known["gpus"]).tolist() == pytest.approx(
        [40 / 8e3] * len(known)
    )
    left, _ = scaling_figure(rows, known).axes
    (drawn,) = left.collections
    assert len(drawn.get_offsets()) == len(known)
    assert published_points(rows, results.assign(topology="dgx-a100"), tmp_path).empty
    assert published_points(rows.assign(**{"axis:workload.model": "x"}), results, tmp_path).empty


def sweep_of(nodes: tuple[int, ...]) -> pd.DataFrame:
    """Rows of three fabrics at two rates of NICs: µs that the answer is plain from."""
    return pd.DataFrame(
        [
            {
                "cell": f"{n} {fabric} {nic}",
                "time_us": n * size * slow / nic,
                "size_asked": size,
                "busbw_GBps": nic / slow,
                "algorithm": "NVLSTree",
                "collective": "all_reduce",
                "nodes": n,
                "axis:cluster.nodes": str(n),
                "axis:fabric": fabric,
                "axis:cluster.nic": f"{nic}Gbps",
            }
            for n in nodes
            for fabric, slow in (("rails", 1), ("tree", 2), ("torus", 3))
            for nic in (200, 400)
            for size in (8, 64)
        ]
    )


def test_values_of_a_choice_are_compared_with_all_else_equal_and_not_joined() -> None:
    table = sweep_of((2, 4))
    asked = question_of(table, {"base": {"cluster.nic": "400Gbps"}})
    assert asked.conditions == ("axis:cluster.nodes",)
    rows = compared(table, asked)
    figure = axes_figure(rows, asked, "all_reduce at 64 B")
    assert figure is not None
    fabric, nic = figure.axes
    assert figure.get_suptitle() == "all_reduce at 64 B"
    assert [axes.get_title("left") for axes in (fabric, nic)] == [
        "fabric, against rails",
        "nic, against 400Gbps",
    ]
    bars = [line for line in fabric.lines if line.get_color() == style.ORANGE]
    assert [bar.get_ydata()[0] for bar in bars] == pytest.approx([1, 2, 3])
    for line in [*fabric.lines, *nic.lines]:  # a bar for each value, and points
        ends = line.get_xdata()
        assert line.get_linestyle() == "None" or len(ends) == 2
        assert line.get_color() != style.ORANGE or ends[1] - ends[0] < 1


def test_a_map_has_choices_beside_the_fastest_under_each_condition_and_says_what_light_is() -> None:
    table = sweep_of((2, 4))
    asked = question_of(table, {})
    figure = heat_figure(compared(table, asked), asked)
    assert figure is not None
    panel, bar = figure.axes
    assert [text.get_text() for text in panel.get_yticklabels()] == ["2 nodes", "4 nodes"]
    assert "light = fast" in bar.get_ylabel()
    assert [text.get_text() for text in panel.texts] == ["2", "1", "4", "2", "6", "3"] * 2
    one = sweep_of((2,))
    figure = heat_figure(compared(one, question_of(one, {})), question_of(one, {}))
    assert figure is not None
    assert "light = fast" in figure.axes[1].get_ylabel()


def test_every_condition_has_a_panel_with_the_same_colours() -> None:
    table = sweep_of((2, 4))
    rows = compared(table, question_of(table, {}))
    names = list(dict.fromkeys(rows["choice"]))
    figure = facets_figure(rows, names, 390.0)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title("left") for axes in panels] == ["2 nodes", "4 nodes"]
    colours = [[line.get_color() for line in axes.lines] for axes in panels]
    assert colours[0] == colours[1]
    (legend,) = figure.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said[: len(names)] == names
    assert said[-2:] == ["line rate 390 GB/s", "above it: NVLS, NVSwitches add up and copy"]


@pytest.mark.parametrize(
    ("algorithm", "collective", "nodes", "why"),
    [
        ("NVLS", "all_reduce", 1, "NVLS"),
        ("CollNetChain", "all_reduce", 4, "SHARP"),
        ("Tree", "all_reduce", 2, "between 2 nodes"),
        ("Tree", "all_reduce", 4, ""),
        ("Ring", "alltoall", 4, "never leaves its host"),
    ],
)
def test_why_a_line_is_above_the_line_rate(algorithm, collective, nodes, why) -> None:
    row = {"algorithm": algorithm, "collective": collective, "nodes": nodes}
    below = pd.DataFrame([{**row, "busbw_GBps": 390.0}])
    assert above_rate(below, 400.0) == []
    found = above_rate(below.assign(busbw_GBps=450.0), 400.0)
    assert len(found) == bool(why)
    assert why in "".join(found)
