"""Parts: what a layer does in one pass, kernel by kernel and collective by collective, in order."""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel of `seconds`, or a collective over one axis of the grid.

    Kernels follow each other on their stream. `needs` are earlier collectives of the pass by name
    that a kernel waits for; a collective starts when the kernel before it is done. A collective
    that `blocks` holds up the next kernel. `weight`: it makes gradients of weights only, which
    nobody waits for until the end of the step.
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


def kernel(name: str, seconds: float, *needs: str, weight: bool = False) -> Part:
    """A kernel that waits for the named collectives."""
    return Part(name, seconds, needs=needs, weight=weight)


def exchange(
    name: str, collective: str, axis: str, nbytes: int, *, blocks: bool = True, dtype: str = ""
) -> Part:
    """A collective over an axis."""
    return Part(name, 0.0, collective, axis, nbytes, blocks=blocks, dtype=dtype)


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same with kernels that nothing separates in one piece, to have fewer rows."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if (
            part.collective
            or last is None
            or last.collective
            or part.needs
            or part.weight != last.weight
        ):
            found.append(part)
        elif part.seconds:
            name = f"{last.name}+{part.name}" if last.seconds else part.name
            found[-1] = replace(last, name=name, seconds=last.seconds + part.seconds)
    return tuple(part for part in found if part.collective or part.seconds or part.needs)
