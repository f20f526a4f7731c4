"""Programs written as GOAL: read again, they do the same in the same time."""

from pathlib import Path

import pytest

from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from netsim.trace.goal import CALCULATE, GoalText, read_goal, replayed
from netsim.training.resolve import resolve_step
from netsim.training.run import simulate_step
from netsim.yamlio.read import Source
from tests.cli.command import netsim
from tests.extent.cells import form_at
from tests.trace.goal_files import as_binary

FILES = Path(__file__).parents[1] / "data" / "goal"
TORUS = {"graph": {"kind": "torus", "dims": [3, 4], "bandwidth": "50GB/s", "latency": "1us"}}
HOSTS = {"machine": "dgx-h100", "nodes": 2}


def test_what_txt2bin_makes_is_understood() -> None:
    """small.bin is what LogGOPSim's own txt2bin has made of small.goal."""
    text, binary = read_goal(FILES / "small.goal"), read_goal(FILES / "small.bin")
    assert (text.table[:, :-1] == binary.table[:, :-1]).all()
    assert as_binary(text) == (FILES / "small.bin").read_bytes() == as_binary(binary)


def resolved_of(cluster, collective, algorithm, size):
    work = {"collective": collective, "algorithm": algorithm, "sizes": [size]}
    return resolve(expand(Source("x", {"name": "x", "cluster": cluster, "workload": work}))[0])


def times(resolved, size, tmp_path) -> tuple[float, float, int]:
    """Seconds of an operation from standstill, those of what is written, and how many hints."""
    program = place(form_at(resolved, size).loop_schedule.schedule(), resolved.topology)
    sheet, path = GoalText(program), tmp_path / "written.goal"
    path.write_text(sheet.text())
    lowered = replayed(read_goal(path), len(resolved.topology), rendezvous=0)[1]
    again = simulate(place(lowered.schedule, resolved.topology), "compiled")
    return simulate(program, "compiled").makespan, again.makespan, sheet.hint_count


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [TORUS, HOSTS], ids=["torus", "hosts"])
@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        ("all_reduce", "ring"),
        ("all_reduce", "halving-doubling"),
        ("all_reduce", "tree"),
        ("all_reduce", "double-binary-tree"),
        ("alltoall", "pairwise"),
        ("broadcast", "ring"),
    ],
)
def test_textbook_algorithms_take_as_long(cluster, collective, algorithm, tmp_path) -> None:
    resolved = resolved_of(cluster, collective, algorithm, "1MiB")
    now, again, hints = times(resolved, 1 << 20, tmp_path)
    assert again == pytest.approx(now, rel=1e-4)  # GOAL knows whole nanoseconds
    assert hints == 0


def test_nccl_takes_nearly_as_long(tmp_path) -> None:
    """What blocks and proxies add to a message stands before it, as time that passes."""
    now, again, _ = times(resolved_of(HOSTS, "all_reduce", "Ring", "64KiB"), 1 << 16, tmp_path)
    assert again == pytest.approx(now, rel=0.02)


def test_a_step_computes_as_much_and_takes_as_long(tmp_path) -> None:
    work = {"model": "bert-base", "batch": 4, "parallelism": {"pp": 2}, "micro_batch": 1}
    cluster = {"machine": "dgx-h100", "nodes": 1, "gpus_per_node": 2}
    step = simulate_step(
        resolve_step(expand(Source("x", {"name": "x", "cluster": cluster, "workload": work}))[0])
    )
    path = tmp_path / "step.goal"
    path.write_text(GoalText(step.program).text())
    goal = read_goal(path)
    on_first = (goal.table[:, 1] == CALCULATE) & (goal.table[:, 5] == 0)
    assert goal.table[on_first, 3].sum() * 1e-9 == pytest.approx(
        float(step.breakdown.computing.sum()), rel=0.01
    )
    again = simulate(place(replayed(goal, 2)[1].schedule, step.resolved.topology))
    # GOAL has no word for kernels that only move bytes: all of them lose what messages hold.
    assert step.seconds < again.makespan < 1.07 * step.seconds


SCENARIO = """\
cluster: {machine: dgx-h100, nodes: 1}
workload: {collective: all_reduce, algorithm: ALGORITHM, sizes: [1MiB]}
outputs: [csv, goal]
"""


def test_a_run_writes_it_or_says_why_not(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("ALGORITHM", "ring"))
    done = netsim(capsys, "run", f"{tmp_path}/s.yaml", "-o", f"{tmp_path}/out")
    assert done.code == 0
    goal = read_goal(tmp_path / "out" / "application.goal")
    assert (goal.ranks, len(goal.table) > 8) == (8, True)
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("ALGORITHM", "NVLS"))
    done = netsim(capsys, "run", f"{tmp_path}/s.yaml", "-o", f"{tmp_path}/other")
    assert done.code == 2
    assert "outputs: goal: GOAL has messages only, no multicast" in done.err
