"""Whether the questions notice small changes of the code: one mutant at a time, in a copy.

The working tree answers the questions once, and it is measured which of its lines each question
runs. Mutants (`tests.mutants`) are then drawn from lines that some question runs, but for those of
compiled code, whose lines cannot be measured, and for those of which `tests/data/mutants.yaml` says
why they change nothing. Each is asked the questions that run its line, those first that take least
time, then others that run its file, until an answer is wrong or the time is over. A mutant whose
answers differ only within 1e-9 or the stated error is noticed, too, and counted apart.
"""

import argparse
import queue
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.mutants import Mutant, argument, copy_of, drawn_from, every_mutant, known_survivors
from tests.same.comparison import Class, Comparison, Difference, worst
from tests.same.questions import Question
from tests.same.workers import ROOT, Worker, ask_all

COMPILED = "engines/compiled/"
# Classes that show a change of the code: the last two are no mistakes of results, but are printed.
SHOWN = (Class.WRONG, Class.WITHIN_ERROR, Class.CLOSE)
SECONDS_OF_MUTANT = 60.0  # of processor time of the unchanged code, for the questions of a mutant

Answer = dict[str, Any]
Lines = dict[str, dict[int, set[int]]]  # numbers of the questions that run a line, by file and line


@dataclass(frozen=True)
class Baseline:
    """What the unchanged working tree answers, and which lines each question runs."""

    questions: Mapping[int, Question]
    answers: Mapping[int, Answer]
    lines: Lines

    def questions_for(self, mutant: Mutant) -> list[Question]:
        """Return the questions that run the line of a mutant, then those that run its file."""
        lines = self.lines.get(mutant.path, {})
        of_line = lines.get(mutant.line, set())
        of_file = set().union(*lines.values()) - of_line
        numbers = [*self._quickest(of_line), *self._quickest(of_file)]
        chosen = []
        seconds = 0.0
        for number in numbers:
            seconds += self.answers[number]["seconds"]
            if chosen and seconds > SECONDS_OF_MUTANT:
                break
            chosen.append(self.questions[number])
        return chosen

    def _quickest(self, numbers: set[int]) -> list[int]:
        return sorted(numbers, key=lambda number: (self.answers[number]["seconds"], number))


@dataclass(frozen=True)
class Trial:
    """What became of a mutant: the question that noticed it and how, or None."""

    mutant: Mutant
    asked: int
    question: Question | None = None
    difference: Difference | None = None


def measure_baseline(questions: Sequence[Question], seconds: float, jobs: int) -> Baseline:
    """Let the working tree answer, and measure which lines each question runs."""
    with tempfile.TemporaryDirectory(prefix="netsim-same-") as folder:
        asked = ask_all(questions, ROOT, seconds, jobs, coverage_folder=folder)
        answers = {question.number: answer for question, answer in asked}
        lines = read_lines(Path(folder), ROOT)
    known = {question.number: question for question in questions}
    return Baseline(known, answers, lines)


def read_lines(folder: Path, checkout: Path) -> Lines:
    """Return which questions run each line, from the coverage data of all workers."""
    from coverage import CoverageData

    lines: Lines = {}
    for file in sorted(folder.glob("*.coverage")):
        data = CoverageData(basename=str(file))
        data.read()
        for measured in data.measured_files():
            path = Path(measured).relative_to(checkout / "netsim").as_posix()
            of_file = lines.setdefault(path, {})
            for line, contexts in data.contexts_by_lineno(measured).items():
                numbers = {int(context) for context in contexts if context}
                if numbers:
                    of_file.setdefault(line, set()).update(numbers)
    return lines


def draw_mutants(baseline: Baseline, count: int, seed: int) -> list[Mutant]:
    """Return mutants of lines that some question runs, without those known to change nothing."""
    survivors = known_survivors()
    candidates = [
        mutant
        for mutant in every_mutant([])
        if not mutant.path.startswith(COMPILED)
        and mutant.line in baseline.lines.get(mutant.path, {})
        and not argument(mutant, survivors)
    ]
    return drawn_from(candidates, count, seed)


def try_mutant(mutant: Mutant, baseline: Baseline, copy: Path, seconds: float) -> Trial:
    """Ask a copy with the mutant until an answer is wrong; the copy is as before in the end."""
    file = copy / "netsim" / mutant.path
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.applied(text), encoding="utf-8")
    worker = Worker(copy, seconds, keeps_bytecode=False)
    comparison = Comparison()
    asked = 0
    trial = Trial(mutant, asked)
    try:
        for question in baseline.questions_for(mutant):
            asked += 1
            answer = worker.ask(question)
            before = baseline.answers[question.number]
            differences = comparison.differences(question, before, answer)
            kind = worst(differences)
            if kind in SHOWN and (trial.difference is None or kind is Class.WRONG):
                difference = next(one for one in differences if one.kind is kind)
                trial = Trial(mutant, asked, question, difference)
            if kind is Class.WRONG:
                return trial
        return replace(trial, asked=asked)
    finally:
        worker.close()
        file.write_text(text, encoding="utf-8")


def try_all(
    mutants: Sequence[Mutant], baseline: Baseline, seconds: float, jobs: int
) -> Iterator[Trial]:
    """Yield what becomes of each mutant, in order."""
    with tempfile.TemporaryDirectory(prefix="netsim-same-") as folder:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(jobs):
            copies.put(copy_of(ROOT, Path(folder) / str(number)))

        def try_in_a_copy(mutant: Mutant) -> Trial:
            copy = copies.get()
            try:
                return try_mutant(mutant, baseline, copy, seconds)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(try_in_a_copy, mutants)


def report(questions: Sequence[Question], options: argparse.Namespace) -> int:
    """Inject mutants and print which the questions notice; 1 where one is not noticed."""
    begin = time.monotonic()
    baseline = measure_baseline(questions, options.seconds, options.jobs)
    measured_lines = sum(len(lines) for lines in baseline.lines.values())
    took = time.monotonic() - begin
    print(f"{len(questions)} questions run {measured_lines} lines ({took:.0f} s)", flush=True)
    mutants = draw_mutants(baseline, options.mutants, options.seed)
    counts = Counter[Class]()
    for trial in try_all(mutants, baseline, options.seconds, options.jobs):
        outcome = f"not noticed by {trial.asked} questions"
        if trial.question is not None and trial.difference is not None:
            kind = trial.difference.kind
            counts[kind] += 1
            question = trial.question
            outcome = f"question {question.number} ({question.kind}): {trial.difference}"[:200]
            if kind is not Class.WRONG:
                outcome = f"only {kind.title}: {outcome}"
        print(f"{trial.mutant}: {outcome}", flush=True)
    noticed = counts.total()
    only_shown = noticed - counts[Class.WRONG]
    print(
        f"{noticed} of {len(mutants)} mutants noticed: {counts[Class.WRONG]} by wrong answers, "
        f"{only_shown} only by answers that are equal within 1e-9 or the stated error"
    )
    return int(noticed < len(mutants))
