"""The constants of NCCL's execution, launches, transports and kernels, with units and origins.

All of them are in one table, `constants.csv`, which all other code reads: the cost of a step of a
thread block, a hop, a message, a launch, a wire or a kind of network, and the fraction of a GPU's
peak that kernels of a model reach. Each value either comes from a `source` (a paper, a data sheet,
an assumption), or it is `fitted` to measured runs by a function that estimates it from them. The
tables by which NCCL itself chooses algorithms are in `netsim.nccl.facts`, the figures of machines
in `topologies/`.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from netsim.base.values import dataclass

MICRO = 1e-6
UNITS = ("s", "bytes/s", "bytes", "1")
# For each unit that the file uses: the factor to SI, and the SI unit.
IN_SI = {
    "us": (MICRO, "s"), "ns": (1e-9, "s"), "GB/s": (1e9, "bytes/s"), "bytes": (1.0, "bytes"),
    "1": (1.0, "1"),
}  # fmt: skip
ESTIMATORS = "netsim.measured.estimate:"
SIMULATED = ESTIMATORS + "by_simulation"
ANY_SIZE = (0, 1 << 62)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The measured runs to which a constant was fitted.

    - `runs`: their ids in scenarios/measured/index.yaml.
    - `evidence`: a sentence that says what the runs show.
    - `estimator`: the function (module:name) that estimates the constant from the runs.
    - `sizes`: the smallest and the largest call, in bytes, whose times depend on the constant.
    """

    runs: tuple[str, ...]
    evidence: str
    estimator: str = SIMULATED
    sizes: tuple[int, int] = ANY_SIZE


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant in SI units, with its origin.

    - `belongs`: the part of the model that it belongs to.
    - `source`: where the value comes from; empty if it is `fitted` to runs.
    - `enters`: the figures of a `calibration` that contain it, if that is not the figure of the
      same name.
    - `interval`: the least and greatest value that its runs show, if they are of one system alone.
    """

    id: str
    value: float
    unit: str
    belongs: str
    source: str = ""
    fitted: Fitted | None = None
    enters: tuple[str, ...] = ()
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if bool(self.source) == (self.fitted is not None):
            raise ValueError(f"{self.id}: expected either a source or the runs of a fit")
        if self.unit not in UNITS:
            raise ValueError(f"{self.id}: expected a unit of {', '.join(UNITS)}, got {self.unit!r}")
        if self.fitted is not None and not self.fitted.runs:
            raise ValueError(f"{self.id}: expected at least one run that it is fitted to")
        if self.interval is not None and not self.interval[0] <= self.value <= self.interval[1]:
            low, high = self.interval
            raise ValueError(f"{self.id}: {self.value} is not between {low} and {high}")

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the figures in a machine's `calibration` that replace this constant.

        They are the same for all GPU generations: the figure `rate` replaces `sm_90.rate`.
        """
        name = self.id.partition(".")[2] if self.id.startswith("sm_") else self.id
        return self.enters or (name,)

    @property
    def assumed(self) -> bool:
        """Whether the value is assumed or taken over from something similar, rather
        than measured.
        """
        return self.source.startswith(("assumed", "taken over"))


def _constant(row: Mapping[str, str]) -> Constant:
    """Return the constant of one row of the CSV file."""
    factor, unit = IN_SI[row["unit"]]
    fitted = None
    if row["runs"]:
        estimator = ESTIMATORS + row["estimator"] if row["estimator"] else SIMULATED
        sizes = (int(row["from_bytes"] or 0), int(row["to_bytes"] or ANY_SIZE[1]))
        fitted = Fitted(tuple(row["runs"].split()), row["evidence"], estimator, sizes)
    interval = None
    if row.get("low"):
        interval = float(row["low"]) * factor, float(row["high"]) * factor
    return Constant(
        row["id"],
        float(row["value"]) * factor,
        unit,
        row["belongs_to"],
        row["given_by"],
        fitted,
        tuple(row["enters"].split()),
        interval,
    )


def read_constants(lines: Iterable[str]) -> Mapping[str, Constant]:
    """Return the constants of the lines of a CSV file, by id.

    Raises a ValueError if two constants have the same id.
    """
    constants: dict[str, Constant] = {}
    for constant in map(_constant, csv.DictReader(lines)):
        if constant.id in constants:
            raise ValueError(f"two constants are called {constant.id}")
        constants[constant.id] = constant
    return constants


FILE = Path(__file__).with_suffix(".csv")
TABLE = dict(read_constants(FILE.read_text(encoding="utf-8").splitlines(keepends=True)))


def value(id: str) -> float:
    """Return the value of a constant, in SI units."""
    return TABLE[id].value


@contextmanager
def replaced(values: Mapping[str, float]) -> Iterator[None]:
    """Replace the values (SI units, by id) of some constants in the table inside a `with` block."""
    originals = {id: TABLE[id] for id in values}
    for id, original in originals.items():
        TABLE[id] = replace(original, value=values[id])
    try:
        yield
    finally:
        TABLE.update(originals)
