"""Chakra traces: what is written is read back, runs alike, and files that are none are told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netsim.base.errors import InputError
from netsim.collectives.collective import collective_of
from netsim.collectives.table import build
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.topology.routing import switch, torus
from netsim.training.recorded.chakra import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    TraceNode,
    _calls,
    decoded,
    encoded,
    fields,
    nodes_of,
    nodes_of_json,
    read_varint,
    tape_of_trace,
    varint,
    write_ranks,
)
from netsim.training.resolve import resolve_step
from netsim.training.run import simulate_step
from netsim.workloads.step import training_step
from netsim.workloads.tape import TapeEntry
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim
from tests.training.steps import setting, step


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**63])
def test_numbers_are_read_back(number: int) -> None:
    assert read_varint(varint(number), 0) == (number, len(varint(number)))


def test_a_node_on_the_wire_is_what_the_definition_says() -> None:
    """Bytes written by hand after et_def.proto: id 1, name 2, type 3, data_deps 5, duration 7."""
    data = encoded([TraceNode(3, "g", COMPUTE, (1,), 300)])
    head = b"\x1b\x0a\x050.0.4\x12\x12\x0a\x0dkernels_alone\xd8\x01\x01"
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
    again = simulate_step(resolve_step(expand(parse_source(text, "x.yaml"))[0]))
    assert again.seconds == pytest.approx(first.seconds, rel=2e-3)
    kinds = [[t.collective for t in one.spans.tape.entries] for one in (first, again)]
    assert kinds[0] == kinds[1]


def test_run_writes_execution_traces(tmp_path, capsys) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "cluster: {machine: dgx-h100}\nworkload: {model: bert-base, batch: 8}\n"
        "outputs: [csv, chakra]\n"
    )
    outcome = netsim(capsys, "run", path, "-o", tmp_path / "out", "-q")
    assert outcome.code == 0, outcome.err
    files = sorted(file.name for file in (tmp_path / "out/chakra").iterdir())
    assert files == ["groups.json", *(f"s.{rank}.et" for rank in range(8))]
    assert json.loads((tmp_path / "out/chakra/groups.json").read_text()) == {"1": [*range(8)]}
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
        resolve_step(expand(parse_source(text, "x.yaml"))[0])


def test_a_collective_has_no_execution_trace(tmp_path, capsys) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "cluster: {machine: dgx-h100}\nworkload: {collective: all_reduce}\noutputs: [chakra]\n"
    )
    outcome = netsim(capsys, "run", path, "-o", tmp_path / "out", "-q")
    assert outcome.code == 2
    assert "s.yaml:3:10: outputs: chakra is for training steps" in outcome.err


def schema() -> Any:
    """The messages of et_def.proto that matter here, made by Google's own library."""
    pool = pytest.importorskip("google.protobuf.descriptor_pool")
    descriptor = pytest.importorskip("google.protobuf.descriptor_pb2")
    factory = pytest.importorskip("google.protobuf.message_factory")
    file = descriptor.FileDescriptorProto(name="et.proto", package="et", syntax="proto3")
    types = descriptor.FieldDescriptorProto
    messages = {
        "AttributeProto": [
            ("name", 1, types.TYPE_STRING), ("double_val", 3, types.TYPE_DOUBLE),
            ("float_val", 5, types.TYPE_FLOAT), ("int32_val", 7, types.TYPE_INT32),
            ("int64_val", 9, types.TYPE_INT64), ("uint64_val", 13, types.TYPE_UINT64),
            ("sint64_val", 17, types.TYPE_SINT64), ("fixed64_val", 21, types.TYPE_FIXED64),
            ("sfixed32_val", 23, types.TYPE_SFIXED32), ("bool_val", 27, types.TYPE_BOOL),
            ("string_val", 29, types.TYPE_STRING),
        ],
        "GlobalMetadata": [("version", 1, types.TYPE_STRING)],
        "Node": [
            ("id", 1, types.TYPE_UINT64), ("name", 2, types.TYPE_STRING),
            ("type", 3, types.TYPE_UINT64), ("ctrl_deps", 4, -types.TYPE_UINT64),
            ("data_deps", 5, -types.TYPE_UINT64), ("duration_micros", 7, types.TYPE_UINT64),
            ("attr", 10, -types.TYPE_MESSAGE), ("later", 99, types.TYPE_STRING),
        ],
    }  # fmt: skip
    for message, members in messages.items():
        made = file.message_type.add(name=message)
        for name, number, kind in members:
            one = made.field.add(name=name, number=number, type=abs(kind))
            one.label = types.LABEL_REPEATED if kind < 0 else types.LABEL_OPTIONAL
            if abs(kind) == types.TYPE_MESSAGE:
                one.type_name = ".et.AttributeProto"
    known = pool.DescriptorPool()
    known.Add(file)
    return {
        name: factory.GetMessageClass(known.FindMessageTypeByName(f"et.{name}"))
        for name in messages
    }


def test_google_s_protobuf_reads_what_is_written() -> None:
    classes = schema()
    nodes = list(nodes_of(training_step(setting(tp=2, cp=2, dp=2)), 3, {}))
    data, at, read = encoded(nodes), 0, []
    while at < len(data):
        size, at = read_varint(data, at)
        kind = "GlobalMetadata" if not read else "Node"
        read.append(classes[kind].FromString(data[at : at + size]))
        at += size
    assert read[0].version == "0.0.4"
    for node, message in zip(nodes, read[1:], strict=True):
        assert (message.id, message.name, message.type) == (node.number, node.name, node.kind)
        assert tuple(message.data_deps) == node.after
        values = {one.name: one for one in message.attr}
        assert values["is_cpu_op"].bool_val is False
        if node.kind == COLLECTIVE:
            assert values["comm_size"].int64_val == node.attributes["comm_size"]
            assert values["pg_name"].string_val == node.attributes["pg_name"].decode()
        elif node.kind in (SEND, RECEIVE):
            assert values["comm_dst"].int32_val == node.attributes["comm_dst"]


def test_what_google_s_protobuf_writes_is_read_with_every_type_of_value() -> None:
    classes = schema()
    node = classes["Node"](
        id=7,
        name="call",
        type=COLLECTIVE,
        ctrl_deps=[1, 300],
        data_deps=[2],
        duration_micros=9,
        later="a field of another version",
    )
    told = {
        "a": ("double_val", 0.5), "b": ("float_val", 0.25), "c": ("int32_val", -3),
        "d": ("int64_val", -(2**40)), "e": ("uint64_val", 2**63), "f": ("sint64_val", -5),
        "g": ("fixed64_val", 2**50), "h": ("sfixed32_val", -9), "i": ("bool_val", True),
        "j": ("string_val", "text"),
    }  # fmt: skip
    for name, (kind, value) in told.items():
        node.attr.add(name=name, **{kind: value})
    parts = [
        classes["GlobalMetadata"](version="0.0.4").SerializeToString(),
        node.SerializeToString(),
    ]
    (found,) = decoded(b"".join(varint(len(part)) + part for part in parts))
    assert (found.number, found.name, found.kind) == (7, "call", COLLECTIVE)
    assert (found.after, found.micros) == ((2,), 9)  # those of control are no waits
    expected = {name: value for name, (_, value) in told.items()} | {"i": 1, "j": b"text"}
    assert found.attributes == expected


def test_durations_add_up_though_each_is_rounded() -> None:
    tape = training_step(setting(dp=4))
    total = sum(task.seconds for task in tape.entries if 2 in task.groups) * 1e6
    for slowdown in (1.0, 1.37):
        nodes = nodes_of(tape, 2, {}, slowdown)
        assert sum(node.micros for node in nodes) == pytest.approx(total * slowdown, abs=1)


def test_sizes_are_what_one_rank_puts_in() -> None:
    s = setting(dp=4, data="fsdp", batch=4)
    tape = training_step(s)
    told = [n for n in nodes_of(tape, 0, {}) if n.kind == COLLECTIVE]
    tasks = [task for task in tape.entries if task.collective]
    for node, task in zip(told, tasks, strict=True):
        part = 4 if task.collective == "all_gather" else 1
        assert node.attributes["comm_size"] == task.nbytes // part


def test_a_ring_is_a_send_and_a_receive_and_both_are_waited_for() -> None:
    tape = training_step(setting(cp=4, batch=1))
    ring = next(k for k, task in enumerate(tape.entries) if task.collective == "sendrecv")
    nodes = {node.number: node for node in nodes_of(tape, 2, {})}
    sent, received = nodes[ring], nodes[len(tape.entries) + ring]
    assert (sent.kind, received.kind) == (SEND, RECEIVE)
    assert (sent.attributes["comm_src"], sent.attributes["comm_dst"]) == (2, 3)
    assert (received.attributes["comm_src"], received.attributes["comm_dst"]) == (1, 2)
    waiting = [node for node in nodes.values() if sent.number in node.after]
    assert waiting
    assert all(received.number in node.after for node in waiting)


def replayed(tmp_path: Path, nodes: list[TraceNode], groups: str | None = None):
    path = tmp_path / "a.1.et"
    path.write_bytes(encoded(nodes))
    if groups is not None:
        (tmp_path / "groups.json").write_text(groups)
    text = f"cluster: {{machine: dgx-h100}}\nworkload: {{trace: {path}}}\n"
    return resolve_step(expand(parse_source(text, "x.yaml"))[0])


def test_pairs_run_and_groups_are_all_ranks_where_none_is_named(tmp_path) -> None:
    nodes = [
        TraceNode(0, "k", COMPUTE, (), 50),
        TraceNode(1, "s", SEND, (0,), 0, {"comm_size": 2**20, "comm_dst": 5}),
        TraceNode(2, "r", RECEIVE, (0,), 0, {"comm_size": 2**20, "comm_src": 3}),
        TraceNode(3, "all", COLLECTIVE, (1, 2), 0, {"comm_size": 2**20, "comm_type": 0}),
        TraceNode(4, "lost", SEND, (), 0, {"comm_size": 2**20}),
    ]
    resolved = replayed(tmp_path, nodes)
    tasks = resolved.tape().entries
    assert [task.groups.tolist()[:2] for task in tasks[1:3]] == [[[0, 4], [1, 5]], [[2, 0], [3, 1]]]
    assert tasks[3].groups.tolist() == [list(range(8))]
    assert resolved.recorded is not None
    assert resolved.recorded.notes == (
        "one rank's file taken for all ranks",
        "1 collectives that tell no dtype taken as bfloat16",
        "1 sends and receives without a peer left out",
    )


def test_operators_of_hosts_and_memory_take_no_time_but_are_waited_through(tmp_path) -> None:
    nodes = [
        TraceNode(
            4, "late", COLLECTIVE, (3,), 0, {"comm_size": 64, "comm_type": 0}
        ),  # out of order
        TraceNode(1, "k", COMPUTE, (), 50),
        TraceNode(2, "load", 2, (1,), 10),
        TraceNode(3, "aten::op", COMPUTE, (2, 99), 80, {"is_cpu_op": 1}),
    ]
    resolved = replayed(tmp_path, nodes)
    tasks = resolved.tape().entries
    assert [task.name for task in tasks] == ["k", "late"]
    assert tasks[1].after == (0,)
    assert resolved.recorded is not None
    assert set(resolved.recorded.notes) == {
        "one rank's file taken for all ranks",
        "1 collectives that tell no dtype taken as bfloat16",
        "1 nodes of memory and metadata left out",
        "1 operators of hosts left out",
    }


@pytest.mark.parametrize(
    ("nodes", "groups", "message"),
    [
        (
            [
                TraceNode(1, "a", COMPUTE, (2,)),
                TraceNode(2, "b", COLLECTIVE, (1,), 0, {"comm_type": 0}),
            ],
            None,
            "nodes wait for each other",
        ),
        (
            [
                TraceNode(
                    1, "a", COLLECTIVE, (), 0, {"comm_type": 0, "comm_size": 8, "pg_name": b"3"}
                )
            ],
            '{"0": [0, 1]}',
            "of group '3', which groups.json lacks",
        ),
        (
            [
                TraceNode(
                    1, "a", COLLECTIVE, (), 0, {"comm_type": 0, "comm_size": 8, "pg_name": b"3"}
                )
            ],
            None,
            "groups.json: no such file",
        ),
        (
            [
                TraceNode(
                    1, "a", COLLECTIVE, (), 0, {"comm_type": 0, "comm_size": 8, "pg_name": b"3"}
                )
            ],
            "[1, 2]",
            "expected groups as",
        ),
        (
            [
                TraceNode(
                    1,
                    "a",
                    COLLECTIVE,
                    (),
                    0,
                    {"comm_type": 0, "comm_size": 8, "involved_dim": b"\x0a\x02\x01\x00"},
                )
            ],
            None,
            "over some dimensions of a network only",
        ),
        (
            [
                TraceNode(
                    1, "a", COLLECTIVE, (), 0, {"comm_type": 0, "comm_size": 8, "comm_group": 3}
                )
            ],
            '{"0": [0, 1]}',
            "of group '3', which groups.json lacks",
        ),
        (
            [TraceNode(1, "a", COLLECTIVE, (), 0, {"comm_type": 44, "comm_size": 8})],
            None,
            "has no comm_type or comm_size",
        ),
    ],
)
def test_traces_that_do_not_fit_together_are_told(tmp_path, nodes, groups, message) -> None:
    with pytest.raises(InputError, match=message):
        replayed(tmp_path, nodes, groups)


@pytest.mark.parametrize("flags", [b"\x0a\x02\x01\x01", b"\x08\x01\x08\x01", b""])
def test_all_dimensions_are_all_ranks(tmp_path, flags: bytes) -> None:
    told = {"comm_type": 0, "comm_size": 8, "involved_dim": flags}
    (task,) = replayed(tmp_path, [TraceNode(1, "a", COLLECTIVE, (), 0, told)]).tape().entries
    assert task.groups.tolist() == [list(range(8))]


def run_from(path: Path, cluster: str = "machine: dgx-h100"):
    text = f"cluster: {{{cluster}}}\nworkload: {{trace: {path}}}\n"
    return simulate_step(resolve_step(expand(parse_source(text, "x.yaml"))[0]))


@pytest.mark.full
@pytest.mark.parametrize(
    "layout",
    [
        "{tp: 2, pp: 4}\n  micro_batch: 2",
        "{tp: 4, dp: 2, data: fsdp}\n  micro_batch: 4",
        "{pp: 2, dp: 4}\n  micro_batch: 2\n  pipeline: {schedule: interleaved, chunks: 2}",
    ],
)
def test_every_layout_comes_back_with_the_files_of_all_ranks(tmp_path, layout: str) -> None:
    """Ranks of other stages do other things; kernels lose time to NCCL as in the step itself.
    Durations are written in whole microseconds, and when the host launches what is not."""
    first = step(f"  parallelism: {layout}", batch=32)
    write_ranks(tmp_path, "step", first.spans.tape, range(8))
    again = run_from(tmp_path / "step.3.et")
    assert again.seconds == pytest.approx(first.seconds, rel=1e-3)
    told = [
        sorted((t.collective, t.nbytes, t.dtype) for t in one.spans.tape.entries for _ in t.groups)
        for one in (first, again)
    ]
    pairs = [[one for one in found if one[0] != "p2p"] for found in told]
    assert pairs[0] == pairs[1]
    assert "taken for all" not in again.approximation
    for rank in range(1, 8):
        (tmp_path / f"step.{rank}.et").unlink()
    assert "one rank's file taken for all ranks" in run_from(tmp_path / "step.0.et").approximation


def all_of(tmp_path: Path, ranks: list[list[TraceNode]]) -> Path:
    for rank, nodes in enumerate(ranks):
        (tmp_path / f"a.{rank}.et").write_bytes(encoded(nodes))
    return tmp_path / "a.0.et"


def reduction(number: int, size: int = 64, kind: int = 0, after: tuple[int, ...] = ()) -> TraceNode:
    return TraceNode(number, "c", COLLECTIVE, after, 0, {"comm_size": size, "comm_type": kind})


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (
            [[reduction(1)]] * 3
            + [[TraceNode(1, "k", COMPUTE, (), 5), reduction(2), reduction(3)]],
            r"call 2 of group \(c\): rank 0 takes no part in it",
        ),
        (
            [[reduction(1)]] * 3 + [[reduction(1, 128)]],
            "is all_reduce of 64 bytes, but that of rank 3 is all_reduce of 128",
        ),
        ([[reduction(1)]] * 3, r"up to 2, but the cluster has 4 GPUs"),
        (
            [
                [
                    reduction(1),
                    reduction(2, 32, 7, (1,)),
                    TraceNode(3, "s", SEND, (2,), 0, {"comm_size": 8, "comm_dst": 1}),
                ],
                [
                    TraceNode(1, "r", RECEIVE, (), 0, {"comm_size": 8, "comm_src": 0}),
                    reduction(2, after=(1,)),
                    reduction(3, 32, 7),
                ],
                *[[reduction(1), reduction(2, 32, 7)]] * 2,
            ],
            "the ranks' calls wait for each other",
        ),
    ],
)
def test_files_of_ranks_that_do_not_meet_are_told(tmp_path, ranks, message) -> None:
    with pytest.raises(InputError, match=message):
        run_from(all_of(tmp_path, ranks), "machine: dgx-h100, gpus_per_node: 4")


def test_a_ring_of_sends_before_receives_is_no_circle(tmp_path) -> None:
    """As custom collectives are written for other simulators: who sends waits for no receiver."""
    size = 2**24
    ranks = [
        [
            TraceNode(0, "s", SEND, (), 0, {"comm_size": size, "comm_dst": (rank + 1) % 4}),
            TraceNode(1, "r", RECEIVE, (0,), 0, {"comm_size": size, "comm_src": (rank - 1) % 4}),
            TraceNode(2, "add", COMPUTE, (1,), 100 * rank),
            TraceNode(3, "s", SEND, (2,), 0, {"comm_size": size, "comm_dst": (rank + 1) % 4}),
            TraceNode(4, "r", RECEIVE, (3,), 0, {"comm_size": size, "comm_src": (rank - 1) % 4}),
        ]
        for rank in range(4)
    ]
    found = run_from(all_of(tmp_path, ranks), "machine: dgx-h100, gpus_per_node: 4")
    (tmp_path / "once").mkdir()
    first = all_of(tmp_path / "once", [nodes[:2] for nodes in ranks])
    once = run_from(first, "machine: dgx-h100, gpus_per_node: 4")
    assert found.seconds == pytest.approx(2 * once.seconds + 300e-6, rel=0.03)


def test_the_type_of_a_kernel_is_its_name_s_and_else_two_bytes(tmp_path) -> None:
    named = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"
    told = {"comm_type": 0, "comm_size": 64}
    nodes = [
        TraceNode(0, named, COLLECTIVE, (), 0, told),
        TraceNode(1, "c", COLLECTIVE, (0,), 0, told),
        TraceNode(2, "c", COLLECTIVE, (1,), 0, told | {"comm_size": 63}),
        TraceNode(3, "c", COLLECTIVE, (2,), 0, told | {"types": b"['Tensor(c10::BFloat16)']"}),
        TraceNode(4, "c10d::broadcast_", COLLECTIVE, (2,), 0, {"is_cpu_op": 1}),
    ]
    replayed(tmp_path, nodes)
    tape, notes = tape_of_trace(tmp_path / "a.1.et", 8)
    assert [task.dtype for task in tape.entries] == ["float", "bfloat16", "uint8", "bfloat16"]
    assert "2 collectives that tell no dtype taken as bfloat16" in notes


FEEDER = {
    "workload_graph": [
        {"Id": 7, "Name": "k", "NodeType": 4, "data_deps": [], "runtime": 50, "is_cpu_op": False},
        {"Id": 9, "Name": "c", "NodeType": 7, "data_deps": [7], "ctrlDeps": [9], "comm_type": 2,
         "comm_size": 64, "is_cpu_op": False},
    ]
}  # fmt: skip
MESSAGES = [
    {"version": "0.0.4"},
    {"id": "7", "name": "k", "type": "COMP_NODE", "durationMicros": "50",
     "attr": [{"name": "is_cpu_op", "boolVal": False}]},
    {"id": "9", "name": "c", "type": "COMM_COLL_NODE", "ctrlDeps": ["9"], "dataDeps": ["7"],
     "attr": [{"name": "comm_type", "int64Val": "2"}, {"name": "comm_size", "int64Val": "64"},
              {"name": "dtype", "stringVal": "bfloat16"}]},
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FEEDER),
        "\n".join(json.dumps(one, indent=2) for one in MESSAGES),
        "".join(json.dumps(one) for one in MESSAGES),
    ],
)
def test_chakra_in_json_is_read(tmp_path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    tasks = run_from(path).spans.tape.entries
    assert [(t.name, t.nbytes, t.dtype, t.after) for t in tasks] == [
        ("k", 0, "bfloat16", ()),
        ("c", 512, "bfloat16", (0,)),
    ]
    assert tasks[0].seconds == pytest.approx(5e-5)
    for damaged in (text[:-9], text.replace("50", "1e999"), text.replace("7", "{}")):
        path.write_text(damaged)
        with pytest.raises(InputError, match="cut, or no execution trace in JSON"):
            tape_of_trace(path, 8)


def observed(number: int, name: str, inputs: list[Any], types: list[str], **more: Any) -> Any:
    told = {"values": inputs, "shapes": [], "types": types}
    return {"id": number, "name": name, "ctrl_deps": 2, "inputs": told, "attrs": [], **more}


def recorded(number: int, collective: str, count: int, group: Any, peer: int = 0) -> Any:
    """A call as PyTorch's observer has it: tensors of (id, storage, offset, elements, bytes)."""
    values = [[[number, number, 0, count, 2, "cuda:0"]], number, group, peer, collective, [], [], 8]
    types = ["GenericList[Tensor(c10::BFloat16)]", "Int", "Int", "Int", "String"]
    return observed(number, "record_param_comms", values, types)


def test_what_pytorch_observes_is_read(tmp_path) -> None:
    """Groups by the number of their backend or by name, a wait, and kernels that were linked in."""
    made = '[{"pg_name": "0", "backend_id": 77, "ranks": [], "group_size": 8}, ' + (
        '{"pg_name": "1", "backend_id": 78, "ranks": [0, 1, 2, 3], "group_size": 4}]'
    )
    kernel = {"cat": "kernel", "exclusive_dur": 30.0}
    nodes = [
        observed(3, "## process_group:init ##", [made], ["String"]),
        observed(4, "gemm", [], [], **kernel),
        recorded(5, "allreduce", 100, 77),
        {**observed(6, "ncclDevKernel_AllReduce", [], [], **kernel), "ctrl_deps": 5},
        observed(7, "gemm", [], [], **kernel),
        recorded(8, "_allgather_base", 100, ["1", "tp"]),
        observed(9, "record_param_comms", [8, 0, 0, "wait", [], [], 1], ["Int"]),
        observed(10, "gemm", [], [], **kernel),
        recorded(11, "allreduce", 50, 77),
    ]
    path = tmp_path / "pytorch.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    tasks = run_from(path).spans.tape.entries
    assert [(t.collective, t.nbytes, t.after, len(t.groups[0])) for t in tasks] == [
        ("", 0, (), 1),
        ("all_reduce", 200, (0,), 8),
        ("", 0, (), 1),
        ("all_gather", 800, (2,), 4),
        ("", 0, (1, 3), 1),
        ("all_reduce", 100, (4, 1), 8),
    ]
    assert all(task.dtype == "bfloat16" for task in tasks if task.collective)
    assert tasks[0].seconds == pytest.approx(3e-5)


@pytest.mark.parametrize("shape", ["kind: switch, gpus: 8", "kind: torus, dims: [2, 4]"])
def test_on_a_graph_kernels_take_their_time_and_collectives_that_of_rings(tmp_path, shape) -> None:
    """All-reduce of 1 MiB of two bytes each, between two kernels."""
    kernels = [TraceNode(1, "a", COMPUTE, (), 300), TraceNode(3, "b", COMPUTE, (2,), 200)]
    path = all_of(tmp_path, [[kernels[0], reduction(2, 2**20, after=(1,)), kernels[1]]])
    graph = f"graph: {{{shape}, bandwidth: 50GB/s, latency: 1us}}"
    found = run_from(path, graph).spans.timeline.makespan
    topology = {"switch": switch(8, 50e9, 1e-6), "torus": torus([2, 4], 50e9, 1e-6)}
    ring = build(collective_of("all_reduce", 8, 2**20, 2), "ring")
    alone = simulate(place(ring, topology[shape.split()[1].strip(",")])).makespan
    assert found == pytest.approx(500e-6 + alone, rel=1e-6)


@pytest.mark.parametrize(("rank", "kind"), [(5, SEND), (2, RECEIVE)])
def test_a_message_has_its_sender_and_receiver_at_either_end(rank: int, kind: int) -> None:
    node = TraceNode(7, "p2p", COMPUTE, (), 0)
    task = TapeEntry("p2p", "pp", "", "", np.array([[5, 2]]), (), collective="p2p", nbytes=64)
    (found,) = _calls(node, task, rank, (5, 2), {}, 99)
    assert (found.number, found.kind) == (7, kind)
    told = found.attributes
    assert [told[f"comm_{name}"] for name in ("src", "dst", "size", "tag")] == [5, 2, 64, 7]


def test_what_a_node_in_json_does_not_say_is_nothing() -> None:
    (node,) = nodes_of_json('{"nodes": []} {"id": 3, "attr": [{"name": "empty"}]}')
    assert (node.number, node.kind, node.attributes) == (3, 0, {"empty": 0})
