"""GOAL files: read in both forms, run on clusters and graphs, and written from what netsim runs."""

from pathlib import Path

import pytest

from netsim.base.errors import InputError
from netsim.report.rows import run
from netsim.scenario.cells import expand
from netsim.trace.goal import read_goal, replayed
from netsim.training.resolve import resolve_step
from netsim.training.run import simulate_step
from netsim.yamlio.read import Source
from tests.cli.command import netsim

APPLICATION = """\
num_ranks 3
/* ranks of
   a small application */
rank 0 {
  work: calc 1000          // ns
  out: send 100000b to 1 tag 7 cpu 1 nic 2
  out requires work
  more: calc 500 cpu 2
  more irequires out
  send 10b to 2
  recv 64b from 2 tag 3
}
rank 1 {
  l1: recv 100000b from 0 tag 7
  l2: calc 2000
  l2 requires l1
  send 5b to 2 tag 9
}
rank 2 {
  recv 10b from 0
  recv 5b from 1 tag 9
  send 64b to 0 tag 3
}
"""
FILES = Path(__file__).parents[1] / "data" / "goal"
OF_SMALL = (FILES / "small.bin").read_bytes()  # what LogGOPSim's own txt2bin makes of small.goal
LINKS = {"graph": {"kind": "switch", "gpus": 4, "bandwidth": "10GB/s", "latency": "2us"}}


@pytest.fixture
def written(tmp_path):
    def write(text: str | bytes, suffix: str = ".goal"):
        path = tmp_path / f"app{len([*tmp_path.iterdir()])}{suffix}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def step_of(path, cluster=LINKS, **work):
    data = {"name": "app", "cluster": cluster, "workload": {"trace": str(path), **work}}
    return resolve_step(expand(Source("x.yaml", data))[0])


def test_the_binary_form_says_the_same(written) -> None:
    text, binary = read_goal(FILES / "small.goal"), read_goal(FILES / "small.bin")
    assert (text.table[:, :-1] == binary.table[:, :-1]).all()
    assert sorted(text.waits) == sorted(binary.waits)


def test_times_by_hand(written) -> None:
    """A send of 100 kB behind 1 us of work at 10 GB/s over two links of a switch, then 2 us."""
    text = (
        "num_ranks 2\nrank 0 {\na: calc 1000\nb: send 100000b to 1\nb requires a\n}\n"
        "rank 1 {\na: recv 100000b from 0\nb: calc 2000\nb requires a\nc: calc 100 cpu 1\n}\n"
    )
    alone = "num_ranks 2\nrank 0 {\nsend 0b to 1\n}\nrank 1 {\nrecv 0b from 0\n}\n"
    latency = simulate_step(step_of(written(alone))).seconds
    assert latency > 0
    assert simulate_step(step_of(written(text))).seconds == pytest.approx(13e-6 + latency)


def test_who_waits_for_a_start_and_processors_beside_each_other(written) -> None:
    body = "a: calc 1000\nb: calc 3000 cpu 1\n"
    for more, seconds in (("", 3e-6), ("b requires a\n", 4e-6), ("b irequires a\n", 3e-6)):
        step = step_of(written("num_ranks 1\nrank 0 {\n" + body + more + "}\n"))
        assert simulate_step(step).seconds == pytest.approx(seconds)
    shared = "num_ranks 1\nrank 0 {\na: calc 1000\nb: calc 3000\n}\n"
    assert simulate_step(step_of(written(shared))).seconds == pytest.approx(4e-6)
    slow = step_of(written(shared), stragglers=[{"rank": 0, "slowdown": 2}])
    assert simulate_step(slow).seconds == pytest.approx(8e-6)


def test_large_messages_may_wait_for_their_receive(written) -> None:
    text = (
        "num_ranks 2\nrank 0 {\nsend 100000b to 1\n}\n"
        "rank 1 {\na: calc 50000\nb: recv 100000b from 0\nb requires a\n}\n"
    )
    path = written(text)
    eager, late = (simulate_step(step_of(path, **more)) for more in ({}, {"rendezvous": "64KiB"}))
    assert eager.seconds == pytest.approx(50e-6)
    assert late.seconds > 60e-6
    small = simulate_step(step_of(path, rendezvous="1MiB"))
    assert small.seconds == eager.seconds


def test_runs_on_a_cluster_with_fewer_ranks_than_gpus(written, tmp_path) -> None:
    scenario = tmp_path / "s.yaml"
    path = written(APPLICATION)
    scenario.write_text(
        f"cluster: {{machine: dgx-h100, nodes: 1}}\nworkload: {{trace: {path}}}\noutputs: [csv]\n"
    )
    (row,) = run(scenario)
    (named,) = run(str(path), ["cluster.machine=dgx-h100", "cluster.nodes=1"])
    assert row.ranks == 3
    assert row.step_time_us == named.step_time_us > 3
    assert row.details["computing_us"] > 0
    assert row.approximation == ""


RANK = "num_ranks 2\nrank 0 {\n"
WRONG = [
    ("", "ends without num_ranks"),
    ("rank 0 {\n}\n", ":1: expected another rank below 0"),
    ("num_ranks 0\n", ":1: expected 1 to"),
    (RANK + "}\nrank 2 {\n}\n", ":4: expected another rank below 2, got 2"),
    (RANK + "send 10 to 1\n}\n", ":3: expected send Nb to RANK"),
    (RANK + "send 10b from 1\n}\n", ":3: expected send Nb to RANK"),
    (RANK + "calc 99999999999999999999\n}\n", "sizes to 2^53, tags of 32 bits"),
    (RANK + "a: calc 1\na: calc 2\n}\n", ":4: label a is already used"),
    (RANK + "a: calc 1\na requires b\n}\n", ":4: rank 0 has no operation b above"),
    (RANK + "calc 1\n", "ends without } of rank 0"),
    (RANK + "}\n", "has no operations"),
    (RANK + "send 1b to 2\n}\n", "; ranks below 2, sizes to 2^53"),
    (RANK + "send 1b to 1\n}\n", ":3: rank 0 sends rank 1 1 messages with tag 0, of which it "),
    (RANK + "recv 1b from -1\n}\n", ":3: gets nothing"),
    (RANK + "recv 1b from -2\n}\n", ":3: expected send Nb to RANK"),
    (RANK + "send 1b to 1\n}\nrank 1 {\nrecv 1b from -1 tag 5\n}\n", ":3: is not received"),
    (RANK + "a: calc 1\nb: calc 1\na requires b\nb requires a\n}\n", "wait for each other"),
    ("whatever\n", ":1: expected num_ranks N or rank N {"),
    (OF_SMALL[:60], "cut, or neither form of GOAL"),
    (b"\x26\x09" + OF_SMALL[2:], "LogGOPSim has used it up"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=range(len(WRONG)))
def test_mistakes_are_told_with_their_place(text, said, written) -> None:
    path = written(text)
    with pytest.raises(InputError) as told:
        replayed(read_goal(path), 4)
    assert said in told.value.message
    assert path.name in told.value.message


def test_what_does_not_go_together(written) -> None:
    with pytest.raises(InputError, match="only profiles of PyTorch's have steps"):
        step_of(written(APPLICATION), step=1)
    with pytest.raises(InputError, match="of 3 ranks, but the cluster has 2 GPUs"):
        step_of(written(APPLICATION), {"machine": "dgx-h100", "nodes": 1, "gpus_per_node": 2})


ANYBODY = """\
num_ranks 3
rank 0 {
  late: calc 3000
  first: send 10000b to 2 tag 1
  first requires late
}
rank 1 {
  send 20000b to 2 tag 2
  send 30000b to 2 tag 3
}
rank 2 {
  one: recv 1b from -1 tag WANTED
  two: recv 1b from 1 tag -1
  two requires one
  last: recv 1b from -1 tag -1
  last requires two
  done: calc 1000
  done requires LAST
}
"""


def written_out(text: str, one: str, two: str, last: str) -> str:
    """The same with what every receive meets."""
    for part, told in (
        ("from -1 tag WANTED", one),
        ("from 1 tag -1", two),
        ("from -1 tag -1", last),
    ):
        text = text.replace(part, told)
    return text


@pytest.mark.parametrize("waits", ["one", "two", "last"])
@pytest.mark.parametrize(
    ("wanted", "met"),
    [
        ("-1", ("from 1 tag 2", "from 1 tag 3", "from 0 tag 1")),
        ("3", ("from 1 tag 3", "from 1 tag 2", "from 0 tag 1")),
        ("1", ("from 0 tag 1", "from 1 tag 2", "from 1 tag 3")),
    ],
)
def test_receives_from_anybody_meet_what_comes_first(waits, wanted, met, written) -> None:
    text = ANYBODY.replace("LAST", waits)
    times = [
        simulate_step(step_of(written(one))).spans.timeline.makespan
        for one in (text.replace("WANTED", wanted), written_out(text, *met))
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_explain_tells_of_messages(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text(
        f"cluster: {{machine: dgx-h100, nodes: 1}}\nworkload: {{trace: {FILES / 'small.bin'}}}\n"
    )
    done = netsim(capsys, "explain", str(tmp_path / "s.yaml"))
    assert done.code == 0, done.err
    assert "compute speed" in done.out
    assert "transfer node0.gpu1 -> node0.gpu2" in done.out


def test_beside_another_job_it_takes_as_long_as_alone(tmp_path) -> None:
    (tmp_path / "s.yaml").write_text(
        "cluster: {machine: dgx-h100, nodes: 2}\njobs:\n"
        f"- {{name: a, nodes: 1, workload: {{trace: {FILES / 'small.goal'}}}}}\n"
        "- {name: b, nodes: 1, workload: {collective: all_reduce, sizes: [1MiB]}}\n"
    )
    rows = run(tmp_path / "s.yaml")
    assert rows[0].slowdown == pytest.approx(1.0)
