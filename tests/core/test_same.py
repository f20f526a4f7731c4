"""`python -m tests.same` asks two commits the same questions and classifies the differences."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netsim.cli import VERBS, verb_command
from tests.mutants import Mutant, copy_of
from tests.same import __main__ as command
from tests.same import mutants, workers
from tests.same.comparison import (
    Class,
    Comparison,
    Declaration,
    class_of,
    is_close,
    read_declarations,
    worst,
)
from tests.same.features import feature_questions
from tests.same.questions import KINDS, ROWS, SCENARIO, Question, digest_questions, question_at
from tests.same.runner import read_text
from tests.same.workers import Worker, ask_all

QUESTION = Question(7, "hosts", {SCENARIO: "cluster: {machine: dgx-h100}\n"})
GRAPH = """\
cluster: {graph: {kind: switch, gpus: 3, bandwidth: 10GB/s}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1KiB]}
"""


# **** Questions ****


@pytest.mark.slow
def test_a_question_depends_on_its_seed_and_number_alone() -> None:
    code = """
from tests.same.questions import question_at
print([question_at(number).key for number in range(40)])
"""
    printed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=workers.ROOT,
        env={"PYTHONHASHSEED": "17"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.strip() == str([question_at(number).key for number in range(40)])
    assert question_at(1, seed=1) != question_at(1, seed=2)


def test_two_thousand_questions_have_all_kinds_and_all_questions_of_the_digests() -> None:
    questions = [question_at(number) for number in range(2000)]
    kinds = Counter(question.kind for question in questions)
    assert set(KINDS) <= set(kinds)
    of_features = [one for one in questions if one.kind.startswith("feature: ")]
    assert len({one.key for one in of_features}) == len(feature_questions())
    of_digests = [one for one in questions if one.kind not in KINDS and one not in of_features]
    assert len({one.key for one in of_digests}) == len(digest_questions())
    assert len({one.key for one in questions}) > 1900


def test_every_question_asks_for_rows_of_a_scenario_or_for_commands() -> None:
    for number in range(300):
        question = question_at(number)
        assert question.commands or SCENARIO in question.files
        assert not (question.commands and question.kind in ROWS)


def test_a_sample_of_150_questions_asks_about_every_feature_whatever_the_seed() -> None:
    for seed in (1, 2):
        sample = [question_at(number, seed) for number in range(150)]
        asked = {question.kind.removeprefix("feature: ") for question in sample}
        assert {question.feature for question in feature_questions()} <= asked


def asked_commands() -> list[str]:
    questions = (question_at(number) for number in range(1000))
    return [command for question in questions for command in question.commands]


def test_questions_use_every_verb() -> None:
    asked = {command.split()[0] for command in asked_commands()}
    assert set(VERBS) - asked == set()


# What questions cannot ask: other machines and processes, and files beside those of a question.
# `--novelty` simulates the corpus three times.
UNASKED_OPTIONS = {"--dask", "--cache", "--page", "--novelty"}


def test_questions_use_every_option() -> None:
    words = {word.partition("=")[0] for line in asked_commands() for word in line.split()}
    missing = {
        option.opts[-1]
        for option in declared_options()
        if not words & {*option.opts, *option.secondary_opts}
    }
    assert missing == UNASKED_OPTIONS


def declared_options() -> Iterator[Any]:
    """The options of all verbs, as typer reads them."""
    for verb in VERBS:
        command = verb_command(verb)
        parts = getattr(command, "commands", {verb: command})
        for part in parts.values():
            yield from (one for one in part.params if one.param_type_name == "option")


def keys_of_schema(schema: object) -> set[str]:
    """The keys that files may have, by the JSON Schema."""
    if isinstance(schema, list):
        return set().union(*map(keys_of_schema, schema))
    if not isinstance(schema, dict):
        return set()
    inner = set().union(*map(keys_of_schema, schema.values()))
    properties = schema.get("properties", {})
    return inner | set(properties)


# Netsim itself fills in `code`, the text of an algorithm's file, and the range of a class of hosts.
UNASKED_KEYS = {"code", "launch_low", "launch_high", "lora", "targets"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scenario", "machine"])
def test_questions_use_every_key_of_a_file(kind: str) -> None:
    command = [sys.executable, "-m", "netsim", "schema", kind]
    printed = subprocess.run(
        command, cwd=workers.ROOT, capture_output=True, text=True, check=True
    ).stdout
    text = "\n".join(question_at(number).text for number in range(1000))
    words = set(re.findall(r"[\w-]+", text))
    keys = keys_of_schema(json.loads(printed))
    assert keys - words == UNASKED_KEYS & keys


def test_pages_and_drawings_are_compared_by_what_is_text_in_them() -> None:
    page = "<p>Ring is <b>best</b>.</p>\n<style>p {}</style>\n<svg><text>1</text></svg>"
    assert read_text(".html", page) == "Ring is best."
    drawing = "<svg><!-- 64 KiB --><path d='M 0 0'/><text x='1'>busbw</text></svg>"
    assert read_text(".svg", drawing) == "64 KiB\nbusbw"
    assert read_text(".csv", "<p>") == "<p>"


# **** Comparison ****


def rows_answer(*rows: dict[str, object], finish: list[list[float]] | None = None) -> dict:
    return {"outcome": "rows", "rows": list(rows), "finish": finish or []}


def classes(old: dict, new: dict, *declarations: Declaration) -> dict[str, Class]:
    found = Comparison(declarations).differences(QUESTION, old, new)
    return {difference.column: difference.kind for difference in found}


def test_equal_answers_have_no_difference() -> None:
    answer = rows_answer({"time_us": 3.0, "bound_by": "latency"}, finish=[[1e-6, 2e-6]])
    assert classes(answer, answer) == {}
    assert worst([]) is Class.IDENTICAL


def test_numbers_within_a_billionth_are_close_also_in_texts_and_mappings() -> None:
    old = rows_answer({"time_us": 3.0, "details": {"compute_us": 1.0}}, finish=[[1e-6]])
    new = rows_answer({"time_us": 3.0 * (1 + 1e-10), "details": {"compute_us": 1.0 - 1e-12}})
    assert classes(old, new) == {"time_us": Class.CLOSE, "details.compute_us": Class.CLOSE}
    assert is_close("took 1.00000000001 us of a", "took 1 us of a")
    assert not is_close("took 1.00000000001 us of a", "took 1 us of b")
    assert class_of(1.0, 1.0 + 1e-8, None) is Class.WRONG


def test_a_time_may_differ_by_the_sum_of_both_stated_errors_and_a_name_may_not() -> None:
    old = {"time_us": 100.0, "approximation_pct": 1.0, "rows": 7, "bound_by": "nic"}
    new = {"time_us": 102.9, "approximation_pct": 2.0, "rows": 9, "bound_by": "nic"}
    within = Class.WITHIN_ERROR
    expected = {"time_us": within, "approximation_pct": within, "rows": within}
    assert classes(rows_answer(old), rows_answer(new)) == expected
    far = {**new, "time_us": 103.5}
    assert set(classes(rows_answer(old), rows_answer(far)).values()) == {Class.WRONG}
    renamed = {**new, "bound_by": "gpu"}
    assert classes(rows_answer(old), rows_answer(renamed))["bound_by"] is Class.WRONG


def test_finish_times_are_compared_rank_by_rank() -> None:
    row = {"time_us": 3.0}
    old = rows_answer(row, finish=[[1e-6, 2e-6]])
    assert classes(old, rows_answer(row, finish=[[1e-6, 2.1e-6]])) == {"finish": Class.WRONG}
    assert classes(old, rows_answer(row, finish=[[]])) == {}  # a commit that has none


def test_a_declared_difference_must_be_the_one_that_is_declared() -> None:
    old, new = rows_answer({"model_version": "3"}), rows_answer({"model_version": "4"})
    raised = Declaration(("model_version",), "raised", old="^3$", new="4")
    assert classes(old, new, raised) == {"model_version": Class.DECLARED}
    other = rows_answer({"model_version": "5"})
    assert classes(old, other, raised) == {"model_version": Class.WRONG}
    assert classes(new, old, raised) == {"model_version": Class.WRONG}  # not the other way round
    elsewhere = Declaration(("model_version",), "raised", questions="dgx-a100")
    assert classes(old, new, elsewhere) == {"model_version": Class.WRONG}
    assert classes(old, new, Declaration(("model_.*",), "raised", questions="dgx-h100")) == {
        "model_version": Class.DECLARED
    }


def test_several_declared_replacements_explain_one_text() -> None:
    told = {"code": 0, "stdout": "cell 0123456789abcdef of 2.20", "stderr": ""}
    question = Question(1, "expect", {}, commands=["expect dgx-h100"])
    old = {"outcome": "commands", "commands": [told], "files": {"a.csv": "1,2"}}
    changed = {**told, "stdout": "cell fedcba9876543210 of 2.20.x"}
    new = {**old, "commands": [changed]}
    cells = Declaration(("stdout",), "cells", ignored="[0-9a-f]{16}")
    series = Declaration(("stdout",), "series", old=r"\b2\.20\b(?!\.)", new="2.20.x")
    found = Comparison([cells, series]).differences(question, old, new)
    assert [(one.kind, one.why) for one in found] == [(Class.DECLARED, "cells; series")]
    (left,) = Comparison([cells]).differences(question, old, new)
    assert left.kind is Class.WRONG
    assert "0123456789abcdef" not in str(left)  # what is declared is not shown again


def test_tables_of_commands_are_compared_by_columns_and_other_texts_as_a_whole() -> None:
    told = {"code": 0, "stderr": ""}
    question = Question(1, "run", {}, commands=["run question.yaml"])

    def answer(version: str, time: str, text: str) -> dict:
        table = f"cell,model_version,time_us\na,{version},{time}\n"
        printed = f'[{{"cell": "a", "model_version": "{version}"}}]'
        files = {"results.csv": table, "note.txt": text}
        return {"outcome": "commands", "commands": [{**told, "stdout": printed}], "files": files}

    raised = Declaration(("model_version",), "raised", old="^3$", new="4")
    old, new = answer("3", "1.5", "a b"), answer("4", "1.6", "a c")
    found = Comparison([raised]).differences(question, old, new)
    assert [(one.place, one.column, one.kind) for one in found] == [
        ("netsim run question.yaml, stdout, row 1", "model_version", Class.DECLARED),
        ("file results.csv, row 1", "model_version", Class.DECLARED),
        ("file results.csv, row 1", "time_us", Class.WRONG),
        ("", "file note.txt", Class.WRONG),
    ]


def test_a_declaration_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "declared.yaml"
    path.write_text("- columns: [time_us]\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="entry 1: expected columns, why"):
        read_declarations(path)
    assert all(declaration.why for declaration in read_declarations())


def test_an_answer_that_only_the_new_commit_owes_is_wrong() -> None:
    row, late = rows_answer({"time_us": 1.0}), {"outcome": "timeout", "seconds": 20.0}
    assert classes({**row, "seconds": 19.0}, late) == {"outcome": Class.UNANSWERED}
    assert classes({**row, "seconds": 0.5}, late) == {"outcome": Class.WRONG}
    assert classes(late, {**row, "seconds": 0.5}) == {"outcome": Class.UNANSWERED}
    error = {"outcome": "error", "class": "InputError", "message": "no such", "exit_code": 2}
    assert classes(row, error) == {"outcome": Class.WRONG}
    assert classes(error, {**error, "exit_code": 3}) == {"exit_code": Class.WRONG}


# **** The command, on a small package of two commits ****

PACKAGE = """\
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Row:
    time_us: float
    rows: int
    cell: str = "a"
    approximation_pct: float | None = None
    details: dict = field(default_factory=dict)


def run(scenario, engine="auto"):
    text = Path(scenario).read_text()
    if "endless" in text:
        while ENDLESS:
            pass
    if "crash" in text:
        import os
        os._exit(7)
    if "refused" in text:
        raise ValueError(f"{MESSAGE} in {Path(scenario).resolve()}")
    return [Row(TIME, 3)]


ENDLESS, MESSAGE, TIME = True, "refused", 2.0
"""
COMMAND_LINE = """\
from pathlib import Path


def main(words):
    print("words:", *words, "in", Path.cwd())
    Path("made.csv").write_text("1,2")
    raise SystemExit(3)
"""


def small_question(number: int, text: str, *commands: str) -> Question:
    return Question(number, "small", {SCENARIO: text}, commands=list(commands))


ASKED = (
    small_question(0, "usual"),
    small_question(1, "refused"),
    small_question(2, "crash"),
    small_question(3, "usual", "explain question.yaml"),
    small_question(4, "endless"),
)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "repository"
    (root / "netsim").mkdir(parents=True)
    (root / "netsim" / "__init__.py").write_text(PACKAGE)
    (root / "netsim" / "cli.py").write_text(COMMAND_LINE)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    workers.git("init", "-q", folder=root)
    workers.git("add", "-A", folder=root)
    workers.git(*identity, "commit", "-q", "-m", "first", folder=root)
    workers.git("tag", "before", folder=root)
    monkeypatch.setattr(workers, "ROOT", root)
    monkeypatch.setattr(mutants, "ROOT", root)
    monkeypatch.setattr(command, "question_at", lambda number, seed: ASKED[number])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    return root


def change(root: Path, old: str, new: str) -> None:
    file = root / "netsim" / "__init__.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.slow
def test_the_runner_answers_with_rows_errors_crashes_commands_and_time_outs(
    repository: Path,
) -> None:
    answers = {one.number: answer for one, answer in ask_all(ASKED, repository, 1.0, 1)}
    assert [answers[number]["outcome"] for number in range(5)] == [
        "rows",
        "error",
        "crash",
        "commands",
        "timeout",
    ]
    assert answers[0]["rows"][0]["time_us"] == 2.0
    assert answers[1]["message"] == f"refused in ./{SCENARIO}"
    told = {"code": 3, "stdout": "words: explain question.yaml in .\n", "stderr": ""}
    assert answers[3]["commands"] == [told]
    assert answers[3]["files"] == {"made.csv": "1,2"}


def test_two_commits_without_a_difference_end_with_code_0(repository: Path, capsys) -> None:
    assert command.main(["before", "--count", "4", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "identical                 4" in printed
    assert "wrong                     0" in printed


def test_a_change_of_the_working_tree_is_wrong_and_told_with_its_question(
    repository: Path, capsys
) -> None:
    change(repository, '"refused", 2.0', '"not taken", 2.5')
    assert command.main(["before", "--count", "4", "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "wrong                     2" in printed
    assert "wrong: question 0: row 1: time_us: '2.0' -> '2.5'" in printed
    assert "python -m tests.same before --seed 1 --only 0" in printed
    assert "wrong, too: 1 (small): message: 'refused in" in printed


def test_answers_of_a_commit_are_kept_and_not_computed_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    first = command.main(["before", "before", "--only", "0", "1", "--jobs", "1"])

    def refuse(*_: object) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(workers, "ask_all", refuse)
    assert command.main(["before", "before", "--only", "0", "1", "--jobs", "1"]) == first == 0
    assert (workers.cache_folder() / "trees").is_dir()


@pytest.mark.slow
def test_a_package_from_elsewhere_is_no_answer(repository: Path, tmp_path: Path) -> None:
    worker = Worker(tmp_path, 1.0)  # where there is no netsim
    assert worker.ask(ASKED[0])["outcome"] == "crash"
    worker.close()


# **** Mutants ****


def test_a_mutant_is_asked_the_questions_of_its_line_first_and_noticed(
    repository: Path, tmp_path: Path
) -> None:
    text = (repository / "netsim" / "__init__.py").read_text()
    begin = text.index("2.0")
    line = text.count("\n", 0, begin) + 1
    mutant = Mutant("__init__.py", line, begin, begin + 3, "2.0", "2.8")
    known = {one.number: one for one in ASKED[:4]}
    answers = {one.number: answer for one, answer in ask_all(ASKED[:4], repository, 1.0, 1)}
    lines = {"__init__.py": {line: {0}, 1: {0, 1}}}
    baseline = mutants.Baseline(known, answers, lines)
    assert [one.number for one in baseline.questions_for(mutant)] == [0, 1]
    copy = copy_of(repository, tmp_path / "copy")
    trial = mutants.try_mutant(mutant, baseline, copy, 1.0)
    assert trial.question == ASKED[0]
    assert trial.difference is not None
    assert trial.difference.column == "time_us"
    assert (copy / "netsim" / "__init__.py").read_text() == text


def test_lines_are_measured_by_question(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "coverage"
    folder.mkdir()
    list(ask_all(ASKED[:2], repository, 5.0, 1, coverage_folder=str(folder)))
    lines = mutants.read_lines(folder, repository)["__init__.py"]
    row = PACKAGE[: PACKAGE.index("return [Row")].count("\n") + 1
    refusal = PACKAGE[: PACKAGE.index("raise ValueError")].count("\n") + 1
    assert lines[row] == {0}
    assert lines[refusal] == {1}


@pytest.mark.slow
def test_the_package_itself_answers_a_scenario_with_its_ranks_finish_times() -> None:
    worker = Worker(workers.ROOT, 30.0)
    answer = worker.ask(small_question(0, GRAPH))
    worker.close()
    assert answer["outcome"] == "rows", answer
    assert len(answer["rows"]) == 1
    assert len(answer["finish"][0]) == 3
    assert max(answer["finish"][0]) > 0
