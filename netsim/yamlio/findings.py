"""One mistake that a model found in its data, in our own words.

Translates pydantic's error types; a mistake keeps what was *expected* apart from the rest, so that
the branches of a union can be told in one sentence.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import ErrorDetails

from netsim.errors import shown, suggest
from netsim.units import UnitError
from netsim.values import dataclass
from netsim.yamlio.model import FieldError
from netsim.yamlio.scalars import text_of
from netsim.yamlio.source import KeyPath

TYPES = {
    "bool": "true or false",
    "dict": "a mapping of keys and values",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "model": "a mapping of keys and values",
    "none": "nothing",
    "string": "text",
    "tuple": "a list",
}
EXPECTED = {
    "finite_number": "a finite number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "string_pattern_mismatch": "text of the form {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
}
BOOLEANS = {"yes": "true", "on": "true", "no": "false", "off": "false"}


@dataclass(frozen=True)
class Finding:
    """A mistake at `path`: its message, or where `expected` is set, what should stand there."""

    path: KeyPath
    message: str = ""
    expected: str = ""
    got: str = ""
    hint: str = ""
    choices: tuple[str, ...] = ()
    at_key: bool = False
    unknown_key: str = ""
    missing_key: str = ""

    @property
    def text(self) -> str:
        """The message to print."""
        return self.message or f"expected {self.expected}, got {self.got}{self.hint}"


def translated(
    details: ErrorDetails,
    path: KeyPath,
    known_keys: Sequence[str],
    values: Mapping[str, str] | None = None,
) -> Finding:
    """The finding for an error of pydantic's; `known_keys` are those of the model around it, and
    `values` says which of them takes a value.
    """
    kind, context = details["type"], details.get("ctx", {})
    if kind == "missing":
        return missing(path[:-1], path[-1])
    if kind == "extra_forbidden":
        return _unknown(path, known_keys, values or {})
    if kind in ("value_error", "assertion_error"):
        return _from_validator(context["error"], path, details["input"])
    if kind == "union_tag_not_found":
        keys = _quoted(context["discriminator"])
        return (
            missing(path, keys[0]) if keys else Finding(path, "no key says of which kind this is")
        )
    if kind == "union_tag_invalid":
        tag_path = (*path, *_quoted(context["discriminator"]))
        return _choice(tag_path, context["tag"], _quoted(context["expected_tags"]))
    if kind in ("literal_error", "enum"):
        choices = _quoted(context["expected"]) or [context["expected"]]
        return _choice(path, details["input"], choices)
    if kind in ("too_short", "too_long"):
        bound = context.get("min_length", context.get("max_length"))
        expected = f"a list of length at {'least' if kind == 'too_short' else 'most'} {bound}"
        return Finding(path, expected=expected, got=f"length {context['actual_length']}")
    return _type_or_range(kind, context, path, details)


def missing(path: KeyPath, key: str | int) -> Finding:
    """A mapping at `path` that lacks a key, or a list that lacks an entry."""
    what = f"entry {key}" if isinstance(key, int) else f"key {shown(key)}"
    return Finding(path, f"missing {what}", at_key=True, missing_key=str(key))


def merged(findings: Sequence[Finding]) -> Finding:
    """One finding for a value that none of several branches takes."""
    expected = " or ".join(dict.fromkeys(finding.expected for finding in findings))
    hint = next((finding.hint for finding in findings if finding.hint), "")
    first = findings[0]
    return Finding(first.path, expected=expected, got=first.got, hint=hint, at_key=first.at_key)


def merged_choices(findings: Sequence[Finding]) -> Finding:
    """One finding with the choices of all branches for the same key."""
    choices = tuple(dict.fromkeys(choice for finding in findings for choice in finding.choices))
    hint = suggest(findings[0].got.strip("'"), choices)
    return replace(findings[0], expected=f"one of {', '.join(choices)}", hint=hint)


def _unknown(path: KeyPath, known_keys: Sequence[str], values: Mapping[str, str]) -> Finding:
    key = str(path[-1])
    if key in values:
        meant = f"{values[key]}: {key}"
        return Finding(
            path, f"unknown key {shown(key)} (did you mean {meant}?)", at_key=True, unknown_key=key
        )
    hint = suggest(key, known_keys) or f" (known: {', '.join(known_keys) or 'none'})"
    return Finding(path, f"unknown key {shown(key)}{hint}", at_key=True, unknown_key=key)


def _from_validator(error: Exception, path: KeyPath, value: object) -> Finding:
    if isinstance(error, UnitError):
        got = shown(error.args[1])
        return Finding(path, expected=error.expected, got=got, hint=error.hint)
    if isinstance(error, FieldError):
        return Finding((*path, *error.path), error.message)
    return Finding(path, str(error) or f"{shown(value)} cannot be used here")


def _choice(path: KeyPath, value: object, choices: Sequence[str]) -> Finding:
    expected = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    hint = suggest(value, choices) if isinstance(value, str) else ""
    return Finding(path, expected=expected, got=shown(value), hint=hint, choices=tuple(choices))


def _type_or_range(
    kind: str, context: Mapping[str, Any], path: KeyPath, details: ErrorDetails
) -> Finding:
    value = details["input"]
    if kind in EXPECTED:
        bounds = {name: _short(bound) for name, bound in context.items()}
        expected = EXPECTED[kind].format(**bounds)
        return Finding(path, expected=expected, got=shown(value))
    expected = TYPES.get(kind.split("_", maxsplit=1)[0], "")
    if not expected:
        wanted = details["msg"].removeprefix("Input should be ")
        if wanted == details["msg"]:
            return Finding(path, wanted)
        return Finding(path, expected=wanted, got=shown(value))
    return Finding(path, expected=expected, got=shown(value), hint=_type_hint(expected, value))


def _type_hint(expected: str, value: object) -> str:
    if expected == "text" and isinstance(value, int | float) and not isinstance(value, bool):
        return f" (did you mean '{text_of(value)}' in quotes?)"
    if not isinstance(value, str):
        return ""
    if expected == "true or false" and value.lower() in BOOLEANS:
        return f" (did you mean {BOOLEANS[value.lower()]}?)"
    if expected in ("a whole number", "a number") and re.fullmatch(r"[0-9][0-9_]*", value):
        return f" (did you mean {value.replace('_', '')} without quotes?)"
    return ""


def _short(bound: object) -> str:
    return str(int(bound) if isinstance(bound, float) and bound.is_integer() else bound)


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)
