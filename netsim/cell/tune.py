"""The best algorithm, protocol and channels by size, found by simulating all that NCCL could run.

NCCL's own formula takes no part: whatever its rules allow is simulated, and the fastest wins. What
comes out are rules for a tuner table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from netsim.base.errors import NetsimError
from netsim.base.values import dataclass
from netsim.cell.prepare import Prepared
from netsim.cell.simulate import row_of_size
from netsim.nccl.choice import cost_table
from netsim.nccl.communicator import TunerRule
from netsim.nccl.facts import COLLECTIVES, Algorithm, Protocol
from netsim.results.row import Row

EVERYTHING = 2**62
WORTH = 0.005  # by which part a candidate must be faster than NCCL's own choice to replace it


@dataclass(frozen=True)
class Candidate:
    """One way to run a call; `n_channels` None is NCCL's number."""

    algorithm: Algorithm
    protocol: Protocol
    n_channels: int | None = None


@dataclass(frozen=True)
class Tuned:
    """One size: the row of NCCL's choice, that of the best, and how many were tried."""

    usual: Row
    best: Row
    candidate: Candidate
    tried: int


class Tuner:
    """Tries candidates on one prepared question; each is set up once for all sizes."""

    def __init__(self, prepared: Prepared, engine: str = "auto") -> None:
        self.prepared, self.engine = prepared, engine
        self._forced: dict[Candidate, Prepared] = {}

    def best(self, size: int) -> Tuned:
        """The fastest of all that can run at a size."""
        usual = row_of_size(self.prepared, size, engine=self.engine)
        times = {candidate: self._row(candidate, size) for candidate in self._able(size)}
        for candidate in sorted(times, key=lambda one: _time(times[one]))[:2]:
            self._fewer_channels(candidate, size, times)
        winner = min(times, key=lambda one: _time(times[one]))
        if _time(times[winner]) > _time(usual) * (1 - WORTH):
            own = [one for one in times if one.n_channels is None and _alike(times[one], usual)]
            winner = own[0] if own else winner
        return Tuned(usual, times[winner], winner, len(times))

    def _able(self, size: int) -> Iterator[Candidate]:
        """What NCCL's rules allow for this call."""
        collective = self.prepared.collective(size)
        dtype = self.prepared.cell.scenario.collective.dtype
        for entry in cost_table(self.prepared.jobs[0], collective, dtype):
            if entry.time_us is not None:
                yield Candidate(entry.cost.algorithm, entry.cost.protocol)

    def _fewer_channels(self, start: Candidate, size: int, times: dict[Candidate, Row]) -> None:
        """Halve the channels for as long as that is faster."""
        best = times[start]
        while best.channels is not None and best.channels > 1:
            fewer = replace(start, n_channels=best.channels // 2)
            row = self._row(fewer, size)
            if _time(row) >= _time(best) * (1 - WORTH):
                return
            times[fewer] = best = row

    def _row(self, candidate: Candidate, size: int) -> Row:
        """The row with a candidate forced."""
        return row_of_size(self._with(candidate), size, engine=self.engine)

    def _with(self, candidate: Candidate) -> Prepared:
        if candidate not in self._forced:
            function = COLLECTIVES[self.prepared.cell.scenario.collective.collective]
            wish = (candidate.algorithm, candidate.protocol, candidate.n_channels)
            rule = TunerRule(function, 0, EVERYTHING, *wish)
            made = {
                job: replace(job, comm=replace(job.comm, tuner=(rule,)))
                for job in set(self.prepared.jobs)
            }
            jobs = tuple(made[job] for job in self.prepared.jobs)
            self._forced[candidate] = replace(self.prepared, jobs=jobs)
        return self._forced[candidate]


def rules_of(prepared: Prepared, found: Sequence[Tuned]) -> list[TunerRule]:
    """Rules for what was found at rising sizes; each holds up to the next size that was tried."""
    comm = prepared.jobs[0].comm
    function = COLLECTIVES[prepared.cell.scenario.collective.collective]
    settings = comm.settings  # a number that the user's limits make is written out
    limited = settings.min_channels is not None or settings.max_channels is not None
    sizes = [one.best.size_bytes or 0 for one in found]
    rules: list[TunerRule] = []
    for number, one in enumerate(found):
        last = sizes[number + 1] - 1 if number + 1 < len(found) else sizes[number]
        channels = one.best.channels if limited else one.candidate.n_channels
        wish = (one.candidate.algorithm, one.candidate.protocol, channels)
        if rules and (rules[-1].algorithm, rules[-1].protocol, rules[-1].n_channels) == wish:
            rules[-1] = replace(rules[-1], most_bytes=last)
        else:
            rule = TunerRule(function, sizes[number], last, *wish, comm.n_nodes, comm.n_ranks)
            rules.append(rule)
    return rules


def merged(old: Sequence[TunerRule], new: Sequence[TunerRule]) -> list[TunerRule]:
    """The new rules, and the old ones that are about other functions, nodes or ranks."""
    about = {(rule.function, rule.n_nodes, rule.n_ranks) for rule in new}
    kept = [rule for rule in old if (rule.function, rule.n_nodes, rule.n_ranks) not in about]
    return [*kept, *new]


def _time(row: Row) -> float:
    if row.time_us is None:
        raise NetsimError("a row without a time")
    return row.time_us


def _alike(one: Row, other: Row) -> bool:
    return (one.algorithm, one.protocol) == (other.algorithm, other.protocol)
