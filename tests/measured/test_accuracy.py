"""`netsim accuracy` on small indexes: mapping, points, errors, what cannot be mapped."""

import csv
import json
from dataclasses import replace
from math import exp, log, log2, prod
from pathlib import Path
from types import SimpleNamespace

import pytest

from netsim.base.constants import TABLE, value
from netsim.base.errors import InputError
from netsim.measured import accuracy
from netsim.measured.accuracy import compared, intervals_from, read_accuracy, run_index
from netsim.measured.accuracy_records import AccuracyRecords, open_records
from netsim.measured.compare import ComparedPoint, answer, error_of, resolved_at
from netsim.measured.estimate import (
    Without,
    figures_without,
    looked_at,
    shown_by,
    switched_off,
    without,
)
from netsim.measured.index import (
    IndexEntry,
    Mapped,
    _several_hosts,
    dtype_of,
    mapped,
    nics_gbps,
    read_index,
)
from netsim.plots.results import MOST_CURVES
from netsim.results import row as result_rows
from netsim.results.journal import Journal, sealed
from netsim.results.row import Joined, band_of, joined, stored, validated
from tests.cli.command import netsim

HEADER = (
    "size_bytes,count,dtype,redop,root,oop_time_us,oop_algbw_gbps,oop_busbw_gbps,"
    "ip_time_us,ip_algbw_gbps,ip_busbw_gbps\n"
)
KEYS = [
    "run",
    "machine",
    "collective",
    "size_bytes",
    "measured_us",
    "simulated_us",
    "algorithm",
    "protocol",
    "healthy",
    "system",
]
ENTRY = """
- id: {id}
  file: csv/run.csv
  gpu: anything
  topology: {topology}
  collective: all_reduce
  nccl: {nccl}
  env: {env}
  launch: {launch}
  command: all_reduce_perf -b 8 -e 1M -g 2
  healthy: {healthy}
  date: '{date}'
"""
USUAL = {
    "id": "one", "topology": "{machine: rtx2080ti-x2, nodes: 1, gpus_per_node: 2}",
    "nccl": "2.20.3", "env": "{}", "launch": "single_process", "healthy": "'yes'", "date": "2024",
}  # fmt: skip


def index(
    folder: Path, *entries: dict[str, str], rows: str = "8,2,float,sum,-1,20,,,19,,\n"
) -> Path:
    (folder / "csv").mkdir(exist_ok=True)
    (folder / "csv" / "run.csv").write_text(HEADER + rows)
    path = folder / "index.yaml"
    path.write_text("".join(ENTRY.format(**(USUAL | entry)) for entry in entries))
    return path


def plan(tmp_path: Path, **entry: str):
    return mapped(read_index(index(tmp_path, entry))[0])


def test_points_have_the_keys_of_the_contract_and_say_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = index(
        tmp_path,
        {},
        {"id": "bad", "topology": "{machine: dgx-z9, nodes: 1, gpus_per_node: 8}"},
        {"id": "ill", "healthy": "'no'"},
        rows="8,2,float,sum,-1,20,,,19,,\n1048576,262144,float,sum,-1,300,,,310,,\n",
    )
    done = netsim(capsys, "accuracy", path, "--jobs", 1, "--json", tmp_path / "out.json")
    assert done.code == 0
    assert "not simulated: bad" in done.err
    assert "unknown machine 'dgx-z9'" in done.err
    values = json.loads((tmp_path / "out.json").read_text())
    assert list(values) == ["points", "bands"]
    assert [list(point) for point in values["points"]] == [KEYS] * 4
    assert [point["measured_us"] for point in values["points"]] == pytest.approx([19, 300] * 2)
    assert [point["healthy"] for point in values["points"]] == [True, True, False, False]
    assert all(point["simulated_us"] > 0 for point in values["points"])
    first = values["points"][0]
    off = abs(log(first["simulated_us"] / first["measured_us"]))
    assert log(1 + values["bands"]["healthy"]["<=64KiB"]["median"]) == pytest.approx(off)
    again = netsim(capsys, "accuracy", path, "--jobs", 1, "--against", tmp_path / "out.json")
    assert "0 runs better, 0 worse, 2 as before" in again.out


@pytest.mark.slow
def test_two_processes_find_the_same(tmp_path: Path) -> None:
    entries = read_index(index(tmp_path, {}, {"id": "two", "launch": "process_per_gpu"}))
    assert run_index(entries, 2) == run_index(entries, 1)


def test_the_point_is_the_smaller_time_only_where_the_work_is_the_same(tmp_path: Path) -> None:
    text = index(tmp_path, {}).read_text().replace("all_reduce", "all_gather")
    (tmp_path / "index.yaml").write_text(text)
    found = run_index(read_index(tmp_path / "index.yaml"), 1)
    assert [point.measured_us for point in found.points] == pytest.approx([20])


def test_versions_outside_the_range_become_the_nearest_and_are_told(tmp_path: Path) -> None:
    old = plan(tmp_path, nccl="2.4.8")
    assert old.data["nccl"]["version"] == "2.10"
    assert "2.4.8" in " ".join(old.notes)
    assert not plan(tmp_path, nccl="2.20.3").notes
    dated = plan(tmp_path, nccl="unknown", date="2024-11")
    assert dated.data["nccl"]["version"] == "2.21"
    cuda = plan(tmp_path, nccl="unknown (CUDA 12.2)", date="2025-04-14")
    assert cuda.data["nccl"]["version"] == "2.18"
    assert "NCCL unknown (CUDA 12.2): taken as 2.18" in cuda.notes
    assert plan(tmp_path, nccl="2.20.3 (CUDA 12.2)").data["nccl"]["version"] == "2.20.3"
    unknown = plan(tmp_path, nccl="unknown (CUDA 99.1)", date="2024-11")
    assert unknown.data["nccl"]["version"] == "2.21"


def test_unknown_launches_follow_the_command(tmp_path: Path) -> None:
    assert plan(tmp_path, launch="unknown").data["launch"] == "single_process"


def test_a_rack_may_be_called_a_node(tmp_path: Path) -> None:
    rack = (
        "{machine: gb300-nvl72, nodes: 30, gpus_per_node: 72, transport: infiniband,"
        " nics_per_node: 72, nic_gbps: 800}"
    )
    cluster = plan(tmp_path, topology=rack).data["cluster"]
    assert (cluster["nodes"], cluster["gpus_per_node"], cluster["nics_per_node"]) == (540, 4, 4)
    trays = "{machine: gb300-nvl72, nodes: 32, gpus_per_node: 4, transport: infiniband}"
    overrides = plan(tmp_path, topology=trays).data["cluster"]["overrides"]
    assert overrides == [{"machine": {"scale_up": {"hosts": 16}}}]


@pytest.mark.parametrize(
    ("network", "transport", "asked", "reduces"),
    [
        ("InfiniBand HDR with SHARP (CollNet)", "infiniband", "1", True),
        ("InfiniBand HDR, SHARP off", "infiniband", "1", False),
        ("InfiniBand HDR without SHARP", "infiniband", "1", False),
        ("InfiniBand HDR with SHARP", "infiniband", "0", False),
        ("Slingshot 11", "slingshot", "1", False),
        ("Ethernet, SHARP", "roce", "1", False),
    ],
)
def test_switches_reduce_where_a_network_has_sharp_and_the_run_asked_for_it(
    tmp_path: Path, network: str, transport: str, asked: str, reduces: bool
) -> None:
    pair = f"{{machine: dgx-a100, nodes: 2, gpus_per_node: 8, transport: {transport}}}"
    path = index(tmp_path, {"topology": pair, "env": f"{{NCCL_COLLNET_ENABLE: '{asked}'}}"})
    path.write_text(f"{path.read_text()}  network: {network}\n")
    cluster = mapped(read_index(path)[0]).data["cluster"]
    assert (cluster.get("fabric") or {}).get("sharp", False) is reduces


def test_variables_that_no_nccl_knows_are_left_out_and_told(tmp_path: Path) -> None:
    found = plan(tmp_path, env="{NCCL_ALGO: Ring, FI_PROVIDER: cxi, NCCL_ALGOO: 1}")
    assert found.data["nccl"]["env"] == {"NCCL_ALGO": "Ring"}
    assert "NCCL_ALGOO" in " ".join(found.notes)


def test_bandwidths_stand_for_times_that_a_table_lacks(tmp_path: Path) -> None:
    """A rate tells a time to half of its last digit: 0.10 to 5 %, and 0.09 or 0.01 no time."""
    rows = "1048576,262144,float,sum,-1,,10.00,,,,5.00\n8,2,float,sum,-1,,0.01,,,,\n"
    rows += "16,4,float,sum,-1,,0.09,,,,\n32,8,float,sum,-1,,0.10,,,,\n"
    (entry,) = read_index(index(tmp_path, {}, rows=rows))
    row, coarse = entry.rows()
    assert coarse.size_bytes == 32
    assert row.out_of_place == pytest.approx(1048576 / 10e9)
    assert row.in_place == pytest.approx(1048576 / 5e9)  # on two ranks both bandwidths are equal


def test_threads_launch_as_processes_do(tmp_path: Path) -> None:
    (entry,) = read_index(index(tmp_path, {"launch": "unknown"}))
    alone = replace(entry, values={**entry.values, "command": "all_reduce_perf -t 2"})
    assert mapped(alone).data["launch"] == "process_per_gpu"
    both = replace(entry, values={**entry.values, "command": "all_reduce_perf -t 2 -g 4"})
    assert mapped(both).data["launch"] == "single_process"


def test_a_version_before_the_modelled_ones_is_taken_as_the_oldest_and_told(tmp_path: Path) -> None:
    found = plan(tmp_path, nccl="2.7.8")
    assert found.data["nccl"]["version"] == "2.10"
    assert "NCCL 2.7.8: taken as 2.10" in found.notes


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "no row has a time"),
        ("8,2,float,sum,-1,-20,,,,,\n", "expected microseconds above 0, got -20"),
        ("8,2,float,sum,-1,0.0,,,,,\n", "expected microseconds above 0, got 0.0"),
        ("8,2,float,sum,-1,inf,,,,,\n", "expected microseconds above 0, got inf"),
        ("8,2,float,sum,-1,abc,,,,,\n", "expected microseconds, got 'abc'"),
        ("8,2,float\n", "expected 11 values, got 3"),
        ("8.5,2,float,sum,-1,20,,,,,\n", "expected a whole number, got '8.5'"),
        ("inf,2,float,sum,-1,20,,,,,\n", "expected a whole number, got 'inf'"),
    ],
)
def test_bad_rows_are_told_and_do_not_stop_the_rest(
    tmp_path: Path, rows: str, message: str
) -> None:
    found = run_index(read_index(index(tmp_path, {}, rows=rows)), 1)
    assert not found.points
    assert message in found.failed[0].reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("a: 1", "expected a list of runs"),
        ("- id: x", "a run needs file"),
        ("- file: x", "a run needs id"),
        ("- {id: x, file: y, topology: 3, collective: z}", "expected machine, nodes"),
    ],
)
def test_what_is_no_index_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "index.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_index(tmp_path / "index.yaml")


def test_broken_entries_do_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = index(tmp_path, {})
    path.write_text(
        path.read_text()
        + """
- {id: bare}
- {id: no-machine, file: csv/run.csv, collective: all_reduce, topology: {nodes: 1}}
- {id: two, file: csv/run.csv, collective: [all_reduce, all_gather], topology: {machine: dgx-2}}
- {id: prose, file: csv/run.csv, collective: all_reduce, topology: {machine: dgx-2, nodes: many}}
- {id: lost, file: csv/none.csv, collective: all_reduce, topology: {machine: dgx-2}}
- {id: more, file: csv/run.csv, collective: all_reduce, topology: {machine: dgx-2}, weather: fine}
"""
    )
    done = netsim(capsys, "accuracy", path, "--jobs", 1)
    assert done.code == 0, done.err
    said = [line for line in done.err.splitlines() if line.startswith("not simulated")]
    expected = {
        "bare": "a run needs file",
        "no-machine": "expected machine, nodes and gpus_per_node",
        "two": "collective",
        "prose": "expected a count, got 'many'",
        "lost": "no such file",
    }
    assert len(said) == len(expected)
    for name, message in expected.items():
        (line,) = [line for line in said if f"simulated: {name}:" in line]
        assert message in line
    assert all(f"  {name} " in done.out for name in ("one", "more"))


def test_files_may_be_anywhere_and_logs(tmp_path: Path) -> None:
    usual = run_index(read_index(index(tmp_path, {})), 1).points
    text = (tmp_path / "index.yaml").read_text()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "run.txt").write_text(
        "#  size  count  type  redop  root  time  algbw  busbw  error  time  algbw  busbw  error\n"
        "      8      2 float    sum    -1    20   0.00   0.00      0    19   0.00   0.00      0\n"
    )
    for file in (tmp_path / "csv" / "run.csv", "../elsewhere/run.txt"):
        path = elsewhere / "index.yaml" if "txt" in str(file) else tmp_path / "index.yaml"
        path.write_text(text.replace("csv/run.csv", str(file)))
        assert run_index(read_index(path), 1).points == usual


def test_a_machine_may_be_named_in_part(tmp_path: Path) -> None:
    found = plan(tmp_path, topology="{machine: rtx2080ti}")
    assert found.data["cluster"]["machine"] == "rtx2080ti-x2"
    assert "taken as rtx2080ti-x2" in " ".join(found.notes)
    with pytest.raises(InputError, match="unknown machine 'dgx'"):
        plan(tmp_path, topology="{machine: dgx}")


def test_errors_of_a_band() -> None:
    points = [
        ComparedPoint("a", "m", "all_reduce", 8, 10, simulated, "Ring", "LL", True)
        for simulated in (12.0, 12.0, 5.0)
    ]
    error = error_of(points)
    assert error.median == pytest.approx(0.2)
    assert error.bias == pytest.approx(0.2)
    assert [band_of(size) for size in (2**16, 2**16 + 1, 2**20, 2**20 + 1, 2**26)] == [
        "<=64KiB",
        "64KiB-1MiB",
        "64KiB-1MiB",
        "1-64MiB",
        ">=64MiB",
    ]
    worse = [ComparedPoint(**{**p.__dict__, "simulated_us": 40.0}) for p in points]
    assert compared(worse, points)[0][0] == "a"


def test_an_earlier_result_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(InputError, match="not a result of netsim accuracy"):
        read_accuracy(tmp_path / "x.json")


def test_runs_that_ask_the_same_are_simulated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = index(tmp_path, {"id": "first"}, {"id": "second", "healthy": "'no'"})
    asked = []

    def counted(part):
        asked.append(part.entry.id)
        return answer(part)

    monkeypatch.setattr("netsim.measured.accuracy.answer", counted)
    found = run_index(read_index(path), 1)
    assert asked == ["first"]
    assert [(one.run, one.healthy) for one in found.points] == [("first", True), ("second", False)]
    assert len({one.simulated_us for one in found.points}) == 1


def test_an_interrupted_accuracy_prints_what_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = index(tmp_path, {"id": "first"}, {"id": "second", "nccl": "2.21.5"})

    def interrupted(part):
        if part.entry.id == "second":
            raise KeyboardInterrupt
        return answer(part)

    monkeypatch.setattr("netsim.measured.accuracy.answer", interrupted)
    kept, page = tmp_path / "kept.json", tmp_path / "page.md"
    options = ("--jobs", 1, "--json", kept, "--page", page)
    done = netsim(capsys, "accuracy", path, *options)
    assert done.code == 130
    assert "  first" in done.out
    assert "second" not in done.out
    assert "interrupted: only what was finished is shown (1 runs), no page is written" in done.err
    assert {point.run for point in read_accuracy(kept)} == {"first"}
    assert not page.exists()


@pytest.mark.parametrize("whole", [True, False])
def test_a_journal_stays_only_where_something_is_left_to_go_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    path = index(tmp_path, {"id": "first"}, {"id": "second", "nccl": "2.21.5"})

    def answered(part):
        if part.entry.id == "second" and not whole:
            raise KeyboardInterrupt
        return answer(part)

    monkeypatch.setattr("netsim.measured.accuracy.answer", answered)
    assert netsim(capsys, "accuracy", path, "--jobs", 1).code == (0 if whole else 130)
    assert len(list(tmp_path.glob("reports/*.jsonl"))) == (not whole)


def test_a_result_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netsim.measured.accuracy.run_index", lambda *_: pytest.fail("it ran"))
    path = index(tmp_path, {})
    for file, message in ((tmp_path, "this is a folder"), ("no/such.json", "there is no folder")):
        done = netsim(capsys, "accuracy", path, "--json", file)
        assert done.code == 2
        assert message in done.err


@pytest.mark.slow
def test_every_run_of_the_corpus_has_a_scenario_that_can_be_prepared() -> None:
    entries = read_index(Path("scenarios/measured/index.yaml"))
    assert len(entries) == 168
    assert all(entry.text("system") for entry in entries)
    for entry in entries:
        rows = entry.rows()
        assert rows, entry.id
        smallest = min(row.size_bytes for row in rows)
        _, resolved = resolved_at(mapped(entry), [smallest], dtype_of(rows[0].dtype), rows[0].root)
        assert resolved.jobs, entry.id
        assert len(resolved.gpus) == entry_ranks(entry), entry.id
        assert resolved.planned(smallest) is not None, entry.id


def entry_ranks(entry: IndexEntry) -> int:
    counts = (entry.topology.get(key, 1) for key in ("nodes", "gpus_per_node"))
    return prod(int(count) for count in counts)


def test_the_page_its_pictures_and_what_validated_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pictures: None
) -> None:
    path = index(tmp_path, {}, {"id": "ill", "healthy": "'no'"})
    page = tmp_path / "validation.md"
    done = netsim(capsys, "accuracy", path, "--jobs", 1, "--page", page)
    assert done.code == 0, done.err
    text = page.read_text()
    assert "1 healthy run on 1 kind of machine, 1 point" in text
    assert "| ill (problem) |" in text
    assert (tmp_path / "validation" / "rtx2080ti-x2.svg").stat().st_size > 1000
    (found,) = json.loads((tmp_path / "validated.json").read_text())
    assert (found["machine"], found["band"], found["runs"]) == ("rtx2080ti-x2", "<=64KiB", 1)


def test_no_picture_has_more_runs_than_colours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = index(tmp_path, *({"id": f"run{n}"} for n in range(MOST_CURVES + 1)))
    page = tmp_path / "validation.md"
    done = netsim(capsys, "accuracy", path, "--jobs", 1, "--page", page)
    assert done.code == 0, done.err
    files = sorted(file.name for file in (tmp_path / "validation").iterdir())
    assert files == ["rtx2080ti-x2-1.svg", "rtx2080ti-x2-2.svg"]
    text = page.read_text()
    assert all(f"(validation/{name})" in text for name in files)


def test_validated_is_of_the_nearest_class(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, between = Joined("m", "intra"), Joined("m", "roce", 800)
    known = {
        (inside, "all_reduce", "<=64KiB"): (0.123, 2),
        (between, "all_reduce", "<=64KiB"): (0.2, 1),
    }
    monkeypatch.setattr("netsim.results.row.stored", lambda: known)
    assert validated(inside, "all_reduce", 8) == "12% (2 runs)"
    assert validated(inside, "alltoall", 8) == "not validated (all_reduce: 12%)"
    assert validated(between, "all_reduce", 8) == "20% (1 run)"
    assert validated(Joined("m", "roce", 400), "all_reduce", 8) == (
        "not validated (only NICs of 800 Gb/s a host were timed)"
    )
    assert validated(Joined("m", "efa", 800), "all_reduce", 8) == "not validated"
    assert joined("m", "intra", 800) == inside, "nobody uses the NICs"


def test_what_the_corpus_stores_is_what_its_runs_are() -> None:
    entries = [one for one in read_index(Path("scenarios/measured/index.yaml")) if one.healthy]
    runs = {joined(one.machine, one.transport, nics_gbps(one)) for one in entries}
    assert {where for where, _, _ in stored()} == runs


def test_systems_weigh_equally() -> None:
    points = [
        *[ComparedPoint("a", "m", "all_reduce", 8, 1.0, 1.1, "", "", True, "one")] * 9,
        ComparedPoint("b", "m", "all_reduce", 8, 1.0, 1.5, "", "", True, "two"),
    ]
    found = error_of(points)
    assert (found.points, found.runs, found.systems) == (10, 2, 2)
    assert 0.1 <= found.median < 0.5 == pytest.approx(found.p90)
    alone = error_of([replace(point, system="") for point in points[:9]])
    assert alone.median == pytest.approx(0.1)


def test_a_constant_without_a_system_is_estimated_from_the_others() -> None:
    entries = read_index(Path("scenarios/measured/index.yaml"))
    fitted = TABLE["launch.host"]
    shown = {one.id: shown_by(fitted, one) for one in looked_at(fitted, entries)}
    systems = {one.system for one in entries}
    every = (without(one, [fitted], entries, {fitted.id: shown}) for one in sorted(systems))
    found = {one.system: one for some in every for one in some}
    assert {"h100_sxm", "a100_superbench"} < set(found)
    assert len(found) == 7
    assert all(one.of == "" and 0.9 < one.ratio < 1.1 for one in found.values())
    entry = next(one for one in entries if one.id == "h100_sxm_8_all_reduce_1")
    figures = figures_without(entry, [found["h100_sxm"]])
    assert figures == {"launch.host": pytest.approx(fitted.value * found["h100_sxm"].ratio)}


def test_what_only_one_system_shows_is_taken_from_the_next_wider_class() -> None:
    entries = read_index(Path("scenarios/measured/index.yaml"))
    usable = TABLE["efa.usable"]
    (found,) = without("aws_p4d_a100", [usable], entries, {usable.id: {}})
    assert (found.system, found.of) == ("aws_p4d_a100", "roce.usable")
    assert found.ratio * usable.value == pytest.approx(value("roce.usable"))


def test_a_constant_is_switched_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = index(tmp_path, {}), tmp_path / "out.json"
    assert netsim(capsys, "accuracy", path, "--jobs", 1, "--json", out).code == 0
    usual = json.loads(out.read_text())["points"][0]["simulated_us"]
    assert switched_off("begin.sends") == Without("begin.sends", "", 0.0, "nothing")
    general = TABLE["nvlink.hop.ll"].value / TABLE["sm_100.nvlink.hop.ll"].value
    assert switched_off("sm_100.nvlink.hop.ll").ratio == pytest.approx(general)
    done = netsim(capsys, "accuracy", path, "--jobs", 1, "--json", out, "--without", "launch.host")
    assert done.code == 0, done.err
    assert json.loads(out.read_text())["points"][0]["simulated_us"] < usual
    for options, said in (
        (("--without", "launch.hots"), "did you mean launch.host?"),
        (("--without", "cxi.flush"), "cxi.flush: no run of the index is simulated with it"),
        (("--without", "launch.host", "--page", tmp_path / "p.md"), "goes without --page"),
    ):
        refused = netsim(capsys, "accuracy", path, *options)
        assert (refused.code, said in refused.err) == (2, True), refused.err


def test_what_joins_gpus_of_a_host_is_no_transport_of_a_run() -> None:
    entries = {one.id: one for one in read_index(Path("scenarios/measured/index.yaml"))}
    hop = [Without("nvlink.hop.ll", "any", 2.0)]
    assert set(figures_without(entries["h100_sxm_8_all_reduce_1"], hop)) == {"nvlink.sync.ll"}
    cxi, network = (Without(id, "any", 2.0) for id in ("cxi.software.match", "network.notice"))
    assert figures_without(entries["h100_sxm_8_all_reduce_1"], [cxi, network]) == {}
    both = figures_without(entries["polaris_a100_2x4_all_reduce_2"], [cxi, network])
    assert set(both) > {"network.notice"}
    assert set(both) - {"network.notice"} == set(TABLE["cxi.software.match"].figures)


def test_a_forecast_is_made_without_figures_and_compared_with_them_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "8,2,float,sum,-1,20,,,19,,\n1048576,262144,float,sum,-1,300,,,310,,\n"
    path, told = index(tmp_path, {}, rows=rows), tmp_path / "told.csv"
    table = tmp_path / "csv" / "run.csv"
    usual = run_index(read_index(path), 1).points
    table.write_text(table.read_text().replace("20,,,19", "x,,,y"))  # nobody may look there
    assert netsim(capsys, "accuracy", path, "--predict", told, "--jobs", 1).code == 0
    table.write_text(HEADER + rows)
    out = tmp_path / "out.json"
    ends = [
        [float(one[key]) for key in ("time_low_us", "time_us", "time_high_us")]
        for one in csv.DictReader(told.read_text().splitlines())
    ]
    assert all(low < time < high for low, time, high in ends)
    held = sum(low <= time <= high for (low, _, high), time in zip(ends, (19, 300), strict=True))
    done = netsim(capsys, "accuracy", path, "--predicted", told, "--json", out)
    assert (done.code, f"{held} of 2 healthy points lie" in done.err) == (0, True), done.err
    points = json.loads(out.read_text())["points"]
    assert [point["measured_us"] for point in points] == pytest.approx([19, 300])
    assert [one["simulated_us"] for one in points] == pytest.approx(
        [one.simulated_us for one in usual], rel=1e-5
    )
    text = told.read_text()
    time = text.splitlines()[1].split(",")[text.split(",").index("time_us")]
    for wrong in ("0", "inf"):
        told.write_text(text.replace(time, wrong))
        refused = netsim(capsys, "accuracy", path, "--predicted", told)
        assert refused.code == 2
        assert refused.err.endswith(f"time_us: expected a finite number above 0, got {wrong}\n")
    other = netsim(capsys, "accuracy", path, "--predicted", table)
    assert other.code == 2
    assert ": no such column in this forecast" in other.err


@pytest.mark.parametrize("systems", [result_rows.FEWEST, 19, 39])
def test_intervals_are_those_of_one_system_more(systems: int) -> None:
    """Of k systems in order, k + 1 places are as likely for the next one: what lies within is what
    the ranks leave on either side."""
    values = [(rank / 100, f"system {rank}") for rank in range(1, systems + 1)]
    key = (result_rows.TIME, ("", "", "", "small"))
    (found,) = intervals_from({key: [*values, *values[:3]]}).values()  # one says a thing twice
    assert found.systems == systems
    rank = min(max((1 - result_rows.WITHIN) / 2 * (systems + 1), 1.0), float(systems))
    assert -100 * log(found.high) == pytest.approx(rank)
    assert -100 * log(found.low) == pytest.approx(systems + 1 - rank)
    without = intervals_from({key: values}, "system 1")
    if systems == result_rows.FEWEST:
        assert not without  # too few are left
    else:
        assert without[key].systems == systems - 1


def test_of_a_class_with_few_systems_the_middle_half_is_told() -> None:
    own, wide = ("dgx-h100", "intra", "reduce", "small"), ("dgx-h100", "intra", "", "small")
    values = [(rank / 100, f"system {rank % 3}") for rank in range(12)]
    found = intervals_from({(result_rows.TIME, own): values, (result_rows.TIME, wide): values})
    half = found.pop((result_rows.HALF, own))
    assert not found
    assert half.systems == 3
    within = [half.low <= exp(-ratio) <= half.high for ratio, _ in values]
    assert sum(within) in (6, 7, 8)
    assert not within[0]
    assert not within[-1]


def test_runs_of_many_ranks_are_shared_out_and_the_longest_come_first() -> None:
    def entry(ranks: int, rows: int) -> SimpleNamespace:
        return SimpleNamespace(ranks=ranks, rows=lambda: tuple(range(rows)))

    assert [part.rows for part in accuracy._parts(entry(31, 6), {})] == [(0, 1, 2, 3, 4, 5)]
    shared = [part.rows for part in accuracy._parts(entry(32, 6), {"a": 1.0})]
    assert shared == [(0, 4), (1, 5), (2,), (3,)]
    assert [part.rows for part in accuracy._parts(entry(32, 3), {})] == [(0,), (1,), (2,)]
    rows = [SimpleNamespace(size_bytes=size) for size in (2, 14)]
    part = SimpleNamespace(rows=rows, entry=SimpleNamespace(ranks=4))
    assert accuracy._work(part) == pytest.approx((log2(4) + log2(16)) * 4**1.5)


def test_a_run_without_some_of_its_variables_keeps_the_others() -> None:
    env = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    whole = Mapped({"workload": {}, "nccl": {"env": env}}, ("one",), {"launch.host": 2.0})
    less = whole.without(("NCCL_PROTO", "NCCL_DEBUG"), "it is refused")
    assert less is not None
    assert less.data == {"workload": {}, "nccl": {"env": {"NCCL_ALGO": "Ring"}}}
    assert less.notes == ("one", "without NCCL_PROTO: it is refused")
    assert less.figures == whole.figures
    assert whole.without(("NCCL_DEBUG",), "it is not set") is None


def test_a_node_of_an_entry_may_be_a_whole_domain_but_no_more() -> None:
    """GPUs of whole hosts, of as many as share switches; one host where none do."""
    entry = SimpleNamespace(error=lambda message, *_: InputError(message))
    machine = SimpleNamespace(gpu=SimpleNamespace(count=4), scale_up=SimpleNamespace(hosts=3))
    assert _several_hosts(entry, machine, 12, 6) == (3, 4, 2)
    assert _several_hosts(entry, machine, 8, None) == (2, 4, None)
    assert _several_hosts(entry, machine, 8, 1) == (2, 4, 1)
    alone = SimpleNamespace(gpu=SimpleNamespace(count=4), scale_up=None)
    assert _several_hosts(entry, alone, 4, 4) == (1, 4, 4)
    for one, gpus in ((machine, 16), (machine, 6), (alone, 8)):
        with pytest.raises(InputError, match=f"the machine has 4 GPUs, got {gpus}"):
            _several_hosts(entry, one, gpus, None)


def test_a_key_with_a_typo_is_told_and_half_a_name_is_no_machine(tmp_path: Path) -> None:
    entry = "- {id: a, file: a.csv, collective: all_reduce, heathy: no, topology: {machine: %s}}\n"
    (tmp_path / "a.csv").write_text("size_bytes,oop_time_us\n8,9\n")
    for machine, said in (
        ("gb200", "machine gb200: taken as gb200-nvl72, the only one so called"),
        ("dgx-h100", "heathy is not read (did you mean healthy?)"),
    ):
        (tmp_path / "i.yaml").write_text(entry % machine)
        assert said in mapped(read_index(tmp_path / "i.yaml")[0]).notes
    (tmp_path / "i.yaml").write_text(entry % "dgx-h10")
    with pytest.raises(InputError, match="did you mean dgx-h100"):
        mapped(read_index(tmp_path / "i.yaml")[0])


def test_accuracy_resumes_only_while_no_other_process_has_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    messages: list[str] = []
    with open_records(Path("index.yaml"), resume=False, tell=messages.append) as records:
        assert records.journal is not None
        records.keep("a", shown=[1.0, 2.0])
        with open_records(Path("index.yaml"), resume=False, tell=messages.append) as second:
            second.keep("b", shown=[3.0])  # is not written
        with (
            pytest.raises(InputError, match="cannot be used"),
            open_records(Path("index.yaml"), resume=True, tell=messages.append),
        ):
            pass
    with records.journal.path.open("ab") as file:
        file.write(b'{"part": "cut off')
    with open_records(Path("index.yaml"), resume=True, tell=messages.append) as records:
        assert list(records.shown) == ["a"]
        records.keep("c", step="no scenario")
    with open_records(Path("index.yaml"), resume=True, tell=messages.append) as records:
        assert (list(records.shown), records.steps) == (["a"], {"c": "no scenario"})
    assert not [message for message in messages if "damaged" in message]


def test_lines_of_a_journal_that_are_none_are_told_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    foreign, damaged = sealed({"part": "x"}), sealed({"part": "y"}).replace("y", "z")
    path.write_text(foreign + damaged)
    with Journal.open_to_read(path) as journal:
        journal.read(AccuracyRecords().take)
        first, second = journal.damage
    assert "not a line of a journal" in first
    assert "checksum" in second
