"""`netsim compare`: rows, tolerance, what is taken from a log, contradictions, causes."""

import json
from pathlib import Path

import pytest

from netsim.measured.hypotheses import explanations
from netsim.measured.index import proposal_of
from netsim.measured.logs import Device, LogRun, read_log
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
        "results.csv", "comparison.json", "busbw.svg", "busbw.png",
    }  # fmt: skip
    (values,) = json.loads((out / "comparison.json").read_text())
    assert len(values["points"]) == 6
    header = (out / "results.csv").read_text().splitlines()[0].split(",")
    first = (out / "results.csv").read_text().splitlines()[1].split(",")
    assert float(first[header.index("measured_time_us")]) > 0
    assert abs(float(first[header.index("error_pct")])) < 1


def test_beyond_the_tolerance_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = simulated_log(tmp_path, capsys, "--env", "NCCL_PROTO=LL")
    options = ("--topology", PAIR, "--tolerance", "0.1%")
    done = netsim(capsys, "compare", log, *options)
    assert done.code == 1
    assert "beyond the tolerance" in done.err


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
    devices = tuple(Device(rank, f"p{rank}", "node1", "NVIDIA H100") for rank in range(8))
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
        (("{csv}",), "does not say on what it ran"),
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
