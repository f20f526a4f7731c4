"""What earlier runs of `netsim accuracy` have finished, and the journal to which this one appends.

The same records serve for collectives and for training steps.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from netsim.base.errors import InputError, Tell
from netsim.base.values import dataclass
from netsim.measured.compare import ComparedPoint, Failed, Floats, PartAnswer
from netsim.results.journal import Journal, few_of

# The seconds and the MFU of a training step, twice: with the constants of the table and with
# changed ones. A text is the reason why the step could not be simulated.
StepFigures = str | tuple[tuple[float, float], tuple[float, float]]


@dataclass
class AccuracyRecords:
    """What is finished, by the digest of everything that it depends on.

    `answers` are those of parts of runs, `shown` the log ratios that runs show for constants,
    `steps` the figures of training steps. Without a journal nothing is written."""

    journal: Journal | None = None
    answers: dict[str, PartAnswer] = field(default_factory=dict)
    shown: dict[str, Floats] = field(default_factory=dict)
    steps: dict[str, StepFigures] = field(default_factory=dict)

    def keep(self, key: str, **values: Any) -> None:
        """Append an `answer`, a `shown` array or a training `step` to the journal at once."""
        if self.journal is not None:
            self.journal.append({"part": key, **values})

    def finish(self) -> None:
        """Delete the journal: everything is simulated, so there is nothing to resume."""
        if self.journal is not None:
            self.journal.delete()

    def take(self, values: Mapping[str, Any]) -> None:
        """Add what a line of a journal has."""
        key = str(values["part"])
        if "step" in values:
            self.steps[key] = _step_figures(values["step"])
        elif "shown" in values:
            self.shown[key] = np.array(values["shown"], dtype=float)
        else:
            self.answers[key] = _answer_from(values["answer"])


def _answer_from(values: Mapping[str, Any]) -> PartAnswer:
    """The answer of a part from its values in a line of the journal."""
    points = tuple(map(point_from, values["points"]))
    failed = tuple(Failed(**failure) for failure in values["failed"])
    notes = tuple(map(str, values["notes"]))
    return PartAnswer(str(values["run"]), points, failed, notes)


def _step_figures(values: Any) -> StepFigures:
    """The figures of a training step from their values in a line of the journal."""
    if isinstance(values, str):
        return values
    usual, changed = ((float(seconds), float(mfu)) for seconds, mfu in values)
    return usual, changed


def point_from(values: Mapping[str, Any]) -> ComparedPoint:
    """A point from its values in JSON.

    Raises:
        ValueError: a value has another type than its field, or is not a finite number above 0.
    """
    point = ComparedPoint(**values)
    for name, value in asdict(point).items():
        kind = type(getattr(POINT, name))
        is_number = kind in (int, float) and type(value) in (int, float) and 0 < value < inf
        is_text = kind in (str, bool) and type(value) is kind
        if not is_number and not is_text:
            raise ValueError(f"{name}: {value!r}")
    return point


# A point whose values have the types of the fields.
POINT = ComparedPoint(
    run="",
    machine="",
    collective="",
    size_bytes=1,
    measured_us=1.0,
    simulated_us=1.0,
    algorithm="",
    protocol="",
    healthy=True,
)


@contextmanager
def open_records(index: Path, *, resume: bool, tell: Tell) -> Iterator[AccuracyRecords]:
    """Open the journal of an index in the folder `reports`, and read what it has on `resume`.

    If the file cannot be opened or locked, nothing is kept, or an error is raised when the user
    asked to resume.
    """
    name = index.absolute().parent.name if index.stem == "index" else index.stem
    path = Path("reports") / f"accuracy-{name}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        journal = Journal.open(path)
    except OSError as error:
        if resume:
            message = f"{path}: cannot be used: {error.strerror}"
            raise InputError(message, hint="leave --resume away") from None
        yield AccuracyRecords()
        return
    with journal:
        records = AccuracyRecords(journal)
        if resume:
            _read(records, journal, tell)
        else:
            journal.clear()
        yield records


def _read(records: AccuracyRecords, journal: Journal, tell: Tell) -> None:
    """Read what a journal has, and tell the user about it."""
    journal.read(records.take)
    journal.remove_unfinished_line()
    for text in few_of([f"{text}; it is computed again" for text in journal.damage]):
        tell(text)
    if records.steps:
        tell(f"{len(records.steps)} steps are known from {journal.path}")
    else:
        tell(f"{len(records.answers)} parts of runs are known from {journal.path}")
