"""How much of a collective is written as rows of a schedule.

Functions that write schedules take an `Extent`; it does not change the decisions about the
collective (its size, NCCL's plan). `netsim/extent/` chooses it. How many operations are simulated
back to back, and in which instants rates are solved together, is no part of it, as it changes no
row; `extent/engine_runs.py` passes that to the engine.
"""

from __future__ import annotations

from netsim.base.values import dataclass
from netsim.schedule.partition import Fold, Partition


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """How much of a collective is written as rows. `Extent()` is all of it.

    >>> Extent().fold is None
    True
    """

    partition: Partition | None = None
    """The classes of equal ranks and channels, of which one member each is written; None: all
    members are."""
    distance: int = 0
    """Hops that chunks travel in NCCL's rings, or rounds of grouped sends; 0: all of them. A run
    with fewer moves less than the collective does, but shows what each hop or round adds."""
    loops_left_out: int = 0
    """Loops over the buffers that each channel, or each part of a send, has less."""
    merges_channels: bool = True
    """Channels whose rows would be the same become one, with a multiplicity. It changes no time."""
    has_places: bool = False
    """Rows state which elements they move, not only how many. Only proofs need that."""

    @property
    def fold(self) -> Fold | None:
        """The representatives of all ranks, links and NICs; None if all members are written."""
        return None if self.partition is None else self.partition.fold


ALL = Extent()
