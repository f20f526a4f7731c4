"""Workers that die cost their own job, named and tried once more alone; others are answered."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from netsim.base import processes
from netsim.base.errors import InputError, LostError
from netsim.base.files import Held
from netsim.base.processes import Processes, cause_of
from netsim.base.startup import resident, tell_share
from netsim.base.worker_pool import Answered, Job, WorkerPool

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


class OneAtATime(WorkerPool):
    """A pool that answers one job each time it is asked, and notes what was asked of it."""

    def __init__(self, most_waiting: int) -> None:
        self.most_waiting = most_waiting
        self.waiting: list[Job] = []
        self.is_canceled = False

    def room(self) -> int:
        return self.most_waiting - len(self.waiting)

    def is_idle(self) -> bool:
        return not self.waiting

    def submit(self, job: Job) -> None:
        self.waiting.append(job)

    def receive(self, interrupt: Held) -> Iterator[Answered]:
        yield self.waiting.pop(0).request, "answer"

    def cancel(self) -> None:
        self.is_canceled = True

    def close(self) -> None:
        """End nothing."""


@pytest.mark.parametrize("most", [2, 6])
def test_a_pool_is_given_no_more_jobs_than_it_has_room_for(most: int) -> None:
    """Jobs may be made as they are asked for, and be large."""
    made: list[int] = []

    def jobs() -> Iterator[Job]:
        for number in range(20):
            made.append(number)
            yield Job(number, "")

    pool = OneAtATime(most)
    counts = [(request, len(made)) for request, _ in pool.results(jobs())]
    assert counts == [(number, min(20, most + number)) for number in range(20)]
    assert pool.is_canceled


def test_jobs_are_canceled_when_nobody_wants_more_answers() -> None:
    pool = OneAtATime(2)
    with closing(pool.results([Job(1, ""), Job(2, "")])) as results:
        assert next(results) == (1, "answer")
        assert not pool.is_canceled
    assert pool.is_canceled


@pytest.mark.parametrize("is_forked", [False, True])
@pytest.mark.slow
def test_canceled_jobs_end_and_the_pool_takes_others(tmp_path: Path, is_forked: bool) -> None:
    with Processes(1, call, begun=(tmp_path,), is_forked=is_forked) as workers:
        workers.submit(Job(("one", "slow1"), "job one", answers=2))
        workers.submit(Job(("two",), "job two"))
        while not (tmp_path / "begin-slow1").exists():
            time.sleep(0.01)
        workers.cancel()
        assert workers.is_idle()
        assert [answer for _, answer in workers.results([Job(("three",), "job three")])] == [
            "THREE"
        ]
    assert not (tmp_path / "end-slow1").exists()
    assert not list(tmp_path.glob("two.*"))


@pytest.mark.slow
def test_a_fork_has_what_this_process_has_and_need_not_be_sent_it() -> None:
    begun_in = os.getpid()

    def call_with(request: str) -> Iterator[tuple[str, int, int]]:  # cannot be pickled
        yield request, begun_in, os.getpid()

    with Processes(1, call_with, is_forked=True) as workers:
        ((_, (request, parent, process)),) = workers.results([Job("request", "job")])
    assert (request, parent) == ("request", os.getpid())
    assert process != parent


@pytest.mark.slow
def test_a_job_that_is_tried_once_is_lost_with_its_first_worker(tmp_path: Path) -> None:
    settings = {"begun": (tmp_path,), "attempts": 1, "is_forked": True}
    with Processes(1, call, **settings) as workers:
        found = dict(workers.results([Job(("once",), "job once"), Job(("two",), "job two")]))
    assert isinstance(found["once",], LostError)
    assert str(found["once",]).startswith("job once: its worker was killed (SIGKILL")
    assert "also" not in str(found["once",])
    assert found["two",] == "TWO"


@pytest.mark.slow
def test_a_bug_in_a_worker_is_raised_with_the_trace_of_the_worker(tmp_path: Path) -> None:
    with pytest.raises(KeyError) as caught:
        results(tmp_path, "SIGNOTHING")
    assert "in call" in "".join(caught.value.__notes__)


@pytest.mark.slow
def test_ctrl_c_ends_a_pool_and_its_workers_at_once(tmp_path: Path) -> None:
    """The signal comes while a job runs, and is raised where its answer is waited for."""
    with Processes(1, call, begun=(tmp_path,)) as workers:
        answers = workers.results([(("one", "slow1"), "job one", 0, 2)])
        assert next(answers)[1] == "ONE"
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            list(answers)
    (process,) = {int(file.read_text()) for file in tmp_path.glob("one.*")}
    assert not Path(f"/proc/{process}/exe").exists()
    assert not (tmp_path / "end-slow1").exists()
