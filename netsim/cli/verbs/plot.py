"""The options of `netsim plot`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli.options import OUTPUT, argument, option


def command(
    files: Annotated[
        list[Path], argument("RESULTS…", "results.csv files (drawn together), or folders.")
    ],
    output: Annotated[
        Path | None,
        option("-o", "--output", metavar="DIR", text="Folder for the plots.", panel=OUTPUT),
    ] = None,
) -> Callable[[], None]:
    """Redraw plots from RESULTS alone."""
    from netsim.cli.pictures import redraw_plots

    return partial(redraw_plots, files, output)
