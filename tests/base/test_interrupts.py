"""Ctrl-C waits while it would do harm, and is not lost."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from netsim.base.files import deaf, handlers_kept, held


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    """Python's own handler, whatever packages that other tests imported have put in its place."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []

    def work() -> None:
        with held():
            interrupt()
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_waits_until_it_is_asked_for() -> None:
    reached = []

    def work() -> None:
        with held() as waiting:
            waiting.check()
            interrupt()
            reached.append("before")
            waiting.check()
            reached.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["before"]


def test_an_error_goes_before_an_interrupt() -> None:
    def work() -> None:
        with held():
            interrupt()
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        work()


def test_a_generator_that_is_closed_tells_what_it_held() -> None:
    closed = []

    def numbers() -> Iterator[int]:
        with held():
            try:
                yield from range(9)
            finally:
                closed.append(True)

    given = numbers()
    assert next(given) == 0
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        given.close()
    assert closed == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_and_ignored_interrupts_are_left_alone() -> None:
    found = []

    def elsewhere() -> None:
        with held() as waiting:
            found.append(signal.getsignal(signal.SIGINT))
            waiting.check()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held() as waiting:
            interrupt()
            waiting.check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_processes_that_are_started_deaf_hear_no_interrupt() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('unheard')"
    with deaf():
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.communicate()[0] == b"unheard\n"


VANISHING = """
import gc, os, signal, time
from netsim.base.files import listen

class Rude:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # until Python looks
            pass

listen()
try:
    Rude()
    print("vanished", flush=True)
    for _ in range(100):
        time.sleep(0.05)
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGINT)  # somebody is impatient
    time.sleep(0.1)
    print("told once", flush=True)
"""


def test_an_interrupt_that_vanishes_in_a_callback_is_raised_again_and_only_once() -> None:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", VANISHING],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": root},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "vanished\ntold once\n"


def test_packages_that_listen_themselves_are_not_heard() -> None:
    usual = signal.getsignal(signal.SIGTERM)
    with handlers_kept():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is usual
