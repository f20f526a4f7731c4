"""python -m tests.bench.rounds [SEEDS]: alltoall of drawn clusters from first rounds, and in full.

A line a seed: what the run in full takes, by which part the first rounds are off, what they state,
and how many are off by more.
"""

import sys

from tests.timing.cells import timed
from tests.timing.test_rungs_keep_their_word import LIMITS, ROUNDS, sent_to_all, size_of


def main() -> None:
    """As many seeds as are asked for, beginning with 0."""
    wrong, seeds = 0, int(sys.argv[1]) if len(sys.argv) > 1 else 90
    for seed in range(seeds):
        one = sent_to_all(seed)
        told, full = (timed(one, size_of(one), limits) for limits in (ROUNDS, LIMITS))
        off = told.seconds / full.seconds - 1
        wrong += abs(off) > told.uncertainty + full.uncertainty
        cluster = one.cell.scenario.cluster
        print(
            f"{seed:>3}  {cluster.nodes} x {cluster.members[0].loaded.name}, {size_of(one)} B:"
            f" {full.seconds * 1e6:.1f} us, {off:+.1%}, stated {told.uncertainty:.1%}",
            flush=True,
        )  # fmt: skip
    print(f"{wrong} of {seeds} are off by more than they state")


if __name__ == "__main__":
    main()
