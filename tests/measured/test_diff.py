"""`netsim diff`: who wins by size, where it changes, and why."""

from pathlib import Path

import pytest

from tests.cli.command import netsim

HEADER = "size_bytes,count,dtype,redop,root,oop_time_us,ip_time_us\n"


def curve(path: Path, *times: float) -> Path:
    rows = [f"{8 * 4**n},2,float,sum,-1,{time},\n" for n, time in enumerate(times)]
    path.write_text(HEADER + "".join(rows))
    return path


def test_logs_are_compared_size_by_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = curve(tmp_path / "all_reduce_1.csv", 10, 20, 50)
    other = curve(tmp_path / "all_reduce_2.csv", 12, 20, 40, 80)
    done = netsim(capsys, "diff", one, other)
    assert done.code == 0, done.err
    words = [line.split()[4] for line in done.out.splitlines() if line.startswith(" ")]
    assert words == ["A", "=", "B"]
    assert "between 8 B and 32 B: A was faster, then they were equal" in done.out
    assert "A faster at 1 sizes, B at 1, equal at 1" in done.out
    assert "1 sizes that only one of them has are left out" in done.err


def test_topologies_are_simulated_and_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    done = netsim(capsys, "diff", "rtx2080ti-x2", "v100-pcie-x4", "--sizes", "8,64M")
    assert done.code == 0, done.err
    assert "A was faster, then B was faster" in done.out
    assert "B goes from Ring LL" in done.out


def test_mistakes_have_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = curve(tmp_path / "all_reduce.csv", 10, 20)
    assert "unknown machine" in netsim(capsys, "diff", one, "nowhere").err
    assert netsim(capsys, "diff", tmp_path, one).code == 2
    other = tmp_path / "all_reduce_2.csv"
    other.write_text(HEADER + "1000,2,float,sum,-1,3,\n")
    assert "have no size in common" in netsim(capsys, "diff", one, other).err
