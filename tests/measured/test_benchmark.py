"""The open benchmark: questions without answers, predictions that are checked, scores."""

import csv
import io
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest
import yaml

from netsim.base.errors import InputError
from netsim.cli.benchmark import missing_lines
from netsim.measured.accuracy import Accuracy, forecast_text, read_accuracy
from netsim.measured.baselines import FittedPoints, baseline_of, link_rate
from netsim.measured.benchmark import (
    VERSION,
    Benchmark,
    Prediction,
    Predictions,
    benchmark_of,
    parse_predictions,
    predictions_csv,
    question_columns,
    questions_csv,
    questions_yaml,
    read_predictions,
)
from netsim.measured.benchmark_score import Score, score_lines, score_of
from netsim.measured.compare import ALL, ComparedPoint, error_of
from netsim.measured.index import read_index
from netsim.measured.noise_floor import error_beyond, noise_by_band, repeated_times
from netsim.results.row import BANDS
from tests.cli.command import netsim
from tests.site.pages import blocks_of, commands_of, run_command

HEADER = (
    "size_bytes,count,dtype,redop,root,oop_time_us,oop_algbw_gbps,oop_busbw_gbps,"
    "ip_time_us,ip_algbw_gbps,ip_busbw_gbps\n"
)
SIZES = (8, 2**17, 2**21, 2**27)  # one of each size band
ENTRY = """
- id: {id}
  system: {system}
  file: {id}.csv
  gpu: a GPU
  topology: {topology}
  collective: {collective}
  nccl: 2.20.3
  env: {{NCCL_ALGO: Ring, NCCL_NET: AWS Libfabric}}
  launch: process_per_gpu
  command: all_reduce_perf -b 8 -e 1M
  healthy: '{healthy}'
  date: '2024'
  source: https://secret.example/prose-of-the-index
  remarks: it took 123.4 us
"""
ONE_HOST = "{machine: dgx-a100, nodes: 1, gpus_per_node: 8}"
TWO_HOSTS = (
    "{machine: dgx-a100, nodes: 2, gpus_per_node: 8, transport: infiniband, nics_per_node: 8, "
    "nic_gbps: 200}"
)
RUNS = (
    # name, system, topology, collective, microseconds of the four sizes, healthy
    ("first", "one", ONE_HOST, "all_reduce", (20, 40, 80, 900), "yes"),
    ("second", "one", ONE_HOST, "all_gather", (18, 30, 50, 500), "yes"),
    ("third", "two", ONE_HOST, "all_reduce", (24, 44, 84, 910), "yes"),
    ("fourth", "three", TWO_HOSTS, "alltoall", (60, 90, 300, 9000), "yes"),
    ("broken", "three", TWO_HOSTS, "all_reduce", (600, 900, 3000, 90000), "no (a dead NIC)"),
)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index of four healthy runs on three systems and of one with a problem."""
    text = ""
    for name, system, topology, collective, times, healthy in RUNS:
        text += ENTRY.format(
            id=name, system=system, topology=topology, collective=collective, healthy=healthy
        )
        rows = [
            f"{size},{size // 4},float,sum,-1,{time},,,{time * 1.01},,\n"
            for size, time in zip(SIZES, times, strict=True)
        ]
        (tmp_path / f"{name}.csv").write_text(HEADER + "".join(rows))
    path = tmp_path / "index.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def benchmark(index: Path) -> Benchmark:
    return benchmark_of(read_index(index))


def predicted(
    benchmark: Benchmark, time_of: Callable[[float], float], *, width: float = 0.0
) -> Predictions:
    """Predictions made from measured times, with an interval of a width if there is one."""
    times = {}
    for run in benchmark.runs:
        for question in run.questions:
            time = time_of(question.measured_us)
            interval = (time / (1 + width), time * (1 + width)) if width else None
            times[run.name, question.size_bytes] = Prediction(time, interval)
    return Predictions("made", times)


def scored(benchmark: Benchmark, predictions: Predictions) -> Score:
    return score_of(predictions, benchmark, {})


# **** Questions ****


def test_questions_are_the_sizes_of_healthy_runs(benchmark: Benchmark) -> None:
    assert [run.name for run in benchmark.runs] == ["first", "second", "third", "fourth"]
    assert benchmark.question_count() == 16
    assert "a dead NIC" in benchmark.excluded["broken"]


def test_questions_hold_no_measured_time_and_no_prose_of_the_index(benchmark: Benchmark) -> None:
    for text in (questions_csv(benchmark), questions_yaml(benchmark)):
        assert "secret.example" not in text
        assert "123.4" not in text
    for row in csv.DictReader(io.StringIO(questions_csv(benchmark))):
        assert (row["time_us"], row["time_low_us"], row["time_high_us"]) == ("", "", "")
        measured = {f"{time:g}" for _, _, _, _, times, _ in RUNS for time in times}
        facts = {"size_bytes", "ranks", "nodes", "gpus_per_node", "benchmark_version", "date"}
        others = {value for name, value in row.items() if name not in facts}
        assert not measured & others


def test_questions_do_not_depend_on_measured_times(index: Path, benchmark: Benchmark) -> None:
    before = questions_csv(benchmark), questions_yaml(benchmark)
    for table in index.parent.glob("*.csv"):
        rows = list(csv.reader(table.read_text().splitlines()))
        for row in rows[1:]:
            row[5], row[8] = "77.7", "88.8"
        table.write_text("\n".join(",".join(row) for row in rows) + "\n")
    again = benchmark_of(read_index(index))
    assert (questions_csv(again), questions_yaml(again)) == before


def test_both_formats_ask_the_same_questions(benchmark: Benchmark) -> None:
    rows = list(csv.DictReader(io.StringIO(questions_csv(benchmark))))
    assert tuple(rows[0]) == question_columns()
    values = yaml.safe_load(questions_yaml(benchmark))
    assert values["benchmark_version"] == VERSION
    of_yaml = [(run["run"], size) for run in values["runs"] for size in run["sizes_bytes"]]
    assert of_yaml == [(row["run"], int(row["size_bytes"])) for row in rows]
    first = values["runs"][0]
    for name in ("machine", "gpu", "transport", "nccl_version", "launch", "collective", "dtype"):
        assert str(first[name]) == rows[0][name]
    assert first["nccl_variables"] == {"NCCL_ALGO": "Ring", "NCCL_NET": "AWS Libfabric"}
    assert rows[0]["nccl_variables"] == "NCCL_ALGO=Ring NCCL_NET='AWS Libfabric'"


def test_questions_of_the_corpus_are_all_healthy_runs(capsys, tmp_path: Path) -> None:
    done = netsim(capsys, "accuracy", "--questions", tmp_path / "questions.csv")
    assert done.code == 0, done.err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "questions.csv").read_text())))
    assert done.out.startswith(f"{len(rows)} questions of ")
    assert len(rows) > 2000
    assert all(row["benchmark_version"] == str(VERSION) for row in rows)
    assert all(row["machine"] and row["gpu"] and row["launch"] for row in rows)
    assert "not in the benchmark: polaris_a100_2x4_alltoall_2" in done.err


def test_an_index_without_a_healthy_run_has_no_benchmark(index: Path) -> None:
    entries = [entry for entry in read_index(index) if not entry.healthy]
    with pytest.raises(InputError, match="no run of the index can be part"):
        benchmark_of(entries)


def test_a_table_that_asks_a_size_twice_is_excluded_with_the_reason(index: Path) -> None:
    table = index.parent / "first.csv"
    table.write_text(table.read_text() + table.read_text().splitlines()[1] + "\n")
    excluded = benchmark_of(read_index(index)).excluded
    assert "two rows of 8 B" in excluded["first"]


# **** Predictions ****


GOOD = "run,size_bytes,time_us\nfirst,8,20\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run,size_bytes\nfirst,8\n", r"p:1: time_us: no such column.*--questions FILE"),
        ("", r"p:1: run: no such column"),
        ("run,run,size_bytes,time_us\n", r"p:1: run: there are two such columns"),
        (GOOD + "first,8,21\n", r"p:3: run first at 8 B is answered again, first in line 2.*keep"),
        (GOOD + "firts,8,21\n", r"p:3: run: the benchmark has no run 'firts'.*first"),
        (GOOD + ",8,21\n", r"p:3: run: expected the name of a run"),
        (GOOD + "first,9,21\n", r"p:3: size_bytes: run first has 4 sizes.*nearest one is 8"),
        (GOOD + "first,8.5,21\n", r"p:3: size_bytes: expected a whole number of bytes, got '8.5'"),
        (GOOD + "second,8,-1\n", r"p:3: time_us: expected microseconds above 0, got -1"),
        (GOOD + "second,8,nan\n", r"p:3: time_us: expected microseconds above 0, got nan"),
        (GOOD + "second,8,inf\n", r"p:3: time_us: expected microseconds above 0, got inf"),
        (GOOD + "second,8,fast\n", r"p:3: time_us: expected microseconds above 0, got fast"),
        (GOOD + "second,8,3,4\n", r"p:3: more cells than the header has columns"),
        (
            "run,size_bytes,time_us,time_low_us,time_high_us\nfirst,8,20,30,10\n",
            r"p:2: time_low_us: expected at most time_high_us \(10\), got 30",
        ),
        (
            "run,size_bytes,time_us,time_low_us,time_high_us\nfirst,8,20,10,\n",
            r"p:2: time_high_us: expected microseconds above 0, got nothing",
        ),
        (
            "benchmark_version,run,size_bytes,time_us\n0,first,8,20\n",
            r"p:2: benchmark_version: this netsim scores version 1, got '0'.*--questions",
        ),
        ('run,size_bytes,time_us\n"first"x,8,20\n', r"p:2: this is no CSV"),
    ],
)
def test_wrong_rows_are_refused_with_line_and_remedy(
    text: str, message: str, benchmark: Benchmark
) -> None:
    with pytest.raises(InputError) as caught:
        parse_predictions(text, "p", benchmark)
    assert caught.match(message)


def test_unknown_columns_and_rows_of_excluded_runs_are_tolerated(benchmark: Benchmark) -> None:
    text = "weather,run,size_bytes,time_us\nfine,first,8,20\nbad,broken,8,600\n"
    predictions = parse_predictions(text, "p", benchmark)
    assert dict(predictions.times) == {("first", 8): Prediction(20.0)}
    assert predictions.ignored_count == 1


def test_a_row_without_a_time_is_no_answer(benchmark: Benchmark) -> None:
    predictions = parse_predictions(questions_csv(benchmark), "q", benchmark)
    assert not predictions.times
    score = scored(benchmark, predictions)
    assert score.missing == {run.name: SIZES for run in benchmark.runs}
    assert score.bands[ALL].answered == 0


def test_questions_without_an_answer_are_counted_and_named(benchmark: Benchmark) -> None:
    text = "run,size_bytes,time_us\nfirst,8,20\nfirst,131072,40\nsecond,8,18\n"
    score = scored(benchmark, parse_predictions(text, "p", benchmark))
    assert (score.bands[ALL].answered, score.bands[ALL].questions) == (3, 16)
    assert list(missing_lines(score, benchmark)) == [
        "no answer: first: 2 of 4 sizes: 2097152, 134217728 B",
        "no answer: second: 3 of 4 sizes: 131072, 2097152, 134217728 B",
        "no answer: third: all 4 sizes",
        "no answer: fourth: all 4 sizes",
    ]
    assert "# answered: 3 of 16 questions, 2 of 4 runs, 1 of 3 systems" in score_lines(score)


# **** Relations of scores ****


def test_perfect_predictions_score_0(benchmark: Benchmark) -> None:
    score = scored(benchmark, predicted(benchmark, lambda time: time, width=0.1))
    for band in (*BANDS, ALL):
        figures = score.bands[band]
        assert (figures.median, figures.p90, figures.bias) == (0, 0, 0)
        assert figures.median_by_run == 0
        assert figures.within == 1


@pytest.mark.parametrize(("factor", "bias"), [(2.0, 1.0), (0.5, -0.5)])
def test_predictions_that_are_twice_too_slow_or_too_fast_score_100_percent(
    factor: float, bias: float, benchmark: Benchmark
) -> None:
    score = scored(benchmark, predicted(benchmark, lambda time: factor * time, width=0.1))
    for band in (*BANDS, ALL):
        figures = score.bands[band]
        assert figures.median == pytest.approx(1.0)
        assert figures.median_by_run == pytest.approx(1.0)
        assert figures.bias == pytest.approx(bias)
        assert figures.within == 0
    for members in score.classes.values():
        for by_band in members.values():
            assert by_band[ALL].median == pytest.approx(1.0)


def test_the_order_of_rows_and_columns_changes_nothing(benchmark: Benchmark) -> None:
    draw = random.Random(5)
    times = predicted(benchmark, lambda time: time * draw.uniform(0.5, 2), width=0.3).times
    text = predictions_csv(benchmark, times)
    header, *lines = text.splitlines()
    draw.shuffle(lines)
    shuffled = "\n".join([header, *lines]) + "\n"
    columns = header.split(",")[::-1]
    swapped = io.StringIO()
    writer = csv.DictWriter(swapped, columns)
    writer.writeheader()
    writer.writerows(csv.DictReader(io.StringIO(shuffled)))
    usual = scored(benchmark, parse_predictions(text, "p", benchmark))
    for other_text in (shuffled, swapped.getvalue()):
        other = scored(benchmark, parse_predictions(other_text, "p", benchmark))
        assert other.values() == usual.values()


def test_predictions_that_are_written_are_read_back(benchmark: Benchmark) -> None:
    times = predicted(benchmark, lambda time: 1.25 * time, width=0.5).times
    again = parse_predictions(predictions_csv(benchmark, times), "p", benchmark).times
    assert set(again) == set(times)
    for key, prediction in times.items():
        assert again[key].time_us == pytest.approx(prediction.time_us, rel=1e-5)
        assert again[key].interval == pytest.approx(prediction.interval, rel=1e-5)


def test_every_system_weighs_the_same_and_every_run_weighs_the_same(benchmark: Benchmark) -> None:
    """System `one` has two runs with an error of 10 %, system `two` one of 50 %. Two of three runs
    have 10 %; of systems that weigh the same, half of the weight is on either side."""
    factors = {"first": 1.1, "second": 1.1, "third": 1.5}
    times = {
        key: Prediction(prediction.time_us * factors[key[0]])
        for key, prediction in predicted(benchmark, lambda time: time).times.items()
        if key[0] in factors
    }
    figures = scored(benchmark, Predictions("made", times)).bands[ALL]
    assert figures.median_by_run == pytest.approx(0.1)
    assert figures.median is not None
    assert 0.1 < figures.median < 0.5


def test_the_score_of_netsims_own_answers_is_what_accuracy_prints(
    index: Path, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert netsim(capsys, "accuracy", index, "--predict", "own.csv", "--jobs", 1).code == 0
    assert netsim(capsys, "accuracy", index, "--json", "own.json", "--jobs", 1).code == 0
    done = netsim(capsys, "accuracy", index, "--score", "own.csv", "--json", "score.json")
    assert done.code == 0, done.err
    own = json.loads((tmp_path / "own.json").read_text())["bands"]["healthy"]
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["benchmark_version"] == VERSION
    assert set(own) == set(score["bands"])
    for band, error in own.items():
        for name in ("median", "p90", "bias"):
            assert score["bands"][band][name] == pytest.approx(error[name], abs=1e-4)
        assert score["bands"][band]["answered"] == error["points"]
    for name, by_band in score["classes"]["machine, transport, collective"].items():
        collective = name.rpartition(", ")[2]
        points = [
            point
            for point in healthy_points(tmp_path / "own.json")
            if point.collective == collective
        ]
        assert by_band[ALL]["median"] == pytest.approx(error_of(points).median, abs=1e-4)
    assert "not scored: 4 rows" in done.out  # of the run with a problem


def test_predictions_left_out_are_those_that_are_written(index: Path) -> None:
    entries = [entry for entry in read_index(index) if entry.id == "first"]
    point = ComparedPoint("first", "dgx-a100", "all_reduce", 8, 20, 30, "Ring", "LL", True, "one")
    rows = forecast_text(Accuracy((point,), left_out=(replace(point, simulated_us=40.0),)), entries)
    assert [row["time_us"] for row in csv.DictReader(io.StringIO(rows))] == ["40"]


def healthy_points(path: Path) -> list[ComparedPoint]:
    """The points of healthy runs in a result of `netsim accuracy --json`."""
    return [point for point in read_accuracy(path) if point.healthy]


# **** Noise ****


def test_the_floor_is_the_difference_of_repeats_over_the_root_of_2(index: Path) -> None:
    """The two times of each row of an all_reduce differ by 1 %; other collectives have none."""
    entries = read_index(index)
    pairs = repeated_times(entries)
    assert {pair.system for pair in pairs} == {"one", "two"}
    assert len(pairs) == 2 * len(SIZES)
    noise = noise_by_band(pairs)[ALL]
    assert noise.difference == pytest.approx(0.01)
    assert noise.floor == pytest.approx(0.01 / sqrt(2), rel=1e-2)


def test_two_runs_of_one_question_on_one_system_are_repeats(index: Path) -> None:
    text = index.read_text().replace("system: two", "system: one")
    index.write_text(text)
    between = [pair for pair in repeated_times(read_index(index)) if pair.log_ratio > 0.0101]
    assert [pair.size_bytes for pair in between] == list(SIZES)  # first against third


def test_runs_with_a_problem_are_no_repeats(index: Path) -> None:
    broken = [entry for entry in read_index(index) if not entry.healthy]
    assert not repeated_times(broken)
    assert not noise_by_band([])


def test_the_error_beyond_the_floor_is_no_more_than_the_error() -> None:
    for error in (0.0, 0.001, 0.01, 0.3):
        for floor in (0.0, 0.005, 0.02):
            assert 0 <= error_beyond(error, floor) <= error + 1e-12
        assert error_beyond(error, 0.0) == pytest.approx(error)


def test_accuracy_prints_the_noise_beside_the_error(index: Path, capsys, tmp_path: Path) -> None:
    done = netsim(capsys, "accuracy", index, "--only", "first", "--jobs", 1)
    rows = [line.split() for line in done.out.splitlines()]
    (floor,) = [row[2:] for row in rows if row[:1] == ["noise"]]
    (pairs,) = [row[3:] for row in rows if row[:1] == ["pairs"]]
    assert floor == ["0.7"] * 5
    assert pairs == ["1", "1", "1", "1", "4"]
    assert "error beyond the floor, in sample" in done.out


# **** Baselines ****


def test_alpha_and_beta_are_not_fitted_to_the_system_that_they_predict(
    index: Path, benchmark: Benchmark
) -> None:
    before = baseline_of("alpha-beta", benchmark, benchmark).predictions.times
    table = index.parent / "third.csv"
    rows = list(csv.reader(table.read_text().splitlines()))
    for row in rows[1:]:
        row[5], row[8] = str(float(row[5]) * 3), str(float(row[8]) * 3)
    table.write_text("\n".join(",".join(row) for row in rows) + "\n")
    slower = benchmark_of(read_index(index))
    after = baseline_of("alpha-beta", slower, slower).predictions.times
    for key in before:
        if key[0] == "third":
            assert after[key] == before[key]
        elif key[0] == "first":
            assert after[key].time_us > before[key].time_us


def test_alpha_and_beta_are_found_again_from_times_that_they_made(benchmark: Benchmark) -> None:
    made = predicted_by_alpha_beta(benchmark, alpha_us=3.0, slowness=1.5)
    runs = [run for run in made.runs if run.name != "fourth"]
    fit, fit_class = FittedPoints(runs).fit_for(made.runs[0])
    assert fit is not None
    assert fit.alpha_us == pytest.approx(3.0, rel=1e-3)
    assert fit.slowness == pytest.approx(1.5, rel=1e-3)
    assert (fit.systems, fit_class) == (1, ("dgx-a100", "intra"))


def predicted_by_alpha_beta(benchmark: Benchmark, *, alpha_us: float, slowness: float) -> Benchmark:
    """The benchmark with measured times that follow the model exactly."""
    runs = []
    for run in benchmark.runs:
        per_byte_us = run.entry.bus_factor() / link_rate(run) * 1e6
        questions = tuple(
            replace(
                question,
                measured_us=alpha_us * (run.entry.ranks - 1)
                + slowness * per_byte_us * question.size_bytes,
            )
            for question in run.questions
        )
        runs.append(replace(run, questions=questions))
    return Benchmark(tuple(runs), benchmark.excluded)


def test_a_kind_of_machine_that_no_other_system_has_is_fitted_to_a_wider_class(
    benchmark: Benchmark,
) -> None:
    notes = baseline_of("alpha-beta", benchmark, benchmark).notes
    (note,) = [note for note in notes if note.startswith("fourth:")]
    assert "no other system has its machine and transport" in note


def test_nccls_model_answers_all_but_sends_and_receives(
    benchmark: Benchmark, capsys, index: Path, tmp_path: Path
) -> None:
    file = tmp_path / "nccl.csv"
    done = netsim(capsys, "accuracy", index, "--baseline", "nccl-model", "--predictions", file)
    assert done.code == 0, done.err
    assert "nccl-model: fourth: NCCL's tuner has no estimate for alltoall" in done.err
    assert "no answer: fourth: all 4 sizes" in done.err
    times = read_predictions(file, benchmark).times
    assert {run for run, _ in times} == {"first", "second", "third"}
    assert (
        netsim(capsys, "accuracy", index, "--score", file).out.splitlines()[1:]
        == (done.out.splitlines()[1:])
    )


def test_nccls_model_is_the_cost_that_why_shows(benchmark: Benchmark, capsys) -> None:
    times = baseline_of("nccl-model", benchmark, benchmark).predictions.times
    options = ("--nccl", "2.20.3", "--env", "NCCL_ALGO=Ring", "--why", "2M", "--sizes", "2M")
    shown = netsim(capsys, "expect", "dgx-a100", "all_reduce", *options)
    assert shown.code == 0, shown.err
    assert f"{times['first', 2**21].time_us:.1f}" in shown.out


# **** Options ****


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--predictions", "x.csv"], "--predictions: goes with --baseline"),
        (["--score", "x.csv", "--predictions", "y.csv"], "--predictions: goes with --baseline"),
        (["--score", "x.csv", "--questions", "y.csv"], "expected one of these options at a time"),
        (["--questions", "x.csv", "--json", "y"], "--json: goes without --questions"),
        (["--score", "x.csv", "--page", "y.md"], "--page: goes without --score"),
        (["--score", "x.csv", "--leave-out"], "--leave-out: goes without --score"),
        (["--baseline", "alpha-beta", "--jobs", "2"], "--jobs: goes without --baseline"),
        (["--score", "none.csv"], "none.csv: no such file"),
        (["--questions", "index.yaml"], "would be overwritten"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str],
    message: str,
    index: Path,
    capsys,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = netsim(capsys, "accuracy", index, *options)
    assert done.code == 2
    assert message in done.err


def test_an_index_of_training_steps_has_no_benchmark(capsys, tmp_path: Path) -> None:
    done = netsim(
        capsys, "accuracy", "measured/training.yaml", "--questions", tmp_path / "questions.csv"
    )
    assert done.code == 2
    assert "lists training steps" in done.err


def test_only_scores_some_runs_of_a_file(
    benchmark: Benchmark, index: Path, capsys, tmp_path: Path
) -> None:
    file = tmp_path / "all.csv"
    file.write_text(predictions_csv(benchmark, predicted(benchmark, lambda time: time).times))
    done = netsim(capsys, "accuracy", index, "--score", file, "--only", "third")
    assert "# answered: 4 of 4 questions, 1 of 1 runs" in done.out
    assert "# not scored: 12 rows" in done.out


# **** The page ****

PAGE = Path(__file__).parents[2] / "docs" / "benchmark.md"


@pytest.mark.slow
def test_commands_and_code_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as the page has it, but with one run instead of the whole corpus."""
    monkeypatch.chdir(tmp_path)
    commands = 0
    for block in blocks_of(PAGE.read_text(encoding="utf-8")):
        if block.language == "python":
            exec(compile(block.text, "page", "exec"), {})
            continue
        assert block.language == "sh"
        for command in commands_of(block.text):
            assert command.startswith("netsim accuracy --")
            run_command(f"{command} --only h100_sxm_8_all_gather_1")
            commands += 1
    assert commands == 7
    rows = csv.DictReader(io.StringIO((tmp_path / "own.csv").read_text()))
    assert all(float(row["time_us"]) > 0 for row in rows)
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["bands"][ALL]["answered"] == score["bands"][ALL]["questions"] > 20


def test_the_page_explains_every_column_of_the_questions() -> None:
    text = PAGE.read_text(encoding="utf-8")
    first_cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    explained = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert explained == set(question_columns())


@pytest.mark.full
@pytest.mark.parametrize("name", ["nccl-model", "alpha-beta"])
def test_the_page_has_the_scores_of_the_baselines(name: str, capsys) -> None:
    done = netsim(capsys, "accuracy", "--baseline", name, "--quiet")
    printed = [line.split()[-5:-1] for line in done.out.splitlines() if "weighs the same" in line]
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    shown = [[cell.strip() for cell in line.split("|")] for line in lines if f"| {name}" in line]
    assert [cells[3:7] for cells in shown] == printed
