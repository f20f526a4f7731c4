"""Which NCCL a measured run had, from what its entry says: a version, or a date as a hint."""

import re

from netsim.nccl.version import NEWEST, Version, nearest_version, parse_version

# Month of each release, from the release dates of NCCL's repository.
RELEASED = {
    (2018, 9): "2.3", (2019, 1): "2.4", (2019, 11): "2.5", (2020, 3): "2.6", (2020, 6): "2.7",
    (2020, 11): "2.8", (2021, 4): "2.9", (2021, 7): "2.10", (2021, 9): "2.11", (2022, 3): "2.12",
    (2022, 6): "2.13", (2022, 8): "2.14", (2022, 10): "2.15", (2022, 12): "2.16", (2023, 3): "2.17",
    (2023, 4): "2.18", (2023, 10): "2.19", (2024, 2): "2.20", (2024, 4): "2.21", (2024, 6): "2.22",
    (2024, 9): "2.23", (2025, 1): "2.24", (2025, 2): "2.25", (2025, 3): "2.26", (2025, 6): "2.27",
    (2025, 10): "2.28", (2026, 1): "2.29", (2026, 4): "2.30",
}  # fmt: skip
BEHIND = 6  # months that installed versions are usually behind the newest
NUMBER = re.compile(r"\b2\.\d{1,2}(?:\.\d{1,2})?\b")
IN_PROSE = re.compile(r"\bNCCL\b[^.;]{0,24}?\b(2\.\d{1,2}(?:\.\d{1,2})?)\b", re.IGNORECASE)
DATE = re.compile(r"\b(20[12]\d)(?:-(\d{2}))?")


def version_of(text: str, remarks: str = "", date: str = "") -> tuple[Version, str]:
    """The modelled version to take, and a note where it is not simply the one that was given."""
    given = NUMBER.search(text)
    if given:
        return _nearest(given.group(), f"NCCL {text}")
    hinted = IN_PROSE.search(remarks)
    if hinted:
        return _nearest(hinted.group(1), f"NCCL {text or 'unknown'} ({hinted.group()})")
    dated = DATE.search(date)
    if dated:
        year, month = int(dated.group(1)), int(dated.group(2) or 6)
        return _nearest(_usual(year, month), f"NCCL {text or 'unknown'}, run in {dated.group()}")
    return NEWEST, f"NCCL {text or 'unknown'}: taken as {NEWEST}"


def _nearest(text: str, said: str) -> tuple[Version, str]:
    version = parse_version(text)
    found = nearest_version(version)
    exact = found == version and said == f"NCCL {version}"
    return found, "" if exact else f"{said}: taken as {found}"


def _usual(year: int, month: int) -> str:
    """What people ran then."""
    then = year * 12 + month - BEHIND
    known = [name for (y, m), name in RELEASED.items() if y * 12 + m <= then]
    return known[-1] if known else next(iter(RELEASED.values()))
