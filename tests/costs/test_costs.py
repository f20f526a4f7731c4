"""Bills of fabrics: switches and cables against the closed forms of each, prices by hand."""

from pathlib import Path

import pytest

from netsim.costs.prices import Bill, bill_of, load_prices
from netsim.scenario.cells import expand
from netsim.sweep.summary import write_costs
from netsim.topology.cluster import build_cluster
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim


def bill(cluster: str) -> Bill:
    text = f"cluster: {cluster}\nworkload: {{collective: broadcast, algorithm: binomial}}\n"
    made = build_cluster(expand(parse_source(text, "bill.yaml"))[0].scenario.cluster)
    models = ["H100"] * len(made.topology)
    return bill_of(made, models, load_prices())


def of_fabric(nodes: int, fabric: str, nics: int = 8) -> Bill:
    return bill(f"{{machine: dgx-h100, nodes: {nodes}, nics_per_node: {nics}, fabric: {fabric}}}")


def test_costs_are_written_where_prices_are_wanted_and_only_there(tmp_path: Path) -> None:
    text = "cluster: {machine: dgx-h100}\nworkload: {collective: broadcast, algorithm: binomial}\n"
    plain, priced = (
        expand(parse_source(text + more, "x.yaml")) for more in ("", "prices: default\n")
    )
    assert write_costs(plain, tmp_path) == []
    assert not [*tmp_path.iterdir()]
    assert write_costs([*plain, *priced], tmp_path) == [str(tmp_path / "costs.csv")]
    header, line = (tmp_path / "costs.csv").read_text().splitlines()
    assert header == "cell,switches,cables,nics,gpus,cost_usd,power_w,usd_per_hour"
    assert line.split(",")[0] == priced[0].id
    assert line.split(",")[4] == "8"


SWEPT = """\
name: priced
prices: default
cluster: {machine: dgx-h100, nodes: 1}
workload: {collective: broadcast, algorithm: binomial, sizes: [1KiB, 1MiB]}
sweep: {cluster.nodes: [1, 2, 3], cluster.nics_per_node: [4, 8]}
outputs: [csv]
"""


@pytest.mark.slow
def test_merged_shards_have_the_costs_of_the_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("priced.yaml").write_text(SWEPT)
    assert netsim(capsys, "run", "priced.yaml", "-q", "-o", "whole").code == 0
    parts = []
    for number in (3, 1, 2):
        parts.append(f"part{number}")
        shard = ("--shard", f"{number}/3", "-o", parts[-1])
        assert netsim(capsys, "run", "priced.yaml", "-q", *shard).code == 0
        assert Path(parts[-1], "costs.csv").exists()
    assert netsim(capsys, "merge", *parts, "-o", "merged").code == 0
    whole, merged = (Path(folder, "costs.csv").read_bytes() for folder in ("whole", "merged"))
    assert merged == whole
    assert len(whole.splitlines()) == 1 + 6
    assert netsim(capsys, "report", "merged", "--no-explain").code == 0
    assert "cost" in Path("merged", "report.html").read_text()


@pytest.mark.slow
def test_merged_shards_without_prices_have_no_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("free.yaml").write_text(SWEPT.replace("prices: default\n", ""))
    for part in ("1/2", "2/2"):
        command = ("run", "free.yaml", "-q", "--shard", part, "-o", part[0])
        assert netsim(capsys, *command).code == 0
    assert netsim(capsys, "merge", "1", "2", "-o", "merged").code == 0
    assert not Path("merged", "costs.csv").exists()


@pytest.mark.parametrize("k", [4, 8])
def test_a_fat_tree_of_k_port_switches(k: int) -> None:
    """k³/4 ports below 5k²/4 switches; each of three levels has k³/4 cables."""
    found = of_fabric(k**3 // 4, "{kind: fat-tree}", nics=1)
    assert (found.switches, found.cables, found.nics) == (5 * k**2 // 4, 3 * k**3 // 4, k**3 // 4)


@pytest.mark.parametrize(("ratio", "uplinks"), [(1, 32), (2, 16), (4, 8)])
def test_a_leaf_spine_has_as_many_uplinks_as_ports_below_over_the_ratio(
    ratio: int, uplinks: int
) -> None:
    """8 leaves of 4 hosts with 8 NICs."""
    fabric = f"{{kind: leaf-spine, oversubscription: {ratio}, nodes_per_leaf: 4}}"
    found = of_fabric(32, fabric)
    assert found.cables == 256 + 8 * uplinks


def test_rails() -> None:
    only, joined = of_fabric(32, "{kind: rail-only}"), of_fabric(32, "{kind: rail-optimized}")
    assert (only.switches, only.cables) == (8, 8 * 32)
    assert joined.cables == 2 * 8 * 32  # as many uplinks as NICs
    assert joined.switches > only.switches
    assert joined.cost_usd > only.cost_usd
    assert joined.power_w > only.power_w


def test_one_switch() -> None:
    found = of_fabric(4, "{kind: single-switch}")
    assert (found.switches, found.cables) == (1, 32)


@pytest.mark.parametrize(("p", "a", "h"), [(2, 4, 2), (1, 2, 1)])
def test_a_dragonfly_has_cables_within_and_between_groups(p: int, a: int, h: int) -> None:
    """a·h + 1 groups of a switches, all joined within a group, h cables of each to other groups."""
    groups = a * h + 1
    shape = f"{{kind: dragonfly, ports_per_router: {p}, routers: {a}, global_links: {h}}}"
    found = of_fabric(groups * a * p, shape, nics=1)
    within, between = groups * a * (a - 1) // 2, groups * a * h // 2
    assert found.switches == groups * a
    assert found.cables == groups * a * p + within + between


def test_tori() -> None:
    found = of_fabric(24, "{kind: torus, dims: [2, 3, 4]}", nics=1)
    assert found.switches == 24
    assert found.cables == 24 + 12 + 24 + 24  # a ring of two is one cable


def test_a_host_alone_has_no_network() -> None:
    alone = bill("{machine: dgx-h100}")
    assert (alone.switches, alone.cables, alone.nics) == (0, 0, 0)
    assert alone.cost_usd == 8 * 30_000


def test_the_sum_is_that_of_the_parts() -> None:
    """32 GPUs, 32 NICs at 400 Gb/s into one switch, each cable with two transceivers."""
    found, prices = of_fabric(4, "{kind: single-switch}"), load_prices()
    parts = [(prices.gpu["H100"], 32), (prices.nic["400Gbps"], 32), (prices.cable["any"], 32),
             (prices.switch_port["400Gbps"], 32), (prices.optic["400Gbps"], 64)]  # fmt: skip
    assert found.cost_usd == pytest.approx(sum(part.usd * n for part, n in parts))
    assert found.power_w == pytest.approx(sum(part.watts * n for part, n in parts))


def test_every_price_says_where_it_is_from() -> None:
    prices = load_prices()
    for table in (prices.gpu, prices.nic, prices.switch_port, prices.optic, prices.cable):
        for part in table.values():
            assert "estimated" in part.source or "as H100" in part.source
