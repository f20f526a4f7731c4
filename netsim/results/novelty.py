"""How new a question is to the corpus of measured runs, and how far such questions are off.

A question has a sibling if another system of the same machine, transport and generation of NCCL was
measured. Else its kind may have been measured: the same machine with another transport or
generation. The errors of each class are of runs that were simulated without whatever would put them
into a nearer class: without their own system, without all systems of their machine and transport,
without all systems of their machine. `netsim accuracy --leave-out --novelty --page FILE` writes
them beside the index, with the traits of what was measured."""

import csv
from collections.abc import Iterable, Mapping
from functools import lru_cache

from netsim.base.files import preset_folder
from netsim.base.values import dataclass
from netsim.results.row import TimeInterval

SIBLING = "sibling"
KIND = "kind"
NEITHER = "neither"
NOVELTIES = (SIBLING, KIND, NEITHER)
# As the page and the column `validated` say it.
WORDS = {
    SIBLING: "a sibling was measured",
    KIND: "the kind was measured",
    NEITHER: "neither was measured",
}
# The versions of NCCL from which calls are executed in another way (src/enqueue.cc, src/device):
# launches by plans since 2.13, other rounds of sends and peer access since 2.23, alltoall as a call
# of its own since 2.28.
GENERATIONS = ((2, 0), (2, 13), (2, 23), (2, 28))
MEASURED = "traits.csv"
ERRORS = "novelty.csv"


@dataclass(frozen=True, order=True)
class Trait:
    """What of a run or a question decides how near it is to others: the machine, what joins its
    hosts (`intra` on one host), and the oldest NCCL that executes calls as its own does."""

    machine: str
    transport: str
    generation: str


@dataclass(frozen=True)
class LeftOutError:
    """The error of the questions of one class and size band: the median of the factor by which
    simulated and measured times differ, less 1, from how many systems, and the interval."""

    median: float
    systems: int
    interval: TimeInterval | None


def nccl_generation(major: int, minor: int) -> str:
    """The oldest version that executes calls as NCCL `major`.`minor` does.

    >>> nccl_generation(2, 27)
    '2.23'
    """
    oldest = max(one for one in GENERATIONS if one <= max((major, minor), GENERATIONS[0]))
    return f"{oldest[0]}.{oldest[1]}"


def novelty_of(trait: Trait, measured: Iterable[Trait]) -> str:
    """The class of a question by the traits of what was measured.

    >>> h100 = Trait("dgx-h100", "intra", "2.23")
    >>> novelty_of(h100, [Trait("dgx-h100", "efa", "2.23")])
    'kind'
    """
    traits = set(measured)
    if trait in traits:
        return SIBLING
    return KIND if any(it.machine == trait.machine for it in traits) else NEITHER


@lru_cache(maxsize=1)
def measured_traits() -> frozenset[Trait]:
    """The traits of the corpus that comes with netsim; none where no result is stored."""
    path = preset_folder("scenarios") / "measured" / MEASURED
    if not path.is_file():
        return frozenset()
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        return frozenset(Trait(one["machine"], one["transport"], one["nccl"]) for one in lines)


@lru_cache(maxsize=1)
def class_errors() -> Mapping[tuple[str, str], LeftOutError]:
    """The error by class of novelty and size band; none where no result is stored."""
    path = preset_folder("scenarios") / "measured" / ERRORS
    if not path.is_file():
        return {}
    errors = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            systems = int(line["systems"])
            interval = None
            if line["low"]:
                interval = TimeInterval(float(line["low"]), float(line["high"]), systems)
            error = LeftOutError(float(line["median"]), systems, interval)
            errors[line["novelty"], line["band"]] = error
    return errors


def novelty_text(trait: Trait, band: str) -> str:
    """What the column `validated` adds for a question without a sibling; empty with one, and where
    no result is stored."""
    novelty = novelty_of(trait, measured_traits())
    error = class_errors().get((novelty, band))
    if novelty == SIBLING or error is None:
        return ""
    return f"; {WORDS[novelty]}: {error.median:.0%} left out"


def interval_of_novelty(trait: Trait, band: str) -> TimeInterval | None:
    """The interval of a question without a sibling; None with one, and where none is stored."""
    novelty = novelty_of(trait, measured_traits())
    error = class_errors().get((novelty, band))
    if novelty == SIBLING or error is None:
        return None
    return error.interval
