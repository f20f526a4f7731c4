"""Validate the values of a source as a model, or list every mistake in plain words with its
position.
"""

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import pydantic
from pydantic_core import ErrorDetails

from netsim.base.errors import joined, nearest, shown, suggest
from netsim.base.units import UnitError
from netsim.base.values import dataclass, grouped
from netsim.yamlio.models import Elsewhere, FieldError
from netsim.yamlio.read import KeyPath, Source, text_of

TYPES = {
    "bool": "true or false", "dict": "a mapping of keys and values", "float": "a number",
    "int": "a whole number", "list": "a list", "model": "a mapping of keys and values",
    "none": "nothing", "string": "text", "tuple": "a list",
}  # fmt: skip
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
    """A mistake at `path` in the data: its message or, if `expected` is set, what was expected
    there.
    """

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


def finding_of(
    details: ErrorDetails,
    path: KeyPath,
    known_keys: Sequence[str],
    values: Mapping[str, str] | None = None,
) -> Finding:
    """Return the finding for an error of pydantic.

    Args:
        details: the error.
        path: path of the value in the data.
        known_keys: keys of the model that contains it.
        values: for a word that may be a value, the key whose value it may be (for a hint).
    """
    kind = details["type"]
    context = details.get("ctx", {})
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
    """Return the finding for a mapping at `path` that lacks a key, or a list that lacks an
    entry.
    """
    name = f"entry {key}" if isinstance(key, int) else f"key {shown(key)}"
    return Finding(path, f"missing {name}", at_key=True, missing_key=str(key))


def merged_finding(findings: Sequence[Finding]) -> Finding:
    """Return one finding for a value that no branch of a union accepts."""
    expected = " or ".join(dict.fromkeys(finding.expected for finding in findings))
    hint = next((finding.hint for finding in findings if finding.hint), "")
    first = findings[0]
    return Finding(first.path, expected=expected, got=first.got, hint=hint, at_key=first.at_key)


def _unknown(path: KeyPath, known_keys: Sequence[str], values: Mapping[str, str]) -> Finding:
    key = str(path[-1])
    hint = suggest(key, known_keys) or f" (known: {', '.join(known_keys) or 'none'})"
    if key in values:
        hint = f" (did you mean {values[key]}: {key}?)"
    return Finding(path, f"unknown key {shown(key)}{hint}", at_key=True, unknown_key=key)


def _from_validator(error: Exception, path: KeyPath, value: object) -> Finding:
    if isinstance(error, UnitError):
        got = shown(error.args[1])
        return Finding(path, expected=error.expected, got=got, hint=error.hint)
    if isinstance(error, FieldError):
        return Finding((*path, *error.path), error.message)
    return Finding(path, str(error) or f"{shown(value)} cannot be used here")


def _further(details: ErrorDetails, path: KeyPath) -> list[Finding]:
    """Return the further findings of an error that reports several mistakes (`FieldError.more`)."""
    error = details.get("ctx", {}).get("error")
    if not isinstance(error, FieldError):
        return []
    return [Finding((*path, *further.path), further.message) for further in error.more]


def _choice(path: KeyPath, value: object, choices: Sequence[str]) -> Finding:
    expected = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    hint = suggest(value, choices) if isinstance(value, str) else ""
    return Finding(path, expected=expected, got=shown(value), hint=hint, choices=tuple(choices))


def _type_or_range(
    kind: str, context: Mapping[str, Any], path: KeyPath, details: ErrorDetails
) -> Finding:
    value = details["input"]
    if kind in EXPECTED:
        whole_numbers = {k for k, v in context.items() if isinstance(v, float) and v.is_integer()}
        bounds = {k: str(int(v) if k in whole_numbers else v) for k, v in context.items()}
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


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


# Which value of the data an error of pydantic is about, and which branch of a union was meant. The
# locations that pydantic reports mix keys of the data with labels of union branches. Only the types
# of the model distinguish them, so the functions below walk through both together.

Location = tuple[str | int, ...]
Issue = tuple[Location, ErrorDetails]


def all_findings(error: pydantic.ValidationError, model: Any, path: KeyPath) -> list[Finding]:
    """Return every mistake of an error of pydantic once; a missing key is omitted beside a
    misspelled one that explains it.
    """
    issues = [(details["loc"], details) for details in error.errors(include_url=False)]
    findings = _findings(issues, model, path, ())
    explained = {
        (finding.path[:-1], key)
        for finding in findings
        if finding.unknown_key
        for key in re.findall(r"\(did you mean (.+)\?\)$", finding.message)
    }
    return [one for one in findings if (one.path, one.missing_key) not in explained]


def _findings(
    issues: Sequence[Issue],
    kind: Any,
    path: KeyPath,
    siblings: Sequence[str],
    values: Mapping[str, str] | None = None,
) -> list[Finding]:
    deeper = [issue for issue in issues if issue[0]]
    findings = [
        finding
        for rest, details in issues
        # pydantic calls a list too short if its entries are wrong.
        if not rest and not (deeper and details["type"] == "too_short")
        for finding in (finding_of(details, path, siblings, values), *_further(details, path))
    ]
    options = _options(kind)
    # Used only if there is a single option.
    keys = _keys(options[0])
    taken = _values(options[0])
    branches: list[list[Finding]] = []
    for head, head_issues in grouped(deeper, lambda issue: issue[0][0]).items():
        inner = [(location[1:], details) for location, details in head_issues]
        if len(options) > 1:
            branches.append(_findings(inner, _labelled(str(head), options), path, siblings))
        elif all(rest == ("[key]",) for rest, _ in inner):
            key_findings = [finding_of(details, (*path, head), ()) for _, details in inner]
            findings += [replace(finding, at_key=True) for finding in key_findings]
        else:
            findings += _findings(inner, _below(options[0], head), (*path, head), keys, taken)
    result = findings + (_findings_of_union(branches, path) if branches else [])
    return [_with_kind(finding, kind) if finding.path == path else finding for finding in result]


def _with_kind(finding: Finding, kind: Any) -> Finding:
    """Return a finding with a hint if the file has a word in place of a mapping with a `kind`.

    For `fabric: leaf-spine` the hint proposes `fabric: {kind: leaf-spine}`.
    """
    if finding.hint or not finding.path or not finding.expected.startswith(TYPES["model"]):
        return finding
    fields = [getattr(_bare(model), "model_fields", {}).get("kind") for model in _options(kind)]
    kinds = [str(word) for field in fields if field for word in get_args(_bare(field.annotation))]
    near = nearest(finding.got.strip("'"), kinds) if finding.got.startswith("'") else None
    if near is None:
        return finding
    return replace(finding, hint=f" (did you mean {finding.path[-1]}: {{kind: {near}}}?)")


def _findings_of_union(branches: Sequence[list[Finding]], path: KeyPath) -> list[Finding]:
    """Return the findings of the branch of a union that the value in the file fits best.

    `branches` are the findings of each branch. If the value fits no branch, return one finding that
    names what each branch expects.
    """
    fitting = [
        branch
        for branch in branches
        if not any(finding.expected and finding.path == path for finding in branch)
    ]
    if fitting:
        # The branch with the fewest mistakes whose `kind: ...` is right; without one, a message
        # that lists the kinds.
        kinds = [[finding for finding in branch if finding.choices] for branch in fitting]
        right = [branch for branch, wrong in zip(fitting, kinds, strict=True) if not wrong]
        if not right and len({wrong[0].path for wrong in kinds}) == 1 and len(fitting) > 1:
            choices = tuple(dict.fromkeys(choice for wrong in kinds for choice in wrong[0].choices))
            hint = suggest(kinds[0][0].got.strip("'"), choices)
            return [replace(kinds[0][0], expected=f"one of {', '.join(choices)}", hint=hint)]
        return min(right or fitting, key=len)
    return [
        merged_finding(
            [finding for branch in branches for finding in branch if finding.path == path]
        )
    ]


def _bare(kind: Any) -> Any:
    while get_origin(kind) is Annotated:
        kind, *metadata = get_args(kind)
        kind = next((one.kind for one in metadata if isinstance(one, Elsewhere)), kind)
    return kind


def _options(kind: Any) -> list[Any]:
    bare = _bare(kind)
    if get_origin(bare) not in (Union, types.UnionType):
        return [kind]
    options = [option for option in get_args(bare) if option is not type(None)]
    return _options(options[0]) if len(options) == 1 else options


def _labelled(label: str, options: Sequence[Any]) -> Any:
    """Return the branch of a union that pydantic names by `label` in the path of an error.

    The label is the tag of a branch, a word of its `kind`, or a text such as `tuple[Ring, ...]`.
    In such a text, the branch whose type is named first is returned.
    """
    for option in options:
        tags = [meta.tag for meta in get_args(option) if isinstance(meta, pydantic.Tag)]
        if label in tags or label in _literal_values(_bare(option)):
            return option
    candidates = [
        (min(_positions(label, option), default=len(label)), option) for option in options
    ]
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _positions(label: str, kind: Any) -> list[int]:
    """Return where the names of a type occur in a label like `tuple[tagged-union[Ring,Tree], ...]`.

    A position is the index of a character; names that do not occur have none.
    """
    patterns = [rf"\b{re.escape(name)}\b" for name in _names(kind)]
    return [match.start() for pattern in patterns if (match := re.search(pattern, label))]


def _names(kind: Any) -> list[str]:
    bare = [_bare(option) for option in _options(kind)]
    return [getattr(get_origin(one) or one, "__name__", str(one)) for one in bare]


def _literal_values(model: Any) -> set[Any]:
    fields = getattr(model, "model_fields", {})
    return {value for field in fields.values() for value in get_args(_bare(field.annotation))}


def _keys(kind: Any) -> list[str]:
    fields = getattr(_bare(kind), "model_fields", {})
    return [field.alias or name for name, field in fields.items()]


def _values(kind: Any) -> dict[str, str]:
    fields = getattr(_bare(kind), "model_fields", {})
    words = {
        word: field.alias or name
        for name, field in fields.items()
        for option in _options(field.annotation)
        if get_origin(_bare(option)) is Literal
        for word in get_args(_bare(option))
    }
    return {word: key for word, key in words.items() if isinstance(word, str)}


def _below(kind: Any, key: str | int) -> Any:
    bare = _bare(kind)
    for name, field in getattr(bare, "model_fields", {}).items():
        if key in (name, field.alias):
            return field.annotation
    arguments = [one for one in get_args(bare) if one is not Ellipsis]
    if isinstance(key, int) and len(arguments) > key and get_origin(bare) is tuple:
        return arguments[key]
    return arguments[-1] if arguments else Any


M = TypeVar("M", bound=pydantic.BaseModel)


def validate(model: type[M], source: Source, path: KeyPath = ()) -> M:
    """Return the values of `source` below `path` as a model; raise all mistakes in them."""
    values: Any = source.data
    for part in path:
        values = values[part]
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        findings = all_findings(error, model, path)
    errors = [source.error(finding.path, finding.text, key=finding.at_key) for finding in findings]
    errors.sort(key=lambda error: (error.source != source.name, error.line or 0, error.column or 0))
    raise joined(errors)
