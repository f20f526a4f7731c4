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

    - `draws`: by kind, (function that draws values, whether all parts of a host share one value).
      Values are seconds for launches, and fractions by which capacities are divided otherwise.
    - `samples`: number of samples.
    - `seed`: seed of the random numbers.
    """

    draws: Mapping[str, tuple[DrawValues, bool]]
    samples: int
    seed: int = 0

    def of(self, kind: str, sample: int, names: Sequence[str]) -> Floats:
        """The values of a kind in a sample for parts with these names; names begin with that of the
        host.
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
    paths = program.paths
    links = program.links
    # Without noise, links of equal capacity behind each other never limit all at once; with noise,
    # any link of finite capacity may limit.
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
    """The part that a link or resource belongs to: for `sms(node0.gpu3)` the GPU, for a cable its
    end in a host.
    """
    inside = name.partition("(")[2].removesuffix(")") or name
    tail, _, head = inside.partition("->")
    return inside if "." in tail or "." not in head else f"{head.partition('.')[0]}.{inside}"
