"""The workers of a Dask cluster that is running, or that Slurm starts, as a `WorkerPool`.

The extra `dask` installs what is needed. The scheduler gives jobs to workers; if a worker dies, its
jobs go to another one.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from math import inf
from typing import Any

from netsim.base.errors import InputError, LostError, NetsimError
from netsim.base.files import Held, handlers_kept, held
from netsim.base.worker_pool import Answered, Job, WorkerPool
from netsim.sweep.run import VERSION

PATIENCE = 15.0  # seconds that a scheduler has to answer
LISTEN = 0.005  # seconds between two checks for a finished job or an interruption
AT_ONCE = 2000  # jobs that the scheduler has at a time
SLURM = "slurm"


def installed_version() -> str:
    """The version of netsim and of its model in this process; workers call it, too."""
    return VERSION


def all_answers(call: Callable[[Any], Iterator[Any]], request: Any) -> list[Any]:
    """All answers of a job as a list: the function that workers call."""
    return list(call(request))


class DaskPool(WorkerPool):
    """The workers of a running Dask scheduler at `address`, or `jobs` Slurm jobs (`address` is
    "slurm").

    `call(request)` yields the answers of a job. `tell` receives messages for the user. Only the
    scheduler knows how many workers there are, and how much memory each may use.
    """

    def __init__(
        self,
        address: str,
        call: Callable[[Any], Iterator[Any]],
        jobs: int | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.call = call
        self.tell = tell
        self.distributed = _imported("distributed")
        # Errors are reported once, by netsim, and not by the loggers of Dask as well.
        for name in list(logging.root.manager.loggerDict):
            if name.partition(".")[0] == "distributed":
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._cluster: Any = None
        self.address = address
        if address == SLURM:
            self._cluster = _slurm(jobs or 1)
        self.client = self._client()
        self._check_versions()
        self._futures: dict[Any, Job] = {}
        self._finishing = self.distributed.as_completed(loop=self.client.loop)
        self._patience_ends = time.monotonic() + PATIENCE

    def _client(self) -> Any:
        """A client that is connected to the scheduler.

        Raises:
            InputError: the scheduler does not answer within `PATIENCE`.
        """
        target = self._cluster or self.address
        try:
            if self._cluster is None:  # a client waits forever if the scheduler does not answer
                asyncio.run(asyncio.wait_for(_greeted(self.distributed, target), PATIENCE))
            with held():
                return self.distributed.Client(target, timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise InputError(
                f"--dask {self.address}: the scheduler does not answer: {reason.splitlines()[0]}",
                hint="start one with 'dask scheduler' and give its address, as tcp://host:8786",
            ) from None

    def _check_versions(self) -> None:
        """Raise an InputError if the scheduler or a worker has another version of netsim, or none.

        Workers that join later check the version of each order themselves.
        """
        versions = {"the scheduler": self._remote_version(self.client.run_on_scheduler)}
        workers = self._remote_version(self.client.run, on_error="return")
        by_worker = workers if isinstance(workers, dict) else {"": workers}
        versions.update({f"worker {name}": version for name, version in by_worker.items()})
        for name, version in versions.items():
            # an OSError comes from a worker that has just died, which is no mistake
            if version != VERSION and not isinstance(version, OSError):
                has = "no netsim that can be used" if isinstance(version, Exception) else version
                self.close()
                message = f"--dask {self.address}: {name} has {has}, not netsim {VERSION}"
                raise InputError(message, hint="install the same version everywhere")

    def _remote_version(self, run: Callable[..., Any], **options: Any) -> Any:
        """The version of netsim on the scheduler, or a mapping from the address of each worker to
        its version; where the call raised an exception, the exception.

        `run` is the method of the client that calls a function there.
        """
        try:
            return run(installed_version, **options)
        except Exception as error:  # anything may be raised if netsim is missing there
            return error

    def room(self) -> int:
        """Return how many more jobs the scheduler is given."""
        return AT_ONCE - len(self._futures)

    def is_idle(self) -> bool:
        """Return whether every job that was submitted is answered."""
        return not self._futures

    def submit(self, job: Job) -> None:
        """Give a job to the scheduler."""
        with self._errors_named():
            future = self.client.submit(all_answers, self.call, job.request, pure=False, retries=0)
            self._futures[future] = job
            self._finishing.add(future)

    def receive(self, interrupt: Held) -> Iterator[Answered]:
        """Wait until a job is finished, and yield its answers."""
        while not (self._finishing.has_ready() or self._finishing.is_empty()):
            interrupt.check()
            time.sleep(LISTEN)
            if time.monotonic() > self._patience_ends:
                self._tell_if_alone()
                self._patience_ends = inf
        interrupt.check()
        with self._errors_named():
            future = next(self._finishing)
            job = self._futures.pop(future)
            answers = self._answers(future, job)
        for answer in answers:
            yield job.request, answer

    def cancel(self) -> None:
        """Let the scheduler forget all jobs that are not finished."""
        futures = list(self._futures)
        self._futures = {}
        self._finishing = self.distributed.as_completed(loop=self.client.loop)
        with suppress(OSError, self.distributed.CancelledError, TimeoutError):
            self.client.cancel(futures)

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Turn the errors of Dask for a lost scheduler into one that says what to do."""
        try:
            yield
        except (OSError, self.distributed.CancelledError, TimeoutError) as error:
            reason = f"the scheduler is gone ({type(error).__name__})"
            message = f"{reason}; what was finished is kept, --resume continues"
            raise InputError(f"--dask {self.address}: {message}") from None

    def _tell_if_alone(self) -> None:
        """Tell the user if there is no worker yet. That is no error, because workers may join at
        any time.
        """
        if not self.client.scheduler_info().get("workers"):
            slurm = self.address == SLURM
            hint = "Slurm has started none" if slurm else f"start one: dask worker {self.address}"
            self.tell(f"--dask {self.address}: no worker has come yet; {hint}")

    def _answers(self, future: Any, job: Job) -> list[Any]:
        """The answers of a finished job; a LostError if every worker that tried it died."""
        try:
            answers: list[Any] = future.result()
            return answers
        except self.distributed.scheduler.KilledWorker:
            why = "its worker died, also when others tried it (out of memory?)"
            return [LostError(f"{job.name}: {why}")]
        except (OSError, self.distributed.CancelledError, TimeoutError):  # the scheduler is gone
            raise
        except NetsimError as error:
            raise InputError(f"--dask {self.address}: {error}") from None
        except Exception as error:  # anything may be raised by a worker with another version
            raise InputError(
                f"--dask {self.address}: a worker fails with {type(error).__name__}: "
                f"{(str(error).splitlines() or [''])[0]}",
                hint="install the same version of netsim everywhere",
            ) from None

    def close(self) -> None:
        """Disconnect from the scheduler, and end the jobs that were started for this sweep."""
        with held():
            self.client.close()
            if self._cluster is not None:
                self._cluster.close()


async def _greeted(distributed: Any, address: str) -> None:
    """Wait until a scheduler answers."""
    arguments = distributed.Security().get_connection_args("client")
    async with distributed.rpc(address, connection_args=arguments) as scheduler:
        await scheduler.identity()


def _imported(name: str) -> Any:
    """Import a package of the extra `dask`; an InputError says how to install it if it
    is missing.
    """
    try:
        with handlers_kept():  # dask_jobqueue makes Ctrl-C end the process without a message
            return import_module(name)
    except ImportError:
        hint = "pip install 'netsim[dask]'"
        raise InputError(f"--dask needs the package {name}", hint=hint) from None


def _slurm(jobs: int) -> Any:
    """A Dask cluster whose workers are Slurm jobs, as the user's jobqueue.yaml describes them."""
    queue = _imported("dask_jobqueue")
    try:
        cluster = queue.SLURMCluster()
        cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs)  # a job that ends is started again
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        hint = "say cores, memory and queue in ~/.config/dask/jobqueue.yaml"
        raise InputError(f"--dask slurm: {reason}", hint=hint) from None
    return cluster
