"""Worker processes on this machine: the local pool behind `base/worker_pool.py`.

Workers end if this process ends. If a worker dies, only its own job is lost: each worker has one
job at a time, so that the job during which it died can be named. Such a job is tried once more,
while no other job runs. Jobs run at the same time as long as there is memory for the bytes that
they are expected to need, or that their workers are seen to have.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import connection, forkserver, resource_tracker
from traceback import format_exc
from typing import Any

from netsim.base.errors import LostError, NetsimError, Tell, silent
from netsim.base.files import SIGNALS, Held, deaf
from netsim.base.startup import STAGE, limit_memory, resident, tell_share
from netsim.base.worker_pool import Answered, Job, WorkerPool

LEAVE = 5.0  # seconds that a worker has to end after it was signaled to
LISTEN = 0.1  # seconds between two checks for an interrupt
QUIET = f"{__package__}.quiet"  # a name, because an import would silence this process
IDLE = 600_000_000  # a worker without a job that has more bytes is replaced by a new one
# The exit code that multiprocessing reports for a worker if the fork server, which would have
# collected the true one, ended as well.
VANISHED = 255
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")


def _work(
    pipe: connection.Connection,
    call: Callable[..., Any],
    begun: Sequence[Any],
    memory: int,
    share: Any,
    is_forked: bool,
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
    if is_forked:
        _leave_parent()

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


def _leave_parent() -> None:
    """In a fork of the parent: use streams and signals as a new process does.

    The display of progress in the parent may hold the locks of its streams."""
    sys.stdout = sys.__stdout__
    sys.stderr = sys.__stderr__
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _end_with(sentinel: int) -> None:
    """End this process as soon as its parent, whose `sentinel` it waits for, has ended."""
    connection.wait([sentinel])
    os._exit(1)


class _Raised:
    """An exception that is sent in place of an answer."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        if not isinstance(error, NetsimError):  # a bug: the trace says where
            error.add_note(format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # it cannot be sent, so its text is
            self.error = RuntimeError(f"{type(error).__name__}: {error}")


class _Worker:
    """A worker process, its current job, and the number of answers to it that have arrived."""

    def __init__(
        self, call: Callable[..., Any], begun: Sequence[Any], memory: int, *, is_forked: bool
    ) -> None:
        # multiprocessing states no type that the contexts have in common
        context: Any = multiprocessing.get_context("fork" if is_forked else "forkserver")
        self.pipe, theirs = context.Pipe()
        self.share = context.Value("d", 0.0, lock=False)
        arguments = (theirs, call, begun, memory, self.share, is_forked)
        self.process = context.Process(target=_work, args=arguments, daemon=True)
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


class Processes(WorkerPool):
    """Up to `count` worker processes, which call `call(request, *begun)`, a generator of answers.

    - `begun`: further arguments of `call`, equal for all jobs and sent once to each worker.
    - `memory`: the bytes that all of them may have together (0: any number).
    - `tell`: is called with a message if a worker dies.
    - `rest`: `rest(request, n)` returns the request for the answers after the first n.
    - `attempts`: how often a job is tried whose worker dies.
    - `is_forked`: workers are forks of this process. They begin at once with everything that it
      has, `begun` included, which need not be sent; but it must have no thread that does work.

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
        attempts: int = 2,
        is_forked: bool = False,
    ) -> None:
        self.worker_count = count
        self.call = call
        self.begun = begun
        self.limit = memory
        self.tell = tell
        self.rest = rest
        self.attempts = attempts
        self.is_forked = is_forked
        self.workers: list[_Worker] = []
        self._waiting: list[Job] = []
        self._lost: list[Job] = []  # jobs whose worker died, to be tried again while no other runs
        self._alone: Job | None = None
        self._killed_count = killed_for_memory()

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

    def room(self) -> int:
        """Return how many more jobs it takes: two for each worker may wait."""
        return 2 * self.worker_count - len(self._waiting)

    def is_idle(self) -> bool:
        """Return whether every job that was submitted is answered."""
        return not (self._waiting or self._lost or self.busy)

    def submit(self, job: Job) -> None:
        """Begin a job if there is a worker and memory for it, or else let it wait."""
        self._waiting.append(job)
        self._share_out()

    def receive(self, interrupt: Held) -> Iterator[Answered]:
        """Wait up to `LISTEN` seconds for answers, or for the end of a worker; yield answers."""
        self._share_out()
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

    def cancel(self) -> None:
        """Forget the jobs that wait, and end the workers that have one."""
        self._waiting = []
        self._lost = []
        self._alone = None
        self._end(self.busy)

    def close(self) -> None:
        """End all workers."""
        self.cancel()
        self._end(self.workers)

    def _share_out(self) -> None:
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
        while self._waiting and len(self.busy) < self.worker_count:
            place = next((n for n, job in enumerate(self._waiting) if self._has_room(job)), None)
            if place is None:
                return
            self._give(self._waiting.pop(place))

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
        if self.is_forked:
            with deaf():
                worker = self._new_worker()
        else:
            worker = self._served_worker()
        self.workers.append(worker)
        return worker

    def _new_worker(self) -> _Worker:
        return _Worker(self.call, self.begun, self.limit, is_forked=self.is_forked)

    def _served_worker(self) -> _Worker:
        """Start a worker by the fork server, which has imported what the workers need."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([QUIET, self.call.__module__])
        resource_tracker.ensure_running()  # before `deaf`, because it unblocks interrupts
        with deaf():
            for _ in range(2):
                with suppress(EOFError, ConnectionError):  # the fork server was killed
                    forkserver.ensure_running()
                    return self._new_worker()
        raise LostError("no worker can be started")

    def _answers(self, worker: _Worker) -> Iterator[Answered]:
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

    def _died(self, worker: _Worker, cause: str) -> Iterator[Answered]:
        """Remove a dead worker; retry its job, or yield a `LostError` if this was the retry."""
        job = worker.job
        answer_count = worker.answer_count
        code = worker.process.exitcode
        self._killed_count = killed_for_memory()
        self._end([worker])
        if job is None:
            return
        if job is self._alone or self.attempts == 1:
            self._alone = None
            again = ", also when it was tried alone" if self.attempts > 1 else ""
            why = f"{job.name}: its worker {cause}{again}"
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
