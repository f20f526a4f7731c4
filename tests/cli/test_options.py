"""The table of options says something of all that verbs take, and of nothing else."""

import csv
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from netsim import cli
from netsim.cli import VERBS
from tests.cli.command import netsim


def verbs() -> Iterator[tuple[str, Callable[..., None]]]:
    for verb, (home, _) in VERBS.items():
        module, _, name = home.rpartition(".")
        found = getattr(import_module(module), name)
        parts = found.items() if isinstance(found, dict) else [("", found)]
        yield from ((f"{verb} {part}".strip(), function) for part, function in parts)


def test_every_parameter_has_a_row_and_every_row_a_parameter() -> None:
    taken = {(verb, name) for verb, function in verbs() for name in signature(function).parameters}
    table = Path(cli.__file__).with_name("options.csv")
    with table.open(encoding="utf-8", newline="") as file:
        rows = {(row["verb"], row["parameter"]): row for row in csv.DictReader(file)}
    meant = {
        (verb, name): {
            (group, own) for group, own in rows if own == name and verb.startswith(group)
        }
        for verb, name in taken
    }
    assert [one for one, told in meant.items() if not told] == []
    nearest = {max(told, key=lambda row: len(row[0])) for told in meant.values()}
    assert set(rows) - nearest == set()
    assert all(row["help"] for row in rows.values())


def test_help_shows_no_value_where_a_flag_takes_none(capsys: pytest.CaptureFixture[str]) -> None:
    told = netsim(capsys, "accuracy", "--help").out + netsim(capsys, "diff", "--help").out
    lines = [line for line in told.splitlines() if "--help" not in line]
    assert any("--leave-out" in line for line in lines)
    assert not [line for line in lines if "bool" in line]


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("run", "interrupted; what was finished is kept"),
        ("check", "interrupted"),
    ],
)
def test_only_verbs_that_keep_what_was_finished_say_so(
    verb: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("netsim.yamlio.read.read_source", interrupted)
    monkeypatch.setattr("netsim.tasks.answer.read_source", interrupted)
    done = netsim(capsys, verb, "some.yaml")
    assert (done.code, done.err.splitlines()[-1]) == (130, said)
