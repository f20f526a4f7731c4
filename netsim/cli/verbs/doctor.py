"""The options of `netsim doctor`."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from netsim.cli.options import flag


def command(
    constants: Annotated[
        bool,
        flag(
            "--constants",
            text="Show the constants of execution, launches and transports, each with its origin.",
        ),
    ] = False,
    invariants: Annotated[
        bool,
        flag("--invariants", text="Show what holds of every answer, and when it is checked."),
    ] = False,
) -> Callable[[], None]:
    """Print what netsim runs on, and what it finds; or its constants, or its invariants."""
    from netsim.cli.doctor import print_diagnosis

    return partial(print_diagnosis, constants=constants, invariants=invariants)
