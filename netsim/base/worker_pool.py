"""Parallel work: the interface of workers that calculate the answers of jobs.

`base/processes.py` has processes on this machine behind it, `sweep/cluster.py` a Dask cluster. A
worker that dies costs its own job alone: the pool tries the job again, and answers it with a
`LostError` if that does not help.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Self

from netsim.base.files import Held, held


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


JobTuple = tuple[Any, str, int, int]  # the fields of a Job
Answered = tuple[Any, Any]  # a request and one of its answers


class WorkerPool(ABC):
    """Workers that call a function, a generator of answers, for the request of each job.

    with make_pool() as pool:
        for request, answer in pool.results([Job(1, "one")]): ...
    """

    worker_count = 0  # 0: not known
    limit = 0  # bytes that the workers may have together; 0: they have limits of their own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def room(self) -> int:
        """Return how many more jobs it takes before there are answers to earlier ones."""

    @abstractmethod
    def is_idle(self) -> bool:
        """Return whether every job that was submitted is answered."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Begin a job if there is a worker and memory for it, or else let it wait."""

    @abstractmethod
    def receive(self, interrupt: Held) -> Iterator[Answered]:
        """Wait a moment for answers and yield those that have arrived.

        `interrupt.check()` is called while nothing can be lost by an interrupt."""

    @abstractmethod
    def cancel(self) -> None:
        """Forget the jobs that wait, and end those that run."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, or disconnect from them."""

    def names(self) -> list[str]:
        """Return the names of the jobs that run, if they are known."""
        return []

    def memory(self) -> int:
        """Return the bytes that all workers have together on this machine."""
        return 0

    def results(self, jobs: Iterable[Job | JobTuple]) -> Generator[Answered, None, None]:
        """Yield the request and the answer for every answer, in the order of arrival.

        Jobs are taken from `jobs` as there is room for them. When the caller stops, or Ctrl-C is
        pressed, the remaining jobs are canceled."""
        waiting_jobs = (Job(*job) for job in jobs)
        with held() as interrupt:
            try:
                while True:
                    for job in islice(waiting_jobs, self.room()):
                        self.submit(job)
                    if self.is_idle():
                        return
                    yield from self.receive(interrupt)
            finally:
                self.cancel()
