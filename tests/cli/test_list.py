"""`netsim list` shows scenarios with their questions, and machines."""

import csv
import json

import pytest

from netsim.base.files import preset_names
from netsim.cli.listing import question_of, scenario_entries
from tests.cli.command import netsim


def test_every_scenario_and_machine_is_listed(capsys) -> None:
    found = netsim(capsys, "list")
    assert found.code == 0
    names = {line.split()[0] for line in found.out.splitlines() if line and line[0] != " "}
    assert {*preset_names("scenarios"), *preset_names("topologies")} <= names
    assert "Which textbook all-reduce is best at which size" in found.out


def test_every_scenario_that_comes_with_netsim_asks_a_question() -> None:
    without = [entry.name for entry in scenario_entries() if not entry.question.endswith("?")]
    assert without == []


def test_one_kind_is_listed_as_csv_and_json(capsys) -> None:
    machines = list(
        csv.DictReader(netsim(capsys, "list", "machines", "--format", "csv").out.splitlines())
    )
    by_name = {machine["name"]: machine for machine in machines}
    assert sorted(by_name) == preset_names("topologies")
    assert by_name["dgx-h100"]["gpu_count"] == "8"
    assert by_name["dgx-h100"]["nics"] == "8 x 400 Gb/s"
    scenarios = json.loads(netsim(capsys, "list", "scenarios", "--format", "json").out)
    assert [entry["name"] for entry in scenarios] == preset_names("scenarios")
    every = json.loads(netsim(capsys, "list", "--format", "json").out)
    assert every["scenarios"] == scenarios
    assert every["machines"] == machines


def test_csv_of_both_kinds_is_refused_with_what_to_write(capsys) -> None:
    found = netsim(capsys, "list", "--format", "csv")
    assert (found.code, found.out) == (2, "")
    assert "netsim list scenarios --format csv" in found.err


def test_machines_are_listed_as_topo_list_does(capsys) -> None:
    assert netsim(capsys, "list", "machines").out == netsim(capsys, "topo", "list").out


def test_files_of_this_folder_are_listed(capsys, tmp_path, monkeypatch) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "topologies").mkdir()
    (tmp_path / "scenarios" / "mine.yaml").write_text("# Is mine fast?\nname: mine\n")
    (tmp_path / "topologies" / "broken.yaml").write_text("gpu: 3\n")
    monkeypatch.chdir(tmp_path)
    found = netsim(capsys, "list")
    assert found.code == 0
    lines = {line.split()[0]: line for line in found.out.splitlines() if line.strip()}
    assert "Is mine fast?" in lines["mine"]
    assert "no machine" in lines["broken"]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("# Is A faster\n# than B?\nname: x\n", "Is A faster than B?"),
        ("# Is A?\n#\n# Because. Is it?\nname: x\n", "Is A?"),
        ("# Is A? Or is B? It depends.\n", "Is A? Or is B?"),
        ("# Two hosts. More words\n", "Two hosts."),
        ("name: x  # Is A?\n", ""),
        ("", ""),
    ],
)
def test_the_question_is_that_of_the_first_comment(text: str, question: str) -> None:
    assert question_of(text) == question


def test_an_unknown_kind_is_refused(capsys) -> None:
    found = netsim(capsys, "list", "fabrics")
    assert (found.code, found.out) == (2, "")
    assert "scenarios" in found.err
