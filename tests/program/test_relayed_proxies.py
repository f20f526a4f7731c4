"""Whose proxy sends: that of the GPU beside the NIC, which may be a relay (PXN)."""

import pytest

from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Style, Use
from tests.topology.topology_tools import topology

POST = 3e-6
CHUNK = 131072


def proxies(sends: list[tuple[int, int]], route: str) -> tuple[list[str], float]:
    t = topology("machine: dgx-h100\nnodes: 2")
    builder = Builder(16, 1.0, ("alltoall",))
    style = Style(route=route, uses=(Use("proxy", "src", POST / CHUNK),))
    src, dst = zip(*sends, strict=True)
    builder.rows(style, src, dst, builder.pieces([CHUNK] * len(sends)))
    program = place(builder.finish(), t)
    names = [program.links.name(int(n)) for n in program.paths.link]
    return sorted(n for n in names if n.startswith("proxy")), simulate(program).makespan


def test_a_sender_with_its_own_nic_posts_itself():
    assert proxies([(3, 11)], "nic:3:3")[0] == ["proxy(node0.gpu3)"]
    assert proxies([(3, 11)], "pxn")[0] == ["proxy(node0.gpu3)"]


def test_a_relay_posts_for_others():
    assert proxies([(7, 8)], "pxn")[0] == ["proxy(node0.gpu0)"]


def test_all_senders_to_one_rail_share_a_proxy():
    """What a whole node gathers to one rank goes through one thread."""
    senders = [(rank, 8) for rank in range(8)]
    names, time = proxies(senders, "pxn")
    assert set(names) == {"proxy(node0.gpu0)"}
    assert time == pytest.approx(8 * POST, rel=0.01)
    own = [(rank, rank + 8) for rank in range(8)]
    names, time = proxies(own, "pxn")
    assert len(set(names)) == 8
    assert time == pytest.approx(POST, rel=0.01)
