"""Method for sends to all: their first rounds are simulated and extrapolated to all.

In round r of NCCL's all-to-all each rank sends to the rank at the r-th distance. Eight rounds are a
batch of a channel, and the order of distances goes through all of them early (0, 1, 3, 6, … modulo
a power of two). So the first rounds are a sample of all distances, and every further round adds
about as much.

How that is checked: four runs whose lengths are multiples of the rounds in which every channel has
a batch once, each longer than the one before, up to half of all rounds. What rounds add may differ
by half.

Error: all of that difference over the rounds that are left out, one batch of all channels more, and
the excess over their capacity of links that these rounds use more than others. Of 90 randomly drawn
clusters of 104 to 160 GPUs none exceeds it: the error is 1.7 % in the median, 18 % at most (`python
-m tests.bench.rounds`).

The first of these clusters, 39 nodes of 4 A100, where the threshold on rows is lowered:

    $ python -m tests.bench.rounds 1 rounds
      0  39 x a100-x4, 52822485 B: 20658.7 us, -1.0%, stated 11.3%
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np

from netsim.extent.budget import Budget
from netsim.extent.distance import INCREMENTS, extrapolate_distance, send_rounds
from netsim.extent.engine_runs import Bench
from netsim.extent.forms import Form, written_form
from netsim.extent.result import RANKS_MAY_DIFFER, MethodInput, Offer, OneOperation, Refusal, Solver
from netsim.schedule.partition import written_share

ROUNDS_TOLERANCE = 0.5
"""Largest relative difference of what rounds add: ranks at other distances take other times."""
ROWS_PER_SEND = 3.1
"""Rows of one message of all-to-all in a loop, the proxies' included."""
TOO_DIFFERENT = Refusal("what a few rounds add differs too much to extrapolate the others")


def rounds_of_sends(question: MethodInput) -> Offer | Refusal:
    """Offer to extrapolate a large all-to-all from its first rounds."""
    form = sends_to_all(question)
    if isinstance(form, Refusal):
        return form
    return Offer(lambda bench, solver: _from_first_rounds(bench, solver, form, question.budget))


def sends_to_all(question: MethodInput) -> Form | Refusal:
    """The form of an all-to-all by sends that can be extrapolated from a few rounds, or a
    refusal.
    """
    form = written_form(question.form, question.budget)
    budget = question.budget
    if budget.is_exact:
        return Refusal("extrapolating rounds of sends is not exact")
    if not question.form.may_fold:
        return RANKS_MAY_DIFFER
    if len(form.plans) != 1:
        return Refusal("only sends of a single communicator are extrapolated from a few rounds")
    plan = form.plans[0]
    sends = form.plans[0].transfers
    ranks = form.collective.ranks
    if sends is None or form.collective.name != "alltoall" or form.extent.distance:
        return Refusal("only sends to all have rounds to leave out")
    if len({len(nodes) for nodes in plan.nodes}) > 1:
        return Refusal("nodes that send to all have different numbers of ranks")
    if len(first_rounds(form, INCREMENTS + 1)) <= INCREMENTS:
        return Refusal(f"{ranks} rounds of sends are too few to leave some out")
    if rows_of_rounds(form, ranks) <= budget.thresholds.min_rows_of_sends:
        return Refusal("its sends have few enough rows")
    return form


def first_rounds(form: Form, runs: int) -> list[int]:
    """The numbers of rounds of the first `runs` runs of sends to all."""
    sends = form.plans[0].transfers
    assert sends is not None
    return list(islice(send_rounds(sends, form.loop_schedule.least), runs))


def rows_of_rounds(form: Form, rounds: int) -> float:
    """An estimate of the rows of `rounds` rounds of sends to all, with the fewest loops."""
    ranks = form.collective.ranks
    share = written_share(form.extent.partition)
    return ROWS_PER_SEND * form.loop_schedule.least * rounds * ranks * share


def rows_of_first_runs(form: Form, budget: Budget, runs: int) -> list[int]:
    """An estimate of the rows of each of the first runs; empty if the method refuses the form."""
    if "rounds_of_sends" in budget.excluded:
        return []
    sends = sends_to_all(MethodInput(form, budget))
    if isinstance(sends, Refusal):
        return []
    least = budget.thresholds.rows_of_wide_instants
    return [int(max(rows_of_rounds(sends, rounds), least)) for rounds in first_rounds(sends, runs)]


def _from_first_rounds(
    bench: Bench, solver: Solver, form: Form, budget: Budget
) -> OneOperation | Refusal:
    """The standalone operation, extrapolated from simulations of its first rounds.

    Each further round is taken to move as many bytes over every link as the simulated rounds do on
    average.
    """
    last_run: dict[int, OneOperation] = {}

    def seconds_of(rounds: int) -> float:
        last_run.clear()  # the next run needs the memory
        operation = solver.one_operation(MethodInput(form.with_distance(rounds), budget))
        last_run[rounds] = operation
        return operation.seconds

    sends = form.plans[0].transfers
    all_rounds = form.collective.ranks
    assert sends is not None
    rounds = send_rounds(sends, form.loop_schedule.least)
    tolerances = ROUNDS_TOLERANCE, ROUNDS_TOLERANCE
    full = extrapolate_distance(all_rounds, rounds, seconds_of, tolerances, 0)
    if full is None:
        return TOO_DIFFERENT
    operation = last_run[full.run]
    # The first round is the copy of each rank's own data, so it moves nothing over links.
    factor = (all_rounds - 1) / (full.run - 1)
    ends = operation.ends + (full.seconds - operation.ends.max())
    kernel = bench.launch.kernel
    rate = factor * (operation.ends.max() - kernel) / (ends.max() - kernel)
    # Some links would have to carry more than their capacity: they carry less in later rounds.
    demand = operation.use.utilisation * rate
    utilisation = np.minimum(demand, 1.0)
    kept_fraction = np.divide(utilisation, demand, out=np.ones_like(demand), where=demand > 0)
    use = replace(
        operation.use, amount=operation.use.amount * factor * kept_fraction, utilisation=utilisation
    )
    words = f"{full.run} of {all_rounds} rounds of sends"
    # The last batch of the channels may be a partial one.
    last_turn = sends.rounds_of_all_channels / all_rounds
    uncertainty = operation.uncertainty + full.uncertainty + last_turn + max(0.0, demand.max() - 1)
    return replace(
        operation,
        ends=ends,
        use=use,
        approximation=", ".join(filter(None, (words, operation.approximation))),
        uncertainty=uncertainty,
        follow=None,
        fewer_loops=None,
    )
