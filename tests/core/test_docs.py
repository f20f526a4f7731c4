"""What README and docs show is true: commands run, examples work."""

import re
import shlex
import shutil
from math import isfinite
from pathlib import Path

import pytest
import yaml

from netsim.collectives.collective import Collective
from netsim.collectives.table import ALGORITHMS
from netsim.collectives.table import algorithm as netsim_algorithm
from netsim.collectives.verify import check_races, verify
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.topology.fabrics.config import BUILDERS
from netsim.topology.machine import TRANSPORTS
from netsim.topology.routing import switch
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


COMMANDS = [
    part.strip()
    for block in blocks(README, "sh")
    for line in block.splitlines()
    for part in line.split("&&")
    if part.strip().startswith("netsim ")
]


def test_the_readme_shows_commands() -> None:
    assert len(COMMANDS) >= 6


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_readme_runs(command: str, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = netsim(capsys, *shlex.split(command)[1:])
    assert outcome.code == 0, outcome.err
    assert outcome.out


def test_the_scenario_of_the_readme_is_the_one_that_ships() -> None:
    shown = yaml.safe_load(blocks(README, "yaml")[0])
    assert shown == yaml.safe_load((ROOT / "scenarios" / f"{shown['name']}.yaml").read_text())


def test_the_readme_is_short_and_begins_with_a_picture_and_two_commands() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert README.count("![") == 1
    first, second = blocks(README, "sh")[:2]
    assert README.index("![") < README.index(first)
    assert first == "pip install . && netsim run scenarios/quickstart.yaml\n"
    assert second == "pip install '.[test]' && pytest\n"


def test_every_question_of_the_gallery_is_a_scenario_that_ships() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text()
    names = re.findall(r"\| `netsim run (\S+)` \|", page)
    assert len(names) >= 6
    for name in names:
        assert (ROOT / "scenarios" / f"{name}.yaml").exists(), name


def test_every_scenario_of_the_readme_can_be_built() -> None:
    for shown in blocks(README, "yaml"):
        assert len(expand(parse_source(shown, "README.md"))) > 1


def test_pictures_and_pages_that_are_linked_exist() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
@pytest.mark.parametrize("example", blocks((ROOT / "docs" / "api.md").read_text(), "python"))
def test_examples_of_the_api_run(example: str, capsys) -> None:
    exec(compile(example, "api.md", "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.slow
def test_what_extending_shows_works_as_shown() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    algorithm, linked, longer, topology, engine = blocks(page, "python")
    names: dict[str, object] = {}
    for example in (algorithm, linked, longer, topology, engine):
        exec(compile(example, "extending.md", "exec"), names)
    collective = Collective("broadcast", 5, 100, root=2, in_place=True)
    schedule = names["broadcast"](collective)
    verify(schedule, collective)
    check_races(schedule, collective)
    for name in ("broadcast", "along"):
        netsim_algorithm("broadcast")(names[name])
        del ALGORITHMS["broadcast"][name]
    netsim_algorithm("all_reduce")(names["two_phases"])
    del ALGORITHMS["all_reduce"]["two_phases"]
    star = simulate(place(schedule, names["star"](5)))
    assert star.makespan == pytest.approx(simulate(place(schedule, switch(5, 50e9, 1e-6))).makespan)
    assert names["run"](place(schedule, switch(5, 50e9))).makespan == 0


TOPOLOGIES = (ROOT / "docs" / "topologies.md").read_text()


@pytest.mark.slow
def test_the_page_on_topologies_is_true(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    machine, cluster, written = blocks(TOPOLOGIES, "yaml")
    (tmp_path / "mine.yaml").write_text(machine)
    (tmp_path / "racks.yaml").write_text(cluster)
    (tmp_path / "written.yaml").write_text(written)
    shutil.copy(ROOT / "tests/data/nccl/topo/h100_8nic.xml", tmp_path / "cluster.xml")
    shutil.copy(ROOT / "tests/data/smi/h100_spaces.txt", tmp_path / "topo.txt")
    commands = [line for block in blocks(TOPOLOGIES, "sh") for line in block.splitlines()]
    checks = ["check racks.yaml", "topo show written.yaml", "topo show topologies/mine.yaml"]
    for command in [*commands, *(f"netsim {check}" for check in checks)]:
        outcome = netsim(capsys, *shlex.split(command)[1:])
        assert outcome.code == 0, (command, outcome.err)


def test_the_page_on_topologies_names_every_fabric_and_transport() -> None:
    for kind in [*BUILDERS, "single-switch", "ring", "nvlink-domain", "custom"]:
        assert f"| `{kind}` |" in TOPOLOGIES
    for one in TRANSPORTS.values():
        row = next(line for line in TOPOLOGIES.splitlines() if line.startswith(f"| `{one.name}` |"))
        assert f"{one.usable * 100:.3g} %" in row
        assert not one.latency or f"{one.latency * 1e6:.3g} µs a message" in row
        hop = f"{one.hop * 1e9:.3g} ns" if one.hop < 1e-6 else f"{one.hop * 1e6:.3g} µs"
        assert row.split("|")[2].strip().startswith(hop)
        usual_routing = row.split("|")[-2].strip()
        assert usual_routing.startswith(one.routing_for(1e12))
        if isfinite(one.adaptive_from):
            assert usual_routing.endswith(
                f"{one.adaptive_from * 8e-9:.0f} Gb/s and more, static below"
            )
