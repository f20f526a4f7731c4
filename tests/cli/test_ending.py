"""How a command ends: what it printed is written, its exit code is kept, bugs are one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import netsim

ROOT = Path(__file__).parents[2]
ENDS = """
import atexit, sys
import netsim.cli
from netsim.__main__ import main
class Taken:
    def __del__(self): print("taken apart")
def command(*_, **options):
    {does}
    sys.exit({code})
netsim.cli.main = command
main()
"""


def ended(
    does: str, code: str = "0", flags: tuple[str, ...] = (), **streams: object
) -> subprocess.CompletedProcess[str]:
    """A process whose command does something and leaves with a code."""
    program = ENDS.format(does=does, code=code)
    known = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, *flags, "-c", program],
        text=True,
        check=False,
        env={**known, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        **{"stdout": subprocess.PIPE, **streams},
    )


@pytest.mark.slow
@pytest.mark.parametrize(("code", "exit_code"), [("0", 0), ("None", 0), ("2", 2), ("130", 130)])
def test_a_command_writes_what_it_printed_and_calls_what_asked_to_be_called_at_its_end(
    code: str, exit_code: int
) -> None:
    done = ended("print('said'); atexit.register(print, 'asked for')", code)
    assert (done.returncode, done.stderr) == (exit_code, "")
    assert done.stdout.splitlines() == ["said", "asked for"]


def test_an_interrupted_command_ends_without_the_clean_up_of_the_interpreter() -> None:
    assert "taken apart" in ended("global t; t = Taken()", "0").stdout
    assert "taken apart" not in ended("global t; t = Taken()", "130").stdout


def test_a_reason_instead_of_a_code_is_told() -> None:
    done = ended("pass", "'why'")
    assert (done.returncode, done.stderr) == (1, "why\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
def test_what_cannot_be_written_is_told_as_by_the_interpreter() -> None:
    with open("/dev/full", "w") as full:
        done = ended("print('said')", stdout=full)
    assert done.returncode == 120
    assert "No space left on device" in done.stderr


def test_a_bug_is_one_line_that_names_the_file_and_line_that_raised_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> str:
        raise KeyError("lost")

    monkeypatch.setattr("netsim.cli.files.check_file", fail)
    outcome = netsim(capsys, "check", tmp_path / "any.yaml")
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    line = fail.__code__.co_firstlineno + 1
    assert f"a bug in netsim, not in your input: KeyError: 'lost' (test_ending.py:{line})" in (
        outcome.err
    )
