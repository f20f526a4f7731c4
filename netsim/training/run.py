"""One training cell, from question to row: its tape, its schedule, its time, its breakdown."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from netsim.engines import choose, simulate
from netsim.program import Program, place
from netsim.timing import Progress
from netsim.training.breakdown import Breakdown, breakdown_of
from netsim.training.flops import model_flops
from netsim.training.prepare import PreparedStep
from netsim.training.spans import Spans
from netsim.workloads.lower import lower

COARSE = "collectives as flows of the rate that each reaches alone"


@dataclass(frozen=True)
class Step:
    """A training step that was simulated."""

    prepared: PreparedStep
    program: Program
    spans: Spans
    engine: str

    @property
    def seconds(self) -> float:
        """The time of the step."""
        return self.spans.makespan

    @cached_property
    def breakdown(self) -> Breakdown:
        """Where the time goes."""
        return breakdown_of(self.spans)

    @property
    def flops(self) -> float:
        """What the model needs."""
        setting = self.prepared.setting
        return model_flops(setting.model, setting.batch, setting.sequence)

    @property
    def mfu(self) -> float:
        """Model FLOPs a second, as a part of the peak of all GPUs."""
        setting = self.prepared.setting
        peak = setting.roofline.peak(setting.dtype) * setting.grid.size
        return self.flops / (self.seconds * peak) if self.seconds > 0 else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the whole job; samples, where there are no sequences."""
        setting = self.prepared.setting
        tokens = setting.batch * setting.sequence
        return tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def approximation(self) -> str:
        """What was done to have few rows."""
        found = {one.approximation for group in self.spans.lowered.coarse for one in group}
        recorded = self.prepared.recorded
        notes = () if recorded is None else recorded.notes
        return "; ".join([COARSE, *notes, *sorted(found - {""})])


@dataclass(frozen=True)
class _Question:
    """A prepared step as the key of a cache: equal cells ask the same."""

    prepared: PreparedStep

    def __hash__(self) -> int:
        return hash(self.prepared.cell.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.prepared.cell.id == other.prepared.cell.id


def simulate_step(
    prepared: PreparedStep, *, engine: str = "auto", progress: Progress | None = None
) -> Step:
    """Simulate the step of a cell; the last one is kept, for it is asked for again."""
    if progress is not None and engine == "simpy":
        return _simulated(prepared, engine, progress)
    return _kept(_Question(prepared), engine)


@lru_cache(maxsize=1)
def _kept(question: _Question, engine: str) -> Step:
    return _simulated(question.prepared, engine, None)


def _simulated(prepared: PreparedStep, engine: str, progress: Progress | None) -> Step:
    tape = prepared.tape()
    slow = {one.rank: one.slowdown for one in prepared.work.stragglers}
    lowered = lower(tape, prepared.setting.grid.size, prepared.costs, slow)
    program = place(lowered.schedule, prepared.topology)
    chosen = choose(program, engine)
    timeline = simulate(program, chosen, progress=progress)
    spans = Spans(tape, lowered, timeline, prepared.setting.grid.size)
    return Step(prepared, program, spans, chosen)
