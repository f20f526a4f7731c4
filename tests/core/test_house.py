"""The house keeps its rules: few rooms, no circles, imports that run down; and the checks see.

Each rule is one function of `tests.house`, tried here on the package and on small made-up ones.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests import house
from tests.core.marked import functions_of_tests, marked_with
from tests.house import (
    ROOT,
    Walk,
    circles,
    classes_twice,
    files_of,
    filled,
    floors_of,
    functions_from,
    graph_of,
    imports_of,
    late_imports,
    loose,
    modules_of,
    unit_of,
    upward_imports,
)

OF_THE_WHOLE = {"core", "relations", "golden"}  # folders of tests of no single package
MOST_IMPORTED = 158
FILES = files_of()
PAGE = ROOT.parent / "docs" / "architecture.md"


def test_the_package_has_no_loose_modules() -> None:
    assert not loose(FILES)


@pytest.mark.slow
def test_no_files_import_one_another() -> None:
    assert not circles(graph_of(FILES))


# Files that import others of ours inside functions, or by a string, and what that saves. The files
# of `cli/verbs/` import the work of a verb so, that `--help` need not.
VERB_FILES = "cli/verbs/"
LATE = {
    "__main__.py": "the command line, so that Ctrl-C is quiet while it is imported",
    "tasks/answer.py": "training steps, of which most cells are none",
    "cli/expect.py": "answers that few ask for: why, graph files, gates, tables for a tuner",
    "cli/questions.py": "readers of foreign formats, for files that are none of ours",
    "cli/run.py": "tables, traces, and pictures with matplotlib",
    "cli/workers.py": "worker processes and clusters, with what they import",
    "collectives/table.py": "the reader of MSCCL's files, with one of XML",
    "engines/engine.py": "an engine, with its libraries and its machine code",
    "report/rows.py": "tables and pictures, with pandas and matplotlib",
    "scenario/models.py": "models of training steps",
    "sweep/run.py": "measured runs, where a scenario names one",
}


@pytest.mark.slow
def test_imports_stand_at_the_top() -> None:
    late = {line.partition(":")[0] for line in late_imports(FILES)}
    late = {path for path in late if not path.startswith(VERB_FILES)}
    assert late == set(LATE), "where nothing is late any more, take it off the list"


@pytest.mark.slow
def test_tests_lie_in_folders_of_packages_and_each_has_quick_ones() -> None:
    folders = {path.partition("/")[0] for path in FILES if "/" in path}
    tests = {function for function, _ in functions_of_tests()}
    quick_tests = tests - marked_with(("slow", "full"))
    assert {name.split("/")[1] for name in tests} - OF_THE_WHOLE <= folders
    assert {name.split("/")[1] for name in quick_tests} >= folders


@pytest.mark.slow
def test_a_package_has_a_class_name_once() -> None:
    assert not classes_twice(FILES)


def test_every_module_says_what_it_is() -> None:
    assert not [file.path for file in filled(FILES) if not ast.get_docstring(file.tree)]


@pytest.mark.slow
def test_imports_run_down_the_table_of_floors() -> None:
    floors = floors_of(PAGE.read_text())
    folders = {path.partition("/")[0] + "/" for path in FILES if "/" in path}
    assert folders == {name for name in floors if name.endswith("/")}
    assert all(f"{name}.py" in FILES for name in floors if not name.endswith("/"))
    assert not upward_imports(FILES, floors)


def told(*arguments: str) -> str:
    """What `python -m tests.house` tells of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.house", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
    )
    return done.stderr


@pytest.mark.slow
def test_expect_imports_few_modules_and_its_walk_is_told() -> None:
    text = told("expect", "dgx-h100", "all_reduce")
    found = re.search(r"imported: (\d+) of our modules, (\d+) of them not empty", text)
    assert found is not None, text
    modules, full = map(int, found.groups())
    assert full <= modules
    assert re.search(r"^entered: [1-9]\d* files in [1-9]\d* packages$", text, re.MULTILINE)
    assert re.search(r"^came back: \d+ pairs of files, \d+ calls$", text, re.MULTILINE)
    assert full <= MOST_IMPORTED


@pytest.mark.full
def test_numbers_of_the_house_are_told(capsys, monkeypatch) -> None:
    monkeypatch.setattr(house, "files_of", lambda: FILES)
    house._tell_house()
    assert capsys.readouterr().out.startswith(f"files: {len(filled(FILES))}, lines: ")


# What follows checks the checks: each finds what is wrong in a package made for that.

Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Makes a package of these files, whose names are written with two underscores for a slash."""

    def make(package: str = "netsim", **texts: str) -> Path:
        root = tmp_path / package
        for name, text in {"__init__": "", **texts}.items():
            parts = [name] if name.startswith("__") else name.split("__", 1)
            path = root.joinpath(*parts).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return make


def test_files_are_counted_that_are_not_empty(made: Made) -> None:
    files = files_of(made(a__one="# nothing\n", a__two='"""Two."""\n', top="x = 1\n", __main__=""))
    assert [file.path for file in filled(files)] == ["a/two.py", "top.py"]
    assert [file.path for file in filled(files) if not ast.get_docstring(file.tree)] == ["top.py"]
    assert loose(files) == ["top.py"]
    assert modules_of(files)["netsim"] == "__init__.py"


def test_long_functions_are_found(made: Made) -> None:
    body = "        x = 1\n" * 59
    text = f"class A:\n    def long(self):\n{body}\n    def short(self):\n        y = 1\n"
    assert functions_from(files_of(made(a__one=text))) == {"a/one.py:2 long": 60}


def test_class_names_are_compared_within_a_package(made: Made) -> None:
    both, hidden = "class Plan: pass\n", "class _Plan: pass\n"
    files = files_of(made(a__one=both, a__two=both, a__three=hidden, b__one=both))
    assert classes_twice(files) == {("a", "Plan"): ["a/one.py", "a/two.py"]}


@pytest.mark.parametrize(
    "text",
    [
        "from netsim.b.two import f\n",
        "from netsim.b import two\n",
        "import netsim.b.two\n",
        "if TYPE_CHECKING:\n    from netsim.b.two import f\n",
        "def f():\n    from netsim.b.two import f\n",
        "def f():\n    import_module('netsim.b.two')\n",
        "HOMES = {'two': 'netsim.b.two'}\n",
    ],
)
def test_circles_are_found_however_they_are_hidden(made: Made, text: str) -> None:
    three = "from netsim.a.one import g\n"
    files = files_of(made(a__one=text, b__two="import netsim.c.three\n", c__three=three))
    assert circles(graph_of(files)) == [["a/one.py", "b/two.py", "c/three.py"]]
    assert bool(late_imports(files)) == ("def" in text or "HOMES" in text)


def test_late_imports_tell_how(made: Made) -> None:
    late = {
        "inside a function": "def f():\n    import netsim.b.two\n",
        "by its name": "x = 'netsim.b.two'\n",
        "by the beginning of its name": "def f(name):\n    import_module(f'netsim.b.{name}')\n",
    }
    for how, text in late.items():
        (found,) = late_imports(files_of(made(a__one=text, b__two="", b____init__="")))
        assert found.startswith("a/one.py:")
        assert found.endswith(f" {how}")
    own = "loader('netsim.a'), process('netsim.a.one')\nimport json\n"
    assert not late_imports(files_of(made(a__one=own, __init__="x = 'netsim.b'")))
    with pytest.raises(AssertionError, match=r"a/one.py:1 imports relatively"):
        late_imports(files_of(made(a__one="from . import two\n")))


def test_imports_have_lines_and_files(made: Made) -> None:
    files = files_of(made(a__one="\nfrom netsim.b import two, g\n", b__two="", b____init__="g = 1"))
    found = imports_of(files["a/one.py"], modules_of(files))
    assert [(one.path, one.line, one.late) for one in found] == [
        ("b/two.py", 2, ""),
        ("b/__init__.py", 2, ""),
    ]


FLOORS = """
| word | meaning |
|---|---|
| `x/` | not this one |

| floor | packages | one line |
|---|---|---|
| 0 | `base/` | units |
| 1 | `a/`, `b/` | a; not `c/` |
| 2 | `d/`, `d/row` | b |

| `y/` | nor this one |
"""


def test_the_table_of_floors_is_read() -> None:
    floors = floors_of(FLOORS)
    expected = {"base/": (0, 0), "a/": (1, 0), "b/": (1, 1), "d/": (2, 0), "d/row": (2, 1)}
    assert floors == expected
    units = [unit_of(path, floors) for path in ("d/row.py", "d/rows.py", "d/e/row.py", "e/row.py")]
    assert units == ["d/row", "d/", "d/", ""]
    with pytest.raises(ValueError, match="expected a table"):
        floors_of("| floor |\n")


@pytest.mark.parametrize(
    ("texts", "upward"),
    [
        ({"b__one": "import netsim.a.one, netsim.base.one, netsim.b.two\n"}, []),
        ({"d__row": "import netsim.d.one\n", "__init__": "import netsim.d.one\n"}, []),
        ({"a__one": "import netsim.b.one\n"}, ["a/one.py:1 imports b/one.py"]),
        ({"base__one": "\nimport netsim.a.one\n"}, ["base/one.py:2 imports a/one.py"]),
        ({"d__one": "import netsim.d.row\n"}, ["d/one.py:1 imports d/row.py"]),
        ({"d__one": "import netsim\n"}, ["d/one.py:1 imports __init__.py"]),
        ({"d__one": "import netsim.top\n", "top": ""}, ["d/one.py:1 imports top.py"]),
        ({"c__one": "import netsim.d.one\n"}, ["c/one.py has no floor"]),
    ],
)
def test_imports_that_run_up_or_to_the_right_are_found(
    made: Made, texts: dict[str, str], upward: list[str]
) -> None:
    names = ("base__one", "a__one", "b__one", "b__two", "d__one", "d__row")
    files = files_of(made(**{**dict.fromkeys(names, ""), **texts}))
    assert upward_imports(files, floors_of(FLOORS)) == upward


WALKED = {
    "a__one": """
from walked.a.two import inner
from walked.b.one import middle, over
from walked.c.one import done

def straight():
    inner()
    middle(done)
    done()

def back():
    middle(inner)
    middle(inner)

def handed():
    over(item for item in (1, 2))

def late():
    import walked.c.late
""",
    "a__two": "def inner(): pass\n",
    "b__one": """
def middle(call):
    call()

def over(items):
    for item in items:
        pass
""",
    "c__one": "def done(): pass\n",
    "c__late": "from walked.a.two import inner\ninner()\n",
}
ONE, TWO, MIDDLE, DONE = "a/one.py", "a/two.py", "b/one.py", "c/one.py"


@pytest.mark.parametrize(
    ("name", "entered", "back"),
    [
        ("straight", {ONE: 1, TWO: 1, MIDDLE: 1, DONE: 2}, {}),
        ("back", {ONE: 1, MIDDLE: 2, TWO: 2}, {(MIDDLE, TWO): 2}),
        ("handed", {ONE: 4, MIDDLE: 1}, {(MIDDLE, ONE): 3}),  # two items, and that there is no more
        ("late", {ONE: 1}, {}),
    ],
)
def test_a_walk_counts_what_it_enters_and_what_comes_back(
    made: Made,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    entered: dict[str, int],
    back: dict[tuple[str, str], int],
) -> None:
    root = made("walked", **WALKED)
    monkeypatch.syspath_prepend(str(root.parent))
    try:
        function = getattr(import_module("walked.a.one"), name)
        walk, before = Walk(root), sys.getprofile()
        sys.setprofile(walk.see)
        try:
            function()
        finally:
            sys.setprofile(before)
    finally:
        for module in [m for m in sys.modules if m.partition(".")[0] == "walked"]:
            del sys.modules[module]
    assert dict(walk.entered) == entered
    assert dict(walk.back) == back
    assert walk.packages == {path.partition("/")[0] for path in entered}
