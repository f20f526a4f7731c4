"""CSV files that are none of ours, or broken: every refusal names file, line and column."""

import csv
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from netsim.base.errors import InputError
from netsim.cli.diff import side_of
from netsim.plots import style
from netsim.plots.explanation import scaled
from netsim.plots.results import plot_results
from netsim.plots.sizes import has_interval, lines_of, read_all, read_results
from netsim.plots.style import read_values
from netsim.plots.timeline import plot_links, plot_timeline, read_gantt
from netsim.report.words import summary_of
from netsim.results.row import COLUMNS, Row, csv_text
from tests.plots.result_files import SIZES, sweep, write

RESULTS = "expected the columns of results.csv"


def refused(path: Path, plot=lambda path: plot_results([path], path.parent)) -> str:
    with pytest.raises(InputError) as caught:
        plot(path)
    return str(caught.value).replace(f"{path.parent}/", "")


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "x.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"x.csv: empty, {RESULTS}"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "x.csv:1: not text in UTF-8: byte 0x89"),
        ("a,b\n1,2\n", f"x.csv:1: column scenario is missing, {RESULTS}"),
        (
            "scenario,cell,size_bytes,time_ms,busbw_GBps\n",
            f"x.csv:1: column time_us is missing, {RESULTS} (did you mean time_ms?)",
        ),
        (
            "scenario,cell,size_bytes,time_us,busbw_GBps\ns,c,8,1.0,2,3,4\n",
            "x.csv:2: expected 5 fields as in the header, got 7",
        ),
        (
            "scenario,cell,size_bytes,time_us,busbw_GBps\ns,c,8,1.0,2\ns,c,16,fast,2\n",
            "x.csv:3: time_us: expected a number, got 'fast'",
        ),
    ],
)
def test_foreign_results_are_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert refused(written(tmp_path, text)) == message


SUMMED = Row(
    scenario="s",
    cell="c",
    collective="all_reduce",
    ranks=8,
    size_bytes=1 << 20,
    time_us=50.0,
    algbw_GBps=1.048576 / 50 * 1e3,
    busbw_GBps=1.75 * 1.048576 / 50 * 1e3,
    approximation_pct=0.5,
)
CHANGED = "(no run writes this, so the file was changed; run it again, or undo the change)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_us": -50.0}, "time_us: expected a finite number from 0 on, got -50"),
        ({"time_us": float("inf")}, "time_us: expected a finite number from 0 on, got inf"),
        ({"time_high_us": -1e-9}, "time_high_us: expected a finite number from 0 on, got -1e-09"),
        ({"ranks": 0}, "ranks: expected a finite number from 1 on, got 0"),
        (
            {"approximation_pct": -1.0},
            "approximation_pct: expected a finite number from 0 on, got -1",
        ),
        (
            {"time_us": 51.0},
            "algbw_GBps: expected what size_bytes by time_us makes it, got 20.97152",
        ),
        (
            {"algbw_GBps": 20.97160},
            "algbw_GBps: expected what size_bytes by time_us makes it, got 20.9716",
        ),
        (
            {"busbw_GBps": 20.97152},
            "busbw_GBps: expected what size_bytes by time_us makes it, got 20.97152",
        ),
        (
            {"collective": "broadcast"},
            "busbw_GBps: expected what size_bytes by time_us makes it, got 36.70016",
        ),
    ],
)
def test_rows_that_no_run_writes_are_refused_by_every_reader(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    failed = Row(scenario="s", cell="d", status="error")  # has neither time nor bandwidths
    path = written(tmp_path, csv_text([failed, SUMMED, replace(SUMMED, **changes)]))
    for read in (read_all, read_results):
        assert (
            refused(path, lambda path, read=read: read([path])) == f"x.csv:4: {message} {CHANGED}"
        )


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("breakdown.csv", "step_time_us", "-5"),
        ("breakdown.csv", "exposed_tp_us", "nan"),
        ("breakdown.csv", "mfu_pct", "inf"),
        ("costs.csv", "cost_usd", "-1"),
        ("costs.csv", "power_w", "much"),
        ("distribution.csv", "p99", "-1"),
        ("interference.csv", "by:other", "inf"),
        ("memory_over_time.csv", "gpu_bytes", "-8"),
    ],
)
def test_figures_that_no_run_writes_are_refused_in_every_table(
    tmp_path: Path, table: str, column: str, value: str
) -> None:
    path = tmp_path / table
    path.write_text(f"cell,axis:a,{column}\nc,-1,1.5\nd,x,{value}\n", encoding="utf-8")
    told = f"{table}:3: {column}: expected a "
    kind = "number, got '" if value in ("nan", "much") else "finite number from 0 on, got "
    ending = "'" if value in ("nan", "much") else f" {CHANGED}"
    message = refused(path, lambda path: read_values(path, ("cell",), table))
    assert message == f"{told}{kind}{value}{ending}"
    path.write_text(f"cell,axis:a,{column}\nc,-1,1.5\nd,x,\n", encoding="utf-8")
    found = read_values(path, ("cell",), table)
    assert found[column].sum() == 1.5  # an empty cell is none
    assert [*found["axis:a"]] == ["-1", "x"]


def test_rows_that_runs_write_are_read_also_where_a_program_rounded_them(tmp_path: Path) -> None:
    rounded = replace(SUMMED, busbw_GBps=36.70017, time_us=50.00001)
    zero = replace(SUMMED, size_bytes=0, time_us=0.0, algbw_GBps=0.0, busbw_GBps=0.0)
    uneven = [replace(SUMMED, collective=name, busbw_GBps=3.0) for name in ("p2p", "alltoallv")]
    alone = replace(SUMMED, ranks=1, busbw_GBps=0.0)
    path = written(tmp_path, csv_text([SUMMED, rounded, zero, *uneven, alone]))
    assert len(read_results([path])) == 6


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("lacking", [one for one in COLUMNS if one not in style.RESULTS])
def test_a_column_that_a_file_lacks_is_empty_to_every_reader(tmp_path: Path, lacking: str) -> None:
    told = replace(SUMMED, time_low_us=40.0, time_high_us=60.0, p5_us=45.0, p95_us=55.0)
    header, *lines = csv.reader(
        StringIO(csv_text([told, replace(told, size_bytes=2 << 20, time_us=100.0)]))
    )
    place = header.index(lacking)
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([row[:place] + row[place + 1 :] for row in (header, *lines)])
    table = read_results([path])
    assert {*COLUMNS} <= {*table.columns}
    if lacking != "size_asked":  # it is that of the rows
        assert not table[lacking].replace("", None).notna().any()
    assert summary_of(table, table, {}).headline
    assert scaled(table.assign(tokens_per_s=1.0), table).empty
    assert side_of("x", table).times == {1 << 20: 50.0, 2 << 20: 100.0}
    (line,) = lines_of(table).lines
    assert has_interval(line) == (lacking == "p95_us")


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "no.csv") == f"no.csv: no such file ({RESULTS})"
    (tmp_path / "dir.csv").mkdir()
    assert refused(tmp_path / "dir.csv") == f"dir.csv: a directory, {RESULTS}"


def test_foreign_traces_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, sweep(sizes=SIZES[:2]))
    message = refused(path, lambda path: plot_timeline(path, path.parent))
    assert message.startswith("results.csv:1: column row is missing, expected the columns of trace")
    message = refused(path, lambda path: plot_links(path, path.parent))
    assert message.startswith("results.csv:1: column link is missing")
    path = written(tmp_path, "link,t_us,GBps,utilisation\na,0.0,1.0,\n")
    message = refused(path, lambda path: plot_links(path, path.parent))
    assert message == "x.csv:2: utilisation: expected a number, got nothing"


TRACE = "row,kind,channel,step,stream,src,dst,start_us,end_us,path"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("0,mark,0,0,,0,0,0.0,1.0,p\n1,mark,0,0,,0,0,1.0", ":3: expected 10 fields as"),
        ("0,mark,0,0,,0,0,0.0,1.0,p\n\n1,mark,0,0,,0,0,1.0,2.0,p", ":3: expected 10 fields as"),
        ("0,mark,0,0,,0,0,0.0,1.0,p\n1,mark,0,0,,0,0,soon,2.0,p", ":3: start_us: expected a num"),
        ("0,mark,0,0,,0,0,0.0,1.0,p\n1,mark,0,,,0,0,1.0,2.0,p", ":3: step: expected a number"),
        ("0,mark,0,0,,0,0,0.0,1.0,p,more", ":2: expected 10 fields as in the header, got 11"),
        ("0,mark,0,0,,0;1,0,0.0,1.0,p\n1,mark,0,0,,x,0,1.0,2.0,p", ":3: src: expected ranks such"),
        ("0,mark,0,0,,0,99999999999999999999,0.0,1.0,p", ":2: dst: expected ranks such as 3"),
        ("0,mark,0,0,,0,,0.0,1.0,p", ":2: dst: expected ranks such as 3 or 0;1, got ''"),
    ],
)
def test_long_tables_are_refused_as_others_are(tmp_path: Path, lines: str, message: str) -> None:
    path = written(tmp_path, f"{TRACE}\n{lines}\n")
    assert message in refused(path, lambda path: plot_timeline(path, path.parent))


def test_a_trace_whose_last_cells_are_empty_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, f"{TRACE}\n0,compute,0,0,gemm,0,0,0.0,1.0,\n1,compute,0,1,,1,1,1,2,\n")
    assert read_gantt(path).bars["end"].tolist() == [1.0, 2.0]


def test_a_header_alone_is_nothing_to_draw(tmp_path: Path) -> None:
    header = "row,kind,channel,step,stream,src,dst,start_us,end_us\n"
    assert plot_timeline(written(tmp_path, header), tmp_path) == []
    assert plot_links(written(tmp_path, "link,t_us,GBps,utilisation\n"), tmp_path) == []
    results = "scenario,cell,size_bytes,time_us,busbw_GBps\n"
    assert plot_results([written(tmp_path, results)], tmp_path) == []
