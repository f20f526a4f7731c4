"""Noise: why operations differ in their time, as random samples of one program.

All samples share the structure of the program. They differ in the times at which ranks begin and in
the capacities of links and kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.engines.engine import choose, simulator
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import COMPUTING

Floats = NDArray[np.float64]

DISTURBED = ("compute", "launch", "link")
NETWORK = ("nic", "fabric")
DrawValues = Callable[["np.random.Generator", int], Floats]


@dataclass(frozen=True)
class NoiseDraws:
    """Random disturbances, by kind: "launch", "compute" or "link".

    - `draws`: by kind, (function that draws values, whether all parts of a host share one value). A
      value is a delay in seconds for launches. Otherwise it is a fraction f, and the capacity of
      the link is divided by 1 + f.
    - `samples`: number of samples.
    - `seed`: seed of the random numbers.
    """

    draws: Mapping[str, tuple[DrawValues, bool]]
    samples: int
    seed: int = 0

    def of(self, kind: str, sample: int, names: Sequence[str]) -> Floats:
        """The random values of the parts `names` in sample number `sample`, in the order of
        `names`.

        Values are those of `draws`: seconds if `kind` is "launch", otherwise fractions. The host of
        a part is its name up to the first dot.
        """
        draw, is_shared = self.draws[kind]
        owners = [name.partition(".")[0] for name in names] if is_shared else list(names)
        places = {name: place for place, name in enumerate(dict.fromkeys(owners))}
        random = np.random.default_rng([self.seed, DISTURBED.index(kind), sample])
        values: Floats = draw(random, len(places))[[places[name] for name in owners]]
        return values


def disturbed(program: Program, noise: NoiseDraws, engine: str) -> Floats:
    """The time in seconds of a program in each of the samples."""
    return np.array([timeline.makespan for timeline in sampled(program, noise, engine)])


def sampled(program: Program, noise: NoiseDraws, engine: str) -> Iterator[Timeline]:
    """Yield the timeline of a program in each of the samples."""
    program = _with_all_limits(program)
    links_of_kind = _disturbed_links(program, noise)
    unchanged_runs = simulator(program, engine)
    engine = choose(program, engine)
    for sample in range(noise.samples):
        changed = program
        delays = None
        if links_of_kind:
            changed = _with_capacities(changed, noise, sample, links_of_kind)
        if "launch" in noise.draws:
            delays = noise.of("launch", sample, program.gpus)
        if delays is not None and len(program.schedule.release_row):
            changed = _released_later(changed, delays)
            delays = None
        runs = unchanged_runs if changed is program else simulator(changed, engine)
        yield runs.timeline(delays)


def _with_all_limits(program: Program) -> Program:
    """The program, in which every link of finite capacity may limit the rows that cross it.

    Without noise, of two links with equal capacity behind each other one never limits, so that it
    need not be looked at. With noise their capacities differ.
    """
    paths = program.paths
    active = paths.active | np.isfinite(program.links.capacity)[paths.link]
    return replace(program, paths=replace(paths, active=active))


@dataclass(frozen=True, slots=True)
class _DisturbedLinks:
    """Links whose capacities noise changes.

    - `numbers`: the number of each link in the program's table.
    - `owners`: the name of the part that each link belongs to.
    """

    numbers: Sequence[int]
    owners: Sequence[str]


def _disturbed_links(program: Program, noise: NoiseDraws) -> dict[str, _DisturbedLinks]:
    """The links that noise changes, by the kind of disturbance: "compute" or "link".

    Kinds without such links are left out.
    """
    used_links = np.unique(program.paths.link[program.paths.active]).tolist()
    kind_of_link = {number: program.links.kind(number) for number in used_links}
    links_of_kind = {
        "compute": [number for number, kind in kind_of_link.items() if kind in COMPUTING],
        "link": [number for number, kind in kind_of_link.items() if kind in NETWORK],
    }
    disturbed_links = {}
    for kind, numbers in links_of_kind.items():
        if numbers and kind in noise.draws:
            owners = [_owner(program.links.name(number)) for number in numbers]
            disturbed_links[kind] = _DisturbedLinks(numbers, owners)
    return disturbed_links


def _with_capacities(
    program: Program, noise: NoiseDraws, sample: int, links_of_kind: Mapping[str, _DisturbedLinks]
) -> Program:
    """The program with the capacities that links have in sample number `sample`.

    `links_of_kind` has the links that change, as `_disturbed_links` returns them.
    """
    links = program.links
    capacity = links.capacity.copy()
    for kind, disturbed_links in links_of_kind.items():
        capacity[disturbed_links.numbers] /= 1 + noise.of(kind, sample, disturbed_links.owners)
    return replace(program, links=replace(links, capacity=capacity))


def _released_later(program: Program, delays: Floats) -> Program:
    """The program whose rows with a release time are released later, by the delay of their rank.

    `delays` are in seconds, by rank.
    """
    schedule = program.schedule
    times = schedule.release_time + delays[schedule.src[schedule.release_row]]
    return replace(program, schedule=replace(schedule, release_time=times))


def _owner(name: str) -> str:
    """The name of the part that a link or resource belongs to: for `sms(node0.gpu3)` the GPU, for a
    cable its end in a host.

    If only the head of a link `tail->head` is in a host, the name of this host is put before the
    name of the link.
    """
    inside = name.partition("(")[2].removesuffix(")") or name
    tail, _, head = inside.partition("->")
    return inside if "." in tail or "." not in head else f"{head.partition('.')[0]}.{inside}"
