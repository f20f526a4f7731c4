"""What is said of a cell before it runs: how large it will be, and what it cannot be."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from netsim.base.errors import NoRoomError
from netsim.cell import explained, jobs, prepare
from netsim.cell.prepare import Prepared
from netsim.scenario.cells import expand
from netsim.yamlio.read import parse_source

GRAPH = "graph: {kind: switch, gpus: 8, bandwidth: 50GB/s, latency: 1us}"


def prepared(work: str) -> Prepared:
    text = f"cluster: {{{GRAPH}}}\nworkload: {{{work}, sizes: [64KiB]}}\n"
    return prepare.prepare(expand(parse_source(text, "x.yaml"))[0])


@pytest.mark.parametrize(
    ("work", "multiple"),
    [
        ("collective: all_reduce, algorithm: ring", 1),
        ("collective: all_reduce, algorithm: hierarchical, parameters: {node_size: 4}", 4),
        ("collective: broadcast, algorithm: ring, root: 3", 8),
        ("collective: p2p, algorithm: direct, pairs: [[0, 3], [1, 2]]", 8),
        ("collective: all_reduce, algorithm: bucket, parameters: {dims: [2, 4]}", 8),
    ],
)
def test_what_names_ranks_is_not_counted_from_fewer_of_them(
    work: str, multiple: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is of any number of ranks grows from few of them."""
    asked: set[tuple[int, int]] = set()

    def size(ranks: int, schedule_at: object, every: int, groups: int) -> tuple[int, int]:
        asked.add((ranks, every))
        return 1, 1

    monkeypatch.setattr(prepare, "estimated_size", size)
    assert prepare._size_from_fewer(prepared(work)) == (1, 1)
    assert asked == {(8, multiple)}


def test_an_algorithm_of_ones_own_needs_no_name_of_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from netsim import build\n\ndef mine(collective):\n    return build(collective, 'ring')\n"
    )
    monkeypatch.chdir(tmp_path)
    one = prepared('collective: all_reduce, algorithm: "mine.py:mine"')
    prepare._check_algorithm(one)
    assert one.cell.scenario.collective.code


def test_jobs_that_run_together_have_no_more_rows_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = prepared("collective: all_reduce, algorithm: ring").cell
    shared = SimpleNamespace(prepared=SimpleNamespace(cell=cell, topology=None), engine="auto")
    monkeypatch.setattr(jobs, "MOST_ROWS", 10)
    monkeypatch.setattr(jobs, "together", lambda *_: "ran")
    five = SimpleNamespace(rows=5)
    assert jobs.Shared._run(shared, [five, five]) == "ran"
    with pytest.raises(NoRoomError, match="15 are too many"):
        jobs.Shared._run(shared, [five] * 3)


@pytest.mark.parametrize(("nics", "rails"), [(1, False), (2, True)])
def test_rails_are_tried_where_hosts_have_several_nics(nics: int, rails: bool) -> None:
    """A fabric with as many ports as hosts has one rail already."""
    text = (
        f"cluster: {{machine: dgx-a100, nodes: 4, gpus_per_node: 2, nics_per_node: {nics}, "
        "fabric: {kind: leaf-spine, nodes_per_leaf: 2, routing: ecmp}}\n"
        "workload: {collective: all_reduce, sizes: [64KiB]}\n"
    )
    one = prepare.prepare(expand(parse_source(text, "x.yaml"))[0])
    selection = one.topology.router.selection
    found = explained._changes(one, selection.fabric, selection.policy)
    assert ("rails" in found) == rails
    assert {"static routing", "adaptive routing", "spray routing"} <= set(found)


@pytest.mark.parametrize(
    ("collective", "fold", "told"),
    [
        ("alltoall", True, ""),
        ("alltoall", False, "large; not folded: fold is off"),
        ("alltoallv", True, "large; not folded: a slow link"),
    ],
)
def test_equal_sends_that_may_fold_are_not_refused_before_their_communicator_is_known(
    collective: str, fold: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "misfit_of_nccl", lambda *asked: "large")
    monkeypatch.setattr(prepare, "odd_one", lambda where: "a slow link")
    work = SimpleNamespace(collective=collective)
    source = SimpleNamespace(error=lambda path, words, **given: NoRoomError(words))
    cell = SimpleNamespace(scenario=SimpleNamespace(collective=work), source=source)
    one = SimpleNamespace(
        cell=cell, groups=[range(8)], jobs=(), may_fold=fold, topology=None, gpus=range(8)
    )
    if not told:
        prepare._check_rows(one)
        return
    with pytest.raises(NoRoomError, match=told):
        prepare._check_rows(one)
