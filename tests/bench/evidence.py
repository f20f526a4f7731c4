"""What each constant gains: errors of the runs that it enters, with it and with it off.

    python -m tests.bench.evidence [ID…] [--ranks 32] [--jobs 2] [--of alltoall]

In sample, and each run without what its own system told. Without ids, all constants that were
fitted to runs of collectives. Lines of `docs/evidence.csv` that were computed before stay; what is
simulated is kept in `reports/accuracy-measured.jsonl`, so that it can be ended and started again.
Runs of which no size of a few takes another time are not simulated whole, nor those of more ranks,
nor with `--of` those of other collectives; cells are empty where no run is of a band. Runs with a
problem count where they are all that a constant was fitted to.
"""

import argparse
import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from netsim.base.constants import FILE as CONSTANTS
from netsim.base.constants import TABLE
from netsim.base.errors import InputError
from netsim.base.files import csv_of, write_text
from netsim.measured.accuracy import Accuracy, figures_off, leave_out, run_index
from netsim.measured.accuracy_records import open_records
from netsim.measured.compare import RunPart, answer, by_band, few
from netsim.measured.estimate import MOST, Without, switched_off
from netsim.measured.index import IndexEntry, read_index
from netsim.results.row import BANDS

INDEX, TOLD = Path("scenarios/measured/index.yaml"), Path("docs/evidence.csv")
WAYS = ("with", "without", "left_out_with", "left_out_without")
HEAD = (
    "id",
    "value",
    "unit",
    "origin",
    "fitted_to",
    "changed_runs",
    "ranks_up_to",
    *(f"{band} {way}" for band in BANDS for way in WAYS),
)


def errors(found: Accuracy) -> Iterator[dict[str, str]]:
    """The median errors by band, in sample and left out."""
    for points in (found.points, found.left_out):
        told = by_band([point for point in points if point.healthy] or points)
        yield {band: f"{told[band].median:.4f}" for band in BANDS if band in told}


def simulated(
    entries: Sequence[IndexEntry], corpus: Sequence[IndexEntry], jobs: int, off: Sequence[Without]
) -> Accuracy:
    with open_records(INDEX, resume=True, tell=lambda text: None) as records:
        found = run_index(entries, jobs, records=records, figures=figures_off(entries, off))
        return leave_out(found, entries, corpus, jobs, None, records, off)


USUAL: dict[tuple[str, tuple[int, int]], tuple[float, ...]] = {}  # times of a few sizes of each run


def felt(entry: IndexEntry, figures: Mapping[str, float], sizes: tuple[int, int]) -> bool:
    """Whether any of a few sizes of a run, of those that told it, takes another time with these
    figures."""
    told = [row for row in entry.rows() if sizes[0] <= row.size_bytes <= sizes[1]]

    def times(figures: Mapping[str, float]) -> tuple[float, ...]:
        points = answer(RunPart(entry, few(told or entry.rows(), MOST), figures)).points
        return tuple(point.simulated_us for point in points)

    asked = entry.id, sizes
    if asked not in USUAL:
        USUAL[asked] = times({})
    return times(figures) != USUAL[asked]


def ranks(entry: IndexEntry) -> int:
    counts = (entry.text("topology", key) for key in ("nodes", "gpus_per_node"))
    nodes, gpus = (int(text) if text.isdecimal() else 1 for text in counts)
    return nodes * gpus


def line(
    id: str, row: dict[str, str], corpus: Sequence[IndexEntry], asked: argparse.Namespace
) -> list[object]:
    """A line of the file; `row` is that of the table."""
    most, jobs, off = asked.ranks, asked.jobs, [switched_off(id)]
    fitted = TABLE[id].fitted
    assert fitted is not None
    some = [one for one in corpus if ranks(one) <= most]
    some = [one for one in some if one.collective in (asked.of or [one.collective])]
    changed = figures_off(some, off)
    some = [one for one in some if one.id in changed and (one.healthy or one.id in fitted.runs)]
    every = [one for one in some if felt(one, changed[one.id], fitted.sizes)]
    entries = [one for one in every if one.healthy] or every
    both = [simulated(entries, corpus, jobs, it) for it in ([], off)]
    told = [some for found in both for some in errors(found)]  # with, left out with, without, …
    cells = [told[place].get(band, "") for band in BANDS for place in (0, 2, 1, 3)]
    origin = row["given_by"] or "fitted"
    return [id, row["value"], row["unit"], origin, row["runs"], len(entries), most, *cells]


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("ids", nargs="*")
    given.add_argument("--ranks", type=int, default=32)
    given.add_argument("--jobs", type=int, default=2)
    given.add_argument("--of", nargs="*", help="collectives")
    asked = given.parse_args()
    corpus = read_index(INDEX)
    runs = {one.id for one in corpus}
    fitted = [one.id for one in TABLE.values() if one.fitted and runs & {*one.fitted.runs}]
    rows = {row["id"]: row for row in csv.DictReader(CONSTANTS.open(encoding="utf-8"))}
    known: dict[str, list[object]] = {}
    if TOLD.is_file():
        with TOLD.open(encoding="utf-8", newline="") as file:
            known = {one[0]: list(one) for one in list(csv.reader(file))[1:]}
    for id in asked.ids or fitted:
        try:
            known[id] = line(id, rows[id], corpus, asked)
        except InputError as error:
            print(f"{id}: {error}", flush=True)
            continue
        print(*known[id], flush=True)
        ordered = [known[one] for one in TABLE if one in known]
        write_text(TOLD, csv_of([HEAD, *ordered]))


if __name__ == "__main__":
    main()
