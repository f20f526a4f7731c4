"""How new a question is to the corpus of measured runs, and how large errors are for such
questions.

A question has a sibling if another system with the same machine, transport and generation of NCCL
was measured. Otherwise its kind may have been measured: the same machine with another transport or
generation. The error of each class is measured on runs that are simulated without every measurement
that would put them into a nearer class: without their own system, without all systems of their
machine and transport, or without all systems of their machine. `netsim accuracy --leave-out
--novelty --page FILE` writes these errors beside the index, with the traits of what was measured.
"""

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
# The words for each class on the accuracy page and in the column `validated`.
WORDS = {
    SIBLING: "a sibling was measured",
    KIND: "the kind was measured",
    NEITHER: "neither was measured",
}
# The versions of NCCL with which the execution of calls changed (src/enqueue.cc, src/device):
# launches by plans since 2.13, other rounds of sends and peer access since 2.23, alltoall as a call
# of its own since 2.28.
GENERATIONS = ((2, 0), (2, 13), (2, 23), (2, 28))
MEASURED = "traits.csv"
ERRORS = "novelty.csv"


@dataclass(frozen=True, order=True)
class Trait:
    """The properties of a run or a question that decide how near it is to others.

    They are the machine, the transport between hosts (`intra` for one host), and the generation of
    NCCL: the oldest version that executes calls in the same way (`nccl_generation`).
    """

    machine: str
    transport: str
    generation: str


@dataclass(frozen=True)
class LeftOutError:
    """The error for questions of one class and size band.

    `median` is the median factor between simulated and measured times, minus 1; `systems` the
    number of systems it is from; `interval` the factors between which 80 % of measured times lie.
    """

    median: float
    systems: int
    interval: TimeInterval | None


def nccl_generation(major: int, minor: int) -> str:
    """The oldest version of NCCL that executes calls in the same way as NCCL `major`.`minor`.

    >>> nccl_generation(2, 27)
    '2.23'
    """
    oldest = max(one for one in GENERATIONS if one <= max((major, minor), GENERATIONS[0]))
    return f"{oldest[0]}.{oldest[1]}"


def novelty_of(trait: Trait, measured: Iterable[Trait]) -> str:
    """The class of a question: whether `measured` has a sibling, only its kind, or neither.

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
    """The traits of the corpus that comes with netsim; empty if no result is stored."""
    path = preset_folder("scenarios") / "measured" / MEASURED
    if not path.is_file():
        return frozenset()
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        return frozenset(Trait(one["machine"], one["transport"], one["nccl"]) for one in lines)


@lru_cache(maxsize=1)
def class_errors() -> Mapping[tuple[str, str], LeftOutError]:
    """The errors by (class of novelty, size band); empty if no result is stored."""
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
    """The text that the column `validated` adds for a question without a sibling.

    Empty for a question with a sibling, or if no result is stored.
    """
    novelty = novelty_of(trait, measured_traits())
    error = class_errors().get((novelty, band))
    if novelty == SIBLING or error is None:
        return ""
    return f"; {WORDS[novelty]}: {error.median:.0%} left out"


def interval_of_novelty(trait: Trait, band: str) -> TimeInterval | None:
    """The interval of measured times for a question without a sibling.

    None for a question with a sibling, or if no interval is stored.
    """
    novelty = novelty_of(trait, measured_traits())
    error = class_errors().get((novelty, band))
    if novelty == SIBLING or error is None:
        return None
    return error.interval
