"""Runs the command line in this process, as a user would from a shell."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from netsim.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


def netsim(capsys: pytest.CaptureFixture[str], *arguments: object) -> Outcome:
    """Run `netsim` with arguments."""
    return _outcome(capsys, [str(argument) for argument in arguments])


def _outcome(capsys: pytest.CaptureFixture[str], arguments: Sequence[str]) -> Outcome:
    capsys.readouterr()
    code: object = 0
    try:
        main(arguments)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    return Outcome(code if isinstance(code, int) else 0, out, err)
