"""The options of `netsim merge`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli.options import OUTPUT, argument, option


def command(
    parts: Annotated[list[Path], argument("DIR…", "Folders that run --shard i/n wrote.")],
    output: Annotated[
        Path | None,
        option(
            "-o", "--output", metavar="DIR", text="Folder for the merged results.", panel=OUTPUT
        ),
    ] = None,
) -> Callable[[], None]:
    """Put together the results of the parts of a sweep."""
    from netsim.cli.merge import merge_parts

    return partial(merge_parts, parts, output)
