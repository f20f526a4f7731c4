"""python -m tests.engines.stress [--seconds N] [--seed N]: both engines on hard programs.

Thousands of random programs, too many for the test suite: up to hundreds of flows that share few
links, with exact ties, very different weights and shares, capacities of nothing and without limit,
and changes in mid-flow. Every row has to agree to 1e-9, or as well as the definition agrees with
itself after a rounding of the amounts; a program that does not is told with the seed that makes it
again.
"""

import argparse
import time
from dataclasses import dataclass
from itertools import count
from math import inf

import numpy as np

from netsim.program.program import LinkTable, Paths, Program
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Lag, Style
from tests.engines.agreement import MARGIN, RELATIVE, disagreement, own_spread


@dataclass(frozen=True)
class Taste:
    """What a family of programs is made of."""

    flows: tuple[int, int]
    links: tuple[int, int]
    hops: int
    waves: int  # rows that follow each other in the place of one flow
    ties: bool  # few distinct numbers, or no two alike


TASTES = {
    "small": Taste((1, 12), (1, 5), 3, 4, ties=True),
    "uneven": Taste((1, 12), (1, 5), 3, 4, ties=False),
    "ties": Taste((20, 120), (2, 12), 3, 3, ties=True),
    "dense": Taste((20, 120), (2, 12), 3, 3, ties=False),
    "wide": Taste((50, 200), (30, 100), 4, 2, ties=True),
    "web": Taste((50, 200), (30, 100), 4, 2, ties=False),
    "crowd": Taste((300, 1000), (3, 40), 3, 1, ties=True),
    "throng": Taste((100, 400), (3, 40), 3, 1, ties=False),
}


def random_program(seed: int, taste: Taste) -> Program:
    """A program of a family."""
    random = np.random.default_rng(seed)
    flows, links = (int(random.integers(low, high + 1)) for low, high in (taste.flows, taste.links))
    paths = [
        np.sort(random.permutation(links)[: random.integers(i % 17 != 3, taste.hops + 1)])
        for i in range(int(random.integers(1, flows + 1)))
    ]
    entries = np.concatenate(paths).astype(np.int32)
    weights = _numbers(random, taste, [0.5, 1.0, 1.0, 2.0, 16 / 15, 0.3], len(entries))
    capacity = _numbers(random, taste, [1.0, 1.0, 2.0, 3.0, 7.5, 10.0, inf], links)
    builder = Builder(2)
    styles = np.array([builder.style(_style(random, taste)) for _ in range(random.integers(1, 6))])
    lags = [Lag(float(random.choice([0.0, 0.0, 0.25, 1 / 3])), False) for _ in range(2)]
    rows = np.full(flows, -1)
    path = random.integers(0, len(paths), flows)
    taken = []
    for _ in range(random.integers(1, taste.waves + 1)):
        pieces = builder.work(_numbers(random, taste, [0.0, 1.0, 1.0, 2.0, 5.0, 1 / 7], flows))
        after = [(random.permutation(rows), lag) for lag in lags]
        rows = builder.rows(random.choice(styles, flows), 0, 1, pieces, after=after)
        taken.append(path := path if random.random() < 0.5 else random.permutation(path))
        late = rows[random.random(flows) < random.choice([0.0, 0.1, 1.0])]
        builder.release(late, _numbers(random, taste, [0.5, 1.0, 2 / 3], len(late)))
    lengths = [len(one) for one in paths]
    return Program(
        builder.finish(),
        np.concatenate(taken).astype(np.int32),
        Paths(
            np.cumsum([0, *lengths]),
            entries,
            weights,
            np.ones(len(entries), bool),
            np.zeros(len(paths)),
        ),
        LinkTable("L{}".format, str, capacity, np.zeros(links), _changes(random, taste, links)),
        ("a", "b"),
    )


def _numbers(
    random: np.random.Generator, taste: Taste, usual: list[float], size: int
) -> np.ndarray:
    if taste.ties:
        return random.choice(usual, size)
    return np.exp(random.normal(0.0, 1.0, size))


def _style(random: np.random.Generator, taste: Taste) -> Style:
    share = float(random.choice([1.0, 1.0, 0.25, 3.0, 1e-6, 1e-15]))
    cap = float(random.choice([inf, 0.4, 1.0, 2.5])) if taste.ties else random.uniform(0.01, 1)
    return Style(cap=min(cap, 20.0), share=share, latency=float(random.choice([0, 0, 0.1, 0.25])))


def _changes(
    random: np.random.Generator, taste: Taste, links: int
) -> tuple[tuple[float, int, float], ...]:
    """Capacities that change; in the end all that had none have some."""
    changes = [
        (float(when), int(random.integers(links)), float(random.choice([0.0, 0.5, 1.0, 4.0, inf])))
        for when in random.choice([0.0, 0.5, 1.0, 2.0, 20 / 3], random.integers(0, 8))
    ]
    mended = [(1e3, link, 2.0) for _, link, value in changes if value == 0]
    return tuple(sorted([*changes, *mended]))


def main() -> None:
    """Run until the time is over; at least one program."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines.stress", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", nargs="+", default=list(TASTES), choices=list(TASTES))
    parser.add_argument("--verbose", action="store_true", help="name each program beforehand")
    given = parser.parse_args()
    began, worst, rows, wrong, loose = time.monotonic(), 0.0, 0, 0, 0
    for seed in count(given.seed):
        family = given.families[seed % len(given.families)]
        if given.verbose:
            print(f"--seed {seed} --families {family}", flush=True)
        program = random_program(seed, TASTES[family])
        off = disagreement(program)
        rows += len(program)
        if RELATIVE < off <= MARGIN * own_spread(program):
            loose += 1
        elif off > RELATIVE:
            wrong += 1
            print(f"--seed {seed} --families {family}: {len(program)} rows, off by {off:.2g}")
        else:
            worst = max(worst, off)
        if time.monotonic() - began > given.seconds:
            break
    done = seed + 1 - given.seed
    print(
        f"{done} programs, {rows} rows: {wrong} wrong, {loose} that amplify rounding; "
        f"the others agree to {worst:.2g}"
    )
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
