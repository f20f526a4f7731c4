"""Ask two commits the same questions, and say how their answers differ.

    python -m tests.same OLD               # OLD and the working tree as it is; 2,000 questions
    python -m tests.same OLD NEW           # two commits
    python -m tests.same OLD --count 60    # the first 60, a sample of all kinds
    python -m tests.same OLD --only 1234   # one question, shown in full with all that differs
    python -m tests.same OLD --kinds step jobs
    python -m tests.same OLD --mutants 20  # inject 20 small faults; count those that are detected

Prints how many questions are in each class, the first difference of each class with its question,
and ends with exit code 1 if one is wrong. `tests/same/comparison.py` says what the classes are,
`tests/data/declared.yaml` which differences are meant. Answers are cached outside git
(`~/.cache/netsim-same`) and not computed again.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.same import mutants
from tests.same.comparison import Class, Comparison, Difference, read_declarations, worst
from tests.same.questions import Question, question_at
from tests.same.workers import answers_of, resolve_commit

SHOWN_WRONG = 10  # wrong questions that are shown by their numbers and first difference


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.same",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", metavar="OLD", help="a commit, tag or branch")
    parser.add_argument("new", metavar="NEW", nargs="?", help="default: the working tree as it is")
    parser.add_argument("--count", type=int, default=2000, help="questions (default 2000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn (default 1)")
    parser.add_argument(
        "--only", type=int, nargs="*", default=[], metavar="N", help="numbers of questions"
    )
    parser.add_argument(
        "--kinds", nargs="*", default=[], metavar="KIND", help="of these, those of such kinds"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (default 2)")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of processor time for a question (default 20)"
    )
    parser.add_argument(
        "--mutants", type=int, default=0, help="number of mutants, each with one small change"
    )
    return parser.parse_args(arguments)


def chosen_questions(options: argparse.Namespace) -> list[Question]:
    """Return the questions numbered `--first` to `--first + --count - 1`, or those of `--only`.
    With `--kinds`, keep those whose kind begins with one of these words (so fewer than
    `--count`)."""
    numbers = options.only or range(options.first, options.first + options.count)
    questions = [question_at(number, options.seed) for number in numbers]
    if not options.kinds:
        return questions
    return [one for one in questions if one.kind.startswith(tuple(options.kinds))]


def collect(
    name: str, commit: str | None, questions: Sequence[Question], options: argparse.Namespace
) -> dict[int, dict[str, Any]]:
    """Return what a commit answers, by the number of the question; progress goes to stderr."""
    answers = {}
    begin = time.monotonic()
    for question, answer in answers_of(commit, questions, options.seconds, options.jobs):
        answers[question.number] = answer
        if len(answers) % 50 == 0 or len(answers) == len(questions):
            took = time.monotonic() - begin
            print(f"{name}: {len(answers)} of {len(questions)}, {took:.0f} s", file=sys.stderr)
    return answers


def show_question(question: Question) -> str:
    """Return a question in full, indented."""
    return "\n".join(f"    {line}" for line in question.text.splitlines())


def main(arguments: Sequence[str]) -> int:
    """Compare two commits; 1 where something is wrong."""
    options = parsed(arguments)
    questions = chosen_questions(options)
    if options.mutants:
        return mutants.report(questions, options)
    old_commit = resolve_commit(options.old)
    new_commit = resolve_commit(options.new) if options.new else None
    old_answers = collect(options.old, old_commit, questions, options)
    new_answers = collect(options.new or "working tree", new_commit, questions, options)

    comparison = Comparison(read_declarations())
    found: dict[int, list[Difference]] = {}
    for question in questions:
        number = question.number
        answers = old_answers[number], new_answers[number]
        found[number] = comparison.differences(question, *answers)
    print_report(questions, found, old_answers, options)
    return int(any(worst(differences) is Class.WRONG for differences in found.values()))


def print_report(
    questions: Sequence[Question],
    found: dict[int, list[Difference]],
    old_answers: dict[int, dict[str, Any]],
    options: argparse.Namespace,
) -> None:
    """Print counts, the first difference of each class, and the numbers of what is wrong."""
    rows = sum(len(answer.get("rows", ())) for answer in old_answers.values())
    ranks = sum(len(ends) for answer in old_answers.values() for ends in answer.get("finish", ()))
    outcomes = Counter(answer["outcome"] for answer in old_answers.values())
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    print(f"{len(questions)} questions ({told}): {rows} rows, finish times of {ranks} ranks")
    counts = Counter(worst(differences) for differences in found.values())
    for kind in Class:
        print(f"  {kind.title:25} {counts[kind]}")
    for kind in list(Class)[1:]:
        print_first(kind, questions, found, options)
    wrong = [one for one in questions if worst(found[one.number]) is Class.WRONG]
    for question in wrong[1:SHOWN_WRONG]:
        difference = first_of(Class.WRONG, found[question.number])
        print(f"  wrong, too: {question.number} ({question.kind}): {difference}")
    if len(wrong) > SHOWN_WRONG:
        print(f"  … and {len(wrong) - SHOWN_WRONG} more that are wrong")


def first_of(kind: Class, differences: Sequence[Difference]) -> Difference | None:
    """Return the first difference of a class."""
    return next((one for one in differences if one.kind is kind), None)


def print_first(
    kind: Class,
    questions: Sequence[Question],
    found: dict[int, list[Difference]],
    options: argparse.Namespace,
) -> None:
    """Print the first question with a difference of this class, and that difference; with --only
    every question that has one, with all its differences of the class."""
    for question in questions:
        differences = found[question.number]
        first = first_of(kind, differences)
        if first is None:
            continue
        print(f"\n{kind.title}: question {question.number}: {first}")
        if options.only:
            rest = [one for one in differences if one.kind is kind and one is not first]
            print("".join(f"  {one}\n" for one in rest), end="")
        print(
            f"  python -m tests.same {options.old} --seed {options.seed} --only {question.number}"
        )
        print(show_question(question))
        if not options.only:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
