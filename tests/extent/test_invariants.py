"""What holds of every answer: asked wherever a time is printed, and each broken by a mutant."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from netsim.base.errors import InvariantError
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.collectives.collective import collective_of
from netsim.collectives.table import build
from netsim.engines.engine import simulate as run_program
from netsim.extent import finish_times, invariants
from netsim.extent.invariants import ALWAYS, IN_TESTS, INVARIANTS, Answer, broken
from netsim.extent.result import Result
from netsim.extent.solve import solve_form
from netsim.nccl import choice
from netsim.program.place import place
from netsim.program.program import Timeline
from netsim.scenario.cells import expand
from netsim.tasks.outcome import OUTCOMES, simulate_one
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.row import row_of_size
from netsim.topology.routing import switch
from netsim.training import run as training_run
from tests.cli.command import netsim
from tests.extent.cells import IN_FULL, form_at

MIB = 1 << 20
STEP = """\
cluster: {machine: dgx-h100, nodes: 2}
workload:
  model: {layers: 2, hidden: 1024, heads: 8, ffn: 4096, vocabulary: 4096, sequence: 1024}
  batch: 16
  parallelism: {data: ddp}
"""


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    OUTCOMES.clear()


def cell(machine: str, collective: str, sizes: str, nodes: int = 2) -> ResolvedCell:
    return resolve(
        expand(source_of_question(machine, collective, QuestionOptions(nodes, sizes=sizes)).source)[
            0
        ]
    )


def ring(ranks: int = 4, name: str = "all_reduce", size: int = MIB) -> Answer:
    """A textbook ring that was run, with all that it follows from."""
    collective = collective_of(name, ranks, size)
    program = place(build(collective, "ring"), switch(ranks, 1e9, 1e-6))
    timeline = run_program(program)
    use = invariants.link_use(program, timeline)
    return Answer(timeline.makespan, 0.0, program, timeline, use, collective)


# **** Each is broken by a mutant ****


def too_fast(answer: Answer) -> Answer:
    return replace(answer, seconds=answer.seconds / 2)


def without_a_channel(answer: Answer) -> Answer:
    """As if the last quarter of all data had been forgotten."""
    whole = answer.collective
    few = build(replace(whole, count=whole.count * 3 // 4), "ring")
    program = place(few, switch(whole.ranks, 1e9, 1e-6))
    timeline = run_program(program)
    return replace(
        answer, program=program, timeline=timeline, use=invariants.link_use(program, timeline)
    )


def ends_before_it_starts(answer: Answer) -> Answer:
    end = answer.timeline.end.copy()
    end[3] = answer.timeline.start[3] - 1e-6
    return replace(answer, timeline=Timeline(answer.timeline.start.copy(), end))


def wrong_bandwidth(answer: Answer) -> Answer:
    told = answer.size_bytes / answer.seconds / 1e9
    return replace(answer, bandwidths=(told, told * 1.001), bus_factor=1.0)


def told_too_short(answer: Answer) -> Answer:
    return replace(answer, uncertainty=0.01, in_full=lambda: answer.seconds * 1.02)


MUTANTS: dict[str, Callable[[Answer], Answer]] = {
    "wire": too_fast,
    "bytes": without_a_channel,
    "bounds": ends_before_it_starts,
    "bandwidths": wrong_bandwidth,
    "stated": told_too_short,
    "limit": lambda answer: replace(answer, limit=answer.seconds * 1.001),
}


def sound_answer() -> Answer:
    found = ring()
    told = found.collective.size_bytes / found.seconds / 1e9
    factor = found.collective.bus_factor
    return replace(
        found,
        size_bytes=found.collective.size_bytes,
        bandwidths=(told, told * factor),
        bus_factor=factor,
        in_full=lambda: found.seconds,
    )


def test_a_sound_answer_breaks_nothing() -> None:
    for when in (ALWAYS, IN_TESTS):
        assert broken(sound_answer(), when) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_breaks_its_invariant_and_no_other(name: str) -> None:
    answer = sound_answer()
    if name != "bandwidths":  # another time means another bandwidth
        answer = replace(answer, bandwidths=None)
    wrong = MUTANTS[name](replace(answer, in_full=None if name == "wire" else answer.in_full))
    told = [words.partition(":")[0] for when in (ALWAYS, IN_TESTS) for words in broken(wrong, when)]
    assert told == [name]


def test_an_engine_that_is_off_breaks_the_invariant_of_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def off(program, engine="auto"):
        timeline = run_program(program, engine)
        late = 1e-8 * timeline.makespan * (engine == "compiled")
        return Timeline(timeline.start, timeline.end + late)

    monkeypatch.setattr(invariants, "simulate", off)
    assert [words.partition(":")[0] for words in broken(sound_answer(), IN_TESTS)] == ["engines"]


def test_every_invariant_has_a_mutant() -> None:
    assert {one.name for one in INVARIANTS} == {*MUTANTS, "engines"}
    assert {one.checked for one in INVARIANTS} == {ALWAYS, IN_TESTS}


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_refused(seconds: float) -> None:
    assert broken(Answer(seconds)) == [f"bounds: {seconds!r} seconds are no time"]
    assert broken(Answer(1.0, seconds))


def test_nothing_that_takes_no_time_breaks_an_invariant() -> None:
    """One rank has nothing to send: differences of nothing are no more than nothing."""
    program = place(build(collective_of("all_reduce", 1, 8), "ring"), switch(1, 1e9))
    assert len(program) > 0
    timeline = run_program(program)
    assert timeline.makespan == 0.0
    answer = Answer(0.0, program=program, timeline=timeline, in_full=lambda: 0.0)
    assert broken(answer, IN_TESTS) == []


def test_a_link_may_be_full_all_the_time() -> None:
    answer = ring()
    least, _ = invariants.needed(answer.use, answer.program.links)
    assert broken(replace(answer, seconds=least)) == []
    assert broken(replace(answer, seconds=least * (1 - 1e-8)))


def test_capacities_that_change_count_at_their_best() -> None:
    answer = ring()
    links = answer.program.links
    faster = replace(links, changes=tuple((1e-3, k, 4e9) for k in range(len(links))))
    program = replace(answer.program, links=faster)
    quick = replace(answer, seconds=answer.seconds / 2, program=program)
    assert broken(quick) == []
    slower = replace(links, changes=tuple((1e-3, k, 0.5e9) for k in range(len(links))))
    assert broken(replace(quick, program=replace(program, links=slower)))


NAMES = "all_reduce all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv"


@pytest.mark.sample(11)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES.split())
@pytest.mark.parametrize(("machine", "nodes"), [("dgx-h100", 1), ("dgx-h100", 3), ("gh200-x4", 2)])
def test_no_bytes_are_lost_and_no_byte_too_many_is_asked_for(
    machine: str, nodes: int, name: str
) -> None:
    """Folded as cells are; rings, chains and sends move just what must be moved."""
    ready = cell(machine, name, "1M", nodes)
    timing = simulate_one(ready, MIB)
    collective = ready.collective(MIB)
    least = invariants.least_delivered(collective)
    brought = invariants.delivered(timing.program.schedule)
    assert least > 0
    assert brought >= least * (1 - 1e-12)
    if ready.planned(MIB).algorithm in ("Ring", "Tree", "SendRecv"):
        assert brought == pytest.approx(least, rel=1e-9)


# **** Asked everywhere ****


def halved(kept: Callable[..., Result]) -> Callable[..., Result]:
    def timing_of(*given, **named) -> Result:
        found = kept(*given, **named)
        seconds = found.seconds / 2
        return replace(found, seconds=seconds, slowest=seconds, approximation="", uncertainty=0.0)

    return timing_of


def lossy(kept):
    """Schedules of all channels but the last."""

    def schedule_of(collective, plan, extent):
        return kept(collective, replace(plan, work=plan.work[:-1]), extent)

    return schedule_of


def test_expect_ends_with_3_and_asks_for_a_report(capsys, monkeypatch) -> None:
    arguments = (
        "expect",
        "dgx-h100",
        "all_reduce",
        "--nodes",
        "2",
        "--algo",
        "Ring",
        "--sizes",
        "64M",
    )
    assert netsim(capsys, *arguments).code == 0
    monkeypatch.setattr(finish_times, "result_of", halved(finish_times.result_of))
    OUTCOMES.clear()
    found = netsim(capsys, *arguments)
    assert found.code == 3
    assert "wire: " in found.err
    assert "needs at least" in found.err
    assert "please report it" in found.err
    assert "Traceback" not in found.err + found.out


@pytest.mark.slow
def test_a_lost_channel_is_noticed_by_run(capsys, monkeypatch, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "cluster: {machine: dgx-h100}\n"
        "workload: {collective: all_gather, sizes: [4MiB], algorithm: Ring}\n"
    )
    assert netsim(capsys, "run", file, "-o", tmp_path / "good").code == 0
    monkeypatch.setattr(choice, "schedule_of", lossy(choice.schedule_of))
    OUTCOMES.clear()
    found = netsim(capsys, "run", file, "-o", tmp_path / "bad")
    assert found.code == 3
    assert "bytes: rows bring" in found.err
    assert "Traceback" not in found.err + found.out


@pytest.mark.slow
def test_a_step_is_asked_too(capsys, monkeypatch, tmp_path: Path) -> None:
    file = tmp_path / "step.yaml"
    file.write_text(STEP)
    assert netsim(capsys, "run", file, "-o", tmp_path / "good").code == 0
    kept = training_run.simulate

    def quick(*given, **named) -> Timeline:
        timeline = kept(*given, **named)
        return Timeline(timeline.start / 1e3, timeline.end / 1e3)

    monkeypatch.setattr(training_run, "simulate", quick)
    training_run._LAST_STEP.clear()
    found = netsim(capsys, "run", file, "-o", tmp_path / "bad")
    assert found.code == 3
    assert "a step: wire: " in found.err


def test_doctor_lists_them(capsys) -> None:
    found = netsim(capsys, "doctor", "--invariants")
    assert [line.split()[0] for line in found.out.splitlines()] == [one.name for one in INVARIANTS]
    assert all(one.statement in found.out for one in INVARIANTS)


# **** Raised to the need of the busiest link ****


def sent_between_two() -> tuple[ResolvedCell, Result, float]:
    """Sends between two hosts: as told, and what the wire needs."""
    ready = cell("dgx-h100", "sendrecv", "512M")
    size = 512 * MIB
    timing = solve_form(form_at(ready, size))
    least, _ = invariants.needed(timing.use, timing.program.links)
    return ready, timing, least


def test_an_approximate_time_below_the_wire_is_raised_within_its_bounds() -> None:
    ready, timing, least = sent_between_two()
    size = ready.collective(512 * MIB)
    assert least == pytest.approx(size.size_bytes / 49.1e9, rel=1e-3)
    low = replace(timing, seconds=0.8 * least, slowest=0.9 * least, approximation="a mean")
    low = replace(low, uncertainty=0.25)
    found = invariants.sound(low, size, "x")
    assert found.slowest == least
    assert found.seconds == pytest.approx(least * 8 / 9)  # the mean is moved as far
    assert found.approximation == f"a mean, {invariants.NOT_BELOW_LINKS}"
    assert least * (1 + found.uncertainty) == pytest.approx(0.9 * least * 1.25)
    assert broken(Answer(low.seconds, 0.25, low.program, use=low.use))  # without being raised


def test_a_time_below_the_wire_by_more_than_it_may_be_off_is_refused() -> None:
    ready, timing, least = sent_between_two()
    size = ready.collective(512 * MIB)
    for told, off in (("a mean", 0.05), ("", 0.25)):
        low = replace(timing, seconds=0.9 * least, slowest=0.9 * least, approximation=told)
        low = replace(low, uncertainty=off)
        with pytest.raises(InvariantError, match=r"wire: .* needs at least"):
            invariants.sound(low, size, "x")


def test_sends_between_two_hosts_are_no_faster_than_their_nics() -> None:
    """The mean of three operations back to back was 53.7 GB/s over NICs of 49.1."""
    row = row_of_size(cell("dgx-h100", "sendrecv", "512M"), 512 * MIB)
    assert 41 < row.busbw_GBps <= 49.1 * (1 + 1e-3)


# **** Rungs and engines, on real questions ****


def test_a_run_in_full_agrees_up_to_what_is_stated_and_nothing_takes_no_time() -> None:
    told = Answer(1.0, 0.25, in_full=lambda: 1.25)
    assert not broken(told, IN_TESTS)
    for full in (0.75 - 1e-3, 1.25 + 1e-3):
        assert broken(replace(told, in_full=lambda full=full: full), IN_TESTS)
    assert not broken(Answer(0.0, 0.0, in_full=lambda: 0.0), IN_TESTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "name", "size", "nodes"),
    [
        ("dgx-h100", "all_gather", 256 * MIB, 1),
        ("dgx-a100", "all_reduce", 64 * MIB, 2),
        ("gh200-x4", "broadcast", 64 * MIB, 2),
        ("dgx-h100", "alltoall", 64 * MIB, 2),
    ],
)
def test_approximate_answers_differ_from_the_full_simulation_by_no_more_than_they_state(
    machine, name, size, nodes
):
    ready = cell(machine, name, f"{size}", nodes)
    told = simulate_one(ready, size)

    def in_full() -> float:
        return solve_form(form_at(ready, size), IN_FULL).seconds

    answer = Answer(told.seconds, told.uncertainty, in_full=in_full)
    assert broken(answer, IN_TESTS) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "alltoall"])
def test_engines_agree_on_what_cells_run(name: str) -> None:
    timing = simulate_one(cell("dgx-h100", name, "256K"), 256 << 10)
    assert broken(Answer(timing.seconds, program=timing.program), IN_TESTS) == []


def test_what_is_just_right_breaks_nothing() -> None:
    """At the edge: a limit that is met, no time on either engine, loops that stand for two."""
    at = {one.name: one.broken for one in INVARIANTS}
    seconds = 3.0
    assert not at["limit"](Answer(seconds, limit=seconds * (1 + invariants.ROUNDING)))
    assert at["limit"](Answer(seconds, limit=seconds * (1 + 2 * invariants.ROUNDING)))
    nothing = place(build(collective_of("all_reduce", 4, 0), "ring"), switch(4, 1e9))
    assert not at["engines"](Answer(0.0, program=nothing))
    short = ring()
    assert short.use is not None
    twice = replace(short, use=replace(short.use, amount=2 * short.use.amount))
    for size, wrong in ((1, False), (2, False), (3, True)):
        asked_for = collective_of("all_reduce", 4, size * MIB)
        assert bool(at["bytes"](replace(twice, collective=asked_for))) == wrong


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("all_reduce", 2 * 3),
        ("all_gather", 4 * 3),
        ("reduce_scatter", 4 * 3),
        ("alltoall", 4 * 3),
        ("broadcast", 3),
        ("reduce", 3),
        ("gather", 3),
        ("scatter", 3),
        ("sendrecv", 4),
    ],
)
def test_the_least_that_ranks_must_get_has_a_closed_form(name: str, blocks: int) -> None:
    asked = collective_of(name, 4, 4 * 1024)
    block = asked.count * asked.element_bytes
    assert invariants.least_delivered(asked) == blocks * block
