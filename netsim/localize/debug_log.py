"""NCCL's debug log, line by line, against what netsim derives for the same test."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from netsim.base.values import dataclass


@dataclass(frozen=True)
class Difference:
    """What a debug log has otherwise than the simulation. `costs_percent` is how much longer the
    test takes with what the log says; None if the model cannot say."""

    log: str
    subject: str
    logged: str
    derived: str
    costs_percent: float | None = None
    evidence: str = ""
    hosts: tuple[str, ...] = field(default_factory=tuple)

    @property
    def values(self) -> dict[str, Any]:
        """The difference as plain values."""
        return {
            "log": self.log,
            "subject": self.subject,
            "logged": self.logged,
            "derived": self.derived,
            "costs_pct": self.costs_percent,
            "line": self.evidence,
            "hosts": list(self.hosts),
        }

    @property
    def line(self) -> str:
        """The difference in a sentence."""
        cost = "" if self.costs_percent is None else f"; costs {self.costs_percent:.0f} %"
        where = f" ({', '.join(self.hosts)})" if self.hosts else ""
        return f"{self.log}: {self.subject} {self.logged}{where}, simulated {self.derived}{cost}"


def no_differences() -> Sequence[Difference]:
    """No difference at all."""
    return ()
