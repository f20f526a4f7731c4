"""`netsim schema`: the JSON Schema of scenario and machine files, for editors and checks."""

import json
from typing import Annotated, Literal

import typer

from netsim.scenario.models import Scenario
from netsim.topology.machine import Machine
from netsim.yamlio.model import Model

SCHEMAS: dict[str, type[Model]] = {"scenario": Scenario, "machine": Machine}


def command(
    kind: Annotated[
        Literal["scenario", "machine"], typer.Argument(help="Which files.")
    ] = "scenario",
) -> None:
    """Print the JSON Schema of KIND files."""
    schema = SCHEMAS[kind].model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    typer.echo(json.dumps(schema, indent=2))
