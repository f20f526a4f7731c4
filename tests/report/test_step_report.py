"""The report of training steps: why they take so long, their breakdown, what they cost."""

import csv
import re
from pathlib import Path

import pandas as pd
import pytest

from netsim.report.report import sheet_of
from tests.cli.command import netsim

pytestmark = pytest.mark.slow  # each test draws a whole report

SCENARIO = """\
# Two or four pipeline stages?
name: steps
cluster: {machine: dgx-h100, nodes: 1, gpus_per_node: 4}
workload:
  model: bert-base
  batch: 32
  sequence: 128
  parallelism: {data: zero1}
  replicas: {overlap: true}
sweep: {workload.parallelism.pp: [1, 2]}
prices: default
outputs: [csv, report]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steps")


@pytest.fixture
def folder(place: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run with its report, made once."""
    out = place / "out"
    if not (out / "report.html").exists():
        scenario = place / "steps.yaml"
        scenario.write_text(SCENARIO)
        assert netsim(capsys, "run", scenario, "-q", "-o", out).code == 0
    return out


def page(folder: Path) -> str:
    """The words of the page, without pictures and scripts."""
    text = (folder / "report.html").read_text()
    text = re.sub(r"<script.*?</script>|<style>.*?</style>|data:[^\"]+", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.full
def test_a_step_has_its_why_with_pictures_and_tables(folder: Path) -> None:
    words = page(folder)
    assert "Where the time goes: a training step of bert-base" in words
    assert "What would change it" in words
    assert "most of it" in words
    for column in ("computing", "exposed dp", "exposed pp", "waiting for launches", "bubble"):
        assert column in words
    assert "the calls that cost most" in words
    for name in ("step", "step-other", "what-if", "topology"):
        assert (folder / "pictures" / f"{name}.svg").exists()


def test_a_step_has_its_costs_where_prices_are_known(folder: Path) -> None:
    costs = {line["cell"]: line for line in lines(folder / "costs.csv")}
    steps = lines(folder / "breakdown.csv")
    best = min(steps, key=lambda line: float(line["step_time_us"]))
    hourly = float(costs[best["cell"]]["usd_per_hour"])
    a_step = hourly * float(best["step_time_us"]) / 3.6e9
    tokens = 32 * 128
    words = page(folder)
    assert f"cost of a step ${a_step:.3g}" in words
    assert f"${a_step / tokens * 1e6:.3g} a million tokens" in words


def test_warnings_of_steps_stand_beside_the_answer(folder: Path) -> None:
    assert "workload.replicas.overlap changes nothing" in page(folder)


def test_the_table_of_steps_has_throughput_and_costs() -> None:
    figures = {"step_time_us": [1.0, 2.0], "usd_per_step": [0.1, 0.2], "tokens_per_s": [5, 4]}
    table = pd.DataFrame({"status": "ok", "approximation_pct": [None, None], **figures})
    titles = [column["title"] for column in sheet_of(table, [])["columns"]]
    assert {"step time", "cost of a step (USD)", "tokens/s"} <= {*titles}
