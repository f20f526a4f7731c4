"""The quick tests, `pytest -m quick`: what a person runs before each commit, a minute on two cores.

    python -m tests.quick [arguments of pytest]    # run all, one by one, and list the slow again

Quick is every test but those of the functions that `tests/slow.txt` lists: with all their cases
they took `SLOW` seconds and more of processor time, which is the same on a busy machine. A new test
is quick until it is measured.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("slow.txt")
SLOW = 0.2  # seconds that a function with all its cases may take


def function_of(nodeid: str) -> str:
    """The function of a case, as `tests/cli/test_run.py::test_outputs`."""
    return nodeid.partition("[")[0]


def slow() -> set[str]:
    """The functions that are too slow to be run before each commit."""
    return set(LIST.read_text(encoding="utf-8").split())


class Measured:
    """Adds up what the cases of each function take."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begin = sum(os.times()[:4])  # of this process and of what it has waited for
        done = yield
        self.seconds[function_of(item.nodeid)] += sum(os.times()[:4]) - begin
        return done


def main(arguments: list[str]) -> int:
    """Run the tests; if all were run and passed, write down which are slow."""
    measured = Measured()
    code = pytest.main(["-n0", *arguments], [measured])
    if not code:
        listed = sorted(name for name, took in measured.seconds.items() if took >= SLOW)
        LIST.write_text("".join(f"{name}\n" for name in listed), encoding="utf-8")
        print(f"{len(listed)} of {len(measured.seconds)} functions take {SLOW} s and more")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
