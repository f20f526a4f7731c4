"""Senders that cost a receiver: both engines on random programs, and a run's own account of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netsim.engines import simpy
from netsim.program.program import Program
from tests.engines.agreement import assert_agreement, outcome
from tests.engines.random_programs import programs


def with_senders(program: Program, incast: float) -> Program:
    """Every first link of a path counts as a sender at the last one."""
    paths, links = program.paths, program.links
    known: dict[tuple[int, int], int] = {}
    link, weight, ptr = list[int](), list[float](), [0]
    for first, last in zip(paths.ptr[:-1].tolist(), paths.ptr[1:].tolist(), strict=True):
        mine = paths.link[first:last].tolist()
        if mine:
            new = len(links) + len(known)
            mine.append(known.setdefault((mine[0], mine[-1]), new))
        link += mine
        weight += [*paths.weight[first:last].tolist(), 1.0][: len(mine)]
        ptr.append(len(link))
    more = np.full(len(known), np.inf)
    table = replace(
        links,
        name=lambda number: links.name(number) if number < len(links) else f"sender {number}",
        kind=lambda number: links.kind(number) if number < len(links) else "sender",
        capacity=np.append(links.capacity, more),
        latency=np.append(links.latency, 0 * np.ones(len(known))),
        incast=incast,
        senders={number: last for (_, last), number in known.items()},
    )
    numbers = np.array(link, np.int32)
    active = np.isfinite(table.capacity)[numbers] | (numbers >= len(links))
    for _, where, value in links.changes:
        active |= (numbers == where) & np.isfinite(value)
    new_paths = replace(
        paths, ptr=np.array(ptr), link=numbers, weight=np.array(weight), active=active
    )
    return replace(program, links=table, paths=new_paths)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.sampled_from([0.1, 0.168, 1.0, 1 / 3]))
def test_engines_agree_on_senders(program: Program, incast: float) -> None:
    assert_agreement(with_senders(program, incast))


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.sampled_from([0.168, 1.0]))
def test_what_a_run_says_of_capacities_gives_the_same_run(program: Program, incast: float) -> None:
    crowded = with_senders(program, incast)
    timeline = outcome(simpy, crowded)
    if isinstance(timeline, str):
        return
    met = crowded.as_run(timeline).links.incast_steps
    told = [(t, n, c) for n, (when, have) in met.items() for t, c in zip(when, have, strict=True)]
    others = [change for change in crowded.links.changes if change[1] not in met]
    table = replace(crowded.links, changes=tuple(sorted([*others, *told])), senders={}, incast=0.0)
    again = outcome(simpy, replace(crowded, links=table))
    assert not isinstance(again, str)
    assert again.end == pytest.approx(timeline.end, rel=1e-6)
