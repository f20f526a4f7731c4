"""The sentences of a report: which choice is fastest under equal conditions, how certain that is.

The templates of the sentences are in `page/answer.txt`, `page/trust.txt` and `page/left.txt`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from math import isnan
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, select_autoescape
from numpy.typing import NDArray

from netsim.base.units import format_size
from netsim.base.values import dataclass
from netsim.plots.results import SweepQuestion, against, compared, question_of
from netsim.plots.sizes import over_seeds
from netsim.plots.style import time_text
from netsim.results.row import AXIS, DOUBTFUL, EQUAL
from netsim.scenario.each_part import HEALTHY
from netsim.sweep import parts

Record = Mapping[Any, Any]

_LISTED = 10  # most failures that are listed
_OF_TRUST = (
    "time_us",
    "time_low_us",
    "time_high_us",
    "measured_time_us",
    "error_pct",
    "approximation",
    "approximation_pct",
)


def longer(ratio: float) -> str:
    """A ratio of two times in words: `12% longer`, `3.2 times as long`."""
    if abs(ratio - 1) <= EQUAL:
        return "as long"
    if ratio < 1:
        return f"{1 - ratio:.0%} less"
    return f"{ratio - 1:.0%} longer" if ratio < 1.995 else f"{ratio:.3g} times as long"


@dataclass(frozen=True)
class ChoiceSummary:
    """One choice over all conditions.

    Fields:
        fastest: the number of conditions under which it is the fastest, or not clearly slower.
        of: the number of all conditions.
        mean, least, most: its time over the fastest as geometric mean, minimum and maximum.
        where: the conditions of the minimum and of the maximum.
        row: its row at the maximum.
    """

    name: str
    fastest: int
    of: int
    mean: float
    least: float
    most: float
    where: tuple[str, str]
    row: Record


def summed(rows: pd.DataFrame) -> list[ChoiceSummary]:
    """All choices in the order of their mean time over the fastest."""
    choices = []
    for name, lines in rows.sort_values("ratio", kind="stable").groupby("choice", sort=False):
        first = lines.iloc[0]
        last = lines.iloc[-1]
        choices.append(
            ChoiceSummary(
                name=str(name),
                fastest=int(lines["equal"].sum()),
                of=len(lines),
                mean=float(np.exp(np.log(lines["ratio"]).mean())),
                least=first["ratio"],
                most=last["ratio"],
                where=(first["question"], last["question"]),
                row=dict(last),
            )
        )
    return sorted(choices, key=lambda choice: choice.mean)


def blank(value: Any) -> bool:
    """Whether a value of a table is empty."""
    return value is None or value == "" or (isinstance(value, float) and isnan(value))


def doubtful(table: pd.DataFrame) -> NDArray[np.bool_]:
    """For each row, whether its error bound is too large to call it the best."""
    off = table.get("approximation_pct", pd.Series(np.nan, table.index))
    return (pd.to_numeric(off, errors="coerce") > DOUBTFUL).to_numpy(bool)


def sure_rows(good: pd.DataFrame) -> pd.DataFrame:
    """The rows that may be called the best; all rows if each has a large error bound."""
    sure = good[~doubtful(good)]
    return sure if len(sure) else good


def trust(good: pd.DataFrame) -> list[str]:
    """Sentences on how far the times can be trusted, one for each way in which they were
    validated."""
    table = good.reindex(columns=[*good.columns, *{*_OF_TRUST} - {*good.columns}])
    rated = table[table["time_low_us"].notna()]
    ends = [rated[f"time_{end}_us"].div(rated["time_us"]).median() - 1 for end in ("low", "high")]
    near = table[~table["approximation"].map(blank)]
    kinds = near["approximation"].astype(str)
    for counts, words in ((r"\d+ of \d+ (\w+)", r"fewer \1"), (r"\d+", "some")):
        kinds = kinds.str.replace(counts, words, regex=True)
    off = pd.to_numeric(near["approximation_pct"], errors="coerce").groupby(kinds, sort=False)
    measured = table[table["measured_time_us"].notna()]["error_pct"]
    text = _rendered(
        "trust.txt",
        validated=table["validated"].value_counts().items(),
        spans=[len(rated), *ends] if len(rated) else (),
        errors=pd.to_numeric(measured, errors="coerce").dropna().abs(),
        approximated=[(kind, len(of_kind), of_kind.max()) for kind, of_kind in off],
    )
    return text.splitlines()


def left_out(table: pd.DataFrame, rows: pd.DataFrame, manifest: Mapping[str, Any]) -> list[str]:
    """Sentences on the rows that the answer leaves out, and why."""
    points = manifest.get("points", [])
    apart = rows[~rows["cell"].isin(rows[rows["shown"]]["cell"])] if len(rows) else rows
    names = apart["question"].str.cat(apart["choice"], ", ").str.strip(", ") if len(apart) else ()
    is_doubtful = doubtful(table)
    unsure_count = int(is_doubtful.sum()) if (~is_doubtful).any() else 0
    text = _rendered(
        "left.txt",
        asked=sum(len(point.get("sizes", ())) for point in points),
        there=int((table["status"] != "invalid").sum()),
        shard=manifest.get("shard"),
        unsure=unsure_count,
        doubt=DOUBTFUL,
        invalid=[point["error"] for point in points if "error" in point],
        points=len(points),
        failed=table[~table["status"].isin(["", "ok", "invalid"])],
        apart=[*dict.fromkeys(names)],
    )
    return [line for line in text.splitlines() if line]


@dataclass(frozen=True)
class Summary:
    """The answer of a report.

    It has a headline, all choices under equal conditions and compared with the base line, and for
    each condition its rows, the fastest first.
    """

    question: SweepQuestion
    rows: pd.DataFrame
    left_out: Sequence[str]
    failures: Sequence[str]
    validated: Sequence[str]
    sign: str = ""  # `~` before times if all of them have a large error bound
    headline: str = ""
    choices: Sequence[ChoiceSummary] = ()
    base: Sequence[ChoiceSummary] = ()
    base_line: Record = field(default_factory=dict)
    compares_parts: bool = False  # the rows compare failing parts with the healthy cluster
    answers: Sequence[tuple[str, Sequence[Record]]] = ()

    @property
    def at(self) -> str:
        """The size that is shown, in words; empty if there are several or none."""
        sizes = {int(rows[0]["size"]) for _, rows in self.answers}
        return f" at {format_size(min(sizes))}" if len(sizes) == 1 and min(sizes) else ""


def pages() -> Environment:
    """The environment of the templates of reports, with the functions that these use."""
    loader = PackageLoader("netsim.report", "page")
    environment = Environment(loader=loader, autoescape=select_autoescape())
    environment.filters.update(longer=longer, time=time_text, bytes=format_size, dollars=dollars)
    environment.tests["blank"] = blank
    return environment


def _rendered(template: str, **values: Any) -> str:
    """The text of a template with values."""
    return pages().get_template(template).render(**values)


def summary_of(table: pd.DataFrame, good: pd.DataFrame, manifest: Mapping[str, Any]) -> Summary:
    """The summary of a table of results; `good` are its rows without an error."""
    question = question_of(good, manifest)
    rows = compared(over_seeds(sure_rows(good)), question) if len(good) else good
    failed = table[~table["status"].isin(["", "ok"])]["error"].astype(str)
    failures = [*dict.fromkeys(failed)][:_LISTED]
    summary = Summary(
        question=question,
        rows=rows,
        left_out=left_out(table, rows, manifest),
        failures=failures,
        validated=trust(good),
        sign="~" if len(good) and doubtful(good).all() else "",
    )
    more = dict[str, Any]()
    if len(rows):
        shown = rows[rows["shown"]].sort_values("ratio", kind="stable")
        base = against(shown, question) if question.base else shown[:0].assign(is_base=False)
        lines = base[base["is_base"].astype(bool)]
        groups = shown.groupby("question", sort=False)
        answers = {str(name): question_rows.to_dict("records") for name, question_rows in groups}
        ordered = [(name, answers[name]) for name in dict.fromkeys(rows["question"])]
        summary = replace(
            summary,
            choices=summed(shown),
            base=summed(base.drop(lines.index)),
            answers=ordered,
            base_line=dict(lines.iloc[0]) if len(lines) else {},
        )
        more = _headline_values(summary, shown)
    text = _rendered("answer.txt", sum=summary, **more)
    if compares_parts(question, manifest) and len(rows):
        texts = parts.sentences(_part_costs(table, rows, question.choices[0]), summary.at)
        text = ". ".join(line[:1].upper() + line[1:] for line in texts) + "."
        summary = replace(summary, compares_parts=True, choices=_healthy_first(summary))
    return replace(summary, headline=" ".join(text.split()))


def compares_parts(question: SweepQuestion, manifest: Mapping[str, Any]) -> bool:
    """Return whether the only axis of a sweep with several values is the part that fails.

    Its values cannot be recommended, because nobody chooses which part fails.
    """
    part_axes = {AXIS + axis for axis in manifest.get("part_axes", ())}
    return len(question.choices) == 1 and set(question.choices) <= part_axes


def _healthy_first(summary: Summary) -> Sequence[ChoiceSummary]:
    """The choices with the healthy cluster first."""
    return sorted(summary.choices, key=lambda choice: choice.name != HEALTHY)


PLACE = re.compile(r"^\S*:\d+:\d+: [\w.]+: ")  # the place of an error in a file


def _part_costs(table: pd.DataFrame, rows: pd.DataFrame, axis: str) -> parts.PartCosts:
    """The time that each failing part costs at the size that is shown, and the parts that cannot
    be lost."""
    shown = rows[rows["shown"]]
    times = [
        parts.PartTime(str(part), (str(question),), float(time))
        for part, question, time in zip(shown[axis], shown["question"], shown["time"], strict=True)
    ]
    failed = table[~table["status"].isin(["", "ok"])]
    lost = {
        str(part): PLACE.sub("", parts.first_line(str(error)))
        for part, error in zip(failed[axis], failed["error"], strict=True)
        if part != HEALTHY
    }
    return parts.part_costs(times, lost)


def _headline_values(summary: Summary, shown: pd.DataFrame) -> dict[str, Any]:
    """The values of the headline's template that are not in the summary.

    These are the fastest row, its bound, and the choices that may be as fast; if there is one
    condition, also which choice is fastest in which range of sizes."""
    best = dict(shown.iloc[0])
    fastest = shown.groupby("question").head(1)
    kinds = fastest["bound_by"].astype(str).str.replace(r" \S*\d+ %$", "", regex=True)
    has_one_question = len(summary.answers) == 1
    rows_by_size = {
        size: of_size.sort_values("ratio")
        for size, of_size in summary.rows.groupby("size")
        if has_one_question and of_size["choice"].nunique() > 1
    }
    equal_choices = {
        size: of_size[of_size["equal"]]["choice"].tolist() for size, of_size in rows_by_size.items()
    }

    def winner(size: Any) -> Any:
        choices = equal_choices[size]
        return best["choice"] if best["choice"] in choices else choices[0]

    rivals = [
        choice
        for choice in summary.choices[1:]
        if has_one_question and choice.fastest and choice.mean > 1 + EQUAL
    ]
    return {
        "best": best,
        "bounds": Counter(kinds).most_common(1)[0],
        "sizes": [*rows_by_size],
        "apart": [size for size, of_size in rows_by_size.items() if not of_size["equal"].all()],
        "spells": [(name, [*sizes]) for name, sizes in groupby(equal_choices, winner)],
        "sure": rivals,
    }


def dollars(amount: float) -> str:
    """A sum of money in US dollars with a short unit: `$9.43 M`."""
    for unit, factor in ((" bn", 1e9), (" M", 1e6), (" k", 1e3)):
        if amount >= factor:
            return f"${amount / factor:.3g}{unit}"
    return f"${amount:.0f}"
