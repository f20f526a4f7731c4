"""What is said of a cell before it runs: how large it will be, and what it cannot be."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from netsim.base.errors import NoRoomError
from netsim.extent.budget import USUAL_BUDGET
from netsim.scenario.cells import expand
from netsim.tasks import explained, jobs, resolve
from netsim.tasks.resolve import ResolvedCell
from netsim.yamlio.read import parse_source
from tests.extent.cells import budget_with

GRAPH = "graph: {kind: switch, gpus: 8, bandwidth: 50GB/s, latency: 1us}"


def resolved(work: str) -> ResolvedCell:
    text = f"cluster: {{{GRAPH}}}\nworkload: {{{work}, sizes: [64KiB]}}\n"
    return resolve.resolve(expand(parse_source(text, "x.yaml"))[0])


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
def test_the_size_of_a_collective_that_names_ranks_does_not_follow_from_fewer_ranks(
    work: str, multiple: int
) -> None:
    assert resolved(work).fewer_ranks.multiple == multiple


def test_an_algorithm_of_ones_own_needs_no_name_of_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from netsim import build\n\ndef mine(collective):\n    return build(collective, 'ring')\n"
    )
    monkeypatch.chdir(tmp_path)
    one = resolved('collective: all_reduce, algorithm: "mine.py:mine"')
    assert one.cell.scenario.collective.code


def test_jobs_that_run_together_have_no_more_rows_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = resolved("collective: all_reduce, algorithm: ring").cell
    shared = SimpleNamespace(resolved=SimpleNamespace(cell=cell, topology=None), engine="auto")
    monkeypatch.setattr(jobs, "MOST_ROWS", 10)
    monkeypatch.setattr(jobs, "run_together", lambda *_: "ran")
    five = SimpleNamespace(rows=5)
    assert jobs.Shared._run(shared, [five, five]) == "ran"
    with pytest.raises(NoRoomError, match="their 15 rows are more than 10"):
        jobs.Shared._run(shared, [five] * 3)


@pytest.mark.parametrize(("nics", "rails"), [(1, False), (2, True)])
def test_rails_are_tried_where_hosts_have_several_nics(nics: int, rails: bool) -> None:
    """A fabric with as many ports as hosts has one rail already."""
    text = (
        f"cluster: {{machine: dgx-a100, nodes: 4, gpus_per_node: 2, nics_per_node: {nics}, "
        "fabric: {kind: leaf-spine, nodes_per_leaf: 2, routing: ecmp}}\n"
        "workload: {collective: all_reduce, sizes: [64KiB]}\n"
    )
    one = resolve.resolve(expand(parse_source(text, "x.yaml"))[0])
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
    monkeypatch.setattr(resolve, "misfit_of_nccl", lambda *asked: "large")
    monkeypatch.setattr(resolve, "first_odd_part", lambda placement: "a slow link")
    work = SimpleNamespace(collective=collective)
    source = SimpleNamespace(error=lambda path, words, **given: NoRoomError(words))
    cell = SimpleNamespace(scenario=SimpleNamespace(collective=work), source=source)
    limits = budget_with(USUAL_BUDGET, may_fold=fold)
    one = ResolvedCell(cell, None, (tuple(range(8)),), np.arange(8), budget=limits)
    if not told:
        resolve._refuse_by_least_rows(one)
        return
    with pytest.raises(NoRoomError, match=told):
        resolve._refuse_by_least_rows(one)
