"""python -m tests.published [NAME…]: published times of training steps beside simulated ones.

The table of docs/training.md. Nothing is fitted: the simulated runs have the settings of their
sources, and what a source leaves open is said in tests/data/published_steps.yaml.
"""

import argparse
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import yaml

from netsim.scenario.cells import expand
from netsim.training.resolve import resolve_step
from netsim.training.run import Step, simulate_step
from netsim.workloads.model import Transformer
from netsim.yamlio.read import parse_source

DATA = Path(__file__).parents[1] / "data" / "published_steps.yaml"
# GPT as Megatron-LM trained it: dropout, softmax and its use were kernels of their own.
GPT = {
    "vocabulary": 51200,
    "sequence": 2048,
    "gated": False,
    "biases": True,
    "tied": True,
}
WORK = {"dtype": "half", "attention": "unfused", "allow_oom": True}


@dataclass(frozen=True)
class Run:
    """One published run and its simulation: seconds of a step, and what its source quotes."""

    name: str
    source: str
    gpus: int
    published: float
    step: Step

    @property
    def error(self) -> float:
        """Simulated over published time, less one."""
        return self.step.seconds / self.published - 1


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.published", description=__doc__)
    parser.add_argument("name", nargs="*", help="runs whose names begin so (default: all)")
    wanted = tuple(parser.parse_args().name)
    given = yaml.safe_load(DATA.read_text())
    print("| run | GPUs | published, s | simulated, s | error | MFU, % | source |")
    print("|---|---|---|---|---|---|---|")
    for entry in given["runs"]:
        if not wanted or entry["name"].startswith(wanted):
            print(line(run(entry)), flush=True)


def line(run: Run) -> str:
    """A line of the table."""
    return (
        f"| {run.name} | {run.gpus} | {run.published:.3g} | {run.step.seconds:.3g} | "
        f"{run.error:+.0%} | {run.step.mfu * 100:.0f} | {run.source} |"
    )


def run(entry: dict[str, Any]) -> Run:
    """The simulation of a published run; of several settings, the best."""
    choices = [{}]
    for key, values in entry.get("tried", {}).items():
        choices = [{**one, key: value} for one in choices for value in values]
    step = min((simulated(entry, one) for one in choices), key=lambda one: one.seconds)
    gpus = step.resolved.setting.grid.size
    return Run(entry["name"], entry["source"], gpus, seconds_of(entry["published"], step), step)


def simulated(entry: dict[str, Any], chosen: dict[str, Any]) -> Step:
    """One step of a run."""
    model = entry["model"]
    if isinstance(model, dict):
        model = {**GPT, "ffn": 4 * model["hidden"], **model}
    work = {"model": model, **WORK, **entry["workload"], **chosen}
    text = yaml.safe_dump({"cluster": entry["cluster"], "workload": work})
    return simulate_step(resolve_step(expand(parse_source(text, str(DATA)))[0]))


def seconds_of(published: dict[str, float], step: Step) -> float:
    """Seconds of a step, from what a source quotes."""
    ((kind, value),) = published.items()
    setting = step.resolved.setting
    if kind == "seconds":
        return value
    if kind == "tokens":
        return setting.batch * setting.sequence / (value * setting.grid.size)
    assert isinstance(setting.model, Transformer)
    return megatron_flops(setting.model, setting.batch) / (value * 1e12 * setting.grid.size)


def megatron_flops(m: Transformer, batch: int) -> float:
    """FLOPs of a step as Narayanan et al. count them: four passes, full attention."""
    attention, logits = m.sequence / (6 * m.hidden), m.vocabulary / (16 * m.layers * m.hidden)
    whole = prod((96, batch, m.sequence, m.layers, m.hidden, m.hidden))
    return whole * (1 + attention + logits)


if __name__ == "__main__":
    main()
