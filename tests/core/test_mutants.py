"""Mutants are made where they should be, tried in a copy, and told apart from survivors."""

import ast
import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import mutants
from tests.mutants import Covered, Mutant, every_mutant, mutants_of, tried

TEXT = """\
LIMIT = 32


def least(a: int = 3, *rest: int) -> float:
    if a < 2 and not rest:
        return max(a, 0.5) // 2
    return a is None
"""
TEST = """\
from netsim.made import least


def test_some():
    assert least(1) == 0


def test_more():
    assert least(5) is False
"""


def test_every_kind_of_place_is_found() -> None:
    found = [(one.line, one.function, one.old, one.new) for one in mutants_of("a.py", TEXT)]
    assert found == [
        (1, "", "32", "16"),
        (4, "least", "3", "4"),
        (5, "least", "<", "<="),
        (5, "least", "2", "3"),
        (5, "least", "and", "or"),
        (5, "least", "not rest", "( rest)"),
        (6, "least", "max", "min"),
        (6, "least", "0.5", "0.7"),
        (6, "least", "//", "*"),
        (6, "least", "2", "3"),
        (7, "least", "is", "is not"),
    ]


def test_what_numpy_takes_for_the_same_is_left_out() -> None:
    found = mutants_of("a.py", "b = a.reshape(-1, 2) + f(-1)\n")
    assert [(one.old, one.new) for one in found] == [("2", "3"), ("+", "-"), ("1", "2")]


@pytest.mark.slow
def test_mutants_of_the_package_differ_from_it_and_can_be_read() -> None:
    every = every_mutant(["extent", "metrics"])
    assert {one.path.split("/")[0] for one in every} == {"extent", "metrics"}
    for one in random.Random(1).sample(every, 60):
        text = (mutants.ROOT / "netsim" / one.path).read_text(encoding="utf-8")
        changed = one.applied(text)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)), one


def test_texts_and_pictures_are_left_out_unless_asked_for(monkeypatch) -> None:
    monkeypatch.setattr(mutants, "mutants_of", lambda path, text: [path])
    assert not any(path.startswith(mutants.LEFT_OUT) for path in every_mutant([]))
    assert all(path.startswith("plots/") for path in every_mutant(["plots"]))
    assert len(every_mutant([])) > 100


def test_tests_of_a_line_come_the_quickest_first_and_only_as_many_as_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mutants, "around", lambda path, line: [])
    one = Mutant("a.py", 5, 0, 0, "", "")
    known = Covered(
        {"a.py": {"5": ["x", "y", "z"], "6": ["w"]}}, {"x": 50.0, "y": 1.0, "z": 20.0, "w": 2.0}
    )
    assert known.chosen(one) == ["y", "z", "w"]
    assert known.chosen(one, 21.0) == ["y", "z"]
    assert known.chosen(one, 100.0) == ["y", "z", "x", "w"]
    assert known.chosen(Mutant("a.py", 9, 0, 0, "", "")) == ["y", "w", "z"]  # run when imported
    assert known.chosen(Mutant("b.py", 5, 0, 0, "", "")) == []


def test_lines_that_no_test_runs_have_the_tests_of_what_is_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the statement, the function, or whoever mentions what is defined; the nearest only."""
    package = tmp_path / "netsim"
    package.mkdir()
    text = (
        "MOST, LEAST = 4, 2\n\n\n"
        "def some(a: int = 3) -> int:\n    b = (\n        a\n        + 1\n    )\n"
    )
    (package / "a.py").write_text(text + "    return b\n")
    (package / "b.py").write_text("import a\n\n\ndef b():\n    return a.MOST\n\n\nb = a.some\n")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    mutants._parsed.cache_clear()
    mutants._mentions.cache_clear()
    try:
        lines = {number: list(mutants.around("a.py", number)) for number in (1, 4, 7)}
    finally:
        mutants._parsed.cache_clear()
        mutants._mentions.cache_clear()
    assert lines[1] == [[("a.py", 1)], [("b.py", 5)]]
    assert lines[4] == [[("a.py", number) for number in range(5, 10)], [("b.py", 8)]]
    assert lines[7] == [[("a.py", number) for number in range(5, 9)], [], *lines[4]]
    known = Covered({"a.py": {"6": ["x"]}, "b.py": {"5": ["y"]}}, {"x": 1.0, "y": 1.0})
    monkeypatch.setattr(mutants, "around", lambda path, line: lines[line])
    assert known.chosen(Mutant("a.py", 1, 0, 0, "", "")) == ["y", "x"]  # x: any line of its file
    assert known.chosen(Mutant("a.py", 4, 0, 0, "", "")) == ["x"]


def test_tests_that_are_gone_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pytest would end with another code than 0 before any is run, and every mutant be killed."""
    names = ["tests/test_a.py::test_a", "tests/test_a.py::Some::test_b", "tests/test_c.py::test_c"]
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_a():\n    pass\n")
    kept = {"tests": {}, "seconds": dict.fromkeys(names, 1.0)}
    (tmp_path / "covered.json").write_text(json.dumps(kept))
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "KEPT", tmp_path)
    assert list(mutants.covered().seconds) == names[:1]


def test_figures_that_run_a_file_come_last_and_each_question_counts() -> None:
    slow, quick = (f"{mutants.FIGURES[0]}test_no_figure_moves_unseen[{name}]" for name in "ab")
    known = Covered(
        {"a.py": {"5": ["x", quick], "6": [slow]}, "b.py": {"1": ["x"]}},
        {"x": 9.0, slow: 8.0, quick: 0.5},
    )
    assert known.chosen(Mutant("a.py", 5, 0, 0, "", "")) == ["x", quick, slow]
    assert known.chosen(Mutant("b.py", 1, 0, 0, "", "")) == ["x"]
    assert [mutants.unit_of(name) for name in (slow, "t.py::test[a]")] == [slow, "t.py::test"]


@pytest.mark.slow
def test_a_mutant_is_killed_by_a_test_that_fails_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "netsim").mkdir()
    (tmp_path / "netsim" / "__init__.py").touch()
    file, test = tmp_path / "netsim" / "made.py", tmp_path / "test_made.py"
    file.write_text(TEXT)
    test.write_text(TEST)
    by_line = {(one.line, one.old): one for one in mutants_of("made.py", TEXT)}
    names = ["test_made.py::test_some", "test_made.py::test_more"]
    assert tried(by_line[7, "is"], names, 60.0, tmp_path).killed_by == names[1]
    assert tried(by_line[1, "32"], names, 60.0, tmp_path).killed_by == ""
    assert tried(by_line[5, "<"], [], 60.0, tmp_path).killed_by == ""
    assert file.read_text() == TEXT


@pytest.mark.full
def test_a_survivor_is_tried_on_by_slow_tests_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those first whose file has its name; one that fails without the mutant, too, kills none."""
    (tmp_path / "netsim" / "made").mkdir(parents=True)
    for name in ("netsim", "netsim/made"):
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "netsim" / "made" / "low.py").write_text("LOW = 3\n")
    folder = tmp_path / "tests" / "made"
    folder.mkdir(parents=True)
    (folder / "test_any.py").write_text(
        "from netsim.made.low import LOW\n\n\ndef test_any():\n    assert LOW == 3\n"
    )
    (folder / "test_low.py").write_text("def test_low():\n    assert False\n")
    names = [f"tests/made/test_{name}.py::test_{name}" for name in ("any", "low", "quick")]
    monkeypatch.setattr(
        mutants, "marked_with", lambda _: {*names, "tests/other/test_low.py::test_low"}
    )
    one = Mutant("made/low.py", 1, 6, 7, "3", "4")
    known = Covered({}, {names[2]: 1.0})
    assert mutants.unmeasured(one, known) == [names[1], names[0]]
    found = mutants.tried_on(one, mutants.Trial(one, 5), known, tmp_path)
    assert (found.killed_by, found.tests) == (names[0], 6)
    same = Mutant("made/low.py", 1, 6, 7, "3", "3")
    assert not mutants.tried_on(same, mutants.Trial(same, 5), known, tmp_path).killed_by


@pytest.mark.slow
def test_a_mutant_that_never_ends_is_killed_by_time(tmp_path: Path) -> None:
    (tmp_path / "netsim").mkdir()
    (tmp_path / "netsim" / "__init__.py").touch()
    text = "def low(n):\n    while n > 3:\n        n -= 1\n    return n\n"
    (tmp_path / "netsim" / "made.py").write_text(text)
    (tmp_path / "test_made.py").write_text(
        "from netsim.made import low\n\n\ndef test_low():\n    assert low(9) == 3\n"
    )
    begin = text.index("-=")
    never = Mutant("made.py", 3, begin, begin + 2, "-=", "+=")
    assert tried(never, ["test_made.py"], 1.0, tmp_path).killed_by == "time"


def test_seconds_of_tests_are_those_of_processors() -> None:
    """Of this process and of those that it has started, whoever else works."""
    times = iter([(1.0, 0.5, 3.0, 0.0, 70.0), (2.0, 0.5, 3.0, 4.0, 500.0), (2.5, 0.5, 3.0, 4.0, 0)])
    clock = mutants.Clock(lambda: next(times))
    assert [clock.part() for _ in range(3)] == [4.5, 5.0, 0.5]


def test_what_stands_in_for_the_clock_in_a_test_measures_no_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reports of tests that are measured are made while what these replaced is replaced."""
    monkeypatch.setattr(mutants.os, "times", lambda: 1 / 0)
    made = SimpleNamespace(duration=430.0)
    mutants.pytest_runtest_logstart()
    reporting = mutants.pytest_runtest_makereport()
    next(reporting)
    with pytest.raises(StopIteration):
        reporting.send(SimpleNamespace(get_result=lambda: made))
    assert 0.0 <= made.duration < 60.0


def test_a_draw_keeps_its_mutants_where_others_come_and_a_longer_one_begins_with_it() -> None:
    every = [Mutant("a.py", line, 0, 0, "1", "2", f"f{line}") for line in range(40)]
    some = mutants.drawn_from(every, 10, 1)
    assert mutants.drawn_from(every, 20, 1)[:10] == some
    assert mutants.drawn_from(every, 10, 2) != some
    moved = [replace(one, line=one.line + 5) for one in every]
    new = Mutant("a.py", 1, 0, 0, "3", "4", "g")
    others = [one.name for one in mutants.drawn_from([new, *moved], 11, 1) if one != new]
    assert others[:10] == [one.name for one in some]
    twice = mutants.drawn_from([every[0], replace(every[0], line=99)], 2, 1)
    assert {one.line for one in twice} == {0, 99}


def test_an_argument_holds_for_its_line_or_for_any_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netsim").mkdir()
    (tmp_path / "netsim" / "a.py").write_text("A = 1\n  B = 1\n")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    one, other = (Mutant("a.py", line, 0, 0, "1", "2") for line in (1, 2))
    assert [mutants.argument(each, {(one.name, ""): "x"}) for each in (one, other)] == ["x", "x"]
    known = {(one.name, "B = 1"): "y", ("b.py : 1 -> 2", ""): "z"}
    assert [mutants.argument(each, known) for each in (one, other)] == ["", "y"]


def test_shares_of_the_killed_and_of_the_argued_are_told_apart() -> None:
    told = mutants.report(45, 10, 60)
    assert told.startswith("45 of 60 killed, 10 change nothing")
    assert "92% of all; 90% of those that change anything" in told
    assert "0% of all" in mutants.report(0, 0, 0)


@pytest.mark.slow
def test_known_survivors_are_there_and_say_why() -> None:
    for (name, line), why in mutants.known_survivors().items():
        path = name.partition(" ")[0]
        text = (mutants.ROOT / "netsim" / path).read_text(encoding="utf-8")
        lines = text.splitlines()
        found = [lines[one.line - 1].strip() for one in mutants_of(path, text) if one.name == name]
        assert line in found if line else found, name
        assert len(why) > 30
