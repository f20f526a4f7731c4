"""`netsim expect`: what NCCL chooses for each size, why, and what was assumed."""

import csv
import json
import re

import pytest

from netsim.base.errors import ScenarioError
from netsim.base.files import find_preset
from netsim.cli.expect import kind_of
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.extent.shown import has_same_rows
from netsim.scenario.cells import expand
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.row import question_row
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim
from tests.extent.cells import form_at


def choices(
    topology: str, collective: str, sizes: str, *variables: str, **flags: object
) -> list[tuple[int, str, str, int]]:
    """What is chosen for each size, without simulating it."""
    given = QuestionOptions(**flags, sizes=sizes, env=list(variables))
    found = resolve(expand(source_of_question(topology, collective, given).source)[0])
    rows = [question_row(found, size) for size in found.cell.scenario.workload.size_list()]
    return [(row.size_bytes, row.algorithm, row.protocol, row.channels) for row in rows]  # type: ignore[misc]


@pytest.mark.full
def test_noise_has_percentiles_in_columns_of_their_own(capsys) -> None:
    question = (
        "expect",
        "dgx-h100",
        "all_reduce",
        "--sizes",
        "1K,64K",
        "--noise",
        "production",
        "--samples",
        "30",
    )
    table = netsim(capsys, *question).out.splitlines()
    rows = list(csv.DictReader(netsim(capsys, *question, "--format", "csv").out.splitlines()))
    assert [row["samples"] for row in rows] == ["30", "30"]
    title = table[1].split()
    first = title.index("p5")
    assert title[first : first + 4] == ["p5", "p50", "p95", "p99"]
    for line, row in zip((one for one in table if one[0] != "#"), rows, strict=True):
        told = [float(text) for text in line.split()[9:13]]
        found = [float(row[f"{name}_us"]) for name in ("p5", "p50", "p95", "p99")]
        assert told == pytest.approx(found, abs=0.01)
        assert float(row["time_us"]) <= found[0] <= found[1] <= found[2] <= found[3]
    assert "p50" not in netsim(capsys, *question[:5]).out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--noise", "prod"), "--noise prod: noise: expected quiet, production or"),
        (("--samples", "5"), "--samples 5: samples: without noise all samples have the"),
        (("--noise", "quiet", "--samples", "0"), "--samples 0: samples: expected at least 1"),
    ],
)
def test_noise_that_is_none_is_one_line(capsys, options, said) -> None:
    found = netsim(capsys, "expect", "dgx-h100", "all_reduce", "--sizes", "1K", *options)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(said)


def test_the_winners_of_the_fact_sheet() -> None:
    # nccl-model.md §1.9: H100 + NDR N=4, and 8 x H100 alone.
    several = choices("dgx-h100", "all_reduce", "256:8G:2", nodes=4)
    firsts: dict[str, int] = {}
    for size, algorithm, protocol, _ in several:
        firsts.setdefault(f"{algorithm}/{protocol}", size)
    assert firsts == {
        "Tree/LL": 256,
        "Tree/LL128": 2**18,
        "NVLSTree/Simple": 2**23,
        "Ring/Simple": 2**30,
    }
    alone = choices("dgx-h100", "all_reduce", "1M,2M")
    assert [choice[1:3] for choice in alone] == [("Ring", "LL"), ("NVLS", "Simple")]


def test_small_calls_use_few_channels() -> None:
    found = choices("dgx-a100", "all_reduce", "8,1G")
    assert found == [(8, "Ring", "LL", 1), (2**30, "Ring", "Simple", 24)]


def test_sends_and_receives_have_no_algorithm() -> None:
    found = choices("dgx-h100", "sendrecv", "8,1G")
    assert [choice[1:3] for choice in found] == [("SendRecv", "LL"), ("SendRecv", "Simple")]


def test_what_was_assumed_is_said(capsys) -> None:
    options = ["--nodes", 2, "--why", "1M"]
    outcome = netsim(capsys, "expect", "dgx-h100", "all_reduce", *options)
    assert outcome.err.splitlines() == [
        "assumed: a rail-optimized fabric that never blocks (--fabric names another)",
        "assumed: 8 NICs of 400 Gb/s a host (--nic, --nics-per-node)",
        "assumed: infiniband (--transport names another)",
        "assumed: one process for each GPU (--launch single_process is nccl-tests -g 8)",
        "assumed: NCCL 2.30.7 (--nccl names another)",
    ]
    said = [
        "--fabric",
        "leaf-spine",
        "--nic",
        "200Gbps",
        "--transport",
        "roce",
        "--launch",
        "cuda_graph",
        "--nccl",
        "2.27",
    ]
    assert netsim(capsys, "expect", "dgx-h100", "all_reduce", *options, *said).err == ""
    amd = netsim(capsys, "expect", "mi300x", "all_reduce", "--why", "1M").err
    assert "assumed, not validated: NCCL's rules hold for" in amd


def test_variables_of_the_process_are_taken_on_request_only(capsys, monkeypatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.setenv("NCCL_ALGOO", "Tree")
    options = ("dgx-a100", "all_reduce", "1G")
    assert choices(*options)[0][1] == "Ring"
    assert choices(*options, nccl_env=True)[0][1] == "Tree"
    assert choices(*options, "NCCL_ALGO=Ring", nccl_env=True)[0][1] == "Ring"
    err = netsim(capsys, "expect", *options[:2], "--nccl-env", "--why", "1G").err
    assert "warning: NCCL_ALGOO is no NCCL variable (did you mean NCCL_ALGO?)" in err


def test_why_shows_the_table_searches_and_channels_as_nccl_does(capsys) -> None:
    out = netsim(capsys, "expect", "dgx-h100", "all_reduce", "--nodes", 2, "--why", "1M").out
    for line in (
        "Tree          LL128          48.5     124.78         62.51  <- chosen",
        "Ring          Simple        131.6     204.80        189.36",
        "PAT           all        out: PAT exists for AllGather and ReduceScatter only",
        "NVLS          Simple     out: collective networks are off (NCCL_COLLNET_ENABLE)",
        "Ring:          Pattern 4, crossNic 2, nChannels 8, bw 48.000000/48.000000, "
        "type NVL/PIX, sameChannels 0",
        "Channel 00/16 : 0 7 6 5 4 3 2 1 9 10 11 12 13 14 15 8",
    ):
        assert line in out.splitlines()
    assert "rank 0: Trees [0] 1/8/-1->0->-1 [1] -1/-1/-1->0->7 " in out


def test_why_counts_channels_and_says_what_each_carries(capsys) -> None:
    out = netsim(capsys, "expect", "dgx-h100", "all_reduce", "--why", "1M").out.splitlines()
    assert (
        "24 coll channels, 0 collnet channels, 16 nvls channels, 32 p2p channels, "
        "32 p2p channels per peer"
    ) in out
    assert "a ring channel is counted for 15.00 GB/s inside a node" in out
    moved = next(line for line in out if line.startswith("the block of a channel moves LL "))
    assert [word.rpartition(" ")[0].split()[-2] for word in moved.split(",")] == [
        "LL",
        "LL128",
        "Simple",
    ]


def test_why_as_a_table_for_programs(capsys) -> None:
    question = ("expect", "dgx-h100", "all_reduce", "--nodes", 2, "--why", "1M", "--format")
    rows = list(csv.DictReader(netsim(capsys, *question, "csv").out.splitlines()))
    assert len(rows) == 21
    tree = next(row for row in rows if row["chosen"] == "1")
    assert (tree["algorithm"], tree["protocol"], tree["latency_us"]) == ("Tree", "LL128", "48.5")
    assert float(tree["time_us"]) == min(float(row["time_us"]) for row in rows if row["time_us"])
    assert all(bool(row["disabled"]) != bool(row["time_us"]) for row in rows)
    as_json = json.loads(netsim(capsys, *question, "json").out)
    assert [row["disabled"] for row in as_json] == [row["disabled"] for row in rows]
    sends = netsim(capsys, "expect", "dgx-h100", "alltoall", "--why", "1M", "--format", "json")
    assert json.loads(sends.out) == []


def test_sizes_are_rounded_as_nccl_tests_does(capsys) -> None:
    outcome = netsim(
        capsys, "expect", "dgx-h100", "all_gather", "--sizes", "8,1000,1024", "--format", "json"
    )
    assert "rounded as nccl-tests rounds: 8 B -> 0 B, 1000 B -> 896 B" in outcome.err
    assert [row["size_bytes"] for row in json.loads(outcome.out)] == [0, 896, 1024]


@pytest.mark.slow
def test_hosts_of_one_nvlink_domain_are_one_node(capsys) -> None:
    out = netsim(capsys, "expect", "gb200-nvl72", "all_reduce", "--nodes", 4, "--why", "1M").out
    assert out.startswith("all_reduce of 1048576 B on 16 ranks, 1 node: ")
    apart = ["--nodes", 4, "--env", "NCCL_MNNVL_ENABLE=0", "--why", "1M"]
    out = netsim(capsys, "expect", "gb200-nvl72", "all_reduce", *apart).out
    assert out.startswith("all_reduce of 1048576 B on 16 ranks, 4 nodes: ")


SCENARIO = """\
cluster: {machine: dgx-h100, nodes: 2}
workload: {collective: all_reduce, sizes: [1MiB]}
nccl: {version: 2.20, env: {NCCL_MAX_NCHANNELS: 4}}
"""


def resolved(text: str) -> ResolvedCell:
    return resolve(expand(parse_source(text, "x.yaml"))[0])


def test_auto_in_a_scenario_is_nccls_choice() -> None:
    found = resolved(SCENARIO)
    plan = found.planned(2**20)
    assert plan is not None
    assert (plan.algorithm, plan.protocol, plan.n_channels) == ("NVLSTree", "Simple", 4)
    assert str(found.jobs[0].comm.version) == "2.20"
    textbook = resolved(SCENARIO.replace("sizes", "algorithm: ring, sizes"))
    assert textbook.planned(2**20) is None
    forced = resolved(SCENARIO.replace("sizes", "algorithm: Ring, protocol: LL, sizes"))
    plan = forced.planned(2**20)
    assert plan is not None
    assert (plan.algorithm, plan.protocol) == ("Ring", "LL")


@pytest.mark.slow
def test_communicators_of_a_split_are_nodes_of_their_own() -> None:
    found = resolved(SCENARIO.replace("sizes", "split: MOD 8, sizes"))
    assert [(job.comm.n_ranks, job.comm.n_nodes) for job in found.jobs] == [(2, 2)] * 8
    found = resolved(SCENARIO.replace("sizes", "split: DIV 8, sizes"))
    assert [(job.comm.n_ranks, job.comm.n_nodes) for job in found.jobs] == [(8, 1)] * 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "2.20",
            "2.9",
            "x.yaml:3:17: nccl.version: NCCL 2.9 is outside the modelled versions "
            "2.10–2.30 (nearest: 2.10)",
        ),
        (
            "NCCL_MAX_NCHANNELS: 4",
            "NCCL_MAX_NCHANELS: 4",
            "x.yaml:3:48: "
            "nccl.env.NCCL_MAX_NCHANELS: NCCL_MAX_NCHANELS is no NCCL variable "
            "(did you mean NCCL_MAX_NCHANNELS?)",
        ),
        (
            "NELS: 4",
            "NELS: 400",
            "x.yaml:3:49: nccl.env.NCCL_MAX_NCHANNELS: expected a whole "
            "number from 1 to 64, got '400'",
        ),
        (
            "NELS: 4",
            "NELS: true",
            "x.yaml:3:49: nccl.env.NCCL_MAX_NCHANNELS: expected a whole "
            "number from 1 to 64, got 'true'",
        ),
        (
            "env: {",
            "registration: all, env: {",
            "x.yaml:3:37: nccl.registration: expected one of none, local, got 'all'",
        ),
        (
            "NCCL_MAX_NCHANNELS: 4",
            "NCCL_MAX_NCHANNELS: 4, NCCL_MIN_NCHANNELS: 8",
            "x.yaml:3:28: nccl.env: NCCL_MIN_NCHANNELS 8 is larger than NCCL_MAX_NCHANNELS 4",
        ),
    ],
)
def test_mistakes_in_the_nccl_section(old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        resolved(SCENARIO.replace(old, new))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        ("all_reduce", "Ring"),
        ("all_gather", "Ring"),
        ("broadcast", "Ring"),
        ("alltoall", "SendRecv"),
    ],
)
def test_small_calls_take_microseconds(capsys, collective: str, algorithm: str) -> None:
    outcome = netsim(capsys, "expect", "dgx-a100", collective, "--sizes", "1K", "--format", "json")
    (row,) = json.loads(outcome.out)
    assert (row["status"], row["algorithm"], row["protocol"]) == ("ok", algorithm, "LL")
    assert 4 < row["time_us"] < 26  # at least the launch of a kernel
    assert re.fullmatch(r"\d+% \(\d+ runs?\)", row["validated"])  # of the corpus that comes with it
    assert row["nccl_version"] == "2.30.7"


@pytest.mark.slow
def test_figures_that_decide_sizes_and_that_nobody_vouches_for_are_named(capsys, tmp_path) -> None:
    sizes = ("--sizes", "8,256M")
    amd = netsim(capsys, "expect", "mi350x", "all_reduce", *sizes).err
    assert "transferred: scale_up.link_bandwidth 57.6GB/s, which decides 1 of 2 sizes" in amd
    assert "transferred: latencies and channel rates" in amd
    known = netsim(capsys, "expect", "dgx-h100", "all_reduce", *sizes).err
    assert "transferred" not in known
    assert "link_bandwidth" not in known, "the data sheet has it"
    text = find_preset("topologies", "mi350x", "machine").path.read_text()
    figures = "launch.kernel: {value: 5us}, scale_up.link_bandwidth: {value: 60GB/s}"
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"{text}\ncalibration: {{{figures}}}\n")
    fitted = netsim(capsys, "expect", str(mine), "all_reduce", *sizes).err
    assert "transferred" not in fitted


@pytest.mark.parametrize(
    ("bound_by", "kind"),
    [
        ("NIC ingress node1.nic0 97 %", "NIC"),
        ("NIC messages 80 %", "NIC messages"),
        ("serial transfers (NVLink egress) 60 %", "NVLink"),
        ("latency 100 %", "latency"),
        ("nothing", ""),
    ],
)
def test_what_bounds_a_row_has_a_kind(bound_by: str, kind: str) -> None:
    assert kind_of(bound_by) == kind


TWO_HOSTS = ("dgx-h100", "all_reduce", "--nodes", "2", "--sizes", "1K", "--format", "json")


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "claimed"),
    [
        ((), r"\d+% \(\d+ runs?\)"),
        (("--nic", "400Gbps"), r"\d+% \(\d+ runs?\)"),
        (("--algo", "Tree"), r"\d+% \(\d+ runs?\)"),  # as NCCL chooses at that size
        (("--nic", "200Gbps"), r"not validated \(only NICs of 3200 Gb/s a host .*"),
        (("--nics-per-node", "4"), r"not validated \(only NICs of .*"),
        (("--transport", "roce"), r"not validated; the kind was measured: \d+% left out"),
        (("--algo", "Ring"), r"not validated \(the choice is forced\)"),
        (("--env", "NCCL_PROTO=Simple"), r"not validated \(the choice is forced\)"),
        (("--env", "NCCL_BUFFSIZE=1048576"), r"not validated \(NCCL variables .*"),
        (
            ("--set", "cluster.overrides=[{machine: {pcie: {width: 8}}}]"),
            r"not validated \(figures of the machine are overridden\)",
        ),
        (
            ("--set", "cluster.faults=[{gpu: node0.gpu1, slowdown: 1.3}]"),
            r"not validated \(with faults\)",
        ),
    ],
)
def test_validation_is_claimed_only_for_what_was_measured(
    capsys, options: tuple[str, ...], claimed: str
) -> None:
    done = netsim(capsys, "expect", *TWO_HOSTS, *options)
    assert done.code == 0, done.err
    assert re.fullmatch(claimed, json.loads(done.out)[0]["validated"])


def test_one_process_for_all_gpus_is_bound_by_its_launches(capsys) -> None:
    # The measured runs of 8 A100 (NCCL 2.8-2.10): 34.7 µs for all_reduce, 87 µs for alltoall, on a
    # host that launches faster than others do.
    options = [
        "--launch",
        "single_process",
        "--nccl",
        "2.10.3",
        "--sizes",
        "1K",
        "--format",
        "json",
    ]
    found = {}
    for collective in ("all_reduce", "alltoall"):
        out = netsim(capsys, "expect", "dgx-a100", collective, *options).out
        found[collective] = json.loads(out)[0]["time_us"]
    assert found["all_reduce"] == pytest.approx(34.7, rel=0.1)
    assert found["alltoall"] == pytest.approx(87, rel=0.1)


def test_exactly_or_not_at_all(capsys, monkeypatch) -> None:
    call = (
        "expect",
        "dgx-h100",
        "all_reduce",
        "--algo",
        "Ring",
        "--sizes",
        "64M",
        "--nodes",
        "4",
        "--exact",
    )
    found = netsim(capsys, *call)
    assert found.code == 0
    assert "approximated" not in found.err
    monkeypatch.setattr("netsim.extent.memory.available_memory", lambda: 10**6)
    found = netsim(capsys, *call)
    assert found.code == 2
    assert "workload: too large to be simulated exactly: about " in found.err
    assert "exact tasks, faults with times" in found.err


@pytest.mark.parametrize("algorithm", ["Ring", "Tree", "NVLSTree"])
def test_all_reduce_is_the_same_in_place(algorithm: str) -> None:
    found = resolved(SCENARIO.replace("sizes", f"algorithm: {algorithm}, sizes"))
    one, other = (
        form_at(found, 4096).loop_schedule.schedule(),
        form_at(found, 4096, in_place=True).loop_schedule.schedule(),
    )
    assert has_same_rows(one, other)
