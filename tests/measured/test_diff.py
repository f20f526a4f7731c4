"""`netsim diff`: who wins by size, where it changes, and why."""

from pathlib import Path

import pytest

from tests.cli.command import netsim

HEADER = "size_bytes,count,dtype,redop,root,oop_time_us,ip_time_us\n"


def curve(path: Path, *times: float) -> Path:
    rows = [f"{8 * 4**n},2,float,sum,-1,{time},\n" for n, time in enumerate(times)]
    path.write_text(HEADER + "".join(rows))
    return path


def test_logs_are_compared_size_by_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = curve(tmp_path / "all_reduce_1.csv", 10, 20, 50)
    other = curve(tmp_path / "all_reduce_2.csv", 12, 20, 40, 80)
    done = netsim(capsys, "diff", one, other)
    assert done.code == 0, done.err
    words = [line.split()[4] for line in done.out.splitlines() if line.startswith(" ")]
    assert words == ["A", "=", "B"]
    assert "between 8 B and 32 B: A was faster, then they were equal" in done.out
    assert "A faster at 1 size, B at 1, equal at 1" in done.out
    assert "1 size that only one of them has is left out: 512 B" in done.err


def test_topologies_are_simulated_and_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    done = netsim(capsys, "diff", "rtx2080ti-x2", "v100-pcie-x4", "--sizes", "8,64M")
    assert done.code == 0, done.err
    assert ": A was faster, then B was faster" in done.out
    certainty = {line.split()[0]: line.split()[5] for line in done.out.splitlines()[3:5]}
    assert certainty == {"8": "sure", "67108864": "sure"}
    assert "B goes from Ring LL" in done.out


def test_mistakes_have_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = curve(tmp_path / "all_reduce.csv", 10, 20)
    assert "unknown machine" in netsim(capsys, "diff", one, "nowhere").err
    assert netsim(capsys, "diff", tmp_path, one).code == 2
    other = tmp_path / "all_reduce_2.csv"
    other.write_text(HEADER + "1000,2,float,sum,-1,3,\n")
    assert "have no size in common" in netsim(capsys, "diff", one, other).err


SWEEP = """\
name: links
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: alltoall, algorithm: pairwise, sizes: [16KiB, 16MiB]}
sweep:
  cluster.graph.bandwidth: [25GB/s, 50GB/s]
  variants: {wire: {short: {cluster.graph.latency: 1us}, long: {cluster.graph.latency: 9us}}}
outputs: [csv]
"""


@pytest.fixture
def swept(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("links.yaml").write_text(SWEEP)
    assert netsim(capsys, "run", "links.yaml", "-q", "-o", "out").code == 0
    return Path("out")


def test_cells_of_one_sweep_are_compared(swept: Path, capsys) -> None:
    done = netsim(capsys, "diff", "out#25GB/s,short", "out#bandwidth=50GB/s,wire=short")
    assert done.code == 0, done.err
    assert "B faster at 2" not in done.out
    assert "# A faster at 0 sizes, B at 2, equal at 0" in done.out
    assert "# sure at 1, likely at 1; at 0 the difference is too small to tell" in done.out
    assert "at 16 MiB" in next(line for line in done.out.splitlines() if "on average" in line)
    assert " 0.50  B" in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("out", "has 4 such cells; only one can be compared"),
        ("out", "name it behind #: bandwidth 25GB/s, short; bandwidth 25GB/s, long;"),
        ("out#short", "has 2 such cells"),
        ("out#shirt", "no cell is 'shirt'"),
        ("out#nic=short", "no cell is 'nic=short'"),
        ("gone/results.csv", "gone/results.csv: no such file or folder"),
        ("gone.log", "gone.log: no such file or folder"),
    ],
)
def test_names_of_cells_have_one_message(swept: Path, capsys, name: str, said: str) -> None:
    done = netsim(capsys, "diff", name, "out#25GB/s,short")
    assert done.code == 2
    assert said in " ".join(done.err.split())


@pytest.mark.slow
def test_a_topology_is_asked_for_what_the_other_side_has(swept: Path, capsys) -> None:
    done = netsim(capsys, "diff", "rtx2080ti-x2", "out#25GB/s,short")
    assert done.code == 0, done.err
    assert "SendRecv" in done.out  # an all-to-all, at the two sizes of the results
    sizes = [line.split()[0] for line in done.out.splitlines() if line.startswith(" ")]
    assert sizes == ["16384", "16777216"]
    other = netsim(capsys, "diff", "rtx2080ti-x2", "out#25GB/s,short", "--collective", "all_reduce")
    assert "warning: A is of all_reduce, B of alltoall" in other.err


def test_cells_of_a_scenario_are_simulated_as_the_run_would_be(swept: Path, capsys) -> None:
    done = netsim(capsys, "diff", "links.yaml#bandwidth 25GB/s, long", "out#long,25GB/s")
    assert done.code == 0, done.err
    assert "# A faster at 0 sizes, B at 0, equal at 2" in done.out
    several = netsim(capsys, "diff", "links.yaml", "out#long,25GB/s")
    assert several.code == 2
    assert "links.yaml: has 4 such cells" in several.err
    unused = netsim(capsys, "diff", "links.yaml#25GB/s,long", "out#long,25GB/s", "--nodes", "3")
    assert unused.code == 2
    assert "--nodes: goes with a topology, and neither of the two is one" in unused.err


STEPS = """\
cluster: {machine: dgx-a100}
workload: {model: bert-base, batch: 16, parallelism: {dp: 8}}
sweep: {workload.stragglers: [[], [{rank: 5, slowdown: 1.5}]]}
outputs: [csv]
"""


@pytest.mark.slow
def test_training_steps_are_compared(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("steps.yaml").write_text(STEPS)
    assert netsim(capsys, "run", "steps.yaml", "-q", "-o", "out").code == 0
    slow = "#stragglers rank: 5, slowdown: 1.5"
    done = netsim(capsys, "diff", "steps.yaml#stragglers", f"out{slow}")
    assert done.code == 0, done.err
    (line,) = [one.split() for one in done.out.splitlines() if not one.startswith("#")]
    assert line[0] == "step"
    assert line[4] == "A"
    same = netsim(capsys, "diff", f"steps.yaml{slow}", f"out{slow}")
    assert " 1.00  =" in same.out
    topology = netsim(capsys, "diff", "dgx-a100", f"out{slow}")
    assert topology.code == 2
    assert "is a training step, which a topology alone has none of" in topology.err
