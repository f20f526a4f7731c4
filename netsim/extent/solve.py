"""The time of a task: methods are asked one after the other, and the first that can time it does.

`solve` is the only source of times: cells, training steps, explanations and reports call it. Other
questions about a task (does it fit, what is shown of it) are answered in `extent/fit.py` and
`extent/shown.py`, which ask the same methods for offers and simulate nothing.

First the time of one operation from an idle cluster is found, exactly or within a stated error;
then the time of all operations that are timed back to back. An exact method comes before the others
of its kind unless it would take much longer. The file of each method says what it assumes, how that
is checked, and what error it states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from netsim.base.errors import InputError
from netsim.base.values import dataclass
from netsim.extent import fit
from netsim.extent.budget import USUAL_BUDGET, Budget
from netsim.extent.channels_apart import channels_apart
from netsim.extent.decisions import Decision, tell_decisions
from netsim.extent.engine_runs import Bench, Progress
from netsim.extent.fewer_hops import fewer_hops
from netsim.extent.fewer_loops import fewer_loops
from netsim.extent.fit import EXACT_METHODS
from netsim.extent.forms import Form, form_of
from netsim.extent.one_operation import busy_link, one_operation, trees_end_together
from netsim.extent.operations import recurring_operations, some_operations
from netsim.extent.overlap import overlap_of_fewer_loops
from netsim.extent.result import Method, MethodInput, Offer, OneOperation, Refusal, Result
from netsim.extent.rounds_of_sends import rounds_of_sends
from netsim.extent.wide_instants import wide_instants
from netsim.workloads.task import Task

METHODS_OF_ONE_OPERATION: tuple[Method, ...] = (
    channels_apart,
    rounds_of_sends,
    wide_instants,
    *EXACT_METHODS,
    fewer_loops,
    fewer_hops,
)
METHODS_OF_OPERATIONS: tuple[Method, ...] = (
    one_operation,
    trees_end_together,
    busy_link,
    recurring_operations,
    overlap_of_fewer_loops,
    some_operations,
)
METHODS = (*METHODS_OF_ONE_OPERATION, *METHODS_OF_OPERATIONS)


def solve(
    task: Task,
    budget: Budget = USUAL_BUDGET,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Result:
    """The time of a task within a budget.

    An InputError says what would fit if no method can time the task. `progress` is called while a
    simulation runs.
    """
    return solve_form(form_of(task, budget), budget, engine, progress)


def solve_form(
    form: Form,
    budget: Budget = USUAL_BUDGET,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Result:
    """The result of a form of a task (its time and the decisions); `solve` calls this function with
    the form that the budget allows.
    """
    bench = Bench(form.topology, form.task.gpus, form.task.launch, engine, progress)
    solution = _Solution(bench)
    try:
        result = solution.time_of(MethodInput(form, budget))
    finally:
        tell_decisions(form.collective, solution.decisions)
    return replace(result, decisions=tuple(solution.decisions))


@dataclass(frozen=True)
class _Solution:
    """The search for the time of one form, with the decisions so far.

    A method that times another form of the task gets another search, whose decisions are not
    printed.
    """

    bench: Bench
    decisions: list[Decision] = field(default_factory=list)

    def time_of(self, question: MethodInput) -> Result:
        """The result for a form."""
        answer = self._first_answer(question, METHODS_OF_ONE_OPERATION)
        if isinstance(answer, Result):
            return answer
        return self.back_to_back(replace(question, standalone=answer))

    def one_operation(self, question: MethodInput) -> OneOperation:
        """The standalone operation of a form."""
        answer = self._first_answer(question, METHODS_OF_ONE_OPERATION)
        assert isinstance(answer, OneOperation)
        return answer

    def back_to_back(self, question: MethodInput) -> Result:
        """The result for a form whose standalone operation is known."""
        answer = self._first_answer(question, METHODS_OF_OPERATIONS)
        assert isinstance(answer, Result)
        return answer

    def _first_answer(
        self, question: MethodInput, methods: Sequence[Method]
    ) -> OneOperation | Result:
        """The answer of the first method that does not refuse. If all refuse, they are asked again
        with a budget without limits for one operation.
        """
        for budget in (question.budget, question.budget.in_full):
            for method in methods:
                if method.__name__ in budget.excluded:
                    continue
                answer = self._answer(method, replace(question, budget=budget))
                self._note(method, answer)
                if not isinstance(answer, Refusal):
                    return answer
        raise InputError(fit.why_no_method(question.form, question.budget, self.decisions))

    def _answer(self, method: Method, question: MethodInput) -> OneOperation | Result | Refusal:
        """The answer of a method: its refusal, or the result of running its offer."""
        offer = method(question)
        if isinstance(offer, Offer):
            return offer.run(self.bench, _Solution(self.bench))
        return offer

    def _note(self, method: Method, answer: OneOperation | Result | Refusal) -> None:
        """Add the answer of a method to the decisions; a refusal for the same reason is not
        repeated.
        """
        name = method.__name__.replace("_", " ")
        if isinstance(answer, Refusal):
            decision = Decision(name, False, answer.words)
        else:
            decision = Decision(name, True, _reason(answer))
        if decision not in self.decisions:
            self.decisions.append(decision)


def _reason(answer: OneOperation | Result) -> str:
    """What a method that was taken has simulated, and its error, in words."""
    program = answer.run.program if isinstance(answer, OneOperation) else answer.program
    rows = f"{len(program):,} rows"
    if not answer.approximation:
        return f"{rows}, exact"
    return f"{answer.approximation}: {rows}, within {answer.uncertainty:.2%}"
