"""Reading YAML: 1.2 rules, exact places, and a plain refusal for everything else."""

import contextlib
import json
import math
import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netsim.base.errors import ScenarioError
from netsim.yamlio.read import Place, compose, construct, parse_source, read_source, text_of


def refusal(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_source(text, "x.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2:1", "2:1"),
        ("12:30:45", "12:30:45"),
        ("no", "no"),
        ("on", "on"),
        ("2001-01-01", "2001-01-01"),
        ("1_000", "1_000"),
        ("=", "="),
        ("0b11", "0b11"),
        ("1e9", 1e9),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 17),
        ("-3", -3),
        ("+3", 3),
        ("True", True),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("~", None),
        ("Null", None),
        ("", None),
        ("'5'", "5"),
        ('"null"', "null"),
        ("'<<'", "<<"),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("[1, [x]]", [1, ["x"]]),
    ],
)
def test_scalars_mean_what_they_look_like(text, value):
    read = parse_source(f"a: {text}", "x.yaml").data["a"]
    assert read == value
    assert isinstance(read, type(value))


def test_nan_is_a_number_for_the_models_to_refuse():
    assert math.isnan(parse_source("a: .nan", "x.yaml").data["a"])


@pytest.mark.parametrize("text", ["2.30", "2.3", "1e9", "0x1F", "007", "5", "some text"])
def test_the_text_of_a_scalar_is_kept(text):
    assert text_of(parse_source(f"a: {text}", "x.yaml").data["a"]) == text


def test_plain_numbers_are_plain():
    data = parse_source("a: 5\nb: 2.5", "x.yaml").data
    assert (type(data["a"]), type(data["b"])) == (int, float)


def test_aliases_repeat_values():
    data = parse_source("a: &x {n: [1, 2]}\nb: *x", "x.yaml").data
    assert data["b"] == {"n": [1, 2]}
    assert data["a"] is not data["b"]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("", " the file is empty"),
        ("# only a comment\n", " the file is empty"),
        ("---\n", " the file is empty"),
        ("- 1", "1:1: expected 'key: value' lines at the top level, got a list"),
        ("5", "1:1: expected 'key: value' lines at the top level, got 5"),
        (
            "a:1",
            "1:1: expected 'key: value' lines at the top level, got 'a:1' "
            "(a space is missing after ':')",
        ),
        ("a: 1\nb: 2\na: 3", "3:1: duplicate key 'a', first in line 1"),
        ("a:\n  - {b: 1, b: 2}", "2:12: duplicate key 'b', first in line 2"),
        ("a: !!python/object:os.system x", "1:4: YAML tags ('!') are refused"),
        ("!!map {a: 1}", "1:1: YAML tags ('!') are refused"),
        ("a: ! x", "1:4: YAML tags ('!') are refused"),
        ("a: !e!x y", "1:4: YAML tags ('!') are refused"),
        ("a: &x {b: 1}\nc:\n  <<: *x", "3:3: merge keys ('<<') are refused; write the keys out"),
        ("a: &x [*x]", "1:4: an alias '*' inside its own anchor '&'"),
        ("a: *x", "1:4: an alias '*' to an anchor '&' that is not defined above it"),
        ("a: &x 1\nb: &x 2", "2:4: the same anchor '&' twice"),
        ("a: 1\n---\nb: 2", "2:1: a second document ('---') in one file"),
        ("5: x", "1:1: expected a text as key, got 5 (write '5' in quotes)"),
        ("true: x", "1:1: expected a text as key, got true (write 'true' in quotes)"),
        ("[1]: x", "1:1: expected a text as key, got a list"),
        ("a: 1e999", "1:4: a number too large to hold, 1e999"),
        ("a: " + "9" * 50, "1:4: a number of more than 40 digits"),
        ('a: "\\ud800"', "1:4: half a surrogate pair is no character"),
        ('a: "\\UFFFFFFFF"', " this is not YAML: a number out of range"),
        ("a: " + "[" * 60, "1:53: more than 50 levels of nesting"),
    ],
)
def test_refused_although_it_may_be_yaml(text, rest):
    assert refusal(text) == f"x.yaml:{rest}"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("a: 1\n\tb: 2", "2:1: a tab indents this line; YAML takes spaces only"),
        ("a: 1\nb: {x: 1\nc: 2\n", "2:4: this mapping is not closed; a ',' or '}' is missing"),
        ("a: [1, 2\nb: 3\n", "1:4: this list is not closed; a ',' or ']' is missing"),
        ('a: "x\nb: 1\n', "1:4: this quote is never closed"),
        ("a: b: c", "1:5: a second ':' in one line; put the value in quotes"),
        (
            "a: 1\n  b: 2",
            "2:4: this line does not fit the one above it: a wrong indentation, or no ':' there",
        ),
        ("  a: 1\nb: 2", "2:1: this line does not fit the indentation of those above it"),
        ("a:\n- b\nc\n", "3:1: this line is no 'key: value' (a ':' is missing)"),
        ("a: 'it's'", "1:8: something follows the end of a value; put the whole value in quotes"),
        ("a: - b", "1:4: a list entry '- ' cannot stand here"),
        ("a: [1,, 2]", "1:7: a value is missing here"),
        ("a: @x", "1:4: a value cannot start with '@'; put it in quotes"),
        ('a: "\\q"', "1:6: unknown escape in double quotes; use single quotes"),
        ("a: 1\nb: x\x07", "2:5: the control character U+0007 cannot stand in YAML"),
        ("a: > 3\n", "1:6: this is not YAML: expected a comment or a line break, but found '3'"),
    ],
)
def test_what_is_not_yaml_is_told_in_plain_words(text, rest):
    assert refusal(text) == f"x.yaml:{rest}"


@pytest.mark.slow
def test_aliases_that_expand_without_bound_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert refusal("\n".join(lines)) == (
        "x.yaml:1:13: the file unfolds to more than 250000 values; use fewer aliases"
    )


def test_aliases_that_nest_without_bound_are_refused():
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100))]
    assert refusal("\n".join(lines)) == "x.yaml:1:5: aliases that nest more than 50 levels"


SCENARIO = """\
# a comment
name: x
cluster:
  fabric: {kind: leaf, nic: 400Gb}
groups:
  - machine: a
  -
    machine: b
"""


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ((), (2, 1), (2, 1)),
        (("name",), (2, 1), (2, 7)),
        (("cluster",), (3, 1), (4, 3)),
        (("cluster", "fabric"), (4, 3), (4, 11)),
        (("cluster", "fabric", "nic"), (4, 24), (4, 29)),
        (("groups", 0), (6, 5), (6, 5)),
        (("groups", 0, "machine"), (6, 5), (6, 14)),
        (("groups", 1, "machine"), (8, 5), (8, 14)),
        (("cluster", "fabric", "absent"), (4, 3), (4, 3)),
        (("groups", 7), (5, 1), (5, 1)),
    ],
)
def test_places_of_keys_and_values(path, key, value):
    source = parse_source(SCENARIO, "x.yaml")
    assert source.locate(path, key=True) == Place("x.yaml", *key)
    assert source.locate(path) == Place("x.yaml", *value)


def test_an_error_about_a_field():
    error = parse_source(SCENARIO, "x.yaml").error(("cluster", "fabric", "nic"), "bad", hint="why?")
    assert str(error) == "x.yaml:4:29: cluster.fabric.nic: bad (why?)"


def test_reading_a_file(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_bytes(b"\xef\xbb\xbfname: \xc2\xb5\r\nseed: 1\r\n")
    source = read_source(file)
    assert source.data == {"name": "µ", "seed": 1}
    assert source.locate(("seed",)) == Place(file.as_posix(), 2, 7)


@pytest.mark.parametrize(
    ("content", "rest"),
    [
        (b"", ": the file is empty"),
        (b"\x7fELF\x00\x01", ": expected a text file with YAML, got a binary file"),
        (b"a: 1\nb: \xff\n", ":2: not text in UTF-8: byte 0xFF"),
        ("a: 1".encode("utf-16"), ": expected a text file with YAML, got a binary file"),
        (b"a: 1\n" * 10**6, ": larger than 4 MiB"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, content, rest):
    file = tmp_path / "x.yaml"
    file.write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        read_source(file)
    assert str(caught.value) == file.as_posix() + rest


def test_paths_that_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "quickstart.yaml").write_text("a: 1")
    messages = {
        "scenarios": "scenarios: expected a file, got a directory",
        "scenarios/quikstart.yml": (
            "scenarios/quikstart.yml: no such file (did you mean scenarios/quickstart.yaml?)"
        ),
        "nowhere/x.yaml": "nowhere/x.yaml: no such file",
        "scenarios/quickstart.yaml/x": "scenarios/quickstart.yaml/x: cannot be read: "
        + os.strerror(20),
        "a\0b": "a\0b: cannot be read: embedded null byte",
    }
    for path, message in messages.items():
        with pytest.raises(ScenarioError) as caught:
            read_source(path)
        assert str(caught.value) == message


YAML_CHARACTERS = st.text("ab: -[]{},#&*!|>'\"%@`?\n\t\\0.~<=/\ud800\x07\u2028", max_size=40)


@given(YAML_CHARACTERS | st.text(max_size=40))
@example("%YAML " + "9" * 5000 + ".1\n---\na: 1")
def test_any_text_is_a_mapping_or_a_scenario_error(text):
    with contextlib.suppress(ScenarioError):
        assert isinstance(parse_source(text, "x.yaml").data, dict)


@given(content=st.binary(max_size=60))
def test_any_bytes_are_a_mapping_or_a_scenario_error(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "garbage.yaml"
    file.write_bytes(content)
    with contextlib.suppress(ScenarioError):
        assert isinstance(read_source(file).data, dict)


@given(YAML_CHARACTERS)
@example("a: x\ty\nb: 'it''s'\n")
@example("a:\n- b: |\n   x\n- >-\n  y\n\u00b5: ''\n")
def test_both_parsers_of_pyyaml_read_the_same(text):
    with contextlib.suppress(ScenarioError):
        fast, plain = compose(text, "x.yaml"), compose(text, "x.yaml", fast=False)
        if fast and plain:
            assert construct(fast, "x.yaml") == construct(plain, "x.yaml")
            assert places(fast) == places(plain)


def places(node) -> list[tuple[int, int]]:
    """Of all nodes but empty ones, which may be said to stand in either of two lines."""
    place = (node.start_mark.line, node.start_mark.column)
    children = node.value if isinstance(node.value, list) else []
    inner = [one for child in children for one in (child if isinstance(child, tuple) else [child])]
    return [place] * bool(node.value) + [place for child in inner for place in places(child)]


SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text("ab:1.e-# ")
VALUES = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("xyz"), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.dictionaries(st.text("abc", min_size=1), VALUES, min_size=1))
def test_json_is_read_as_what_it_says(data):
    assert parse_source(json.dumps(data, ensure_ascii=False), "x.yaml").data == data
