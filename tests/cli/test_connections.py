"""Connection matrices for packet simulators: the bytes from rank to rank of one operation."""

import re
from pathlib import Path

import pytest

from netsim.metrics.links import link_amounts
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.tasks.explained import shown_of
from netsim.tasks.resolve import resolve
from netsim.yamlio.read import read_source
from tests.cli.command import netsim

TEXT = """\
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 1GB/s, latency: 1us}}
workload: {collective: %s, algorithm: %s, sizes: [1000KiB, 4000KiB]}
outputs: [csv, connections]
"""


def written(tmp_path: Path, capsys, *what: str) -> tuple[list[tuple[int, ...]], Path]:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT % what)
    outcome = netsim(capsys, "run", path, "-o", tmp_path / "out", "-q")
    assert outcome.code == 0, outcome.err
    lines = (tmp_path / "out/connections.cm").read_text().splitlines()
    found = [re.fullmatch(r"(\d+)->(\d+) id (\d+) start 0 size (\d+)", one) for one in lines[2:]]
    assert lines[:2] == ["Nodes 4", f"Connections {len(found)}"]
    numbers = [tuple(map(int, one.groups())) for one in found if one]
    assert [one[2] for one in numbers] == list(range(1, len(lines) - 1))
    return [(one[0], one[1], one[3]) for one in numbers], path


def test_a_ring_sends_three_halves_of_its_data_to_the_next(tmp_path, capsys) -> None:
    found, _ = written(tmp_path, capsys, "all_reduce", "ring")
    assert found == [(k, (k + 1) % 4, 4096000 * 6 // 4) for k in (0, 1, 2, 3)]
    flows = (tmp_path / "out/flows.txt").read_text().splitlines()
    assert flows[0] == "4"
    assert [tuple(int(one.split()[i]) for i in (0, 1, 4)) for one in flows[1:]] == found
    assert [one.split()[2:4] for one in flows[1:]] == [["3", str(100 + k)] for k in range(4)]


def test_the_links_carry_what_the_matrix_says(tmp_path, capsys) -> None:
    found, path = written(tmp_path, capsys, "broadcast", "binomial")
    ready = resolve(expand(read_source(path))[0])
    program = place(shown_of(ready, 4096000).schedule, ready.topology, ready.gpus.tolist())
    carried = link_amounts(program)
    names = {program.links.name(link): carried[link] for link in range(len(carried))}
    for rank in range(4):
        sent = sum(size for src, _, size in found if src == rank)
        assert names.get(f"gpu{rank}->switch0", 0.0) == sent


@pytest.mark.slow
def test_what_has_no_connections_is_told(tmp_path, capsys) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "cluster: {machine: dgx-h100}\noutputs: [connections]\n"
        "workload: {collective: all_reduce, algorithm: NVLS}\n"
    )
    outcome = netsim(capsys, "run", path, "-o", tmp_path / "out", "-q")
    assert (outcome.code, "connections" in outcome.err) == (2, True)
    path.write_text(
        "cluster: {machine: dgx-h100}\noutputs: [connections]\n"
        "workload: {model: bert-base, batch: 8}\n"
    )
    outcome = netsim(capsys, "run", path, "-o", tmp_path / "out", "-q")
    assert outcome.code == 2
    assert "s.yaml:2:10: outputs: connections: only a collective has it, no step" in outcome.err
