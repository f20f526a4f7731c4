"""A machine and its transport with what was fitted or measured on that very system.

A machine file may have a `calibration` section: figures by dotted name, each with its stamp. Those
of the machine itself and of its transport are applied here, those of execution by `netsim.nccl`.
"""

from dataclasses import replace
from typing import Any

from netsim.constants import value
from netsim.topology.machine import Machine
from netsim.topology.stamped import BOTH_WAYS, MACHINE, TRANSPORT, value_of
from netsim.topology.transports import Transport


def calibrated_machine(machine: Machine) -> Machine:
    """The machine with its calibrated figures in place of its nominal ones."""
    for name in MACHINE:
        part, _, field = name.partition(".")
        figure, now = machine.calibration.get(name), getattr(machine, part)
        if figure is not None and now is not None:
            changed = now.model_copy(update={field: value_of(name, figure)})
            machine = machine.model_copy(update={part: changed})
    return machine


def calibrated_transport(transport: Transport, machine: Machine) -> Transport:
    """The transport with what a machine was seen to reach of it."""
    found: dict[str, Any] = {
        name.partition(".")[2]: value_of(name, machine.calibration[name])
        for name in TRANSPORT
        if name in machine.calibration
    }
    return replace(transport, **found) if found else transport


def both_ways(machine: Machine) -> float:
    """What GPUs' loads and stores reach of a PCIe link's rate, both ways together."""
    figure = machine.calibration.get(BOTH_WAYS)
    return value("pcie.both_ways") if figure is None else value_of(BOTH_WAYS, figure)
