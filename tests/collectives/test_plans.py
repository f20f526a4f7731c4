"""MSCCL++'s execution plans: read into schedules that verify, written and read again."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from netsim.base.errors import NetsimError, ScenarioError
from netsim.collectives.collective import HAS_IN_PLACE, CollectiveError, collective_of
from netsim.collectives.msccl import MOST_OPERATIONS, PlanFile, algorithm
from netsim.collectives.table import ALGORITHMS, build
from netsim.collectives.verify import RaceError, VerificationError, check_races, verify
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.report.rows import run
from netsim.topology.routing import switch
from tests.cli.command import netsim

Json = dict[str, Any]
MEMORY = {"channel_type": "memory"}
NOP = {"name": "nop"}


def local(letter: str, index: int, size: int = 1) -> Json:
    return {"type": letter, "index": index, "size": size}


def far(buffer: int, index: int, size: int = 1) -> Json:
    return {"buffer_id": buffer, "index": index, "size": size}


def op(name: str, sources: list[Json], targets: list[Json], **more: object) -> Json:
    return {"name": name, "src_buff": sources, "dst_buff": targets, **more}


def sync(name: str, ids: list[int], kind: str = "memory") -> Json:
    return {"name": name, "channel_ids": ids, "channel_type": kind}


def block(number: int, peers: int, *ops: Json, kind: str = "memory", buffers: int = -1) -> Json:
    """A thread block with channels to all peers, and their buffers."""
    refs = list(range(peers if buffers < 0 else buffers))
    return {
        "id": number,
        "ops": list(ops),
        "channels": [{"channel_type": kind, "channel_ids": list(range(peers))}],
        "remote_buffer_refs": [{"access_channel_type": kind, "remote_buffer_ids": refs}],
    }


def gpu(
    rank: int, ranks: int, chunks: tuple[int, int, int], blocks: list[Json], **more: object
) -> Json:
    """A GPU joined to all others by a channel each, whose buffers are of `letters`."""
    given: Json = {"kind": "memory", "letters": "i", "semaphores": [], "switch": ""} | more
    peers = [r for r in range(ranks) if r != rank]
    channels = [{"channel_type": given["kind"], "connected_to": peers}]
    if given["switch"]:
        group = {"size": chunks[0], "ranks": list(range(ranks))}
        one = {"channel_type": "switch", "buffer_type": given["switch"], "rank_groups": [group]}
        channels.append(one)
    return {
        "id": rank,
        **dict(zip(("input_chunks", "output_chunks", "scratch_chunks"), chunks, strict=True)),
        "threadblocks": blocks,
        "channels": channels,
        "remote_buffers": [
            {"rank": peer, "type": letter, "access_channel_types": [given["kind"]]}
            for letter in given["letters"]
            for peer in peers
        ],
        "semaphores": [{"init_value": value} for value in given["semaphores"]],
    }


def plan(collective: str, gpus: list[Json], protocol: str = "Simple", in_place: bool = True) -> str:
    about = {"name": "x", "collective": collective, "protocol": protocol, "inplace": in_place}
    return json.dumps({**about, "gpus": gpus, "num_threads_per_block": 1024})


def reading(n: int, fused: bool = True) -> str:
    """All-reduce: each GPU adds its chunk up from the memory of all, and writes it there."""
    gpus = []
    for rank in range(n):
        ids = list(range(n - 1))
        ready = [sync("rlxsignal", ids), sync("rlxwait", ids), NOP]
        done = [NOP, sync("signal", ids), sync("wait", ids), NOP]
        mine, theirs = local("i", rank), [far(k, rank) for k in ids]
        work = [op("rres", [mine, *theirs], [mine, *theirs], **MEMORY)]
        if not fused:
            work = [op("rre", [mine, *theirs], [mine], **MEMORY), NOP]
            work += [op("put", [mine] * (n - 1), theirs, **MEMORY)]
        gpus.append(gpu(rank, n, (n, n, 0), [block(0, n - 1, *ready, *work, *done)]))
    return plan("allreduce", gpus)


def packets(n: int) -> str:
    """All-reduce in packets: what is sent tells by its flags that it is there."""
    gpus = []
    for rank in range(n):
        peers = [r for r in range(n) if r != rank]
        slot = {peer: [r for r in range(n) if r != peer].index(rank) for peer in peers}
        sent = [
            op("ppkt", [local("i", peer)], [far(k, slot[peer])], **MEMORY)
            for k, peer in enumerate(peers)
        ]
        came = [local("s", k) for k in range(n - 1)]
        to = [far(k, n - 1 + rank) for k in range(n - 1)]
        mine = local("i", rank)
        added = op("respkt", [mine, *came], [mine, *to], **MEMORY)
        took = [op("upkt", [local("s", n - 1 + p)], [local("i", p)]) for p in peers]
        blocks = [block(0, n - 1, *sent, added), {**block(1, 0, *took), "channels": []}]
        gpus.append(gpu(rank, n, (n, n, 2 * n - 1), blocks, letters="s"))
    return plan("allreduce", gpus, "LL")


def ports(n: int, name: str = "pwsf") -> str:
    """All-gather over proxies, by two thread blocks that meet at a barrier."""
    gpus = []
    meet = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}
    for rank in range(n):
        ids = list(range(n - 1))
        targets = [far(k, rank) for k in ids]
        more = {"channel_ids": ids, "channel_type": "port"}
        put = op(name, [local("i", 0)] * (n - 1), targets, **more)
        signals = [sync("signal", ids, "port")] if name == "put" else []
        out = block(0, n - 1, put, *signals, meet, kind="port")
        into = block(1, n - 1, sync("wait", ids, "port"), NOP, meet, kind="port")
        gpus.append(gpu(rank, n, (1, n, 0), [out, into], kind="port", letters="o"))
    return plan("allgather", gpus)


def piped(n: int, unit: int = 256) -> str:
    """All-reduce by the switch in pieces: three blocks hand them on by semaphores."""
    gpus = []
    loop = {"unit_size": unit, "num_chunks": 1}
    for rank in range(n):
        ids = list(range(n - 1))
        total = {"switch_channel_id": 0, "index": rank, "size": 1}
        told = [sync("signal", ids), sync("wait", ids), NOP]
        into = [op("copy", [local("i", k)], [local("s", k)]) for k in range(n)]
        out = [op("copy", [local("s", k)], [local("o", k)]) for k in range(n)]
        added = op("glres", [total], [total], channel_type="switch")
        parts = [
            [*into, NOP, *told, sem("release", 0)],
            [sem("acquire", 0), added, NOP, *told, sem("release", 1)],
            [sem("acquire", 1), *out],
        ]
        blocks = [
            block(t, 0, {"name": "pipeline", "iter_context": loop, "ops": ops})
            for t, ops in enumerate(parts)
        ]
        for t in (0, 1):  # a channel of its own for each of the two
            ways = list(range(t * (n - 1), (t + 1) * (n - 1)))
            blocks[t]["channels"] = [{"channel_type": "memory", "channel_ids": ways}]
        blocks[1]["channels"].append({"channel_type": "switch", "channel_ids": [0]})
        made = gpu(rank, n, (n, n, n), blocks, semaphores=[0, 0], switch="s")
        made["channels"][0]["connected_to"] *= 2
        gpus.append(made)
    return plan("allreduce", gpus, in_place=False)


def sem(what: str, number: int) -> Json:
    return {"name": f"sem_{what}", "semaphore_ids": [number]}


def fetched(n: int) -> str:
    """All-gather by reading, a chunk shared by two thread blocks."""
    gpus = []
    for rank in range(n):
        peers, ids = [r for r in range(n) if r != rank], list(range(n - 1))
        blocks = []
        for t in (0, 1):
            part = {"tbg_info": {"tb_id": t, "tbg_size": 2}}
            gets = [
                op("get", [far(k, 0)], [local("o", p)], **MEMORY, **part)
                for k, p in enumerate(peers)
            ]
            ready = [sync("signal", ids), sync("wait", ids), NOP]
            blocks.append(block(t, n - 1, *ready, *gets))
            ways = list(range(t * (n - 1), (t + 1) * (n - 1)))
            blocks[-1]["channels"] = [{"channel_type": "memory", "channel_ids": ways}]
        blocks[0]["ops"].append(op("copy", [local("i", 0)], [local("o", rank)]))
        made = gpu(rank, n, (1, n, 0), blocks)
        made["channels"][0]["connected_to"] *= 2
        gpus.append(made)
    return plan("allgather", gpus, in_place=False)


PLANS = {
    **{f"reading-{n}": ("all_reduce", n, reading(n)) for n in (2, 3, 5, 8)},
    "put apart": ("all_reduce", 4, reading(4, fused=False)),
    **{f"packets-{n}": ("all_reduce", n, packets(n)) for n in (2, 4, 7)},
    **{f"ports-{n}": ("all_gather", n, ports(n)) for n in (2, 5)},
    **{f"ports, {kind}": ("all_gather", 3, ports(3, kind)) for kind in ("put", "pws")},
    **{f"piped-{n}": ("all_reduce", n, piped(n)) for n in (2, 4)},
    **{f"fetched-{n}": ("all_gather", n, fetched(n)) for n in (2, 3)},
}


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", PLANS)
def test_plans_do_what_they_are_for(name: str, in_place: bool) -> None:
    collective, ranks, text = PLANS[name]
    read = algorithm("x.json", text)
    for size in (4 * ranks, 16 * ranks, 4 * (1024 * ranks + 4 * ranks - 4)):
        wanted = collective_of(collective, ranks, size, in_place=in_place)
        made = read(wanted)
        verify(made, wanted)
        check_races(made, wanted)


def test_packets_take_their_flags_along() -> None:
    wanted = collective_of("all_reduce", 2, 2**20, in_place=True)
    taken = {
        name: simulate(
            place(algorithm("x.json", text)(wanted), switch(2, bandwidth=1e9, latency=0.0))
        ).makespan
        for name, text in (("plain", reading(2)), ("packets", packets(2)))
    }
    assert taken["plain"] == pytest.approx(2**20 / 1e9)  # half of it is read, half written
    assert taken["packets"] == pytest.approx(2 * 2**20 / 1e9)


def test_what_is_fetched_is_asked_for_first() -> None:
    made = algorithm("x.json", fetched(2))(collective_of("all_gather", 2, 2**21))
    found = simulate(place(made, switch(2, bandwidth=1e9, latency=5e-6)))
    ready, answered = 5e-6, 2 * 5e-6
    assert found.makespan == pytest.approx(ready + 2**20 / 1e9 + answered)


def without(text: str, name: str) -> str:
    """A plan with operations of a name left out."""
    given = json.loads(text)
    for one in given["gpus"]:
        for tb in one["threadblocks"]:
            tb["ops"] = [o for o in tb["ops"] if o["name"] != name]
    return json.dumps(given)


def test_races_and_deadlocks_are_found() -> None:
    early = without(without(reading(3), "rlxsignal"), "rlxwait")  # while the input is copied
    apart = collective_of("all_reduce", 3, 3 * 64)
    made = algorithm("x.json", early)(apart)
    verify(made, apart)  # in the order of the file all is well
    with pytest.raises(RaceError):
        check_races(made, apart)
    unread = algorithm("x.json", without(packets(3), "upkt"))(apart)
    with pytest.raises(VerificationError, match="missing the contribution"):
        verify(unread, apart)
    wanted = collective_of("all_gather", 3, 3 * 64, in_place=True)
    with pytest.raises(CollectiveError, match="gpu 0, threadblock 0, op 2 waits for what never"):
        algorithm("x.json", ports(3, "put").replace('"signal"', '"nop"'))(wanted)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"collective": "allreduce"', '"collective": "allreducee"', "did you mean allreduce"),
        ('"name": "rres"', '"name": "rrs"', "gpus.0.threadblocks.0.ops.3.name: expected one of"),
        (
            '"protocol": "Simple"',
            '"protocol": "LL128"',
            "1:54: protocol: expected one of Simple, LL",
        ),
        ('"input_chunks": 2', '"input_chunks": -2', "gpus.0.input_chunks: expected at least 0"),
        (
            '"index": 0, "size": 1',
            '"index": 0, "size": "one"',
            "src_buff.0.size: expected a whole number, got 'one'",
        ),
        ('"input_chunks": 2', f'"input_chunks": {2**40}', "1:116: gpus.0.input_chunks: exp"),
        ('"index": 0, "size": 1', f'"index": 0, "size": {2**40}', "src_buff.0.size: expected at m"),
        ('"index": 0, "size": 1', '"index": 0, "size": 0', "size: expected at least 1, got 0"),
        ('"buffer_id": 0', '"buffer_id": 4', "gpu 0, threadblock 0, op 3: expected one of 1"),
        ('"channel_ids": [0], "channel_type"', '"channel_ids": [3], "channel_type"', "op 0: exp"),
        ('"connected_to": [1]', '"connected_to": [2]', "gpu 0: expected one of 2 entries, got 2"),
        ('"id": 1', '"id": 2', "expected ids 0..1"),
        ('"size": 1}, {"buffer_id"', '"size": 2}, {"buffer_id"', "rres: expected equal sizes"),
        ('{"name": "x"', '{"name": "x",,', "x.json:1:"),
    ],
)
def test_mistakes_are_told(old: str, new: str, message: str) -> None:
    text = reading(2)
    assert old in text
    with pytest.raises(NetsimError) as raised:
        algorithm("x.json", text.replace(old, new, 1))
    assert message in str(raised.value)
    assert "x.json" in str(raised.value)


COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "sendrecv",
)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "algorithm_name"), [(name, one) for name in COLLECTIVES for one in ALGORITHMS[name]]
)
def test_what_is_written_is_read_again(name: str, algorithm_name: str) -> None:
    for ranks, in_place in (*product((2, 3, 6, 8), [False]), (3, True), (4, True)):
        if in_place and name not in HAS_IN_PLACE:
            continue
        collective = collective_of(name, ranks, ranks * 4 * 840, in_place=in_place)
        try:
            made = build(collective, algorithm_name)
        except CollectiveError:
            continue  # other numbers of ranks, or a graph
        again = algorithm("x.json", PlanFile("x", made, collective).text())(collective)
        verify(again, collective)
        check_races(again, collective)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ring", "halving-doubling", "direct", "tree"])
def test_what_is_read_again_takes_as_long(name: str) -> None:
    collective = collective_of("all_reduce", 8, 2**20)
    made = build(collective, name)
    again = algorithm("x.json", PlanFile("x", made, collective).text())(collective)
    one, other = (
        simulate(place(s, switch(8, bandwidth=100e9, latency=1e-6))) for s in (made, again)
    )
    assert other.makespan == pytest.approx(one.makespan, rel=1e-9)


def scenario(folder: Path, algorithm_name: str, cluster: str) -> Path:
    path = folder / "s.yaml"
    path.write_text(
        f"cluster: {{{cluster}}}\n"
        f"workload: {{collective: all_reduce, algorithm: {algorithm_name}, sizes: 1MiB}}\n"
        "outputs: [csv, mscclpp]\n"
    )
    return path


SWITCH = "graph: {kind: switch, gpus: 16, bandwidth: 50GB/s, latency: 1us}"


@pytest.mark.slow
def test_a_run_writes_a_plan_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = netsim(capsys, "run", scenario(tmp_path, "ring", SWITCH), "-o", tmp_path / "out")
    assert first.code == 0, first.err
    assert f"in a thread block, MSCCL++ takes {MOST_OPERATIONS})" in first.out + first.err
    (tmp_path / "again.json").write_text((tmp_path / "out" / "plan.json").read_text())
    names = "ring", "again.json"
    one, other = (run(str(scenario(tmp_path, name, SWITCH)))[0] for name in names)
    assert other.time_us == pytest.approx(one.time_us, rel=0.01)


def test_a_wrong_plan_is_refused_with_its_place(tmp_path: Path) -> None:
    text = without(reading(8), "rlxwait")
    (tmp_path / "mine.json").write_text(text)
    where = r"s.yaml:2:\d+: workload.algorithm: mine.json, gpu 0, threadblock 0, op 2: all_reduce"
    with pytest.raises(ScenarioError, match=where):
        run(str(scenario(tmp_path, "mine.json", "machine: dgx-h100")))


def test_plans_call_collectives_as_the_language_of_mscclpp_does() -> None:
    """The names of python/mscclpp/language/collectives.py."""
    assert PlanFile.names == {
        "all_reduce": "allreduce",
        "all_gather": "allgather",
        "reduce_scatter": "reducescatter",
        "broadcast": "broadcast",
        "reduce": "reduce",
        "alltoall": "alltoall",
        "sendrecv": "sendrecv",
    }
