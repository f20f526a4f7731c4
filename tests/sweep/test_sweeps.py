"""Sweeps: every kind of axis, conditions, base lines, seeds; what is said before and after."""

import csv
import re
import sqlite3
from pathlib import Path

import pytest

from netsim.scenario.cells import expand, expand_all
from netsim.tasks.answer import checked, load_source
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim

HEAD = """\
name: sweep
cluster:
  graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}
workload: {collective: all_reduce, algorithm: ring, sizes: [64KiB, 1MiB]}
outputs: [csv]
"""
HOSTS = """\
name: hosts
cluster:
  machine: dgx-a100
  nodes: 2
  fabric: {kind: rail-optimized, oversubscription: 1}
workload: {collective: all_reduce, algorithm: ring, sizes: [1MiB]}
outputs: [csv]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NETSIM_CACHE", str(tmp_path / "cache.sqlite"))


def points(sweep: str, head: str = HEAD) -> list[dict[str, object]]:
    return [dict(cell.axes) for cell in expand(parse_source(f"{head}sweep:\n{sweep}", "x.yaml"))]


def values(sweep: str, head: str = HEAD) -> list[object]:
    return [next(iter(point.values())) for point in points(sweep, head)]


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("cluster.graph.gpus: [2, 8]", [2, 8]),
        ("cluster.graph.gpus: {from: 2, to: 5, step: 1}", [2, 3, 4, 5]),
        ("cluster.graph.gpus: {from: 2, to: 20, factor: 3}", [2, 6, 18]),
        ("cluster.graph.gpus: {from: 4, to: 4, factor: 3}", [4]),
        ("cluster.graph.gpus: {from: 4, to: 4, step: 1}", [4]),
        (
            "cluster.graph.bandwidth: {from: 100Gbps, to: 800Gbps, factor: 2}",
            ["100Gbps", "200Gbps", "400Gbps", "800Gbps"],
        ),
        (
            "cluster.graph.latency: {from: 0.5us, to: 2us, step: 0.5us}",
            ["0.5us", "1us", "1.5us", "2us"],
        ),
        ("workload.sizes: {from: 256KiB, to: 1MiB, factor: 2}", [2**18, 2**19, 2**20]),
    ],
)
def test_values_of_an_axis(axis: str, expected: list[object]) -> None:
    assert values(f"  {axis}\n") == expected


def test_zipped_axes_go_forward_together() -> None:
    sweep = "  zip: {cluster.graph.gpus: [2, 4], workload.sizes: [[1KiB], [2KiB]]}\n"
    sweep += "  workload.algorithm: [ring, tree]\n"
    found = points(sweep)
    assert [p["cluster.graph.gpus"] for p in found] == [2, 2, 4, 4]
    assert [p["workload.sizes"] for p in found] == ["1KiB", "1KiB", "2KiB", "2KiB"]


def test_variants_change_several_keys() -> None:
    sweep = """\
  variants:
    design:
      fast: {cluster.graph.bandwidth: 100GB/s, cluster.graph.latency: 2us}
      slow: {cluster.graph.bandwidth: 25GB/s}
      plain:
"""
    cells = expand(parse_source(f"{HEAD}sweep:\n{sweep}", "x.yaml"))
    assert [cell.axes for cell in cells] == [{"design": n} for n in ("fast", "slow", "plain")]
    graphs = [cell.scenario.cluster.graph for cell in cells]
    assert [(g.bandwidth, g.latency) for g in graphs] == [(100e9, 2e-6), (25e9, 1e-6), (50e9, 1e-6)]


def test_files_by_pattern_and_presets() -> None:
    found = values("  cluster.machine: {files: 'topologies/dgx-[ah]100.yaml'}\n", HOSTS)
    assert [Path(str(name)).name for name in found] == ["dgx-a100.yaml", "dgx-h100.yaml"]


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("skip: cluster.graph.gpus > 4", [2, 4]),
        ("only: cluster.graph.gpus in [2, 8]", [2, 8]),
        ("only: cluster.graph.gpus < 5e0", [2, 4]),
        ("skip: [cluster.graph.gpus == 2, cluster.graph.gpus > 4 and name == name]", [4]),
        ("skip: cluster.graph.bandwidth < 60GB/s and cluster.graph.gpus * 2 > 8", [2, 4]),
        ("only: not cluster.graph.gpus % 4 == 0", [2]),
    ],
)
def test_conditions_leave_cells_out(condition: str, left: list[int]) -> None:
    assert values(f"  cluster.graph.gpus: [2, 4, 8]\n  {condition}\n") == left


@pytest.mark.slow
def test_versions_stay_as_they_were_written_and_compare_as_numbers(capsys) -> None:
    sweep = "sweep:\n  nccl.version: [2.18, 2.20, 2.27]\n  skip: nccl.version > 2.25\n"
    Path("x.yaml").write_text(HOSTS.replace("algorithm: ring, ", "") + sweep)
    done = netsim(capsys, "run", "x.yaml", "-q", "-o", "out")
    assert done.code == 0, done.err
    assert [row["axis:nccl.version"] for row in rows("out/results.csv")] == ["2.18", "2.20"]
    before = Path("out/results.csv").read_bytes()
    again = netsim(capsys, "run", "x.yaml", "-q", "-o", "out", "--resume")
    assert again.code == 0
    assert Path("out/results.csv").read_bytes() == before


def test_seeds_are_the_fastest_axis() -> None:
    found = points("  cluster.graph.gpus: [2, 4]\n  seeds: 3\n")
    assert [tuple(point.values()) for point in found] == [
        (2, 1),
        (2, 2),
        (2, 3),
        (4, 1),
        (4, 2),
        (4, 3),
    ]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("  cluster.graph.gpus: []", "7:23: sweep.cluster.graph.gpus: expected at least one value"),
        ("  cluster.graph.gpu: [2]", "unknown key 'gpu' (did you mean gpus?)"),
        ("  cluster.graph.gpus: {from: 4, to: 2, step: 1}", "ends at 2, before it begins at 4"),
        ("  cluster.graph.gpus: {from: 2, to: 4, stp: 1}", "(did you mean step?)"),
        ("  cluster.graph.gpus: {from: 2, to: 4}", "either a step or a factor"),
        ("  cluster.graph.gpus: {from: 2, to: 4, factor: 1}", "expected a factor above 1"),
        ("  cluster.graph.bandwidth: {from: 1GB/s, to: 400Gbps, factor: 2}", "in one unit"),
        ("  cluster.graph.gpus: 4", "expected a list, {from, to, step}"),
        ("  cluster.machine: {files: 'no/*.yaml'}", "no file matches 'no/*.yaml'"),
        ("  zip: {cluster.graph.gpus: [2, 4], seed: [1]}", "got cluster.graph.gpus: 2, seed: 1"),
        ("  zip: {cluster.graph.gpus: [2, 4]}", "7:8: sweep.zip: expected two or more keys"),
        ("  zip: [{cluster.graph.gpus: [2, 4]}]", "7:9: sweep.zip.0: expected two or more keys"),
        ("  variants: {}", "expected {axis: {name"),
        ("  variants: {a: {b: 3}}", "expected keys and their values, got 3"),
        ("  variants: {a b: {b: }}", "expected a name of letters"),
        ("  name: [a]", "name cannot be swept"),
        ("  cluster.graph.gpus: [2]\n  skip: cluster.graph.gpus >", "expected a condition such as"),
        ("  cluster.graph.gpus: [2]\n  skip: open('x')", "expected a condition such as"),
        ("  cluster.graph.gpus: [2]\n  skip: cluster.graph.gpu > 1", "did you mean"),
        ("  cluster.graph.gpus: [2]\n  skip: cluster.graph.gpus > 'a'", "cannot compare"),
        ("  cluster.graph.gpus: [2]\n  skip: cluster.graph.gpus == 2", "every cell is left out"),
        ("  cluster.graph.gpus: [2]\n  base: {cluster.graph.gpus: 3}", "expected one of 2, got 3"),
        ("  cluster.graph.gpus: [2]\n  base: {gpus: 3}", "gpus is no axis of this sweep"),
        ("  seeds: 0", "expected at least 1 seed"),
        ("  seed: [1]\n  seeds: 2", "seed is swept twice"),
        ("  cluster.graph.gpus: [2, 4, 2]", "7:3: sweep.cluster.graph.gpus: 2 stands here twice"),
        ("  seeds: [4, 4]", "7:3: sweep.seeds: 4 stands here twice"),
        ("  eeds: 3", "'eeds' is neither a key of scenarios nor one of zip, variants,"),
        ("  variant: {a: {b: {seed: 2}}}", "(did you mean variants?)"),
        ("  workload.dtype: [{}]", "workload.dtype: expected one of int8, "),
        ("  cluster.graph.gpus: {from: 1, to: 9000000, step: 1}", "makes more than"),
    ],
)
def test_mistakes_in_a_sweep_get_one_message(capsys, sweep: str, message: str) -> None:
    Path("x.yaml").write_text(f"{HEAD}sweep:\n{sweep}\n")
    done = netsim(capsys, "check", "x.yaml")
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.err.count("\n") == 1


def test_invalid_cells_are_listed_before_anything_runs(capsys) -> None:
    Path("x.yaml").write_text(f"{HEAD}sweep:\n  workload.algorithm: [ring, rung, tree]\n")
    done = netsim(capsys, "run", "x.yaml")
    assert done.code == 2
    assert "1 of 3 cells cannot be built (--skip-invalid runs the other 2)" in done.err
    assert "algorithm rung" in done.err
    assert not Path("reports").exists()
    done = netsim(capsys, "run", "x.yaml", "--skip-invalid")
    assert done.code == 0
    found = rows("reports/sweep/results.csv")
    assert [row["status"] for row in found] == ["ok", "ok", "invalid", "ok", "ok"]
    assert "did you mean ring?" in found[2]["error"]
    assert found[2]["axis:workload.algorithm"] == "rung"


@pytest.mark.slow
def test_every_cell_is_compared_with_the_base_line(capsys) -> None:
    sweep = "  cluster.graph.bandwidth: [25GB/s, 50GB/s]\n  cluster.graph.gpus: [2, 4]\n"
    sweep += "  base: {cluster.graph.bandwidth: 25GB/s}\n"
    Path("x.yaml").write_text(f"{HEAD}sweep:\n{sweep}")
    done = netsim(capsys, "run", "x.yaml")
    assert done.code == 0
    assert "best under 2 of 2 conditions (gpus): bandwidth 50GB/s; netsim report" in done.err
    one = netsim(capsys, "run", "x.yaml", "--set", "cluster.graph.gpus=2", "-o", "one")
    assert "best at 1 MiB: bandwidth 50GB/s" in one.err
    assert "times as fast as bandwidth 25GB/s" in one.err
    found = rows("reports/sweep/comparison.csv")
    times = {
        (r["cell"], r["size_bytes"]): float(r["time_us"]) for r in rows("reports/sweep/results.csv")
    }
    assert len(found) == 8
    for row in found:
        base, own = (
            times[row["base_cell"], row["size_bytes"]],
            times[row["cell"], row["size_bytes"]],
        )
        assert float(row["speedup"]) == base / own
    assert {row["speedup"] for row in found[:4]} == {"1.0"}


@pytest.mark.slow
def test_seeds_make_bands(capsys) -> None:
    text = HOSTS.replace("nodes: 2", "nodes: 2\n  placement: random")
    Path("x.yaml").write_text(f"{text}sweep:\n  seeds: 4\n")
    done = netsim(capsys, "run", "x.yaml")
    assert done.code == 0
    found = rows("reports/hosts/bands.csv")
    assert len(found) == 1
    assert found[0]["seeds"] == "4"
    times = [float(row["time_us"]) for row in rows("reports/hosts/results.csv")]
    assert float(found[0]["time_us_min"]) == min(times)
    assert min(times) <= float(found[0]["time_us_p50"]) <= max(times)


@pytest.mark.full
def test_a_seed_is_that_of_placement_and_of_hashed_ways(capsys) -> None:
    fabric = "{kind: leaf-spine, nodes: 16, nodes_per_leaf: 4, oversubscription: 2, routing: ecmp}"
    text = HOSTS.replace("nodes: 2", "nodes: 8\n  gpus_per_node: 1\n  nics_per_node: 1")
    text = text.replace("algorithm: ring", "algorithm: direct")
    text = text.replace("{kind: rail-optimized, oversubscription: 1}", fabric)
    for placement in ("random", "contiguous"):
        placed = text.replace("  fabric:", f"  placement: {placement}\n  fabric:")
        Path("x.yaml").write_text(f"{placed}sweep:\n  seeds: 3\n")
        assert netsim(capsys, "run", "x.yaml", "-q").code == 0
        times = [row["time_us"] for row in rows("reports/hosts/results.csv")]
        assert len(times) == 3
        assert len(set(times)) > 1, placement
    own = placed.replace("routing: ecmp", "routing: ecmp, seed: 3")
    Path("x.yaml").write_text(f"{own}sweep:\n  seeds: 3\n")
    done = netsim(capsys, "run", "x.yaml")
    assert len({row["time_us"] for row in rows("reports/hosts/results.csv")}) == 1
    assert "axis seed changed nothing" in done.err


@pytest.mark.slow
def test_an_axis_that_changed_nothing_is_named_with_the_reason(capsys) -> None:
    text = HOSTS.replace("algorithm: ring", "algorithm: hierarchical")
    Path("x.yaml").write_text(
        f"{text}sweep:\n  cluster.nodes: [2, 4]\n"
        "  cluster.fabric.oversubscription: [1, 2]\n  seed: [1, 2]\n"
    )
    done = netsim(capsys, "run", "x.yaml")
    assert done.code == 0
    expected = "axis cluster.fabric.oversubscription changed nothing: fabric links are never used"
    assert expected in done.err
    assert (
        "axis seed changed nothing: no host is placed at random, and no message has a choice"
        in done.err
    )
    assert "axis cluster.nodes" not in done.err


@pytest.mark.slow
def test_a_reason_names_what_is_used_most_where_links_stay_as_they_are(capsys) -> None:
    text = HOSTS.replace(
        "fabric: {kind: rail-optimized, oversubscription: 1}",
        "fabric: {kind: leaf-spine, nodes_per_leaf: 1, routing: static}",
    )
    Path("x.yaml").write_text(
        f"{text}sweep:\n  cluster.fabric.oversubscription: [1, 1.1]\n"
        "  workload.dtype: [float, half]\n"
    )
    told = netsim(capsys, "run", "x.yaml").err
    links = r"both values make the same \d+ fabric links of [\d.]+ GB/s"
    used = r"used at most: NIC \d+ %, fabric \d+ %, \w+ \d+ %; bound by NIC"
    fabric = rf"axis cluster.fabric.oversubscription changed nothing: {links}; {used}"
    assert re.search(fabric, told), told
    dtype = r"axis workload.dtype changed nothing: the same [\d.]+ \w+ move in the same order; used"
    assert re.search(dtype, told), told


def test_check_tells_what_run_would_tell(capsys) -> None:
    text = HOSTS.replace("nodes: 2", "nodes: 2\n  nic: 800Gbps")
    Path("x.yaml").write_text(text.replace("algorithm: ring", "algorithm: ring, root: 2"))
    told = netsim(capsys, "check", "x.yaml").out
    assert "note: NICs of 800Gbps are faster than their PCIe slots in dgx-" in told
    assert "workload.root changes nothing" in told


def test_keys_that_change_nothing_are_warnings(capsys) -> None:
    text = HEAD.replace("algorithm: ring", "algorithm: ring, root: 2")
    Path("x.yaml").write_text(f"{text}nccl: {{version: '2.19'}}\n")
    done = netsim(capsys, "run", "x.yaml")
    assert "warning: x.yaml:4:53: workload.root changes nothing: only broadcast" in done.err
    assert "warning: x.yaml:6:1: nccl changes nothing: a textbook algorithm" in done.err


@pytest.mark.slow
def test_rows_of_other_sweeps_are_found_in_the_cache(capsys) -> None:
    Path("x.yaml").write_text(f"{HEAD}sweep:\n  cluster.graph.gpus: [2, 4]\n")
    assert netsim(capsys, "run", "x.yaml", "--cache", "-o", "one").code == 0
    other = HEAD.replace("name: sweep", "name: other")
    Path("y.yaml").write_text(f"{other}sweep:\n  cluster.graph.gpus: [4, 8]\n")
    done = netsim(capsys, "run", "y.yaml", "--cache", "-o", "two")
    assert "2 of 4 rows were known from earlier sweeps" in done.err
    netsim(capsys, "run", "y.yaml", "-o", "three")
    assert Path("two/results.csv").read_bytes() == Path("three/results.csv").read_bytes()


def test_a_cache_that_cannot_be_used_is_one_message(capsys, monkeypatch) -> None:
    Path("x.yaml").write_text(HEAD)
    Path("junk").write_text("no database, " * 100)
    monkeypatch.setenv("NETSIM_CACHE", "junk")
    done = netsim(capsys, "run", "x.yaml", "--cache", "-q")
    assert done.code == 2
    assert done.err.startswith("junk: cannot be used as a cache")


@pytest.mark.slow
def test_checking_many_cells_shares_what_they_have_in_common() -> None:
    sweep = "  nccl.version: ['2.19', '2.27']\n  workload.dtype: [float, half]\n"
    sweep += "  workload.algorithm: [auto, Ring, Tree]\n  launch: [process_per_gpu, cuda_graph]\n"
    Path("x.yaml").write_text(HOSTS.replace("algorithm: ring, ", "") + f"sweep:\n{sweep}")
    source = load_source(Path("x.yaml"))
    checked(source)  # searches of channels are kept
    found = checked(source)
    assert len(found.cells) == len(expand_all(source).cells) == 24
    assert len({cell.cluster for cell in found.cells}) == 1


@pytest.mark.slow
def test_pictures_of_two_traces_do_not_replace_each_other(capsys) -> None:
    text = HEAD.replace("outputs: [csv]", "outputs: [csv, trace]")
    Path("x.yaml").write_text(text)
    for folder in ("a", "b"):
        assert netsim(capsys, "run", "x.yaml", "-q", "-o", folder).code == 0
    assert netsim(capsys, "plot", "a", "b", "-o", "drawn").code == 0
    assert Path("drawn/a/timeline.svg").exists()
    assert Path("drawn/b/timeline.svg").exists()
    assert not Path("drawn/timeline.svg").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flip", "blob", "number", "brackets", "other"])
def test_a_damaged_row_of_the_cache_is_told_and_computed_again(capsys, tmp_path, how) -> None:
    Path("x.yaml").write_text(HEAD)
    netsim(capsys, "run", "x.yaml", "-q", "-o", "a", "--cache")
    base = sqlite3.connect(tmp_path / "cache.sqlite")
    (cell, size, text), *others = base.execute("select cell, size, row from rows").fetchall()
    damaged = {
        "flip": text.replace('"size_bytes": ', '"size_bytes": 1'),
        "blob": b"\xff" * 9,
        "number": 17,
        "brackets": "[" * 100_000,
        "other": others[0][2],
    }[how]
    where = "where cell = ? and size = ?"
    base.execute(f"update rows set row = ? {where}", (damaged, cell, size))
    base.commit()
    done = netsim(capsys, "run", "x.yaml", "-q", "-o", "b", "--cache")
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert f"cache.sqlite: row of {cell} at {size} B: damaged: " in done.err
    assert Path("a/results.csv").read_bytes() == Path("b/results.csv").read_bytes()


def test_a_damaged_cache_is_left_alone(capsys, tmp_path) -> None:
    Path("x.yaml").write_text(HEAD)
    netsim(capsys, "run", "x.yaml", "-q", "-o", "a", "--cache")
    path = tmp_path / "cache.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\x07" * (len(content) - 100))
    done = netsim(capsys, "run", "x.yaml", "-q", "-o", "b", "--cache")
    assert done.code == 0
    assert "cache.sqlite: the cache is left alone from here on: " in done.err
    assert Path("a/results.csv").read_bytes() == Path("b/results.csv").read_bytes()
