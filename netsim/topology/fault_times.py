"""Faults in time: how the capacity of links and GPUs changes while an operation runs.

A fault with `at` is active in *spans* of time. Between two instants at which a span begins or ends,
the capacity is the healthy one times the fractions of all faults that are active
(`faults.remaining_fraction`).

Data that a dead link loses is sent again when the retry timer of its connection expires, and again
each time that it expires, until the link works or the number of tries is exhausted. So an outage
that loses data lasts until the first try that succeeds.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from netsim.base.values import dataclass, grouped
from netsim.topology.faults import Effect, Fault, remaining_fraction, scaled_capacity
from netsim.topology.graph import Topology

MOST_REPEATS = 10_000  # of a fault with `every`, after which it stops

Span = tuple[float, float]  # begin and end, seconds


@dataclass(frozen=True, slots=True)
class Retries:
    """The retry timer of a connection: lost data is sent again every `seconds`, at most `tries`
    times.
    """

    seconds: float
    tries: int

    def answer_time(self, begin: float, outages: Sequence[Span]) -> float:
        """Return the time of the first retry after a loss at `begin` that finds the link up;
        infinite if none does.

        `outages` are sorted and do not overlap. If a link is down from 1 s to 3.5 s, the third try,
        3 s after the loss, succeeds:

        >>> Retries(1.0, 7).answer_time(1.0, [(1.0, 3.5)])
        4.0
        """
        begins = [outage_begin for outage_begin, _ in outages]
        for number in range(1, self.tries + 1):
            instant = begin + number * self.seconds
            place = bisect_right(begins, instant) - 1
            if place < 0 or instant >= outages[place][1]:
                return instant
        return inf

    def give_up_time(self, begin: float) -> float:
        """Return when the connection gives up after a loss at `begin`: one timer period after the
        last retry.
        """
        return begin + (self.tries + 1) * self.seconds


def in_time(topology: Topology, retries: Retries | None) -> Topology:
    """Return the topology with the capacity changes of all timed faults.

    Without `retries`, a link that is down only pauses: transfers continue as soon as it is up."""
    effects = [effect for effect in topology.effects if not effect.fault.permanent]
    bandwidth = topology.links.bandwidth
    changes: list[tuple[float, int, float]] = []
    for links, active in _links_by_effects(topology, effects):
        for time, fraction in fraction_steps(active, retries):
            changes += [
                (time, link, scaled_capacity(float(bandwidth[link]), fraction)) for link in links
            ]
    slower: list[tuple[float, int, float]] = []
    for gpu, active in _effects_by_gpu(effects).items():
        slower += [(time, gpu, fraction) for time, fraction in fraction_steps(active, retries)]
    return replace(topology, changes=tuple(sorted(changes)), slower=tuple(sorted(slower)))


@dataclass(frozen=True, slots=True)
class ActiveEffect:
    """An effect on one resource (a link or a GPU), and the fraction of its capacity that the effect
    leaves.
    """

    effect: Effect
    fraction: float


def _links_by_effects(
    topology: Topology, effects: Sequence[Effect]
) -> Iterator[tuple[list[int], list[ActiveEffect]]]:
    """Yield groups of links on which the same effects act, with these effects.

    A half-duplex pair appears once, as the link whose capacity counts for both directions.
    """
    by_link: dict[int, dict[int, float]] = {}
    resource = topology.links.resource.tolist()
    for number, effect in enumerate(effects):
        for link, fraction in zip(effect.links.tolist(), effect.fractions.tolist(), strict=True):
            by_link.setdefault(resource[link], {})[number] = fraction
    together = grouped(by_link, lambda link: tuple(by_link[link].items()))
    for struck, links in together.items():
        yield links, [ActiveEffect(effects[number], fraction) for number, fraction in struck]


def _effects_by_gpu(effects: Sequence[Effect]) -> Mapping[int, list[ActiveEffect]]:
    by_gpu: dict[int, list[ActiveEffect]] = {}
    for effect in effects:
        fraction = 1 / (effect.fault.slowdown or 1.0)
        for gpu in effect.gpus.tolist():
            by_gpu.setdefault(gpu, []).append(ActiveEffect(effect, fraction))
    return by_gpu


def fraction_steps(
    active: Sequence[ActiveEffect], retries: Retries | None
) -> list[tuple[float, float]]:
    """Return how the fraction that is left of a capacity changes, as (time in seconds, fraction
    from then on); before the first entry it is 1.

    `active` are the effects of faults on one resource. `retries` is the timer after which lost data
    is sent again; with None, transfers continue as soon as a link is up.

    Half from 0 s on, and nothing from 1 s to 2 s:

    >>> from netsim.topology.faults import Fault
    >>> half = ActiveEffect(Effect(Fault(link="a-b", bandwidth="50%", at="0s")), 0.5)
    >>> down = Fault(link="a-b", bandwidth="0%", at="1s", loss=False, **{"for": "1s"})
    >>> fraction_steps([half, ActiveEffect(Effect(down), 0.0)], None)
    [(0.0, 0.5), (1.0, 0.0), (2.0, 0.5)]
    """
    events: list[tuple[float, int, int]] = []  # time, 1 begins or -1 ends, number of the effect
    for number, (begin, end) in _all_spans(active, retries):
        events.append((begin, 1, number))
        if end < inf:
            events.append((end, -1, number))
    events.sort()
    running = [0] * len(active)
    steps: list[tuple[float, float]] = []
    before = 1.0
    for place, (time, change, number) in enumerate(events):
        running[number] += change
        if place + 1 < len(events) and events[place + 1][0] == time:
            continue  # all that happens at one instant counts together
        now = _fraction_left([one for one, count in zip(active, running, strict=True) if count])
        if now != before:
            steps.append((time, now))
        before = now
    return steps


def _fraction_left(active: Sequence[ActiveEffect]) -> float:
    """Return the fraction of a capacity that is left while all these effects are active.

    Ports of one NIC that fall back on each other share what the ports that are up carry. The
    fractions of all other effects multiply.
    """
    fallback = [one.effect for one in active if one.effect.fault.fallback]
    fractions = [one.fraction for one in active if not one.effect.fault.fallback]
    if fallback:
        down = frozenset[int]().union(*(effect.down_ports for effect in fallback))
        fractions.append(1 - len(down) / fallback[0].ports)
    return remaining_fraction(fractions)


def _all_spans(
    active: Sequence[ActiveEffect], retries: Retries | None
) -> Iterator[tuple[int, Span]]:
    """Yield (index in `active`, span) for every span of time in which one of the effects `active`
    holds.

    With `retries`, the spans of all faults that lose data are joined: each lasts from a loss to the
    retry that succeeds.
    """
    losing = [entry.effect.fault for entry in active if entry.effect.fault.loses]
    for number, entry in enumerate(active):
        if retries is None or not entry.effect.fault.loses:
            yield from ((number, span) for span in spans_of(entry.effect.fault))
    if retries is not None and losing:
        # Outages that lose data on one resource share one retry timer: their spans count as one
        # effect.
        first = next(n for n, entry in enumerate(active) if entry.effect.fault.loses)
        yield from ((first, span) for span in _silent_spans(losing, retries))


def _silent_spans(faults: Sequence[Fault], retries: Retries) -> Iterator[Span]:
    """Yield the spans in which a link carries nothing because of `faults` that lose data: from each
    loss to the retry that succeeds.

    An outage that begins within such a span loses nothing, because nothing is sent meanwhile.
    """
    outages = _joined([span for fault in faults for span in spans_of(fault)])
    silent_until = -inf
    for begin, _ in outages:
        if begin >= silent_until:
            silent_until = retries.answer_time(begin, outages)
            yield begin, silent_until


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Return spans sorted by time, with spans that overlap or touch merged into one.

    >>> _joined([(3.0, 5.0), (1.0, 3.0), (7.0, 8.0)])
    [(1.0, 5.0), (7.0, 8.0)]
    """
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def spans_of(fault: Fault) -> Iterator[Span]:
    """Yield the spans in which a fault is active; none if it is permanent."""
    if fault.at is None:
        return
    lasts = inf if fault.lasts is None else fault.lasts
    for number in range(MOST_REPEATS if fault.every else 1):
        begin = fault.at + number * (fault.every or 0.0)
        yield begin, begin + lasts


def first_fatal_loss(
    topology: Topology, retries: Retries | None, dead_links: Collection[str]
) -> float | None:
    """Return when the job ends (seconds) because all retries over one of the links `dead_links`
    (names) fail; None if a retry succeeds after each loss.
    """
    if retries is None:
        return None
    effects = [effect for effect in topology.effects if not effect.fault.permanent]
    ends = []
    for links, active in _links_by_effects(topology, effects):
        losing = [one.effect.fault for one in active if one.effect.fault.loses]
        if not losing or not any(topology.link_name(link) in dead_links for link in links):
            continue
        silent_spans = _silent_spans(losing, retries)
        ends += [retries.give_up_time(begin) for begin, end in silent_spans if end == inf]
    return min(ends, default=None)
