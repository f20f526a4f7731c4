"""`netsim optimize` and prices: the best of the declared choices, and what cells cost."""

import csv
from pathlib import Path

import pytest

from netsim.costs import bill_of, load_prices
from netsim.topology.build import build_cluster
from netsim.topology.config import ClusterConfig
from tests.cli.command import netsim

SCENARIO = """\
name: opt
cluster:
  machine: dgx-a100
  nodes: 4
  fabric: {kind: rail-optimized}
workload: {collective: all_reduce, algorithm: hierarchical, sizes: [1MiB, 16MiB]}
prices: default
outputs: [csv]
sweep:
  cluster.fabric.oversubscription: [1, 2]
  cluster.fabric.nic: [100Gbps, 200Gbps]
  workload.algorithm: [ring, hierarchical]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("opt.yaml").write_text(SCENARIO)


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_best_is_what_a_run_of_everything_finds(capsys) -> None:
    done = netsim(capsys, "optimize", "opt.yaml", "-o", "best", "-q")
    assert done.code == 0
    assert netsim(capsys, "run", "opt.yaml", "-o", "all", "-q").code == 0
    largest = [row for row in rows("all/results.csv") if row["size_bytes"] == str(2**24)]
    fastest = min(float(row["time_us"]) for row in largest)
    assert netsim(capsys, "run", "best/best.yaml", "-o", "again", "-q").code == 0
    again = [row for row in rows("again/results.csv") if row["size_bytes"] == str(2**24)]
    assert float(again[0]["time_us"]) == fastest


def test_constraints_and_resumption(capsys) -> None:
    netsim(capsys, "optimize", "opt.yaml", "-o", "best", "-q")
    before = Path("best/journal.jsonl").read_bytes()
    done = netsim(capsys, "optimize", "opt.yaml", "-o", "best", "-q", "--resume",
                  "--objective", "cost_usd", "--subject-to", "time_us < 1e9")  # fmt: skip
    assert done.code == 0
    assert Path("best/journal.jsonl").read_bytes() == before  # nothing was simulated again
    assert "best: oversubscription 2, nic 100Gbps" in done.out
    none = netsim(capsys, "optimize", "opt.yaml", "-o", "best", "-q", "--resume",
                  "--subject-to", "cost_usd < 1")  # fmt: skip
    assert none.code == 2
    assert "no cell meets the constraints" in none.err


def test_a_sampler_tries_some_and_the_same_ones_again(capsys) -> None:
    pytest.importorskip("optuna")
    for folder in ("one", "two"):
        done = netsim(capsys, "optimize", "opt.yaml", "-o", folder, "-q", "--trials", 3)
        assert done.code == 0
        assert done.out.startswith("3 of 8 cells looked at")
    assert Path("one/results.csv").read_bytes() == Path("two/results.csv").read_bytes()


def test_a_bill_counts_ports_cables_and_parts() -> None:
    config = ClusterConfig.model_validate(
        {"machine": "dgx-a100", "nodes": 2, "nics_per_node": 1, "fabric": {"kind": "single-switch"}}
    )
    topology = build_cluster(config).topology
    prices = load_prices()
    found = bill_of(topology, ["A100 SXM4 80GB"] * 16, prices)
    assert (found.switches, found.cables, found.nics, found.gpus) == (1, 2, 2, 16)
    nic, port = prices.nic["200Gbps"], prices.switch_port["200Gbps"]
    optic, cable, gpu = prices.optic["200Gbps"], prices.cable["any"], prices.gpu["A100"]
    usd = 16 * gpu.usd + 2 * nic.usd + 2 * port.usd + 4 * optic.usd + 2 * cable.usd
    watts = 16 * gpu.watts + 2 * nic.watts + 2 * port.watts + 4 * optic.watts
    assert (found.cost_usd, found.power_w) == pytest.approx((usd, watts))


def test_prices_of_ones_own(capsys) -> None:
    text = Path(load_prices.__globals__["SHIPPED"]).read_text()
    Path("mine.yaml").write_text(text.replace("usd: 15000", "usd: 20000"))
    one = netsim(capsys, "run", "opt.yaml", "-q", "-o", "a")
    two = netsim(capsys, "run", "opt.yaml", "-q", "-o", "b", "--set", "prices=mine.yaml")
    assert (one.code, two.code) == (0, 0)
    costs = [[float(row["cost_usd"]) for row in rows(f"{x}/costs.csv")] for x in "ab"]
    assert len(costs[0]) == 8
    assert [b - a for a, b in zip(*costs, strict=True)] == pytest.approx([32 * 5000] * 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "tim_us"], "(did you mean time_us?)"),
        (["--objective", "cost_usd", "--set", "prices=null"], "--objective cost_usd: needs prices"),
        (["--subject-to", "cost <"], "--subject-to: expected a condition"),
        (["--subject-to", "cost < 3"], "constraint: unknown figure 'cost'"),
        (["--set", "sweep={}"], "declares no choices"),
        (["--set", "prices=none.yaml"], "none.yaml: no such file"),
    ],
)
def test_mistakes_get_one_message(capsys, arguments: list[str], message: str) -> None:
    done = netsim(capsys, "optimize", "opt.yaml", "-q", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_mistake_in_a_price_file_has_its_place(capsys) -> None:
    text = Path(load_prices.__globals__["SHIPPED"]).read_text()
    Path("mine.yaml").write_text(text.replace("100Gbps: {usd: 700", "100Gbs: {usd: 700"))
    done = netsim(capsys, "run", "opt.yaml", "-q", "--set", "prices=mine.yaml")
    assert done.code == 2
    assert "mine.yaml:" in done.err
    assert "100Gbs" in done.err


def test_the_best_cell_is_tuned_for_nccl(capsys) -> None:
    text = SCENARIO.replace("algorithm: hierarchical, ", "").replace(
        "  workload.algorithm: [ring, hierarchical]\n", ""
    )
    Path("opt.yaml").write_text(text)
    done = netsim(capsys, "optimize", "opt.yaml", "-o", "best", "-q", "--tuner-out", "table.csv")
    assert done.code == 0
    assert "fastest simulated" in done.out
    tuned = netsim(capsys, "run", "best/best.yaml", "-o", "tuned", "-q",
                   "--set", "nccl.tuner=table.csv")  # fmt: skip
    assert tuned.code == 0
    assert netsim(capsys, "run", "best/best.yaml", "-o", "usual", "-q").code == 0
    for one, other in zip(rows("tuned/results.csv"), rows("usual/results.csv"), strict=True):
        assert float(one["time_us"]) <= float(other["time_us"])
    alone = netsim(capsys, "optimize", "best/best.yaml", "--tuner-out", "alone.csv")
    assert alone.code == 0
    assert Path("alone.csv").read_text() == Path("table.csv").read_text()
