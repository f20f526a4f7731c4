"""Workers of a Dask cluster that is running already, or that Slurm starts (extra `dask`).

The scheduler hands orders to workers, and gives those of a worker that died to another."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from math import inf
from typing import Any

from netsim.base.errors import InputError, LostError, NetsimError
from netsim.base.files import handlers_kept, held
from netsim.sweep.run import VERSION, Answer, Fulfilled, Order, fulfilled, misfit, titled

PATIENCE = 15.0  # seconds for a scheduler to answer
LISTEN = 0.005  # between two looks at whether an order is done, or somebody interrupts
AT_ONCE = 2000  # orders that the scheduler is given at a time
SLURM = "slurm"


def installed_version() -> str:
    """What this process would compute with."""
    return VERSION


class DaskWorkers:
    """The workers of a Dask scheduler, or `jobs` that Slurm is asked for."""

    def __init__(
        self, address: str, jobs: int | None = None, tell: Callable[[str], None] = lambda text: None
    ) -> None:
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

    def _client(self) -> Any:
        target = self._cluster or self.address
        try:
            if self._cluster is None:  # a client would wait for ever for one that says nothing
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
        """Refuse a scheduler or workers with another netsim, or none; orders tell later ones."""
        versions = {"the scheduler": self._asked(self.client.run_on_scheduler)}
        workers = self._asked(self.client.run, on_error="return")
        by_worker = workers if isinstance(workers, dict) else {"": workers}
        versions.update({f"worker {name}": version for name, version in by_worker.items()})
        for name, version in versions.items():
            if version != VERSION and not isinstance(version, OSError):  # one that just died
                has = "no netsim that can be used" if isinstance(version, Exception) else version
                self.close()
                message = f"--dask {self.address}: {name} has {has}, not netsim {VERSION}"
                raise InputError(message, hint="install the same version everywhere")

    def _asked(self, run: Callable[..., Any], **options: Any) -> Any:
        """What others answer when they are asked for their version; or the exception."""
        try:
            return run(installed_version, **options)
        except Exception as error:  # whatever the other side could not read
            return error

    def fulfil(self, orders: Sequence[Order]) -> Fulfilled:
        """Every order with its answers, as they come."""
        left = list(reversed(orders))
        order_of_key: dict[str, Order] = {}
        running = self.distributed.as_completed(loop=self.client.loop)
        patient = time.monotonic() + PATIENCE
        try:
            with held() as interrupt:
                while left or order_of_key:
                    while left and len(order_of_key) < AT_ONCE:
                        order = left.pop()
                        future = self.client.submit(fulfilled, order, pure=False, retries=0)
                        order_of_key[future.key] = order
                        running.add(future)
                    while not (running.has_ready() or running.is_empty()):
                        interrupt.check()
                        time.sleep(LISTEN)
                        if time.monotonic() > patient:
                            self._tell_if_alone()
                            patient = inf
                    interrupt.check()
                    future = next(running)
                    order = order_of_key.pop(future.key)
                    yield order, self._result(future, order)
        except (OSError, self.distributed.CancelledError, TimeoutError) as error:
            reason = f"the scheduler is gone ({type(error).__name__})"
            message = f"{reason}; what was finished is kept, --resume continues"
            raise InputError(f"--dask {self.address}: {message}") from None

    def _tell_if_alone(self) -> None:
        """Workers may come at any time; somebody who forgot to start one should know."""
        if not self.client.scheduler_info().get("workers"):
            slurm = self.address == SLURM
            hint = "Slurm has started none" if slurm else f"start one: dask worker {self.address}"
            self.tell(f"--dask {self.address}: no worker has come yet; {hint}")

    def _result(self, future: Any, order: Order) -> list[Answer]:
        try:
            answers: list[Answer] = future.result()
            return answers
        except self.distributed.scheduler.KilledWorker:
            why = "its worker died, also when others tried it (out of memory?)"
            gone = LostError(f"{titled(order)}: {why}")
            return [misfit(size, gone) for size in order.sizes]
        except (OSError, self.distributed.CancelledError, TimeoutError):  # the scheduler is gone
            raise
        except NetsimError as error:
            raise InputError(f"--dask {self.address}: {error}") from None
        except Exception as error:  # whatever the worker could not read
            raise InputError(
                f"--dask {self.address}: a worker fails with {type(error).__name__}: "
                f"{(str(error).splitlines() or [''])[0]}",
                hint="install the same version of netsim everywhere",
            ) from None

    def close(self) -> None:
        """Let go of the scheduler, and of jobs that were started for this."""
        with held():
            self.client.close()
            if self._cluster is not None:
                self._cluster.close()


async def _greeted(distributed: Any, address: str) -> None:
    """Wait for a scheduler to say who it is."""
    known = distributed.Security().get_connection_args("client")
    async with distributed.rpc(address, connection_args=known) as scheduler:
        await scheduler.identity()


def _imported(name: str) -> Any:
    try:
        with handlers_kept():  # dask_jobqueue ends the process at Ctrl-C, without a word
            return import_module(name)
    except ImportError:
        hint = "pip install 'netsim[dask]'"
        raise InputError(f"--dask needs the package {name}", hint=hint) from None


def _slurm(jobs: int) -> Any:
    """A cluster whose workers are Slurm jobs, as the user's jobqueue.yaml describes them."""
    queue = _imported("dask_jobqueue")
    try:
        cluster = queue.SLURMCluster()
        cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs)  # a job that ends is asked for again
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        hint = "say cores, memory and queue in ~/.config/dask/jobqueue.yaml"
        raise InputError(f"--dask slurm: {reason}", hint=hint) from None
    return cluster
