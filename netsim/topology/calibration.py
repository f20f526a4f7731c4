"""A machine and its transport with what was fitted or measured on that very system.

A machine file may have a `calibration` section: figures by dotted name, each with its stamp. Those
of the machine itself and of its transport are applied here, those of execution by `netsim.nccl`.
"""

from dataclasses import replace

from netsim.topology.machine import Machine
from netsim.topology.stamped import MACHINE, USABLE, value_of
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
    """The transport with the usable part of the line rate that a machine was seen to reach."""
    figure = machine.calibration.get(USABLE)
    return transport if figure is None else replace(transport, usable=value_of(USABLE, figure))
