"""What changed between two sets of logs: noise, verdicts, causes, files, exit code."""

import json
import random
from math import exp
from pathlib import Path
from xml.etree import ElementTree

import pytest

from netsim.base.errors import InputError
from netsim.measured.logs import LogRun, MeasuredRow
from netsim.measured.regression import (
    PUBLISHED_NOISE,
    KindChange,
    changes_between,
    left_out,
    limit_of,
)
from tests.cli.command import netsim

SIZES = tuple(2**power for power in range(3, 34, 3))
DRAWS = 300
PAIR = "rtx2080ti-x2"


def run_of(draw: random.Random, noise: float, factor: float = 1.0, **fields: object) -> LogRun:
    """A run whose times have independent noise; above 1 MiB they are `factor` times as long."""
    rows = []
    for size in SIZES:
        time = 20e-6 + size / 100e9
        if size >= 2**20:
            time *= factor
        rows.append(MeasuredRow(size, out_of_place=time * exp(draw.gauss(0, noise))))
    return LogRun("run", **{"collective": "all_reduce", "rows": tuple(rows), **fields})


def verdicts(changes: list[KindChange]) -> list[str]:
    return [band.change for change in changes for band in change.bands]


def test_a_set_against_itself_has_no_change() -> None:
    runs = [run_of(random.Random(seed), 0.03) for seed in range(3)]
    (change,) = changes_between(runs, runs)
    assert verdicts([change]) == ["same"] * 4
    assert not change.is_slower


@pytest.mark.parametrize(
    ("noise", "before", "after"), [(0.01, 1, 1), (0.01, 2, 1), (0.01, 4, 4), (0.05, 4, 4)]
)
def test_noise_raises_a_false_alarm_in_at_most_2_percent_of_draws(noise, before, after) -> None:
    draw = random.Random(f"{noise} {before} {after}")
    alarms = 0
    for _ in range(DRAWS):
        old = [run_of(draw, noise) for _ in range(before)]
        new = [run_of(draw, noise) for _ in range(after)]
        alarms += any(verdict != "same" for verdict in verdicts(changes_between(old, new)))
    assert alarms <= 0.02 * DRAWS


def test_a_change_of_10_percent_is_found_in_single_logs_with_1_percent_noise() -> None:
    draw = random.Random(3)
    for _ in range(50):
        old, new = run_of(draw, 0.01), run_of(draw, 0.01, factor=1.1)
        assert verdicts(changes_between([old], [new])) == ["same", "same", "slower", "slower"]


def test_swapping_before_and_after_turns_slower_into_faster() -> None:
    draw = random.Random(4)
    turned = {"slower": "faster", "faster": "slower", "same": "same"}
    for _ in range(50):
        factor = draw.choice([0.5, 0.9, 1.0, 1.1, 2.0])
        old, new = [run_of(draw, 0.01)], [run_of(draw, 0.01, factor=factor)]
        forth, back = changes_between(old, new), changes_between(new, old)
        assert [turned[verdict] for verdict in verdicts(forth)] == verdicts(back)
        for left, right in zip(forth[0].sizes, back[0].sizes, strict=True):
            assert left.log_ratio == pytest.approx(-right.log_ratio)


def test_more_repeats_find_a_smaller_change() -> None:
    draw = random.Random(5)
    few = changes_between([run_of(draw, 0.005)], [run_of(draw, 0.005, factor=1.03)])
    old = [run_of(draw, 0.005) for _ in range(5)]
    new = [run_of(draw, 0.005, factor=1.03) for _ in range(5)]
    assert verdicts(few)[2:] == ["same", "same"]
    assert verdicts(changes_between(old, new))[2:] == ["slower", "slower"]


def test_noisy_repeats_widen_what_noise_explains() -> None:
    draw = random.Random(6)
    quiet = changes_between(*([run_of(draw, 0.01) for _ in range(2)] for _ in range(2)))
    noisy = changes_between(*([run_of(draw, 0.06) for _ in range(2)] for _ in range(2)))
    for left, right in zip(quiet[0].bands, noisy[0].bands, strict=True):
        assert left.log_limit < right.log_limit
    assert all(0.5 < band.noise / PUBLISHED_NOISE < 2 for band in quiet[0].bands)


def test_two_neighboring_sizes_change_a_band_and_a_single_one_does_not() -> None:
    old = run_of(random.Random(7), 0.0)

    def slowed(sizes: set[int]) -> LogRun:
        rows = [
            MeasuredRow(row.size_bytes, out_of_place=row.out_of_place * 1.3)
            if row.size_bytes in sizes
            else row
            for row in old.rows
        ]
        return LogRun("after", collective="all_reduce", rows=tuple(rows))

    single = changes_between([old], [slowed({SIZES[1]})])[0].bands[0]
    two = changes_between([old], [slowed(set(SIZES[1:3]))])[0].bands[0]
    assert single.change == "same"
    assert two.change == "slower"
    assert [size.size_bytes for size in two.changed_sizes] == list(SIZES[1:3])


def test_runs_are_matched_by_collective_type_and_ranks() -> None:
    draw = random.Random(8)
    reduce, gather = run_of(draw, 0.0), run_of(draw, 0.0, collective="all_gather")
    (change,) = changes_between([reduce, gather], [reduce])
    assert change.kind.collective == "all_reduce"
    assert list(left_out([reduce, gather], [reduce])) == [
        "not compared: all_gather of float is only in the set before"
    ]
    with pytest.raises(InputError, match="nothing to compare: before are all_reduce of float"):
        changes_between([reduce], [gather])


def test_the_limit_falls_with_repeats_and_rises_with_the_number_of_tests() -> None:
    assert limit_of(0.01, 0, (1, 1), 4) > limit_of(0.01, 0, (2, 2), 4)
    assert limit_of(0.01, 0, (1, 1), 4) > limit_of(0.01, 20, (1, 1), 4)
    assert limit_of(0.01, 0, (1, 1), 40) > limit_of(0.01, 0, (1, 1), 4)
    assert limit_of(0.01, 0, (1, 1), 4) == pytest.approx(0.061, rel=0.02)


# The command


def log_of(capsys, path: Path, *options: str) -> Path:
    sizes = ("--sizes", "8,4K,256K,16M,256M", "--format", "nccl-tests", "-q")
    done = netsim(capsys, "expect", PAIR, "all_reduce", *sizes, *options)
    assert done.code == 0, done.err
    path.write_text(done.out)
    return path


@pytest.mark.slow
def test_a_regression_is_exit_1_with_its_cause_json_and_junit(capsys, tmp_path: Path) -> None:
    before = log_of(capsys, tmp_path / "before.txt")
    after = log_of(capsys, tmp_path / "after.txt", "--env", "NCCL_PROTO=LL")
    files = ("--json", tmp_path / "c.json", "--junit", tmp_path / "c.xml")
    options = ("--topology", PAIR, *files)
    done = netsim(capsys, "compare", after, "--against", before, *options)
    assert done.code == 1, done.err
    assert "# regression: " in done.out
    assert "#   protocol LL forced: leaves 0.0% of the change of " in done.out
    values = json.loads((tmp_path / "c.json").read_text())
    assert values["regression"] is True
    (run,) = values["runs"]
    assert run["causes"][0]["names"][0] == "protocol LL forced"
    assert {band["change"] for band in run["bands"]} == {"same", "slower"}
    root = ElementTree.fromstring((tmp_path / "c.xml").read_text())
    failed = [case for case in root.iter("testcase") if case.find("failure") is not None]
    assert len(failed) == sum(band["change"] == "slower" for band in run["bands"])
    back = netsim(capsys, "compare", before, "--against", after, "--topology", PAIR)
    assert back.code == 0
    assert "# no regression: " in back.out
    assert "that hold before the change" in back.out


def test_folders_of_logs_are_compared_without_a_topology(capsys, tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        head = "size_bytes,count,dtype,redop,root,oop_time_us\n"
        factor = 2 if name == "after" else 1
        for number in range(2):
            rows = (f"{size},{size // 4},float,sum,-1,{factor * size / 1e3}" for size in SIZES[3:])
            (tmp_path / name / f"all_reduce_{number}.csv").write_text(head + "\n".join(rows) + "\n")
    done = netsim(capsys, "compare", tmp_path / "after", "--against", tmp_path / "before")
    assert done.code == 1
    assert "# before: 2 logs; after: 2 logs" in done.out
    assert "SLOWER" in done.out
    assert "# causes are not tried: the logs name no machine" in done.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "out"), "-o out: goes without --against"),
        (("--gate", "95%"), "--gate 95%: goes without --against"),
        (("--against", "empty"), "empty: no log in this folder"),
    ],
)
def test_what_a_comparison_of_sets_refuses(capsys, tmp_path, monkeypatch, options, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    log = log_of(capsys, tmp_path / "log.txt")
    done = netsim(capsys, "compare", log, "--against", log, *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


# Gates of logs


def test_a_log_as_expected_passes_a_gate_and_a_slow_one_fails(capsys, tmp_path: Path) -> None:
    good = log_of(capsys, tmp_path / "good.txt")
    bad = log_of(capsys, tmp_path / "bad.txt", "--env", "NCCL_PROTO=LL")
    xml = tmp_path / "gate.xml"
    options = ("--topology", PAIR, "--nccl", "2.30", "--gate", "90%", "--junit", xml)
    passed = netsim(capsys, "compare", good, *options)
    assert passed.code == 0, passed.out
    assert ElementTree.fromstring(xml.read_text()).get("failures") == "0"
    failed = netsim(capsys, "compare", bad, *options)
    assert failed.code == 1, failed.out
    root = ElementTree.fromstring(xml.read_text())
    assert int(root.get("failures")) >= 1
    assert root.find("testsuite").get("name") == "bad.txt"
    assert "and above: FAILS" in failed.out
    assert "# below the gate: bad.txt: " in failed.err


def test_junit_without_a_gate_has_the_verdicts_of_the_tolerance(capsys, tmp_path: Path) -> None:
    log = log_of(capsys, tmp_path / "log.txt")
    xml = tmp_path / "log.xml"
    done = netsim(capsys, "compare", log, "--topology", PAIR, "--junit", xml)
    assert done.code == 0
    root = ElementTree.fromstring(xml.read_text())
    assert (root.get("tests"), root.get("failures")) == ("4", "0")
