"""`netsim explain` as people use it: text, CSV, JSON, pictures, and what it says to mistakes."""

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from netsim.cli.explain_text import explain_lines
from tests.cli.command import netsim

RING = """\
name: ring
cluster:
  graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}
workload: {collective: all_reduce, algorithm: ring, sizes: [64KiB, 16MiB]}
"""
TRANSFER = 6 * 2**24 / 4 / 50e9 * 1e6


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ring.yaml").write_text(RING)


def test_text_says_where_the_time_goes(capsys) -> None:
    done = netsim(capsys, "explain", "ring.yaml")
    assert done.code == 0
    first = done.out.splitlines()[0]
    assert first.startswith("all_reduce of 16 MiB on 4 GPUs, ring: 509 us from an idle cluster")
    assert "transfer at full rate" in done.out
    assert "What would change it" in done.out
    assert "The critical path, first to last" in done.out


def test_json_and_csv_hold_the_same_values(capsys) -> None:
    found = json.loads(netsim(capsys, "explain", "ring.yaml", "--format", "json").out)
    assert found["causes_us"]["transfer"] == pytest.approx(TRANSFER)
    assert found["causes_us"]["wire"] == pytest.approx(6.0)
    assert sum(found["causes_us"].values()) == pytest.approx(found["time_us"])
    text = netsim(capsys, "explain", "ring.yaml", "--format", "csv").out
    rows = list(csv.DictReader(StringIO(text)))
    causes = {row["name"]: float(row["value"]) for row in rows if row["section"] == "cause"}
    assert causes == found["causes_us"]
    per_unit = next(p for p in found["parameters"] if p["parameter"].endswith("latency"))
    assert per_unit["per_unit"] == pytest.approx(12.0)  # two links a hop, six hops


def test_the_change_per_percent_is_the_simulated_one_where_there_is_one(capsys) -> None:
    found = json.loads(netsim(capsys, "explain", "ring.yaml", "--format", "json").out)
    first, second = found["parameters"][:2]
    first.update(per_percent_us=5.0, per_percent_simulated_us=7.0)
    second.update(per_percent_us=-3.0, per_percent_simulated_us=None)
    lines = list(explain_lines(found, "t"))
    (of_first,) = (line for line in lines if line.startswith(f"  {first['label']}"))
    (of_second,) = (line for line in lines if line.startswith(f"  {second['label']}"))
    assert "+7 us" in of_first
    assert "-3 us" in of_second


def test_files_and_pictures(capsys) -> None:
    done = netsim(capsys, "explain", "ring.yaml", "--size", "1M", "-o", "out")
    assert done.code == 0
    names = {path.name for path in Path("out").iterdir()}
    pictures = {
        f"explain-{p}.{s}" for p in ("breakdown", "tornado", "timeline") for s in ("svg", "png")
    }
    assert names == pictures | {"explain.json", "explain.csv", "run.json"}
    assert json.loads(Path("out/explain.json").read_text())["title"].startswith(
        "all_reduce of 1 MiB"
    )


def test_a_topology_and_a_collective_as_expect_takes_them(capsys) -> None:
    done = netsim(
        capsys,
        "explain",
        "dgx-a100",
        "all_reduce",
        "--algo",
        "ring",
        "--size",
        "8M",
        "--gpus-per-node",
        4,
    )
    assert done.code == 0
    assert "on 4 GPUs, ring" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ring.yaml", "--size", "1X"], "--size 1X: expected a size"),
        (["rin.yaml"], "no such file"),
        (["ring.yaml", "--nodes", "2"], "--nodes: goes with TOPOLOGY COLLECTIVE"),
        (["ring.yaml", "--set", "workload.algorithm=rung"], "did you mean ring?"),
        (["dgx-a100", "all_reduc"], "all_reduce"),
        (["dgx-a100", "all_reduce", "--state"], "shows textbook algorithms"),
    ],
)
def test_mistakes_get_one_clear_message(capsys, arguments: list[str], message: str) -> None:
    done = netsim(capsys, "explain", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (None, "less than 8 us"),
        (8.0, "less than 8 us"),
        (9.0, "less than 8 us (the best known one takes 9 us)"),
    ],
)
def test_limits_are_told_whether_or_not_it_is_known_what_reaches_them(
    best: float | None, said: str
) -> None:
    limit = {"who": "x", "limit_us": 8.0, "best_known_us": best, "of_limit_pct": 80.0, "binds": "y"}
    found = {"time_us": 10.0, "bound_by": "z", "limit": limit}
    line = next(line for line in explain_lines(found, "t") if "reaches" in line)
    assert line.endswith(said)
