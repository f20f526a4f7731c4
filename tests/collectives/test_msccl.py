"""MSCCL's XML: read into schedules that verify, written and read again."""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from netsim.base.errors import ScenarioError
from netsim.collectives import table
from netsim.collectives.collective import HAS_IN_PLACE, Collective, CollectiveError, collective_of
from netsim.collectives.msccl import AlgoFile, algorithm
from netsim.collectives.plans import BlockPlan
from netsim.collectives.table import ALGORITHMS, build
from netsim.collectives.verify import check_races, verify
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.report.rows import run
from netsim.schedule.schedule import TRANSFER, Schedule
from netsim.topology.routing import switch
from tests.cli.command import netsim

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall")


NONE = (-1, -1)


def step(
    number: int, kind: str, source: str, target: str, after: tuple[int, int] = (-1, -1)
) -> str:
    (a, i), (b, j) = (source[0], source[1:]), (target[0], target[1:])
    return (
        f'<step s="{number}" type="{kind}" srcbuf="{a}" srcoff="{i}" dstbuf="{b}" dstoff="{j}" '
        f'cnt="1" depid="{after[0]}" deps="{after[1]}" hasdep="0"/>'
    )


def block(number: int, send: int, receive: int, *steps: str, channel: int = 0) -> str:
    return (
        f'<tb id="{number}" send="{send}" recv="{receive}" chan="{channel}">{"".join(steps)}</tb>'
    )


def algo(coll: str, gpus: list[str], chunks: int, **more: object) -> str:
    given = {"proto": "Simple", "inplace": 1, "outofplace": 0, "scratch": 0} | more
    inside = "".join(
        f'<gpu id="{n}" i_chunks="{chunks}" o_chunks="0" s_chunks="{given["scratch"]}">{text}</gpu>'
        for n, text in enumerate(gpus)
    )
    return (
        f'<algo name="x" nchannels="1" nchunksperloop="{chunks}" ngpus="{len(gpus)}" coll="{coll}" '
        f'proto="{given["proto"]}" inplace="{given["inplace"]}" outofplace="{given["outofplace"]}">'
        f"{inside}</algo>"
    )


def ring(n: int) -> str:
    """A ring all-reduce in place, with fused steps that store nothing on the way."""
    gpus = []
    for rank in range(n):
        at = [f"i{(rank - k) % n}" for k in range(2 * n)]
        kinds = ["s", *["rrs"] * (n - 2), "rrcs", *["rcs"] * (n - 2), "r"]
        steps = [step(k, kind, at[k], at[k]) for k, kind in enumerate(kinds)]
        gpus.append(block(0, (rank + 1) % n, (rank - 1) % n, *steps))
    return algo("allreduce", gpus, n)


def pairs(n: int, **more: object) -> str:
    """All-reduce of one chunk: everyone sends it to all, who add it up in scratch memory."""
    gpus = []
    for rank in range(n):
        others = [r for r in range(n) if r != rank]
        text = [
            block(k, peer, peer, step(0, "s", "i0", f"s{rank}"), step(1, "r", "i0", f"s{peer}"))
            for k, peer in enumerate(others)
        ]
        waits = [step(k, "nop", "i0", "o0", (k, 1)) for k in range(len(others))]
        adds = [step(len(waits) + k, "re", f"s{peer}", "i0") for k, peer in enumerate(others)]
        gpus.append("".join([*text, block(n, -1, -1, *waits, *adds)]))
    return algo("allreduce", gpus, 1, scratch=n, **more)


@pytest.mark.parametrize(("count", "in_place"), list(product((1, 7, 640), (False, True))))
@pytest.mark.parametrize("text", [ring(2), ring(3), ring(5), pairs(2), pairs(4)])
def test_files_do_what_they_are_for(text: str, count: int, in_place: bool) -> None:
    ranks = text.count("<gpu ")
    collective = collective_of("all_reduce", ranks, 4 * count, in_place=in_place)
    made = algorithm("x.xml", text)(collective)
    verify(made, collective)
    check_races(made, collective)


@pytest.mark.sample(11)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "algorithm_name"), [(name, one) for name in COLLECTIVES for one in ALGORITHMS[name]]
)
def test_what_is_written_is_read_again(name: str, algorithm_name: str) -> None:
    for ranks, in_place in product((2, 4, 6), (False, True)):
        if in_place and name not in HAS_IN_PLACE:
            continue
        collective = collective_of(name, ranks, ranks * 4 * 5040, in_place=in_place)
        try:
            made = build(collective, algorithm_name)
        except CollectiveError:
            continue  # other numbers of ranks, or a graph
        again = algorithm("x.xml", AlgoFile("x", made, collective).text())(collective)
        verify(again, collective)
        check_races(again, collective)
        one, other = (
            np.bincount(s.src[moves] * ranks + s.dst[moves], s.amount[moves], ranks**2)
            for s in (made, again)
            for moves in [s.kind == TRANSFER]
        )
        assert one == pytest.approx(other)


def test_what_is_read_again_takes_as_long() -> None:
    for name in ("ring", "halving-doubling", "direct"):
        collective = collective_of("all_reduce", 8, 2**20)
        made = build(collective, name)
        again = algorithm("x.xml", AlgoFile("x", made, collective).text())(collective)
        one, other = (
            simulate(place(s, switch(8, bandwidth=100e9, latency=1e-6))) for s in (made, again)
        )
        assert other.makespan == pytest.approx(one.makespan, rel=1e-9)


def test_protocols_have_their_bytes_on_the_wire() -> None:
    collective = collective_of("all_reduce", 2, 2**20)
    for proto, wire in (("Simple", 1.0), ("LL", 2.0), ("LL128", 16 / 15)):
        made = algorithm("x.xml", pairs(2, proto=proto))(collective)
        found = simulate(place(made, switch(2, bandwidth=1e9, latency=0.0)))
        assert found.makespan == pytest.approx(2**20 * wire / 1e9)


def test_a_fifo_holds_eight_messages() -> None:
    sends = [step(k, "s", "i0", "o0") for k in range(9)]
    takes = [step(k, "r", "i0", "o0") for k in range(9)]
    gpus = [block(0, 1, -1, *sends), block(0, -1, 0, *takes)]
    text = algo("broadcast", gpus, 1, inplace=0, outofplace=1)
    made = algorithm("x.xml", text)(collective_of("broadcast", 2, 64))
    moves = np.flatnonzero(made.kind == TRANSFER)
    assert [len(made.dependencies(row)) for row in moves.tolist()] == [0, *[1] * 7, 2]


UP_TO = "expected a whole number up to 1000000"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<algo", "<alga", "mismatched tag"),
        ('coll="allreduce"', 'coll="all"', "expected <algo coll=…> of one of allreduce"),
        ('type="re"', 'type="add"', "gpu 0, tb 2, step 1: expected a type of r, rcs"),
        ('srcoff="0"', 'srcoff="?"', f"<step srcoff=…>: {UP_TO}, got '?'"),
        ('proto="Simple"', 'proto="LL64"', "expected a proto of Simple, LL, LL128"),
        ('send="1"', 'send="2"', "gpu 0, tb 0: send: expected another GPU, got 2"),
        ('send="-1"', 'send="-2"', "gpu 0, tb 2: send: expected another GPU, got -2"),
        ('nchunksperloop="1"', 'nchunksperloop="0"', "nchunksperloop from 1 up"),
        ('ngpus="2"', 'ngpus="3"', "expected a gpu for each of 0..2"),
        ('depid="0" deps="1"', 'depid="9" deps="1"', "gpu 0, tb 2, step 0 waits for what never"),
        ('s_chunks="2"', 's_chunks="two"', "<gpu s_chunks=…>: expected a whole number"),
        ('s_chunks="2"', f's_chunks="{2**40}"', f"<gpu s_chunks=…>: {UP_TO}"),
        ('cnt="1"', f'cnt="{2**40}"', f"<step cnt=…>: {UP_TO}, got '{2**40}'"),
        ('ngpus="2"', f'ngpus="{2**40}"', f"<algo ngpus=…>: {UP_TO}, got"),
        ('nchunksperloop="1"', 'nchunksperloop="1000001"', f"{UP_TO}, got '1000001'"),
        ('srcoff="0"', 'srcoff="-3"', "tb 0, step 0: expected chunks from 0 up"),
    ],
)
def test_mistakes_are_told(old: str, new: str, message: str) -> None:
    text = pairs(2)
    assert old in text
    with pytest.raises(CollectiveError, match=r"x\.xml: ") as raised:
        algorithm("x.xml", text.replace(old, new, 1))(collective_of("all_reduce", 2, 64))
    assert message in str(raised.value)


def test_a_file_is_for_its_collective_and_ranks() -> None:
    with pytest.raises(CollectiveError, match=r"is all_reduce on 2 GPUs, this is all_gather on"):
        algorithm("x.xml", pairs(2))(collective_of("all_gather", 2, 64))


SWITCH = "graph: {kind: switch, gpus: 8, bandwidth: 50GB/s, latency: 1us}"


def scenario(folder: Path, algorithm_name: str, cluster: str = "machine: dgx-h100") -> Path:
    path = folder / "s.yaml"
    path.write_text(
        f"cluster: {{{cluster}}}\n"
        f"workload: {{collective: all_reduce, algorithm: {algorithm_name}, sizes: 1MiB}}\n"
        "outputs: [csv, msccl]\n"
    )
    return path


def test_a_scenario_runs_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.xml").write_text(pairs(8))
    rows = run(str(scenario(tmp_path, "mine.xml")))
    assert rows[0].algorithm == "mine.xml"
    assert rows[0].bound_by.startswith("NVLink")
    (tmp_path / "mine.xml").write_text(pairs(8).replace('type="re"', 'type="cpy"', 1))
    with pytest.raises(ScenarioError, match=r"s.yaml:2:\d+: workload.algorithm: mine.xml: all_"):
        run(str(scenario(tmp_path, "mine.xml")))


def test_a_run_writes_a_file_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = netsim(capsys, "run", scenario(tmp_path, "ring", SWITCH), "-o", tmp_path / "out")
    assert first.code == 0, first.err
    (tmp_path / "again.xml").write_text((tmp_path / "out" / "algorithm.xml").read_text())
    names = "ring", "again.xml"
    one, other = (run(str(scenario(tmp_path, name, SWITCH)))[0] for name in names)
    assert other.time_us == pytest.approx(one.time_us, rel=0.01)


def test_what_reduces_in_switches_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = netsim(capsys, "run", scenario(tmp_path, "NVLS"), "-o", tmp_path / "out")
    assert found.code == 2
    assert "outputs: msccl: MSCCL has sends and copies only" in found.err


@pytest.mark.parametrize("name", COLLECTIVES)
def test_written_files_name_the_collective_as_rccl_reads_it(name: str) -> None:
    """The names that RCCL's src/misc/msccl/msccl_parser.cc compares with."""
    names = {"allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall"}
    collective = collective_of(name, 4, 4096)
    made = build(collective, next(iter(ALGORITHMS[name])))
    (found,) = re.findall(r'coll="(\w+)"', AlgoFile("x", made, collective).text())
    assert found in names
    assert found == name.replace("_", "")


@pytest.mark.slow
def test_a_file_is_built_once_for_each_size_and_placement_of_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.xml").write_text(pairs(8))
    built: list[Collective] = []
    whole = BlockPlan.__call__

    def counted(plan: BlockPlan, collective: Collective) -> Schedule:
        built.append(collective)
        return whole(plan, collective)

    monkeypatch.setattr(table, "_BUILT", {})
    monkeypatch.setattr(BlockPlan, "__call__", counted)
    run(str(scenario(tmp_path, "mine.xml")))
    assert len(built) == len(set(built)) == 2, "in place and out of place"


def test_schedules_of_files_are_kept_up_to_a_number_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: dict[object, Schedule] = {}
    monkeypatch.setattr(table, "_BUILT", kept)
    key = table.own_algorithm_key("kept.xml", pairs(2))
    rows = len(build(collective_of("all_reduce", 2, 64), key))
    monkeypatch.setattr(table, "MOST_KEPT_ROWS", 2 * rows)
    for size in (128, 256, 512):
        made = build(collective_of("all_reduce", 2, size), key)
        assert build(collective_of("all_reduce", 2, size), key) is made
    assert [collective.size_bytes for _, collective in kept] == [256, 512]


@pytest.mark.slow
def test_a_file_with_more_steps_than_rccl_takes_says_so() -> None:
    for ranks, limits in ((4, ""), (64, "126 steps in a thread block, RCCL takes 64")):
        collective = collective_of("all_reduce", ranks, ranks * 4096)
        sheet = AlgoFile("x", build(collective, "ring"), collective)
        assert sheet.beyond_limits() == limits
