"""What a tuner wants: rules that replace NCCL's choice of algorithm, protocol and channels.

The first rule that fits a call wins, as in NCCL's example tuner plugin; None means any. A rule
whose algorithm cannot run is passed over in favour of NCCL's own choice, as NCCL does.
"""

from netsim.nccl.names import Algorithm, Function, Protocol
from netsim.values import dataclass


@dataclass(frozen=True)
class TunerRule:
    """For which calls it holds, and what it wants for them."""

    function: Function
    least_bytes: int
    most_bytes: int
    algorithm: Algorithm
    protocol: Protocol
    n_channels: int | None = None
    n_nodes: int | None = None
    n_ranks: int | None = None
    n_pipe_ops: int | None = None
    registered: int | None = None

    def fits(self, function: Function, nbytes: int, given: tuple[int, int, int, int]) -> bool:
        """Whether it is about a call; `given` are nodes, ranks, operations and registration."""
        if function != self.function or not self.least_bytes <= nbytes <= self.most_bytes:
            return False
        wanted = (self.n_nodes, self.n_ranks, self.n_pipe_ops, self.registered)
        return all(want in (None, have) for want, have in zip(wanted, given, strict=True))
