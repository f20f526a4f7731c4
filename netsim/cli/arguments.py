"""Arguments that several verbs take, each with its help text once."""

from typing import Annotated

import typer

ScenarioName = Annotated[
    str,
    typer.Argument(help="A scenario file, or the name of a preset.", metavar="SCENARIO"),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Replace one value, as a.b=c.", metavar="KEY=VALUE"),
]
