"""Logs of every version and launcher, read completely or complained about by line."""

# ruff: noqa: E501 - rows are as wide as the programs print them
import json
from pathlib import Path

import pytest

from netsim.base.errors import InputError
from netsim.measured.index import timing_of
from netsim.measured.logs import parse_log, read_csv, read_log, true_ranks

DATA = Path(__file__).parents[1] / "data" / "logs"
CSV = Path(__file__).parents[2] / "scenarios" / "measured" / "csv"
LOGS = sorted(DATA.glob("*.txt"))

NEW = "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
OLD = "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error"
ROW = "     1048576        262144     float     sum      -1    50.00   20.97   36.70       0    49.00   21.40   37.45       0"
NEXT = "     2097152        524288     float     sum      -1    70.00   29.96   52.43       0    69.00   30.39   53.19       0"
START = "# Collective test starting: all_reduce_perf"


def one(*lines: str):
    runs = parse_log("\n".join(lines) + "\n", "x.log")
    assert len(runs) == 1
    return runs[0]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_real_logs_give_the_very_rows_of_the_corpus(path: Path) -> None:
    (run,) = read_log(path)
    expected = [row for row in read_csv(CSV / f"{path.stem}.csv") if row.size_bytes]
    assert [(r.size_bytes, r.out_of_place, r.in_place) for r in run.rows] == [
        (r.size_bytes, r.out_of_place, r.in_place) for r in expected
    ]
    assert not run.problems
    assert f"_{run.collective}_" in path.stem
    nodes = true_ranks(run)
    if nodes and run.listed_ranks:
        assert nodes[0] <= run.listed_ranks <= nodes[1]


PREFIXES = [
    "0: ",
    " 0: ",
    "[1,0]<stdout>:",
    "[1,0]<stdout>: ",
    "2025-02-06T20:02:30.123Z ",
    "Wed Jan 28 14:50:17 2026<stdout>:",
    "worker-0: ",
    "[2025-02-06 20:02:30] ",
    "nccl-test-launcher | ",
    "\x1b[32m",
    "Wed Jan 28 14:50:17 2026[1,0]<stdout>:",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_launchers_write_before_lines(prefix: str) -> None:
    run = one(*(prefix + line for line in (START, NEW, ROW, NEXT)))
    assert run.collective == "all_reduce"
    assert [row.size_bytes for row in run.rows] == [2**20, 2**21]
    assert run.rows[0].out_of_place == pytest.approx(50e-6)
    assert not run.problems


def test_columns_are_read_by_name() -> None:
    half = "time   algbw   busbw #wrong   i_min   i_max   i_p99  i_cv%"
    header = f"#  size  count  type  redop  root  {half}  {half}"
    row = "1048576 262144 float sum -1 50 20.97 36.70 0 48 52 51 1.2 49 21.40 37.45 0 47 51 50 1.1"
    assert one(START, header, row).rows[0].in_place == pytest.approx(49e-6)
    assert one(START, NEW.replace("time", "cputime"), ROW).rows[0].in_place == pytest.approx(49e-6)
    assert one(START, NEW, ROW + "  2025-10-21 14:02:11").rows[0].in_place == pytest.approx(49e-6)
    old = "     1048576        262144   float     sum    50.00   20.97   36.70  1e-07    49.00   21.40   37.45    N/A"
    assert one(START, OLD, old).rows[0].in_place == pytest.approx(49e-6)
    blank = old.replace("sum", "   ")  # alltoall of old versions leaves the column empty
    assert one(START, OLD, blank).rows[0].in_place == pytest.approx(49e-6)
    assert one(START, ROW).rows[0].in_place == pytest.approx(49e-6)  # the header was cut off


def test_several_runs_are_kept_apart() -> None:
    text = [START, NEW, ROW, NEXT, START.replace("all_reduce", "alltoall"), NEW, ROW]
    runs = parse_log("\n".join(text), "x.log")
    assert [(run.collective, len(run.rows)) for run in runs] == [("all_reduce", 2), ("alltoall", 1)]
    again = parse_log("\n".join([NEW, ROW, NEXT, NEW, ROW]), "x.log")
    assert [len(run.rows) for run in again] == [2, 1]
    twice = parse_log("\n".join([START, NEW, "", OLD, ROW]), "x.log")  # a header begins a run
    assert [run.line for run in twice] == [4]


def test_nccl_writes_between_and_inside_rows() -> None:
    info = "node7:41:99 [3] NCCL INFO Channel 00/32 :    0   1   2   3"
    head, tail = ROW[:60], ROW[60:]
    run = one(START, NEW, info, head + info, info, tail, NEXT)
    assert [row.in_place for row in run.rows] == pytest.approx([49e-6, 69e-6])
    assert not run.problems


def test_what_a_log_says_of_itself() -> None:
    run = one(
        "mpirun -np 16 -x NCCL_ALGO=Ring -x NCCL_DEBUG=INFO ./build/all_reduce_perf -b 8 -e 1G -g 1",
        "node1:41:99 [0] NCCL INFO NCCL version 2.19.3+cuda12.3",
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 20",
        "#  Rank  0 Group  0 Pid  41 on   node1 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3",
        "#  Rank 15 Group  0 Pid  42 on   node2 device  7 [0000:1b:00] NVIDIA H100 80GB HBM3",
        NEW,
        "node1:41:99 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}",
        ROW,
    )
    assert (run.collective, run.nccl, run.gpus_per_thread) == ("all_reduce", "2.19.3", 8)
    assert run.variables["NCCL_ALGO"] == "Ring"
    assert (run.listed_ranks, run.hosts) == (16, {"node1": 1, "node2": 1})
    assert run.choices == {2**20: ("Ring", "LL128")}
    assert run.gpu_name == "NVIDIA H100 80GB HBM3"
    assert true_ranks(run) == (8, 8)  # 36.70 / 20.97 = 2 * 7 / 8


def test_the_head_of_a_table_says_how_many_operations_were_timed() -> None:
    head = "# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 50"
    assert one(head + " validation: 1", NEW, ROW).iterations == 50
    assert one(head + " agg iters: 4 validation: 1 graph: 0", NEW, ROW).iterations == 200
    graphs = " agg iters: 1 validation: 1 graph: 20 unalign: 0"
    assert (
        one(head + graphs, NEW, ROW).iterations == 1000
    )  # a graph of 50 that is launched 20 times
    assert one(NEW, ROW).iterations is None


@pytest.mark.parametrize(
    ("command", "timing"),
    [
        ("all_reduce_perf -b 8 -e 8G -f 2 -g 8", {}),
        ("all_reduce_perf -b 8 -n 20 -a 1", {}),
        ("srun all_reduce_perf -b 8 -e 4G -w 8 -n 24", {"iterations": 24}),
        ("all_reduce_perf --iters=100 --average 3", {"iterations": 100, "over_processes": "max"}),
        ("all_reduce_perf -a 0 -n100", {"iterations": 100, "over_processes": "first"}),
        ("all_reduce_perf -a 2", {"over_processes": "min"}),
        ("", {}),
    ],
)
def test_a_command_says_what_of_which_operations_is_printed(command: str, timing) -> None:
    assert timing_of(command) == timing
    assert timing_of(command, 7) == {**timing, "iterations": 7}  # the table knows better


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROW.replace("50.00", "abc"), "time: expected a number, got 'abc'"),
        (ROW.replace("50.00", "-5.0"), "expected more than 0, got -5.0"),
        (ROW.replace("50.00", "90.00"), "do not fit"),
        (ROW + "  1  2  3", "expected 8 values after the type, got 11"),
        ("  1048576  262144  floot  sum  -1  50  20.97  36.7  0", "not understood"),
        (ROW.replace("50.00", "nan").replace("49.00", "N/A"), "no time at 1048576 B"),
    ],
)
def test_rows_that_are_not_understood_are_told_with_their_line(row: str, said: str) -> None:
    run = one(START, NEW, NEXT, row)
    assert [problem.split(":")[0] for problem in run.problems] == ["line 4"]
    assert said in run.problems[0]
    assert len(run.rows) == 1


@pytest.mark.parametrize("size", ["1,048,576", "-1048576"])
def test_no_part_of_a_number_is_taken_for_a_size(size: str) -> None:
    run = one(START, NEW, ROW.replace("1048576", size), NEXT)
    assert [row.size_bytes for row in run.rows] == [2**21]
    assert [problem.split(":")[0] for problem in run.problems] == ["line 3"]


@pytest.mark.parametrize("end", ["  2026-11-21 06:25:09", "  2026-11-21T06:25:09Z"])
def test_times_of_day_may_end_rows(end: str) -> None:
    run = one(START, NEW + "  timestamp", ROW + end, NEXT + end)
    assert [row.in_place for row in run.rows] == [pytest.approx(49e-6), pytest.approx(69e-6)]
    assert not run.problems


def test_cut_rows_keep_what_is_whole() -> None:
    run = one(START, NEW, ROW, NEXT[:88])
    assert run.rows[1].out_of_place == pytest.approx(70e-6)
    assert run.rows[1].in_place is None
    assert "line 4: the row is cut" in run.notes[0]


def test_sizes_twice_or_out_of_order_are_told() -> None:
    run = one(START, NEW, NEXT, ROW, NEXT)
    assert [row.size_bytes for row in run.rows] == [2**20, 2**21]
    assert len(run.notes) == 2


def test_json_of_the_tests() -> None:
    value = {
        "version": 3, "args": ["./all_reduce_perf", "-g", "8"], "nccl_version": "22703",
        "env": ["NCCL_ALGO=Ring", "HOME=/root"],
        "config": {
            "nthreads": 1, "ngpus": 8,
            "devices": [{"rank": 0, "pid": 4, "hostname": "n1", "device_info": "NVIDIA H200"}],
        },
        "results": [
            {
                "size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "-1",
                "out_of_place": {"time": 50.0, "alg_bw": 20.97, "bus_bw": 36.7, "nwrong": 0},
                "in_place": {"time": "nan", "alg_bw": "nan", "bus_bw": "nan"},
            },
            {"size": 8, "count": 2, "type": "float", "out_of_place": None, "in_place": None},
            {"size": 0, "count": 0, "type": "float", "out_of_place": {"time": 5.0}},
            {"size": 1, "count": 1, "type": "int8", "out_of_place": {"time": 6.0}},
        ],
    }  # fmt: skip
    run = one(json.dumps(value))
    assert (run.collective, run.nccl, run.gpus_per_thread) == ("all_reduce", "22703", 8)
    assert [row.size_bytes for row in run.rows] == [1, 1048576]  # of nothing no time is told
    assert run.rows[1].out_of_place == pytest.approx(50e-6)
    assert run.rows[1].in_place is None
    assert run.variables == {"NCCL_ALGO": "Ring"}
    assert run.gpu_name == "NVIDIA H200"
    assert "no time at 8 B" in run.problems[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("hello\nworld\n", "no table of nccl-tests"),
        (f"{START}\n# nThread 1 nGpus 8 minBytes 8\n{NEW}\n", "no row of results follows"),
        ('{"a": 1}', "this JSON has no results"),
        ('{"a": ', "this JSON cannot be read"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.log").write_text(text)
    with pytest.raises(InputError, match=message):
        read_log(tmp_path / "x.log")


def test_the_collective_is_asked_for_where_nothing_tells_it(tmp_path: Path) -> None:
    row = ROW.replace("sum", "none").replace("36.70", "18.35").replace("37.45", "18.73")
    (tmp_path / "x.log").write_text(f"{NEW}\n{row}\n")
    with pytest.raises(InputError, match="all_gather or alltoall"):
        read_log(tmp_path / "x.log")
    assert read_log(tmp_path / "x.log", "alltoall")[0].collective == "alltoall"
    (tmp_path / "y.log").write_text(f"{NEW}\n{ROW}\n")
    assert read_log(tmp_path / "y.log")[0].collective == "all_reduce"


@pytest.mark.parametrize(
    "values",
    [
        "50.00 20.97 36.70 49.00 21.40 37.45",
        "50.00 20.97 36.70 0 49.00 21.40 37.45 0",
        "50.00 20.97 36.70 0",
    ],
)
@pytest.mark.parametrize("root", ["", "3"])
def test_without_a_header_roots_are_told_by_how_many_values_there_are(values, root):
    found = one(START.replace("all_reduce", "broadcast"), f" 1048576 262144 float {root} {values}")
    (row,) = found.rows
    assert row.out_of_place == pytest.approx(50e-6)
    assert row.root == int(root or -1)
