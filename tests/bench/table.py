"""The benchmark's table, growth exponents, and comparison with an earlier run."""

import math
from collections import defaultdict
from collections.abc import Sequence

from tests.bench.measure import Figures

COLUMNS = (
    "case",
    "ranks",
    "rows",
    "import_s",
    "build_s",
    "place_s",
    "run_s",
    "rows_per_s",
    "total_s",
    "peak_mb",
)
COMPARED = ("build_s", "place_s", "run_s", "peak_mb")


def line(figures: Figures) -> str:
    """One case."""
    return "  ".join(_cell(name, getattr(figures, name)) for name in COLUMNS)


def header() -> str:
    """The names of the columns."""
    return "  ".join(name.ljust(30) if name == "case" else name.rjust(10) for name in COLUMNS)


def _cell(name: str, value: object) -> str:
    if name == "case":
        return str(value).ljust(30)
    if name.endswith("_s") and name != "rows_per_s":
        return f"{value:10.3f}"
    return f"{value:10,.0f}"


def exponents(all_figures: Sequence[Figures]) -> list[str]:
    """How the time to place and to run grows with rows, for families with several sizes."""
    families: dict[str, list[Figures]] = defaultdict(list)
    for one in all_figures:
        families[one.case.replace(f"-{one.ranks}", "-*", 1)].append(one)
    return [
        f"{family}: place ~ rows^{_slope(members, 'place_s'):.2f}, "
        f"run ~ rows^{_slope(members, 'run_s'):.2f}"
        for family, members in families.items()
        if len({member.rows for member in members}) > 1
    ]


def _slope(members: Sequence[Figures], name: str) -> float:
    """Least squares in logarithms."""
    x = [math.log(member.rows) for member in members]
    y = [math.log(getattr(member, name)) for member in members]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - mean_x) ** 2 for a in x)


def comparison(now: Sequence[Figures], before: dict[str, dict[str, float]]) -> list[str]:
    """Ratios now ÷ before of the cases in both."""
    lines = []
    for one in now:
        if earlier := before.get(one.case):
            ratios = [f"{name} {getattr(one, name) / earlier[name]:.2f}" for name in COMPARED]
            lines.append(f"{one.case}: {', '.join(ratios)}")
    return lines
