"""The code of netsim is plain: rules that `tests/core/plain_code.py` checks file by file.

`tests/data/not_yet.txt` lists the files that do not obey yet, one line for each file and rule. A
test fails if another file breaks a rule, and also if a listed file no longer does, so that files
only leave the list. Complexity and the format are checked by ruff.
"""

import ast

import pytest

from tests.core import plain_code
from tests.core.plain_code import (
    RULES,
    assert_list_is_exact,
)


@pytest.mark.slow
def test_files_outside_the_list_obey_every_rule() -> None:
    """All rules in one test, as it takes seconds to look through the repository."""
    for rule in RULES:
        assert_list_is_exact(rule)


def test_every_entry_of_the_list_names_a_file_and_a_rule() -> None:
    for entry in plain_code.not_yet():
        path, _, rule = entry.partition(": ")
        assert path in plain_code.repository_texts(), entry
        assert rule in RULES, entry


@pytest.mark.slow
def test_every_getattr_that_may_have_a_default_exists() -> None:
    uses = {
        f"{path} {name}"
        for path, text in plain_code.repository_texts().items()
        if path.startswith("netsim/") and "getattr(" in text
        for _, name in plain_code.getattr_defaults(ast.parse(text))
    }
    assert set(plain_code.foreign_attributes()) <= uses


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = 1 if a else 2", []),
        ("\nx = 1 if a else 2 if b else 3", [2]),
        ("x = (1 if a else 2) if b else 3", [1]),
        ("x = f'{1 if a else 2}' if b else ''", [1]),
        ("x = [1 if a else 2, 1 if b else 2]", []),
    ],
)
def test_nested_conditional_expressions_are_found(text: str, lines: list[int]) -> None:
    assert [line for line, _ in plain_code.nested_conditionals(ast.parse(text))] == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("A = {1: 2,\n  3: 4}  # fmt: skip", []),
        ("A = frozenset({1, 2})  # fmt: skip", []),
        ("class B:\n    A = (1,\n      2)  # fmt: skip", []),
        ("A = f(1)  # fmt: skip", [1]),
        ("def f():\n    a = [1,\n  2]  # fmt: skip", []),
        ("A = [1 if a else 2]  # fmt: skip", [1]),
        ("A = {a: [b for b in a]\n for a in c}  # fmt: skip", [2]),
        ("A = [1]\nprint(1)  # fmt: skip", [2]),
        ("A = '# fmt: skip'", []),
    ],
)
def test_format_skips_are_found_that_end_no_table(text: str, lines: list[int]) -> None:
    assert [line for line, _ in plain_code.wrong_format_skips(text)] == lines


def test_getattr_with_a_default_is_found() -> None:
    text = "getattr(a, 'b')\ngetattr(a, 'b', 0)\ngetattr(a, name, 0)"
    assert list(plain_code.getattr_defaults(ast.parse(text))) == [(2, "b"), (3, "name")]


def test_class_names_are_found_that_two_packages_have() -> None:
    texts = {
        "netsim/a/one.py": "class Plan: pass\nclass _Part: pass",
        "netsim/a/two.py": "class Part: pass",
        "netsim/b/one.py": "class Plan: pass\nclass _Part: pass",
    }
    trees = {path: ast.parse(text) for path, text in texts.items()}
    shared = list(plain_code.shared_class_names(trees))
    assert shared == [("netsim/a/one.py", 1, "Plan"), ("netsim/b/one.py", 1, "Plan")]


def test_tokens_are_counted_by_lines_of_code() -> None:
    assert plain_code.tokens_per_line("# a\n\nx = [\n    1,\n]\n") == (6, 3)


def test_counts_for_reviewers_are_of_each_kind() -> None:
    text = (
        "x = [[a for a in b] for b in c]\n"
        "x, y = 1, f()\n"
        "x, y = pair\n"
        "A = [1]  # fmt: skip\n"
        "def f():\n    return 1, 2, 3\n"
        "def g():\n    return 1, 2\n"
    )
    assert set(plain_code.counts(text).values()) == {1}
    assert len(plain_code.counts(text)) == 4
