"""`--set` on scenarios that sweep: nothing that is set is without effect, silently."""

import csv
from pathlib import Path

import pytest

from tests.cli.command import netsim

SCENARIO = """\
name: sweeping
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1MiB]}
outputs: [csv]
sweep:
  cluster.graph.gpus: [4, 8]
  workload.algorithm: [ring, direct]
  zip: {cluster.graph.latency: [1us, 2us], seed: [1, 2]}
  variants:
    network:
      slow: {cluster.graph.bandwidth: 10GB/s}
      fast: {cluster.graph.bandwidth: 100GB/s}
  base: {cluster.graph.gpus: 4, network: slow}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)


def rows(capsys, *settings: str) -> list[dict[str, str]]:
    options = [part for one in settings for part in ("--set", one)]
    assert netsim(capsys, "run", "s.yaml", "-q", "-o", "out", *options).code == 0
    with Path("out/results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_swept_key_that_is_set_is_an_axis_no_more(capsys) -> None:
    everything = rows(capsys)
    found = rows(capsys, "cluster.graph.gpus=8")
    assert "axis:cluster.graph.gpus" not in found[0]
    assert {row["ranks"] for row in found} == {"8"}
    wanted = [row["time_us"] for row in everything if row["axis:cluster.graph.gpus"] == "8"]
    assert [row["time_us"] for row in found] == wanted
    assert len(rows(capsys, "cluster.graph.gpus=16")) == 8  # also one that was not swept


@pytest.mark.full
def test_a_report_is_of_what_ran(capsys) -> None:
    found = rows(capsys, "cluster.graph.gpus=8", "network=fast")
    assert netsim(capsys, "report", "out").code == 0
    page = Path("out/report.html").read_text()
    assert "network fast" in page or "fast" in page
    assert f"{len(found)} rows, all answered" in page


@pytest.mark.slow
def test_a_variant_is_chosen_by_the_name_of_its_axis(capsys) -> None:
    found = rows(capsys, "network=fast", "workload.algorithm=direct")
    assert {row["axis:network"] for row in found} == {"fast"}
    assert len(found) == 4


@pytest.mark.slow
def test_the_axes_themselves_can_be_set(capsys) -> None:
    assert len(rows(capsys, "sweep.cluster.graph.gpus=[4]")) == 8
    assert len(rows(capsys, "sweep=null")) == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("network=fats", "expected a variant (slow, fast), got 'fats' (did you mean fast?)"),
        (
            "cluster.graph.bandwidth=1GB/s",
            "every point of sweep.variants.network sets cluster.graph.bandwidth again",
        ),
        ("seed=3", "every point of sweep.zip sets seed again"),
        ("cluster.graph.gpus.x=3", "every point of sweep.cluster.graph.gpus sets"),
    ],
)
def test_what_would_be_in_vain_is_refused(capsys, setting: str, message: str) -> None:
    done = netsim(capsys, "run", "s.yaml", "-q", "-o", "out", "--set", setting)
    assert done.code == 2
    assert message in done.err
    assert not Path("out").exists()
