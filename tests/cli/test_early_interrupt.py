"""Ctrl-C while the command line is still being imported."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("module", ["typer", "numpy.exceptions", "pydantic_core"])
def test_an_interrupt_during_imports_is_quiet(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "netsim", "run", "quickstart", "-o", "out"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:  # one for every module that has been imported
            if line.split("|")[-1].strip() == module:
                break
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    said = [line for line in rest.splitlines() if not line.startswith("import time:")]
    assert process.returncode == 130
    assert said == ["interrupted"]
    assert not list(tmp_path.iterdir())


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    """As a shell has it for commands in the background."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "from netsim.__main__ import main; sys.argv = ['netsim', '--version'];"
        "import atexit; atexit.register(lambda: print(signal.getsignal(signal.SIGINT).name));"
        "main()"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=True).stdout
    assert out.decode().splitlines()[-1] == "SIG_IGN"
