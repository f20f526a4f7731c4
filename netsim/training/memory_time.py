"""Memory over the step: what a GPU of each pipeline stage holds at every moment.

Weights, gradients, optimizer states and buffers are there all the time. Activations of a layer are
kept from the beginning of its forward pass to the end of what its backward pass needs them for.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from netsim.files import write_text
from netsim.training.fitting import memories
from netsim.training.run import Step
from netsim.workloads.memory import activation_bytes, full_activation_bytes
from netsim.workloads.setting import Setting

MEMORY_OVER_TIME = "memory_over_time.csv"
COLUMNS = "stage,rank,time_us,bytes,activations_bytes,gpu_bytes"
MOST_MOMENTS = 2_000  # of a stage; of more, those between are left out where less is held

Times = NDArray[np.float64]
Layers = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Held:
    """What one GPU of a stage holds: from each moment on, bytes, and what of them is activations.

    `room` is the memory that it has.
    """

    stage: int
    rank: int
    seconds: Times
    activations: Times
    constant: float
    room: float

    @property
    def peak(self) -> float:
        """The most activations that are kept at one time."""
        return float(self.activations.max(initial=0.0))


def held_over_time(step: Step) -> list[Held]:
    """The memory of the first rank of every stage."""
    setting, cluster = step.prepared.setting, step.prepared.cluster
    layers = _bytes_of_layers(setting)
    found = []
    for stage, memory in enumerate(memories(setting)):
        rank = int(setting.grid.stage(stage)[0])
        when, change = _changes(step, rank, layers)
        constant = memory.total - memory.activations
        room = float(cluster.machine_of(0).gpu.memory)
        found.append(Held(stage, rank, when, np.cumsum(change), constant, room))
    return found


def _bytes_of_layers(setting: Setting) -> Layers:
    """By layer, what a micro-batch keeps of it, and what its backward pass has besides."""
    layers = [layer for stage in setting.stages() for chunk in stage for layer in chunk]
    found = {}
    for layer in layers:
        kept = activation_bytes(setting, layer)
        again = full_activation_bytes(setting, layer) if setting.recompute == "full" else kept
        found[layer.name] = (kept, max(0.0, again - kept))
    return found


def _changes(step: Step, rank: int, layers: Layers) -> tuple[Times, Times]:
    """The moments at which a rank's activations become more or fewer, and by how much."""
    spans: dict[tuple[str, int], dict[str, tuple[float, float]]] = {}
    for number, task in enumerate(step.spans.tape.tasks):
        if task.layer not in layers or task.collective:
            continue
        place = np.flatnonzero(task.groups[:, 0] == rank)
        if not len(place):
            continue
        begin, end = (float(of(number)[place[0]]) for of in (step.spans.begin, step.spans.end))
        phases = spans.setdefault((task.layer, task.micro_batch), {})
        first, last = phases.get(task.phase, (begin, end))
        phases[task.phase] = (min(first, begin), max(last, end))
    events: list[tuple[float, float]] = [(0.0, 0.0), (step.seconds, 0.0)]
    for (layer, _), phases in spans.items():
        kept, again = layers[layer]
        events += [
            (phases["forward"][0], kept),
            (max(end for _, end in phases.values()), -kept),
        ]
        if again and "backward" in phases:
            events += [(phases["backward"][0], again), (phases["backward"][1], -again)]
    events.sort()  # at one moment, what is given up comes first
    when, change = np.array(events).T
    return when, change


def write_memory_over_time(path: Path, step: Step) -> Path:
    """memory_over_time.csv: from each moment on, what a GPU of each stage holds."""
    lines = [COLUMNS]
    for held in held_over_time(step):
        for k in _shown(held.activations).tolist():
            bytes_ = held.constant + held.activations[k]
            numbers = (held.seconds[k] * 1e6, bytes_, held.activations[k], held.room)
            lines.append(",".join(map(repr, (held.stage, held.rank, *map(float, numbers)))))
    return write_text(path / MEMORY_OVER_TIME, "\n".join(lines) + "\n")


def _shown(activations: Times) -> NDArray[np.intp]:
    """Moments that tell the course: of many, the most and the least of every stretch."""
    if len(activations) <= MOST_MOMENTS:
        return np.arange(len(activations))
    stretches = np.array_split(np.arange(len(activations)), MOST_MOMENTS // 2)
    most = [part[activations[part].argmax()] for part in stretches]
    least = [part[activations[part].argmin()] for part in stretches]
    return np.unique([0, *most, *least, len(activations) - 1])
