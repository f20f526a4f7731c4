"""A command says how far it is: on a terminal soon, elsewhere seldom, never where it is quiet."""

import os
import sys
import time
from io import StringIO

import numpy as np
import pytest

from netsim.base import startup
from netsim.base.startup import CLEAR, STAGE, Stage, at, line, watched, worked
from netsim.cli import main


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What a terminal shows, output and diagnostics alike."""
    both = Terminal()
    monkeypatch.setattr(startup, "SLOW", 0.02)
    monkeypatch.setattr(startup, "REFRESH", 0.02)
    monkeypatch.setattr(sys, "stderr", both)
    monkeypatch.setattr(sys, "stdout", both)
    return both


def wait_for(text: str, shown: StringIO) -> None:
    deadline = time.monotonic() + 20
    while text not in shown.getvalue():
        assert time.monotonic() < deadline, shown.getvalue()
        time.sleep(0.01)


def test_a_terminal_shows_what_is_done_and_results_take_its_place(monkeypatch) -> None:
    shown = terminal(monkeypatch)
    with watched("expect", quiet=False):
        at("64 KiB", 0, 4)
        at("1 MiB", 1, 4)
        wait_for("expect: 1 MiB (1 of 4 done), 0 s, about 0 s left, ", shown)
        print("a row")
    assert f" GB{CLEAR}a row\n" in shown.getvalue()
    assert sys.stdout is shown
    with watched("expect", quiet=False):
        STAGE.hidden = True  # a bar is there
        before = shown.getvalue()
        time.sleep(0.1)
        assert shown.getvalue() == before


@pytest.mark.parametrize(("quiet", "said"), [(False, True), (True, False)])
def test_elsewhere_there_are_lines_now_and_then(monkeypatch, quiet: bool, said: bool) -> None:
    err = StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(startup, "SPARSE", 0.02)
    with watched("run", quiet=quiet):
        at("cell 2")
        if said:
            wait_for("run: cell 2, 0 s, ", err)
        else:
            time.sleep(0.1)
    assert bool(err.getvalue()) is said
    assert CLEAR not in err.getvalue()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no second passes and this process has 0.5 GB."""
    monkeypatch.setattr(startup.time, "monotonic", lambda: 1000.0)
    monkeypatch.setattr(startup, "resident", lambda: 5 * 10**8)


@pytest.mark.usefixtures("machine")
def test_the_time_left_follows_from_the_parts_that_are_done() -> None:
    with watched("run", quiet=True):
        at("cell", 0, 4)
        at("cell", 1, 4)
        STAGE.others = lambda: 10**12
        text = line("run", STAGE.began + 10)
    assert text == "run: cell (1 of 4 done), 10 s, about 30 s left, 1000.5 GB"


class Noted(Stage):
    """What a command is at, one after the other."""

    def __init__(self) -> None:
        self.cells: dict[str, list[str]] = {}
        super().__init__()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "total":  # the last that is set
            self.cells.setdefault(self.cell, []).append(f"{self.what} {self.done}/{self.total}")


RUN = """\
name: small
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1MiB]}
sweep: {workload.algorithm: [ring, tree]}
"""
SEEN = {
    "explain run.yaml": {
        "run.yaml": " 0/0",
        "all_reduce of 1 MiB on 4 GPUs, ring": "fabric rate changed 0/2",
    },
    "diff run.yaml#ring run.yaml#tree": {
        "run.yaml#ring": "1 MiB 0/1",
        "run.yaml#tree": "1 MiB 0/1",
    },
    "diff rtx2080ti-x2 dgx-1-v100 --collective all_reduce --sizes 8,1K": {
        "rtx2080ti-x2": "1 KiB 1/2",
        "dgx-1-v100": "8 B 0/2",
    },
    "topo show rtx2080ti-x2": {"rtx2080ti-x2": " 0/0"},
    "topo lint rtx2080ti-x2": {"rtx2080ti-x2": "rules are asked 0/0"},
    "report out": {
        "all_reduce of 1 MiB on 4 GPUs, tree": "fabric rate changed 0/2",
        "out": "the page is written 0/0",
    },
}


def netsim(command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 0


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("command", SEEN)
def test_every_verb_says_which_cell_it_is_at(monkeypatch, tmp_path, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(RUN)
    if command.startswith("report"):
        netsim("run run.yaml -q -o out")
    noted = Noted()
    monkeypatch.setattr(startup, "STAGE", noted)
    netsim(command)
    for cell, what in SEEN[command].items():
        assert what in noted.cells.get(cell, []), noted.cells


@pytest.mark.usefixtures("machine")
def test_the_time_left_is_shown_only_while_some_parts_are_done_and_others_are_not() -> None:
    """A cell, what it is at, how far, how long: each only where there is one."""
    with watched("run", quiet=True):
        startup.on("nodes 2")
        assert line("run", STAGE.began + 3.4) == "run: nodes 2, 3 s, 0.5 GB"
        for done, text in (
            (0, "(0 of 3 done), 8 s, 0.5 GB"),
            (1, "(1 of 3 done), 8 s, about 16 s left, 0.5 GB"),
            (2, "(2 of 3 done), 8 s, about 4 s left, 0.5 GB"),
            (3, "(3 of 3 done), 8 s, 0.5 GB"),
        ):
            at("1 MiB", done, 3)
            assert line("run", STAGE.began + 8) == f"run: nodes 2: 1 MiB {text}"


def test_memory_is_that_of_the_process_and_its_workers() -> None:
    mine = startup.resident()
    assert 10e6 < mine < 100e9
    assert startup.resident(os.getpid()) == pytest.approx(mine, rel=0.2)
    assert startup.resident(2**22 + 1) == 0  # beyond what there can be
    with watched("run", quiet=True):
        STAGE.others = lambda: 5 * 10**12
        assert float(startup.memory().removesuffix(" GB")) == pytest.approx(5000, abs=100)
        assert "." in startup.memory()


@pytest.mark.parametrize(
    ("soft", "hard", "asked", "given"),
    [(-1, -1, 50, 50), (-1, 40, 50, 40), (-1, 60, 50, 50), (30, 60, 50, 50)],
)
def test_limits_of_memory_stay_below_those_of_the_system(
    monkeypatch, soft: int, hard: int, asked: int, given: int
) -> None:
    import resource

    known = [soft, hard]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(known))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: known.__setitem__(slice(2), pair))
    assert startup.memory_limit() == max(0, soft)
    startup.limit_memory(asked)
    assert known == [given, hard]
    assert startup.memory_limit() == given


def test_versions_are_those_that_packages_state() -> None:
    assert startup.version_of("numpy") == np.__version__
    assert startup.late("netsim.base.startup.memory") is startup.memory


def test_a_line_of_a_terminal_is_cut_and_taken_away_once() -> None:
    out, err = StringIO(), StringIO()
    shown = startup._Line(out, err)
    shown.clear()
    assert err.getvalue() == ""
    shown.show("x" * 300)
    shown.clear()
    shown.clear()
    assert err.getvalue() == CLEAR + "x" * 100 + CLEAR
    assert shown.write("row") == 3
    assert out.getvalue() == shown.getvalue() == "row"


def test_time_left_goes_by_the_work_that_parts_need(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("netsim.base.startup.time.monotonic", lambda: now[0])
    STAGE.began = 0.0
    worked(0.0, 100.0)
    at("the largest of 200", 0, 200)
    now[0] = 1090.0
    worked(90.0, 100.0)
    at("the next", 1, 200)
    assert ", about 10 s left, " in line("accuracy", now[0])
    worked(0.0, 0.0)
    assert STAGE.seconds_left(now[0]) == pytest.approx(90 * 199)


def test_time_left_does_not_count_what_earlier_runs_or_parts_have_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr("netsim.base.startup.time.monotonic", lambda: now[0])
    STAGE.began = 0.0
    worked(0.0, 0.0)
    at("resumed", 60, 100)  # 60 were known
    now[0] = 1010.0
    at("more", 70, 100)
    assert STAGE.seconds_left(now[0]) == pytest.approx(30)
    at("another part of the command", 0, 4)
    now[0] = 1012.0
    at("another part of the command", 1, 4)
    assert STAGE.seconds_left(now[0]) == pytest.approx(6)
