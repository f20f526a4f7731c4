"""Every fitted constant beside what its runs say of it now.

    python -m tests.bench.constants [ID…]

Several constants share their runs and were fitted together, so that one alone may say more or less;
what is far off, or has no points left, is worth a look when constants are fitted again.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from netsim.base.constants import TABLE, Constant
from netsim.base.errors import InputError
from netsim.measured.estimate import Estimate, estimate_of, shown_by
from netsim.measured.index import IndexEntry, read_index


def estimated(constant: Constant, entries: Sequence[IndexEntry]) -> Estimate:
    """The estimate of a constant by its own estimator, from those of its runs that are given."""
    fitted = constant.fitted
    if fitted is None:
        raise InputError(f"{constant.id} is given by a source and not fitted")
    found = [entry for entry in entries if entry.id in fitted.runs]
    if not found:
        raise InputError(f"{constant.id}: none of its runs is given: {', '.join(fitted.runs)}")
    return estimate_of(constant, [shown_by(constant, entry) for entry in found])


def main(ids: list[str]) -> None:
    entries = read_index(Path("scenarios/measured/index.yaml"))
    print(f"{'constant':<26}{'table':>12}{'estimate':>12}{'ratio':>8}{'points':>8}{'error':>16}")
    for one in (TABLE[id] for id in ids or TABLE):
        if one.fitted is None:
            continue
        found = estimated(one, entries)
        left = f"{found.before:7.1%} {found.after:7.1%}" if found.before == found.before else ""
        print(
            f"{one.id:<26}{one.value:>12.4g}{found.value:>12.4g}{found.ratio:>8.2f}"
            f"{found.points:>8}{left:>16}{'  at the edge of what was tried' * found.at_edge}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
