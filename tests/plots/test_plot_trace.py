"""Pictures of a trace: timeline, links over time, states; each drawn from files or plain values."""

import gzip
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from netsim.plots.explanation import breakdown_figure
from netsim.plots.timeline import (
    MOST_STATES,
    heat_figure,
    lines_figure,
    plot_links,
    plot_states,
    plot_timeline,
    read_gantt,
    read_load,
    states_figure,
    timeline_figure,
)
from netsim.trace.chrome import write_trace
from netsim.trace.names import TracedOperation
from netsim.trace.tables import ROW_COLUMNS, write_links_over_time, write_rows
from tests.trace.output_runs import Run, chain_run, launched_run, mixed_run, ring_run


def folder_of(run: Run, folder: Path) -> Path:
    program, timeline, _ = run
    operations = [TracedOperation(name or "copy", "ring") for name in program.schedule.collectives]
    write_rows(folder / "trace.csv", program, timeline, operations)
    write_links_over_time(folder / "links_over_time.csv", program, timeline, bins=20)
    return folder


def plot_trace(folder: Path, out_dir: Path) -> list[Path]:
    drawn = ((plot_timeline, "trace.csv"), (plot_links, "links_over_time.csv"))
    return [path for plot, name in drawn for path in plot(folder / name, out_dir)]


@pytest.mark.slow
def test_a_folder_gives_timeline_links_and_heat_map(tmp_path: Path) -> None:
    folder = folder_of(ring_run(), tmp_path)
    first = plot_trace(folder, tmp_path / "a")
    second = plot_trace(folder, tmp_path / "b")
    assert [p.name for p in first] == [
        "timeline.svg",
        "timeline.png",
        "links.svg",
        "links.png",
        "links-heatmap.svg",
        "links-heatmap.png",
    ]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


@pytest.mark.full
@pytest.mark.parametrize("make", [chain_run, launched_run, mixed_run])
def test_all_kinds_of_rows_can_be_drawn(make, tmp_path: Path) -> None:
    assert plot_trace(folder_of(make(), tmp_path), tmp_path)


def test_bars_of_senders_and_receivers(tmp_path: Path) -> None:
    bars = read_gantt(folder_of(ring_run(), tmp_path) / "trace.csv").bars
    assert len(bars) == 2 * 24
    first = bars[(bars["step"] == 0) & (bars["rank"] == 1)]
    assert first["what"].tolist() == ["send (to be reduced)", "receive and reduce"]
    assert first["begin"].tolist() == pytest.approx([0.0, 1.0])  # the switch takes 1 µs
    assert set(bars[bars["step"] > 2]["what"]) == {"send (copy)", "receive (copy)"}


def test_timeline_names_ranks_lanes_units_and_kinds(tmp_path: Path) -> None:
    gantt = read_gantt(folder_of(mixed_run(), tmp_path) / "trace.csv")
    assert gantt.lanes == ("gemm", "ch0", "copy ch0")
    figure = timeline_figure(gantt)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"rank {r}" for r in range(4)]
    assert axes.get_xlabel() == "time (µs)"
    assert axes.get_title(loc="left") == "ring step, 4 ranks"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "compute" in names
    assert "receive and reduce" in names


def test_bars_that_overlap_share_a_lane(tmp_path: Path) -> None:
    gantt = read_gantt(folder_of(mixed_run(), tmp_path) / "trace.csv")
    bars, lane = gantt.bars, gantt.lanes.index("copy ch0")
    both = bars[(bars["lane"] == lane) & (bars["rank"] == 0)]
    assert sorted(both["track"]) == [0, 1]
    assert set(both["tracks"]) == {2}


@pytest.mark.slow
def test_of_many_ranks_one_of_each_class_of_equal_ones_is_drawn(tmp_path: Path) -> None:
    program, timeline, _ = ring_run(70, 700)
    write_rows(tmp_path / "trace.csv", program, timeline)
    gantt = read_gantt(tmp_path / "trace.csv")
    assert gantt.ranks == {0: "rank 0\nand 69 equal"}
    assert gantt.note == "70 ranks in 1 class, equal within 2% of the time"
    assert set(gantt.bars["rank"]) == {0}


def several_kinds(folder: Path, busy: list[list[tuple[int, float, float]]]) -> Path:
    """A trace.csv of ranks that compute: channel, begin and end of each rank's rows."""
    lines = [",".join(ROW_COLUMNS)]
    for rank, rows in enumerate(busy):
        lines += [
            f"{len(lines)},compute,step,0,0,s{lane},{rank},{rank},,{begin},{end},,,0,0"
            for lane, begin, end in rows
        ]
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    return folder / "trace.csv"


def test_equal_ranks_may_use_other_lanes_and_differ_by_little(tmp_path: Path) -> None:
    late = [
        [(0, 0, 5.0), (1, 0, 10.0)] if rank % 2 else [(1, 0, 5.1), (0, 0, 10.0)]
        for rank in range(20)
    ]
    gantt = read_gantt(several_kinds(tmp_path, [*late, [(0, 3, 10.0)], [(0, 0, 5.0)]]))
    assert list(gantt.ranks.values()) == ["rank 0\nand 19 equal", "rank 20", "rank 21"]
    assert gantt.note.startswith("22 ranks in 3 classes, equal within 2% of")


def test_of_too_many_classes_the_largest_are_drawn_and_that_is_said(tmp_path: Path) -> None:
    apart = [[(0, 0, 100.0 - 11 * (rank % 9)), (1, 0, 11.0 * (rank % 5 + 1))] for rank in range(60)]
    gantt = read_gantt(several_kinds(tmp_path, apart))
    assert len(gantt.ranks) == 16
    assert gantt.note == "60 ranks in 16 of 35 classes, equal within 10% of the time"
    assert next(iter(gantt.ranks.values())) == "rank 0\nand 1 equal"
    assert timeline_figure(gantt).axes[0].get_title(loc="left").endswith(gantt.note)


def test_pictures_are_called_as_the_trace_beside_them_says(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    folder = folder_of(ring_run(), tmp_path)
    about = {"title": "all_reduce of 1 MiB, 4 x dgx-h100; nodes 4"}
    write_trace(folder / "trace.json.gz", program, timeline, about=about)
    assert read_gantt(folder / "trace.csv").title == about["title"]
    write_rows(folder / "trace.csv", program, timeline, rows=5)
    assert read_gantt(folder / "trace.csv").note == "4 ranks, the first 5 of 28 rows"
    load = replace(read_load(folder / "links_over_time.csv"), title=about["title"])
    assert about["title"] in lines_figure(load).get_suptitle()
    assert about["title"] in heat_figure(load).axes[0].get_title(loc="left")


NOT_A_TRACE = {"empty": b"", "no gzip": b"no gzip", "a list": gzip.compress(b"[]"),
               "no events": gzip.compress(b"{}"), "cut": gzip.compress(b"x" * 99)[:20]}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("content", NOT_A_TRACE.values(), ids=NOT_A_TRACE)
def test_a_trace_that_says_nothing_gives_no_title(content, tmp_path: Path) -> None:
    folder = folder_of(ring_run(), tmp_path)
    (folder / "trace.json.gz").write_bytes(content)
    assert read_gantt(folder / "trace.csv").title == "ring all_reduce"


def test_percentages_stand_where_the_axis_has_room_for_them() -> None:
    causes = {"launch": 0.2, "transfer": 0.5, "sharing": 0.3}
    found = {
        name: {"time_us": time, "causes_us": {cause: part * time for cause, part in causes.items()}}
        for name, time in (("slow", 100.0), ("best", 5.0))
    }
    axes = breakdown_figure(found).axes[0]
    texts = [text.get_text().strip() for text in axes.texts]
    assert texts == ["20%", "50%", "30%", "100 µs", "5 µs"]
    whole = axes.get_xlim()[1]
    boxes = [bar.get_width() for bar in axes.patches if bar.get_width() > 0.06 * 100]
    assert len(boxes) == 3
    assert whole > 100


def test_links_that_do_the_same_share_a_panel(tmp_path: Path) -> None:
    load = read_load(folder_of(ring_run(), tmp_path) / "links_over_time.csv")
    assert len(load.links) == 8
    panels = lines_figure(load).axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        "gpu0->switch0 and 7 equal, mean 57 %"
    ]
    apart = read_load(folder_of(chain_run(), tmp_path) / "links_over_time.csv")
    assert len(lines_figure(apart).axes) == 5


def test_heat_map_has_a_row_a_link_and_a_scale_in_percent(tmp_path: Path) -> None:
    load = read_load(folder_of(ring_run(), tmp_path) / "links_over_time.csv")
    axes, bar = heat_figure(load).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(load.links)
    assert bar.get_ylabel() == "utilisation (%)"
    assert axes.collections[0].get_clim() == (0, 100)


@dataclass(frozen=True)
class Holding:
    origins: tuple[int, ...]
    complete: bool = False


@dataclass(frozen=True)
class State:
    step: int
    held: list[list[Holding]]


def two_ranks() -> list[State]:
    mine = [[Holding((0,)), Holding((0,))], [Holding((1,)), Holding((1,))]]
    half = [[Holding((0,)), Holding((0, 1), True)], [Holding((0, 1), True), Holding((1,))]]
    both = [[Holding((0, 1), True)] * 2] * 2
    return [State(-1, mine), State(0, half), State(1, both)]


@pytest.mark.slow
def test_states_show_contributions_and_mark_what_is_complete(tmp_path: Path) -> None:
    figure = states_figure(two_ranks(), ["a", "b"], "ring")
    panels = figure.axes
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["at the start", "after step 0", "after step 1"]
    assert [text.get_text() for text in panels[1].texts] == ["a0", "b0+b1", "a0+a1", "b1"]
    assert [text.get_weight() for text in panels[1].texts] == ["normal", "bold", "bold", "normal"]
    assert len(plot_states(two_ranks(), ["a", "b"], tmp_path / "x" / "state")) == 2


@pytest.mark.slow
def test_long_sums_and_many_states_are_shortened() -> None:
    ranks = 40
    held = [[Holding(tuple(range(ranks)), True)] * ranks for _ in range(ranks)]
    figure = states_figure([State(k, held) for k in range(50)], ["a"] * ranks, "big")
    assert len(figure.axes) == MOST_STATES
    assert figure.get_suptitle() == "big, 16 of 50 states"
    few = states_figure([State(0, [[Holding((0, 1, 2, 3, 4, 5, 6, 9))]])], ["a"])
    assert few.axes[0].texts[0].get_text() == "a[0-6,9]"


@pytest.mark.slow
def test_no_picture_needs_pyplot() -> None:
    pictures = ("explanation", "results", "sizes", "timeline", "topology.draw")
    names = ", ".join(f"netsim.plots.{name}" for name in pictures)
    code = f"import sys, {names}; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_metrics_and_traces_load_without_pandas_and_matplotlib() -> None:
    code = (
        "import sys, netsim.metrics.bound, netsim.metrics.links;"
        "import netsim.trace.chrome, netsim.trace.tables;"
        "sys.exit(bool({'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_whole_run_is_on_the_axis(tmp_path: Path) -> None:
    load = read_load(folder_of(ring_run(), tmp_path) / "links_over_time.csv")
    assert load.edges[-1] == pytest.approx(ring_run()[1].makespan * 1e6)
    assert np.all(np.diff(load.edges) > 0)
