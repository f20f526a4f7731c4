"""Workers on this machine: processes that end if this one does, and cost their own job if they die.

Each is asked for one job at a time, so that it is known what a worker died of. A job that ended its
worker is tried once more, alone. Jobs run together as long as the memory that they are expected to
need, or are seen to have, is there."""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing import connection, forkserver, resource_tracker
from typing import Any, NamedTuple, Self

from netsim.base.errors import LostError, Tell, silent
from netsim.base.files import Held, deaf, held
from netsim.base.startup import STAGE, limit_memory, resident, tell_share

LEAVE = 5.0  # seconds that a worker has to end after it was asked to
LISTEN = 0.1  # seconds between two checks for an interrupt
QUIET = f"{__package__}.quiet"  # not to be imported here: it silences its process
IDLE = 600_000_000  # bytes from which a worker without a job is replaced rather than kept
VANISHED = 255  # what is known of the end of a worker if what it was forked from ended as well
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")


class Job(NamedTuple):
    """What a worker is asked, how people call it, the bytes it needs at most, and its answers."""

    asked: Any
    name: str
    memory: int = 0
    answers: int = 1


Asked = tuple[Any, str, int, int]  # a Job, from those who do not import this file
Results = Generator[tuple[Any, Any], None, None]


def _work(
    pipe: connection.Connection,
    call: Callable[..., Any],
    begun: Sequence[Any],
    memory: int,
    share: Any,
) -> None:
    """Answer jobs until the parent ends, or wants no more.

    `share` is memory shared with the parent: the fraction of the current job that is done."""

    def tell_parent(done: float) -> None:
        share.value = done

    STAGE.tell_parent = tell_parent
    if memory:
        limit_memory(memory)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            question = pipe.recv()
            tell_share(0.0)
            try:
                for answer in call(question, *begun):
                    pipe.send(answer)
            except Exception as error:  # who asked decides what becomes of it
                pipe.send(_Raised(error))


def _end_with(sentinel: int) -> None:
    """End this process as soon as the one that waits for its work has ended."""
    connection.wait([sentinel])
    os._exit(1)


class _Raised:
    """An exception as an answer."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # one that cannot be sent
            self.error = RuntimeError(f"{type(error).__name__}: {error}")


class _Worker:
    """A process, what it is at, and how many answers to that have come."""

    def __init__(self, call: Callable[..., Any], begun: Sequence[Any], memory: int) -> None:
        context = multiprocessing.get_context("forkserver")
        self.pipe, theirs = context.Pipe()
        self.share = context.Value("d", 0.0, lock=False)
        self.process = context.Process(
            target=_work, args=(theirs, call, begun, memory, self.share), daemon=True
        )
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.came, self.most = 0, 0

    def begin(self, job: Job) -> None:
        self.job, self.came = job, 0
        self.share.value = 0.0
        with suppress(OSError):  # it is dead, as the next look tells
            self.pipe.send(job.asked)

    @property
    def title(self) -> str:
        """The name of its job, with the fraction that is done if that is known."""
        name = "" if self.job is None else self.job.name
        done = float(self.share.value)
        return f"{name} {done:.0%}" if done else name

    def memory(self) -> int:
        """The bytes that it has now; the most that were seen are kept."""
        bytes_used = resident(self.process.pid)
        self.most = max(self.most, bytes_used)
        return bytes_used

    def end(self) -> None:
        """End it, whatever it is at."""
        self.pipe.close()
        self.process.terminate()
        self.process.join(LEAVE)
        if self.process.exitcode in (None, VANISHED) and self.process.pid:
            with suppress(ProcessLookupError):  # nobody tells us whether it has ended
                os.kill(self.process.pid, signal.SIGKILL)


def killed_for_memory() -> int:
    """How many processes the system has ended for want of memory since it began."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except (OSError, ValueError, IndexError):
        return 0


def cause_of(code: int | None, memory: int, short: bool) -> str:
    """Why a worker ended, likely; `short`: the system ended some process for want of memory."""
    had = f", when it had {memory / 1e9:.1f} GB" if memory else ""
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        if name == "SIGKILL":
            why = "the system was out of memory" if short else "by somebody, or out of memory"
            return f"was killed ({name}: {why}{had})"
        return f"{'crashed' if name in CRASHES else 'was ended'} ({name}{had})"
    if code in (None, VANISHED):
        return f"vanished (was killed{had})"
    return f"ended by itself (exit code {code}{had})"


class Processes:
    """So many processes of this machine, which call `call(asked, *begun)`, a generator of answers.

    `memory` are the bytes that all may have together (0: any number), `tell` hears what happens to
    workers, `rest(asked, n)` is what is still asked after n answers.

    with Processes(2, call) as workers:
        for asked, answer in workers.results([(1, "one", 0, 1)]): ..."""

    def __init__(
        self,
        count: int,
        call: Callable[..., Iterator[Any]],
        *,
        begun: Sequence[Any] = (),
        memory: int = 0,
        tell: Tell = silent,
        rest: Callable[[Any, int], Any] = lambda asked, n: asked,
    ) -> None:
        self.count, self.call, self.begun = count, call, begun
        self.limit, self.tell, self.rest = memory, tell, rest
        self.workers: list[_Worker] = []
        self._lost: list[Job] = []  # jobs that are to be tried alone
        self._alone: Job | None = None
        self._short = killed_for_memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end(self.workers)

    @property
    def busy(self) -> list[_Worker]:
        """The workers that have a job."""
        return [worker for worker in self.workers if worker.job is not None]

    def names(self) -> list[str]:
        """The jobs under way, each with the fraction that is done if that is known."""
        return [worker.title for worker in self.busy]

    def memory(self) -> int:
        """The bytes that all workers have."""
        return sum(worker.memory() for worker in self.workers)

    def results(self, jobs: Iterable[Asked]) -> Results:
        """Each job with its results; with a `LostError` if it ended its worker twice."""
        left = (Job(*job) for job in jobs)
        window: list[Job] = []
        with held() as interrupt:
            try:
                while True:
                    window += islice(left, 2 * self.count - len(window))
                    self._share_out(window)
                    if not self.busy:
                        return
                    yield from self._heard(interrupt)
            finally:
                self._end(self.busy)
                self._lost, self._alone = [], None

    def _share_out(self, window: list[Job]) -> None:
        """Give jobs to workers: lost ones alone, others as long as there is memory."""
        if self._alone is not None:
            return
        if self._lost:
            if not self.busy:
                self._alone = self._lost.pop(0)
                self._give(self._alone)
            return
        while window and len(self.busy) < self.count:
            place = next((n for n, job in enumerate(window) if self._has_room(job)), None)
            if place is None:
                return
            self._give(window.pop(place))

    def _has_room(self, job: Job) -> bool:
        """Whether a job may begin now; where nothing else runs, it may."""
        busy = self.busy
        if not self.limit or not busy:
            return True
        taken = (max(one.job.memory if one.job else 0, one.memory()) for one in self.workers)
        return resident() + sum(taken) + job.memory <= self.limit

    def _give(self, job: Job) -> None:
        idle = [worker for worker in self.workers if worker.job is None]
        self._end([worker for worker in idle if job is self._alone or worker.memory() > IDLE])
        idle = [worker for worker in idle if worker in self.workers]
        worker = idle[0] if idle else self._start()
        worker.begin(job)
        STAGE.activity = ", ".join(self.names())

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([QUIET, self.call.__module__])
        resource_tracker.ensure_running()  # it comes first, and lets interrupts through again
        with deaf():
            for _ in range(2):
                try:
                    forkserver.ensure_running()
                    worker = _Worker(self.call, self.begun, self.limit)
                    break
                except (EOFError, ConnectionError):  # what they are forked from was killed
                    continue
            else:
                raise LostError("no worker can be started")
        self.workers.append(worker)
        return worker

    def _heard(self, interrupt: Held) -> Results:
        """What workers answer, or that one has died; nothing where nobody says anything soon."""
        waiting: dict[Any, _Worker] = {}
        for worker in self.workers:
            waiting[worker.pipe] = waiting[worker.process.sentinel] = worker
        ready = connection.wait(list(waiting), LISTEN)
        interrupt.check()
        if not ready:
            self.memory()
            STAGE.activity = ", ".join(self.names())
        for worker in dict.fromkeys(waiting[one] for one in ready):
            yield from self._of(worker)

    def _of(self, worker: _Worker) -> Results:
        """The answers of one worker that are there."""
        try:
            while worker.pipe.poll():
                answer = worker.pipe.recv()
                job = worker.job
                assert job is not None  # it answers what it is asked
                if isinstance(answer, _Raised):
                    if not isinstance(answer.error, MemoryError):
                        raise answer.error
                    yield from self._died(worker, "is out of memory")
                    return
                worker.came += 1
                if worker.came == job.answers:
                    worker.job = None
                    self._alone = None if job is self._alone else self._alone
                yield job.asked, answer
            if worker.process.exitcode is None:
                return
        except (EOFError, OSError, pickle.UnpicklingError):
            worker.process.join(LEAVE)
        short = killed_for_memory() > self._short
        code = worker.process.exitcode
        yield from self._died(worker, cause_of(code, worker.most, short))

    def _died(self, worker: _Worker, cause: str) -> Results:
        """What becomes of the job of a worker that is no more."""
        job, came, code = worker.job, worker.came, worker.process.exitcode
        self._short = killed_for_memory()
        self._end([worker])
        if job is None:
            return
        if job is self._alone:
            self._alone = None
            why = f"{job.name}: its worker {cause}, also when it was tried alone"
            yield self.rest(job.asked, came), LostError(why)
            return
        if code != VANISHED:  # else what it was forked from ended, which no job did
            self.tell(f"{job.name}: its worker {cause}; it is tried once more, alone")
        left = self.rest(job.asked, came)
        self._lost.append(Job(left, job.name, job.memory, job.answers - came))

    def _end(self, workers: Sequence[_Worker]) -> None:
        """End some workers without waiting for what they are at."""
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.end()
        self.workers = [worker for worker in self.workers if worker not in workers]
