"""Settings for all tests: hypothesis derandomised, so that a failure is the same everywhere,
Ctrl-C heard by those that send it, also in a shell's background, where it is ignored, nothing
recalled that another test has simulated, tests marked that are quick, and no time spent on looking
through what stays, on compiling the same files for every command that is started, on searching
NCCL's channels anew where others have, or on pixels that no test looks at.
"""

import gc
import os
import signal
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from netsim.base.values import evenly_spaced
from netsim.cli import GARBAGE
from netsim.collectives.collective import collective_of
from netsim.collectives.table import build
from netsim.engines.compiled import engine
from netsim.program.place import place
from netsim.tasks import outcome
from netsim.topology.routing import switch
from tests.nccl import searches

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # commands compile what they import once
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

QUICK_CASES = 2  # of a test, in pytest -m quick

settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is left out by default (full), and what a person runs before each commit (quick).

    Of a test with the marker `sample(n)` n cases stay, evenly chosen; the others are marked full.
    Of a test without the marker `slow` up to two cases are quick.
    """
    cases_of_function: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases_of_function.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in cases_of_function.values():
        sample = cases[0].get_closest_marker("sample")
        usual = set(evenly_spaced(len(cases), sample.args[0] if sample else len(cases)))
        for number, case in enumerate(cases):
            if number not in usual:
                case.add_marker("full")
        usual_cases = [case for case in cases if not case.get_closest_marker("full")]
        if not cases[0].get_closest_marker("slow"):
            for number in evenly_spaced(len(usual_cases), QUICK_CASES):
                usual_cases[number].add_marker("quick")


def pytest_collection_finish() -> None:
    """Collect garbage as the command line does."""
    gc.freeze()
    gc.set_threshold(GARBAGE)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the engine once, before the processes of a session: it takes seconds, and what `auto`
    means depends on whether that was done. Search each node once, for all of them.
    """
    if hasattr(session.config, "cache"):  # but for mutants, each of which is other code
        searches.keep(session.config.cache.mkdir("searches"))
    if not hasattr(session.config, "workerinput") and not engine.is_ready():
        engine.run(place(build(collective_of("all_reduce", 2, 8), "ring"), switch(2, 1e9)))


@pytest.fixture(autouse=True)
def _nothing_recalled() -> None:
    outcome.OUTCOMES.clear()


@pytest.fixture
def pictures() -> None:
    """Asked for where pictures are the subject, outside of `tests/plots` and `tests/report`."""


@pytest.fixture(autouse=True)
def _no_pixels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere figures are made, not drawn: files of them say only what they are of."""
    is_drawn = request.path.parent.name in ("plots", "report")
    there = is_drawn or {"pictures", "drawn_figures"} & set(request.fixturenames)
    module = sys.modules.get("matplotlib.figure")
    if module is None or there:
        return

    def save(figure: Any, stream: Any, *, format: str, **_: object) -> None:
        stream.write(f"{format} of {len(figure.axes)} panels".encode())

    monkeypatch.setattr(module.Figure, "savefig", save)
    monkeypatch.setattr(module.Figure, "get_layout_engine", lambda _: None)
