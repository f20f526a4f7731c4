"""Mutants: those that tests must kill are still in the code; others are drawn; both are tried."""

import ast
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.core.marked import functions_of_tests
from tests.mutants import __main__ as command
from tests.mutants import copy_of, draw, trial
from tests.mutants.draw import ROOT, Mutant, drawn_from, every_mutant, mutants_of
from tests.mutants.trial import Listed, chosen_tests, first_failure, listed_mutants, try_mutant

LISTED = listed_mutants()
TEXT = """\
LIMIT = 32


def least(a: int = 3, *rest: int) -> float:
    if a < 2 and not rest:
        return max(a, 0.5) // 2
    return a is None
"""
TEST = """\
from netsim.made import least


def test_one():
    assert least(1) == 0


def test_five():
    assert least(5) is False
"""


# **** Mutants that must be killed ****


@pytest.mark.parametrize("mutant", LISTED, ids=lambda mutant: mutant.name)
def test_a_listed_mutant_is_found_once_in_its_file_and_changes_the_code(mutant: Listed) -> None:
    text = (ROOT / "netsim" / mutant.file).read_text(encoding="utf-8")
    changed = mutant.applied(text)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    assert len(mutant.why) > 10


def test_mutants_of_every_package_are_listed() -> None:
    packages = Counter(mutant.file.partition("/")[0] for mutant in LISTED)
    folders = {path.parent.name for path in (ROOT / "netsim").glob("*/__init__.py")}
    assert sum(packages.values()) >= 60
    assert set(packages) == folders
    assert len({mutant.name for mutant in LISTED}) == len(LISTED)


def test_tests_of_listed_mutants_are_there() -> None:
    functions = {name for name, _ in functions_of_tests()}
    for mutant in LISTED:
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            assert test.partition("[")[0] in functions or (ROOT / test).is_file(), test


def test_a_text_that_is_gone_or_there_twice_is_refused() -> None:
    mutant = Listed("limit", "made.py", "2", "3", ("test_made.py",), "")
    for text, count in (("LIMIT = 1", 0), ("LIMIT = 22", 2)):
        with pytest.raises(ValueError, match=f"limit: its text is {count} times in made.py"):
            mutant.applied(text)
    assert mutant.applied("LIMIT = 32") == "LIMIT = 33"


# **** Drawn mutants ****


def test_every_kind_of_place_is_found() -> None:
    mutants = [(one.line, one.function, one.old, one.new) for one in mutants_of("a.py", TEXT)]
    assert mutants == [
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


def test_places_are_characters_where_the_line_has_others_than_ascii() -> None:
    (mutant,) = mutants_of("a.py", 'a = f("é…", 20)\n')
    assert mutant.applied('a = f("é…", 20)\n') == 'a = f("é…", 10)\n'


def test_what_numpy_takes_for_the_same_is_left_out() -> None:
    mutants = mutants_of("a.py", "b = a.reshape(-1, 2) + f(-1)\n")
    assert [(one.old, one.new) for one in mutants] == [("2", "3"), ("+", "-"), ("1", "2")]


@pytest.mark.slow
def test_mutants_of_the_package_differ_from_it_and_can_be_read() -> None:
    every = every_mutant(["extent", "metrics"])
    assert {one.path.split("/")[0] for one in every} == {"extent", "metrics"}
    for mutant in random.Random(1).sample(every, 60):
        text = (ROOT / "netsim" / mutant.path).read_text(encoding="utf-8")
        changed = mutant.applied(text)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)), mutant


def test_texts_and_pictures_are_left_out_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "mutants_of", lambda path, text: [path])
    assert not any(path.startswith(draw.LEFT_OUT) for path in every_mutant([]))
    assert all(path.startswith("plots/") for path in every_mutant(["plots"]))
    assert len(every_mutant([])) > 100


def test_a_draw_keeps_its_mutants_where_others_come_and_a_longer_one_begins_with_it() -> None:
    every = [Mutant("a.py", line, 0, 0, "1", "2", f"f{line}") for line in range(40)]
    first = drawn_from(every, 10, 1)
    assert drawn_from(every, 20, 1)[:10] == first
    assert drawn_from(every, 10, 2) != first
    moved = [replace(one, line=one.line + 5) for one in every]
    new = Mutant("a.py", 1, 0, 0, "3", "4", "g")
    names = [one.name for one in drawn_from([new, *moved], 11, 1) if one != new]
    assert names[:10] == [one.name for one in first]
    twice = drawn_from([every[0], replace(every[0], line=99)], 2, 1)
    assert {one.line for one in twice} == {0, 99}


def test_a_drawn_mutant_is_tried_first_by_tests_that_import_its_module() -> None:
    tests = chosen_tests(Mutant("base/units.py", 1, 0, 0, "1", "2", "parse_size"))
    assert tests[0] == "tests/base/test_units.py"
    assert len(tests) <= trial.TESTS_OF_DRAWN
    assert chosen_tests(Mutant("base/none.py", 1, 0, 0, "1", "2"))[0].startswith("tests/base/")


# **** Mutants that change nothing ****


def test_an_argument_holds_for_its_line_or_for_any_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netsim").mkdir()
    (tmp_path / "netsim" / "a.py").write_text("A = 1\n  B = 1\n")
    monkeypatch.setattr(draw, "ROOT", tmp_path)
    first, second = (Mutant("a.py", line, 0, 0, "1", "2") for line in (1, 2))
    of_name = {(first.name, ""): "x"}
    assert [draw.argument(one, of_name) for one in (first, second)] == ["x", "x"]
    of_line = {(first.name, "B = 1"): "y", ("b.py : 1 -> 2", ""): "z"}
    assert [draw.argument(one, of_line) for one in (first, second)] == ["", "y"]


@pytest.mark.slow
def test_known_survivors_are_there_and_say_why() -> None:
    for (name, line), why in draw.known_survivors().items():
        path = name.partition(" ")[0]
        text = (ROOT / "netsim" / path).read_text(encoding="utf-8")
        lines = text.splitlines()
        places = [lines[one.line - 1].strip() for one in mutants_of(path, text) if one.name == name]
        assert line in places if line else places, name
        assert len(why) > 30


# **** Trials ****


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "netsim").mkdir()
    (tmp_path / "netsim" / "__init__.py").touch()
    (tmp_path / "netsim" / "made.py").write_text(TEXT)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_made.py").write_text(TEST)
    return tmp_path


@pytest.mark.slow
def test_a_mutant_is_killed_by_a_test_that_fails_and_leaves_nothing(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = copy_of(repository, tmp_path_factory.mktemp("copy"))
    of_line = {(one.line, one.old): one for one in mutants_of("made.py", TEXT)}
    tests = ["tests/test_made.py"]
    assert try_mutant(of_line[7, "is"], tests, copy) == "tests/test_made.py::test_five"
    assert try_mutant(of_line[1, "32"], tests, copy) == ""
    listed = Listed("is", "made.py", "a is None", "a is not None", tuple(tests), "")
    assert try_mutant(listed, listed.tests, copy) == "tests/test_made.py::test_five"
    assert (copy / "netsim" / "made.py").read_text() == TEXT


@pytest.mark.slow
def test_a_mutant_that_never_ends_is_killed_by_time(repository: Path) -> None:
    text = "def least(n):\n    while n > 0:\n        n -= 1\n    return n\n"
    (repository / "netsim" / "made.py").write_text(text)
    begin = text.index("-=")
    endless = Mutant("made.py", 3, begin, begin + 2, "-=", "+=")
    assert try_mutant(endless, ["tests/test_made.py"], repository, 5.0) == "time"


@pytest.mark.slow
def test_the_script_says_which_mutants_are_killed_and_refuses_tests_that_fail_anyway(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test = ("tests/test_made.py::test_five",)
    mutants = [
        Listed("is", "made.py", "a is None", "a is not None", test, "the other answer"),
        Listed("limit", "made.py", "32", "16", test, "no test asks for it"),
    ]
    monkeypatch.setattr(command, "listed_mutants", lambda: mutants)
    assert command.try_listed([], repository) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        "is: killed by tests/test_made.py::test_five",
        "limit: SURVIVED",
        "1 of 2 killed",
    ]
    with pytest.raises(SystemExit, match="no mutant is named other"):
        command.try_listed(["other"], repository)
    (repository / "netsim" / "made.py").write_text(TEXT.replace("is None", "is not None"))
    with pytest.raises(SystemExit, match="fails without any mutant"):
        command.try_listed(["is"], repository)


@pytest.mark.slow
def test_the_script_prints_why_a_drawn_mutant_changes_nothing(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutants = mutants_of("made.py", TEXT)
    monkeypatch.setattr(command, "every_mutant", lambda _: [mutants[0], mutants[-1]])
    monkeypatch.setattr(command, "argument", lambda one, _: "a reason" if one.line == 1 else "")
    monkeypatch.setattr(command, "chosen_tests", lambda _: ["tests/test_made.py"])
    assert command.try_drawn(5, 1, [], repository) == 0
    printed = capsys.readouterr().out
    assert "32 -> 16: changes nothing: a reason" in printed
    assert "is -> is not: killed by tests/test_made.py::test_five" in printed
    assert "1 of 2 killed, 1 change nothing for a stated reason" in printed


def test_a_run_of_tests_that_does_not_begin_is_no_success(tmp_path: Path) -> None:
    assert first_failure(["missing_test.py"], tmp_path) == "exit code 4"
