"""Algorithms of a user's own: named in a scenario, verified before they run, and told by line."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import netsim
from netsim.base.errors import InputError, ScenarioError
from netsim.base.files import preset_folder
from netsim.collectives import table
from netsim.collectives.collective import Collective, CollectiveError
from netsim.collectives.table import ALGORITHMS, MOST_CHECKED, build, own_algorithm_key, stamp
from netsim.scenario.cells import expand
from netsim.schedule.schedule import ARRIVED, IN, REDUCE_INPUT
from netsim.sweep.run import Order, fulfil
from netsim.tasks import own_algorithms
from netsim.yamlio.read import Source, read_source
from tests.cli.command import netsim as netsim_command

MINE = '''"""Reduce along a chain, broadcast back."""
from netsim import Builder, Style
from netsim.schedule.schedule import ARRIVED, IN, OUT, REDUCE_INPUT


def chain(collective):
    n = collective.ranks
    b = Builder(n, collective.element_bytes)
    whole, last = b.pieces(collective.count), -1
    for rank in range(n - 1):
        add = Style(src_buffer=OUT if rank else IN, op=REDUCE_INPUT)
        last = b.rows(add, rank, rank + 1, whole, after=[(last, ARRIVED)])
    for rank in range(n - 1):
        last = b.rows(Style(), rank - 1 if rank else n - 1, rank, whole, after=[(last, ARRIVED)])
    b.marks(range(n), after=[(last, ARRIVED)])
    return b.finish()


def racy(collective):
    b = Builder(2)
    b.rows(Style(src_buffer=IN, op=REDUCE_INPUT), 0, 1, b.pieces(collective.count))
    b.rows(Style(), 1, 0, b.pieces(collective.count))
    return b.finish()


def short(collective):
    return Builder(collective.ranks).finish()


def outside(collective):
    return Builder(collective.ranks).rows(Style(), 0, 99, 0)


def nothing(collective):
    pass


def other(collective):
    return Builder(7).finish()
'''
SCENARIO = """cluster: {graph: {kind: switch, gpus: 2, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: "%s", sizes: [1KiB, 1MiB]}
outputs: [csv]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A scenario with the chain, in a folder that is not the current one."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "own.yaml").write_text(SCENARIO % "mine.py:chain")
    return tmp_path / "own.yaml"


def test_an_algorithm_of_a_file_runs(file: Path) -> None:
    rows = netsim.run(file)
    assert [row.algorithm for row in rows] == ["mine.py:chain"] * 2
    assert rows[1].time_us == pytest.approx(2 * (2**20 / 50e3 + 1), rel=0.1)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("racy", "mine.py:22: all_reduce of 256 elements on 2 ranks: row 1 (transfer, rank 1 -> 0"),
        (
            "short",
            "mine.py:26: all_reduce of 256 elements on 2 ranks: rank 0, out elements 0..255:"
            " never written",
        ),
        ("outside", "mine.py:31: ValueError: dst: expected numbers in 0..1"),
        ("nothing", "mine.py:34: expected a schedule of 2 ranks, as b.finish() makes"),
        ("other", "mine.py:38: expected a schedule of 2 ranks, as b.finish() makes"),
        (
            "chian",
            "expected FILE.py:FUNCTION with a function of mine.py, got 'mine.py:chian' "
            "(did you mean chain?)",
        ),
        (
            "",
            "expected FILE.py:FUNCTION with a function of mine.py, got 'mine.py:' "
            "(it has chain, racy",
        ),
    ],
)
def test_check_tells_the_line_that_is_wrong(file: Path, capsys, name: str, told: str) -> None:
    file.write_text(SCENARIO % f"mine.py:{name}")
    outcome = netsim_command(capsys, "check", str(file))
    assert outcome.code == 2
    assert outcome.err.startswith(f"{file}:2:47: workload.algorithm: {told}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def chain(c:\n", "mine.py:1: '(' was never closed"),
        ("x = 1\ny = x / 0\n", "mine.py:2: ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_that_does_not_run_is_told_by_line(file: Path, text: str, told: str) -> None:
    (file.parent / "mine.py").write_text(text)
    with pytest.raises(ScenarioError) as caught:
        expand(read_source(file))
    assert caught.value.message == told


def test_a_missing_file_is_told_with_those_beside(file: Path) -> None:
    file.write_text(SCENARIO % "mime.py:chain")
    with pytest.raises(ScenarioError, match=r"no file mime\.py .*\(did you mean mine\.py\?\)"):
        expand(read_source(file))


def test_the_bytes_of_the_file_are_part_of_the_id_and_go_to_workers(file: Path) -> None:
    (cell,) = expand(read_source(file))
    order = Order(cell.id, "elsewhere.yaml", cell.source.data, {}, (1024,), "simpy")
    (file.parent / "mine.py").write_text(MINE + "# another comment\n")
    (other,) = expand(read_source(file))
    assert other.id != cell.id
    (answer,) = fulfil(order)  # by the text that was sent, wherever the file is
    assert not answer.error
    assert answer.row is not None
    assert answer.row["cell"] == cell.id


def test_cells_of_a_sweep_may_have_own_algorithms(file: Path) -> None:
    source = read_source(file)
    sweep = {"workload.algorithm": ["mine.py:chain", "ring"]}
    cells = expand(Source(source.name, {**source.data, "sweep": sweep}))
    assert [cell.scenario.collective.algorithm for cell in cells] == list(*sweep.values())
    assert "code" not in cells[1].source.data["workload"]


def test_what_is_too_large_to_be_verified_is_told(file: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("netsim.collectives.table.MOST_CHECKED", 40)
    file.write_text(file.read_text().replace("gpus: 2", "gpus: 9"))
    outcome = netsim_command(capsys, "check", str(file))
    assert outcome.code == 0
    assert "note: mine.py:chain is not verified: 25 rows on 9 ranks are too many" in outcome.out
    assert MOST_CHECKED > 10**6


def test_a_function_becomes_an_algorithm_by_its_name() -> None:
    names: dict[str, object] = {}
    exec(compile(MINE, "mine.py", "exec"), names)
    with pytest.raises(CollectiveError, match="never written"):
        netsim.algorithm("all_reduce", ranks=[2])(names["short"])
    assert "short" not in ALGORITHMS["all_reduce"]
    names["chain"].__defaults__ = ()
    try:
        netsim.algorithm("all_reduce", ranks=[2, 3, 5])(names["chain"])
        before = stamp("all_reduce", "chain")
        assert len(build(Collective("all_reduce", 4, 4), "chain")) == 10
        netsim.algorithm("all_reduce", ranks=[2])(names["chain"])
        assert stamp("all_reduce", "chain") != before  # nothing is taken from the one before
    finally:
        del ALGORITHMS["all_reduce"]["chain"]
    with pytest.raises(CollectiveError, match="did you mean all_reduce"):
        netsim.algorithm("allreduce")(names["chain"])


def test_what_races_only_in_place_is_refused() -> None:
    def exchanged(collective):  # a sum is written over what the other has yet to get
        b = netsim.Builder(2)
        both = np.repeat(b.pieces(collective.count), 2)
        rows = b.rows(netsim.Style(src_buffer=IN, op=REDUCE_INPUT), [0, 1], [1, 0], both)
        b.marks([0, 1], after=[(rows, ARRIVED)])
        return b.finish()

    with pytest.raises(CollectiveError, match="in place"):
        netsim.algorithm("all_reduce", ranks=[2])(exchanged)


def test_code_belongs_to_an_algorithm_of_a_file(file: Path) -> None:
    with pytest.raises(CollectiveError, match=r"expected FILE\.py:FUNCTION"):
        own_algorithm_key("ring", "def ring(): pass")


def test_a_topology_is_built_from_a_mapping() -> None:
    assert len(netsim.build_topology({"machine": "dgx-h100", "nodes": 2})) == 16
    with pytest.raises(ScenarioError, match="unknown key 'nods'"):
        netsim.build_topology({"machine": "dgx-h100", "nods": 2})
    with pytest.raises(InputError, match="expected a cluster section, got 'dgx-h100'"):
        netsim.build_topology("dgx-h100")


def test_check_takes_settings_as_run_does(file: Path, capsys) -> None:
    assert (
        "1 size in all"
        in netsim_command(capsys, "check", str(file), "--set", "workload.sizes=8").out
    )
    wrong = netsim_command(capsys, "check", str(file), "--set", "workload.algorithm=mine.py:short")
    assert wrong.err.startswith("--set workload.algorithm=mine.py:short: workload.algorithm: mine")
    file.write_text("cluster: {machine: dgx-h100}\nworkload: {model: llama3-70b, batch: 8}\n")
    refused = netsim_command(capsys, "check", str(file))
    assert (refused.code, "--allow-oom" in refused.err) == (2, True)
    assert netsim_command(capsys, "check", str(file), "--allow-oom").code == 0
    machine = netsim_command(
        capsys, "check", str(preset_folder("topologies") / "dgx-h100.yaml"), "--set", "gpu.count=4"
    )
    assert machine.err.endswith("--set and --allow-oom are for scenarios, this is a machine\n")


def test_the_smallest_and_the_largest_size_are_checked_first_and_as_many_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[tuple[int, bool]] = []

    def verify_size(cell: object, collective: tuple[int, bool], parameters: object) -> int:
        checked.append(collective)
        return 2

    def collective_at(size: int, *, in_place: bool) -> tuple[int, bool]:
        return size, in_place

    monkeypatch.setattr(own_algorithms, "_verify_size", verify_size)
    work = SimpleNamespace(size_list=lambda: [8, 4, 32, 16], collective="all_reduce")
    cell = SimpleNamespace(scenario=SimpleNamespace(collective=work))
    for most, sizes in ((1, 1), (2, 1), (3, 2), (99, 8)):
        checked.clear()
        monkeypatch.setattr(own_algorithms.tables, "MOST_CHECKED", most)
        own_algorithms.verify_own_algorithm(cell, collective_at, {})
        every = [(size, place) for size in (4, 32, 8, 16) for place in (False, True)]
        assert checked == every[:sizes]
    work.collective = "alltoall"
    checked.clear()
    own_algorithms.verify_own_algorithm(cell, collective_at, {})
    assert checked == [(4, False), (32, False), (8, False), (16, False)]


def test_where_no_ranks_are_given_small_numbers_and_some_larger_are_verified(monkeypatch) -> None:
    """All up to 8, and beyond one that is a power of two and one that is not."""
    asked: set[int] = set()
    monkeypatch.setattr(
        table, "refuse_wrong", lambda collective, *rest: asked.add(collective.ranks)
    )
    monkeypatch.setitem(ALGORITHMS, "all_gather", {})
    netsim.algorithm("all_gather")(lambda collective: None)
    assert asked == {*range(1, 9), 12, 16}
