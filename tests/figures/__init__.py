"""Figures that a version of the model gives, so that none moves unseen.

    python -m tests.figures                    # which figures are others than those written down
    python -m tests.figures --only nccl-h100   # of some questions
    python -m tests.figures --write            # write them down anew

`tests/data/figures.yaml` has questions (scenarios, small ones of every kind), `figures.csv` beside
it what they were answered. The model's version is part of the ids of cells and of the keys of
caches, so the same version must mean the same figures: whoever moves one raises `MODEL_VERSION`
(unless it was raised since the last release), writes the file anew and says in the commit why they
moved. They say nothing of what is right: laws, closed forms and measured runs do.
"""

import argparse
import csv
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

import netsim
from netsim.base.startup import MODEL_VERSION

DATA = Path(__file__).parents[1] / "data"
QUESTIONS, FIGURES = DATA / "figures.yaml", DATA / "figures.csv"
NAMES = ("algorithm", "protocol", "channels", "bound_by", "fullest_link")
NUMBERS = (
    "time_us",
    "inplace_time_us",
    "limit_us",
    "best_known_us",
    "p5_us",
    "p50_us",
    "p99_us",
    "step_time_us",
    "fullest_over_mean",
)
CLOSE = 1e-7  # relative; machines round differently
Figures = dict[tuple[str, str, str], str]


def questions() -> dict[str, Any]:
    """The scenarios by name."""
    loaded = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    return {name: asked for name, asked in loaded.items() if not name.startswith("_")}


def answered(name: str, asked: Mapping[str, Any]) -> Figures:
    """The figures of a question, by question, case and name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.yaml"
        path.write_text(yaml.safe_dump(dict(asked), sort_keys=False), encoding="utf-8")
        rows = netsim.run(str(path), engine="compiled")  # what it says is held against SimPy's
    found: Figures = {}
    for row in rows:
        axes = [f"{k}={v}" for k, v in row.axes.items()]
        case = " ".join([*axes, str(row.size_bytes)] if row.size_bytes is not None else axes)
        found |= {(name, case, key): text for key, text in _values(row)}
    return found


def _values(row: netsim.Row) -> Iterator[tuple[str, str]]:
    for key in NAMES:
        if getattr(row, key) not in (None, ""):
            yield key, str(getattr(row, key))
    numbers = {key: getattr(row, key) for key in NUMBERS} | dict(row.details)
    for key, value in numbers.items():
        if isinstance(value, int | float):
            yield key, f"{value:.12g}"


def written() -> Figures:
    """The figures as they were written down: a line a case, a column a figure."""
    with FIGURES.open(encoding="utf-8", newline="") as lines:
        next(lines)
        return {
            (line["question"], line["case"], figure): value
            for line in csv.DictReader(lines)
            for figure, value in line.items()
            if value and figure not in ("question", "case")
        }


def version() -> str:
    """The version of the model that they were written down with."""
    return FIGURES.read_text(encoding="utf-8").split("\n", 1)[0].rpartition(" ")[2]


def moved(before: Figures, now: Figures) -> list[str]:
    """A line for every figure that is another."""
    lines = []
    for key in sorted(before.keys() | now.keys()):
        a, b = before.get(key, "nothing"), now.get(key, "nothing")
        if a != b and not _close(a, b):
            lines.append(f"{': '.join(part for part in key if part)}: {a} -> {b}")
    return lines


def _close(a: str, b: str) -> bool:
    try:
        return math.isclose(float(a), float(b), rel_tol=CLOSE, abs_tol=1e-12)
    except ValueError:
        return False


def write(found: Figures) -> None:
    """Write figures down."""
    cases: dict[tuple[str, str], dict[str, str]] = {}
    for (question, case, figure), value in found.items():
        cases.setdefault((question, case), {})[figure] = value
    columns = dict.fromkeys(figure for _, _, figure in found)
    with FIGURES.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# python -m tests.figures --write, model {MODEL_VERSION}\n")
        lines = csv.DictWriter(file, ("question", "case", *columns), lineterminator="\n")
        lines.writeheader()
        lines.writerows({"question": q, "case": c} | cases[q, c] for q, c in sorted(cases))


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="QUESTION")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    every = questions()
    asked = {n: q for n, q in every.items() if not given.only or n in given.only}
    now: Figures = {}
    for name, question in asked.items():
        now |= answered(name, question)
        print(f"{name}: {sum(key[0] == name for key in now)} figures", file=sys.stderr)
    before = written() if FIGURES.exists() else {}
    lines = moved({k: v for k, v in before.items() if k[0] in asked}, now)
    print("\n".join(lines) or "no figure moved")
    if given.write:
        kept = {k: v for k, v in before.items() if k[0] in every and k[0] not in asked}
        write(kept | now)
    return int(bool(lines) and not given.write)
