"""Workers on this machine: processes that are replaced if they die, and end if this one does."""

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import connection, forkserver, resource_tracker

from netsim.base.files import Held, deaf, held
from netsim.sweep.run import Answer, Fulfilled, Order, died, fulfil

ATTEMPTS = 3
LEAVE = 5.0  # seconds for what is left of a pool to notice that its processes are gone
LISTEN = 0.1  # seconds between two looks at whether somebody interrupts
PRELOADED = f"{__package__}.preloaded"  # not to be imported here: it silences its process
_AHEAD = 4  # orders in hand for each process
Running = dict[Future[list[Answer]], Order]


def begin() -> None:
    """Do not outlive the parent."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """End this process as soon as the one that waits for its work has ended."""
    connection.wait([sentinel])
    os._exit(1)


class Processes:
    """So many processes of this machine."""

    def __init__(self, count: int) -> None:
        self.count = count

    def fulfil(self, orders: Sequence[Order]) -> Fulfilled:
        """Every order with its answers; a dead worker's orders are given to others, one by one."""
        left = list(reversed(_shared_out(orders, self.count)))
        with held() as interrupt:
            while left:
                lost: list[Order] = []
                yield from self._together(left, lost, interrupt)
                yield from self._alone(lost, interrupt)

    def _together(self, left: list[Order], lost: list[Order], interrupt: Held) -> Fulfilled:
        """Orders of which all processes take some; those in hand when one died are `lost`."""
        running: Running = {}
        with _pool(self.count) as pool:
            try:
                while left or running:
                    while left and len(running) < self.count * _AHEAD:
                        running[_given(pool, left[-1])] = left[-1]
                        left.pop()
                    for future in _done(running, interrupt):
                        answers = future.result()
                        yield running.pop(future), answers
            except BrokenProcessPool:
                lost.extend(running.values())

    def _alone(self, lost: list[Order], interrupt: Held) -> Fulfilled:
        """Orders of which one ended its worker, each in a process of its own."""
        for order in lost:
            answers = None
            for _ in range(1, ATTEMPTS):
                with _pool(1) as pool:
                    try:
                        (future,) = _done({_given(pool, order): order}, interrupt)
                        answers = future.result()
                        break
                    except BrokenProcessPool:
                        continue
            yield order, died(order, ATTEMPTS) if answers is None else answers


def _done(running: Running, interrupt: Held) -> list[Future[list[Answer]]]:
    """Those that are finished, at least one; or the interrupt that comes first."""
    while True:
        done, _ = wait(running, LISTEN, return_when=FIRST_COMPLETED)
        interrupt.check()
        if done:
            return list(done)


def _shared_out(orders: Sequence[Order], count: int) -> list[Order]:
    """Orders small enough that every process has some."""
    if len(orders) >= 2 * count:
        return list(orders)
    return [replace(order, sizes=(size,)) for order in orders for size in order.sizes]


@contextmanager
def _pool(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are ended with it, whatever they are at."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    _serve()
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=begin)
    try:
        yield pool
    finally:
        _stop(pool)


def _serve() -> None:
    """Start the process that workers are forked from."""
    resource_tracker.ensure_running()  # it comes first, and lets interrupts through again
    with deaf():
        forkserver.ensure_running()


def _given(pool: ProcessPoolExecutor, order: Order) -> Future[list[Answer]]:
    """Hand an order to a pool, which may start a process for it."""
    try:
        with deaf():
            return pool.submit(fulfil, order)
    except (EOFError, ConnectionError):  # what processes are forked from was killed as well
        raise BrokenProcessPool from None


def _stop(pool: ProcessPoolExecutor) -> None:
    """Let go of a pool without waiting for what its processes are at."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    manager = getattr(pool, "_executor_manager_thread", None)
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    if manager is not None:  # else it may close its pipe while the interpreter, at its end, writes
        manager.join(LEAVE)
