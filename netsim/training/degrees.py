"""The degrees of parallelism of a cell: they multiply to its GPUs, or it is said which do not."""

from math import prod

from netsim.scenario.cells import Cell
from netsim.scenario.training import Parallelism, Training
from netsim.workloads.grid import AXES


def degrees_of(cell: Cell, work: Training, gpus: int) -> dict[str, int]:
    """The degree of every axis; dp is what is left if it is not given.

    `ep` is an axis of its own where the product says so, else a part of dp, as Megatron has it.
    """
    given = work.parallelism
    others = given.tp * given.pp * given.cp
    place = ("workload", "parallelism")
    written = " x ".join(f"{axis} {getattr(given, axis)}" for axis in AXES if _told(given, axis))
    if given.dp is None:
        if gpus % (others * given.ep):
            message = f"{written or 'tp 1'} do not divide the {gpus} GPUs of the cluster"
            raise cell.source.error(place, message, key=True)
        return {
            "tp": given.tp,
            "cp": given.cp,
            "ep": given.ep,
            "dp": gpus // (others * given.ep),
            "pp": given.pp,
        }
    found = {axis: getattr(given, axis) for axis in AXES}
    if prod(found.values()) == gpus:
        return found
    if others * given.dp == gpus:
        if given.dp % given.ep:
            message = f"ep {given.ep} does not divide dp {given.dp}, whose ranks share the experts"
            raise cell.source.error((*place, "ep"), message)
        return {**found, "dp": given.dp // given.ep}
    product = prod(found.values())
    message = f"{written} make {product} ranks, but the cluster has {gpus} GPUs"
    hint = "leave dp out to have it follow from the others"
    raise cell.source.error(place, message, key=True, hint=hint)


def _others(given: Parallelism) -> dict[str, int]:
    return {axis: getattr(given, axis) for axis in AXES if axis != "dp"}


def _told(given: Parallelism, axis: str) -> bool:
    return axis in given.model_fields_set or getattr(given, axis) not in (None, 1)
