"""Names and texts of netsim are plain: the banned words of `tests/data/language.toml`.

`tests/data/not_yet.txt` lists the files that do not obey yet; they may only leave it.
"""

import ast

import pytest

from tests.core import plain_code


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def told(): pass", ["told"]),
        ("class Found: pass", []),  # a class name is not lower case
        ("class found: pass", ["found"]),
        ("def f(one, *some, other=1, **each): pass", ["one", "other", "some", "each"]),
        ("f = lambda mine: mine", ["mine"]),
        ("self.known = 1\nx.y.given = 2", ["known", "given"]),
        ("class A:\n    kept: int = 1", ["kept"]),
        ("_own = 1\nwhole_sum = 2", ["_own"]),
        ("for one in items: pass", ["one"]),
        ("[one for one in items]\n{other: 1 for other in items}", []),
        ("with f() as alike: pass", ["alike"]),
        ("if (how := f()): pass", ["how"]),
        ("from a import b as what", ["what"]),
        ("print(found, x.told)", []),  # uses are no names that the file gives
    ],
)
def test_banned_identifiers_are_found_where_a_name_is_given(text: str, names: list[str]) -> None:
    given_names = [name for _, name in plain_code.banned_identifiers(ast.parse(text))]
    assert sorted(given_names) == sorted(names)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('"""What is told of it."""', 1),
        ("x = 1  # stands for all", 1),
        ("x = 1  # bystanders forget", 0),
        ('raise ValueError(f"{n}: links that are\\n alike")', 1),
        ("told = alike", 0),  # names are the other rule's
        ('"""At least as many as ranks; then come the nodes, as many as racks."""', 1),
        ('"""A line break\n    so\n    many."""', 1),
    ],
)
def test_banned_phrases_are_found_in_comments_docstrings_and_messages(
    text: str, count: int
) -> None:
    assert len(list(plain_code.banned_phrases(text))) == count
