"""The options of `netsim check`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli.options import argument, flag, option


def command(
    files: Annotated[list[Path], argument("FILE…", "Scenario or topology files.")],
    settings: Annotated[
        list[str] | None,
        option("--set", metavar="KEY=VALUE", text="Replace one value, as a.b=c."),
    ] = None,
    allow_oom: Annotated[
        bool, flag("--allow-oom", text="Pass steps that need more memory than there is.")
    ] = False,
) -> Callable[[], None]:
    """Validate scenarios and topologies without running them."""
    from netsim.cli.files import check_files

    return partial(check_files, files, settings, allow_oom=allow_oom)
