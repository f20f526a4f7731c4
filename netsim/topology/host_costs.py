"""The seconds that a host takes to launch a kernel. A file states either the time, or a class of
hosts whose time, with its range, was measured.

nccl-tests with `-g 8` has one process launch the kernels of 8 GPUs one after the other, so small
messages take the time of 8 launches, however few bytes they move. The time of a launch depends on
the CPU, the driver and the virtual machine; the classes of `hosts.csv` were measured with `-g 8`.
"""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from netsim.base.errors import suggest
from netsim.base.files import table_beside
from netsim.yamlio import models

_ROWS = {row["class"]: row for row in table_beside(__file__, "hosts.csv")}
HOST_CLASSES = tuple(_ROWS)
MICROSECOND = 1e-6


class HostCosts(models.Model):
    """The time that a host takes to launch a kernel.

    In a file it is the name of a class (`bare-metal`, `container`, `azure-vm`), the time of a
    launch (`7us`), or a mapping `{launch: 7us}`.
    """

    launch: models.Seconds
    """Seconds of the host for the launch of one kernel."""
    launch_low: models.Seconds | None = None
    launch_high: models.Seconds | None = None
    """The range of the class; None for a time that is known."""
    name: str = ""
    """The name of the class; empty for a time that is known."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value in _ROWS:
            return _fields_of_class(value)
        if value[:1].isdigit():
            return {"launch": value}
        raise ValueError(
            f"expected one of {', '.join(HOST_CLASSES)} or a time of a launch such as 7us, "
            f"got {value!r}{suggest(value, HOST_CLASSES)}"
        )

    @property
    def words(self) -> str:
        """The assumed time of a launch as a clause for messages."""
        seconds = f"{self.launch / MICROSECOND:.3g} us"
        if self.launch_low is None or self.launch_high is None:
            return f"a launch by the host takes {seconds}"
        low = self.launch_low / MICROSECOND
        high = self.launch_high / MICROSECOND
        return (
            f"a launch by the host takes {seconds} ({low:.2g} to {high:.2g} on {self.name} hosts)"
        )


def _fields_of_class(name: str) -> dict[str, str]:
    row = _ROWS[name]
    return {
        "launch": f"{row['launch_us']}us",
        "launch_low": f"{row['low_us']}us",
        "launch_high": f"{row['high_us']}us",
        "name": name,
    }


def host_class(name: str) -> HostCosts:
    """Return the launch time of a class of hosts.

    >>> host_class("bare-metal").words
    'a launch by the host takes 4.55 us (3.1 to 5.9 on bare-metal hosts)'
    """
    return HostCosts.model_validate(name)
