"""`netsim compare`: rows, tolerance, what is taken from a log, contradictions, causes."""

import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netsim.base.errors import InputError
from netsim.cli import log_questions
from netsim.cli.log_questions import Question, question_of
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.measured import compare, logs
from netsim.measured.hypotheses import explanations
from netsim.measured.index import proposal_of
from netsim.measured.logs import LogDevice, LogRun, MeasuredRow, parse_log, read_log
from netsim.measured.training import ComparedStep, Published, error
from netsim.plots.sizes import lines_of, read_results
from netsim.results.row import Row
from netsim.tasks.answer import checked_cells
from netsim.tasks.resolve import resolve
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim

DATA = Path(__file__).parents[1] / "data" / "logs"
CSV = Path(__file__).parents[2] / "scenarios" / "measured" / "csv"
PAIR = "rtx2080ti-x2"


def simulated_log(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Path:
    """A log that netsim itself prints, so that the true cause is known."""
    sizes = ("--sizes", "8,4K,64K,1M,16M,256M")
    form = ("--format", "nccl-tests")
    done = netsim(capsys, "expect", PAIR, "all_reduce", *sizes, *form, *options)
    path = tmp_path / "all_reduce.log"
    path.write_text(done.out)
    return path


def test_a_log_of_netsim_itself_has_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulated_log(tmp_path, capsys)
    out = tmp_path / "out"
    done = netsim(capsys, "compare", log, "--topology", PAIR, "--tolerance", "1%", "-o", out)
    assert done.code == 0, done.err
    assert "median error   0.0%" in done.out.replace("  0.1%", "  0.0%")
    assert {path.name for path in out.iterdir()} == {
        "results.csv",
        "comparison.json",
        "busbw.svg",
        "busbw.png",
        "run.json",
    }
    (values,) = json.loads((out / "comparison.json").read_text())
    assert len(values["points"]) == 6
    header = (out / "results.csv").read_text().splitlines()[0].split(",")
    first = (out / "results.csv").read_text().splitlines()[1].split(",")
    assert float(first[header.index("measured_time_us")]) > 0
    assert abs(float(first[header.index("error_pct")])) < 1


def test_a_row_that_is_compared_has_the_bandwidths_of_its_time() -> None:
    source = source_of_question("h100-x4", "all_reduce", QuestionOptions(sizes="1M")).source
    measured, ready = MeasuredRow(1 << 20, out_of_place=50e-6), resolve(checked_cells(source)[0])
    row = compare._row(ready, measured, "all_reduce")
    assert row.algbw_GBps == pytest.approx((1 << 20) / row.time_us / 1e3)
    assert row.busbw_GBps == pytest.approx(1.5 * row.algbw_GBps)
    assert row.error_pct == pytest.approx(100 * (row.time_us / 50 - 1))
    assert row.time_low_us < row.time_us < row.time_high_us


@pytest.mark.slow
def test_beyond_the_tolerance_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = simulated_log(tmp_path, capsys, "--env", "NCCL_PROTO=LL")
    options = ("--topology", PAIR, "--tolerance", "0.1%")
    done = netsim(capsys, "compare", log, *options)
    assert done.code == 1
    assert "beyond the tolerance" in done.err


@pytest.mark.slow
def test_the_true_cause_is_ranked_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = simulated_log(tmp_path, capsys, "--env", "NCCL_PROTO=LL")
    (run,) = read_log(log)
    source = parse_source(
        f"cluster: {{machine: {PAIR}}}\nworkload: {{collective: all_reduce}}", "here"
    )
    found = explanations(source, run)
    assert found[0].cause == "protocol LL forced"
    assert found[0].explains
    assert found[0].error < 0.01


@pytest.mark.slow
def test_at_how_many_rows_causes_were_tried_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, sizes = tmp_path / "slow.csv", [1 << n for n in range(10, 23)]
    lines = [f"{size},{size // 4},float,sum,-1,{500 + size / 1e3},,,,," for size in sizes]
    head = "size_bytes,count,dtype,redop,root,oop_time_us,oop_algbw_gbps,oop_busbw_gbps,"
    head += "ip_time_us,ip_algbw_gbps,ip_busbw_gbps"
    said = {}
    for kept in (13, 6):
        log.write_text("\n".join([head, *lines[-kept:], ""]))
        done = netsim(capsys, "compare", log, "--topology", PAIR, "--collective", "all_reduce")
        said[kept] = next(line for line in done.out.splitlines() if "single cause" in line)
    assert " at 5 of 13 rows" in said[13]
    assert " rows" not in said[6]


@pytest.mark.slow
def test_what_a_log_says_is_taken_and_contradictions_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = DATA / "rtx2080ti_autodl_2_broadcast_1.txt"
    done = netsim(capsys, "compare", log, "--tolerance", "500%")
    assert done.code == 0
    assert f"taken from the log: {PAIR}" in done.err
    assert "taken from the log: launch single_process" in done.err
    other = ("--launch", "process_per_gpu", "--tolerance", "500%")
    assert "the log was launched as single_process" in netsim(capsys, "compare", log, *other).err


def test_a_topology_of_another_size_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    log = DATA / "aws_p5_h100_2x8_all_reduce_1.txt"
    done = netsim(capsys, "compare", log, "--topology", "dgx-h100", "--nodes", "3")
    assert done.code == 2
    assert "the log ran on 16 ranks" in done.err
    assert "the topology has 24 GPUs on 3 hosts" in done.err


def test_busbw_over_algbw_tells_the_true_ranks() -> None:
    devices = tuple(LogDevice(rank, f"p{rank}", "node1", "NVIDIA H100") for rank in range(8))
    run = LogRun("x", "all_reduce", devices=devices, ratios=((100.0, 187.5),))
    said = proposal_of(run)
    assert said.ranks == (16, 16)
    assert "busbw ÷ algbw is that of 16" in said.notes[0]
    assert said.machine == "dgx-h100"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.log",), "nowhere.log: no such file"),
        (("{csv}", "--topology", "dgx-h100", "--tolerance", "abc"), "--tolerance abc"),
        (("{csv}", "--topology", "dgx-h1000"), "did you mean dgx-h100?"),
        (("{csv}", "--topology", PAIR, "--scenario", "quickstart"), "not both"),
        (("{csv}", "--topology", PAIR, "--json", "no/where/x.json"), "there is no folder"),
    ],
)
def test_mistakes_have_one_message(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    file = str(CSV / "rtx2080ti_autodl_2_all_reduce_1.csv")
    done = netsim(capsys, "compare", *(text.replace("{csv}", file) for text in arguments))
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_log_of_more_gpus_than_the_machine_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "all_reduce.log"
    log = simulated_log(tmp_path, capsys).read_text().splitlines()
    devices = [
        f"#  Rank {rank:2} Group  0 Pid  41 on   host device {rank:2} [0000:1b:00] GPU"
        for rank in range(16)
    ]
    place = next(n for n, line in enumerate(log) if "size" in line and "count" in line)
    bare = [line for line in log[:place] if "Rank" not in line]
    small = [
        line for line in log[place:] if not line.split()[0].isdigit() or len(line.split()[0]) < 5
    ]
    path.write_text("\n".join([*bare, *devices, *small]))  # too small for busbw to tell ranks
    for verb in ("compare", "calibrate"):
        done = netsim(capsys, verb, path, "--topology", PAIR)
        assert done.code == 2
        assert f"the log has 16 ranks on 1 host, {PAIR} has 2 GPUs" in done.err
        assert "--gpus-per-node" not in done.err


def log_of(*lines: str, host: str = "host{}", gpus: int = 16, gpu: str = "NVIDIA H100") -> LogRun:
    """A log of two hosts with some lines of NCCL's or of a launcher's before its table."""
    devices = [
        f"#  Rank {rank} Group  0 Pid  {41 + rank} on  {host.format(rank // 8)} device {rank % 8} "
        f"[0000:1b:00] {gpu}"
        for rank in range(gpus)
    ]
    table = [
        "#       size         count      type   redop    root     time   algbw   busbw #wrong",
        "     1048576        262144     float     sum      -1   123.20    8.51   15.95      0",
    ]
    text = "\n".join(["all_reduce_perf -b 1M -e 1M", *lines, *devices, *table])
    (run,) = parse_log(text, "x.log")
    return run


A3 = "Google Cloud's A3 Mega (GPUDirect-TCPXO)"
NETWORKS = {
    "plug-in": (log_of("h0:41:41 [0] NCCL INFO NET/FasTrak plugin initialized"), A3, "tcpxo"),
    "loaded": (log_of("h0:41:41 [0] NCCL INFO Using network FasTrak"), A3, "tcpxo"),
    "host": (log_of(host="a3mega-node-{}"), A3, "tcpxo"),
    "environment": (
        log_of("h0:41:41 [0] NCCL INFO NCCL_NET set by environment to FasTrak."),
        A3,
        "tcpxo",
    ),
    "efa": (
        log_of("h0:1:1 [0] NCCL INFO NET/OFI Selected Provider is efa (found 32 nics)"),
        "AWS's EFA",
        "efa",
    ),
    "cray": (log_of(host="nid00522{}"), "Slingshot-11", "slingshot"),
    "roce": (
        log_of("h0:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]"),
        "RoCE",
        "roce",
    ),
    "azure": (
        log_of("export NCCL_X=1", host="ND_H100_v5-{}"),
        "Azure's ND H100 and H200 v5 (InfiniBand)",
        None,
    ),
    "sockets": (log_of("h0:1:1 [0] NCCL INFO Using network Socket"), "TCP sockets", "tcp"),
    "silent": (log_of(), "", None),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_read_from_hosts_plugins_and_environment(name: str) -> None:
    run, cloud, transport = NETWORKS[name]
    source, notes = question_of(Question(None, None, QuestionOptions()), run)
    assert (f"tells {cloud}" in " ".join(notes)) is bool(cloud)
    cluster = source.data["cluster"]
    assert (cluster.get("fabric") or {}).get("transport") == transport
    assert cluster["nodes"] == 2
    nic = {"tcpxo": "200Gbps", "slingshot": "200Gbps"}.get(transport)
    if nic is None and name == "azure":
        nic = "400Gbps"
    assert cluster.get("nic") == nic


def test_what_options_say_of_networks_holds() -> None:
    run = NETWORKS["plug-in"][0]
    source, notes = question_of(
        Question(None, None, QuestionOptions(transport="roce", nic="100Gbps")), run
    )
    assert source.data["cluster"]["fabric"]["transport"] == "roce"
    assert source.data["cluster"]["nic"] == "100Gbps"
    assert not any("taken from the log: transport" in note for note in notes)


def test_a_log_without_a_machine_gets_those_that_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_questions, "preset_names", lambda _: ["a10-pcie-x4", PAIR, "h100-x4"])
    log = simulated_log(tmp_path, capsys)
    bare = [line for line in log.read_text().splitlines() if "Rank" not in line]
    log.write_text("\n".join(bare))
    done = netsim(capsys, "compare", log)
    assert done.code == 0, done.err
    first = f"of 3 machines these fit best: {PAIR} (median error 0."
    assert f"the log does not say on what it ran; {first}" in done.err
    assert f"{PAIR} is taken, --topology names another" in done.err
    assert done.err.count("(median error") == 3


def test_what_is_compared_is_kept_when_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, every = simulated_log(tmp_path, capsys), compare.rows_of

    def some(*what: Any) -> Iterator[Row]:
        yield from islice(every(*what), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "rows_of", some)
    out, file = tmp_path / "out", tmp_path / "out.json"
    done = netsim(capsys, "compare", log, "--topology", PAIR, "-o", out, "--json", file)
    assert done.code == 130
    assert len((out / "results.csv").read_text().splitlines()) == 3
    assert len(json.loads(file.read_text())[0]["points"]) == 2
    assert done.out.count("Ring") == 2


def test_error_is_one_thing_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of sizes, steps and causes: a factor either way; told once in a comparison."""
    ratios = [0.5, 1.0, 1.2, 3.0, 1.1]
    points = [compare.ComparedPoint("r", "m", "c", 8, 1.0, one, "", "", True) for one in ratios]
    whole = compare.error_of(points)
    step = Published("x", "f", "m", "g", "l", "d", 8, 1.0, {}, ())
    steps = error([ComparedStep(step, one, 0.5) for one in ratios])
    assert (steps.median, steps.p90, steps.bias) == (whole.median, whole.p90, whole.bias)
    assert whole.median == pytest.approx(0.2)
    log = simulated_log(tmp_path, capsys)
    done = netsim(capsys, "compare", log, log, "--topology", PAIR)
    assert done.out.count("# error: simulated / measured - 1") == 1


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("polaris_a100_2x4_all_reduce_2", ("a100-x4", 2, 4)),
        ("alps_gh200_16x4_all_reduce_1", ("gh200-x4", 16, 4)),
    ],
)
def test_a_list_of_devices_that_is_cut_tells_hosts(name: str, shape: tuple[str, int, int]) -> None:
    """Ranks 0, 1 and 7 of 8, the last on another host: at most four on each."""
    (run,) = read_log(DATA / f"{name}.txt", "all_reduce")
    source, notes = question_of(Question(None, None, QuestionOptions()), run)
    cluster = source.data["cluster"]
    assert (cluster["machine"], cluster["nodes"], cluster["gpus_per_node"]) == shape
    assert "fabric" not in cluster, "the machine's own transport is that of the log"
    assert any("tells Slingshot-11" in note for note in notes)


def test_a_run_is_as_slow_as_the_median_of_its_worse_band() -> None:
    """Up to 1 MiB it was faster than simulated, beyond slower."""
    ratios = [(1 << 20, -0.5)] * 5 + [(1 << 21, x) for x in (0.9, 0.0, 0.6, 0.5)]
    points = [SimpleNamespace(size_bytes=size, log_ratio=-x) for size, x in ratios]
    assert compare.Compared.slower.fget(SimpleNamespace(points=points)) == 0.6


FOUR_HOSTS = ("dgx-a100", "--nodes", 4, "--gpus-per-node", 2, "--nics-per-node", 2)
HALF_NIC = 'cluster.faults=[{link: "node1.nic0-leaf0", bandwidth: "50%"}]'


@pytest.fixture
def log_of_half_a_nic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A log of four hosts, one of whose eight NICs runs at half its rate."""
    form = ("--sizes", "8,1K,16K,1M,64M,256M", "--format", "nccl-tests", "--set", HALF_NIC)
    done = netsim(capsys, "expect", FOUR_HOSTS[0], "all_reduce", *FOUR_HOSTS[1:], *form)
    path = tmp_path / "half.log"
    path.write_text(done.out)
    return path


@pytest.mark.slow
def test_one_nic_at_half_rate_fails_and_is_the_first_cause(
    log_of_half_a_nic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The median over all sizes is fine; from 64 MiB on it is not, and that decides."""
    done = netsim(capsys, "compare", log_of_half_a_nic, "--topology", *FOUR_HOSTS)
    assert done.code == 1
    assert "beyond the tolerance: half.log: >=64MiB -" in done.err
    assert "<=64KiB" not in done.err
    bands = {line.split()[1]: line for line in done.out.splitlines() if "median error" in line}
    assert bands[">=64MiB:"].endswith("FAILS")
    assert bands["<=64KiB:"].endswith("within")
    place = done.out.splitlines().index(
        next(line for line in done.out.splitlines() if "single causes that would explain" in line)
    )
    first = done.out.splitlines()[place + 1]
    assert "the link of one NIC at half its rate" in first
    assert "node1.nic0" in first
    assert "explains 64 MiB, 256 MiB" in first
    assert "does not explain" not in first


def test_packed_logs_are_read_and_cut_ones_refused(
    log_of_half_a_nic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = log_of_half_a_nic.read_bytes()
    packed = tmp_path / "all_reduce.log.gz"
    packed.write_bytes(gzip.compress(text[:900]) + gzip.compress(text[900:]))
    (run,), (plain,) = read_log(packed), read_log(log_of_half_a_nic)
    assert run.rows == plain.rows
    packed.write_bytes(gzip.compress(text)[:-20])
    with pytest.raises(InputError, match="gzip data is cut"):
        read_log(packed)
    packed.write_bytes(gzip.compress(text)[:40] + b"x" * 200)
    with pytest.raises(InputError, match=r"gzip data is (damaged|cut)"):
        read_log(packed)
    packed.write_bytes(gzip.compress(b"#" * 10_000))
    monkeypatch.setattr(logs, "LARGEST_FILE", 9_999)
    with pytest.raises(InputError, match="larger than 0 MiB when unpacked"):
        read_log(packed)


def test_rows_of_alltoall_below_an_element_a_rank_keep_their_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Older versions of nccl-tests do not round them to nothing, and move their bytes."""
    log, table = tmp_path / "alltoall.csv", tmp_path / "out"
    head = "size_bytes,count,dtype,redop,root,oop_time_us,oop_algbw_gbps,oop_busbw_gbps,"
    head += "ip_time_us,ip_algbw_gbps,ip_busbw_gbps"
    lines = [f"{size},2,float,none,-1,40,,,,," for size in (8, 16, 64)]
    log.write_text("\n".join([head, *lines, ""]))
    topology = ("--topology", *FOUR_HOSTS, "--tolerance", "500%")
    done = netsim(capsys, "compare", log, "--collective", "alltoall", *topology, "-o", table)
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines() if "SendRecv" in line]
    assert [row[0] for row in rows] == ["8", "16", "64"]
    assert rows[0][2] == rows[2][2], "as long as the smallest size that moves bytes"
    header, *written = (table / "results.csv").read_text().splitlines()
    place = header.split(",").index("size_bytes")
    assert [line.split(",")[place] for line in written] == ["8", "16", "64"]


def test_a_machine_that_fits_by_no_more_than_40_percent_is_not_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_questions, "preset_names", lambda _: [PAIR])
    log = tmp_path / "slow.csv"
    head = "size_bytes,count,dtype,redop,root,oop_time_us,oop_algbw_gbps,oop_busbw_gbps,"
    head += "ip_time_us,ip_algbw_gbps,ip_busbw_gbps"
    lines = [f"{size},2,float,sum,-1,90000,,,,," for size in (8, 1024, 65536)]
    log.write_text("\n".join([head, *lines, ""]))
    done = netsim(capsys, "compare", log, "--collective", "all_reduce")
    assert done.code == 2
    assert "none of 1 machines fits it within 40%; the nearest are rtx2080ti-x2" in done.err
    assert "give --topology" in done.err
    assert "--nodes, --gpus-per-node, --launch" in done.err
    assert "SendRecv" not in done.out
    assert "Ring" not in done.out


def test_what_measured_means_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = simulated_log(tmp_path, capsys)
    done = netsim(capsys, "compare", log, "--topology", PAIR)
    said = "the smaller of out of place and in place for all_reduce, broadcast and reduce"
    assert said in " ".join(done.out.split())


@pytest.mark.parametrize("verb", ["compare --json", "calibrate -o", "accuracy --json"])
def test_an_output_that_is_an_input_is_refused_before_it_is_touched(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulated_log(tmp_path, capsys)
    index = tmp_path / "index.yaml"
    index.write_text(
        "- {id: one, file: all_reduce.log, collective: all_reduce, "
        f"topology: {{machine: {PAIR}, nodes: 1, gpus_per_node: 2}}}}\n"
    )
    name, flag = verb.split()
    given = index if name == "accuracy" else log
    link = tmp_path / "link"
    link.symlink_to(given)
    topology = () if name == "accuracy" else ("--topology", PAIR)
    for output in (given, link, *([log] if name == "accuracy" else [])):
        before = output.read_bytes()
        done = netsim(capsys, name, given, *topology, flag, output)
        assert done.code == 2
        assert f"{output}: is read as" in done.err
        assert output.read_bytes() == before


@pytest.mark.slow
def test_several_logs_are_ranked_and_their_common_host_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The picture names its lines by the logs; hosts are called as in the logs."""
    files = []
    for first, second in ((0, 1), (0, 2), (1, 2)):
        slow = 1 in (first, second)
        fault = ("--set", HALF_NIC.replace("node1", f"node{second == 1:d}")) if slow else ()
        done = netsim(
            capsys,
            "expect",
            FOUR_HOSTS[0],
            "all_reduce",
            "--nodes",
            2,
            *FOUR_HOSTS[3:],
            "--sizes",
            "64M,256M",
            "--format",
            "nccl-tests",
            *fault,
        )
        path = tmp_path / f"pair{first}{second}.txt"
        named = done.out.replace("node0", f"host-{first}").replace("node1", f"host-{second}")
        path.write_text(named)
        files.append(path)
    topology = ("--topology", FOUR_HOSTS[0], *FOUR_HOSTS[3:])
    done = netsim(capsys, "compare", *files, *topology, "-o", tmp_path / "out")
    assert done.code == 1
    assert "culprit: host-1 is in every slow log (2) and in no other (1)" in done.out
    table = done.out.split("# logs by deviation")[1].splitlines()
    assert [line.split()[0] for line in table[2:5]] == ["pair01.txt", "pair12.txt", "pair02.txt"]
    assert "host-0 host-1" in table[2]
    assert "causes of the slowest log, pair01.txt" in done.out
    assert "host-1.nic0" in done.out
    labels = [line.label for line in lines_of(read_results([tmp_path / "out/results.csv"])).lines]
    assert labels == ["pair01.txt", "pair02.txt", "pair12.txt"]
