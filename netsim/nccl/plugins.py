"""What the network plugins of cloud vendors set of NCCL's variables by themselves.

Their own tuners decide on top, by tables that are not published; give such a table as a tuner's.
What a user sets wins, as it does with the plugins.
"""

from collections.abc import Mapping

from netsim.values import dataclass

ANY = 10_000


@dataclass(frozen=True)
class PluginSetting:
    """One variable, for GPUs below a compute capability, and where that is known from."""

    variable: str
    value: str
    source: str
    below: int = ANY


# EFA delivers out of order. Only where the GPU's writes of 128 bytes arrive whole (from Hopper on)
# does aws-ofi-nccl leave LL and LL128 in; else it sets NCCL_PROTO. The one measured run agrees at
# small sizes (aws_p4d_a100_2x8_all_reduce_1: 175 us at 32 B, where LL would take 39), though its
# settings are not recorded and its large sizes look like rings.
_EFA = "aws-ofi-nccl, src/platform-aws.c"
_A3 = "Google's guide to GPUDirect-TCPXO on A3 Mega"

PLUGINS: dict[str, tuple[PluginSetting, ...]] = {
    "efa": (PluginSetting("NCCL_PROTO", "Simple", _EFA, below=90),),
    "tcpxo": (
        PluginSetting("NCCL_ALGO", "Ring,Tree", _A3),
        PluginSetting("NCCL_PROTO", "Simple", _A3),
        PluginSetting("NCCL_CROSS_NIC", "0", _A3),
        PluginSetting("NCCL_BUFFSIZE", "8388608", _A3),
        PluginSetting("NCCL_P2P_NET_CHUNKSIZE", "524288", _A3),
        PluginSetting("NCCL_P2P_PCI_CHUNKSIZE", "524288", _A3),
        PluginSetting("NCCL_P2P_NVL_CHUNKSIZE", "1048576", _A3),
    ),
}


def plugin_variables(transport: str, min_cc: int) -> Mapping[str, str]:
    """What the plugin of a transport sets where the oldest GPU is of this compute capability."""
    return {one.variable: one.value for one in PLUGINS.get(transport, ()) if min_cc < one.below}
