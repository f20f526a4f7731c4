"""The options of `netsim accuracy`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli import options
from netsim.cli.options import OUTPUT, SIMULATION, argument, flag, option

CORPUS = Path("scenarios/measured/index.yaml")
BENCHMARK = "Open benchmark"  # a panel of the help


def command(
    json_file: Annotated[
        Path | None,
        option("--json", metavar="FILE", text="Write points and bands.", panel=OUTPUT),
    ] = None,
    plots: Annotated[
        Path | None,
        option("--plots", metavar="DIR", text="Write a picture for each machine.", panel=OUTPUT),
    ] = None,
    page: Annotated[
        Path | None,
        option(
            "--page",
            metavar="FILE",
            text="Write the validation page, its pictures, and beside INDEX what `validated` says.",
            panel=OUTPUT,
        ),
    ] = None,
    jobs: options.JobsOrAllCores = None,
    memory: options.Memory = None,
    only: Annotated[
        list[str] | None,
        option("--only", metavar="RUN", text="A run, or how its name begins."),
    ] = None,
    against: Annotated[
        Path | None,
        option("--against", metavar="EARLIER", text="An earlier result to compare with."),
    ] = None,
    predict: Annotated[
        Path | None,
        option(
            "--predict",
            metavar="FILE",
            text="Write times from the questions alone, no figure read.",
            panel=OUTPUT,
        ),
    ] = None,
    predicted: Annotated[
        Path | None,
        option(
            "--predicted",
            metavar="FILE",
            text="Compare with such a file instead of simulating.",
            panel=SIMULATION,
        ),
    ] = None,
    leave: Annotated[
        bool,
        flag(
            "--leave-out",
            text="Simulate each run also without what was fitted to its system.",
            panel=SIMULATION,
        ),
    ] = False,
    without: Annotated[
        list[str] | None,
        option(
            "--without",
            metavar="ID",
            text="A constant (netsim doctor --constants) that is off.",
            panel=SIMULATION,
        ),
    ] = None,
    resume: options.Resume = False,
    questions: Annotated[
        Path | None,
        option(
            "--questions",
            metavar="FILE",
            text="Write the questions of the open benchmark without the measured times: CSV, or "
            "YAML by the suffix.",
            panel=BENCHMARK,
        ),
    ] = None,
    score: Annotated[
        Path | None,
        option(
            "--score",
            metavar="FILE",
            text="Score predictions (CSV: run, size_bytes, time_us) by size band and class of run.",
            panel=BENCHMARK,
        ),
    ] = None,
    baseline: Annotated[
        options.BaselineName | None,
        option(
            "--baseline",
            metavar=None,
            text="Predict by a simple model instead of simulating; print its score.",
            panel=BENCHMARK,
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        option(
            "--predictions",
            metavar="FILE",
            text="Write the predictions of --baseline.",
            panel=BENCHMARK,
        ),
    ] = None,
    quiet: options.Quiet = False,
    index: Annotated[
        Path,
        argument(
            "INDEX", "An index of measured runs (default: the corpus that comes with netsim)."
        ),
    ] = CORPUS,
) -> Callable[[], None]:
    """Simulate every run of INDEX and print the error by run, machine, collective and size; or
    write the questions of INDEX, or score the answers of any simulator."""
    from netsim.cli.accuracy import AccuracyOptions, print_accuracy

    accuracy_options = AccuracyOptions(
        json_file=json_file,
        plots=plots,
        page=page,
        jobs=jobs,
        memory=memory,
        only=only,
        against=against,
        predict=predict,
        predicted=predicted,
        leave=leave,
        without=without,
        resume=resume,
        questions=questions,
        score=score,
        baseline=baseline,
        predictions=predictions,
        quiet=quiet,
    )
    return partial(print_accuracy, index, accuracy_options)
