"""Worker processes on this machine, which calculate the results of jobs.

Workers end if this process ends. If a worker dies, only its own job is lost: each worker has one
job at a time, so that the job during which it died can be named. Such a job is tried once more,
while no other job runs. Jobs run at the same time as long as there is memory for the bytes that
they are expected to need, or that their workers are seen to have.
"""

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

LEAVE = 5.0  # seconds that a worker has to end after it was signaled to
LISTEN = 0.1  # seconds between two checks for an interrupt
QUIET = f"{__package__}.quiet"  # a name, because an import would silence this process
IDLE = 600_000_000  # a worker without a job that has more bytes is replaced by a new one
# The exit code that multiprocessing reports for a worker if the fork server, which would have
# collected the true one, ended as well.
VANISHED = 255
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")


class Job(NamedTuple):
    """One job of a worker.

    - `request`: the argument of the function that the workers call.
    - `name`: how messages call the job.
    - `memory`: the bytes that it needs at most.
    - `answers`: how many answers the worker sends.
    """

    request: Any
    name: str
    memory: int = 0
    answers: int = 1


JobTuple = tuple[Any, str, int, int]  # the fields of a Job, from callers that do not import it
Results = Generator[tuple[Any, Any], None, None]  # pairs of a request and an answer


def _work(
    pipe: connection.Connection,
    call: Callable[..., Any],
    begun: Sequence[Any],
    memory: int,
    share: Any,
) -> None:
    """Receive jobs and send their answers until the parent ends or closes the pipe.

    Args:
        pipe: connection to the parent: requests come in, answers go out.
        call: `call(request, *begun)` yields the answers to a request.
        begun: further arguments of `call`, equal for all jobs and sent once when the worker starts.
        memory: limit of this process in bytes; 0: none.
        share: memory shared with the parent, which holds the fraction of the current job that is
            done.
    """

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
            request = pipe.recv()
            tell_share(0.0)
            try:
                for answer in call(request, *begun):
                    pipe.send(answer)
            except Exception as error:  # the parent decides what to do about it
                pipe.send(_Raised(error))


def _end_with(sentinel: int) -> None:
    """End this process as soon as its parent, whose `sentinel` it waits for, has ended."""
    connection.wait([sentinel])
    os._exit(1)


class _Raised:
    """An exception that is sent in place of an answer."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # it cannot be sent, so its text is
            self.error = RuntimeError(f"{type(error).__name__}: {error}")


class _Worker:
    """A worker process, its current job, and the number of answers to it that have arrived."""

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
        self.answer_count = 0
        self.most_bytes = 0

    def begin(self, job: Job) -> None:
        """Send a job to the process."""
        self.job = job
        self.answer_count = 0
        self.share.value = 0.0
        with suppress(OSError):  # the process is dead, which `Processes._receive` notices
            self.pipe.send(job.request)

    @property
    def title(self) -> str:
        """The name of its job, with the percentage that is done if the job reports it."""
        name = "" if self.job is None else self.job.name
        done = float(self.share.value)
        return f"{name} {done:.0%}" if done else name

    def memory(self) -> int:
        """Return the bytes that the process has now, and note the largest number so far."""
        bytes_used = resident(self.process.pid)
        self.most_bytes = max(self.most_bytes, bytes_used)
        return bytes_used

    def end(self) -> None:
        """End the process, even if it has a job."""
        self.pipe.close()
        self.process.terminate()
        self.process.join(LEAVE)
        if self.process.exitcode in (None, VANISHED) and self.process.pid:
            with suppress(ProcessLookupError):  # it may have ended already
                os.kill(self.process.pid, signal.SIGKILL)


def killed_for_memory() -> int:
    """Return how many processes Linux has killed because memory was short since it was booted."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except (OSError, ValueError, IndexError):
        return 0


def cause_of(code: int | None, memory: int, short: bool) -> str:
    """Return the probable cause of the end of a worker as the predicate of a sentence.

    `code` is its exit code, `memory` the bytes that it had, and `short` says whether the system has
    killed any process in the meantime because memory was short.
    """
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
    """Up to `count` worker processes, which call `call(request, *begun)`, a generator of answers.

    - `begun`: further arguments of `call`, equal for all jobs and sent once to each worker.
    - `memory`: the bytes that all of them may have together (0: any number).
    - `tell`: is called with a message if a worker dies.
    - `rest`: `rest(request, n)` returns the request for the answers after the first n.

    with Processes(2, call) as workers:
        for request, answer in workers.results([(1, "one", 0, 1)]): ...
    """

    def __init__(
        self,
        count: int,
        call: Callable[..., Iterator[Any]],
        *,
        begun: Sequence[Any] = (),
        memory: int = 0,
        tell: Tell = silent,
        rest: Callable[[Any, int], Any] = lambda request, n: request,
    ) -> None:
        self.count = count
        self.call = call
        self.begun = begun
        self.limit = memory
        self.tell = tell
        self.rest = rest
        self.workers: list[_Worker] = []
        self._lost: list[Job] = []  # jobs whose worker died, to be tried again while no other runs
        self._alone: Job | None = None
        self._killed_count = killed_for_memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end(self.workers)

    @property
    def busy(self) -> list[_Worker]:
        """The workers that have a job."""
        return [worker for worker in self.workers if worker.job is not None]

    def names(self) -> list[str]:
        """Return the names of the jobs that run, with the percentage done if they report it."""
        return [worker.title for worker in self.busy]

    def memory(self) -> int:
        """Return the bytes that all workers have together."""
        return sum(worker.memory() for worker in self.workers)

    def results(self, jobs: Iterable[JobTuple]) -> Results:
        """Yield the request and the answer for every answer, in the order of arrival.

        The answer of a job during which a worker died twice is a `LostError`.
        """
        waiting_jobs = (Job(*job) for job in jobs)
        window: list[Job] = []
        with held() as interrupt:
            try:
                while True:
                    window += islice(waiting_jobs, 2 * self.count - len(window))
                    self._share_out(window)
                    if not self.busy:
                        return
                    yield from self._receive(interrupt)
            finally:
                self._end(self.busy)
                self._lost = []
                self._alone = None

    def _share_out(self, window: list[Job]) -> None:
        """Give jobs to workers as long as there is memory.

        A job whose worker died runs again only while no other job runs.
        """
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
        """Return whether there is memory for a job now; if no other job runs, there always is."""
        busy = self.busy
        if not self.limit or not busy:
            return True
        taken = resident()
        for worker in self.workers:
            expected_bytes = worker.job.memory if worker.job else 0
            taken += max(expected_bytes, worker.memory())
        return taken + job.memory <= self.limit

    def _give(self, job: Job) -> None:
        """Give a job to an idle worker, or to a new one.

        A job that is tried again gets a new worker, and workers with much memory are replaced.
        """
        idle = [worker for worker in self.workers if worker.job is None]
        self._end([worker for worker in idle if job is self._alone or worker.memory() > IDLE])
        idle = [worker for worker in idle if worker in self.workers]
        worker = idle[0] if idle else self._start()
        worker.begin(job)
        STAGE.activity = ", ".join(self.names())

    def _start(self) -> _Worker:
        """Start a worker, with a new fork server if that was killed."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([QUIET, self.call.__module__])
        resource_tracker.ensure_running()  # before `deaf`, because it unblocks interrupts
        with deaf():
            for _ in range(2):
                try:
                    forkserver.ensure_running()
                    worker = _Worker(self.call, self.begun, self.limit)
                    break
                except (EOFError, ConnectionError):  # the fork server was killed
                    continue
            else:
                raise LostError("no worker can be started")
        self.workers.append(worker)
        return worker

    def _receive(self, interrupt: Held) -> Results:
        """Wait up to `LISTEN` seconds for answers, or for the end of a worker, and yield them."""
        sources: dict[Any, _Worker] = {}
        for worker in self.workers:
            sources[worker.pipe] = worker
            sources[worker.process.sentinel] = worker
        ready = connection.wait(list(sources), LISTEN)
        interrupt.check()
        if not ready:
            self.memory()
            STAGE.activity = ", ".join(self.names())
        for worker in dict.fromkeys(sources[source] for source in ready):
            yield from self._answers(worker)

    def _answers(self, worker: _Worker) -> Results:
        """Yield the answers of a worker that have arrived; if it has died, retry its job."""
        try:
            while worker.pipe.poll():
                answer = worker.pipe.recv()
                job = worker.job
                assert job is not None  # a worker sends nothing without a job
                if isinstance(answer, _Raised):
                    if not isinstance(answer.error, MemoryError):
                        raise answer.error
                    yield from self._died(worker, "is out of memory")
                    return
                worker.answer_count += 1
                if worker.answer_count == job.answers:
                    worker.job = None
                    if job is self._alone:
                        self._alone = None
                yield job.request, answer
            if worker.process.exitcode is None:
                return
        except (EOFError, OSError, pickle.UnpicklingError):
            worker.process.join(LEAVE)
        short = killed_for_memory() > self._killed_count
        code = worker.process.exitcode
        yield from self._died(worker, cause_of(code, worker.most_bytes, short))

    def _died(self, worker: _Worker, cause: str) -> Results:
        """Remove a dead worker; retry its job, or yield a `LostError` if this was the retry."""
        job = worker.job
        answer_count = worker.answer_count
        code = worker.process.exitcode
        self._killed_count = killed_for_memory()
        self._end([worker])
        if job is None:
            return
        if job is self._alone:
            self._alone = None
            why = f"{job.name}: its worker {cause}, also when it was tried alone"
            yield self.rest(job.request, answer_count), LostError(why)
            return
        if code != VANISHED:  # otherwise the fork server ended, which is not the fault of the job
            self.tell(f"{job.name}: its worker {cause}; it is tried once more, alone")
        remaining_request = self.rest(job.request, answer_count)
        remaining_count = job.answers - answer_count
        self._lost.append(Job(remaining_request, job.name, job.memory, remaining_count))

    def _end(self, workers: Sequence[_Worker]) -> None:
        """End some workers without waiting for their jobs."""
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.end()
        self.workers = [worker for worker in self.workers if worker not in workers]
