"""`netsim localize`: injected faults are found, and what logs cannot separate is one suspect."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from netsim.base.errors import InputError
from netsim.cli.localize import localize, read_tests
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.localize.answer import LocalizeResult, as_values, text_lines
from netsim.localize.debug_log import differences, read_debug_log
from netsim.localize.node_tests import (
    COMPUTE,
    HostTest,
    NodeTest,
    SizeQuestion,
    number_hosts,
)
from netsim.localize.parts import Suspect
from netsim.localize.predictions import Predictor
from netsim.localize.settings import SETTINGS
from tests.bench import localize as bench
from tests.bench.localize import Fault, Lab, host_tests, is_hit
from tests.cli.command import netsim

NODES = 4
TEST_SIZES = (2**27,)
TWO_SIZES = (2**24, 2**27)


@pytest.fixture(scope="module")
def lab() -> Lab:
    """Four nodes with two GPUs and two NICs each."""
    return lab_of(2)


def lab_of(gpu_count: int) -> Lab:
    """Four nodes with some GPUs and as many NICs each."""
    options = QuestionOptions(nodes=NODES, gpus_per_node=gpu_count, nics_per_node=gpu_count)
    source, _ = source_of_question("dgx-h100", "all_reduce", options)
    hosts = [f"host-{number}" for number in range(NODES)]
    return Lab(source, NODES, hosts, Predictor(source, NODES))


@pytest.fixture(scope="module")
def plan() -> list[NodeTest]:
    """All nodes alone, and all pairs."""
    groups = [(node,) for node in range(NODES)] + list(combinations(range(NODES), 2))
    return [NodeTest(group, "all_reduce") for group in groups]


def found(
    lab: Lab,
    plan: Sequence[NodeTest],
    faults: Sequence[Fault],
    seed: int = 1,
    sizes: Sequence[int] = TEST_SIZES,
) -> LocalizeResult:
    """The result for logs of a plan with faults."""
    tests = host_tests(lab, plan, faults, np.random.default_rng(seed), sizes)
    return localize(lab.source, tests, predictor=lab.predictor)


SINGLE_FAULTS: dict[str, Fault] = {
    "node3.nic1": {"nic": "node3.nic1", "bandwidth": "40%"},
    "node2": {"host": 2, "bandwidth": "50%"},
    "node1": {"host": 1, "slowdown": 3.0},
    "rail1": {"rail": 1, "bandwidth": "50%"},
    "node0.gpu0-node0.nvswitch0": {"link": "node0.gpu0-node0.nvswitch0", "bandwidth": "30%"},
}


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("part", SINGLE_FAULTS)
def test_an_injected_fault_is_the_first_suspect(lab: Lab, plan: list[NodeTest], part: str) -> None:
    # At one size, a rail at half its bandwidth costs about as much as GPUDirect off on all nodes.
    result = found(lab, plan, [SINGLE_FAULTS[part]], sizes=TWO_SIZES)
    assert is_hit(result, 0, part)
    assert result.verdict.healthy_probability < 0.01
    assert result.verdict.ranking[0].explains > 0.8


def test_a_nic_with_a_twelfth_of_its_bandwidth_is_one_fault_of_that_severity(
    lab: Lab, plan: list[NodeTest]
) -> None:
    # It is more severe than the first severities that are simulated.
    result = found(lab, plan, [{"nic": "node3.nic1", "bandwidth": "8%"}])
    assert len(result.verdict.faults) == 1
    assert is_hit(result, 0, "node3.nic1")
    members = result.verdict.ranking[0].members
    (nic,) = [fit for fit in members if fit.suspect.part == "node3.nic1"]
    assert nic.severity == pytest.approx(0.08, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_cluster_has_no_suspects(lab: Lab, plan: list[NodeTest], seed: int) -> None:
    result = found(lab, plan, [], seed)
    assert result.verdict.healthy_probability > 0.9
    assert as_values(result)["suspects"] == []
    assert as_values(result)["next_test"] is None


@pytest.mark.full
def test_two_faults_are_among_the_first_three_suspects(lab: Lab, plan: list[NodeTest]) -> None:
    faults = [SINGLE_FAULTS["node2"], SINGLE_FAULTS["node1"]]
    result = found(lab, plan, faults)
    for part in ("node2", "node1"):
        assert any(is_hit(result, place, part) for place in range(3))


@pytest.mark.slow
def test_a_suspect_is_not_ruled_out_because_another_fault_hides_one_of_its_tests(
    lab: Lab, plan: list[NodeTest]
) -> None:
    """With the slow GPUs of node 0 known, its pair with node 1 shows hardly anything of node 1."""
    faults = [{"host": 1, "bandwidth": "18%"}, {"host": 0, "slowdown": 2.5}]
    result = found(lab, plan, faults)
    assert is_hit(result, 0, "node1")
    assert {"node1.nic0", "node1.nic1"} <= {
        fit.suspect.part for fit in result.verdict.ranking[0].members
    }
    assert any(is_hit(result, place, "node0") for place in (1, 2))


@pytest.mark.full
def test_links_above_the_leaves_that_no_test_separates_are_one_suspect() -> None:
    """Two leaves, joined over two spines: of each, all tests across leaves take one and the same.

    A tenth of a bandwidth is less than what is simulated first."""
    fabric = {"kind": "leaf-spine", "nodes_per_leaf": 2, "routing": "static"}
    cluster = bench.lab("dgx-h100", NODES, fabric, gpu_count=2)
    pairs = [NodeTest(pair, "all_reduce") for pair in combinations(range(NODES), 2)]
    result = found(cluster, pairs, [{"switch": "spine1", "bandwidth": "10%"}])
    (suspect,) = result.verdict.ranking[:1]
    names = {fit.suspect.part for fit in suspect.members}
    assert {"spine1", "leaf0-spine1", "leaf1-spine1"} <= names
    assert suspect.probability > 0.9
    across = [result.search.tests[number].test.nodes for number in result.verdict.slow_logs]
    assert sorted(across) == [(0, 2), (0, 3), (1, 2), (1, 3)]


@pytest.mark.full
def test_half_of_a_class_may_be_slow_by_two_faults() -> None:
    """Two nodes of one leaf each: half of the pairs within leaves are slow, and its median with
    them."""
    cluster = bench.lab("dgx-h100", 8, {"kind": "leaf-spine", "nodes_per_leaf": 4}, gpu_count=2)
    tests = [NodeTest((node,), "all_reduce") for node in range(8)]
    tests += [NodeTest(pair, "all_reduce") for pair in combinations(range(8), 2)]
    faults = [{"nic": "node3.nic0", "bandwidth": "62%"}, {"nic": "node6.nic0"}]
    result = found(cluster, tests, faults)
    for part in ("node3.nic0", "node6.nic0"):
        assert any(is_hit(result, place, part) for place in range(3))


@pytest.mark.parametrize("gpu_count", [1, pytest.param(2, marks=pytest.mark.full)])
def test_one_log_of_two_equal_nodes_makes_them_one_suspect_and_the_next_test_separates_them(
    gpu_count: int,
) -> None:
    test = NodeTest((0, 1), "all_reduce")
    fault = {"nic": f"node1.nic{gpu_count - 1}", "bandwidth": "30%"}
    result = found(lab_of(gpu_count), [test], [fault], sizes=TWO_SIZES)
    members = {fit.suspect.part for fit in result.verdict.ranking[0].members}
    nics = {f"node{node}.nic{nic}" for node in (0, 1) for nic in range(gpu_count)}
    assert nics <= members
    proposal = result.proposal
    assert proposal is not None
    nodes = set(proposal.test.nodes)
    assert len(nodes & {0, 1}) == 1 or proposal.test.gpus
    assert proposal.bits > 0.5


def test_the_order_of_logs_changes_nothing(lab: Lab, plan: list[NodeTest]) -> None:
    tests = host_tests(lab, plan, [SINGLE_FAULTS["node2"]], np.random.default_rng(3), TEST_SIZES)
    first = localize(lab.source, tests, predictor=lab.predictor)
    second = localize(lab.source, tests[::-1], predictor=lab.predictor)
    assert [group.best.suspect for group in first.verdict.ranking][:2] == [
        group.best.suspect for group in second.verdict.ranking
    ][:2]
    assert first.verdict.healthy_probability == pytest.approx(
        second.verdict.healthy_probability, abs=1e-6
    )


def test_renamed_hosts_rename_the_suspects(lab: Lab, plan: list[NodeTest]) -> None:
    tests = host_tests(lab, plan, [SINGLE_FAULTS["node2"]], np.random.default_rng(3), TEST_SIZES)
    renamed = [replace(test, hosts=tuple(f"r{host[-1]}" for host in test.hosts)) for test in tests]
    values = as_values(localize(lab.source, renamed, predictor=lab.predictor))
    assert values["suspects"][0]["part"] == "node2"
    assert values["suspects"][0]["hosts"] == ["r2"]


def test_a_healthy_test_of_other_nodes_clears_no_suspect_and_raises_none(
    lab: Lab, plan: list[NodeTest]
) -> None:
    fault = SINGLE_FAULTS["node2"]
    fewer = [test for test in plan if test.nodes != (0, 3)]
    before, after = found(lab, fewer, [fault]), found(lab, plan, [fault])
    assert before.verdict.ranking[0].best.suspect == after.verdict.ranking[0].best.suspect
    assert len(after.verdict.faults) == len(before.verdict.faults) == 1


def test_a_node_in_most_pairs_is_the_suspect_and_no_part_of_all_pairs(lab: Lab) -> None:
    # The median of these pairs is slow, so that the healthy ones look fast.
    pairs = [NodeTest(nodes, "all_reduce") for nodes in ((0, 2), (1, 2), (2, 3), (0, 1), (1, 3))]
    result = found(lab, pairs, [SINGLE_FAULTS["node2"]])
    assert is_hit(result, 0, "node2")
    assert result.verdict.slow_logs == (0, 1, 2)


def test_a_factor_common_to_all_tests_names_no_node(lab: Lab, plan: list[NodeTest]) -> None:
    tests = host_tests(lab, plan, [], np.random.default_rng(5), TEST_SIZES)
    slower = [
        replace(test, times={size: 1.1 * time for size, time in test.times.items()})
        for test in tests
    ]
    result = localize(lab.source, slower, predictor=lab.predictor)
    assert not any(
        fit.suspect.node >= 0 for group in result.verdict.ranking for fit in group.members
    )
    assert any("all tests of one kind" in line for line in text_lines(result)) or (
        result.verdict.faults
    )


def test_a_rank_with_long_steps_is_a_slow_gpu(lab: Lab) -> None:
    rng = np.random.default_rng(2)
    steps = []
    for node in range(NODES):
        for gpu in range(2):
            slowdown = 1.4 if (node, gpu) == (3, 1) else 1.0
            seconds = slowdown * float(np.exp(rng.normal(0, 0.01)))
            times = {SizeQuestion(1): seconds}
            steps.append(HostTest("steps", (f"host-{node}",), COMPUTE, times, 1, (gpu,)))
    result = localize(lab.source, steps, predictor=lab.predictor)
    assert is_hit(result, 0, "node3.gpu1")


def test_every_setting_says_how_to_confirm_it_and_what_it_changes() -> None:
    assert len(SETTINGS) >= 15
    for setting in SETTINGS.values():
        changes = (setting.changes, setting.variables, setting.machine, setting.fault)
        is_changing = any(changes) or setting.fewer_nics > 0
        assert setting.log_lines or setting.command
        assert is_changing == setting.is_modeled


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("setting", ["tcp", "gpudirect-off"])
def test_a_setting_of_all_nodes_is_the_suspect_if_all_tests_fit_it(
    lab: Lab, plan: list[NodeTest], setting: str
) -> None:
    suspect = Suspect("setting", "cluster", setting=setting)
    rng = np.random.default_rng(4)
    tests = []
    for test in plan[:10]:
        times = {}
        for size in TEST_SIZES:
            question = SizeQuestion(size)
            effect = lab.predictor.effect(test, question, suspect, 0.5)
            seconds = lab.predictor.healthy(test, question) * np.exp(effect + rng.normal(0, 0.01))
            times[question] = float(seconds)
        hosts = tuple(lab.hosts[node] for node in test.nodes)
        tests.append(HostTest("log", hosts, "all_reduce", times))
    result = localize(lab.source, tests, predictor=lab.predictor)
    settings = {fit.suspect.setting for fit in result.verdict.ranking[0].members}
    assert setting in settings


# Host names and files


def test_hosts_with_numbers_in_their_names_are_the_nodes_of_these_numbers() -> None:
    assert number_hosts(["n03", "n07"], 8).names == {3: "n03", 7: "n07"}
    assert number_hosts(["n1", "n8", "n3"], 8).names == {0: "n1", 7: "n8", 2: "n3"}
    assert number_hosts(["b", "a"], 8).names == {0: "a", 1: "b"}


def test_a_matrix_of_pairs_is_read_from_csv_and_from_json(tmp_path: Path) -> None:
    square = tmp_path / "square.csv"
    square.write_text("host,a,b,c\na,,40,50\nb,40,-,50\nc,50,50,\n")
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(
        "host_a,host_b,size_bytes,time_us\na,b,1073741824,26000\na,c,1073741824,21500\n"
    )
    values = tmp_path / "matrix.json"
    values.write_text(
        json.dumps(
            {"hosts": ["a", "b"], "busbw_gbps": [[None, 40], [40, None]], "size_bytes": 2**30}
        )
    )
    tests = read_tests([square], None, 2**30)
    assert len(tests) == 6
    assert tests[0].hosts == ("a", "b")
    assert tests[0].times[SizeQuestion(2**30)] == pytest.approx(2**30 / 40e9)
    tests = read_tests([pairs, values], None, None)
    assert [test.hosts for test in tests] == [("a", "b"), ("a", "c"), ("a", "b"), ("b", "a")]


def test_step_times_are_means_by_rank(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("rank,host,step_time_ms\n0,a,100\n0,a,110\n1,a,100\n2,b,100\n")
    tests = read_tests([path], None, None)
    assert [test.gpu_numbers for test in tests] == [(0,), (1,), (0,)]
    assert tests[0].times[SizeQuestion(1)] == pytest.approx(0.105)


@pytest.mark.slow
def test_the_verb_writes_the_contract_and_exits_with_1(
    plan: list[NodeTest], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_gpu = lab_of(1)
    rng = np.random.default_rng(6)
    files = []
    for number, test in enumerate(plan[NODES:]):
        file = tmp_path / f"log{number}.txt"
        file.write_text(one_gpu.log(test, [SINGLE_FAULTS["node2"]], rng, TEST_SIZES))
        files.append(str(file))
    answer = tmp_path / "answer.json"
    options = ["--topology", "dgx-h100", "--nodes", str(NODES), "--gpus-per-node", "1"]
    options += ["--nics-per-node", "1", "--json", str(answer), "-o", str(tmp_path / "out")]
    outcome = netsim(capsys, "localize", *files, *options)
    assert outcome.code == 1, outcome.err
    values = json.loads(answer.read_text())
    assert values["suspects"][0]["part"] in ("node2", "node2.nic0")
    assert {"part", "kind", "setting", "explains_pct", "probability"} <= set(values["suspects"][0])
    assert 0 <= values["healthy_probability"] < 0.01
    assert (tmp_path / "out" / "suspects.png").is_file()
    report = netsim(capsys, "report", str(tmp_path / "out"))
    assert report.code == 0, report.err
    page = (tmp_path / "out" / "report.html").read_text()
    assert values["suspects"][0]["part"] in page
    assert "data:image/svg+xml;base64," in page
    assert values["next_test"] is None or "mpirun" in page


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "the file is empty"),
        (
            "# nThread 1 nGpus 1\n# size count type redop root time algbw busbw #wrong\n"
            "1048576 262144 float sum -1 100 10.5 10.5 0\n",
            "lists no devices",
        ),
        ("host,a,b\na,,4\nb,4,\n", "--size"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    content: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ("log.csv" if content.startswith("host") else "all_reduce.txt")
    file.write_text(content)
    outcome = netsim(capsys, "localize", str(file), "--topology", "dgx-h100")
    assert outcome.code == 2
    assert words in outcome.err
    assert "Traceback" not in outcome.err


PAIR_HEADER = "host_a,host_b,size_bytes,time_us"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", f"{PAIR_HEADER}\na,b,1024,-5\n", "t.csv:2: time_us: expected a number above 0"),
        ("t.csv", f"{PAIR_HEADER}\na,b,x,5\n", "t.csv:2: size_bytes: expected a size such as"),
        (
            "t.csv",
            f"{PAIR_HEADER},gpus_per_node\na,b,1M,5,2.5\n",
            "t.csv:2: gpus_per_node: expected a whole number above 0, got 2.5",
        ),
        (
            "t.csv",
            f"{PAIR_HEADER},collective\na,b,1M,5,gossip\n",
            "t.csv:2: collective: expected one of sendrecv, ",
        ),
        (
            "t.json",
            '{"hosts": ["a", "b"], "busbw_gbps": [[1, 2], [3, 4]], "size_bytes": "much"}',
            "t.json: size_bytes: expected a size such as",
        ),
        (
            "t.json",
            '{"hosts": ["a", "b"], "busbw_gbps": [[1, 2], [3, 4]], "gpus_per_node": "many"}',
            "t.json: gpus_per_node: expected a number above 0, got 'many'",
        ),
        (
            "t.json",
            '{"hosts": "ab", "busbw_gbps": [[1, 2], [3, 4]], "size_bytes": 1048576}',
            "t.json: expected hosts, a list, and busbw_gbps with one list for each host",
        ),
        (
            "t.json",
            '{"hosts": [["a"], "b"], "busbw_gbps": [[1, 2], [3, 4]], "size_bytes": 1048576}',
            "t.json: hosts.0: expected the name of a host, got ['a']",
        ),
        (
            "t.json",
            '{"hosts": ["a", "a"], "busbw_gbps": [[1, 2], [3, 4]], "size_bytes": 1048576}',
            "t.json: hosts.1: names a twice",
        ),
        (
            "t.json",
            '[{"hosts": ["a", "b"], "busbw_gbps": [[1, 2], [3, 4]]}]',
            "t.json: expected one object with hosts and busbw_gbps, got list",
        ),
    ],
)
def test_a_table_with_a_bad_value_is_refused_with_its_place(
    name: str, content: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(InputError) as refusal:
        read_tests([file], None, None)
    assert words in str(refusal.value)


# Debug logs

DEBUG_LOG = """\
host-0:11:21 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
host-1:12:22 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.2<0>
host-0:11:21 [0] NCCL INFO Using network IB
host-1:12:22 [0] NCCL INFO Using network IB
host-0:11:21 [0] NCCL INFO Channel 00/02 :    0   1   2   3
host-0:11:21 [0] NCCL INFO Channel 01/02 :    0   1   2   3
host-0:11:21 [0] NCCL INFO Trees [0] 1/-1/-1->0->2 [1] 1/-1/-1->0->-1
host-0:11:21 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels
host-1:12:22 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [receive] via NET/IB/0
host-0:11:21 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""


def test_a_debug_log_is_compared_line_by_line(lab: Lab) -> None:
    facts = read_debug_log(DEBUG_LOG)
    test = NodeTest((0, 1), "all_reduce")
    found_differences = differences("nccl.log", facts, test, lab.predictor, {})
    subjects = {difference.subject: difference for difference in found_differences}
    assert {"NICs", "GPUDirect", "channels"} <= set(subjects)
    assert subjects["NICs"].hosts == ("host-0",)
    assert subjects["GPUDirect"].hosts == ("host-1",)
    assert (subjects["GPUDirect"].costs_percent or 0) > 5
    assert subjects["channels"].logged == "2"


def test_a_debug_log_on_sockets_costs_what_tcp_does(lab: Lab) -> None:
    facts = read_debug_log(DEBUG_LOG.replace("Using network IB", "Using network Socket"))
    test = NodeTest((0, 1), "all_reduce")
    found_differences = differences("nccl.log", facts, test, lab.predictor, {})
    network = next(one for one in found_differences if one.subject == "network")
    assert network.logged == "Socket"
    assert (network.costs_percent or 0) > 50


def test_lines_of_older_nccl_and_of_mpirun_are_read() -> None:
    # NCCL before 2.14 has no number behind the channel and names GPUs by their bus; mpirun
    # --tag-output puts the rank in front; NCCL 2.27 may put the time there.
    facts = read_debug_log(
        "[1,0]<stdout>:host-0:11:21 [0] NCCL INFO Channel 00 : 0[7000] -> 1[f000] via P2P/IPC\n"
        "[2025-06-01 12:00:00] host-1:12:22 [1] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via "
        "NET/IB/0/GDRDMA\n"
    )
    assert list(facts.hosts) == ["host-0", "host-1"]
    assert facts.connections == {(0, 0, 1): "P2P/IPC", (1, 1, 2): "NET/IB/0/GDRDMA"}


def test_a_log_without_messages_of_nccl_has_no_facts() -> None:
    assert read_debug_log("# nThread 1\n").is_empty
