"""Ring schedules: correct at their real structure, as fast as links, blocks and credits allow."""

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.collectives.verify import RaceError
from netsim.engines.engine import simulate
from netsim.nccl.choice import schedule_of, with_blocks
from netsim.nccl.constants import MECHANISMS, ByProtocol, LinkCost
from netsim.nccl.schedules.plan import Plan, Work
from netsim.nccl.schedules.ring import with_equal_chunks
from netsim.nccl.split import split_over_channels
from netsim.program.place import place
from netsim.schedule.extent import Extent
from netsim.schedule.schedule import IN_ORDER, TRANSFER
from netsim.topology.routing import switch
from tests.nccl.nccl_plans import IDEAL, SMALL, UNMERGED, checked, small_plan
from tests.nccl.proof import Proof, written

ALL = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
WRITTEN_IN_FULL = Extent()
PROTOCOLS = ("LL", "LL128", "Simple")
SHAPES = [(1, 2), (1, 5), (2, 1), (2, 2), (3, 1), (1, 8), (3, 2)]
# LL128 differs from LL in figures only: a few shapes are enough.
CASES = [
    (shape, p) for shape in SHAPES for p in PROTOCOLS if p != "LL128" or shape in SHAPES[1:4:2]
]
MIB = 2**20


def collective(name: str, ranks: int, count: int, **given: object) -> Collective:
    root = {"root": ranks // 2} if name in ("broadcast", "reduce") else {}
    return Collective(name, ranks, count, 4, **root, **given)


@pytest.mark.sample(21)
@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("shape", "protocol"), CASES)
def test_rings_do_what_they_should(name, protocol, shape):
    nodes, local = shape
    chunk, ranks = SMALL[protocol] // 4, nodes * local
    loops = 20 if name in ("broadcast", "reduce") else max(3, 24 // ranks)
    share = ranks * chunk if name == "all_reduce" else chunk
    for count, given in ((5, {}), (2 * share, {"direct": True}), (loops * share - 7, {})):
        plan = small_plan("Ring", protocol, nodes, local, count, channels=1 + (loops < 9), **given)
        checked(collective(name, ranks, count, in_place=count != 5), plan)


@pytest.mark.sample(7)
@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("protocol", ["LL", "Simple"])
def test_fifos_overflow_without_credits(name, protocol):
    c = collective(name, 10, {"LL": 600, "Simple": 5200}[protocol])
    plan = small_plan("Ring", protocol, 5, 2, c.count, channels=1)
    made, free = written(c, plan), written(c, replace(plan, slots=8 * 64))
    edges = [len(what.made.dep_row) for what in (made, free)]
    assert edges[0] > edges[1]
    # The slots of the one with the order of the other: they are written before they are read.
    Proof(c, plan, made).check_races()
    with pytest.raises(RaceError, match="fills a slot"):
        Proof(c, plan, replace(free, slots=made.slots)).check_races()


def wire_bytes(made) -> dict[tuple[int, int], float]:
    """Bytes that each pair of ranks exchanges."""
    sent: dict[tuple[int, int], float] = {}
    moves = np.flatnonzero((made.kind == TRANSFER) & (made.src != made.dst))
    for row in moves.tolist():
        style = made.styles[int(made.style[row])]
        hop = int(made.src[row]), int(made.dst[row])
        sent[hop] = sent.get(hop, 0.0) + style.wire * style.multiplicity * float(made.amount[row])
    return sent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "volume"),
    [
        ("all_reduce", lambda n, s: 2 * (n - 1) / n * s),
        ("all_gather", lambda n, s: (n - 1) / n * s),
        ("reduce_scatter", lambda n, s: (n - 1) / n * s),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_volume_of_every_link(name, volume, protocol):
    n, wire = 6, {"LL": 2.0, "LL128": 16 / 15, "Simple": 1.0}[protocol]
    c = Collective(name, n, 6 * 480, 4)
    plan = small_plan("Ring", protocol, 2, 3, c.count, channels=1)
    sent = wire_bytes(schedule_of(c, plan))
    assert set(sent) == {(rank, (rank + 1) % n) for rank in range(n)}
    for nbytes in sent.values():
        assert nbytes == pytest.approx(wire * volume(n, c.size_bytes))


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
def test_chains_carry_everything_once(name):
    c = collective(name, 5, 1000)
    sent = wire_bytes(schedule_of(c, small_plan("Ring", "Simple", 1, 5, 1000, channels=1)))
    assert len(sent) == 4
    assert set(sent.values()) == {4000.0}


@pytest.mark.sample(12)
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 13])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("last", [1, 3, 7])
def test_rings_whose_last_chunks_are_empty_do_what_they_should(ranks, protocol, last):
    """Chunks of some lines at the end, of which all but the first `last` have nothing (<= 2.21)."""
    nodes, local = (1, ranks) if ranks % 2 else (2, ranks // 2)
    whole, line = SMALL[protocol] * ranks // 4, SMALL[protocol] // 8
    count = whole + min(last, ranks - 1) * line + 1
    work = tuple(
        Work(channel, channel * count, count, SMALL[protocol], 4 * line) for channel in range(2)
    )
    plan = small_plan("Ring", protocol, nodes, local, 2 * count, work=work)
    checked(collective("all_reduce", ranks, 2 * count), plan)


def test_empty_chunks_are_shared_by_all_where_a_few_hops_tell():
    works = (Work(0, 0, 48, 1024, 64), Work(1, 48, 32, 1024, 64))
    plan, c = small_plan("Ring", "LL", 1, 8, 80, work=works), collective("all_reduce", 8, 80)
    even, off = with_equal_chunks(c, plan)
    assert [(work.count, work.last) for work in even.work] == [(64, 0)] * 2  # whole lines
    assert off == pytest.approx(1.0)  # 256 / 128 - 1, and no less than 1 - 80 / 128
    assert with_equal_chunks(c, even) == (even, 0.0)
    apart = replace(plan, work=(works[0], replace(works[1], count=16)))
    assert [work.count for work in with_equal_chunks(c, apart)[0].work] == [64, 32]


def call(name: str, nbytes: int, protocol: str, **given: object) -> tuple[Collective, Plan]:
    """A call on 8 GPUs with 24 channels, cut as NCCL cuts it."""
    function = {"all_reduce": "AllReduce", "all_gather": "AllGather"}[name]
    n, count = 8, nbytes // 4 // (8 if name == "all_gather" else 1)
    counts = split_over_channels(function, protocol, count, 4, 24, n)
    chunk = {"LL": 32768, "LL128": 576000, "Simple": 2 * MIB}[protocol]
    starts = accumulate(counts, initial=0)
    work = tuple(Work(k, *part, chunk) for k, part in enumerate(zip(starts, counts, strict=False)))
    values = {"mechanism": MECHANISMS[80], **given}
    plan = Plan("Ring", protocol, (0,) * n, work, rings=(tuple(range(n)),) * 24, **values)
    return Collective(name, n, count, 4), plan


def seconds(
    c: Collective,
    plan: Plan,
    bandwidth: float = 240e9,
    latency: float = 0.4e-6,
    extent: Extent = WRITTEN_IN_FULL,
) -> float:
    topology = with_blocks(switch(c.ranks, bandwidth, latency), plan.mechanism)
    return simulate(place(schedule_of(c, plan, extent), topology), "compiled").makespan


@pytest.mark.parametrize("name", ["all_reduce", "all_gather"])
def test_large_messages_reach_the_link_or_the_blocks(name):
    c, plan = call(name, 2048 * MIB, "Simple", mechanism=IDEAL)
    bus = c.size_bytes * c.bus_factor
    assert bus / seconds(c, plan) == pytest.approx(240e9, rel=0.02)
    slow = replace(IDEAL, rate=ByProtocol(5e9, 5e9, 5e9))
    # Every loop takes one pass more than it has sends: the data leaves the FIFO.
    sends = {"all_reduce": 14, "all_gather": 7}[name]
    bound = 24 * 5e9 * sends / (sends + 1)
    assert bus / seconds(c, replace(plan, mechanism=slow)) == pytest.approx(bound, rel=0.02)


def test_small_messages_cost_a_hop_a_step():
    c, plan = call("all_reduce", 8, "LL")
    mechanism = MECHANISMS[80]
    hop = mechanism.nvlink.sync.ll + 0.4e-6 + mechanism.step_cost.ll
    assert 14 * hop < seconds(c, plan) <= 15 * hop
    c, plan = call("all_reduce", 8, "Simple")
    hop = mechanism.nvlink.sync.simple + 0.4e-6 + mechanism.step_cost.simple
    # Two of the 15 passes a rank makes carry the only chunk; it waits for no empty one.
    assert 14 * hop <= seconds(c, plan) < 16 * hop


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nbytes", "protocol"), [(MIB // 2, "LL"), (MIB, "LL128"), (99 * MIB, "Simple")]
)
def test_folding_changes_nothing(nbytes, protocol):
    c, plan = call("all_reduce", nbytes, protocol)
    once, all_channels = (seconds(c, plan, extent=extent) for extent in (WRITTEN_IN_FULL, UNMERGED))
    assert once == pytest.approx(all_channels, rel=1e-9)
    assert len(schedule_of(c, plan)) * 10 < len(schedule_of(c, plan, UNMERGED))


@pytest.mark.parametrize("nbytes", [2**20, 4 * MIB, 16 * MIB])
def test_pieces_have_converged(nbytes):
    c, plan = call("all_reduce", nbytes, "LL128")
    finer = replace(plan.mechanism, most_pieces=32)
    fine = seconds(c, replace(plan, mechanism=finer))
    assert seconds(c, plan) == pytest.approx(fine, rel=0.05)


def test_blocks_of_ll_pause_between_steps_that_wait_for_no_lines():
    """A step of many waves takes the pause on top, one of a single line hides it."""
    pause = 0.3e-6
    for nbytes, added in ((4 * MIB, 14 * pause), (8, 0.0)):
        without, with_it = (
            seconds(
                *call("all_reduce", nbytes, "LL", mechanism=replace(MECHANISMS[90], step_gap=gap))
            )
            for gap in (0.0, pause)
        )
        assert with_it - without == pytest.approx(added, abs=0.25 * 14 * pause)


def test_threads_of_ll_pass_on_together_what_they_hold():
    """A chunk of one line or of 512 threads' lines takes the same; one of two waves longer."""
    c, plan = call("all_reduce", 8 * 16, "LL")
    wave = 0.9 * MECHANISMS[80].step_cost.ll  # seconds of its lines, which the step covers
    rate = ByProtocol(4096 / wave, 1e9, 1e9)
    mechanism = replace(MECHANISMS[80], rate=rate, further_store=1.0)
    few, wave, two = (
        seconds(
            replace(c, count=n // 4),
            replace(plan, work=(Work(0, 0, n // 4, 32768),), mechanism=mechanism),
        )
        for n in (8 * 16, 8 * 4096, 8 * 8192)
    )
    assert few - 1e-12 <= wave <= few + 1e-6
    assert two > wave + 0.7e-6


def test_lines_that_are_stored_twice_take_longer():
    """All hops of an all_gather but the first store a line for the user as well."""
    lines = 8192 / MECHANISMS[80].rate.ll  # seconds of a hop
    once, twice = (
        seconds(*call("all_gather", 8 * 24 * 8192, "LL", mechanism=mechanism), bandwidth=2e12)
        for mechanism in (replace(MECHANISMS[80], further_store=1.0), MECHANISMS[80])
    )
    assert twice - once == pytest.approx(6 * (MECHANISMS[80].further_store - 1) * lines, rel=0.35)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(
    ("name", "protocol", "again"),
    [("all_gather", "Simple", 0.5), ("all_gather", "LL", 0.0), ("reduce_scatter", "Simple", 0.0)],
)
def test_first_steps_out_of_place_copy_the_own_block_too(name, protocol, again, nodes):
    """What a block stores for its own rank takes its time, whatever links have to spare."""
    rate, count = 1e9, 2**14
    mechanism = replace(IDEAL, rate=ByProtocol(rate, rate, rate), copy_send=1.5)
    plan = small_plan(
        "Ring",
        protocol,
        nodes,
        4 // nodes,
        count,
        channels=1,
        mechanism=mechanism,
        slot_bytes=2**20,
    )
    out, within = (
        seconds(Collective(name, 4, count, 4, in_place=there), plan, 1e15, 0.0)
        for there in (False, True)
    )
    assert out - within == pytest.approx(again * 4 * count / rate, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "protocol", "cached", "nodes", "again"),
    [
        ("reduce_scatter", "Simple", False, 1, 0.5),
        ("reduce_scatter", "Simple", False, 4, 1.5),  # into FIFOs of proxies, too
        ("reduce_scatter", "Simple", True, 1, 0.0),
        ("reduce_scatter", "LL128", False, 1, 0.0),
        ("all_gather", "Simple", False, 1, 0.0),
        ("all_reduce", "Simple", False, 1, 0.0),
    ],
)
def test_sums_that_stay_in_a_gpu_take_longer_beyond_its_cache(name, protocol, cached, nodes, again):
    rate, count, times = 1e9, 2**14, []
    for further in (1.0, 1.5):
        mechanism = replace(IDEAL, rate=ByProtocol(rate, rate, rate), further_source=further)
        plan = small_plan(
            "Ring",
            protocol,
            nodes,
            4 // nodes,
            count,
            channels=1,
            mechanism=mechanism,
            slot_bytes=2**20,
        )
        c = Collective(name, 4, count, 4)
        times.append(seconds(c, replace(plan, cached=cached), 1e15, 0.0))
    assert times[1] - times[0] == pytest.approx(again * 4 * count / rate, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("nodes", [1, 4])
def test_credits_bound_the_run_ahead(nodes):
    """One chunk a slot: with few slots a sender waits for credits that take long to return."""
    late = LinkCost(ByProtocol(0, 0, 0), 20e-6)
    mechanism = replace(
        IDEAL, nvlink=late, network=replace(IDEAL.network, credit=20e-6), local_credit=0.0
    )
    c = Collective("broadcast", 4, 200 * 256, 4)
    plan = small_plan("Ring", "Simple", nodes, 4 // nodes, c.count, channels=1, mechanism=mechanism)
    times = [seconds(c, replace(plan, slots=slots), 1e9, 0.0) for slots in (1, 2, 8, 64)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.8 * times[1] > 3 * times[2]
    # 200 chunks of 1024 bytes; each slot is filled once a credit's journey and its own use.
    assert times[0] == pytest.approx(200 * 20e-6, rel=0.15)


def test_blocks_do_one_pass_after_the_other():
    c, plan = call("all_reduce", 64 * MIB, "Simple")
    made = schedule_of(c, plan)
    timeline = simulate(place(made, with_blocks(switch(8, 240e9), plan.mechanism)), "compiled")
    channel = made.style_column("channel")
    mine = np.flatnonzero((made.src == 3) & (channel == 0) & (made.amount > 0))
    mine = mine[np.argsort(timeline.start[mine], kind="stable")]
    own = np.array([made.styles[int(s)].stream != "keep" for s in made.style[mine]])
    mine = mine[own]
    assert (timeline.start[mine][1:] >= timeline.end[mine][:-1] * (1 - 1e-12)).all()


def test_rows_are_few_and_wait_little():
    c, plan = call("all_reduce", 64 * MIB, "Simple")
    made = schedule_of(c, plan)
    assert len(made) < 1000
    assert IN_ORDER in made.lags


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "local"), [(1, 8), (4, 4)])
@pytest.mark.parametrize("name", ["all_gather", "all_reduce"])
@pytest.mark.parametrize(("protocol", "piece"), [("LL", 4096), ("LL128", 1920)])
def test_more_bytes_take_no_less_time_in_however_many_pieces(protocol, piece, name, nodes, local):
    """A step of LL128 costs the same in one; LL passes on whole waves, then what is left."""
    times = []
    for quarters in (1, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 34, 48, 64):
        count = quarters * piece // 16 // 4 * 4
        share = count * nodes * local if name == "all_reduce" else count
        plan = small_plan(
            "Ring",
            protocol,
            nodes,
            local,
            share,
            channels=1,
            chunk=4 * count,
            slot_bytes=4 * count,
            mechanism=MECHANISMS[90],
        )
        c = collective(name, nodes * local, share)
        times.append(seconds(c, plan, 25e9, 1e-6))
    slack = {"LL": 1e-12, "LL128": 0.02}[protocol]  # warps of LL128 have equal parts
    assert all(more >= (1 - slack) * less for less, more in pairwise(times))


def test_a_step_of_ll128_costs_its_block_all_of_it_in_one_piece_too():
    c, ranks = collective("all_gather", 8, 480), 8
    plan = small_plan(
        "Ring",
        "LL128",
        1,
        8,
        480,
        channels=1,
        chunk=1920,
        slot_bytes=1920,
        mechanism=MECHANISMS[80],
    )
    least = (ranks - 1) * MECHANISMS[80].step_cost.ll128
    assert least < seconds(c, plan, 25e9, 1e-6) < least + ranks * 3e-6  # hops besides
