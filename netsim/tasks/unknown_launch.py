"""Rows of cells whose launch style is not known (`launch: unknown`).

Published results often do not say whether nccl-tests ran a process for each GPU or one process for
all GPUs of a node (`-g 8`). Below about 256 KiB that decides the time: 8 launches one after the
other take 35 us, while one process for each GPU takes 10 to 20 us. So both styles are simulated.
The time of the row is their geometric mean, which differs from both by the same factor; its
interval reaches from the lower end of the faster style's to the upper end of the slower style's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt

from netsim.results.row import Row, not_validated
from netsim.tasks.resolve import ResolvedCell

UNKNOWN = "unknown"
POSSIBLE_STYLES = ("process_per_gpu", "single_process")
MAX_EQUAL_FACTOR = 1.05
"""Factor between the times of both styles up to which the style does not matter."""


def is_launch_unknown(resolved: ResolvedCell) -> bool:
    """Whether the launch style of a cell is unknown and matters: NCCL runs on several GPUs of a
    node.
    """
    is_unknown = resolved.cell.scenario.launch_costs().style == UNKNOWN
    return is_unknown and resolved.is_nccl and resolved.gpus_per_node > 1


def with_style(resolved: ResolvedCell, style: str) -> ResolvedCell:
    """The same cell with the launch style `style`."""
    scenario = resolved.cell.scenario
    costs = scenario.launch_costs().model_copy(update={"style": style})
    cell = replace(resolved.cell, scenario=scenario.model_copy(update={"launch": costs}))
    return replace(resolved, cell=cell)


def seconds_of_both(resolved: ResolvedCell, seconds_of: Callable[[ResolvedCell], float]) -> float:
    """The seconds of a cell with an unknown launch style: the geometric mean over both styles.

    `seconds_of` returns the seconds of a cell whose launch style is known.
    """
    first, second = (seconds_of(with_style(resolved, style)) for style in POSSIBLE_STYLES)
    return sqrt(first * second)


def row_of_both(resolved: ResolvedCell, row_of: Callable[[ResolvedCell], Row]) -> Row:
    """The row of a cell with an unknown launch style, from the rows with both styles.

    `row_of` returns the row of a cell whose launch style is known.
    """
    quick, slow = sorted(
        (row_of(with_style(resolved, style)) for style in POSSIBLE_STYLES),
        key=lambda row: row.time_us or 0.0,
    )
    time_us = _geometric_mean(quick.time_us, slow.time_us)
    if time_us is None or not quick.time_us:
        return replace(quick, launch=UNKNOWN)
    factor = quick.time_us / time_us
    is_style_irrelevant = time_us <= MAX_EQUAL_FACTOR * quick.time_us
    return replace(
        slow,
        launch=UNKNOWN,
        validated=slow.validated if is_style_irrelevant else not_validated("launch"),
        time_us=time_us,
        inplace_time_us=_geometric_mean(quick.inplace_time_us, slow.inplace_time_us),
        algbw_GBps=None if quick.algbw_GBps is None else quick.algbw_GBps * factor,
        busbw_GBps=None if quick.busbw_GBps is None else quick.busbw_GBps * factor,
        time_low_us=quick.time_low_us,
        time_high_us=slow.time_high_us,
        of_limit_pct=None if quick.of_limit_pct is None else quick.of_limit_pct * factor,
        approximation_pct=max(
            (row.approximation_pct for row in (quick, slow) if row.approximation_pct is not None),
            default=None,
        ),
    )


def _geometric_mean(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else sqrt(first * second)
