"""Parts of a pass of a layer: kernels, and the collectives between them."""

from collections.abc import Iterable
from dataclasses import replace

from netsim.base.values import dataclass


@dataclass(frozen=True, slots=True)
class PassPart:
    """A kernel, or a collective over one axis of the grid.

    Kernels follow each other on their stream. A collective starts when the kernel before it is
    done.

    Args:
        seconds: time of a kernel.
        collective: name of the collective; empty for a kernel.
        axis: axis of the grid along which the collective runs.
        nbytes: size of the collective in bytes.
        needs: names of earlier collectives of the pass that a kernel waits for.
        blocks: whether the next kernel waits for this collective.
        weight: whether the kernel only makes gradients of weights, which are needed at the end of
            the step.
        launches: number of kernels that the part represents.
        moving: seconds in which a kernel only moves bytes; collectives beside it do not slow those.
    """

    name: str
    seconds: float = 0.0
    collective: str = ""
    axis: str = ""
    nbytes: int = 0
    needs: tuple[str, ...] = ()
    blocks: bool = True
    weight: bool = False
    dtype: str = ""
    launches: int = 1
    moving: float = 0.0


def kernel(name: str, seconds: float, *needs: str, weight: bool = False) -> PassPart:
    """A kernel that waits for the collectives named in `needs`."""
    return PassPart(name, seconds, needs=needs, weight=weight)


def exchange(
    name: str, collective: str, axis: str, nbytes: int, *, blocks: bool = True, dtype: str = ""
) -> PassPart:
    """A collective over an axis."""
    return PassPart(name, 0.0, collective, axis, nbytes, blocks=blocks, dtype=dtype)


def merged(parts: Iterable[PassPart]) -> tuple[PassPart, ...]:
    """The parts with consecutive kernels joined to one where nothing separates them, so that there
    are fewer rows.

    A kernel that makes gradients of weights is the last one of those that are joined.
    """
    parts_so_far: list[PassPart] = []
    for part in parts:
        last = parts_so_far[-1] if parts_so_far else None
        if part.collective or last is None or last.collective or part.needs or last.weight:
            parts_so_far.append(part)
        elif part.seconds:
            name = "+".join(filter(None, (last.name * (last.seconds > 0), part.name)))
            seconds = last.seconds + part.seconds
            parts_so_far[-1] = replace(last, name=name, seconds=seconds, weight=part.weight)
    return tuple(part for part in parts_so_far if part.collective or part.seconds or part.needs)
