"""The quick tests, `pytest -m quick`: what a person runs before each commit, a minute on two cores.

    python -m tests.quick [arguments of pytest]    # run all on a quiet machine, list the slow again

Quick is every test but those of the functions that `tests/slow.txt` lists: they
took `SLOW` seconds and more, with all their cases. A new test is quick until it is measured.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("slow.txt")
SLOW = 0.15  # seconds that a function with all its cases may take


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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[function_of(report.nodeid)] += report.duration


def main(arguments: list[str]) -> int:
    """Run the tests; if all were run and passed, write down which are slow."""
    measured = Measured()
    code = pytest.main(arguments, [measured])
    if not code:
        listed = sorted(name for name, took in measured.seconds.items() if took >= SLOW)
        LIST.write_text("".join(f"{name}\n" for name in listed), encoding="utf-8")
        print(f"{len(listed)} of {len(measured.seconds)} functions take {SLOW} s and more")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
