"""The options of `netsim report`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli import options
from netsim.cli.options import SIMULATION, argument, flag


def command(
    folder: Annotated[Path, argument("DIR", "Results of netsim run, or of netsim localize -o.")],
    explain: Annotated[
        bool,
        flag(
            "--explain/--no-explain",
            text="Simulate the base line and the best cell again, to explain them.",
            panel=SIMULATION,
        ),
    ] = True,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    trust: Annotated[
        bool,
        flag("--trust", text="Run Python files that the results name.", panel=SIMULATION),
    ] = False,
) -> Callable[[], None]:
    """Write DIR/report.html: the answer, plots, explanations and all cells."""
    from netsim.cli.report import report_folder

    return partial(report_folder, folder, explain=explain, jobs=jobs, memory=memory, trust=trust)
