"""Settings and cells for tests, without files."""

from dataclasses import replace
from typing import Any

from netsim.scenario.cells import Cell, expand
from netsim.training.resolve import resolve_step
from netsim.training.run import Step, simulate_step
from netsim.workloads.model import Transformer
from netsim.workloads.setting import AXES, Grid, Roofline, Setting
from netsim.yamlio.read import Source, parse_source

H100 = Roofline({"bfloat16": 989e12, "float": 67e12}, 3350e9, 132)
SMALL = Transformer(
    name="small", layers=8, hidden=512, heads=8, kv_heads=8, ffn=2048, vocabulary=1000, sequence=256
)
TEXT = """\
cluster: {{machine: dgx-h100, nodes: {nodes}, gpus_per_node: {gpus}}}
workload:
  model: {model}
  batch: {batch}
  allow_oom: true
{rest}
"""


def setting(**given: Any) -> Setting:
    """A setting of a small model; degrees by axis, everything else by name."""
    degrees = {axis: given.pop(axis, 1) for axis in AXES}
    usual = Setting(
        model=SMALL,
        grid=Grid(degrees),
        roofline=H100,
        batch=8 * degrees["dp"] * degrees["ep"],
        micro=1,
        sequence=256,
    )
    return replace(usual, **given)


def source(
    rest: str, *, model: str = "bert-base", batch: int = 8, nodes: int = 1, gpus: int = 8
) -> Source:
    """A scenario; `rest` continues its workload."""
    text = TEXT.format(model=model, batch=batch, nodes=nodes, gpus=gpus, rest=rest)
    return parse_source(text, "x.yaml")


def cell(rest: str = "", **given: Any) -> Cell:
    """The first cell of a scenario."""
    return expand(source(rest, **given))[0]


def step(rest: str = "", **given: Any) -> Step:
    """The simulated step of a scenario."""
    return simulate_step(resolve_step(cell(rest, **given)))
