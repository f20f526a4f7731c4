"""Settings that make a cluster slow, as data: what each of them changes, and how to confirm it.

`settings.toml` has one table for each. `changes` is the change of a scenario that has the same
effect; settings that cannot be simulated have none, and are only listed.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from netsim.base.values import dataclass
from netsim.yamlio.read import Source


@dataclass(frozen=True)
class ClusterSetting:
    """A setting that may be wrong; the fields are the keys of `settings.toml`.

    Args:
        title: text on what is wrong.
        log_lines: words of lines in NCCL's debug log that confirm it.
        contradicted_by: words of lines that rule it out.
        command: a command that shows it.
        changes: keys of the scenario with their values.
        variables: variables of NCCL with their values.
        machine: values of the machine.
        fault: a fault of the scenario.
        fewer_nics: how many NICs each node lacks.
        on_one_node: whether a single node may have it.
        by_nodes: whether its effect depends on the nodes of a test, not only on its shape.
        not_modeled: why it cannot be simulated.
    """

    id: str
    title: str
    log_lines: tuple[str, ...] = ()
    contradicted_by: tuple[str, ...] = ()
    command: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    fault: Mapping[str, Any] = field(default_factory=dict)
    fewer_nics: int = 0
    on_one_node: bool = False
    by_nodes: bool = False
    not_modeled: str = ""

    @property
    def is_modeled(self) -> bool:
        """Whether its effect can be simulated."""
        return not self.not_modeled


def read_settings() -> dict[str, ClusterSetting]:
    """Return the settings of `settings.toml` by id."""
    tables = tomllib.loads(Path(__file__).with_name("settings.toml").read_text("utf-8"))
    lists = ("log_lines", "contradicted_by")
    settings: dict[str, ClusterSetting] = {}
    for name, table in tables.items():
        values: dict[str, Any] = dict(table)
        for key in lists:
            values[key] = tuple(values.get(key, ()))
        settings[name] = ClusterSetting(name, **values)
    return settings


SETTINGS = read_settings()


def changes_of_setting(
    setting: ClusterSetting, source: Source, position: int, nic_count: int
) -> Iterator[tuple[str, Any]]:
    """Return the changes (key, value) of a scenario with which a node has a setting.

    Args:
        setting: the setting.
        source: the scenario of a test.
        position: position of the node in the test; negative: all nodes have the setting.
        nic_count: number of NICs of a node.
    """
    cluster = source.data["cluster"]
    if setting.machine:
        entry: dict[str, Any] = {"machine": setting.machine}
        if position >= 0:
            entry["node"] = position
        yield "cluster.overrides", [*(cluster.get("overrides") or []), entry]
    if setting.variables:
        before = (source.data.get("nccl") or {}).get("env") or {}
        yield "nccl.env", {**before, **setting.variables}
    if setting.fault:
        yield "cluster.faults", [*(cluster.get("faults") or []), dict(setting.fault)]
    if setting.fewer_nics:
        yield "cluster.nics_per_node", max(0, nic_count - setting.fewer_nics)
    yield from setting.changes.items()


def confirmations(setting: ClusterSetting) -> Sequence[str]:
    """Return where to look to confirm a setting: lines of the debug log, then a command."""
    texts = [f"NCCL_DEBUG=INFO prints '{words}'" for words in setting.log_lines]
    return [*texts, *([setting.command] if setting.command else [])]
