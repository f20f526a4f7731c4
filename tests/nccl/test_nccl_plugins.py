"""What plugins of vendors set: on their transport and GPUs, between nodes, below the user's own."""

import pytest

from netsim.nccl.environment import PLUGINS, plugin_variables, settings_from
from netsim.nccl.facts import parse_version
from netsim.nccl.job import Wishes
from netsim.topology.machine import TRANSPORTS
from tests.cli.command import netsim


def test_every_plugin_sets_what_nccl_takes() -> None:
    named = {row["transport"] for row in PLUGINS}
    assert named <= set(TRANSPORTS)
    for transport in named:
        assert settings_from(plugin_variables(transport, 70)).protocols
    assert plugin_variables("efa", 80) == {"NCCL_PROTO": "Simple"}
    assert plugin_variables("efa", 90) == plugin_variables("efa", 80, parse_version("2.15")) == {}
    assert plugin_variables("infiniband", 80) == {}


def test_what_the_user_says_wins() -> None:
    plugin = {"NCCL_PROTO": "Simple", "NCCL_ALGO": "Ring"}
    assert Wishes(variables={"NCCL_PROTO": "LL"}).with_plugin(plugin).variables == {
        "NCCL_PROTO": "LL",
        "NCCL_ALGO": "Ring",
    }
    assert Wishes(algorithm="Tree").with_plugin(plugin).variables == {"NCCL_PROTO": "Simple"}
    assert Wishes(algorithm="Tree", protocol="LL").with_plugin(plugin).settings()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "protocol", "said"),
    [
        (("--nodes", 2, "--transport", "efa"), "Simple", True),
        (("--nodes", 2, "--transport", "efa", "--proto", "LL"), "LL", False),
        (("--nodes", 2, "--transport", "efa", "--env", "NCCL_PROTO=LL128"), "LL128", False),
        (("--nodes", 1, "--transport", "efa"), "LL", False),
        (("--nodes", 2), "LL", False),
        (("--nodes", 2, "--transport", "efa", "--nccl", "2.10"), "LL", False),
    ],
)
def test_old_gpus_on_efa_run_simple_between_nodes(capsys, options, protocol, said) -> None:
    outcome = netsim(capsys, "expect", "dgx-a100", "all_reduce", *options, "--why", "8")
    assert f" {protocol}, 1 of " in outcome.out.splitlines()[0]
    assert ("assumed: the plugin of efa sets NCCL_PROTO=Simple" in outcome.err) == said
