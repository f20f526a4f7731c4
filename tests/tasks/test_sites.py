"""Sites far apart: what a line between them carries, what windows make of its length."""

import pytest

from netsim.base.errors import InputError
from netsim.results.row import Row
from netsim.tasks.answer import answer, checked_cells, resolve_any
from netsim.yamlio.read import parse_source

MIB = 2**20
HOSTS = "machine: dgx-h100, nodes: 4, gpus_per_node: 1, nics_per_node: 1"
KM = 4.9  # us of light in fibre
USABLE = 0.982  # of a line rate, on InfiniBand


def row_of(
    sites: str, work: str, *, fabric: str = "{kind: leaf-spine}", size: int = 4 * MIB, **run: str
) -> Row:
    """The row of a workload on four hosts of a GPU and a NIC each."""
    (cell,) = checked_cells(
        parse_source(
            f"""cluster: {{{HOSTS}, fabric: {fabric}, sites: {{{sites}}}}}
workload: {{{work}, sizes: [{size}], timing: single}}
launch: {{style: process_per_gpu, host: 0s, kernel: 0s}}
fold: {run.pop("fold", "auto")}
""",
            "x.yaml",
        )
    )
    return answer(resolve_any(cell), size, **run)


def time_of(*given: str, **run: object) -> float:
    found = row_of(*given, **run).time_us  # type: ignore[arg-type]
    assert found is not None
    return found


PAIRS = "collective: p2p, pairs: [[0, 2], [1, 3]]"


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_hosts_share_the_line_between_sites(engine: str) -> None:
    line = "distance: 100km, bandwidth: 100Gbps"
    both = time_of(line, PAIRS, engine=engine)
    alone = time_of(line, "collective: p2p, pairs: [[0, 2]]", engine=engine)
    each = 4 * MIB / (12.5e9 * USABLE) * 1e6
    assert both - alone == pytest.approx(each, rel=1e-6)
    assert alone == pytest.approx(100 * KM + each, rel=0.03)
    near = time_of(line, "collective: p2p, pairs: [[0, 1]]", engine=engine)
    assert near < 4 * MIB / 12.5e9 * 1e6  # nothing of it leaves its site


def test_several_cables_and_a_latency() -> None:
    one = time_of("latency: 490us, bandwidth: 100Gbps", PAIRS)
    same = time_of("distance: 100km, bandwidth: 100Gbps, nodes: [2, 2]", PAIRS)
    assert one == pytest.approx(same, rel=1e-9)
    spread = "{kind: leaf-spine, routing: spray}"
    two = time_of("latency: 490us, bandwidth: 100Gbps, links: 2", PAIRS, fabric=spread)
    assert one - two == pytest.approx(4 * MIB / (12.5e9 * USABLE) * 1e6, rel=1e-6)


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_a_connection_sends_its_window_in_a_round_trip(engine: str) -> None:
    line, fabric = "latency: 1ms, bandwidth: 400Gbps, links: 2", "{{kind: leaf-spine, {}}}"
    # NCCL parts the 4 MiB over four channels, each with a connection of its own (or four).
    found = time_of(line, PAIRS, fabric=fabric.format("window: 1MiB"), engine=engine)
    assert found == pytest.approx(2000 + 1000, rel=0.01)
    four = fabric.format("window: 1MiB, qps: 4")
    assert time_of(line, PAIRS, fabric=four, engine=engine) == pytest.approx(1500, rel=0.02)
    inside = time_of(line, "collective: p2p, pairs: [[0, 1]]", fabric=four, engine=engine)
    usual = fabric.format("routing: static")
    assert inside == time_of(line, "collective: p2p, pairs: [[0, 1]]", fabric=usual, engine=engine)


def test_sockets_have_what_linux_lets_them() -> None:
    def ring(more: str) -> float:
        fabric = f"{{kind: leaf-spine, transport: tcp{more}}}"
        work = "collective: all_reduce, algorithm: ring"
        return time_of("latency: 1ms, bandwidth: 400Gbps", work, fabric=fabric, size=64 * MIB)

    assert ring("") == ring(", window: 4MiB") > 2 * ring(", window: 64MiB")


def test_a_ring_takes_a_round_trip_for_two_steps() -> None:
    times = [
        time_of(
            f"latency: {far}us, bandwidth: 400Gbps, links: 4",
            "collective: all_reduce, algorithm: Ring, protocol: Simple",
            size=8 * MIB,
        )
        for far in (500, 1000, 2000)
    ]
    trips = (times[2] - times[1]) / 2000
    assert trips == pytest.approx((times[1] - times[0]) / 1000, rel=1e-6)
    assert trips == pytest.approx(2.5)  # 6 steps, of which two are under way; then the last arrives
    assert times[2] / times[1] == pytest.approx(2, rel=0.05)  # so the rate is halved


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize("work", ["algorithm: Ring", "algorithm: Tree", "algorithm: ring"])
@pytest.mark.parametrize("fabric", ["{kind: leaf-spine}", "{kind: rail-optimized, window: 256KiB}"])
def test_folded_and_in_full_on_both_engines(work: str, fabric: str) -> None:
    line, work = "distance: 40km, bandwidth: 50Gbps", f"collective: all_reduce, {work}"
    folded = row_of(line, work, fabric=fabric, size=MIB)
    for engine in ("simpy", "compiled"):
        full = row_of(line, work, fabric=fabric, size=MIB, fold="off", engine=engine)
        assert folded.time_us == pytest.approx(full.time_us, rel=1e-9)
        assert (folded.rows or 0) <= (full.rows or 0)


@pytest.mark.parametrize(
    ("sites", "more", "message"),
    [
        ("bandwidth: 1Gbps", "", "sites: expected distance (such as 100km) or latency"),
        ("bandwidth: 1Gbps, distance: 1km, latency: 1us", "", "distance or latency, not both"),
        ("bandwidth: 1Gbps, distance: -1km", "", "expected a length such as 100km or 500m"),
        ("bandwidth: 1Gbps, distance: 1km, count: 3", "", "1 + 1 + 1 are not the 4 hosts"),
        ("bandwidth: 1Gbps, distance: 1km, nodes: [1, 2]", "", "1 + 2 are not the 4 hosts"),
        ("bandwidth: 1Gbps, distance: 1km, count: 8", "", "1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 are not"),
        ("bandwidth: 1Gbps, distance: 1km", ", fabric: {kind: fat-tree, nodes: 8}", "beside sites"),
        ("bandwidth: 1Gbps, distance: 1km", ", placement: spread", "no meaning beside sites"),
        ("bandwidth: 1Gbps, distance: 1km", ", fabric: {kind: rail-only}", "at one site only"),
        ("bandwidth: 1Gbps, distance: 1km", ", fabric: {kind: fat-tree, sharp: true}", "reduce"),
    ],
)
def test_what_cannot_be_is_refused(sites: str, more: str, message: str) -> None:
    text = f"cluster: {{{HOSTS}{more}, sites: {{{sites}}}}}\nworkload: {{collective: all_reduce}}\n"
    with pytest.raises(InputError) as caught:
        checked_cells(parse_source(text, "x.yaml"))
    assert message in str(caught.value)
    assert "x.yaml:1" in str(caught.value)
