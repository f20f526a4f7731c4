"""`netsim topo`: the machines that are known, and what one of them looks like inside."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer

from netsim.presets import preset_names
from netsim.topology.affinity import PATH_TYPES, path_types
from netsim.topology.host import Host, make_host
from netsim.topology.load import find_machine
from netsim.topology.machine import Machine, ScaleUp
from netsim.units import format_bandwidth, format_size

Name = Annotated[str, typer.Argument(help="A machine: a preset or a file.", metavar="NAME")]


def list_machines() -> None:
    """List the machines that come with netsim and those in ./topologies."""
    rows = [("name", "GPUs", "GPU", "scale-up a GPU", "NICs", "what for")]
    for name in preset_names("topologies"):
        machine = find_machine(name).machine
        rows.append(
            (
                name,
                str(machine.gpu.count),
                machine.gpu.model,
                _scale_up(machine),
                _nics(machine),
                machine.purpose,
            )
        )
    for line in _columns(rows):
        typer.echo(line)


def show(name: Name) -> None:
    """Show a machine: its figures, and the paths between GPUs and NICs as NCCL names them."""
    found = find_machine(name)
    machine = found.machine
    host = make_host(machine, range(machine.gpu.count))
    if found.note:
        typer.echo(found.note, err=True)
    typer.echo(f"{found.name}: {machine.description}")
    for label, text in _figures(machine):
        typer.echo(f"  {label:<22} {text}")
    typer.echo()
    for line in _columns(_matrix(host)):
        typer.echo(line)
    typer.echo("\nNVL: NVLink or xGMI   NVB: NVLink through a GPU   PIX: one PCIe switch")
    typer.echo("PXB: several PCIe switches   PHB: through a CPU   SYS: between sockets")


VERBS = {"list": list_machines, "show": show}


def _figures(machine: Machine) -> list[tuple[str, str]]:
    gpu, cpu = machine.gpu, machine.cpu
    memory = f"{format_size(gpu.memory)}, {format_bandwidth(gpu.memory_bandwidth)}"
    figures = [
        ("GPUs", f"{gpu.count} x {gpu.model} ({gpu.arch}, {gpu.sms} SMs)"),
        ("memory a GPU", memory),
        ("scale-up a GPU", f"{_scale_up(machine)} in each direction, usable"),
        ("PCIe", f"gen {machine.pcie.generation} x{machine.pcie.width}, "
                 f"{format_bandwidth(machine.pcie.usable)} usable in each direction"),
        ("CPU", f"{cpu.vendor} {cpu.model}, {cpu.domains} NUMA domains"),
        ("NICs", _nics(machine)),
        ("peer access", "yes" if machine.p2p else "no: GPUs exchange data through host memory"),
    ]  # fmt: skip
    return figures


def _scale_up(machine: Machine) -> str:
    up = machine.scale_up
    if up is None:
        return "none"
    kind = {"nvlink": "NVLink", "xgmi": "xGMI"}[up.kind]
    links = _most_links(machine.gpu.count, up)
    return f"{format_bandwidth(links * up.link_bandwidth)} ({links} {kind} links)"


def _most_links(gpus: int, up: ScaleUp) -> int:
    """Links of the GPU that has the most."""
    if up.links is not None:
        return up.links if up.switches is not None else up.links * (gpus - 1)
    mine = [sum(count for *pair, count in up.peers if gpu in pair) for gpu in range(gpus)]
    return max(mine)


def _nics(machine: Machine) -> str:
    nics = machine.nics
    if nics is None:
        return "none"
    return f"{nics.count} x {format_bandwidth(nics.rate, bits=True)} {nics.model}"


def _matrix(host: Host) -> list[tuple[str, ...]]:
    """Path types between GPUs and to NICs, in the manner of `nvidia-smi topo -m`."""
    between, to_nic = path_types(host.layout, host.peer), path_types(host.layout, host.out)
    gpus = [f"GPU{number}" for number in host.gpus]
    nics = [f"NIC{number}" for number in range(host.nics)]
    rows = [("", *gpus, *nics)]
    for number, gpu in enumerate(gpus):
        kinds = [PATH_TYPES[int(kind)] for kind in between[number]]
        kinds[number] = "X"
        rows.append(
            (gpu, *kinds, *(PATH_TYPES[int(kind)] for kind in np.atleast_1d(to_nic[number])))
        )
    return rows


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
