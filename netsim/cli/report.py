"""`netsim report`: writes a folder of results as one HTML file."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from netsim.base.errors import InputError, LostError, NetsimError
from netsim.base.files import write_text
from netsim.base.startup import at, on
from netsim.base.units import format_size
from netsim.base.values import dataclass
from netsim.cli.output import tell
from netsim.cli.workers import workers
from netsim.collectives.table import UntrustedCodeError, without_python_files
from netsim.extent.shown import row_count
from netsim.plots.results import compared, question_of
from netsim.plots.sizes import over_seeds, read_all
from netsim.plots.style import read_values
from netsim.plots.topology.draw import plot_topology
from netsim.report.report import PICTURES, ReportExtra, write_report
from netsim.report.suspects import write_suspects_report
from netsim.report.words import compares_parts, sure_rows
from netsim.results.folder import (
    BREAKDOWN,
    COSTS,
    PARTIAL,
    rows_in_order,
    rows_of,
)
from netsim.results.row import csv_text
from netsim.results.workspace import (
    JOURNAL,
    MANIFEST,
    PARTIAL_FOLDER,
    RESULTS,
    adding_to,
    place_of_results,
    read_manifest,
)
from netsim.scenario.cells import Cell, expand_all, with_settings
from netsim.tasks.answer import AnyResolved, resolve_any
from netsim.tasks.explained import explained_run
from netsim.tasks.resolve import ResolvedCell
from netsim.topology.cluster import build_cluster
from netsim.trace.tables import write_links
from netsim.training import run
from netsim.training.explain import explained_step
from netsim.training.resolve import ResolvedStep
from netsim.yamlio.read import parse_source

MOST_ROWS = 1_000_000  # rows simulated again to confirm sensitivities: a report should be quick
LARGEST = 200_000  # rows of an operation that is explained
COLUMNS = ("cell", "cost_usd", "power_w")  # of costs.csv, of which the page tells
LARGEST_STEP = 2_000_000  # tasks of a training step on all GPUs, the most that is explained


def report_folder(
    folder: Path,
    *,
    explain: bool = True,
    jobs: int | None = None,
    memory: str | None = None,
    trust: bool = False,
) -> None:
    """Write report.html into a folder of results: the answer, plots, explanations and all cells.

    Args:
        explain: simulate some cells again to explain them
        jobs: worker processes; None for none
        trust: allow that Python code which the results name is run
    """
    place = place_of_results(folder)
    manifest = read_manifest(place)
    verb = manifest.get("verb", "run")
    if verb == "localize":
        with adding_to(folder) as target:
            path = write_suspects_report(place, target)
        tell(f"wrote {place / path.name}")
        return
    if verb not in ("run", "merge", "optimize"):
        raise InputError(f"{folder}: holds the results of netsim {verb}, which have no report")
    if explain and not trust:
        _refuse_foreign_code(folder, manifest)
    if not explain:
        for flag, value in (("--jobs", jobs), ("--memory", memory), ("--trust", trust or None)):
            if value is not None:
                tell(f"{flag} has no effect with --no-explain: nothing is simulated")
    if place == folder and (folder / PARTIAL_FOLDER / MANIFEST).exists():
        tell(f"{folder}: a later run did not end and is not reported (--resume continues it)")
    with workers(jobs, explained, memory) as helpers, adding_to(folder) as target:
        path, lost = make_report(place, target, explain=explain, helpers=helpers)
    tell(f"wrote {place / path.name}")
    if lost:
        raise LostError("\n".join(f"not explained: {one}" for one in lost))


def write_report_of_run(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write the report of a run into its folder; return the file.

    `cells` and `engine` are unused: all writers of outputs have the same parameters.
    """
    return [str(make_report(folder, folder)[0])]


def _refuse_foreign_code(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise an InputError if an explanation would run Python code that a results folder names.

    That code may come from a stranger who made the folder, and may do anything.
    """
    if "text" not in manifest:
        return
    try:
        with without_python_files():
            _cells(manifest)
    except UntrustedCodeError as error:
        raise InputError(
            f"{folder}: {error.message}: {MANIFEST} names it, and the folder may be a stranger's",
            hint="--trust runs it to explain the results; --no-explain reports without it",
        ) from None
    except NetsimError:
        return  # its machine files are gone, which the explanation tells


def make_report(
    folder: Path, target: Path, *, explain: bool = True, helpers: Any = None
) -> tuple[Path, list[LostError]]:
    """Write the report of the results in `folder` to the folder `target`.

    Returns the HTML file, and the errors of workers that died while they explained a cell.
    """
    manifest = read_manifest(folder)
    if "points" not in manifest:
        raise InputError(f"{folder}: was written by an older netsim", hint="run it again")
    results = folder / RESULTS
    nothing = InputError(f"{folder}: no row was finished", hint="run it again")
    if not results.is_file():  # of a run that was killed
        if not (folder / JOURNAL).is_file():
            raise InputError(f"{folder}: holds no {RESULTS}", hint="run it again, or with --resume")
        done = rows_of(folder, tell).finished
        if not done:
            raise nothing
        text = csv_text(rows_in_order(done, manifest), manifest["axes"])
        results = write_text(target / PARTIAL, text)
    table = read_all([results])
    if table.empty:
        raise nothing
    costs = folder / COSTS
    lost: list[LostError] = []
    extra = _explained(target, manifest, table, helpers, lost) if explain else ReportExtra({})
    on(str(folder), "the page is written")
    steps = folder / BREAKDOWN
    if steps.is_file() and (breakdown := read_values(steps, (), BREAKDOWN)).get("cell") is not None:
        extra = replace(extra, steps=breakdown)
    if costs.is_file():
        extra = replace(extra, costs=read_values(costs, COLUMNS, "the columns of costs.csv"))
    return write_report(folder, target, manifest, table, extra), lost


def _explained(
    folder: Path,
    manifest: Mapping[str, Any],
    table: pd.DataFrame,
    helpers: Any,
    lost: list[LostError],
) -> ReportExtra:
    """Explain the base line and the best cell, and draw the topology of the best.

    `table` has the rows of the results; errors of workers that died are appended to `lost`.
    """
    good = table[table["status"].isin(["", "ok"])]
    if good.empty:
        return ReportExtra({})
    wanted = _rows_to_explain(manifest, good)
    explanations: dict[str, Any] = {}
    topology = None
    try:
        cells = {label: _cell(manifest, str(row["cell"])) for label, row in wanted.items()}
        both = {label: resolve_any(cell) for label, cell in cells.items()}
        explained_cells = {label: cell for label, cell in both.items() if _is_explained(cell)}
        sized = [cell for cell in explained_cells.values() if isinstance(cell, ResolvedCell)]
        size = _explained_size(sized, _common_sizes(good, wanted)) if sized else 0
        questions = [
            (
                Wanted(label, manifest, cells[label].id, size, folder),
                explanation.memory_needed(size),
            )
            for label, explanation in explained_cells.items()
        ]
        for label, explanation in _answers(questions, helpers):
            if isinstance(explanation, LostError):
                lost.append(explanation)
                continue
            explanations[label] = explanation
            topology = folder / PICTURES / "topology.svg"
    except NetsimError as error:  # the files of its machines may have gone
        tell(f"not explained: {error}")
    return ReportExtra(
        explanations, topology if topology is not None and topology.exists() else None
    )


@dataclass(frozen=True)
class Wanted:
    """A cell to explain at one size.

    `label` is "best", "base line" or similar, `cell` the id, `size` in bytes, `folder` the place of
    pictures.
    """

    label: str
    manifest: Mapping[str, Any]
    cell: str
    size: int
    folder: Path


def explained(wanted: Wanted) -> Iterator[dict[str, Any]]:
    """Yield the explanation of a cell as plain values; a worker process calls this."""
    resolved = resolve_any(_cell(wanted.manifest, wanted.cell))
    if isinstance(resolved, ResolvedStep):
        yield _explained_training_step(resolved, wanted.folder, wanted.label)
        return
    assert isinstance(resolved, ResolvedCell)  # others are not asked for
    yield _explained_collective(resolved, wanted.size, wanted.folder, wanted.label)


def _answers(questions: Sequence[tuple[Wanted, int]], helpers: Any) -> Iterator[tuple[str, Any]]:
    """Yield the label and explanation of each cell, or the error of the worker that died.

    `questions` has each cell with the bytes of memory that it needs; `helpers` None explains in
    this process.
    """
    if helpers is None:
        yield from ((one.label, found) for one, _ in questions for found in explained(one))
        return
    jobs = ((one, f"the {one.label}", memory, 1) for one, memory in questions)
    with closing(helpers.results(jobs)) as results:
        yield from ((one.label, found) for one, found in results)


COSTLIEST = "costliest part"  # the cell of a sweep over parts that takes longest
DRAWN = ("best", "chosen", COSTLIEST)  # cells whose timeline a page has
OF_TOPOLOGY = ("best", COSTLIEST)  # cells whose topology a page has


def _rows_to_explain(manifest: Mapping[str, Any], good: pd.DataFrame) -> dict[str, Any]:
    """The rows to explain, by label: the best cell and one to compare it with.

    The other cell is the one that `--cell` chose, the base line, or the slowest. Both have the same
    values on the condition axes: those of the chosen cell, or those for which choices differ most.
    In a sweep over parts, the cell with the costliest part at fault is compared with the healthy
    cell.
    """
    question = question_of(good, manifest)
    rows = compared(over_seeds(sure_rows(good)), question)
    rows = rows[rows["shown"]]
    chosen = rows[rows["cell"].isin(manifest.get("chosen", []))]
    chosen_rows = chosen if len(chosen) else rows.iloc[[int(rows["ratio"].argmax())]]
    rows = rows[rows["question"] == chosen_rows["question"].iloc[0]]
    order = rows.sort_values("time", kind="stable")
    best = order.iloc[0]
    second = order.iloc[-1]
    label = "slowest"
    if question.base:
        base = rows[(rows[[*question.base]].astype(str) == [*question.base.values()]).all(axis=1)]
        second = base.iloc[0] if len(base) else best
        label = "base line"
    if compares_parts(question, manifest) and not len(chosen):
        costliest = order.iloc[-1]
        if costliest["cell"] != second["cell"]:
            return {COSTLIEST: costliest, "healthy": second}
    if len(chosen):
        second = chosen.iloc[0]
        label = "chosen"
    return {"best": best} if second["cell"] == best["cell"] else {label: second, "best": best}


def _common_sizes(good: pd.DataFrame, wanted: Mapping[str, Any]) -> list[int]:
    """The sizes in bytes that all rows in `wanted` have in common, up to the largest
    that is drawn.
    """
    kinds = [
        set(good[good["cell"] == row["cell"]]["size_asked"].dropna().astype(int))
        for row in wanted.values()
    ]
    largest = max(row["size"] for row in wanted.values())
    return sorted(size for size in set.intersection(*kinds) if size <= largest)


def _explained_size(resolved: Sequence[ResolvedCell], sizes: Sequence[int]) -> int:
    """The largest of `sizes` at which the schedules of all cells have at most LARGEST rows."""
    for size in reversed(sizes):  # most are too large, as the first cell shows
        at(format_size(size))
        if all(row_count(cell.task(size), cell.budget) <= LARGEST for cell in resolved):
            return size
    raise InputError(
        f"every size has more than {LARGEST:,} rows, the most that a report explains",
        hint="netsim explain takes the scenario with --set for one cell, however large",
    )


def _explained_collective(
    resolved: ResolvedCell, size: int, folder: Path, label: str
) -> dict[str, Any]:
    """Explain one operation of a collective; for the best cell, also draw its link loads on the
    topology.
    """
    most = MOST_ROWS if label in DRAWN else 0
    values, program, timeline = explained_run(resolved, size, most_rows=most)
    if label in OF_TOPOLOGY:
        config = resolved.cell.scenario.cluster
        drawn = resolved.topology if config.graph is not None else build_cluster(config)
        place = folder / PICTURES
        place.mkdir(exist_ok=True)
        write_links(place / "links.csv", program, timeline)
        plot_topology(
            resolved.topology.name, drawn, place / "topology", result=place, run=values["title"]
        )
    return values


def _is_explained(resolved: AnyResolved) -> bool:
    """Whether a report explains a cell: a collective, or a training step that is not simulated as
    messages.

    Raises an InputError for a step with more than LARGEST_STEP tasks.
    """
    if isinstance(resolved, ResolvedCell):
        return True
    if not isinstance(resolved, ResolvedStep) or resolved.lowered is not None:
        return False
    if resolved.large and not resolved.why_in_full:
        return True  # one rank of each stage is simulated
    tasks = len(resolved.tape().entries) * resolved.setting.grid.size
    if tasks > LARGEST_STEP:
        raise InputError(
            f"a step of {tasks:,} tasks, the most that a report explains is {LARGEST_STEP:,}",
            hint="netsim explain takes the scenario, however large",
        )
    return True


def _explained_training_step(resolved: ResolvedStep, folder: Path, label: str) -> dict[str, Any]:
    """Explain a training step; for the best cell, also draw its link loads on the topology."""
    step = run.simulate_step(resolved)
    most = MOST_ROWS if label in DRAWN else 0
    values = explained_step(step, most_rows=most)
    if label in OF_TOPOLOGY and step.engine and resolved.cluster.hosts:
        place = folder / PICTURES
        place.mkdir(exist_ok=True)
        write_links(place / "links.csv", step.program, step.spans.timeline)
        plot_topology(
            resolved.topology.name,
            resolved.cluster,
            place / "topology",
            result=place,
            run=values["title"],
        )
    return values


def _cell(manifest: Mapping[str, Any], wanted: str) -> Cell:
    """The cell whose id is `wanted`, in the scenario of a manifest."""
    for cell in _cells(manifest):
        if cell.id == wanted:
            return cell
    raise InputError("its machine or topology files have changed since the run")


def _cells(manifest: Mapping[str, Any]) -> Sequence[Cell]:
    """All cells of the scenario whose text a manifest holds; runs the Python files of its
    algorithms.
    """
    source = parse_source(str(manifest["text"]), str(manifest["file"]))
    source = with_settings(source, manifest.get("settings", []))
    return expand_all(source).cells
