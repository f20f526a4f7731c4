"""Chakra traces: what is written is read back, runs alike, and files that are none are told."""

import json

import pytest

from netsim.errors import InputError
from netsim.scenario.cells import expand
from netsim.training.prepare import prepare_step
from netsim.training.recorded.chakra import (
    COLLECTIVE,
    COMPUTE,
    Node,
    decoded,
    encoded,
    nodes_of,
    write_ranks,
)
from netsim.training.recorded.wire import fields, read_varint, varint
from netsim.training.run import simulate_step
from netsim.workloads.step import training_step
from netsim.yamlio.source import parse_source
from tests.cli.command import netsim
from tests.training.steps import setting, step


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**63])
def test_numbers_are_read_back(number: int) -> None:
    assert read_varint(varint(number), 0) == (number, len(varint(number)))


def test_a_node_on_the_wire_is_what_the_definition_says() -> None:
    """Bytes written by hand after et_def.proto: id 1, name 2, type 3, data_deps 5, duration 7."""
    data = encoded([Node(3, "g", COMPUTE, (1,), 300)])
    head = b"\x07\x0a\x050.0.4"
    body = b"\x08\x03\x12\x01g\x18\x04\x28\x01\x38\xac\x02"
    body += b"\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00"
    assert data == head + varint(len(body)) + body
    assert dict(fields(body))[1] == 3


@pytest.mark.parametrize("degrees", [{"dp": 4}, {"tp": 2, "dp": 2}, {"tp": 2, "pp": 2}])
def test_nodes_are_read_back(degrees: dict[str, int]) -> None:
    tape = training_step(setting(**degrees))
    for rank in range(4):
        nodes = list(nodes_of(tape, rank, {}))
        again = decoded(encoded(nodes))
        assert [(n.number, n.name, n.kind, n.after, n.micros) for n in again] == [
            (n.number, n.name, n.kind, n.after, n.micros) for n in nodes
        ]
        for one, other in zip(nodes, again, strict=True):
            assert {k: v for k, v in other.attributes.items() if k != "is_cpu_op"} == dict(
                one.attributes
            )


def test_a_step_written_and_read_back_takes_the_same_time(tmp_path) -> None:
    first = step("  parallelism: {data: zero1}\n  micro_batch: 4", batch=64)
    write_ranks(tmp_path, "step", first.spans.tape, range(8))
    text = f"cluster: {{machine: dgx-h100}}\nworkload: {{trace: {tmp_path}/step.0.et}}\n"
    again = simulate_step(prepare_step(expand(parse_source(text, "x.yaml"))[0]))
    # Chakra counts whole microseconds.
    assert again.seconds == pytest.approx(first.seconds, rel=0.03)
    kinds = [[t.collective for t in one.spans.tape.tasks] for one in (first, again)]
    assert kinds[0] == kinds[1]


def test_run_writes_execution_traces(tmp_path, capsys) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("cluster: {machine: dgx-h100}\nworkload: {model: bert-base, batch: 8}\n"
                    "outputs: [csv, chakra]\n")  # fmt: skip
    outcome = netsim(capsys, "run", path, "-o", tmp_path / "out", "-q")
    assert outcome.code == 0, outcome.err
    files = sorted(file.name for file in (tmp_path / "out/chakra").iterdir())
    assert files == ["groups.json", *(f"s.{rank}.et" for rank in range(8))]
    assert json.loads((tmp_path / "out/chakra/groups.json").read_text()) == {"0": [*range(8)]}
    nodes = decoded((tmp_path / "out/chakra/s.0.et").read_bytes())
    assert {node.kind for node in nodes} == {COMPUTE, COLLECTIVE}


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\x08\x0a", "ends in the middle"), (b"", "has no collectives"), (b"\xff" * 12, "number")],
)
def test_files_that_are_no_execution_traces_are_told(tmp_path, content, message) -> None:
    (tmp_path / "groups.json").write_text('{"0": [0, 1]}')
    (tmp_path / "a.0.et").write_bytes(content)
    text = f"cluster: {{machine: dgx-h100}}\nworkload: {{trace: {tmp_path}/a.0.et}}\n"
    with pytest.raises(InputError, match=message):
        prepare_step(expand(parse_source(text, "x.yaml"))[0])


def test_a_collective_has_no_execution_trace(tmp_path, capsys) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("cluster: {machine: dgx-h100}\nworkload: {collective: all_reduce}\n"
                    "outputs: [chakra]\n")  # fmt: skip
    outcome = netsim(capsys, "run", path, "-o", tmp_path / "out", "-q")
    assert outcome.code == 2
    assert "s.yaml:3:10: outputs: chakra is for training steps" in outcome.err
