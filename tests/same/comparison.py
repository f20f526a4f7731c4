"""How two answers to a question differ: identical, close, within the error, declared, wrong.

Answers are compared value by value, each under the name of its column: a column of results.csv, an
item of `details`, `finish` (times of ranks), `stdout`, `stderr`, `code`, `file NAME`, `outcome`,
`message`. Tables of results that commands print or write are compared by their columns, too.
A value of OLD and one of NEW are

- identical: equal, digit for digit;
- close: numbers, also those in a text, that differ by at most 1e-9 of the larger;
- within the error: times, or what follows from times, of a row that both say to be approximate;
  they differ by at most the sum of both stated errors. How a row was simulated (`rows`, `engine`,
  `approximation`, `approximation_pct`) may then differ, too;
- declared: `tests/data/declared.yaml` says that this changes, and why;
- wrong: all else.

A question is in the worst class of its values. A question that one commit did not answer within its
processor time is unanswered: it says nothing, unless only the new commit fails to answer.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from io import StringIO
from math import isnan
from pathlib import Path
from typing import Any

import yaml

from tests.same.questions import Question

DECLARED = Path(__file__).parents[1] / "data" / "declared.yaml"
CLOSE = 1e-9  # relative difference of numbers that are called equal
ANYTHING = float("inf")  # a stated error within which every value is
LEAST = 1e-15  # absolute one: of seconds, below any that is simulated
HOW_SIMULATED = ("approximation", "approximation_pct", "rows", "engine")
# Columns that follow from a time; the stated error of the time holds for them, too.
FROM_TIMES = (
    "time_us",
    "time_low_us",
    "time_high_us",
    "p5_us",
    "p50_us",
    "p95_us",
    "p99_us",
    "alone_us",
    "slowdown",
    "inplace_time_us",
    "algbw_GBps",
    "busbw_GBps",
    "of_limit_pct",
    "step_time_us",
    "error_pct",
)
NESTED = ("axes", "details", "quantiles", "neighbours")  # columns that hold mappings
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
SHOWN_CHARACTERS = 160

Answer = Mapping[str, Any]


class Class(IntEnum):
    """Classes of differences, from none to the worst."""

    IDENTICAL = 0
    CLOSE = 1
    WITHIN_ERROR = 2
    DECLARED = 3
    UNANSWERED = 4
    WRONG = 5

    @property
    def title(self) -> str:
        """The class in words."""
        return TITLES[self]


TITLES = {
    Class.IDENTICAL: "identical",
    Class.CLOSE: f"equal to {CLOSE:g}",
    Class.WITHIN_ERROR: "within the stated error",
    Class.DECLARED: "declared",
    Class.UNANSWERED: "not answered in time",
    Class.WRONG: "wrong",
}


@dataclass(frozen=True)
class Difference:
    """One value that differs: where, in which class, both values, and why it was declared."""

    column: str
    kind: Class
    old: Any
    new: Any
    place: str = ""
    why: str = ""

    def __str__(self) -> str:
        old, new = _excerpts(self.old, self.new)
        place = f"{self.place}: " if self.place else ""
        why = f" (declared: {self.why})" if self.why else ""
        return f"{place}{self.column}: {old} -> {new}{why}"


def _excerpts(old: Any, new: Any) -> tuple[str, str]:
    """Both values as text; of long ones what surrounds the first character that differs."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in (old, new)]
    shorter = min(map(len, texts))
    first = next((n for n in range(shorter) if texts[0][n] != texts[1][n]), shorter)
    begin = max(0, first - SHOWN_CHARACTERS // 2)
    if max(map(len, texts)) <= SHOWN_CHARACTERS:
        begin = 0
    parts = [repr(text[begin : begin + SHOWN_CHARACTERS]) for text in texts]
    dots = "…" if begin else ""
    return f"{dots}{parts[0]}", f"{dots}{parts[1]}"


# **** Declared differences ****


@dataclass(frozen=True)
class Declaration:
    """One entry of `declared.yaml`: which columns of which questions differ, how, and why.

    `columns` are patterns for whole names of columns, `questions` one that the text of a question
    has somewhere. `old` and `new` are a pattern and its replacement: what they make of the value of
    OLD must be that of NEW. What matches `ignored` may differ in both. With neither, any other
    value is as declared.
    """

    columns: tuple[str, ...]
    why: str
    questions: str = ""
    old: str = ""
    new: str = ""
    ignored: str = ""

    def concerns(self, question: Question, column: str) -> bool:
        """Return whether it speaks of a column of a question."""
        if not any(re.fullmatch(name, column) for name in self.columns):
            return False
        return re.search(self.questions, question.text) is not None

    @property
    def allows_anything(self) -> bool:
        """Whether any other value is as declared."""
        return not self.old and not self.ignored

    def rewritten(self, old: str, new: str) -> tuple[str, str]:
        """Return two values without what is declared; equal ones differ in nothing else."""
        if self.old:
            old = re.sub(self.old, self.new, old)
        if self.ignored:
            old, new = (re.sub(self.ignored, "(ignored)", value) for value in (old, new))
        return old, new


def read_declarations(path: Path = DECLARED) -> list[Declaration]:
    """Return the declared differences; an entry without a reason is refused."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    declarations = []
    for number, entry in enumerate(entries, 1):
        unknown = set(entry) - {"columns", "why", "questions", "old", "new", "ignored"}
        if unknown or not entry.get("why") or not entry.get("columns"):
            raise SystemExit(
                f"{path}: entry {number}: expected columns, why and perhaps questions, old, new, "
                f"ignored; got {', '.join(map(str, entry))}"
            )
        declarations.append(Declaration(**{**entry, "columns": tuple(entry["columns"])}))
    return declarations


# **** Values ****


def _is_equal(old: Any, new: Any) -> bool:
    """Whether two values are the same; not a number is the same as itself."""
    if isinstance(old, float) and isinstance(new, float) and isnan(old):
        return isnan(new)
    return bool(old == new)


def is_close(old: Any, new: Any, tolerance: float = CLOSE) -> bool:
    """Return whether two values differ by no more than a relative tolerance.

    Numbers of lists and mappings count one by one; the signs between numbers of texts must agree.
    """
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    if isinstance(old, int | float) and isinstance(new, int | float):
        if _is_equal(old, new):
            return True
        return abs(old - new) <= max(LEAST, tolerance * max(abs(old), abs(new)))
    if isinstance(old, str) and isinstance(new, str):
        return _is_close_text(old, new, tolerance)
    if isinstance(old, list) and isinstance(new, list):
        pairs = zip(old, new, strict=False)
        return len(old) == len(new) and all(is_close(a, b, tolerance) for a, b in pairs)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        same_keys = list(old) == list(new)
        return same_keys and all(is_close(old[key], new[key], tolerance) for key in old)
    return False


def _is_close_text(old: str, new: str, tolerance: float) -> bool:
    if old == new:
        return True
    if NUMBER.split(old) != NUMBER.split(new):
        return False
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return all(a == b or is_close(float(a), float(b), tolerance) for a, b in pairs)


def class_of(old: Any, new: Any, stated_error: float | None) -> Class:
    """Return the class of two values; `stated_error` is None where no error is stated for them."""
    if _is_equal(old, new):
        return Class.IDENTICAL
    if is_close(old, new):
        return Class.CLOSE
    if stated_error == ANYTHING:
        return Class.WITHIN_ERROR
    if stated_error is not None and is_close(old, new, stated_error):
        return Class.WITHIN_ERROR
    return Class.WRONG


# **** Answers ****


class Comparison:
    """Compares answers of two commits, with what is declared between them."""

    def __init__(self, declarations: Sequence[Declaration] = ()) -> None:
        self._declarations = declarations

    def differences(self, question: Question, old: Answer, new: Answer) -> list[Difference]:
        """Return all values that are not identical."""
        outcomes = old["outcome"], new["outcome"]
        if "timeout" in outcomes:
            return [self._unanswered(old, new)]
        if outcomes[0] != outcomes[1]:
            texts = [_told(answer) for answer in (old, new)]
            return [self._declared(question, "outcome", texts[0], texts[1], Class.WRONG, "")]
        if outcomes[0] == "rows":
            pairs: Pairs = _pairs_of_rows(old, new)
        elif outcomes[0] == "commands":
            pairs = _pairs_of_commands(question, old, new)
        else:
            pairs = _pairs_of_errors(old, new)
        found = []
        for place, column, before, after, error in pairs:
            kind = class_of(before, after, error)
            if kind is not Class.IDENTICAL:
                found.append(self._declared(question, column, before, after, kind, place))
        return found

    def _unanswered(self, old: Answer, new: Answer) -> Difference:
        limit = new.get("seconds", 0.0)
        is_slower = old["outcome"] != "timeout" and old.get("seconds", 0.0) < limit / 3
        kind = Class.WRONG if is_slower else Class.UNANSWERED
        return Difference("outcome", kind, _told(old), _told(new))

    def _declared(
        self, question: Question, column: str, old: Any, new: Any, kind: Class, place: str
    ) -> Difference:
        """The difference, in the class `declared` where all of it is declared."""
        concerned = [one for one in self._declarations if one.concerns(question, column)]
        if kind is not Class.WRONG or not concerned:
            return Difference(column, kind, old, new, place)
        for one in concerned:
            if one.allows_anything:
                return Difference(column, Class.DECLARED, old, new, place, one.why)
        texts = _text_of(old), _text_of(new)
        reasons = []
        for one in concerned:
            rewritten = one.rewritten(*texts)
            if rewritten != texts:
                texts = rewritten
                reasons.append(one.why)
        if not reasons:
            return Difference(column, kind, old, new, place)
        if is_close(*texts):
            return Difference(column, Class.DECLARED, old, new, place, "; ".join(reasons))
        return Difference(column, kind, *texts, place)  # what is left after the declared ones


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _told(answer: Answer) -> str:
    """What an answer comes to, in a line."""
    outcome = answer["outcome"]
    if outcome == "error":
        return f"error: {answer['class']}: {answer['message']}"
    if outcome == "crash":
        return f"crash: {answer['message']}"
    if outcome == "timeout":
        return f"no answer within {answer.get('seconds')} s of processor time"
    return f"{len(answer[outcome])} {outcome}"


Pairs = Iterator[tuple[str, str, Any, Any, float | None]]  # place, column, old, new, stated error


def _pairs_of_rows(old: Answer, new: Answer) -> Pairs:
    counts = [len(answer["rows"]) for answer in (old, new)]
    yield "", "number of rows", counts[0], counts[1], None
    for number, (before, after) in enumerate(zip(old["rows"], new["rows"], strict=False), 1):
        yield from _pairs_of_row(f"row {number}", before, after)
    # A commit may have no finish times (see runner.py), or only those of small schedules.
    for number, (before, after) in enumerate(zip(old["finish"], new["finish"], strict=False), 1):
        if before and after:
            yield f"schedule {number}", "finish", before, after, None


def _pairs_of_row(place: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Pairs:
    """The columns of a row, as values or as texts of a table."""
    error = stated_error(old, new)
    may_differ = _how_may_differ(old, new)
    for column in dict.fromkeys([*old, *new]):
        values = old.get(column), new.get(column)
        if column in NESTED:
            yield from _pairs_of_mapping(place, column, values[0] or {}, values[1] or {}, error)
        elif column in HOW_SIMULATED:
            yield place, column, *values, ANYTHING if may_differ else None
        else:
            yield place, column, *values, error if column in FROM_TIMES else None


def stated_error(old: Mapping[str, Any], new: Mapping[str, Any]) -> float | None:
    """Return the sum of the errors that two rows state, as a fraction; None where neither does."""
    stated = [row.get("approximation_pct") or None for row in (old, new)]
    if stated == [None, None]:
        return None
    return sum(float(value or 0.0) for value in stated) / 100


def _how_may_differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether an error is stated for two rows and their times differ by no more than that."""
    error = stated_error(old, new)
    names = ("time_us", "step_time_us", "alone_us")
    times = [(old.get(name), new.get(name)) for name in names]
    return error is not None and all(class_of(a, b, error) < Class.WRONG for a, b in times)


def _pairs_of_mapping(
    place: str, column: str, old: Mapping[str, Any], new: Mapping[str, Any], error: float | None
) -> Pairs:
    for key in dict.fromkeys([*old, *new]):
        name = f"{column}.{key}"
        yield place, name, old.get(key), new.get(key), None if column == "axes" else error


def _pairs_of_commands(question: Question, old: Answer, new: Answer) -> Pairs:
    told = zip(question.commands, old["commands"], new["commands"], strict=True)
    for line, before, after in told:
        for column in ("code", "stderr"):
            yield f"netsim {line}", column, before[column], after[column], None
        yield from _pairs_of_text(f"netsim {line}", "stdout", before["stdout"], after["stdout"])
    files = old["files"], new["files"]
    for name in dict.fromkeys([*files[0], *files[1]]):
        texts = [of_commit.get(name, "(no such file)") for of_commit in files]
        yield from _pairs_of_text("", f"file {name}", *texts)


def _pairs_of_text(place: str, column: str, old: str, new: str) -> Pairs:
    """A text as a whole; of two tables with the same columns and lines each value by itself."""
    tables = read_table(old), read_table(new)
    shapes = [[list(row) for row in table] for table in tables]
    if not tables[0] or shapes[0] != shapes[1]:
        yield place, column, old, new, None
        return
    begin = f"{place}, {column}" if place else column
    for number, (before, after) in enumerate(zip(*tables, strict=True), 1):
        yield from _pairs_of_row(f"{begin}, row {number}", before, after)


def read_table(text: str) -> list[dict[str, Any]]:
    """Return the rows of a text in CSV or JSON with results in it; none of any other text.

    >>> read_table("cell,time_us\\na,3.5\\n")
    [{'cell': 'a', 'time_us': '3.5'}]
    """
    if text.startswith("["):
        try:
            entries = json.loads(text)
        except ValueError:
            return []
        return entries if all(isinstance(entry, dict) for entry in entries) else []
    header = text.partition("\n")[0].split(",")
    if "cell" not in header:
        return []
    lines = csv.DictReader(StringIO(text))
    return [{str(key): value for key, value in line.items()} for line in lines]


def _pairs_of_errors(old: Answer, new: Answer) -> Pairs:
    for column in ("class", "exit_code", "message"):
        yield "", column, old.get(column), new.get(column), None


def worst(differences: Sequence[Difference]) -> Class:
    """Return the worst class of some differences; identical where there are none."""
    return max((one.kind for one in differences), default=Class.IDENTICAL)
