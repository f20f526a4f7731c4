"""Which place of the data an error of pydantic's is about, and which branch of a union was meant.

pydantic's locations mix keys of the data with labels of union branches; only the types of the
model tell them apart, so this walks both together.
"""

import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pydantic
from pydantic_core import ErrorDetails

from netsim.errors import nearest
from netsim.yamlio.elsewhere import Elsewhere
from netsim.yamlio.findings import TYPES, Finding, merged, merged_choices, translated
from netsim.yamlio.source import KeyPath

Location = tuple[str | int, ...]
Issue = tuple[Location, ErrorDetails]


def all_findings(error: pydantic.ValidationError, model: Any, path: KeyPath) -> list[Finding]:
    """Every mistake once; a missing key is not told beside the misspelt one that explains it."""
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
    found = [
        translated(details, path, siblings, values)
        for rest, details in issues
        # pydantic calls a list too short when its entries are wrong
        if not rest and not (deeper and details["type"] == "too_short")
    ]
    options = _options(kind)
    keys = [] if len(options) > 1 else _keys(options[0])
    taken = {} if len(options) > 1 else _values(options[0])
    branches: list[list[Finding]] = []
    for head, inner in _by_head(deeper).items():
        if len(options) > 1:
            branches.append(_findings(inner, _labelled(str(head), options), path, siblings))
        elif all(rest == ("[key]",) for rest, _ in inner):
            wrong = [translated(details, (*path, head), ()) for _, details in inner]
            found += [replace(finding, at_key=True) for finding in wrong]
        else:
            found += _findings(inner, _below(options[0], head), (*path, head), keys, taken)
    told = found + (_told_once(branches, path) if branches else [])
    return [_with_kind(finding, kind) if finding.path == path else finding for finding in told]


def _with_kind(finding: Finding, kind: Any) -> Finding:
    """The finding; of a word that stands for a mapping of that `kind`, with how to write it."""
    if finding.hint or not finding.path or not finding.expected.startswith(TYPES["model"]):
        return finding
    fields = [getattr(_bare(model), "model_fields", {}).get("kind") for model in _options(kind)]
    kinds = [str(word) for field in fields if field for word in get_args(_bare(field.annotation))]
    near = nearest(finding.got.strip("'"), kinds) if finding.got.startswith("'") else None
    if near is None:
        return finding
    return replace(finding, hint=f" (did you mean {finding.path[-1]}: {{kind: {near}}}?)")


def _told_once(branches: Sequence[list[Finding]], path: KeyPath) -> list[Finding]:
    """The findings of the branch that was meant, or one that names what all branches expect."""
    fitting = [
        branch
        for branch in branches
        if not any(one.expected and one.path == path for one in branch)
    ]
    if fitting:
        return _without_wrong_kinds(fitting)
    return [merged([one for branch in branches for one in branch if one.path == path])]


def _without_wrong_kinds(branches: Sequence[list[Finding]]) -> list[Finding]:
    """The branch with the fewest mistakes whose `kind: ...` is right, or what the kinds are."""
    kinds = [[one for one in branch if one.choices] for branch in branches]
    right = [branch for branch, wrong in zip(branches, kinds, strict=True) if not wrong]
    if not right and len({wrong[0].path for wrong in kinds}) == 1 and len(branches) > 1:
        return [merged_choices([wrong[0] for wrong in kinds])]
    return min(right or branches, key=len)


def _by_head(issues: Iterable[Issue]) -> dict[str | int, list[Issue]]:
    groups: dict[str | int, list[Issue]] = {}
    for location, details in issues:
        groups.setdefault(location[0], []).append((location[1:], details))
    return groups


def _bare(kind: Any) -> Any:
    while get_origin(kind) is Annotated:
        kind, *told = get_args(kind)
        kind = next((one.kind for one in told if isinstance(one, Elsewhere)), kind)
    return kind


def _options(kind: Any) -> list[Any]:
    """The branches of a union, without `None`, for which pydantic sets no label."""
    bare = _bare(kind)
    if get_origin(bare) not in (Union, types.UnionType):
        return [kind]
    options = [option for option in get_args(bare) if option is not type(None)]
    return _options(options[0]) if len(options) == 1 else options


def _labelled(label: str, options: Sequence[Any]) -> Any:
    """The branch with that label: a tag, the name of a model, or a text that contains it."""
    for option in options:
        tags = [meta.tag for meta in get_args(option) if isinstance(meta, pydantic.Tag)]
        if label in tags or label in _literal_values(_bare(option)):
            return option
    found = [(min(_positions(label, option), default=len(label)), option) for option in options]
    return min(found, key=lambda one: one[0])[1]


def _positions(label: str, kind: Any) -> list[int]:
    """Where a label such as `tuple[tagged-union[Ring,Tree], ...]` names a type."""
    patterns = [rf"\b{re.escape(name)}\b" for name in _names(kind)]
    return [match.start() for pattern in patterns if (match := re.search(pattern, label))]


def _names(kind: Any) -> list[str]:
    """What labels of pydantic's may call a type: the names of its models, list, dict, str."""
    bare = [_bare(option) for option in _options(kind)]
    return [getattr(get_origin(one) or one, "__name__", str(one)) for one in bare]


def _literal_values(model: Any) -> set[Any]:
    fields = getattr(model, "model_fields", {})
    return {value for field in fields.values() for value in get_args(_bare(field.annotation))}


def _keys(kind: Any) -> list[str]:
    fields = getattr(_bare(kind), "model_fields", {})
    return [field.alias or name for name, field in fields.items()]


def _values(kind: Any) -> dict[str, str]:
    """The words that the keys of a model take, each with its key."""
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
    """The type of the value under a key or index."""
    bare = _bare(kind)
    for name, field in getattr(bare, "model_fields", {}).items():
        if key in (name, field.alias):
            return field.annotation
    arguments = [one for one in get_args(bare) if one is not Ellipsis]
    if isinstance(key, int) and len(arguments) > key and get_origin(bare) is tuple:
        return arguments[key]
    return arguments[-1] if arguments else Any
