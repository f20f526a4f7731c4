"""What `expect` writes as nccl-tests would, the readers of measured runs read."""

from pathlib import Path

import pytest

from netsim.measured.logs import parse_csv, parse_log, read_log
from tests.cli.command import netsim

QUESTION = ("expect", "dgx-a100", "alltoall", "--nodes", 2, "--sizes", "4K,1M")


def test_text_json_and_acceptance_are_read(capsys, tmp_path: Path) -> None:
    target = tmp_path / "run.json"
    text = netsim(capsys, *QUESTION, "--format", "nccl-tests", "-J", target).out
    (printed,), (written,) = parse_log(text, "run.txt"), read_log(target)
    for run in (printed, written):
        assert (run.collective, run.gpus_per_thread, run.nccl) == ("alltoall", 1, "23007")
        assert run.problems == ()
        assert [row.size_bytes for row in run.rows] == [4096, 2**20]
        assert run.hosts == {"node0": 8, "node1": 8}
    least = parse_csv(netsim(capsys, *QUESTION, "--acceptance", "50%").out, "least.csv")
    for one, other, slow in zip(printed.rows, written.rows, least, strict=True):
        assert one.out_of_place == pytest.approx(other.out_of_place, rel=1e-3)
        assert slow.out_of_place == pytest.approx(2 * other.out_of_place, rel=1e-5)
        assert (one.count, one.redop, one.root) == (other.count, other.redop, other.root)


@pytest.mark.parametrize(("collective", "measured"), [("all_reduce", 35.0), ("alltoall", 87.0)])
def test_one_process_for_eight_a100_takes_what_its_host_takes(capsys, collective, measured) -> None:
    # scenarios/measured: a100_superbench_8_*_1, `-g 8`, 32 to 256 B, NCCL of about 2.8-2.10.
    times = {}
    for style in ("single_process", "process_per_gpu", "cuda_graph"):
        out = netsim(
            capsys,
            "expect",
            "dgx-a100",
            collective,
            "--sizes",
            "256",
            "--launch",
            style,
            "--nccl",
            "2.10.3",
            "--format",
            "nccl-tests",
        ).out
        times[style] = float(next(x for x in out.splitlines() if x[0] != "#").split()[5])
    assert times["single_process"] == pytest.approx(measured, rel=0.1)  # hosts differ by more
    assert times["cuda_graph"] < times["process_per_gpu"] < times["single_process"]
