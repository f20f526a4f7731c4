"""`measured:` in a scenario: times beside the simulated ones, mistakes with their line."""

from pathlib import Path

import pandas as pd
import pytest

from tests.cli.command import netsim

SCENARIO = """name: overlay
cluster: {machine: rtx2080ti-x2}
workload: {collective: all_reduce, sizes: [8B, 1KiB, 64KiB]}
outputs: [csv]
measured: all_reduce.csv
"""
TABLE = "size_bytes,oop_time_us,ip_time_us\n8,20,10\n65536,40,\n"


def test_measured_times_stand_beside_simulated_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "all_reduce.csv").write_text(TABLE)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = netsim(capsys, "run", tmp_path / "s.yaml", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    rows = pd.read_csv(tmp_path / "out" / "results.csv")
    assert rows["measured_time_us"].tolist()[0] == pytest.approx(10)
    assert rows["measured_time_us"].isna().tolist() == [False, True, False]
    first = rows.iloc[0]
    assert first["error_pct"] == pytest.approx((first["time_us"] / 10 - 1) * 100)


@pytest.mark.parametrize(
    ("table", "message"),
    [(None, "no such file"), ("", "the file is empty"), ("hello\n", "no table of nccl-tests")],
)
def test_a_wrong_file_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str | None, message: str
) -> None:
    if table is not None:
        (tmp_path / "all_reduce.csv").write_text(table)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = netsim(capsys, "run", tmp_path / "s.yaml", "-o", tmp_path / "out")
    assert done.code == 2
    assert "s.yaml:5:11: measured" in done.err
    assert message in done.err
    assert not (tmp_path / "out").exists()


def test_a_file_that_names_no_collective_is_taken_as_the_scenarios(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.csv").write_text(TABLE)
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("all_reduce.csv", "mine.csv"))
    done = netsim(capsys, "run", tmp_path / "s.yaml", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    rows = pd.read_csv(tmp_path / "out" / "results.csv")
    assert rows["measured_time_us"].tolist()[0] == pytest.approx(10)


@pytest.mark.slow
def test_a_report_says_how_far_off_the_measured_times_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "all_reduce.csv").write_text(TABLE)
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("[csv]", "[csv, report]"))
    done = netsim(capsys, "run", tmp_path / "s.yaml", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    errors = pd.read_csv(tmp_path / "out" / "results.csv")["error_pct"].dropna().abs()
    said = f"2 rows with a measured time: median error {errors.median():.1f} %"
    assert said in (tmp_path / "out" / "report.html").read_text()
