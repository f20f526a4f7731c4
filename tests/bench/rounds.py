"""python -m tests.bench.rounds [SEEDS] [trees | operations | heads | loops | busy]: what drawn
calls take from less, and in full.

alltoall from its first rounds, trees from one operation, any call from three operations
instead of 20, NVLSTree with equal heads, loops that do not recur from fewer, or operations from one
that keeps a link busy, if that tells them.
A line a seed: what the run in full takes, by which part the other is off, what it states, and how
many are off by more.
"""

import sys

from netsim.extent.all_rows import WITH_EQUAL_HEADS
from netsim.extent.one_operation import END_TOGETHER, KEEPS_BUSY
from netsim.extent.steady_state import AT_LAST_RATE
from tests.extent.cells import form_at, timed
from tests.extent.test_methods_keep_their_word import (
    BUSY,
    EACH_TIMED,
    EQUAL_HEADS,
    IN_FULL,
    LARGE,
    PACED,
    ROUNDS,
    THREE,
    TWENTY,
    USUAL_BUDGET,
    WRITTEN_OUT,
    any_tree,
    busy_links,
    in_a_row,
    many_loops,
    sent_to_all,
    size_of,
    uneven_heads,
)

# Of calls in a row: fewer are run in full anyway, more take long here.
ROWS = {"operations": (40_000, 300_000), "busy": (10_000, 75_000), "trees": (0, 800_000)}
WAYS = {
    "rounds": (sent_to_all, ROUNDS, USUAL_BUDGET, "rounds of sends"),
    "trees": (any_tree, LARGE, WRITTEN_OUT, END_TOGETHER),
    "operations": (in_a_row, THREE, TWENTY, "3 of 20 operations"),
    "loops": (many_loops, PACED, IN_FULL, AT_LAST_RATE),
    "busy": (busy_links, BUSY, EACH_TIMED, KEEPS_BUSY),
    "heads": (uneven_heads, EQUAL_HEADS, WRITTEN_OUT, WITH_EQUAL_HEADS),
}


def main() -> None:
    """As many seeds as are asked for, beginning with 0."""
    wrong, held, seeds = 0, 0, int(sys.argv[1]) if len(sys.argv) > 1 else 90
    way = next((way for way in WAYS if way in sys.argv), "rounds")
    draw, less, whole, words = WAYS[way]
    for seed in range(seeds):
        one = draw(seed)
        least, most = ROWS.get(way, (0, sys.maxsize))
        if not least < form_at(one, size_of(one)).loop_schedule.rows() < most:
            continue
        told = timed(one, size_of(one), less)
        if words not in told.approximation:
            continue
        full, held = timed(one, size_of(one), whole), held + 1
        off = told.seconds / full.seconds - 1
        wrong += abs(off) > told.uncertainty + full.uncertainty
        cluster = one.cell.scenario.cluster
        print(
            f"{seed:>3}  {cluster.nodes} x {cluster.members[0].loaded.name}, {size_of(one)} B:"
            f" {full.seconds * 1e6:.1f} us, {off:+.1%}, stated {told.uncertainty:.1%}",
            flush=True,
        )
    print(f"{wrong} of {held} are off by more than they state, of {seeds} drawn")


if __name__ == "__main__":
    main()
