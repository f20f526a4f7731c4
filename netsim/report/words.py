"""What a report says: which choice is fastest under equal conditions, how sure that is, and what is
left out. The sentences of the answer stand in `page/answer.txt`."""

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

_LISTED = 10  # rows of a table of the answer
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
    """How much longer a time is than another, in words."""
    if abs(ratio - 1) <= EQUAL:
        return "as long"
    if ratio < 1:
        return f"{1 - ratio:.0%} less"
    return f"{ratio - 1:.0%} longer" if ratio < 1.995 else f"{ratio:.3g} times as long"


@dataclass(frozen=True)
class Choice:
    """One choice over all conditions.

    It has the number of conditions under which it is the fastest, or not clearly slower, and the
    number of all; its time relative to the fastest as geometric mean, least and most, and the
    conditions of these; and its row where that is most."""

    name: str
    fastest: int
    of: int
    mean: float
    least: float
    most: float
    where: tuple[str, str]
    row: Record


def summed(rows: pd.DataFrame) -> list[Choice]:
    """All choices, those that take least on average first."""
    choices = []
    for name, lines in rows.sort_values("ratio", kind="stable").groupby("choice", sort=False):
        first, last = lines.iloc[0], lines.iloc[-1]
        mean = float(np.exp(np.log(lines["ratio"]).mean()))
        where = first["question"], last["question"]
        choices.append(
            Choice(
                str(name),
                int(lines["equal"].sum()),
                len(lines),
                mean,
                first["ratio"],
                last["ratio"],
                where,
                dict(last),
            )
        )
    return sorted(choices, key=lambda one: one.mean)


def blank(value: Any) -> bool:
    """Whether a table has no value."""
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
    """How far the figures can be trusted, a sentence for each way that they were validated."""
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
        approximated=[(kind, len(one), one.max()) for kind, one in off],
    )
    return text.splitlines()


def left_out(table: pd.DataFrame, rows: pd.DataFrame, manifest: Mapping[str, Any]) -> list[str]:
    """What the answer does not speak of, and why."""
    points = manifest.get("points", [])
    apart = rows[~rows["cell"].isin(rows[rows["shown"]]["cell"])] if len(rows) else rows
    names = apart["question"].str.cat(apart["choice"], ", ").str.strip(", ") if len(apart) else ()
    text = _rendered(
        "left.txt",
        asked=sum(len(point.get("sizes", ())) for point in points),
        there=int((table["status"] != "invalid").sum()),
        shard=manifest.get("shard"),
        unsure=(off := doubtful(table)).sum() * bool((~off).any()),
        doubt=DOUBTFUL,
        invalid=[point["error"] for point in points if "error" in point],
        points=len(points),
        failed=table[~table["status"].isin(["", "ok", "invalid"])],
        apart=[*dict.fromkeys(names)],
    )
    return [line for line in text.splitlines() if line]


@dataclass(frozen=True)
class Summary:
    """The answer: a headline, all choices under equal conditions and against the base line, and
    under each condition its rows, the fastest first."""

    asked: SweepQuestion
    rows: pd.DataFrame
    left_out: Sequence[str]
    failures: Sequence[str]
    validated: Sequence[str]
    sign: str = ""  # `~` before times if all of them have a large error bound
    headline: str = ""
    choices: Sequence[Choice] = ()
    base: Sequence[Choice] = ()
    base_line: Record = field(default_factory=dict)
    compares_parts: bool = False  # with the healthy cluster, which is no choice
    answers: Sequence[tuple[str, Sequence[Record]]] = ()

    @property
    def at(self) -> str:
        """The size that is shown, in words."""
        sizes = {int(rows[0]["size"]) for _, rows in self.answers}
        return f" at {format_size(min(sizes))}" if len(sizes) == 1 and min(sizes) else ""


def pages() -> Environment:
    """The templates of reports, and what words they may ask for."""
    loader = PackageLoader("netsim.report", "page")
    environment = Environment(loader=loader, autoescape=select_autoescape())
    environment.filters.update(longer=longer, time=time_text, bytes=format_size, dollars=dollars)
    environment.tests["blank"] = blank
    return environment


def _rendered(template: str, **told: Any) -> str:
    return pages().get_template(template).render(**told)


def summary_of(table: pd.DataFrame, good: pd.DataFrame, manifest: Mapping[str, Any]) -> Summary:
    """Sum up a table of results."""
    question = question_of(good, manifest)
    rows = compared(over_seeds(sure_rows(good)), question) if len(good) else good
    failed = table[~table["status"].isin(["", "ok"])]["error"].astype(str)
    failures = [*dict.fromkeys(failed)][:_LISTED]
    summary = Summary(
        question,
        rows,
        left_out(table, rows, manifest),
        failures,
        trust(good),
        sign="~" if len(good) and doubtful(good).all() else "",
    )
    more = dict[str, Any]()
    if len(rows):
        shown = rows[rows["shown"]].sort_values("ratio", kind="stable")
        base = against(shown, question) if question.base else shown[:0].assign(is_base=False)
        lines = base[base["is_base"].astype(bool)]
        groups = shown.groupby("question", sort=False)
        answers = {str(name): mine.to_dict("records") for name, mine in groups}
        ordered = [(name, answers[name]) for name in dict.fromkeys(rows["question"])]
        summary = replace(
            summary,
            choices=summed(shown),
            base=summed(base.drop(lines.index)),
            answers=ordered,
            base_line=dict(lines.iloc[0]) if len(lines) else {},
        )
        more = _told(summary, shown)
    text = _rendered("answer.txt", sum=summary, **more)
    if compares_parts(question, manifest) and len(rows):
        texts = parts.sentences(_part_costs(table, rows, question.choices[0]), summary.at)
        text = ". ".join(line[:1].upper() + line[1:] for line in texts) + "."
        summary = replace(summary, compares_parts=True, choices=_healthy_first(summary))
    return replace(summary, headline=" ".join(text.split()))


def compares_parts(question: SweepQuestion, manifest: Mapping[str, Any]) -> bool:
    """Whether the only choice of a sweep is which part is at fault, which nobody chooses."""
    part_axes = {AXIS + axis for axis in manifest.get("part_axes", ())}
    return len(question.choices) == 1 and set(question.choices) <= part_axes


def _healthy_first(summary: Summary) -> Sequence[Choice]:
    """The choices with the healthy cluster first, as it is what the page is about."""
    return sorted(summary.choices, key=lambda one: one.name != HEALTHY)


PLACE = re.compile(r"^\S*:\d+:\d+: [\w.]+: ")  # of a mistake in a file, which a sentence leaves out


def _part_costs(table: pd.DataFrame, rows: pd.DataFrame, axis: str) -> parts.PartCosts:
    """What the parts of a table cost at the size that is shown, and which cannot be lost."""
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


def _told(summary: Summary, shown: pd.DataFrame) -> dict[str, Any]:
    """What the headline needs beside the summary.

    That is the fastest row, the rows that are not clearly slower, and what bounds the fastest; for
    a single question also which choice is fastest over which range of sizes."""
    best, fastest = dict(shown.iloc[0]), shown.groupby("question").head(1)
    kinds = fastest["bound_by"].astype(str).str.replace(r" \S*\d+ %$", "", regex=True)
    every = {
        size: mine.sort_values("ratio")
        for size, mine in summary.rows.groupby("size")
        if len(summary.answers) == 1 and mine["choice"].nunique() > 1
    }
    near = {size: mine[mine["equal"]]["choice"].tolist() for size, mine in every.items()}
    winners = groupby(
        near, lambda size: best["choice"] if best["choice"] in near[size] else near[size][0]
    )
    return {
        "best": best,
        "bounds": Counter(kinds).most_common(1)[0],
        "sizes": [*every],
        "apart": [size for size, mine in every.items() if not mine["equal"].all()],
        "spells": [(name, [*sizes]) for name, sizes in winners],
        "sure": [
            one
            for one in summary.choices[1:]
            if len(summary.answers) == 1 and one.fastest and one.mean > 1 + EQUAL
        ],
    }


def dollars(amount: float) -> str:
    """A sum of money, short: `$9.43 M`."""
    for unit, factor in ((" bn", 1e9), (" M", 1e6), (" k", 1e3)):
        if amount >= factor:
            return f"${amount / factor:.3g}{unit}"
    return f"${amount:.0f}"
