"""Versions of NCCL as values that compare, from the texts in which logs and people write them."""

import re
from dataclasses import dataclass

from netsim.errors import InputError

TEXT = re.compile(
    r"(?:v|nccl[ _-]?)?(\d{1,2})\.(\d{1,2})(?:\.(\d{1,2}))?(?:-\d+)?(?:\+cuda[\d.]+)?", re.ASCII
)
CODE = re.compile(r"(\d)(\d{2})(\d{2})", re.ASCII)


@dataclass(frozen=True, order=True)
class Version:
    """One NCCL release; `Version(2, 27)` stands for the whole 2.27 series."""

    major: int
    minor: int
    patch: int = 0

    @property
    def code(self) -> int:
        """The number by which headers and nccl-tests know it: 23007 for 2.30.7."""
        return self.major * 10000 + self.minor * 100 + self.patch

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" + (f".{self.patch}" if self.patch else "")


OLDEST = Version(2, 10)
NEWEST = Version(2, 30, 7)


def parse_version(text: str) -> Version:
    """Read '2.27', '2.19.3+cuda12.3', 'v2.18.5-1' or nccl-tests' five digit code '22703'."""
    stripped = text.strip()
    code = CODE.fullmatch(stripped)
    match = code or TEXT.fullmatch(stripped.casefold())
    if match is None:
        raise InputError(f"expected an NCCL version such as 2.27 or 2.19.3, got {text!r}")
    major, minor, patch = (int(part or 0) for part in match.groups())
    return Version(major, minor, patch)


def supported_version(version: Version) -> Version:
    """The version itself; one outside 2.10–2.30 is refused, because its rules are not known."""
    nearest = nearest_version(version)
    if nearest != version:
        span = f"{OLDEST}–{NEWEST.major}.{NEWEST.minor}"
        raise InputError(
            f"NCCL {version} is outside the modelled versions {span}", hint=f"nearest: {nearest}"
        )
    return version


def nearest_version(version: Version) -> Version:
    """The modelled version closest to `version`, for logs of releases outside the range."""
    if version < OLDEST:
        return OLDEST
    in_series = (version.major, version.minor) <= (NEWEST.major, NEWEST.minor)
    return version if in_series else NEWEST
