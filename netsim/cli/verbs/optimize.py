"""The options of `netsim optimize`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli import options
from netsim.cli.options import OUTPUT, SIMULATION, option


def command(
    scenario: options.Scenario,
    output: options.ResultsFolder = None,
    settings: Annotated[
        list[str] | None,
        option("--set", metavar="KEY=VALUE", text="Replace one value, as a.b=c.", panel=SIMULATION),
    ] = None,
    resume: options.Resume = False,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    dask: options.Dask = None,
    skip_invalid: options.SkipInvalid = False,
    quiet: options.Quiet = False,
    objective: Annotated[
        str, option("--objective", metavar="FIGURE", text="What to make best, of one size.")
    ] = "",
    constraint: Annotated[
        list[str] | None,
        option("--subject-to", metavar="CONDITION", text="Such as 'cost_usd < 5e6'."),
    ] = None,
    trial_count: Annotated[
        int | None,
        option("--trials", metavar=None, text="Cells to try; the rest is skipped.", least=1),
    ] = None,
    tuner_out: Annotated[
        Path | None,
        option(
            "--tuner-out",
            metavar="FILE",
            text="Write NCCL's best choice by size there, of the best cell.",
            panel=OUTPUT,
        ),
    ] = None,
) -> Callable[[], None]:
    """Search the choices that SCENARIO's sweep declares for the best."""
    from netsim.cli.optimize import optimize_scenario
    from netsim.cli.run import RunOptions

    run_options = RunOptions(
        output=output,
        settings=settings,
        resume=resume,
        jobs=jobs,
        memory=memory,
        dask=dask,
        skip_invalid=skip_invalid,
        quiet=quiet,
    )
    return partial(
        optimize_scenario,
        scenario,
        run_options,
        objective=objective,
        constraint=constraint,
        trial_count=trial_count,
        tuner_out=tuner_out,
    )
