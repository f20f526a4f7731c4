"""Pictures of results.csv: what is drawn, how it is labelled, and that files are the same again."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from netsim.plots.results import bars_figure, plot_results
from netsim.plots.sizes import lines_of, looks_of, read_results, sizes_figure, telling, thinned
from netsim.plots.style import RESULTS, read_long_table, read_table
from netsim.results.row import Row, csv_text
from tests.plots.result_files import SIZES, row, sweep, write


def figure_of(path: Path, **options) -> Figure:
    return sizes_figure(lines_of(read_results([path])), "title", **options)


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def labels(folder: Path, rows: list) -> list[str]:
    return [line.label for line in lines_of(read_results([write(folder, rows)])).lines]


@pytest.mark.slow
def test_files_are_written_in_both_formats_and_the_same_each_time(tmp_path: Path) -> None:
    path = write(tmp_path, sweep(("workload.algorithm", ["ring", "tree"]), sizes=SIZES[::4]))
    first = plot_results([path], tmp_path / "a")
    second = plot_results([path], tmp_path / "b")
    assert [p.name for p in first] == ["busbw.svg", "busbw.png"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


@pytest.mark.slow
def test_names_in_scripts_that_the_font_lacks_are_drawn_without_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, sweep(("net", ["\u7f51\u7edc", "\tb"]), sizes=SIZES[:2]))
    assert [p.name for p in plot_results([path], tmp_path / "a")] == ["busbw.svg", "busbw.png"]


@pytest.mark.slow
def test_axes_have_names_units_and_round_sizes(tmp_path: Path) -> None:
    figure = figure_of(write(tmp_path, sweep()))
    bandwidth, time = figure.axes
    assert bandwidth.get_ylabel() == "bus bandwidth (GB/s)"
    assert time.get_ylabel() == "time of one operation"
    assert time.get_xlabel() == "message size"
    assert time.get_xscale() == time.get_yscale() == "log"
    figure.canvas.draw()
    ticks = [label.get_text() for label in time.get_xticklabels()]
    assert ticks[:3] == ["8 B", "64 B", "512 B"]
    assert ticks[-2:] == ["1 GiB", "8 GiB"]
    assert "1 ms" in [label.get_text() for label in time.get_yticklabels()]


@pytest.mark.slow
def test_lines_are_named_by_what_differs_and_by_nothing_else(tmp_path: Path) -> None:
    one = sweep(("cluster.nodes", [1, 2, 16]))
    assert labels(tmp_path / "a", one) == ["1 node", "2 nodes", "16 nodes"]
    two = sweep(("cluster.nodes", [1, 2]), ("cluster.fabric.oversubscription", [1, 4]))
    assert labels(tmp_path / "b", two) == [
        "1 node, oversubscription 1",
        "1 node, oversubscription 4",
        "2 nodes, oversubscription 1",
        "2 nodes, oversubscription 4",
    ]
    algorithms = [row(s, 9, 99, cell=a, algorithm=a) for a in ("ring", "tree") for s in SIZES]
    assert labels(tmp_path / "c", algorithms) == ["ring", "tree"]
    assert labels(tmp_path / "d", sweep()) == ["ring"]


def test_files_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, sweep()) for name in ("before", "after")]
    lines = lines_of(read_results(paths)).lines
    assert [line.label for line in lines] == ["file before", "file after"]


def test_legend_follows_the_order_at_the_right_and_holds_the_line_rate(tmp_path: Path) -> None:
    cells = (("slow", 100), ("fast", 300))
    rows = [row(s, 9, bw, cell=a, algorithm=a) for a, bw in cells for s in SIZES]
    figure = figure_of(write(tmp_path, rows), line_rate=400)
    assert legend(figure) == ["fast", "slow", "line rate 400 GB/s"]
    assert figure.axes[0].get_ylim()[1] > 400


def test_measured_points_are_drawn_on_top(tmp_path: Path) -> None:
    rows = sweep()
    for given in rows[::2]:
        given["measured_time_us"] = given["time_us"] * 1.25
    figure = figure_of(write(tmp_path, rows))
    assert legend(figure) == ["simulated", "measured"]
    simulated, measured = figure.axes[0].lines
    assert measured.get_linestyle() == "None"
    assert measured.get_ydata()[0] == pytest.approx(simulated.get_ydata()[0] / 1.25)


def test_several_lines_with_measured_points_say_which_are_simulated(tmp_path: Path) -> None:
    rows = sweep(("fabric", ["fast", "slow"]))
    for given in rows:
        given["measured_time_us"] = given["time_us"] * 1.25
    figure = figure_of(write(tmp_path, rows))
    assert legend(figure)[-2:] == ["simulated", "measured"]


@pytest.mark.slow
def test_a_strip_says_what_was_chosen_where_it_changes(tmp_path: Path) -> None:
    rows = sweep()
    for given in rows[:8]:
        given |= {"algorithm": "Tree", "protocol": "LL"}
    strip = figure_of(write(tmp_path, rows)).axes[2]
    assert [text.get_text() for text in strip.texts] == ["Tree LL", "ring Simple"]
    assert len(figure_of(write(tmp_path, sweep())).axes) == 2


@pytest.mark.slow
def test_every_two_lines_differ_in_colour_or_marker(tmp_path: Path) -> None:
    for axes in (
        [("n", list(range(7)))],
        [("n", list(range(12)))],
        [("n", [1, 2, 3, 4]), ("o", [1, 2, 3])],
    ):
        looks = looks_of(lines_of(read_results([write(tmp_path, sweep(*axes, sizes=SIZES[:2]))])))
        assert len({(look.color, look.marker) for look in looks}) == len(looks)


@pytest.mark.slow
def test_many_lines_are_spread_over_figures(tmp_path: Path) -> None:
    axes = (("cluster.nodes", [1, 2, 4, 8, 16, 32, 64]), ("cluster.fabric.kind", ["a", "b/c"]))
    path = write(tmp_path, sweep(*axes, sizes=SIZES[:2]))
    names = [p.name for p in plot_results([path], tmp_path)[::2]]
    assert names == ["busbw.svg", "busbw-kind-a.svg", "busbw-kind-b-c.svg"]


@pytest.mark.slow
def test_of_more_lines_than_can_be_named_the_others_are_pale(tmp_path: Path) -> None:
    path = write(tmp_path, sweep(("x.n", list(range(40))), sizes=SIZES[:3]))
    lines = thinned(lines_of(read_results([path])), 7)
    assert [line.label for line in lines.lines] == [
        "n 0",
        "n 6",
        "n 13",
        "n 20",
        "n 26",
        "n 32",
        "n 39",
    ]
    figure = sizes_figure(lines)
    assert legend(figure)[-1] == "33 more cells"
    for panel in figure.axes[:2]:
        assert len(panel.collections[0].get_segments()) == 33


def test_lines_that_differ_in_two_ways_are_thinned_from_the_fastest_to_the_slowest(
    tmp_path: Path,
) -> None:
    rows = sweep(("a", [3, 1, 2, 5]), ("b", [7, 8, 9]), sizes=SIZES[:3])
    lines = lines_of(read_results([write(tmp_path, rows)]))
    kept = thinned(lines, 3, always=["c4"])
    assert [line.table["cell"].iloc[0] for line in kept.lines] == ["c0", "c4", "c6", "c11"]
    assert len(kept.rest) == 8
    assert thinned(lines, 3, most=12) is lines


def test_seeds_are_one_line_with_percentiles(tmp_path: Path) -> None:
    rows = sweep(("x.n", [1, 2]), ("seed", list(range(21))), sizes=SIZES[:3])
    lines = lines_of(read_results([write(tmp_path, rows)])).lines
    assert [line.label for line in lines] == ["n 1", "n 2"]
    for number, line in enumerate(lines):
        times = [given["time_us"] for given in rows if given["size_bytes"] == SIZES[2]]
        mine = times[21 * number : 21 * (number + 1)]
        last = line.table.iloc[2]
        assert last["time_us"] == pytest.approx(np.median(mine), rel=1e-12)
        assert last["seeds"] == 21
        for p in (5, 25, 75, 95):
            assert last[f"time_us_p{p}"] == pytest.approx(np.percentile(mine, p), rel=1e-12)


@pytest.mark.slow
def test_percentiles_over_seeds_are_drawn_as_bands(tmp_path: Path) -> None:
    rows = sweep(("x.n", [1, 2]), ("seed", list(range(9))))
    figure = figure_of(write(tmp_path, rows))
    assert legend(figure)[-3:] == ["median of 9 seeds", "25 to 75 %", "5 to 95 %"]
    for panel in figure.axes[:2]:
        outer, inner, *_ = (c for c in panel.collections if isinstance(c, PolyCollection))
        tall = [np.ptp(c.get_paths()[0].vertices[:, 1]) for c in (outer, inner)]
        assert len(panel.lines) == 2
        assert tall[0] > tall[1] > 0
    without = figure_of(write(tmp_path / "a", sweep(("x.n", [1, 2]))))
    assert legend(without) == ["n 1", "n 2"]


def noisy(rows: list) -> list:
    """The rows with samples from 1.1 to 3 times as long."""
    parts = {"p5_us": 1.1, "p50_us": 1.5, "p95_us": 2.0, "p99_us": 3.0}
    return [
        {**one, **{name: part * one["time_us"] for name, part in parts.items()}} for one in rows
    ]


def test_samples_with_noise_are_bands_and_a_dashed_median(tmp_path: Path) -> None:
    figure = figure_of(write(tmp_path, noisy(sweep())))
    assert legend(figure)[-2:] == ["median of samples with noise", "5 to 95 % of them"]
    for axes, part in zip(figure.axes, (1 / 1.5, 1.5), strict=True):
        solid, dashed = (line.get_ydata() for line in axes.lines[:2][::-1])
        assert np.array(dashed) == pytest.approx(np.array(solid) * part)
        (band,) = (one for one in axes.collections if isinstance(one, PolyCollection))
        assert band.get_paths()
    time = figure.axes[1]
    longest = max(one["time_us"] for one in sweep())
    assert time.get_ylim()[1] >= 2 * longest


def test_bars_have_ends_where_samples_with_noise_lie(tmp_path: Path) -> None:
    rows = noisy(sweep(("x.n", [1, 2]), sizes=[1 << 20]))
    figure = bars_figure(lines_of(read_results([write(tmp_path, rows)])), "title")
    assert "without noise, and 5 to 95 % of samples with it" in figure.get_suptitle()
    time = figure.axes[1]
    for bar, ends in zip(time.patches, time.lines, strict=False):
        low, high = ends.get_xdata()
        assert (low, high) == pytest.approx((1.1 * bar.get_width(), 2 * bar.get_width()))
    for text, ends in zip(time.texts, time.lines, strict=False):
        assert text.xy[0] == max(ends.get_xdata())


def test_a_line_rate_far_above_all_lines_does_not_flatten_them(tmp_path: Path) -> None:
    figure = figure_of(write(tmp_path, sweep(("x.n", [1, 2]))), line_rate=4000)
    assert legend(figure)[-1] == "line rate 4000 GB/s (far above)"
    assert figure.axes[0].get_ylim()[1] < 500


@pytest.mark.full
@pytest.mark.parametrize("cells", [1, 5, 70])
def test_one_size_is_drawn_as_bars(tmp_path: Path, cells: int) -> None:
    path = write(tmp_path, sweep(("cluster.nodes", list(range(cells))), sizes=[1 << 20]))
    assert [p.name for p in plot_results([path], tmp_path)[1::2]] == ["busbw.png"]


@pytest.mark.slow
def test_training_steps_are_drawn_as_bars(tmp_path: Path) -> None:
    blank = {"size_bytes": "", "time_us": "", "busbw_GBps": ""}
    rows = [
        row(8, 1, 1, **blank | {"cell": str(k), "seed": k, "step_time_us": 1e6 / k}) for k in (1, 2)
    ]
    path = write(tmp_path, rows)
    assert [p.name for p in plot_results([path], tmp_path)[::2]] == ["step_time.svg"]


def test_rows_without_an_answer_are_left_out(tmp_path: Path) -> None:
    rows = sweep(sizes=SIZES[:3])
    rows[1] |= {"status": "error", "time_us": "", "busbw_GBps": ""}
    assert len(read_results([write(tmp_path, rows)])) == 2
    failed = [given | {"status": "error"} for given in rows]
    assert plot_results([write(tmp_path, failed)], tmp_path) == []


def test_labels_leave_out_what_all_values_of_several_keys_share() -> None:
    values = ["tp: 8, pp: 4, data: zero1", "tp: 4, pp: 8, data: zero1"]
    assert telling(values) == ["tp: 8, pp: 4", "tp: 4, pp: 8"]
    assert telling(["tp: 8", "tp: 8, pp: 2"]) == ["tp: 8", "tp: 8, pp: 2"]
    assert telling(["a, b", "a, c"]) == ["a, b", "a, c"]


def test_axes_that_look_like_formulas_are_read_back(tmp_path: Path) -> None:
    rows = [Row(scenario="s", cell="c", size_bytes=8, time_us=1.0, axes={"way": "=1+1"})]
    path = tmp_path / "results.csv"
    path.write_text(csv_text(rows, ["way"]))
    assert ",'=1+1\n" in path.read_text()
    assert list(read_table(path, RESULTS, "results")["axis:way"]) == ["=1+1"]
    long = read_long_table(path, RESULTS, "results", only={"axis:way"})
    assert list(long["axis:way"]) == ["=1+1"]
