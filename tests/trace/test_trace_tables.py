"""CSV of rows, links and links over time: columns, units, and what is left out."""

import csv
from pathlib import Path

import pytest

from netsim.trace.names import TracedOperation
from netsim.trace.tables import (
    LINK_COLUMNS,
    LOAD_COLUMNS,
    ROW_COLUMNS,
    write_links,
    write_links_over_time,
    write_rows,
)
from tests.trace.output_runs import mixed_run, ring_run


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_line_for_every_row(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    ring = TracedOperation("all_reduce", "ring")
    rows = lines(write_rows(tmp_path / "trace.csv", program, timeline, [ring]).path)
    assert tuple(rows[0]) == ROW_COLUMNS
    assert len(rows) == len(program)
    assert rows[5] == {
        "row": "5",
        "kind": "transfer",
        "collective": "ring all_reduce",
        "channel": "0",
        "step": "1",
        "stream": "",
        "src": "1",
        "dst": "2",
        "bytes": "65536",
        "start_us": "2.31072",
        "end_us": "3.62144",
        "path": "gpu1->switch0;switch0->gpu2",
        "op": "reduce",
        "startup_us": "0.0",
        "latency_us": "1.0",
    }
    assert (rows[-1]["kind"], rows[-1]["bytes"], rows[-1]["path"]) == ("mark", "", "")


def test_groups_compute_and_start_up_in_rows(tmp_path: Path) -> None:
    program, timeline, _ = mixed_run()
    rows = lines(write_rows(tmp_path / "trace.csv", program, timeline).path)
    assert (rows[0]["kind"], rows[0]["stream"], rows[0]["bytes"]) == ("compute", "gemm", "")
    assert rows[6]["startup_us"] == "2.0"
    assert (rows[7]["kind"], rows[7]["src"], rows[7]["dst"]) == ("multicast", "0", "0;1;2;3")
    assert (rows[8]["kind"], rows[8]["src"], rows[8]["dst"]) == ("switch_reduce", "0;1;2;3", "2")


def test_rows_above_the_limit_are_left_out_and_said(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    written = write_rows(tmp_path / "trace.csv", program, timeline, rows=8)
    assert "first 8 of 28 rows" in written.note
    assert [row["row"] for row in lines(written.path)] == [str(i) for i in range(8)]


def test_a_line_for_every_link_in_use(tmp_path: Path) -> None:
    program, timeline, _ = mixed_run()
    links = lines(write_links(tmp_path / "links.csv", program, timeline).path)
    assert tuple(links[0]) == LINK_COLUMNS
    assert (links[0]["link"], links[0]["kind"]) == ("gpu0->switch0", "fabric")
    assert (links[0]["capacity_GBps"], links[0]["bytes"]) == ("50.0", "7000000")
    by_name = {link["link"]: link for link in links}
    assert (by_name["sms(gpu1)"]["bytes"], by_name["sms(gpu1)"]["busy_us"]) == ("", "30.0")
    assert float(by_name["hbm(gpu1)"]["capacity_GBps"]) == 2000.0


def test_links_over_time_add_up_to_their_bytes(tmp_path: Path) -> None:
    program, timeline, _ = mixed_run()
    path = write_links_over_time(tmp_path / "t.csv", program, timeline, bins=50).path
    load = lines(path)
    assert tuple(load[0]) == LOAD_COLUMNS
    first = [line for line in load if line["link"] == "gpu0->switch0"]
    assert len(first) == 50
    assert float(first[0]["t_us"]) == 0.0
    width = float(first[1]["t_us"])
    assert width * 50 == pytest.approx(timeline.makespan * 1e6)
    assert sum(float(line["GBps"]) * width * 1e3 for line in first) == pytest.approx(7e6)
    assert max(float(line["utilisation"]) for line in load) <= 1 + 1e-9
    assert all(line["GBps"] == "" for line in load if line["link"].startswith("sms"))


def test_links_over_time_keep_the_busiest_and_say_so(tmp_path: Path) -> None:
    program, timeline, _ = mixed_run()
    written = write_links_over_time(tmp_path / "t.csv", program, timeline, links=2)
    assert {line["link"] for line in lines(written.path)} == {"gpu0->switch0", "switch0->gpu1"}
    assert written.note == "holds the 2 busiest of 14 links"


def test_same_run_same_bytes(tmp_path: Path) -> None:
    program, timeline, _ = mixed_run()
    for write in (write_rows, write_links, write_links_over_time):
        texts = [write(tmp_path / f"{i}.csv", program, timeline).path.read_bytes() for i in "ab"]
        assert texts[0] == texts[1]
