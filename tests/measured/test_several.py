"""Several logs of one system: their ranking, and the host that slow ones have in common."""

from itertools import combinations

import pytest

from netsim.measured.compare import Compared
from netsim.measured.logs import LogDevice, LogRun
from netsim.measured.several import Judged, culprit_lines, ranking, suspected_hosts, with_bad_marked
from netsim.measured.verdict import verdict_of
from netsim.results.row import Row
from netsim.yamlio.read import Source

HOSTS = ("a", "b", "c", "d")


def judged(*hosts: str, slower: float = 1.0, listed: bool = True) -> Judged:
    """A run on some hosts that took `slower` times as long as simulated."""
    devices = tuple(LogDevice(rank, f"p{rank}", host, "H100") for rank, host in enumerate(hosts))
    if not listed:
        devices = devices[1:]
    run = LogRun("-".join(hosts), "all_reduce", devices=devices)
    row = Row(
        size_bytes=2**26,
        size_asked=2**26,
        time_us=100.0,
        measured_time_us=100.0 * slower,
        status="ok",
    )
    compared = Compared(run, (row,))
    return Judged(run.file, Source("x", {}), compared, verdict_of(compared, 0.15, 5e-6))


def pairs(factor: dict[str, float], everyone: float = 1.0) -> list[Judged]:
    """Runs on all pairs of hosts, those with a slow host as slow as it is."""
    runs = [
        judged(*pair, slower=everyone * max(factor.get(host, 1.0) for host in pair))
        for pair in combinations(HOSTS, 2)
    ]
    return with_bad_marked(runs, 0.15)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("everyone", [1.0, 1.5])
def test_the_host_of_all_slow_pairs_is_the_culprit(host: str, everyone: float) -> None:
    """Also where all pairs are slower than simulated, and one host is slower still."""
    runs = pairs({host: 1.6}, everyone)
    assert suspected_hosts(runs) == [host]
    (line,) = culprit_lines(runs)
    assert line.startswith(f"culprit: {host} is in every slow log (3) and in no other (3)")


def test_a_pair_that_is_within_its_interval_but_slower_than_the_others_is_bad() -> None:
    runs = [judged("a", "b"), judged("a", "c"), judged("b", "c", slower=1.1)]
    assert [one.is_bad for one in with_bad_marked(runs, 0.05)] == [False, False, True]
    assert [one.verdict.fails for one in runs] == [False, False, False]


def test_logs_are_ranked_the_slowest_first() -> None:
    runs = [judged("a", slower=1.2), judged("b", slower=2.0), judged("c", slower=0.5)]
    assert [one.label for one in ranking(runs)] == ["b", "a", "c"]


def test_hosts_that_were_not_told_apart_are_both_named_with_a_test_that_does() -> None:
    runs = with_bad_marked([judged("a", "b", slower=2.0), judged("c", "d")], 0.15)
    (line,) = culprit_lines(runs)
    assert "culprit: a or b: each is in every slow log" in line
    assert "a run of one of them with c tells which" in line


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([judged("a", "b"), judged("c", "d")], "no log is slower"),
        ([judged("a", "b", slower=2.0), judged("c", "d", slower=2.0)], "common to all hosts"),
        ([judged("a", "b", slower=2.0), judged("a", "b")], "every host is also in a log"),
        (
            [judged("a", "b", slower=2.0), judged("c", "d", slower=2.0), judged("a", "c")],
            "no single host is in every slow log; b, d are in slow logs only",
        ),
        ([judged("a", "b", slower=2.0, listed=False), judged("c", "d")], "lists its ranks in full"),
    ],
)
def test_what_is_said_where_no_single_host_is_the_culprit(runs: list[Judged], words: str) -> None:
    assert words in " ".join(culprit_lines(with_bad_marked(runs, 0.15)))
