"""One step of a profile that recorded several, and what is to be known of how it is simulated."""

from netsim.errors import InputError
from netsim.training.recorded.kineto import Profile
from netsim.training.recorded.shapes import BY_SHAPES


class StepError(InputError):
    """A step was asked for that the trace does not have."""


def step_of(profile: Profile, asked: int | None) -> tuple[Profile, tuple[str, ...]]:
    """The step that is asked for, else the one of median length; the whole, if it has no steps."""
    if asked is not None and asked not in profile.steps:
        has = _numbers(profile.steps) if profile.steps else "none that the profiler marked"
        raise StepError(f"the trace has no step {asked}; it has {has}")
    step = profile.usual_step() if asked is None else asked
    chosen = profile if step is None else profile.of_step(step)
    notes = []
    if len(profile.steps) > 1:
        notes.append(f"step {step} of the trace's {_numbers(profile.steps)}")
    if profile.unsized:
        notes.append(f"{profile.unsized} kernels of NCCL's without size or peers left out")
    if any(call.said.uneven for call in chosen.calls):
        notes.append("all-to-alls of uneven parts as even ones")
    if any(call.said.group == BY_SHAPES for call in chosen.calls):
        notes.append("calls by the shapes of their operators, over all ranks")
    return chosen, tuple(notes)


def _numbers(steps: tuple[int, ...]) -> str:
    if len(steps) > 2 and steps == tuple(range(steps[0], steps[-1] + 1)):
        return f"{steps[0]} to {steps[-1]}"
    return ", ".join(map(str, steps))
