"""What a host takes for a launch: figures, classes, and a launch style that is not known."""

import csv
from math import sqrt
from pathlib import Path

import pytest

import netsim
from netsim.base.errors import InputError
from netsim.results.row import Row
from netsim.scenario.cells import expand
from netsim.tasks.answer import answer
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.topology.host_costs import HOST_CLASSES, host_class
from netsim.yamlio.read import parse_source

SCENARIO = """\
cluster: {{machine: {machine}, nodes: 1}}
workload: {{collective: all_reduce, sizes: [8]}}
launch: {launch}
{more}
"""
TABLE = Path(netsim.__file__).parent / "topology" / "hosts.csv"
LARGE = 1 << 28


def resolved(
    launch: str = "single_process", more: str = "", machine: str = "dgx-h100"
) -> ResolvedCell:
    text = SCENARIO.format(machine=machine, launch=launch, more=more)
    return resolve(expand(parse_source(text, "hosts.yaml"))[0])


def row_of(launch: str = "single_process", more: str = "", size: int = 8) -> Row:
    return answer(resolved(launch, more), size, engine="compiled")


def test_eight_launches_of_one_process_take_eight_times_the_host_s_time() -> None:
    quick, slow = (row_of(more=f"host: {launch}us").time_us for launch in (4, 7))
    assert slow - quick == pytest.approx(8 * 3)


def test_processes_of_their_own_hide_a_usual_launch_and_show_a_very_slow_one() -> None:
    times = [row_of("process_per_gpu", f"host: {launch}us").time_us for launch in (3, 7, 60)]
    assert times[0] == pytest.approx(times[1], rel=0.05)  # the first of 20 operations waits
    assert times[2] == pytest.approx(60, rel=0.1)


def test_large_messages_do_not_ask_what_a_launch_takes() -> None:
    times = [row_of(more=f"host: {launch}us", size=LARGE).time_us for launch in (3, 7)]
    assert times[0] == pytest.approx(times[1], rel=5e-3)


def test_a_name_a_time_and_a_mapping_are_three_spellings() -> None:
    known = host_class("bare-metal")
    text = f"{known.launch * 1e6:g}us"
    times = [
        row_of(more=f"host: {host}").time_us for host in ("bare-metal", text, f"{{launch: {text}}}")
    ]
    assert times[0] == pytest.approx(times[1]) == pytest.approx(times[2])


def test_the_scenario_s_host_comes_before_that_of_the_machine(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    machine = Path(netsim.__file__).parents[1] / "topologies" / "dgx-h100.yaml"
    Path("slow.yaml").write_text(f"host: 9us\n{machine.read_text()}")
    slow, named = (
        resolved(more=more, machine="slow.yaml").launch(8).host for more in ("", "host: 5us")
    )
    assert slow - named == pytest.approx(4e-6)


def test_the_range_of_a_class_is_within_the_interval() -> None:
    row, known = row_of(more="host: azure-vm"), host_class("azure-vm")
    assert row.time_low_us <= row.time_us - 8e6 * (known.launch - known.launch_low) + 1e-9
    assert row.time_high_us >= row.time_us + 8e6 * (known.launch_high - known.launch) - 1e-9


def test_every_class_has_evidence_and_lies_within_its_range() -> None:
    with TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["class"] for row in rows] == list(HOST_CLASSES)
    for row in rows:
        assert float(row["low_us"]) <= float(row["launch_us"]) <= float(row["high_us"])
        assert int(row["systems"]) >= 1
        assert len(row["evidence"]) > 50


@pytest.mark.parametrize("wrong", ["bare-mtal", "fast", "-3us", "{launch: 3}"])
def test_a_host_that_does_not_exist_is_refused_with_the_field(wrong: str) -> None:
    with pytest.raises(InputError, match="host"):
        resolved(more=f"host: {wrong}")


# **** A launch style that is not known ****


def test_an_unknown_launch_is_between_both_styles_and_its_interval_covers_them() -> None:
    unknown, quick, slow = (
        row_of(style) for style in ("unknown", "process_per_gpu", "single_process")
    )
    assert unknown.time_us == pytest.approx(sqrt(quick.time_us * slow.time_us))
    assert unknown.time_low_us == pytest.approx(quick.time_low_us)
    assert unknown.time_high_us == pytest.approx(slow.time_high_us)
    assert unknown.launch == "unknown"
    assert unknown.validated == "not validated (launch)"


def test_where_styles_do_not_differ_an_unknown_launch_is_as_known_as_either() -> None:
    unknown, known = (row_of(style, size=LARGE) for style in ("unknown", "process_per_gpu"))
    assert unknown.time_us == pytest.approx(known.time_us, rel=5e-3)
    assert unknown.validated == known.validated
    assert unknown.busbw_GBps == pytest.approx(known.busbw_GBps, rel=5e-3)


def test_bandwidths_of_an_unknown_launch_follow_from_its_time() -> None:
    row = row_of("unknown", size=1 << 20)
    assert row.algbw_GBps == pytest.approx((1 << 20) / row.time_us / 1e3)
    assert row.busbw_GBps == pytest.approx(row.algbw_GBps * 2 * 7 / 8)
