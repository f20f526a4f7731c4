"""The constants of NCCL's execution, launches, transports and kernels, with units and origins.

One table, `constants.csv`, which everything else reads: what a step of a block, a hop, a message, a
launch, a wire or a kind of network costs, and what kernels of a model reach of a GPU's peaks. A
constant is `given` by a source or `fitted` to runs, which are named, by a function that estimates
it from them. It does not hold the tables by which NCCL itself chooses (`netsim.nccl.facts`), or
figures of machines (`topologies/`)."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from netsim.base.values import dataclass

MICRO = 1e-6
UNITS = ("s", "bytes/s", "bytes", "1")
# The units of the file, in those.
IN_SI = {
    "us": (MICRO, "s"), "ns": (1e-9, "s"), "GB/s": (1e9, "bytes/s"), "bytes": (1.0, "bytes"),
    "1": (1.0, "1"),
}  # fmt: skip
ESTIMATORS = "netsim.measured.estimate:"
SIMULATED = ESTIMATORS + "by_simulation"
ANY_SIZE = (0, 1 << 62)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The runs that a constant was fitted to, by their ids in scenarios/measured/index.yaml, and
    `estimator`, the function (module:name) that estimates it from them. `sizes` are the bytes of
    calls between which the runs show it, `evidence` is what they show."""

    runs: tuple[str, ...]
    evidence: str
    estimator: str = SIMULATED
    sizes: tuple[int, int] = ANY_SIZE


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant in SI units, what it belongs to, and either the source that gave it or the runs
    that it was fitted to. `enters` are the figures of a `calibration` in which it is contained,
    where that is not the one of its own name. `interval` is given where runs of one system alone
    show it: between which values they do."""

    id: str
    value: float
    unit: str
    belongs: str
    given: str = ""
    fitted: Fitted | None = None
    enters: tuple[str, ...] = ()
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if bool(self.given) == (self.fitted is not None):
            raise ValueError(f"{self.id}: expected either what it is given by, or fitted to")
        if self.unit not in UNITS:
            raise ValueError(f"{self.id}: expected a unit of {', '.join(UNITS)}, got {self.unit!r}")
        if self.fitted is not None and not self.fitted.runs:
            raise ValueError(f"{self.id}: fitted to no run")
        if self.interval is not None and not self.interval[0] <= self.value <= self.interval[1]:
            low, high = self.interval
            raise ValueError(f"{self.id}: {self.value} is not between {low} and {high}")

    @property
    def figures(self) -> tuple[str, ...]:
        """The names by which a `calibration` replaces it, the same for all GPU generations."""
        name = self.id.partition(".")[2] if self.id.startswith("sm_") else self.id
        return self.enters or (name,)

    @property
    def assumed(self) -> bool:
        """Whether the value is assumed or taken over from something similar, not measured."""
        return self.given.startswith(("assumed", "taken over"))


def _constant(row: Mapping[str, str]) -> Constant:
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
    """The constants by id; one that is there twice is refused."""
    constants: dict[str, Constant] = {}
    for constant in map(_constant, csv.DictReader(lines)):
        if constant.id in constants:
            raise ValueError(f"two constants are called {constant.id}")
        constants[constant.id] = constant
    return constants


FILE = Path(__file__).with_suffix(".csv")
TABLE = dict(read_constants(FILE.read_text(encoding="utf-8").splitlines(keepends=True)))


def value(id: str) -> float:
    """The value of a constant, in SI units."""
    return TABLE[id].value


@contextmanager
def replaced(values: Mapping[str, float]) -> Iterator[None]:
    """The table with other values of some constants, for who asks while this lasts."""
    before = {id: TABLE[id] for id in values}
    TABLE.update({id: replace(one, value=values[id]) for id, one in before.items()})
    try:
        yield
    finally:
        TABLE.update(before)
