"""`netsim expect --tuner-out`: finds the best algorithm, protocol and number of channels by size.

NCCL's time formula is not used: every combination that NCCL's rules allow is simulated, and the
fastest wins. The result is a table for the tuner plugin that comes with NCCL.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from netsim.base.errors import InputError, NetsimError
from netsim.base.files import text_of, write_text
from netsim.base.values import dataclass
from netsim.cli.options import Engine
from netsim.cli.shown import MANY_SIZES
from netsim.engines.engine import at_hand
from netsim.nccl.choice import cost_table
from netsim.nccl.communicator import TunerRule
from netsim.nccl.facts import COLLECTIVES, Algorithm, Protocol
from netsim.nccl.tuning import parse_tuner, tuner_text
from netsim.results.row import Row
from netsim.tasks.resolve import ResolvedCell
from netsim.tasks.row import row_of_size

EVERYTHING = 2**62  # bytes: a limit above all sizes
WORTH = 0.005  # the fraction that a candidate must be faster than NCCL's choice to replace it


@dataclass(frozen=True)
class Candidate:
    """An algorithm, a protocol and a number of channels to try; `n_channels` None takes NCCL's
    number.
    """

    algorithm: Algorithm
    protocol: Protocol
    n_channels: int | None = None


@dataclass(frozen=True)
class Tuned:
    """The result for one size: the rows of NCCL's choice and of the best candidate, and how many
    were tried.
    """

    usual: Row
    best: Row
    candidate: Candidate
    tried: int


def write_tuner(resolved: ResolvedCell, path: Path, engine: Engine) -> None:
    """Simulate all candidates at every size, print the fastest, and write the tuner table to
    `path`.

    Rules in an existing table for other collectives, nodes or ranks are kept.
    """
    work = resolved.cell.scenario.collective
    if work.collective not in COLLECTIVES:
        raise InputError(
            f"--tuner-out: NCCL runs {work.collective} as sends and receives, without a choice"
        )
    if not resolved.is_nccl:
        raise InputError(f"--tuner-out: {work.algorithm} is a textbook algorithm, not NCCL's")
    filled = path.is_file() and path.stat().st_size
    old = parse_tuner(text_of(path), str(path)) if filled else ()
    sizes = sorted(size for size in work.size_list() if resolved.collective(size).size_bytes)
    if not sizes:
        raise InputError("--tuner-out: none of the sizes has any data")
    tuner = Tuner(resolved, at_hand(engine, many=len(sizes) >= MANY_SIZES))
    typer.echo(f"{'size (B)':>12}  {'NCCL chooses':<36}{'fastest simulated':<36}{'tried':>5}")
    results = []
    for size in sizes:
        result = tuner.best(size)
        results.append(result)
        typer.echo(_line(result))
    write_text(path, tuner_text(merged(old, rules_of(resolved, results))))
    typer.echo(f"wrote {path} (NCCL_TUNER_CONFIG_FILE of NCCL's example tuner plugin)", err=True)
    variables = resolved.cell.scenario.nccl.env
    if variables:
        listed = " ".join(f"{name}={value}" for name, value in variables.items())
        typer.echo(f"found with {listed}: set them there as well", err=True)


def _line(result: Tuned) -> str:
    """The line of one size: NCCL's choice, the fastest candidate, and how much faster
    that is in %.
    """
    gain = (result.usual.time_us or 0.0) / (result.best.time_us or 1.0) - 1
    usual = _words(result.usual)
    best = _words(result.best)
    is_same = result.candidate.n_channels is None and usual == best
    better = "the same" if is_same else f"{best}  {gain:+.1%}"
    return f"{result.best.size_bytes:>12}  {usual:<36}{better:<36}{result.tried:>5}"


def _words(row: Row) -> str:
    """A row as text: `Ring Simple x16  95.10 us`."""
    return f"{row.algorithm} {row.protocol} x{row.channels}  {row.time_us:.2f} us"


class Tuner:
    """Simulates candidates on one resolved cell; the cell for each candidate is made once for all
    sizes.
    """

    def __init__(self, resolved: ResolvedCell, engine: str = "auto") -> None:
        self.resolved = resolved
        self.engine = engine
        self._forced: dict[Candidate, ResolvedCell] = {}

    def best(self, size: int) -> Tuned:
        """Simulate all candidates that can run at a size in bytes; return the fastest beside NCCL's
        choice.

        NCCL's choice is kept unless a candidate is faster by more than the fraction WORTH.
        """
        usual = row_of_size(self.resolved, size, engine=self.engine)
        dtype = self.resolved.cell.scenario.collective.dtype
        table = cost_table(self.resolved.jobs[0], self.resolved.collective(size), dtype)
        able = [entry.cost for entry in table if entry.time_us is not None]  # by NCCL's rules
        candidates = [Candidate(cost.algorithm, cost.protocol) for cost in able]
        times = {candidate: self._row(candidate, size) for candidate in candidates}
        fastest_first = sorted(times, key=lambda candidate: _time(times[candidate]))
        for candidate in fastest_first[:2]:
            self._fewer_channels(candidate, size, times)
        winner = min(times, key=lambda candidate: _time(times[candidate]))
        if _time(times[winner]) > _time(usual) * (1 - WORTH):
            choice = (usual.algorithm, usual.protocol)
            winner = next((c for c in candidates if (c.algorithm, c.protocol) == choice), winner)
        return Tuned(usual, times[winner], winner, len(times))

    def _fewer_channels(self, start: Candidate, size: int, times: dict[Candidate, Row]) -> None:
        """Try `start` with half, a quarter, … of its channels as long as that is faster; add the
        rows to `times`.
        """
        best = times[start]
        while best.channels is not None and best.channels > 1:
            fewer = replace(start, n_channels=best.channels // 2)
            row = self._row(fewer, size)
            if _time(row) >= _time(best) * (1 - WORTH):
                return
            times[fewer] = best = row

    def _row(self, candidate: Candidate, size: int) -> Row:
        """Simulate a size in bytes with NCCL forced to the candidate."""
        return row_of_size(self._with(candidate), size, engine=self.engine)

    def _with(self, candidate: Candidate) -> ResolvedCell:
        """The resolved cell in which a tuner rule forces NCCL to the candidate."""
        if candidate not in self._forced:
            function = COLLECTIVES[self.resolved.cell.scenario.collective.collective]
            wish = (candidate.algorithm, candidate.protocol, candidate.n_channels)
            rule = TunerRule(function, 0, EVERYTHING, *wish)
            jobs = self.resolved.jobs  # may repeat; each is replaced once
            made = {job: replace(job, comm=replace(job.comm, tuner=(rule,))) for job in set(jobs)}
            self._forced[candidate] = replace(self.resolved, jobs=tuple(made[job] for job in jobs))
        return self._forced[candidate]


def rules_of(resolved: ResolvedCell, results: Sequence[Tuned]) -> list[TunerRule]:
    """The tuner rules for results in order of size; a rule holds up to the byte before the next
    size tried.

    Consecutive sizes with the same choice share a rule.
    """
    comm = resolved.jobs[0].comm
    function = COLLECTIVES[resolved.cell.scenario.collective.collective]
    settings = comm.settings  # a number of channels that the user limits stands in the table
    limited = settings.min_channels is not None or settings.max_channels is not None
    sizes = [result.best.size_bytes or 0 for result in results]
    rules: list[TunerRule] = []
    for number, result in enumerate(results):
        last = sizes[number + 1] - 1 if number + 1 < len(results) else sizes[number]
        candidate = result.candidate
        channels = result.best.channels if limited else candidate.n_channels
        wish = (candidate.algorithm, candidate.protocol, channels)
        if rules and (rules[-1].algorithm, rules[-1].protocol, rules[-1].n_channels) == wish:
            rules[-1] = replace(rules[-1], most_bytes=last)
        else:
            rule = TunerRule(function, sizes[number], last, *wish, comm.n_nodes, comm.n_ranks)
            rules.append(rule)
    return rules


def merged(old: Sequence[TunerRule], new: Sequence[TunerRule]) -> list[TunerRule]:
    """The new rules, after those old ones that are for other collectives, numbers of nodes or
    ranks.
    """
    about = {(rule.function, rule.n_nodes, rule.n_ranks) for rule in new}
    others = [rule for rule in old if (rule.function, rule.n_nodes, rule.n_ranks) not in about]
    return [*others, *new]


def _time(row: Row) -> float:
    """The time of a row in µs; raises a NetsimError if it has none."""
    if row.time_us is None:
        raise NetsimError("a row without a time")
    return row.time_us
