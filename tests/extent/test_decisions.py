"""Which methods were asked for a time, and why each was taken or not, is known and printed."""

from pathlib import Path

import pytest

from netsim.base.errors import InputError
from netsim.extent.budget import budget_for
from netsim.extent.decisions import Decision, listening
from netsim.extent.solve import METHODS, solve
from netsim.scenario.cells import expand
from netsim.tasks.outcome import OUTCOMES
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim

RAILS = "machine: dgx-h100, nodes: 2, fabric: {kind: rail-optimized}"
SCENARIO = """\
cluster: {machine: dgx-h100, nodes: 2}
workload: {collective: broadcast, algorithm: Ring, sizes: [64KiB, 1MiB]}
outputs: [csv]
"""


def cell(work: str, cluster: str = RAILS) -> ResolvedCell:
    text = f"cluster: {{{cluster}}}\nworkload: {{{work}}}\n"
    return resolve(expand(parse_source(text, "x.yaml"))[0])


def test_a_result_has_every_method_that_was_asked_and_why() -> None:
    resolved = cell("collective: broadcast, algorithm: Ring, sizes: [64KiB]")
    decisions = solve(resolved.task(65536), resolved.budget).decisions
    names = [method.__name__.replace("_", " ") for method in METHODS]
    methods = [decision.method for decision in decisions]
    assert methods == sorted(methods, key=names.index)
    taken = [decision for decision in decisions if decision.is_taken]
    assert [decision.method for decision in taken] == ["all rows", "recurring operations"]
    assert all(decision.reason.endswith("rows, exact") for decision in taken)
    assert Decision("fewer loops", is_taken=False, reason="x") not in decisions
    assert all(decision.reason for decision in decisions)


def test_methods_that_extrapolate_refuse_exact_tasks_for_that_reason() -> None:
    resolved = cell("collective: alltoall, sizes: [64KiB]")
    exact = budget_for(is_exact=True)
    reasons = {
        decision.method: decision.reason
        for decision in solve(resolved.task(65536), exact).decisions
    }
    assert reasons["rounds of sends"] == "extrapolating rounds of sends is not exact"


def test_a_task_that_is_too_large_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reasons of single methods go to whoever listens, and the sentence has rows and memory."""
    resolved = cell("collective: all_reduce, algorithm: Ring, sizes: [64MiB]")
    task = resolved.task(64 << 20)
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 1000)
    lines: list[str] = []
    with listening(lines.append), pytest.raises(InputError) as caught:
        solve(task, budget_for(is_exact=True))
    message = str(caught.value)
    assert message.startswith("too large to be simulated exactly: about ")
    assert "rows would take" in message
    assert "ranks would fit" in message
    assert "fewer loops" not in message
    assert any("fewer loops: not taken: " in line for line in lines)


def test_verbose_commands_print_the_decisions_of_every_size(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also where other processes simulate them."""
    scenario = tmp_path / "x.yaml"
    scenario.write_text(SCENARIO)
    for arguments in (
        ("run", str(scenario), "-o", str(tmp_path / "one")),
        ("run", str(scenario), "-o", str(tmp_path / "two"), "--jobs", "2"),
        ("expect", "dgx-h100", "broadcast", "--nodes", "2", "--algo", "Ring", "--sizes", "64K,1M"),
    ):
        OUTCOMES.clear()
        told = netsim(capsys, *arguments, "--verbose")
        for size in ("64 KiB", "1 MiB"):
            for line in (
                f"broadcast of {size}: all rows: taken: ",
                f"broadcast of {size} in place: recurring operations: taken: ",
                f"broadcast of {size}: lockstep: not taken: ",
            ):
                assert line in told.err, (arguments, line)
        OUTCOMES.clear()
        assert "taken" not in netsim(capsys, *arguments).err


def test_an_equal_task_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("expect", "dgx-h100", "broadcast", "--nodes", "2", "--sizes", "64K", "--verbose")
    netsim(capsys, *arguments)
    assert "equal to a task that was simulated before" in netsim(capsys, *arguments).err
