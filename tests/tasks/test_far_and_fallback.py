"""Hosts far apart, whose FIFOs are windows; and ports of a NIC that stand in for each other."""

import pytest

from netsim.base.errors import InputError
from netsim.tasks.answer import answer, checked_cells, resolve_any
from netsim.yamlio.read import parse_source

MIB = 2**20


def time_of(cluster: str, *, size: int = 64 * MIB, engine: str = "auto") -> float:
    """Microseconds of a sendrecv between two hosts with a GPU and a NIC each."""
    hosts = "machine: dgx-h100, nodes: 2, gpus_per_node: 1, nics_per_node: 1"
    text = f"""cluster: {{{hosts}, {cluster}}}
workload: {{collective: sendrecv, sizes: [{size}], timing: single}}
"""
    (cell,) = checked_cells(parse_source(text, "x.yaml"))
    found = answer(resolve_any(cell), size, engine=engine).time_us
    assert found is not None
    return found


def far(latency: float) -> str:
    """A leaf for each host; what joins them takes so many us from leaf to spine."""
    return (
        "fabric: {kind: leaf-spine, nodes_per_leaf: 1},"
        f"overrides: [{{link: 'leaf*-spine*', latency: {latency}us}}]"
    )


def test_far_apart_a_channel_sends_a_fifo_in_a_round_trip() -> None:
    near, twice, size, channels, window = 500.0, 1000.0, 128 * MIB, 2, 8 * (256 << 10)
    times = [time_of(far(latency), size=size) for latency in (near, twice)]
    trips = size / (channels * window) - 0.5  # the last chunks need no answer
    assert times[1] - times[0] == pytest.approx(trips * 4 * (twice - near), rel=1e-6)
    assert times[1] / times[0] == pytest.approx(2, rel=0.05)  # so the rate is halved


def port(fault: str, routing: str = "spray") -> str:
    """A NIC with a port in each of two planes, one of which fails."""
    return f"fabric: {{kind: dual-plane, routing: {routing}}}, faults: [{fault}]"


DOWN = "link: node0.nic0-leaf0, bandwidth: 0%"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_a_port_that_fails_leaves_its_rate_to_the_other(engine: str) -> None:
    dead = time_of(port(f"{{{DOWN}}}"), engine=engine)
    healthy = time_of(port(""), engine=engine)
    at_once = time_of(port(f"{{{DOWN}, at: 0s, fallback: true}}"), engine=engine)
    assert at_once == pytest.approx(dead, rel=1e-6)
    half = healthy / 2  # half of the data at each rate, within a chunk or two
    found = time_of(port(f"{{{DOWN}, at: {half}us, fallback: true}}"), engine=engine)
    assert found == pytest.approx((healthy + dead) / 2, rel=0.02)
    back = time_of(port(f"{{{DOWN}, at: {half}us, for: 600us, fallback: true}}"), engine=engine)
    assert healthy < back < healthy + 300 + 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (f"{{{DOWN}, fallback: true}}", "needs at"),
        (f"{{{DOWN}, at: 1ms, loss: true, fallback: true}}", "loses nothing"),
        (
            "{link: node0.nic0-leaf0, bandwidth: 50%, at: 1ms, fallback: true}",
            "a port that is down",
        ),
        ("{nic: node0.nic0, at: 1ms, fallback: true}", "a port that is down"),
        ("{link: 'leaf*-spine*', bandwidth: 0%, at: 1ms, fallback: true}", "faults.0"),
    ],
)
def test_what_cannot_fall_back_is_refused(fault: str, message: str) -> None:
    with pytest.raises(InputError, match=r"faults\.0") as caught:
        time_of(port(fault))
    assert message in str(caught.value)


def test_a_nic_with_one_port_has_no_other() -> None:
    fault = "faults: [{link: node0.nic0-leaf0, bandwidth: 0%, at: 1ms, fallback: true}]"
    with pytest.raises(InputError, match="a port of a NIC that has others"):
        time_of(f"fabric: {{kind: leaf-spine, nodes_per_leaf: 1}}, {fault}")
