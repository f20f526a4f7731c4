"""What a user asks of NCCL: a version, variables, and perhaps one algorithm and protocol.

A single algorithm and protocol mean the same as NCCL_ALGO and NCCL_PROTO with one name each.
"""

from collections.abc import Mapping
from dataclasses import field, replace

from netsim.errors import InputError
from netsim.nccl.environment import settings_from
from netsim.nccl.graph_xml import GraphFile
from netsim.nccl.names import AUTO, FUNCTIONS, PROTOCOLS
from netsim.nccl.settings import Settings
from netsim.nccl.tuner_rule import TunerRule
from netsim.nccl.version import NEWEST, Version
from netsim.values import dataclass


@dataclass(frozen=True)
class Wishes:
    """A version, NCCL variables by name, the algorithm and protocol that are forced; rules that
    replace NCCL's choice, and graphs that replace its search.
    """

    version: Version = NEWEST
    variables: Mapping[str, str] = field(default_factory=dict)
    algorithm: str = AUTO
    protocol: str = AUTO
    tuner: tuple[TunerRule, ...] = ()
    graphs: GraphFile | None = None

    def settings(self) -> Settings:
        """All of it as NCCL's settings."""
        found = settings_from(self.variables, self.version)
        if self.algorithm != AUTO:
            self._alone("NCCL_ALGO", "an algorithm")
            found = replace(found, algorithms=dict.fromkeys(FUNCTIONS, (self.algorithm,)))
        if self.protocol != AUTO:
            self._alone("NCCL_PROTO", "a protocol")
            found = replace(found, protocols=dict.fromkeys(FUNCTIONS, (self.protocol,)))
        return found

    def with_plugin(self, variables: Mapping[str, str]) -> "Wishes":
        """The same with what a network plugin sets, where the user says nothing of it."""
        forced = {"NCCL_ALGO": self.algorithm, "NCCL_PROTO": self.protocol}
        free = {
            name: value
            for name, value in variables.items()
            if forced.get(name, AUTO) == AUTO and not self.variables.get(name)
        }
        return replace(self, variables={**self.variables, **free}) if free else self

    def _alone(self, variable: str, what: str) -> None:
        if self.variables.get(variable):
            raise InputError(f"{variable} is set, and {what} is forced as well: give one of them")


def protocol_names() -> tuple[str, ...]:
    """What a scenario may give as protocol."""
    return (AUTO, *PROTOCOLS)
