"""Workers on this machine: processes that are replaced if they die, and end if this one does."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import connection, forkserver, resource_tracker

from netsim.sweep.orders import Answer, Order, fulfil
from netsim.sweep.work import died

ATTEMPTS = 3
LEAVE = 5.0  # seconds for what is left of a pool to notice that its processes are gone
_AHEAD = 4  # orders in hand for each process


class Processes:
    """So many processes of this machine."""

    def __init__(self, count: int) -> None:
        self.count = count

    def fulfil(self, orders: Sequence[Order]) -> Iterator[tuple[Order, list[Answer]]]:
        """Every order with its answers; a dead worker's orders are given to others, one by one."""
        left = list(reversed(_shared_out(orders, self.count)))
        while left:
            held: list[Order] = []
            yield from self._together(left, held)
            yield from self._alone(held)

    def _together(
        self, left: list[Order], held: list[Order]
    ) -> Iterator[tuple[Order, list[Answer]]]:
        """Orders of which all processes take some; those in hand when one died are `held`."""
        pool = _pool(self.count)
        running: dict[Future[list[Answer]], Order] = {}
        try:
            while left or running:
                while left and len(running) < self.count * _AHEAD:
                    running[_given(pool, left[-1])] = left[-1]
                    left.pop()
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    answers = future.result()
                    yield running.pop(future), answers
        except BrokenProcessPool:
            held.extend(running.values())
        finally:
            _stop(pool)

    def _alone(self, held: list[Order]) -> Iterator[tuple[Order, list[Answer]]]:
        """Orders of which one ended its worker, each in a process of its own."""
        for order in held:
            answers = None
            for _ in range(1, ATTEMPTS):
                pool = _pool(1)
                try:
                    answers = _given(pool, order).result()
                    break
                except BrokenProcessPool:
                    continue
                finally:
                    _stop(pool)
            yield order, died(order, ATTEMPTS) if answers is None else answers


def _shared_out(orders: Sequence[Order], count: int) -> list[Order]:
    """Orders small enough that every process has some."""
    if len(orders) >= 2 * count:
        return list(orders)
    return [replace(order, sizes=(size,)) for order in orders for size in order.sizes]


def _pool(count: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["netsim.sweep.orders"])
    _serve()
    return ProcessPoolExecutor(count, mp_context=context, initializer=_begin)


def _serve() -> None:
    """Start the process that workers are forked from. What is blocked meanwhile is so for it and
    for all workers for good: a terminal interrupts them too, while they import modules.
    """
    resource_tracker.ensure_running()  # it comes first, and lets interrupts through again
    with _uninterrupted():
        forkserver.ensure_running()


def _given(pool: ProcessPoolExecutor, order: Order) -> Future[list[Answer]]:
    """Hand an order to a pool, which may start a process for it: that must be known to the pool, to
    be ended with it.
    """
    try:
        with _uninterrupted():
            return pool.submit(fulfil, order)
    except (EOFError, ConnectionError):  # what processes are forked from was killed as well
        raise BrokenProcessPool from None


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let an interrupt wait."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(pool: ProcessPoolExecutor) -> None:
    """Let go of a pool without waiting for what its processes are at."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    manager = getattr(pool, "_executor_manager_thread", None)
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    if manager is not None:  # else it may close its pipe while the interpreter, at its end, writes
        manager.join(LEAVE)


def _begin() -> None:
    """Do not outlive the parent."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """End this process as soon as the one that waits for its work has ended."""
    connection.wait([sentinel])
    os._exit(1)
