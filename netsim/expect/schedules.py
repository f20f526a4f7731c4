"""NCCL's own schedules for the collectives of a job, as far as they are built."""

from netsim.collectives import Collective
from netsim.errors import InputError
from netsim.expect.choice import planned
from netsim.expect.job import Job
from netsim.schedule import Schedule


class NotBuiltError(InputError):
    """A schedule of NCCL's that this version of netsim cannot simulate."""


def nccl_schedule(
    job: Job, collective: Collective, dtype: str, *, registered: bool = False
) -> Schedule:
    """What NCCL runs for a collective on a job."""
    plan = planned(job, collective, dtype)
    raise NotBuiltError(
        f"NCCL's {plan.algorithm} {collective.name} ({plan.protocol}) is not simulated yet"
    )
