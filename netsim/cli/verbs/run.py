"""The options of `netsim run`."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from netsim.cli import options
from netsim.cli.options import OUTPUT, PROCESSES, SIMULATION, flag, option


def command(
    scenario: options.Scenario,
    output: options.ResultsFolder = None,
    settings: Annotated[
        list[str] | None,
        option("--set", metavar="KEY=VALUE", text="Replace one value, as a.b=c.", panel=SIMULATION),
    ] = None,
    engine: options.EngineOption = "auto",
    resume: options.Resume = False,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    dask: options.Dask = None,
    shard: Annotated[
        str | None,
        option("--shard", metavar="i/n", text="Only the i-th of n parts.", panel=PROCESSES),
    ] = None,
    use_cache: Annotated[
        bool,
        flag(
            "--cache",
            text="Take rows that any sweep here has computed before.",
            panel=PROCESSES,
        ),
    ] = False,
    skip_invalid: options.SkipInvalid = False,
    seed: Annotated[
        int | None,
        option("--seed", metavar=None, text="Replace the scenario's seed.", panel=SIMULATION),
    ] = None,
    cell: Annotated[
        str | None,
        option(
            "--cell",
            metavar="ID|AXIS=VALUE,…",
            text="Trace and draw this cell, or the best of these; else the best of all.",
            panel=OUTPUT,
        ),
    ] = None,
    form: options.FormatOption = "table",
    allow_oom: Annotated[
        bool,
        flag(
            "--allow-oom",
            text="Run steps that need more memory than there is.",
            panel=SIMULATION,
        ),
    ] = False,
    exact: Annotated[
        bool,
        flag(
            "--exact",
            text="Leave nothing out; refuse what is too large for that.",
            panel=SIMULATION,
        ),
    ] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    wide: options.Wide = False,
) -> Callable[[], None]:
    """Simulate all cells of SCENARIO and write results, plots and a trace."""
    from netsim.cli.run import RunOptions, run_scenario

    run_options = RunOptions(
        output=output,
        settings=settings,
        engine=engine,
        resume=resume,
        jobs=jobs,
        memory=memory,
        dask=dask,
        shard=shard,
        use_cache=use_cache,
        skip_invalid=skip_invalid,
        seed=seed,
        cell=cell,
        form=form,
        allow_oom=allow_oom,
        exact=exact,
        quiet=quiet,
        verbose=verbose,
        wide=wide,
    )
    return partial(run_scenario, scenario, run_options)
