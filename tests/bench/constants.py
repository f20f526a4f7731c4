"""Every fitted constant beside what its runs say of it now.

    python -m tests.bench.constants [ID…]

Several constants share their runs and were fitted together, so that one alone may say more or less;
what is far off, or has no points left, is worth a look when constants are fitted again.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from netsim.base.constants import TABLE, Constant
from netsim.base.errors import InputError
from netsim.measured.estimate import FINE, SHOWS, Estimate, estimate_of, shown_by, tried_values
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


def interval(constant: Constant, entries: Sequence[IndexEntry]) -> tuple[float, float]:
    """Between which values 80 % of the single points of its runs see the constant.

    A point sees the value with which its simulated time is the measured one; where none of the
    values that are tried is, the nearest of them. Values that runs show themselves count as they
    are."""
    fitted = constant.fitted
    assert fitted is not None
    shown = [shown_by(constant, entry) for entry in entries if entry.id in fitted.runs]
    every = np.concatenate(shown)
    if every.ndim > 1:
        tried = tried_values(constant)
        values = np.linspace(tried[0], tried[-1], FINE)
        rows = every[np.ptp(every, axis=1) > SHOWS]
        nearest = (np.argmin(np.abs(np.interp(values, tried, row))) for row in rows)
        every = values[list(nearest)]
    return float(np.quantile(every, 0.1)), float(np.quantile(every, 0.9))


def main(ids: list[str]) -> None:
    entries = read_index(Path("scenarios/measured/index.yaml"))
    print(
        f"{'constant':<26}{'table':>12}{'estimate':>12}{'ratio':>8}{'points':>8}{'error':>16}"
        f"{'low':>12}{'high':>12}"
    )
    for one in (TABLE[id] for id in ids or TABLE):
        if one.fitted is None:
            continue
        found = estimated(one, entries)
        left = f"{found.before:7.1%} {found.after:7.1%}" if found.before == found.before else ""
        low, high = interval(one, entries)
        edge = "  at the edge of what was tried" if found.at_edge else ""
        print(
            f"{one.id:<26}{one.value:>12.4g}{found.value:>12.4g}{found.ratio:>8.2f}"
            f"{found.points:>8}{left:>16}{low:>12.4g}{high:>12.4g}{edge}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
