"""Every verb declares its options with their help, and `--help` shows them."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import pytest

from netsim.cli import VERBS, verb_command
from tests.cli.command import netsim

ROOT = Path(__file__).parents[2]


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The function of every verb, and of every command of a group."""
    for verb in VERBS:
        module = import_module(f"netsim.cli.verbs.{verb}")
        parts = getattr(module, "COMMANDS", None) or {"": module.command}
        for name, function in parts.items():
            yield f"{verb} {name}".strip(), function


def commands() -> Iterator[tuple[str, Any]]:
    """Every verb, and every command of a group, as typer reads it."""
    for verb in VERBS:
        command = verb_command(verb)
        for name, part in getattr(command, "commands", {"": command}).items():
            yield f"{verb} {name}".strip(), part


def test_the_verbs_are_the_modules_of_their_folder() -> None:
    folder = ROOT / "netsim" / "cli" / "verbs"
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(VERBS)


def test_every_option_declares_its_help_beside_its_type() -> None:
    for verb, function in functions():
        for name, parameter in signature(function).parameters.items():
            declared = get_args(parameter.annotation)[1]
            assert declared.help, f"{verb}: {name} has no help"
            assert declared.help.endswith((".", "?", "…")), f"{verb}: {name}: {declared.help}"


def test_verbs_that_share_an_option_give_it_the_same_flags() -> None:
    flags: dict[str, set[str]] = {}
    for _, command in commands():
        for option in command.params:
            if option.param_type_name == "option":
                flags.setdefault(option.name, set()).add(option.opts[0])
    different = {name: texts for name, texts in flags.items() if len(texts) > 1}
    # nccl-tests calls its JSON file -J, which expect follows.
    assert different == {"json_file": {"--json", "-J"}}


def test_help_shows_no_value_where_a_flag_takes_none(capsys: pytest.CaptureFixture[str]) -> None:
    text = netsim(capsys, "accuracy", "--help").out + netsim(capsys, "diff", "--help").out
    lines = [line for line in text.splitlines() if "--help" not in line]
    assert any("--leave-out" in line for line in lines)
    assert not [line for line in lines if "bool" in line]


def test_help_has_a_panel_for_each_group_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    text = netsim(capsys, "expect", "--help").out
    panels = re.findall(r"^╭─ (.*?) ─+╮$", text, re.MULTILINE)
    assert panels == ["Arguments", "Options", "Cluster", "NCCL", "Simulation", "Output"]


@pytest.mark.parametrize("arguments", [("--help", "run"), ("-h", "run"), ("--version", "run")])
def test_options_before_a_verb_count_and_the_verb_does_not(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    outcome = netsim(capsys, *arguments)
    assert outcome.code == 0
    assert "SCENARIO" not in outcome.out


def completed(words: str) -> list[str]:
    """What bash offers behind some words of a command line."""
    done = subprocess.run(
        [sys.executable, "-m", "netsim"],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "_NETSIM_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
    )
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("netsim ex", ["expect", "explain"]),
        ("netsim expect dgx-h100 all_reduce --no", ["--nodes", "--noise"]),
        ("netsim topo show dgx-h100 --ro", ["--routes"]),
        ("netsim run quickstart --engine s", ["simpy"]),
    ],
)
def test_the_shell_completes_verbs_options_and_choices(words: str, expected: list[str]) -> None:
    assert completed(words) == expected


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

    # Imported first: a module that is imported meanwhile would keep the function of this test.
    import_module("netsim.cli.run")
    import_module("netsim.cli.files")
    monkeypatch.setattr("netsim.tasks.answer.read_source", interrupted)
    done = netsim(capsys, verb, "some.yaml")
    assert (done.code, done.err.splitlines()[-1]) == (130, said)
