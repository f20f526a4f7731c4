"""The options of `netsim list`."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from netsim.cli import options
from netsim.cli.options import argument


def command(
    kind: Annotated[
        Literal["all", "scenarios", "machines"], argument("[WHAT]", "What to list.")
    ] = "all",
    form: options.TableFormat = "table",
) -> Callable[[], None]:
    """List scenarios, with the question that each answers, and machines."""
    from netsim.cli.listing import list_presets

    return partial(list_presets, kind, form)
