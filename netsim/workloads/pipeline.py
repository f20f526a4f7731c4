"""Pipeline schedules: in which order a stage works through micro-batches, forward and backward.

An Action is F (forward), B (backward; of gradients of inputs only where W follow) or W (gradients
of weights) of one micro-batch through one of the stage's chunks of layers.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """One pass of one micro-batch through one chunk."""

    kind: str
    micro_batch: int
    chunk: int = 0


def gpipe(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Action]:
    """All forward passes, then all backward passes (Huang et al. 2019)."""
    del stage, stages, chunks
    ahead = [Action("F", k) for k in range(micro_batches)]
    return ahead + [Action("B", k) for k in range(micro_batches)]


def one_f_one_b(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Action]:
    """Warm-up, then one forward and one backward in turn (Narayanan et al. 2019)."""
    del chunks
    warm = min(micro_batches, stages - stage - 1)
    actions = [Action("F", k) for k in range(warm)]
    for k in range(micro_batches - warm):
        actions += [Action("F", warm + k), Action("B", k)]
    return actions + [Action("B", k) for k in range(micro_batches - warm, micro_batches)]


def interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Action]:
    """One forward, one backward over several chunks a stage (Narayanan et al. 2021).

    Groups of `stages` micro-batches go through chunk 0, then chunk 1, and so on; backward mirrored.
    """
    total = micro_batches * chunks
    warm = min(total, 2 * (stages - stage - 1) + (chunks - 1) * stages)
    ahead = [_turn("F", k, stages, micro_batches, chunks) for k in range(total)]
    back = [_turn("B", k, stages, micro_batches, chunks) for k in range(total)]
    actions = ahead[:warm]
    for k in range(total - warm):
        actions += [ahead[warm + k], back[k]]
    return actions + back[total - warm :]


def _turn(kind: str, number: int, stages: int, micro_batches: int, chunks: int) -> Action:
    """The pass with a number in the order of groups; the last group may be smaller."""
    group, inside = divmod(number, stages * chunks)
    size = min(stages, micro_batches - group * stages)
    chunk, place = divmod(inside, size)
    return Action(kind, group * stages + place, chunk if kind == "F" else chunks - 1 - chunk)


def zero_bubble(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Action]:
    """ZB-H1 (Qi et al. 2024): 1F1B whose gradients of weights wait, the later stages' longer.

    They fill what would be idle at the end; no more activations are kept than by 1F1B.
    """
    actions: list[Action] = []
    pending: list[int] = []
    for action in one_f_one_b(stage, stages, micro_batches, chunks):
        actions.append(action)
        if action.kind == "B":
            pending.append(action.micro_batch)
            if len(pending) > stage:
                actions.append(Action("W", pending.pop(0)))
    return actions + [Action("W", k) for k in pending]


def in_a_row(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Action]:
    """Naive model parallelism: a micro-batch goes forth and back before the next one begins."""
    del stage, stages, chunks
    return [Action(kind, k) for k in range(micro_batches) for kind in "FB"]


Order = Callable[[int, int, int, int], list[Action]]
SCHEDULES: dict[str, Order] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb-h1": zero_bubble,
    "naive": in_a_row,
}


def in_flight(actions: list[Action]) -> int:
    """The most passes whose activations a stage keeps at one time, in chunks of its layers."""
    now = most = 0
    last = "W" if any(action.kind == "W" for action in actions) else "B"
    for action in actions:
        now += (action.kind == "F") - (action.kind == last)
        most = max(most, now)
    return most
