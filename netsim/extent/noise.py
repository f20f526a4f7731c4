"""Noise: what makes one operation take longer than another, as draws of a seed.

All samples share the structure of a program: of a sample only the times at which ranks begin and
the capacities of links and kernels differ.
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
    """Draws of what is added, by kind of disturbance: seconds to launches, a fraction to others.

    `draws` has by kind how values are drawn, and whether all parts of a host share one value.
    """

    draws: Mapping[str, tuple[DrawValues, bool]]
    samples: int
    seed: int = 0

    def of(self, kind: str, sample: int, names: Sequence[str]) -> Floats:
        """What is added to parts with these names, which begin with the name of their host."""
        draw, is_shared = self.draws[kind]
        owners = [name.partition(".")[0] for name in names] if is_shared else list(names)
        places = {name: place for place, name in enumerate(dict.fromkeys(owners))}
        random = np.random.default_rng([self.seed, DISTURBED.index(kind), sample])
        values: Floats = draw(random, len(places))[[places[name] for name in owners]]
        return values


def disturbed(program: Program, noise: NoiseDraws, engine: str) -> Floats:
    """When a program is over in each of the samples."""
    return np.array([timeline.makespan for timeline in sampled(program, noise, engine)])


def sampled(program: Program, noise: NoiseDraws, engine: str) -> Iterator[Timeline]:
    """A program as each of the samples runs it."""
    paths = program.paths
    links = program.links
    # With noise, capacities that were all the same differ, so that any finite one may limit.
    active = paths.active | np.isfinite(links.capacity)[paths.link]
    program = replace(program, paths=replace(paths, active=active))
    kinds = {number: links.kind(number) for number in np.unique(paths.link[active]).tolist()}
    links_of_kind = {
        "compute": [number for number, kind in kinds.items() if kind in COMPUTING],
        "link": [number for number, kind in kinds.items() if kind in NETWORK],
    }
    names = {
        kind: [_owner(links.name(number)) for number in numbers]
        for kind, numbers in links_of_kind.items()
    }
    usual_runs = simulator(program, engine)
    engine = choose(program, engine)
    for sample in range(noise.samples):
        capacity = links.capacity.copy()
        for kind, numbers in links_of_kind.items():
            if kind in noise.draws and numbers:
                capacity[numbers] /= 1 + noise.of(kind, sample, names[kind])
        begins = None
        if "launch" in noise.draws:
            begins = noise.of("launch", sample, program.gpus)
        schedule, released_rows = program.schedule, program.schedule.release_row
        if begins is not None and len(released_rows):
            # Rows with a release time are released later by the delay of their rank.
            times = schedule.release_time + begins[schedule.src[released_rows]]
            schedule = replace(schedule, release_time=times)
            begins = None
        runs = usual_runs
        if links_of_kind.keys() & noise.draws.keys() or schedule is not program.schedule:
            changed = replace(program, schedule=schedule, links=replace(links, capacity=capacity))
            runs = simulator(changed, engine)
        yield runs.timeline(begins)


def _owner(name: str) -> str:
    """Whose a link or resource is: of `sms(node0.gpu3)` that GPU, of a cable the end in a host."""
    inside = name.partition("(")[2].removesuffix(")") or name
    tail, _, head = inside.partition("->")
    return inside if "." in tail or "." not in head else f"{head.partition('.')[0]}.{inside}"
