"""The scan of tables: it finds what it says, and a small part of it is run here."""

from dataclasses import replace

import pytest

from tests import scan
from tests.scan import Finding, Point, Table

ONE, TWO = Table("m", "all_gather", 1), Table("m", "all_gather", 2)


def row(table: Table, size: int, time: float, choice: str = "Ring LL", **more) -> Point:
    algorithm, protocol = choice.split()
    return Point(table, size, time, size / time, algorithm, protocol, 4, **more)


def kinds(*rows: Point) -> list[str]:
    return [one.kind for one in scan.findings(rows)]


def test_times_that_grow_are_not_doubted() -> None:
    assert kinds(*(row(ONE, 8 << k, 4.0 + 1.9**k) for k in range(20))) == []
    assert kinds(row(ONE, 8, 10.0), row(ONE, 16, 9.8)) == []


def test_each_kind_is_found() -> None:
    assert kinds(row(ONE, 8, 10.0), row(ONE, 16, 9.6)) == ["fall"]
    assert kinds(row(ONE, 8, 10.0), row(ONE, 32, 9.0)) == []  # not twice the bytes
    dip = [row(ONE, 8, 1.0), row(ONE, 16, 3.0), row(ONE, 32, 4.5)]
    assert kinds(*dip) == ["dip"]
    assert kinds(row(ONE, 8, 10.0), row(TWO, 8, 9.0)) == ["nodes", "one node"]
    assert kinds(row(ONE, 8, 10.0), row(TWO, 8, 9.0, "Tree LL")) == []
    assert kinds(row(ONE, 8, 10.0, off_pct=1.1)) == ["approximate"]
    assert kinds(row(ONE, 8, 10.0, seconds=31.0, memory=2.1e9)) == ["slow", "large"]
    assert kinds(Point(ONE, 8, error="a needs at least 3 us")) == ["wire"]
    assert kinds(Point(ONE, 8, error="no")) == ["error"]
    assert kinds(row(ONE, 8, 1e-3, empty=True), row(ONE, 16, 1e-4)) == []


def test_a_switch_comes_with_what_nccl_says(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("dgx-h100", "all_gather", 1)
    small, large = row(table, 1 << 20, 100.0), row(table, 2 << 20, 20.0, "Ring LL128")
    (found,) = scan.findings([small, large])
    assert found.kind == "switch"
    assert "its model at 1 MiB: Ring LL " in found.evidence
    assert "; Ring LL128 at 1 MiB: " in found.evidence
    assert not found.known  # it leaves LL later: at 8 MiB
    small, large = row(table, 4 << 20, 100.0), row(table, 8 << 20, 20.0, "Ring LL128")
    (found,) = scan.findings([small, large])
    assert found.known == f"NCCL's: {found.evidence}"


def test_falls_are_counted_here_and_in_what_is_published() -> None:
    assert scan.falls_in({8: 10.0, 16: 9.8, 32: 9.0, 64: 20.0, 256: 1.0}) == (
        3,
        [pytest.approx(9.0 / 9.8 - 1)],
    )
    doublings, falls = scan.measured_falls()
    assert doublings > 2000
    assert 0.02 < len(falls) / doublings < 0.06


def test_known_findings_are_named_by_all_that_they_say() -> None:
    one = Finding("fall", Table("dgx-a100", "all_gather", 16), 2 << 20, "")
    entry = {"kind": "fall, dip", "machine": "dgx-*", "collective": "all_gather, reduce_scatter",
             "nodes": "4,16", "sizes": "1M:4M", "why": "because"}  # fmt: skip
    assert scan.with_known([one], [entry])[0].known == "because"
    for name, other in (
        ("kind", "nodes"),
        ("machine", "hgx-*"),
        ("collective", "reduce"),
        ("nodes", "4"),
        ("sizes", "4M:8M"),
        ("sizes", "2K"),
    ):
        assert not scan.with_known([one], [{**entry, name: other}])[0].known, name


def test_what_is_known_says_why() -> None:
    for entry in scan.known_entries():
        assert {"kind", "machine", "collective", "why"} <= set(entry)
        assert len(entry["why"]) > 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "collective", "nodes"),
    [
        ("dgx-h100", "all_reduce", 2),
        ("dgx-a100", "all_gather", 1),
        ("dgx-h100", "sendrecv", 2),
    ],
)
def test_a_small_part_of_the_scan_finds_nothing_new(machine, collective, nodes) -> None:
    table = Table(machine, collective, nodes)
    found = scan.findings(scan.apart(table, "8:1G:2"))
    new = [one for one in scan.with_known(found, scan.known_entries()) if not one.known]
    assert [str(one) for one in new if one.kind not in ("approximate", "slow")] == []


def test_a_table_whose_process_dies_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    good = row(ONE, 8, 10.0)

    def dying(table: Table, sizes: str):
        yield good
        raise SystemExit(9)

    monkeypatch.setattr(scan, "points", dying)
    kept, last = scan.apart(ONE, "8,16")
    assert kept == good
    assert last == replace(Point(ONE, 16), error="the process ended with 9")
