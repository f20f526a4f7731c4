"""What the channel search tries, what it has found, and how many visits it may still make."""

from netsim.nccl.channels import Channel
from netsim.values import dataclass


@dataclass(frozen=True)
class Attempt:
    """What one attempt looks for: the pattern, GB/s a channel, the worst types it may use."""

    pattern: int
    bw_intra: float
    bw_inter: float
    type_intra: int
    type_inter: int
    same_channels: bool
    cross_nic: int
    min_channels: int
    max_channels: int
    collnet: bool = False


@dataclass(frozen=True)
class Found:
    """The best solution so far: the attempt that found it and its channels."""

    attempt: Attempt
    channels: tuple[Channel, ...] = ()
    n_hops: int = 0
    latency_inter: float = 0.0

    @property
    def n_channels(self) -> int:
        """Channels found; 0 before anything is."""
        return len(self.channels)


@dataclass
class Budget:
    """Visits that are left; -1 once nothing better can be found."""

    left: int

    @property
    def complete(self) -> bool:
        """Whether the walk ended with the best there is."""
        return self.left == -1
