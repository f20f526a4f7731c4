"""The options of `netsim schema`."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from netsim.cli.options import argument


def command(
    kind: Annotated[Literal["scenario", "machine"], argument(None, "Which files.")] = "scenario",
) -> Callable[[], None]:
    """Print the JSON Schema of scenario or topology files."""
    from netsim.cli.files import print_schema

    return partial(print_schema, kind)
