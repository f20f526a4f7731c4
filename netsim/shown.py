"""What traces, pictures and explanations are about: all rows of an operation, or those that stand
for all, or the first steps of long rings, where these would be too many.
"""

from dataclasses import dataclass

from netsim.budget import least_rows_of_nccl
from netsim.collectives.relay import STEPS
from netsim.prepared import Prepared
from netsim.schedule import Schedule
from netsim.units import format_time

MOST_SHOWN = 4_000_000  # rows in full; of more, those that stand for others


@dataclass(frozen=True, slots=True)
class Shown:
    """A schedule to look at, and what one must know of it."""

    schedule: Schedule
    notes: tuple[str, ...] = ()


def shown_of(prepared: Prepared, size: int) -> Shown:
    """One operation at a size, out of place."""
    rows = _rows_in_full(prepared, size)
    if rows <= MOST_SHOWN:
        return Shown(prepared.schedule(size))
    steps = prepared.relayed(size)
    if steps is not None:
        note = (
            f"of about {rows:.2g} rows those of the first {STEPS} steps of every ring are shown, "
            f"and what follows them; the whole takes {format_time(steps.seconds)}"
        )
        return Shown(steps.schedule, (note,))
    work = prepared.looped(size, folded=True, in_step=False)
    schedule = work.schedule(work.loops)
    if schedule.fold is None:
        return Shown(schedule)
    note = (
        f"of about {rows:.2g} rows those of {len(schedule.fold.leaders)} GPUs are shown, which "
        f"stand for all {schedule.ranks}"
    )
    return Shown(schedule, (note,))


def _rows_in_full(prepared: Prepared, size: int) -> int:
    collective = prepared.collective(size)
    if not prepared.jobs:
        found = prepared.alikeness(collective)
        return 0 if found is None else found.full
    plan = prepared.planned(size)
    algorithm = plan.algorithm if plan else ""
    return least_rows_of_nccl(collective.name, collective.ranks, algorithm)
