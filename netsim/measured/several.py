"""Several measured runs of one system: which of them are slow, and which host the slow ones share.

The usual way to find a bad host is to run a collective on many pairs of hosts. A host that is in
every slow run and in no good one is suspected of making them slow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf, log1p
from statistics import median

from netsim.base.values import dataclass
from netsim.measured.compare import Compared
from netsim.measured.verdict import Verdict
from netsim.yamlio.read import Source


@dataclass(frozen=True)
class Judged:
    """A run with the scenario that it was compared with, and the verdict.

    `label` is its name in tables and pictures. `is_bad` says that it is slower than its simulation,
    or than the other runs.
    """

    label: str
    source: Source
    compared: Compared
    verdict: Verdict
    is_bad: bool = False

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that the log lists, in the order of their ranks; empty if the log does not list
        all ranks.
        """
        run = self.compared.run
        if len(run.devices) != run.listed_ranks:
            return ()
        return tuple(run.hosts)

    @property
    def deviation(self) -> float:
        """The log ratio of simulated over measured time of the slowest band; the lower, the slower
        the run.
        """
        band = self.verdict.slowest_band
        return -inf if band is None else log1p(band.error)


def ranking(judged: Sequence[Judged]) -> list[Judged]:
    """Return the runs sorted by their deviation from the simulation, the slowest first."""
    return sorted(judged, key=lambda judgment: judgment.deviation)


def with_bad_marked(judged: Sequence[Judged], tolerance: float) -> list[Judged]:
    """Return the runs with `is_bad` set if a band fails because the run was slow, or if the run is
    slower than the other runs by more than the tolerance (a fraction).

    An error of the simulation is the same in all runs of a system. So if all runs fail, only the
    comparison between the runs counts.
    """
    fails_slow = [any(band.error < 0 for band in one.verdict.failed_bands) for one in judged]
    if all(fails_slow):
        fails_slow = [False] * len(judged)
    others = [one.deviation for one, slow in zip(judged, fails_slow, strict=True) if not slow]
    slowest_allowed = median(others) - log1p(tolerance)
    return [
        replace(one, is_bad=slow or one.deviation < slowest_allowed)
        for one, slow in zip(judged, fails_slow, strict=True)
    ]


def suspected_hosts(judged: Sequence[Judged]) -> list[str]:
    """Return the hosts that are in every bad run and in no good one, in the order of the logs."""
    bad = [one.hosts for one in judged if one.is_bad]
    good_hosts = {host for one in judged if not one.is_bad for host in one.hosts}
    if not bad or not all(bad):
        return []
    return [
        host
        for host in dict.fromkeys(bad[0])
        if host not in good_hosts and all(host in hosts for hosts in bad)
    ]


def culprit_lines(judged: Sequence[Judged]) -> Iterator[str]:
    """Return sentences on the hosts that slow runs have in common."""
    bad = [one for one in judged if one.is_bad]
    good = [one for one in judged if not one.is_bad]
    if not bad and all(one.verdict.fails for one in judged):
        yield (
            "every log fails, and none is slower than the others: the cause is common to all "
            "hosts, or the scenario is not what ran"
        )
        return
    if not bad:
        yield "no log is slower than the others: no host is suspected"
        return
    if not all(one.hosts for one in judged):
        yield "not every log lists its ranks in full: hosts cannot be compared"
        return
    suspects = suspected_hosts(judged)
    if len(suspects) == 1:
        yield (
            f"culprit: {suspects[0]} is in every slow log ({len(bad)}) and in no other "
            f"({len(good)})"
        )
        return
    if suspects:
        partner = next(host for one in good for host in one.hosts)
        yield (
            f"culprit: {' or '.join(suspects)}: each is in every slow log ({len(bad)}) and in no "
            f"other ({len(good)}); a run of one of them with {partner} tells which"
        )
        return
    good_hosts = {host for one in good for host in one.hosts}
    only_slow = dict.fromkeys(h for one in bad for h in one.hosts if h not in good_hosts)
    if only_slow:
        yield (
            f"no single host is in every slow log; {', '.join(only_slow)} "
            f"{'is' if len(only_slow) == 1 else 'are'} in slow logs only"
        )
        return
    yield (
        "every host is also in a log that is not slow: the cause is between hosts, or it comes "
        "and goes"
    )
