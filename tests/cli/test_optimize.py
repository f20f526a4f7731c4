"""`netsim optimize` and prices: the best of the declared choices, and what cells cost."""

import csv
from pathlib import Path
from statistics import median

import pytest

from netsim.costs.prices import bill_of, load_prices
from netsim.results import row as results
from netsim.results.row import Row
from netsim.sweep import search as trial_search
from netsim.topology.cluster import build_cluster
from netsim.topology.config import ClusterConfig
from netsim.training import resolve
from tests.cli.command import netsim

SCENARIO = """\
name: opt
cluster:
  machine: dgx-a100
  nodes: 4
  gpus_per_node: 4
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


@pytest.mark.slow
def test_the_best_is_what_a_run_of_everything_finds(capsys) -> None:
    done = netsim(capsys, "optimize", "opt.yaml", "-o", "best", "-q")
    assert done.code == 0
    assert netsim(capsys, "run", "opt.yaml", "-o", "all", "-q").code == 0
    largest = [row for row in rows("all/results.csv") if row["size_bytes"] == str(2**24)]
    fastest = min(float(row["time_us"]) for row in largest)
    assert netsim(capsys, "run", "best/best.yaml", "-o", "again", "-q").code == 0
    again = [row for row in rows("again/results.csv") if row["size_bytes"] == str(2**24)]
    assert float(again[0]["time_us"]) == fastest


@pytest.mark.slow
def test_constraints_and_resumption(capsys) -> None:
    netsim(capsys, "optimize", "opt.yaml", "-o", "best", "-q")
    before = Path("best/journal.jsonl").read_bytes()
    done = netsim(
        capsys,
        "optimize",
        "opt.yaml",
        "-o",
        "best",
        "-q",
        "--resume",
        "--objective",
        "cost_usd",
        "--subject-to",
        "time_us < 1e9",
    )
    assert done.code == 0
    assert Path("best/journal.jsonl").read_bytes() == before  # nothing was simulated again
    assert "best: oversubscription 2, nic 100Gbps" in done.out
    none = netsim(
        capsys,
        "optimize",
        "opt.yaml",
        "-o",
        "best",
        "-q",
        "--resume",
        "--subject-to",
        "cost_usd < 1",
    )
    assert none.code == 2
    assert "no cell meets the constraints: none has cost_usd < 1 (cost_usd is " in none.err


@pytest.mark.slow
def test_a_sampler_tries_some_and_the_same_ones_again(capsys) -> None:
    pytest.importorskip("optuna")
    for folder in ("one", "two"):
        done = netsim(capsys, "optimize", "opt.yaml", "-o", folder, "-q", "--trials", 3)
        assert done.code == 0
        assert done.out.startswith("3 of 8 cells looked at")
    assert Path("one/results.csv").read_bytes() == Path("two/results.csv").read_bytes()


SEEDED = """\
name: seeded
cluster:
  machine: dgx-h100
  nodes: 4
  gpus_per_node: 4
  fabric: {kind: leaf-spine, nodes_per_leaf: 2, routing: ecmp}
workload: {collective: all_reduce, algorithm: hierarchical, sizes: [4MiB]}
outputs: [csv]
sweep:
  cluster.fabric.oversubscription: [1, 2]
  cluster.fabric.qps: [1, 4]
  seeds: 3
"""


@pytest.mark.full
def test_seeds_are_no_choices_and_the_middle_one_counts(capsys) -> None:
    Path("seeded.yaml").write_text(SEEDED)
    done = netsim(capsys, "optimize", "seeded.yaml", "-o", "best", "-q")
    assert done.code == 0
    assert done.out.startswith("4 of 4 choices, 3 seeds each, looked at, 0 failed")
    times: dict[tuple[str, str], list[float]] = {}
    for row in rows("best/results.csv"):
        key = row["axis:cluster.fabric.oversubscription"], row["axis:cluster.fabric.qps"]
        times.setdefault(key, []).append(float(row["time_us"]))
    assert [len(set(each)) > 1 for each in times.values()].count(True) >= 2  # luck matters
    best = min(times, key=lambda key: median(times[key]))
    assert f"best: oversubscription {best[0]}, qps {best[1]} (medians over seeds)" in done.out
    assert f"{median(times[best]):.6g}" in done.out
    swept = netsim(capsys, "run", "seeded.yaml", "-o", "all", "-q")
    assert netsim(capsys, "run", "best/best.yaml", "-o", "again", "-q").code == swept.code == 0
    again = [float(row["time_us"]) for row in rows("again/results.csv")]
    assert again == times[best]


@pytest.mark.full
def test_workers_find_what_one_process_does(capsys) -> None:
    """Also for choices that do not fit: halving and doubling needs a power of two."""
    text = SCENARIO.replace("[ring, hierarchical]", "[ring, hierarchical, halving-doubling]")
    Path("opt.yaml").write_text(text.replace("nodes: 4", "nodes: 3"))
    one = netsim(capsys, "optimize", "opt.yaml", "-o", "one", "-q")
    two = netsim(capsys, "optimize", "opt.yaml", "-o", "two", "-q", "--jobs", 2)
    assert one.code == two.code == 0
    assert one.out == two.out
    assert Path("one/results.csv").read_bytes() == Path("two/results.csv").read_bytes()


@pytest.mark.slow
def test_cells_that_cannot_be_are_refused_or_left_out(capsys) -> None:
    Path("opt.yaml").write_text(SCENARIO.replace("[100Gbps, 200Gbps]", "[100Gbps, 0Gbps]"))
    refused = netsim(capsys, "optimize", "opt.yaml", "-o", "best", "-q")
    assert refused.code == 2
    assert "--skip-invalid runs the other 4" in refused.err
    assert not Path("best").exists()
    done = netsim(capsys, "optimize", "opt.yaml", "-o", "best", "-q", "--skip-invalid")
    assert done.code == 0
    assert done.out.startswith("4 of 4 cells looked at")


def test_a_bill_counts_ports_cables_and_parts() -> None:
    config = ClusterConfig.model_validate(
        {"machine": "dgx-a100", "nodes": 2, "nics_per_node": 1, "fabric": {"kind": "single-switch"}}
    )
    cluster = build_cluster(config)
    prices = load_prices()
    found = bill_of(cluster, ["A100 SXM4 80GB"] * 16, prices)
    assert (found.switches, found.cables, found.nics, found.gpus) == (1, 2, 2, 16)
    nic, port = prices.nic["200Gbps"], prices.switch_port["200Gbps"]
    optic, cable, gpu = prices.optic["200Gbps"], prices.cable["any"], prices.gpu["A100"]
    usd = 16 * gpu.usd + 2 * nic.usd + 2 * port.usd + 4 * optic.usd + 2 * cable.usd
    watts = 16 * gpu.watts + 2 * nic.watts + 2 * port.watts + 4 * optic.watts
    assert (found.cost_usd, found.power_w) == pytest.approx((usd, watts))


BY_HAND = [
    # Four hosts of 8 NICs. Each of 8 leaves, one a rail, has 4 of them below and as many cables up.
    ("rail-optimized", {}, 32, 32),
    ("leaf-spine", {}, 32, 32),
    ("leaf-spine", {"oversubscription": 2}, 32, 16),
    # 32 NICs need a fat tree of 6 ports a switch: 54 places, 54 cables below and above its middle.
    ("fat-tree", {}, 32, 2 * 54),
]


@pytest.mark.parametrize(("kind", "numbers", "access", "trunk"), BY_HAND)
@pytest.mark.parametrize(("nic", "machine"), [("200Gbps", "dgx-a100"), ("400Gbps", "dgx-h100")])
def test_bills_of_fabrics_are_those_counted_by_hand(
    kind, numbers, access, trunk, nic, machine
) -> None:
    fabric = {"kind": kind, **numbers}
    config = {"machine": machine, "nodes": 4, "nic": nic, "fabric": fabric}
    cluster = build_cluster(ClusterConfig.model_validate(config))
    prices = load_prices()
    found = bill_of(cluster, [], prices)
    assert (found.nics, found.cables) == (32, access + trunk)
    parts = (prices.nic[nic], prices.optic[nic], prices.switch_port[nic], prices.cable["any"])
    counts = (32, 2 * (access + trunk), access + 2 * trunk, access + trunk)
    usd = sum(part.usd * count for part, count in zip(parts, counts, strict=True))
    watts = sum(part.watts * count for part, count in zip(parts, counts, strict=True))
    assert (found.cost_usd, found.power_w) == pytest.approx((usd, watts))


def test_parts_are_billed_at_the_rate_on_their_label() -> None:
    """TCP takes 4.7 GB/s of a NIC whatever its rate; a NIC of two ports is still one NIC."""
    prices = load_prices()
    config = {"machine": "rtx4090-x8", "nodes": 2, "nic": "400Gbps"}
    slow = bill_of(build_cluster(ClusterConfig.model_validate(config)), [], prices)
    part, port, optic = (
        getattr(prices, kind)["400Gbps"] for kind in ("nic", "switch_port", "optic")
    )
    cable = prices.cable["any"]
    assert slow.cost_usd == 2 * (part.usd + port.usd + 2 * optic.usd + cable.usd)
    config["fabric"] = {"kind": "dual-plane"}
    two = bill_of(build_cluster(ClusterConfig.model_validate(config)), [], prices)
    port, optic = prices.switch_port["200Gbps"], prices.optic["200Gbps"]
    assert two.cables == 4
    assert two.cost_usd == 2 * part.usd + 4 * (port.usd + 2 * optic.usd + cable.usd)


@pytest.mark.slow
def test_what_failed_was_bought_all_the_same(capsys) -> None:
    text = (
        SCENARIO.partition("sweep:")[0]
        + """\
sweep:
  cluster.faults: [[], [{nic: node1.nic3}], [{link: leaf0-spine0, bandwidth: 0%}]]
"""
    )
    Path("opt.yaml").write_text(text)
    assert netsim(capsys, "run", "opt.yaml", "-q", "-o", "out").code == 0
    assert len({row["cost_usd"] for row in rows("out/costs.csv")}) == 1
    assert len(rows("out/costs.csv")) == 3


@pytest.mark.slow
def test_prices_of_ones_own(capsys) -> None:
    text = Path(load_prices.__globals__["SHIPPED"]).read_text()
    Path("mine.yaml").write_text(text.replace("usd: 15000", "usd: 20000"))
    one = netsim(capsys, "run", "opt.yaml", "-q", "-o", "a")
    two = netsim(capsys, "run", "opt.yaml", "-q", "-o", "b", "--set", "prices=mine.yaml")
    assert (one.code, two.code) == (0, 0)
    costs = [[float(row["cost_usd"]) for row in rows(f"{x}/costs.csv")] for x in "ab"]
    assert len(costs[0]) == 8
    assert [b - a for a, b in zip(*costs, strict=True)] == pytest.approx([16 * 5000] * 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "tim_us"], "(did you mean time_us?)"),
        (["--objective", "cost_usd", "--set", "prices=null"], "--objective cost_usd: needs prices"),
        (["--subject-to", "cost <"], "--subject-to: expected a condition"),
        (["--subject-to", "cost < 3"], "--subject-to: unknown figure 'cost'"),
        (["--subject-to", "power_w < 3", "--set", "prices=null"], "power_w needs prices"),
        (["--set", "sweep={}"], "declares no choices"),
        (["--set", "prices=none.yaml"], "none.yaml: no such file"),
    ],
)
def test_mistakes_get_one_message(capsys, arguments: list[str], message: str) -> None:
    done = netsim(capsys, "optimize", "opt.yaml", "-q", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_what_cannot_be_found_is_refused_before_anything_is_simulated(capsys) -> None:
    done = netsim(capsys, "optimize", "opt.yaml", "-o", "none", "--subject-to", "memory_GB < 3")
    assert done.code == 2
    assert not Path("none").exists()


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (["time_us < 50us"], "'50us' in time_us < 50us; time_us is a plain number, such as "),
        (["oversubscription > 2"], "oversubscription is one of 1, 2"),
        (["algorithm == 'Ring'"], "algorithm is one of 'ring', 'hierarchical'"),
        (["oversubscription < 2", "oversubscription > 1"], "but no cell meets all of them"),
    ],
)
def test_constraints_that_nothing_meets_say_what_there_is(capsys, constraints, message) -> None:
    options = [word for text in constraints for word in ("--subject-to", text)]
    done = netsim(capsys, "optimize", "opt.yaml", "-q", *options)
    assert done.code == 2
    assert message in " ".join(done.err.split())


@pytest.mark.slow
def test_what_may_be_off_by_much_is_not_the_best(capsys, monkeypatch) -> None:
    trials = [
        trial_search.Trial(
            trial_search.LayoutChoice({}, ()),
            (Row(approximation_pct=off),),
            {"time_us": time},
            True,
        )
        for time, off in ((3.0, None), (1.0, 5.1), (2.0, 4.9))
    ]
    best = trial_search.best_of(trials, "time_us")
    assert best is not None
    assert best.figures == {"time_us": 2.0}
    monkeypatch.setattr(results, "DOUBTFUL", -1.0)
    done = netsim(capsys, "optimize", "opt.yaml", "-q", "-o", "best")
    assert done.code == 2
    assert "no cell is sure enough to be the best: 8 with error bounds of up to" in done.err
    assert not Path("best/best.yaml").exists()


LAYOUTS = """\
cluster: {machine: dgx-h100, nodes: 1}
workload:
  model: {layers: 4, hidden: 1024, heads: 8, ffn: 4096, vocabulary: 8000, sequence: 512}
  batch: 16
  parallelism: {tp: 1}
nccl: {version: 2.20}
sweep: {workload.parallelism.tp: [1, 2, 4]}
"""


@pytest.mark.full
def test_a_layout_that_fits_in_memory_is_found_and_reproduced(capsys) -> None:
    Path("layouts.yaml").write_text(LAYOUTS)
    free = netsim(capsys, "optimize", "layouts.yaml", "-o", "free", "-q")
    assert "best: tp 1" in free.out
    memory = float(free.out.partition("memory_GB")[2].split()[0])
    tight = netsim(
        capsys,
        "optimize",
        "layouts.yaml",
        "-o",
        "free",
        "-q",
        "--resume",
        "--subject-to",
        f"memory_GB < {memory * 0.99} and tp < 4",
    )
    assert tight.code == 0, tight.err
    assert "best: tp 2" in tight.out
    assert "version: 2.20" in Path("free/best.yaml").read_text()
    assert netsim(capsys, "run", "free/best.yaml", "-o", "again", "-q").code == 0
    found = [row for row in rows("free/results.csv") if row["axis:workload.parallelism.tp"] == "2"]
    assert rows("again/results.csv")[0]["step_time_us"] == found[0]["step_time_us"]
    assert rows("again/results.csv")[0]["cell"] == found[0]["cell"]


MANY_LAYOUTS = """\
name: layouts
cluster: {machine: dgx-h100, gpus_per_node: 4}
workload:
  model: {layers: 4, hidden: 2048, heads: 32, ffn: 8192, vocabulary: 50000}
  batch: 16
  parallelism: {data: distributed-optimizer}
sweep:
  workload.parallelism.tp: [1, 2]
  workload.parallelism.pp: [1, 2]
  workload.micro_batch: [1, 2, 64]
"""


@pytest.mark.full
def test_many_layouts_are_told_first_and_the_best_are_simulated(capsys) -> None:
    Path("layouts.yaml").write_text(MANY_LAYOUTS)
    done = netsim(capsys, "optimize", "layouts.yaml", "-o", "best", "-q")
    assert done.code == 0
    assert "5 of 12 cells looked at, 0 failed" in done.out
    told = rows("best/layouts.csv")
    able = [float(row["told_step_time_us"]) for row in told if not row["refused"]]
    assert (len(told), able) == (12, sorted(able))
    assert f"{12 - len(able)} refused (layouts.csv)" in done.out
    assert all("divided into micro-batches of 64" in row["refused"] for row in told[len(able) :])
    assert netsim(capsys, "run", "layouts.yaml", "-o", "all", "-q", "--skip-invalid").code in (0, 1)
    whole = {
        row["axis:workload.parallelism.tp"]
        + row["axis:workload.parallelism.pp"]
        + row["axis:workload.micro_batch"]: row["step_time_us"]
        for row in rows("all/results.csv")
    }
    for row in told[: len(able)]:
        name = (
            row["axis:workload.parallelism.tp"]
            + row["axis:workload.parallelism.pp"]
            + row["axis:workload.micro_batch"]
        )
        assert float(row["told_step_time_us"]) == pytest.approx(float(whole[name]), rel=0.02)
    fastest = min(float(time) for time in whole.values() if time)
    assert f"{fastest / 1e3:,.1f} ms" in done.out


@pytest.mark.slow
def test_layouts_too_large_to_run_each_rank_are_told_and_that_of_the_file_has_a_place(
    capsys, monkeypatch
) -> None:
    own = MANY_LAYOUTS.replace("parallelism: {", "micro_batch: 2\n  parallelism: {tp: 2, pp: 2, ")
    # Another batch than in other tests: what is resolved for those knows that it is not large.
    Path("layouts.yaml").write_text(own.replace("batch: 16", "batch: 32"))
    monkeypatch.setattr(resolve, "MOST_TASKS", 0)
    done = netsim(capsys, "optimize", "layouts.yaml", "-o", "told", "-q", "--jobs", "1")
    assert done.code == 0, done.err
    told = [row for row in rows("told/layouts.csv") if not row["refused"]]
    found = rows("told/results.csv")
    assert all(
        "; one rank of each stage simulated for all " in row["approximation"] for row in found
    )
    assert all(row["bound_by"] for row in found)
    times = [float(row["told_step_time_us"]) for row in told]
    assert [float(row["step_time_us"]) for row in found] == pytest.approx(times[:5], rel=0.01)
    (mine,) = [k for k, row in enumerate(told, 1) if [*row.values()][:3] == ["2", "2", "2"]]
    assert mine > 1
    assert f"against the best estimate, place {mine} of {len(told)}" in done.out
    assert netsim(capsys, "run", "told/best.yaml", "-o", "again", "-q").code == 0
    best = float(rows("again/results.csv")[0]["step_time_us"])
    assert best == pytest.approx(times[0], rel=0.01)


@pytest.mark.slow
def test_layouts_that_a_sampler_decides_for_are_not_told_as_well(capsys) -> None:
    pytest.importorskip("optuna")
    Path("layouts.yaml").write_text(MANY_LAYOUTS)
    some = netsim(capsys, "optimize", "layouts.yaml", "-o", "some", "-q", "--trials", "6")
    assert some.code == 0, some.err
    assert "6 of 12 cells looked at" in some.out
    assert "estimated by one rank" not in some.out
    assert not Path("some/layouts.csv").exists()


@pytest.mark.slow
def test_gpus_that_are_in_use_are_billed_by_their_own_model(capsys) -> None:
    text = """\
cluster:
  groups: [{machine: dgx-h100, gpus: [0, 1]}, {machine: dgx-a100, nodes: 1}]
workload: {collective: all_reduce, algorithm: ring, sizes: [1KiB]}
prices: default
sweep: {workload.algorithm: [ring, direct]}
outputs: [csv]
"""
    Path("mixed.yaml").write_text(text)
    assert netsim(capsys, "run", "mixed.yaml", "-o", "mixed", "-q").code == 0
    prices = load_prices()
    groups = [{"machine": "dgx-h100", "gpus": [0, 1]}, {"machine": "dgx-a100", "nodes": 1}]
    config = ClusterConfig.model_validate({"groups": groups})
    models = ["H100"] * 2 + ["A100"] * 8
    bill = bill_of(build_cluster(config), models, prices)
    assert float(rows("mixed/costs.csv")[0]["cost_usd"]) == pytest.approx(bill.cost_usd)


def test_a_mistake_in_a_price_file_has_its_place(capsys) -> None:
    text = Path(load_prices.__globals__["SHIPPED"]).read_text()
    Path("mine.yaml").write_text(text.replace("100Gbps: {usd: 700", "100Gbs: {usd: 700"))
    done = netsim(capsys, "run", "opt.yaml", "-q", "--set", "prices=mine.yaml")
    assert done.code == 2
    assert "mine.yaml:" in done.err
    assert "100Gbs" in done.err


@pytest.mark.full
def test_the_best_cell_is_tuned_for_nccl(capsys) -> None:
    text = SCENARIO.replace("algorithm: hierarchical, ", "").replace(
        "  workload.algorithm: [ring, hierarchical]\n", ""
    )
    Path("opt.yaml").write_text(text)
    done = netsim(capsys, "optimize", "opt.yaml", "-o", "best", "-q", "--tuner-out", "table.csv")
    assert done.code == 0
    assert "fastest simulated" in done.out
    tuned = netsim(
        capsys, "run", "best/best.yaml", "-o", "tuned", "-q", "--set", "nccl.tuner=table.csv"
    )
    assert tuned.code == 0
    assert netsim(capsys, "run", "best/best.yaml", "-o", "usual", "-q").code == 0
    for one, other in zip(rows("tuned/results.csv"), rows("usual/results.csv"), strict=True):
        assert float(one["time_us"]) <= float(other["time_us"])
    alone = netsim(capsys, "optimize", "best/best.yaml", "--tuner-out", "alone.csv")
    assert alone.code == 0
    assert Path("alone.csv").read_text() == Path("table.csv").read_text()
