"""Machines adjusted: other NICs, single figures overridden. Values in, values out."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import pydantic

from netsim.errors import suggest
from netsim.topology.host import make_host
from netsim.topology.machine import Machine, Nics
from netsim.topology.transports import Transport
from netsim.yamlio.branches import all_findings
from netsim.yamlio.model import FieldError, Model

M = TypeVar("M", bound=Model)


def with_figures(model: M, changes: Mapping[str, Any], *path: str | int) -> M:
    """The model with the figures of a partial mapping in place of its own."""
    update: dict[str, Any] = {}
    for key, value in changes.items():
        field = type(model).model_fields.get(key)
        if field is None:
            known = list(type(model).model_fields)
            raise FieldError(f"unknown key '{key}'{suggest(key, known)}", *path, key)
        now = getattr(model, key)
        if isinstance(now, Model) and isinstance(value, Mapping):
            update[key] = with_figures(now, value, *path, key)
            continue
        kind: Any = field.annotation
        for part in field.metadata:
            kind = Annotated[kind, part]
        update[key] = _validated(kind, value, (*path, key))
    return _rechecked(model.model_copy(update=update), path)


def _validated(kind: Any, value: Any, path: tuple[str | int, ...]) -> Any:
    one = pydantic.create_model("one", __base__=Model, value=(kind, ...))
    try:
        return one.model_validate({"value": value}).value  # type: ignore[attr-defined]
    except pydantic.ValidationError as error:
        first = all_findings(error, one, ())[0]
        raise FieldError(first.text, *path, *first.path[1:]) from None


def _rechecked(model: M, path: tuple[str | int, ...]) -> M:
    """The rules between the fields hold for what was changed, too."""
    for name in type(model).__pydantic_decorators__.model_validators:
        try:
            getattr(model, name)()
        except FieldError as error:
            raise FieldError(error.message, *path, *error.path) from None
    return model


def with_nics(
    machine: Machine,
    count: int | None,
    rate: float | None,
    gpus: Sequence[int],
    transport: Transport,
) -> Machine:
    """The machine with `count` NICs of a rate near the GPUs in use, as the transport shows them."""
    nics = machine.nics
    count = count if count is not None or nics is None else nics.count
    if nics is None or count is None or count == 0:
        return machine.model_copy(update={"nics": None})
    share = 1.0
    if transport.groups and count > machine.gpu.count:
        share, count = count / machine.gpu.count, machine.gpu.count
    chosen = _chosen(machine, nics, count, gpus)
    rates = tuple((rate or nics.rates[nic]) * share for nic in chosen)
    changed = {
        "count": count,
        "rate": rates[0],
        "rate_each": rates,
        "pcie": tuple(machine.link_of(nics, nic) for nic in chosen),
        "at": tuple(machine.nic_at(nic) for nic in chosen),
        "gpudirect": nics.gpudirect and transport.gpudirect,
    }
    return machine.model_copy(
        update={"nics": nics.model_copy(update=changed), "transport": transport.name}
    )


def _chosen(machine: Machine, nics: Nics, count: int, gpus: Sequence[int]) -> list[int]:
    """Which of the machine's NICs stand for the `count` wanted: those near GPUs first."""
    every = list(range(nics.count))
    if count >= nics.count:
        return [nic * nics.count // count for nic in range(count)]
    near = sorted(set(make_host(machine, gpus).local.ravel().tolist()))
    others = [nic for nic in every if nic not in near]
    few = min(count, len(near))
    evenly = [near[index * len(near) // few] for index in range(few)]
    return sorted(evenly + others[: count - few])
