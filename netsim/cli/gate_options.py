"""The options of `--gate`, checked: the confidence, the format and the file."""

from collections.abc import Mapping
from pathlib import Path

from netsim.base.errors import InputError
from netsim.base.units import parse_ratio
from netsim.base.values import dataclass
from netsim.cli.options import GateFormat
from netsim.cli.output import parsed
from netsim.results.margins import LARGEST_CONFIDENCE, SMALLEST_CONFIDENCE

BY_SUFFIX: Mapping[str, GateFormat] = {".csv": "nccl-tests", ".xml": "junit"}

STRICT_CONFIDENCE = 0.9
"""Above it a gate misses most machines that are 20 % slow (docs/validation-gates.md)."""


@dataclass(frozen=True)
class GateOptions:
    """The checked options of `--gate`: the confidence (a fraction), the format, and the file (None:
    standard output).
    """

    confidence: float
    form: GateFormat
    file: Path | None

    @property
    def notes(self) -> list[str]:
        """A warning if the confidence is so high that slow machines pass; else empty."""
        if self.confidence <= STRICT_CONFIDENCE:
            return []
        return [
            f"a gate of {self.confidence:.0%} passes most machines that are 20 % slow; --gate 80% "
            "finds nearly all of them from 64 MiB on, and refuses one healthy size in five "
            "(docs: Gates and differences)"
        ]


def confidence_of(text: str) -> float:
    """The confidence that `--gate` names, as a fraction: 0.95 for `95%` or `0.95`.

    Raises an InputError outside the range that the measurements support.
    """
    value = parsed(parse_ratio, "--gate", text)
    if not SMALLEST_CONFIDENCE <= value <= LARGEST_CONFIDENCE:
        bounds = f"{SMALLEST_CONFIDENCE:.0%} to {LARGEST_CONFIDENCE:.0%}"
        hint = f"did you mean {text}%?" if 1 < value <= 100 and "%" not in text else ""
        raise InputError(
            f"--gate {text}: expected a probability of {bounds}, which is what the "
            "measured systems can tell",
            hint=hint,
        )
    return value


def gate_options(
    text: str | None, form: GateFormat | None, file: Path | None
) -> GateOptions | None:
    """The checked options of a gate; None without `--gate`.

    If no option names the format, the suffix of the file does.
    """
    if text is None:
        for flag, value in (("--gate-format", form), ("--gate-out", file)):
            if value is not None:
                raise InputError(f"{flag} {value}: goes with --gate", hint="give --gate 95%")
        return None
    confidence = confidence_of(text)
    if form is None and file is not None:
        form = BY_SUFFIX.get(file.suffix)
        if form is None:
            raise InputError(
                f"--gate-out {file}: its suffix does not tell the format",
                hint="give --gate-format nccl-tests, aicr, cre or junit",
            )
    return GateOptions(confidence, form or "nccl-tests", file)
