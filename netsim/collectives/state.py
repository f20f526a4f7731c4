"""States: what every rank holds after every step of a schedule, as a value and as a text table.

A chunk is a range of the data that is never cut during the whole schedule: of the input vector
where contributions are added up or come from one root, of one rank's input after the other's
otherwise. A rank holds in a chunk the fullest sum that lies in any of its buffers."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.collectives.verify import BITS, Memory, multiplicities, rows_of
from netsim.schedule.schedule import Schedule

START = -1  # the step of the state before the first row
NOTHING = "-"
MOST_TERMS = 6

Piece = tuple[int, int, int]  # from, to (exclusive), contributions


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of the data: its letters, and its first element and the one after its last."""

    label: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Holding:
    """The ranks whose contributions are added up (each as often as it is), and whether all are."""

    origins: tuple[int, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class State:
    """What ranks hold after a step: `held[rank][chunk]`."""

    step: int
    held: tuple[tuple[Holding, ...], ...]


@dataclass(frozen=True, slots=True)
class States:
    """The states of a schedule, the first of them before it starts (step -1)."""

    collective: Collective
    chunks: tuple[Chunk, ...]
    states: tuple[State, ...]


def states(
    schedule: Schedule, collective: Collective, which: int = 0, members: Sequence[int] | None = None
) -> States:
    """What every rank holds before the schedule and after each step (tag `step`) of it."""
    memory = Memory(schedule, collective, members)
    bases = _bases(collective)
    snapshots = [(START, _snapshot(memory, bases))]
    step: list[int] = schedule.step.tolist()
    for row in range(len(step)):
        step[row] = max([step[row], *(step[earlier] for earlier, _ in schedule.dependencies(row))])
    rows = sorted(rows_of(schedule, which), key=step.__getitem__)
    for number, group in groupby(rows, key=step.__getitem__):
        for row in group:
            memory.execute(row)
        snapshots.append((number, _snapshot(memory, bases)))
    cuts = sorted({x for _, held in snapshots for parts in held for p in parts for x in p[:2]})
    chunks = tuple(Chunk(_letters(k), *span) for k, span in enumerate(pairwise(cuts)))
    found = (State(number, _holdings(held, cuts, collective)) for number, held in snapshots)
    return States(collective, chunks, tuple(found))


def render_text(
    value: States, steps: Sequence[int] | None = None, most_terms: int = MOST_TERMS
) -> str:
    """The table of every state, or of those after some steps; complete chunks are starred."""
    shown = [state for state in value.states if steps is None or state.step in steps]
    return "\n\n".join(_table(state, value.chunks, most_terms) for state in shown) + "\n"


def _bases(collective: Collective) -> list[int]:
    if collective.reducing or collective.name in ("broadcast", "scatter"):
        return [0] * collective.ranks
    counts = [collective.input_count(rank) for rank in range(collective.ranks)]
    return [sum(counts[:rank]) for rank in range(collective.ranks)]


def _snapshot(memory: Memory, bases: list[int]) -> list[list[Piece]]:
    held: list[list[Piece]] = [[] for _ in bases]
    shared = not any(bases)
    for (rank, _), segments in memory.buffers.items():
        for low, high, cell in segments:
            if cell is not None:
                for origin, contributions in _split(cell[1], len(bases), shared):
                    base = bases[origin] + cell[0]
                    held[rank].append((low + base, high + base, contributions))
    return held


def _split(contributions: int, ranks: int, shared: bool) -> Iterator[tuple[int, int]]:
    """A cell as it is, or where each rank has a part of the data of its own, one for each."""
    if shared:
        yield 0, contributions
        return
    for origin, times in enumerate(multiplicities(contributions, ranks)):
        if times:
            yield origin, times << (BITS * origin)


def _holdings(
    held: list[list[Piece]], cuts: list[int], collective: Collective
) -> tuple[tuple[Holding, ...], ...]:
    """The fullest sum of each chunk on each rank."""
    rows = []
    for parts in held:
        best: list[tuple[int, ...]] = [()] * max(0, len(cuts) - 1)
        for low, high, contributions in parts:
            counts = enumerate(multiplicities(contributions, collective.ranks))
            origins = tuple(rank for rank, times in counts for _ in range(times))
            for k in range(bisect_left(cuts, low), bisect_left(cuts, high)):
                best[k] = max(best[k], origins, key=lambda o: (len(set(o)), len(o)))
        whole = collective.ranks if collective.reducing else 1
        rows.append(tuple(Holding(o, len(o) == len(set(o)) == whole) for o in best))
    return tuple(rows)


def _letters(index: int) -> str:
    text = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, 26)
        text = chr(ord("a") + digit) + text
    return text


def _table(state: State, chunks: tuple[Chunk, ...], most_terms: int) -> str:
    title = "at the start" if state.step == START else f"after step {state.step}"
    lines = [[title, *(chunk.label for chunk in chunks)]]
    for rank, held in enumerate(state.held):
        cells = [_cell(h, c.label, most_terms) for h, c in zip(held, chunks, strict=True)]
        lines.append([f"rank {rank}", *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(holding: Holding, label: str, most_terms: int) -> str:
    """A sum such as a0+a1+a4, or with many terms a[0-3,7]; a star if it is complete."""
    origins = holding.origins
    if not origins:
        return NOTHING
    text = "+".join(f"{label}{rank}" for rank in origins)
    if len(origins) > most_terms and len(set(origins)) == len(origins):
        text = f"{label}[{runs(origins)}]"
    return text + "*" * holding.complete


def runs(ranks: tuple[int, ...]) -> str:
    """Ranks in order, each stretch by its ends: `0-6,9`."""
    breaks = [k for k in range(1, len(ranks)) if ranks[k] != ranks[k - 1] + 1]
    found = [ranks[a:b] for a, b in pairwise([0, *breaks, len(ranks)])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)
