"""Golden texts of what is known before anything is simulated: how much of a task each method would
simulate, what textbook algorithms state of themselves, what ranks see of a transformer, and which
values of constants follow from measured runs."""

from collections.abc import Callable
from functools import cached_property, partial
from math import sin
from typing import Any

import numpy as np

from netsim.base.constants import TABLE, Constant
from netsim.base.errors import NetsimError
from netsim.base.files import preset_folder
from netsim.base.units import format_size
from netsim.collectives.sketch import TextbookSketch
from netsim.collectives.table import build, folds
from netsim.extent.budget import USUAL_BUDGET, Budget, budget_for
from netsim.extent.fit import rows_in_full, why_not_fit
from netsim.extent.forms import Form, form_of
from netsim.extent.result import MethodInput, Offer
from netsim.extent.solve import METHODS_OF_ONE_OPERATION
from netsim.measured.estimate import Estimate, estimate_of, looked_at, tried_values
from netsim.measured.index import read_index
from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from netsim.workloads.kernels import Shapes
from netsim.workloads.model import MODELS
from netsim.yamlio.read import parse_source
from tests.collectives.collective_cases import TABLE as ALGORITHMS
from tests.collectives.collective_cases import make
from tests.golden.layout import plain_value, significant
from tests.training.steps import setting

Writer = Callable[[], list[str]]


# **** How much of a task is simulated ****

CLUSTERS = {
    "one host": "machine: dgx-h100",
    "rails": "machine: dgx-h100, nodes: 24, fabric: {kind: rail-optimized}",
    "leaves": "machine: hgx-h200, nodes: 16, fabric: {kind: leaf-spine, oversubscription: 2, "
    "transport: roce, routing: ecmp}",
    "dragonfly": "machine: gh200-x4, nodes: 36, fabric: {kind: dragonfly}",
}
WORK = (
    "collective: all_reduce, algorithm: Ring",
    "collective: all_reduce, algorithm: Tree",
    "collective: alltoall",
    "collective: broadcast",
    "collective: all_gather, algorithm: ring",
    "collective: alltoall, algorithm: pairwise",
)
SIZES = (1 << 10, 3 << 20, 1 << 28)


def offers_of(form: Form, budget: Budget) -> list[str]:
    """Return the methods that would time a task, with what they would leave out."""
    offers = []
    for method in METHODS_OF_ONE_OPERATION:
        offer = method(MethodInput(form, budget))
        if isinstance(offer, Offer):
            rows = f" of {offer.rows} rows" if offer.rows else ""
            note = f" ({offer.note})" if offer.note else ""
            offers.append(f"{method.__name__}{rows}{note}")
    return offers


def form_text(form: Form, budget: Budget) -> str:
    """Return what is known of a task before it is simulated."""
    misfit = why_not_fit(form.task, budget)
    rows = rows_in_full(form.task)
    offers = ", ".join(offers_of(form, budget)) or "none"
    return f"{rows} rows in full; {misfit or 'fits'}; methods: {offers}"


def extents(cluster: str, *, exact: bool) -> list[str]:
    """Return how much of some tasks would be simulated on a cluster."""
    budget = budget_for(is_exact=True) if exact else USUAL_BUDGET
    answers = "exact answers" if exact else "the usual limits"
    lines = [
        f"How much would be simulated with {answers} on {{{cluster}}}.",
        "For each size: rows of the whole operation, whether the task fits into memory, and the",
        "methods that would time it, in the order in which they are tried.",
    ]
    for work in WORK:
        lines += ["", work]
        sizes = ", ".join(f"{size}B" for size in SIZES)
        text = f"cluster: {{{cluster}}}\nworkload: {{{work}, sizes: [{sizes}]}}\n"
        resolved = resolve(expand(parse_source(text, "extents.yaml"))[0])
        for size in SIZES:
            form = form_of(resolved.task(size), resolved.budget)
            lines.append(f"  {format_size(size)}: {form_text(form, budget)}")
    return lines


# **** What algorithms state before a row is written ****


def sketch_line(name: str, algorithm: str, ranks: int) -> str:
    """Return what an algorithm states of itself: rows of its ranks, and messages of equal size."""
    sketch = TextbookSketch()
    try:
        build(make(name, ranks, 12 * ranks, root=ranks // 2), algorithm, writer=sketch)
    except (NetsimError, ValueError) as error:
        return f"refused: {error}"
    rows = "none" if not len(sketch.rows) else " ".join(map(str, sketch.rows.tolist()))
    text = f"rows by lane {rows}"
    if sketch.step_count:
        text += f"; {sketch.step_count} messages of {sketch.step_bytes:g} B a lane"
    if sketch.refused:
        text += f"; not folded: {sketch.refused}"
    return text


def sketches() -> list[str]:
    """Return what textbook algorithms state of themselves, for 4 and 6 ranks."""
    lines = ["What textbook algorithms state before a row is written, 12 elements a rank."]
    for name, algorithm in ALGORITHMS:
        if folds(name, algorithm):
            lines += ["", f"{name} {algorithm}"]
            lines += [f"  {ranks} ranks: {sketch_line(name, algorithm, ranks)}" for ranks in (4, 6)]
    return lines


# **** What a rank sees of a transformer ****

LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"tp": 2, "sequence_parallel": True, "apart": True},
    {"cp": 2, "attention": "unfused"},
    {"tp": 4, "elementwise": "eager", "loss": "eager"},
    {"dtype": "fp8", "scaling": "tensor", "tp": 2},
)
OF_EXPERTS = ("copies", "dispatched", "expert_split", "experts", "routed")
SHAPED = ("llama3-8b", "mixtral-8x7b", "deepseek-v3")


def shapes(model: str) -> list[str]:
    """Return the products and messages of one micro-batch on one rank, by layout."""
    transformer = MODELS[model]
    lines = [f"What one rank sees of {model} in a micro-batch: products, features and bytes."]
    names = [
        name
        for name, value in vars(Shapes).items()
        if isinstance(value, property | cached_property) and not name.startswith("_")
    ]
    for layout in LAYOUTS:
        lines += ["", plain_value(layout) or "one rank"]
        try:
            of_rank = Shapes(transformer, setting(model=transformer, **layout))
        except (NetsimError, ValueError) as error:
            lines.append(f"  refused: {error}")
            continue
        for name in names:
            if not transformer.experts and name in OF_EXPERTS:
                continue
            value = getattr(of_rank, name)
            text = plain_value(value)
            if text:
                lines.append(f"  {name}: {text}")
    return lines


# **** Constants from measured runs ****


def made_up(constant: Constant, run: str) -> np.ndarray:
    """Return what a run might say of a constant: three points around the table's value, by the
    length of names, so that the text depends on estimators and not on simulations."""
    assert constant.fitted is not None
    waves = [0.3 * sin(len(run) + len(constant.id) + number) for number in range(3)]
    if "by_s" not in constant.fitted.estimator:
        return np.array([constant.value * (1 + wave) for wave in waves])
    distances = np.log(tried_values(constant) / constant.value)
    return np.array([0.2 * (distances - wave) for wave in waves])


def estimate_text(estimate: Estimate) -> str:
    """Return an estimate in words."""
    text = f"{significant(estimate.ratio)} times the table's, of {estimate.points} points"
    if np.isfinite(estimate.before):
        text += f", error {significant(estimate.before)} to {significant(estimate.after)}"
    return text + (", at the edge of what was tried" if estimate.at_edge else "")


def constants() -> list[str]:
    """Return every constant that was fitted: to how many runs, and its estimate from made-up
    points."""
    entries = read_index(preset_folder("scenarios") / "measured" / "index.yaml")
    lines = [
        "Constants that are fitted to measured runs, with their estimates from made-up points:",
        "three of each run, within 30 % of the table's value (or of equal times at such a value).",
        "",
    ]
    for constant in TABLE.values():
        if constant.fitted is None or not constant.value:
            continue
        estimator = constant.fitted.estimator.rpartition(":")[2]
        unit = "" if constant.unit == "1" else f" {constant.unit}"
        begin = f"{constant.id}: {significant(constant.value)}{unit}, {estimator}"
        if estimator == "by_steps":
            lines.append(f"{begin}, {len(constant.fitted.runs)} published steps")
            continue
        runs = [entry.id for entry in looked_at(constant, entries)]
        points = [made_up(constant, run) for run in runs]
        outcome = estimate_text(estimate_of(constant, points)) if points else "no runs"
        lines.append(f"{begin}, {len(runs)} runs: {outcome}")
    return lines


WRITERS: dict[str, Writer] = {
    **{
        f"estimates/extents-{name.replace(' ', '-')}": partial(extents, cluster, exact=False)
        for name, cluster in CLUSTERS.items()
    },
    "estimates/extents-rails-exact": partial(extents, CLUSTERS["rails"], exact=True),
    "estimates/sketches": sketches,
    **{f"estimates/shapes-{model}": partial(shapes, model) for model in SHAPED},
    "estimates/constants": constants,
}
