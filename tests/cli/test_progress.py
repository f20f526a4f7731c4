"""A slow command shows on a terminal how far it is, and nothing where nobody looks."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from netsim.base import startup
from netsim.base.startup import (
    STAGE,
    Stage,
    at,
    begin_stage,
    engine_progress,
    on,
    report_rows,
    worked,
)
from netsim.cli import main, progress

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def stage() -> None:
    """A command that has just begun."""
    begin_stage()


def lines_of(bars: Progress, console: Console) -> list[str]:
    """The lines of some bars that are not empty."""
    lines = console.render_lines(bars.get_renderable(), pad=False)
    texts = ["".join(segment.text for segment in line) for line in lines]
    return [text for text in texts if text.strip()]


def shown_at(columns: int, verb: str, now: float) -> list[str]:
    """The lines of progress on a terminal of a width."""
    console = Console(file=io.StringIO(), width=columns, force_terminal=True, color_system=None)
    bars = progress.progress_on(console)
    progress.update(bars, verb, now)
    return lines_of(bars, console)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no second passes and this process has 0.5 GB."""
    monkeypatch.setattr(startup.time, "monotonic", lambda: 1000.0)
    monkeypatch.setattr(progress, "resident", lambda: 5 * 10**8)


@pytest.mark.usefixtures("machine")
def test_a_line_has_the_activity_the_parts_the_time_left_and_the_memory() -> None:
    begin_stage()
    on("nodes 4")
    at("1 MiB", 0, 4)
    at("64 MiB", 1, 4)
    STAGE.others = lambda: 10**12
    (line,) = shown_at(140, "run", 1010.0)
    assert line.startswith("run: nodes 4: 64 MiB ")
    assert line.rstrip().endswith("1 of 4 done, 10 s, about 30 s left, 1000.5 GB")


@pytest.mark.usefixtures("machine")
def test_a_simulation_of_many_rows_has_a_bar_with_simulated_time_and_rows_per_second() -> None:
    begin_stage()
    at("8 GiB", 0, 1)
    report_rows(0, 4_000_000, 0.0)
    report_rows(1_000_000, 4_000_000, 0.0123)
    _, rows = shown_at(100, "expect", 1002.0)
    assert rows.strip().startswith("12.3 ms simulated")
    assert rows.rstrip().endswith("500,000 rows/s")
    at("the next size", 1, 1)
    assert len(shown_at(100, "expect", 1003.0)) == 1


@pytest.mark.parametrize("columns", [60, 80, 110, 160])
def test_a_line_of_progress_fits_its_terminal(columns: int) -> None:
    on("cell algorithm double-binary-tree, nodes 16")
    STAGE.remark = "best: double-binary-tree, 400Gbps, rail-optimized 12.3 ms"
    at("1 GiB", 1000, 8000)
    report_rows(10, 10**6, 1.0)
    lines = shown_at(columns, "run", STAGE.began + 100)
    assert len(lines) == 2
    assert "1000 of 8000 done" in lines[0]
    assert max(map(len, lines)) <= columns


def test_a_quick_command_and_one_without_a_terminal_import_no_rich(tmp_path: Path) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print('rich' in sys.modules));"
        "sys.argv = ['netsim', 'topo', 'list'];"
        "from netsim.__main__ import main; sys.stderr.isatty = lambda: {}; main()"
    )
    for is_terminal in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", code.format(is_terminal)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.stdout.splitlines()[-1] == "False"


def on_a_terminal(code: str) -> str:
    """What a program prints on a terminal, which has both of its streams."""
    import pty  # not on every system

    parent, child = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=child, stdout=child, stderr=child, env=environment
    )
    os.close(child)
    text = b""
    while True:
        try:
            part = os.read(parent, 4096)
        except OSError:  # Linux tells the end of a terminal so
            break
        if not part:
            break
        text += part
    assert process.wait() == 0, text.decode()
    return text.decode()


SLOW_VERB = """
import time
import typer
from netsim.base.startup import at
from netsim.cli import progress
progress.SLOW, progress.REFRESH = 0.05, 0.02
with progress.shown_progress("expect"):
    at("64 KiB", 1, 4)
    time.sleep({seconds})
    typer.echo("a row of " + "many words " * 20)
    time.sleep({seconds})
typer.echo("the end")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_a_slow_command_shows_bars_below_its_results_and_clears_them() -> None:
    text = on_a_terminal(SLOW_VERB.format(seconds=0.7))
    assert "expect: 64 KiB" in text
    assert "1 of 4 done, " in text
    row = "a row of " + "many words " * 20
    assert f"{row.rstrip()}" in text.replace("\r\n", "\n")  # long lines are not broken
    assert text.endswith("the end\r\n")
    last = text[text.rindex("of 4 done") :]
    assert "\x1b[2K" in last  # the bars are taken away


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_results_in_a_pipe_are_the_same_while_bars_are_shown(tmp_path: Path) -> None:
    import pty

    parent, child = pty.openpty()
    code = SLOW_VERB.format(seconds=0.7)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=child,
        text=True,
        check=True,
        env=environment,
    )
    os.close(child)
    os.close(parent)
    assert done.stdout == "a row of " + "many words " * 20 + "\nthe end\n"


def test_an_engine_reports_its_rows_only_where_somebody_looks() -> None:
    assert engine_progress() is None
    begin_stage(is_shown=True)
    assert engine_progress() is report_rows


class Noted(Stage):
    """What a command is at, one after the other."""

    def __init__(self) -> None:
        self.cells: dict[str, list[str]] = {}
        super().__init__()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "total":  # the last that `at` sets
            activity = f"{self.activity} {self.done}/{self.total}"
            self.cells.setdefault(self.cell, []).append(activity)


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
    on("nodes 2")
    assert progress.description("run") == "run: nodes 2"
    for done, text in (
        (0, "0 of 3 done, 8 s, 0.5 GB"),
        (1, "1 of 3 done, 8 s, about 16 s left, 0.5 GB"),
        (2, "2 of 3 done, 8 s, about 4 s left, 0.5 GB"),
        (3, "3 of 3 done, 8 s, 0.5 GB"),
    ):
        at("1 MiB", done, 3)
        STAGE.began = 1000.0
        STAGE.counted_since = 1000.0
        assert progress.description("run") == "run: nodes 2: 1 MiB"
        assert progress.detail(1008.0) == text


def test_memory_is_that_of_the_process_and_its_workers() -> None:
    mine = startup.resident()
    assert 10e6 < mine < 100e9
    assert startup.resident(os.getpid()) == pytest.approx(mine, rel=0.2)
    assert startup.resident(2**22 + 1) == 0  # beyond what there can be
    STAGE.others = lambda: 5 * 10**12
    memory = progress.detail(STAGE.began).rpartition(", ")[2]
    assert float(memory.removesuffix(" GB")) == pytest.approx(5000, abs=100)
    assert "." in memory


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


def test_time_left_goes_by_the_work_that_parts_need(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("netsim.base.startup.time.monotonic", lambda: now[0])
    STAGE.began = 0.0
    worked(0.0, 100.0)
    at("the largest of 200", 0, 200)
    now[0] = 1090.0
    worked(90.0, 100.0)
    at("the next", 1, 200)
    assert ", about 10 s left, " in progress.detail(now[0])
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
