"""Another process that answers some sizes of a table: the same rows, whatever becomes of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from netsim.base.errors import InputError, NetsimError
from netsim.cli import questions
from netsim.results.row import Row
from netsim.scenario.cells import expand
from netsim.tasks import answer
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.yamlio.read import parse_source

ROOT = Path(__file__).parents[2]
SIZES = [1 << power for power in range(3, 9)]
CELL = f"""
cluster: {{graph: {{kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}}}
workload: {{collective: all_reduce, algorithm: ring, sizes: {SIZES}}}
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> ResolvedCell:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return resolve(expand(parse_source(CELL, "x.yaml"))[0])


def rows_of(
    resolved: ResolvedCell,
    monkeypatch: pytest.MonkeyPatch,
    here: Callable[[int], None],
    there: Callable[[int], None],
    begun: float = -1.0,
) -> tuple[list[Row], list[int]]:
    """The rows of a table, and the sizes that this process answered."""
    mine, parent, found = list[int](), os.getpid(), answer.answer

    def answered(resolved: ResolvedCell, size: int, **options: str) -> Row:
        if os.getpid() == parent:
            mine.append(size)
        (here if os.getpid() == parent else there)(size)
        return found(resolved, size, **options)

    monkeypatch.setattr(answer, "answer", answered)
    monkeypatch.setattr(questions, "LONG", begun)
    rows = list(questions.simulated(resolved, "simpy", []))
    monkeypatch.setattr(answer, "answer", found)
    return rows, mine


def nothing(size: int) -> None:
    """Do it."""


@pytest.mark.slow
def test_rows_are_those_of_one_process(
    resolved: ResolvedCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, mine = rows_of(resolved, monkeypatch, nothing, nothing, begun=1e9)
    assert mine == SIZES
    rows, mine = rows_of(resolved, monkeypatch, lambda _: time.sleep(0.3), nothing)
    assert rows == alone
    assert mine[0] == SIZES[0]
    assert mine[1:] == sorted(mine[1:], reverse=True)
    assert len(mine) < len(SIZES)


@pytest.mark.slow
def test_what_needs_most_comes_first(
    resolved: ResolvedCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whichever process; others of equal need from the largest on."""
    needed = {SIZES[2]: 5}
    monkeypatch.setattr(ResolvedCell, "memory_needed", lambda _, size: needed.get(size, 0))
    _, mine = rows_of(resolved, monkeypatch, nothing, lambda _: time.sleep(1))
    assert {SIZES[2], SIZES[-1]} - set(mine)
    rest = [size for size in (SIZES[2], *SIZES[:2:-1], SIZES[1]) if size in mine]
    assert mine[: len(rest) + 1] == [SIZES[0], *rest]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["error", "death"])
def test_what_it_leaves_is_answered_here(
    resolved: ResolvedCell, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    def there(size: int) -> None:
        if end == "death":
            os._exit(9)
        if size in SIZES[-2:]:  # whichever of them it begins first
            raise InputError("not here")

    alone, _ = rows_of(resolved, monkeypatch, nothing, nothing, begun=1e9)
    rows, mine = rows_of(resolved, monkeypatch, lambda _: time.sleep(0.3), there)
    assert rows == alone
    assert {*SIZES[-2:]} & {*mine}
    assert (set(mine) == set(SIZES)) == (end == "death")


def test_a_core_alone_has_no_helper(
    resolved: ResolvedCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert rows_of(resolved, monkeypatch, nothing, nothing)[1] == SIZES
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(questions, "available_memory", lambda: 1000)
    assert rows_of(resolved, monkeypatch, nothing, nothing)[1] == SIZES


@pytest.mark.slow
def test_what_may_not_fit_is_answered_apart_and_its_death_is_its_own(
    resolved: ResolvedCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, _ = rows_of(resolved, monkeypatch, nothing, nothing, begun=1e9)
    needed = {size: 10 ** (9 + power) for power, size in enumerate(SIZES[-3:])}
    monkeypatch.setattr(ResolvedCell, "memory_needed", lambda _, size: needed.get(size, 0))
    monkeypatch.setattr(questions, "available_memory", lambda: 5 * 10**8)
    monkeypatch.setattr(questions, "EXACT_UP_TO", 0)
    found, failures, parent = answer.answer, list[NetsimError](), os.getpid()

    def answered(resolved: ResolvedCell, size: int, **options: str) -> Row:
        assert (os.getpid() == parent) == (size not in needed)
        if size == SIZES[-1]:
            os.kill(os.getpid(), signal.SIGKILL)
        if size == SIZES[-2]:
            raise InputError("not that one")
        return found(resolved, size, **options)

    monkeypatch.setattr(answer, "answer", answered)
    rows = list(questions.simulated(resolved, "simpy", failures))
    assert rows[:-2] == alone[:-2]
    assert [row.status for row in rows[-2:]] == ["error", "error"]
    assert [str(one) for one in failures] == [
        "not that one",
        "256 B: its worker was killed (SIGKILL: by somebody, or out of memory); it may need up to"
        " 1e+02 GB of memory, 0.5 GB were free",
    ]
    assert [one.exit_code for one in failures] == [2, 1]


def test_a_bug_in_the_process_apart_is_told_as_one(
    resolved: ResolvedCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(*_: object, **__: object) -> Row:
        raise ZeroDivisionError(f"in {os.getpid() == parent}")

    parent = os.getpid()
    monkeypatch.setattr(ResolvedCell, "memory_needed", lambda *_: 10**9)
    monkeypatch.setattr(questions, "available_memory", lambda: 5 * 10**8)
    monkeypatch.setattr(questions, "EXACT_UP_TO", 0)
    monkeypatch.setattr(answer, "answer", answered)
    with pytest.raises(ZeroDivisionError, match="in False") as found:
        list(questions.simulated(resolved, "simpy", []))
    assert "in answered" in "".join(found.value.__notes__)


def started_expect(folder: Path) -> tuple["subprocess.Popen[str]", int]:
    """An `expect` with many sizes, and the process that helps it."""
    command = [sys.executable, "-m", "netsim", "expect", "dgx-h100", "all_reduce", "--nodes", "8"]
    process = subprocess.Popen(
        [*command, "--sizes", "4K:8G:2", "--exact"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None:
        numbers = children.read_text().split()
        if numbers:
            return process, int(numbers[0])
        time.sleep(0.005)
    raise AssertionError("expect ended before another process helped it")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core alone has no helper")
@pytest.mark.slow
@pytest.mark.parametrize("killed", ["helper", "nothing"])
def test_expect_prints_all_sizes_when_its_helper_is_killed(tmp_path: Path, killed: str) -> None:
    process, helper = started_expect(tmp_path)
    if killed == "helper":
        os.kill(helper, signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    sizes = [int(line.split()[0]) for line in out.splitlines() if line.lstrip()[:1].isdigit()]
    assert sizes == [4096 << power for power in range(22)]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core alone has no helper")
@pytest.mark.slow
def test_ctrl_c_ends_expect_and_its_helper(tmp_path: Path) -> None:
    process, helper = started_expect(tmp_path)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    deadline = time.monotonic() + 10
    while Path(f"/proc/{helper}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{helper}").exists()
