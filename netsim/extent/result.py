"""The input of methods and their answers: values that all of them share.

`solve` asks one method after the other. A method is a function of a `MethodInput`; it answers with
an `Offer` or with a `Refusal`, without simulating anything. Running an offer returns a
`OneOperation`, from which other methods find the time of operations back to back, or a `Result`, or
after all a `Refusal`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.extent.budget import Budget
from netsim.extent.decisions import Decision
from netsim.extent.engine_runs import Bench, LoopRuns, StandaloneRun
from netsim.extent.forms import Form, LoopSchedule
from netsim.metrics.bound import Causes
from netsim.metrics.links import LinkUse
from netsim.program.program import Program, Timeline
from netsim.schedule.repeat import Launch

Floats = NDArray[np.float64]
Follow = Callable[[Launch, int], tuple[Floats, bool]]
"""Returns when operations back to back are over (first axis) by rank, for a launch and a number of
operations; and whether each is over before the next one begins."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a method does not time a task, as a clause that a user understands."""

    words: str


RANKS_MAY_DIFFER = Refusal(
    "ranks are not taken for equal: fold is off, there are several communicators, noise or faults "
    "with times, or paths depend on the load or on the number of a message"
)


@dataclass(frozen=True)
class OneOperation:
    """One operation from an idle cluster.

    - `run`: the simulation of it, or of a part of it.
    - `ends`: by rank that takes part, its finish time in seconds.
    - `use`: the use of links by the whole operation.
    - `approximation`: what was simulated and what was extrapolated; empty if it is exact.
    - `uncertainty`: the largest relative error of `ends`.
    - `causes`: what takes the time, if that does not follow from the timeline.
    - `rows`: the rows of each operation if several are simulated by `follow`.
    - `follow`: returns the finish times of operations back to back; None if they cannot be
      simulated.
    - `fewer_loops`: runs with fewer loops; None if there are none.
    """

    run: StandaloneRun
    ends: Floats
    use: LinkUse
    approximation: str = ""
    uncertainty: float = 0.0
    causes: Causes | None = None
    rows: int = 0
    follow: Follow | None = None
    fewer_loops: LoopRuns | None = None

    @property
    def seconds(self) -> float:
        """The finish time in seconds of the last rank."""
        return float(self.ends.max())

    @property
    def spread(self) -> float:
        """The time between the first and the last finish time of a rank, as a fraction of
        the last.
        """
        last = self.seconds
        return float(np.ptp(self.ends)) / last if last > 0.0 else 0.0

    def idle_fraction(self, launch: Launch) -> float:
        """The fraction of the time in which the busiest link is idle, from 0 to 1.

        If an approximate time is less than what that link needs, the fraction is 0.
        """
        last = self.seconds
        if last <= 0.0:  # nothing moves, and no kernel is started
            return 1.0
        busy = float(self.use.utilisation.max(initial=0.0)) * (1.0 - launch.kernel / last)
        return max(0.0, 1.0 - busy)


@dataclass(frozen=True)
class Result:
    """The time of the collective of a task, and how it was found.

    - `seconds`: the time of the collective; `slowest`: that of the slowest process.
    - `program`, `timeline`: one operation alone, as far as it was simulated.
    - `use`: the use of links by a whole operation.
    - `approximation`: what was simulated and what was extrapolated; empty if it is exact.
    - `uncertainty`: the largest relative error of an approximation.
    - `causes`: what takes the time, if that does not follow from the timeline.
    - `hops`: how far chunks traveled around rings in the simulation; 0: all the way.
    - `decisions`: the methods that were asked, in order, each with why it was taken or not.
    """

    seconds: float
    program: Program
    timeline: Timeline
    use: LinkUse
    engine: str
    approximation: str = ""
    uncertainty: float = 0.0
    causes: Causes | None = None
    hops: int = 0
    slowest: float = 0.0
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class MethodInput:
    """The input of a method: the form of a task, the budget, and one operation if it is known
    already.
    """

    form: Form
    budget: Budget
    standalone: OneOperation | None = None

    @property
    def operation(self) -> OneOperation:
        """The standalone operation; methods for back-to-back operations run only after it
        is known.
        """
        assert self.standalone is not None
        return self.standalone


def can_run_all_operations(form: Form, rows: int, budget: Budget) -> bool:
    """Whether all timed operations, each of `rows` rows, have few enough rows together to be
    simulated.
    """
    return form.iterations * rows <= budget.thresholds.max_rows_of_all_operations


class Solver(Protocol):
    """What a method may call to time another form of its task, such as the same ring with fewer
    hops.
    """

    def one_operation(self, question: MethodInput) -> OneOperation:
        """Time one operation of the form from an idle cluster."""
        ...

    def back_to_back(self, question: MethodInput) -> Result:
        """Time operations of the form back to back; the standalone operation is known."""
        ...

    def time_of(self, question: MethodInput) -> Result:
        """Time the form from the start: one operation, then operations back to back."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """A method's offer to time a task.

    - `run`: times the task. It may still return a refusal.
    - `schedule`: for exact methods, what is simulated; None for others.
    - `rows`: the number of its rows, if they are known.
    - `paths`: an upper bound of the number of its different paths.
    - `note`: which rows of the task these are, for the user; empty if they are all.
    """

    run: Callable[[Bench, Solver], OneOperation | Result | Refusal]
    schedule: LoopSchedule | None = None
    rows: int = 0
    paths: int = 0
    note: str = ""


Method = Callable[[MethodInput], Offer | Refusal]
