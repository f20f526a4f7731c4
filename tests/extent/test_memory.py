"""Memory is planned: what cells need is bounded, what the system has is known, all else goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netsim.extent import memory
from netsim.extent.budget import USUAL_BUDGET
from netsim.extent.fit import bytes_of_form
from netsim.extent.memory import PROCESS, available_memory, estimated_rows, needed
from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from netsim.yamlio.read import parse_source
from tests.bench.memory import AT_MOST, needed_and_taken
from tests.cli.command import netsim
from tests.extent.cells import form_at


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "dgx-h100 all_reduce 2 1MiB auto",
        "dgx-h100 all_reduce 24 64MiB Ring",
        "a100-x4 alltoall 32 16MiB auto",
        "claim-fsdp-growth",
    ],
)
def test_what_is_expected_bounds_what_is_taken_within_the_stated_factor(case: str) -> None:
    expected, taken = needed_and_taken(case)
    assert taken <= expected <= AT_MOST * taken


def test_what_folds_is_expected_to_need_no_more_than_what_is_written_of_it() -> None:
    text = (
        "cluster: {machine: dgx-h100, nodes: 32, fabric: {kind: rail-optimized}}\n"
        "workload: {collective: all_reduce, algorithm: Tree, sizes: [1MiB]}\n"
    )
    one, apart = (
        resolve(expand(parse_source(text + more, "x.yaml"))[0]) for more in ("", "fold: off\n")
    )
    call, whole = form_at(one, 1 << 20), form_at(apart, 1 << 20)
    assert call.with_representatives is not None
    assert whole.with_representatives is None
    assert bytes_of_form(call, USUAL_BUDGET) < bytes_of_form(whole, USUAL_BUDGET) / 4


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(str(text))


def test_groups_of_both_versions_leave_what_they_do_not_have_yet(tmp_path: Path) -> None:
    own, root = tmp_path / "own", tmp_path / "cgroup"
    own.write_text("0::/a\n9:cpu,memory:/b\n")
    stat = "anon 1\ninactive_file 30\ntotal_inactive_file 30\n"
    group(root / "a", memory__max=1000, memory__current=600, memory__stat=stat)
    group(
        root / "memory" / "b",
        memory__limit_in_bytes=500,
        memory__usage_in_bytes=100,
        memory__stat=stat,
    )
    group(root, memory__max="max", memory__current=600, memory__stat=stat)
    assert sorted(memory._of_groups(root, own)) == [430, 430]
    assert list(memory._of_groups(tmp_path / "none", own)) == []
    assert available_memory() > 0


def test_a_group_limits_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_of_system", lambda: 200)
    for of_groups, available in ([123], 123), ([300, 150], 150), ([300], 200), ([], 200):
        monkeypatch.setattr(memory, "_of_groups", lambda of=of_groups: iter(of))
        assert available_memory() == available
    assert needed(10, 5) == PROCESS + 10 * memory.BYTES_A_GPU + 5 * memory.BYTES_A_ROW_IN_STEP


SWEEP = """\
name: large
cluster: {machine: a100-x4, nodes: 2, fabric: {kind: leaf-spine, routing: ecmp}}
workload: {collective: alltoall, sizes: [16MiB]}
sweep: {cluster.nodes: [2, 512, 4]}
outputs: [csv]
"""


@pytest.mark.full
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_that_does_not_fit_says_so_and_the_others_go_on(tmp_path, jobs) -> None:
    (tmp_path / "large.yaml").write_text(SWEEP)
    command = ("run", "large.yaml", "-q", "-o", "out", "--jobs", str(jobs), "--memory", "400MB")
    done = in_process_of_its_own(tmp_path, *command)
    assert done.returncode == 1, done.stderr
    assert "does not fit into the memory of 0.4 GB (estimated at up to " in done.stderr
    lines = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert [",ok," in line for line in lines[1:]] == [True, False, True]


def in_process_of_its_own(folder: Path, *arguments: str):
    """A limit of memory lasts as long as its process."""
    return subprocess.run(
        [sys.executable, "-m", "netsim", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def test_a_limit_is_one(capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large.yaml").write_text(SWEEP)
    done = netsim(capsys, "run", tmp_path / "large.yaml", "--memory", "8", "--jobs", 2)
    assert done.code == 2
    assert "--memory 8: one process alone needs up to 200MB (as 8GB)" in done.err
    done = netsim(capsys, "run", tmp_path / "large.yaml", "--memory", "8Gb", "--jobs", 2)
    assert (done.code, "--memory 8Gb: " in done.err) == (2, True)


@pytest.mark.parametrize("ranks", [16, 129, 256])
def test_rows_of_few_ranks_are_counted(ranks: int) -> None:
    assert estimated_rows(ranks, lambda n: n * n + 1000 * (n % 2)) == ranks**2 + 1000 * (ranks % 2)


def test_rows_of_many_ranks_grow_as_they_do_between_fewer() -> None:
    asked = []
    assert estimated_rows(2048, lambda n: asked.append(n) or n**2) == 2048**2
    assert max(asked) == 128
    assert estimated_rows(2048, lambda n: 7) == 7
    assert estimated_rows(2048, lambda n: 0) == 0
