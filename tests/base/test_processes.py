"""Workers that die cost their own job, named and tried once more alone; others are answered."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from netsim.base import processes
from netsim.base.errors import InputError, LostError
from netsim.base.processes import Processes, cause_of
from netsim.base.startup import resident, tell_share

SLOW_SECONDS = 0.6
"""Long enough for another worker to start on a machine that is busy."""


def call(asked: tuple[str, ...], folder: Path) -> Iterator[str]:
    """Do what is asked, word by word; leave a file for each attempt."""
    for word in asked:
        (folder / f"{word}.{len(list(folder.glob(f'{word}.*')))}").write_text(str(os.getpid()))
        attempts = len(list(folder.glob(f"{word}.*")))
        if word.startswith("SIG") or (word.startswith("once") and attempts == 1):
            os.kill(os.getpid(), signal.Signals[word if word.startswith("SIG") else "SIGKILL"])
        if word == "share":
            tell_share(0.35)
        if word == "memory":
            raise MemoryError
        if word == "wrong":
            raise InputError("bad", hint="better")
        if word.startswith("slow"):
            (folder / f"begin-{word}").write_text(str(time.monotonic()))
            time.sleep(SLOW_SECONDS)
            (folder / f"end-{word}").write_text(str(time.monotonic()))
        yield word.upper()


def rest(asked: tuple[str, ...], answered: int) -> tuple[str, ...]:
    return asked[answered:]


def results(folder: Path, *jobs: str, memory: int = 0, limit: int = 0):
    """Answers by job, and what was told."""
    told: list[str] = []
    found: dict[str, list[object]] = {}
    words = [tuple(job.split()) for job in jobs]
    asked = [(one, f"job {one[0]}", memory, len(one)) for one in words]
    with Processes(2, call, begun=(folder,), memory=limit, tell=told.append, rest=rest) as workers:
        for one, answer in workers.results(asked):
            found.setdefault(one[0], []).append(answer)
    return found, told


@pytest.mark.slow
def test_a_worker_killed_once_costs_nothing_and_is_told(tmp_path: Path) -> None:
    found, told = results(tmp_path, "one", "once", "two", "three")
    assert found == {word: [word.upper()] for word in ("one", "once", "two", "three")}
    assert len(told) == 1
    assert told[0].startswith("job once: its worker was killed (SIGKILL: ")
    assert told[0].endswith("; it is tried once more, alone")


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "cause"),
    [
        ("SIGKILL", "was killed (SIGKILL"),
        ("SIGSEGV", "crashed (SIGSEGV"),
        ("SIGTERM", "was ended (SIGTERM"),
        ("memory", "is out of memory"),
    ],
)
def test_a_job_that_ends_its_worker_twice_is_lost_and_no_other(tmp_path, job, cause) -> None:
    found, told = results(tmp_path, "one", job, "two", "three")
    (lost,) = found.pop(job)
    assert isinstance(lost, LostError)
    assert lost.exit_code == 1
    assert str(lost).startswith(f"job {job}: its worker {cause}")
    assert str(lost).endswith("also when it was tried alone")
    assert found == {word: [word.upper()] for word in ("one", "two", "three")}
    assert len(told) == 1
    assert len(list(tmp_path.glob(f"{job}.*"))) == 2


@pytest.mark.slow
def test_answers_before_the_end_of_a_worker_are_kept(tmp_path: Path) -> None:
    found, _ = results(tmp_path, "one once two", "three")
    assert found.pop("three") == ["THREE"]
    assert found == {"one": ["ONE"], "once": ["ONCE", "TWO"]}  # the second attempt is of the rest
    assert len(list(tmp_path.glob("one.*"))) == 1


@pytest.mark.slow
def test_an_error_is_raised_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bad \(better\)"):
        results(tmp_path, "wrong")


@pytest.mark.slow
def test_a_lost_job_is_tried_while_nothing_else_runs(tmp_path: Path) -> None:
    found, _ = results(tmp_path, "once", "slow1", "slow2", "slow3", "once slow4")
    assert all(not isinstance(answer, LostError) for one in found.values() for answer in one)
    tried = (tmp_path / "once.1").stat().st_mtime
    spans = [(tmp_path / f"begin-slow{n}", tmp_path / f"end-slow{n}") for n in (1, 2, 3)]
    assert not any(a.stat().st_mtime < tried < b.stat().st_mtime for a, b in spans)


@pytest.mark.slow
@pytest.mark.parametrize(("gigabytes", "together"), [(0.7, False), (0.1, True)])
def test_jobs_run_together_as_long_as_there_is_memory(tmp_path, gigabytes, together) -> None:
    bytes_of = 10**12
    found, _ = results(tmp_path, "slow1", "slow2", memory=int(gigabytes * bytes_of), limit=bytes_of)
    assert set(found) == {"slow1", "slow2"}
    times = [
        float((tmp_path / f"{edge}-slow{n}").read_text())
        for n in (1, 2)
        for edge in ("begin", "end")
    ]
    apart = times[1] <= times[2] or times[3] <= times[0]
    assert apart is not together


@pytest.mark.slow
def test_a_worker_tells_how_much_of_its_job_is_done(tmp_path: Path) -> None:
    job = (("share", "slow1"), "job share", 0, 2)
    with Processes(1, call, begun=(tmp_path,), rest=rest) as workers:
        answers = workers.results([job])
        assert next(answers) == (job[0], "SHARE")
        assert workers.names() == ["job share 35%"]
        assert [answer for _, answer in answers] == ["SLOW1"]


@pytest.mark.slow
def test_a_job_that_needs_more_than_there_is_runs_alone(tmp_path: Path) -> None:
    found, _ = results(tmp_path, "slow1", "slow2", memory=2 * 10**12, limit=10**12)
    assert set(found) == {"slow1", "slow2"}


def test_causes_are_told_apart() -> None:
    assert "the system was out of memory, when it had 3.0 GB" in cause_of(-9, 3 * 10**9, True)
    assert "by somebody, or out of memory" in cause_of(-9, 0, False)
    assert cause_of(-6, 0, False) == "crashed (SIGABRT)"
    assert cause_of(3, 0, False) == "ended by itself (exit code 3)"
    assert cause_of(255, 0, False) == "vanished (was killed)"
    assert resident() > 10**7
    assert resident(2**30) == 0


def test_a_job_has_room_up_to_the_very_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a busy worker was promised counts, or what it has, if that is more."""
    monkeypatch.setattr(processes, "resident", lambda: 100)

    def room(limit: int, *workers: tuple[int | None, int]) -> bool:
        every = [
            SimpleNamespace(
                job=None if promised is None else SimpleNamespace(memory=promised),
                memory=lambda has=has: has,
            )
            for promised, has in workers
        ]
        busy = [one for one in every if one.job]
        held = SimpleNamespace(limit=limit, busy=busy, workers=every)
        return Processes._has_room(held, SimpleNamespace(memory=50))

    assert room(0, (10**12, 0))
    assert room(1, (None, 10**9))
    assert [room(limit, (30, 20), (None, 0)) for limit in (179, 180)] == [False, True]
    assert [room(limit, (20, 30), (None, 5)) for limit in (184, 185)] == [False, True]


@pytest.mark.parametrize("count", [1, 3])
def test_no_more_is_asked_ahead_than_twice_as_much_as_there_are_workers(count: int) -> None:
    """What is asked may be made as it is asked for, and be large."""
    workers, asked, waiting, given = Processes(count, call), [], [], []

    def jobs() -> Iterator[tuple[int, str, int, int]]:
        for number in range(20):
            asked.append(number)
            yield number, "", 0, 1

    def share_out(window: list[processes.Job]) -> None:
        waiting.append(len(window))
        given[:] = [SimpleNamespace(job=window.pop(0))] if window else []

    workers._share_out = share_out  # type: ignore[method-assign]
    workers._receive = lambda interrupt: iter([(len(asked), "")])  # type: ignore[method-assign]
    workers._end = lambda some: None  # type: ignore[method-assign]
    workers.workers = given
    ahead = [told for told, _ in workers.results(jobs())]
    assert waiting == [2 * count] * (21 - 2 * count) + [*range(2 * count - 1, -1, -1)]
    assert ahead == [min(20, 2 * count + n) for n in range(20)]
