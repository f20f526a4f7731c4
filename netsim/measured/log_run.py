"""A run as a log tells it: its rows, what it says about itself, and what was not understood."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from netsim.measured.curve import Measured

CLEAR = 0.5  # GB/s from which two decimals tell a ratio


@dataclass(frozen=True)
class Problem:
    """A line that looks like data and is not understood, or a row that cannot be used."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Device:
    """A rank's GPU as nccl-tests lists it."""

    rank: int
    process: str
    host: str
    name: str


@dataclass(frozen=True)
class LogRun:
    """One table of a log. `ratios` are busbw over algbw of its rows, where they tell anything."""

    file: str
    collective: str = ""
    rows: tuple[Measured, ...] = ()
    devices: tuple[Device, ...] = ()
    gpus_per_process: int | None = None
    command: str = ""
    nccl: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    ratios: tuple[tuple[float, float], ...] = ()  # algbw, busbw
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    line: int = 1

    @property
    def hosts(self) -> dict[str, int]:
        """Ranks listed on every host."""
        return dict(Counter(device.host for device in self.devices))

    @property
    def listed_ranks(self) -> int | None:
        """Ranks by the list of devices; the list may be cut, so the last number counts."""
        return max((device.rank for device in self.devices), default=-1) + 1 or None

    @cached_property
    def bus_factor(self) -> float | None:
        """Bus bandwidth over algorithm bandwidth, where rows are fast enough to tell."""
        clear = [bus / alg for alg, bus in self.ratios if alg > CLEAR]
        return median(clear) if clear else None

    @property
    def gpu_name(self) -> str:
        """The commonest name of its GPUs."""
        names = Counter(device.name for device in self.devices if device.name)
        return names.most_common(1)[0][0] if names else ""
