"""The bill of a topology: its parts are counted from its nodes and links, then priced."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netsim.costs.prices import Prices
from netsim.topology import LINK_KINDS, NODE_KINDS, Topology

_FABRIC = [LINK_KINDS.index(kind) for kind in ("nic", "fabric")]


@dataclass(frozen=True)
class Bill:
    """Numbers of parts, and what they cost and draw together."""

    switches: int
    cables: int
    nics: int
    gpus: int
    cost_usd: float
    power_w: float


def bill_of(topology: Topology, gpu_models: Sequence[str], prices: Prices) -> Bill:
    """Price what a topology has: every cable joins two ports, with a transceiver at either end.

    `gpu_models` names the model of every GPU. Links inside a host belong to the host; NICs without
    a cable (of a host that is alone) and dead links count for nothing.
    """
    links, kinds = topology.links, topology.node_kinds
    nic, switch = NODE_KINDS.index("nic"), NODE_KINDS.index("switch")
    between = np.isin(links.kind, _FABRIC) & (links.bandwidth > 0)
    usd = watts = 0.0
    for model, count in Counter(gpu_models).items():
        part = prices.of_gpu(model)
        usd, watts = usd + count * part.usd, watts + count * part.watts
    nics = set(np.flatnonzero(kinds == nic).tolist()) & set(links.tail[between].tolist())
    cables = 0.0
    ports = zip(links.tail[between].tolist(), links.bandwidth[between].tolist(), strict=True)
    for tail, rate in ports:  # a link is half a cable: one end, with its port and transceiver
        cables += 0.5
        parts = [(prices.of_port("optic", rate), 1.0), (prices.cable["any"], 0.5)]
        if tail in nics:
            parts.append((prices.of_port("nic", rate), 1.0))
        elif kinds[tail] == switch:
            parts.append((prices.of_port("switch_port", rate), 1.0))
        for part, times in parts:
            usd, watts = usd + times * part.usd, watts + times * part.watts
    return Bill(
        switches=int((kinds == switch).sum()),
        cables=round(cables),
        nics=len(nics),
        gpus=len(topology),
        cost_usd=usd,
        power_w=watts,
    )
