"""Data parallelism with a parameter server: one GPU gathers, averages and returns.

All others are idle from the end of their backward pass until what they need comes back.
"""

from dataclasses import dataclass

import numpy as np

from netsim.workloads.replicas import Alone
from netsim.workloads.tape import Deps


@dataclass
class Server(Alone):
    """The first rank of every group is the server; it works on a part of the batch as well."""

    def finish(self) -> Deps:
        """Gather, average, broadcast."""
        replica, s = self.replica, self.replica.setting
        end = replica.tape.last_of(replica.stage.ranks)
        made: list[int] = []
        for expert, count in replica.elements.items():
            groups = replica.groups[expert]
            nbytes, members = count * s.gradient_element, groups.shape[1]
            gathered = replica.exchange(
                "gradients to server", "gather", nbytes * members, end, expert=expert
            )
            if gathered is None:
                continue
            seconds = s.roofline.stream_seconds((members + 1.0) * nbytes)
            servers = np.ascontiguousarray(groups[:, 0])
            mean = replica.tape.compute("average", servers, seconds, (gathered,))
            back = replica.exchange(
                "average from server", "broadcast", nbytes, (mean,), expert=expert
            )
            made += [] if back is None else [back]
        return tuple(made)
