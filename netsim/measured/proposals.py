"""What a log says about the system it ran on: machine, hosts, launch style, NCCL; and whether a
scenario contradicts it.
"""

import re
from dataclasses import dataclass

from netsim.errors import InputError
from netsim.measured.log_run import LogRun
from netsim.measured.logs import true_ranks
from netsim.measured.mapping import GPUS_A_PROCESS
from netsim.measured.versions import version_of
from netsim.nccl.environment import is_known, settings_from
from netsim.nccl.version import NEWEST, parse_version

# By the name that nccl-tests prints: machine with up to four GPUs on a host, and with more.
MACHINES = (
    ("GB300", "gb300-nvl72", "gb300-nvl72"),
    ("GB200", "gb200-nvl72", "gb200-nvl72"),
    ("GH200", "gh200-x4", "gh200-x4"),
    ("B300", "hgx-b300", "hgx-b300"),
    ("B200", "dgx-b200", "dgx-b200"),
    ("H200", "hgx-h200", "hgx-h200"),
    ("H800", "hgx-h800", "hgx-h800"),
    ("H100", "dgx-h100", "dgx-h100"),
    ("A800", "hgx-a800", "hgx-a800"),
    ("A100.*PCIE", "a100-pcie-x4", "a100-pcie-x4"),
    ("A100", "a100-x4", "dgx-a100"),
    ("V100-SXM3", "dgx-2", "dgx-2"),
    ("V100-PCIE", "v100-pcie-x4", "v100-pcie-x4"),
    ("V100", "dgx-1-v100", "dgx-1-v100"),
    ("L40S", "l40s-pcie-x8", "l40s-pcie-x8"),
    ("A10(?!0)", "a10-pcie-x4", "a10-pcie-x4"),
    ("RTX 2080 Ti", "rtx2080ti-x2", "rtx2080ti-x2"),
    ("RTX 4090", "rtx4090-x8", "rtx4090-x8"),
    ("RTX 5090", "rtx5090-x4", "rtx5090-x4"),
    ("RTX (?:PRO )?6000", "rtx6000d-x8", "rtx6000d-x8"),
    ("MI300X", "mi300x", "mi300x"),
    ("MI350X", "mi350x", "mi350x"),
    ("MI355X", "mi355x", "mi355x"),
    ("R9700", "r9700", "r9700"),
)


@dataclass(frozen=True)
class Proposal:
    """What a log proposes; None where it does not say. `notes` tell from what."""

    machine: str | None
    ranks: tuple[int, int] | None
    hosts: int | None
    launch: str | None
    nccl: str | None
    variables: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def proposal_of(run: LogRun) -> Proposal:
    """What a run of a log says about its system."""
    notes: list[str] = []
    listed, told = run.listed_ranks, true_ranks(run)
    ranks = told if listed is None else (listed, listed)
    if listed is not None and told is not None and not told[0] <= listed <= told[1]:
        notes.append(
            f"the log lists {listed} ranks, but busbw ÷ algbw is that of {_span(told)}: "
            "the latter holds"
        )
        ranks = told
    whole = listed is not None and len(run.devices) == listed
    hosts = len(run.hosts) if whole else None
    most = max(run.hosts.values()) if whole else 8
    machine = machine_named(run.gpu_name, most)
    version = None
    if run.nccl:
        given = str(parse_version(run.nccl)) if run.nccl.isdecimal() else run.nccl
        found, note = version_of(given)
        version = str(found)
        notes += [note] * bool(note)
    return Proposal(
        machine, ranks, hosts, _launch(run), version, _variables(run, notes), tuple(notes)
    )


def machine_named(gpu: str, gpus: int) -> str | None:
    """The machine that has so many GPUs of this name on a host."""
    for text, small, large in MACHINES:
        if re.search(rf"\b{text}", gpu, re.IGNORECASE):
            return small if gpus <= 4 else large
    return None


def check_ranks(run: LogRun, ranks: int, hosts: int) -> None:
    """Refuse a topology with another number of GPUs than the log had."""
    said = proposal_of(run)
    if said.ranks is not None and not said.ranks[0] <= ranks <= said.ranks[1]:
        how = "by its list of devices" if run.listed_ranks == said.ranks[0] else "busbw ÷ algbw"
        raise InputError(
            f"{run.file}: the log ran on {_span(said.ranks)} ranks ({how}), the topology has "
            f"{ranks} GPUs on {hosts} host{'s' * (hosts > 1)}",
            hint="--nodes and --gpus-per-node say how many",
        )


def contradictions(run: LogRun, launch: str, hosts: int) -> list[str]:
    """What a scenario has otherwise than the log."""
    said = proposal_of(run)
    found = list(said.notes)
    if said.launch is not None and launch not in (said.launch, "cuda_graph"):
        found.append(f"the log was launched as {said.launch}, the scenario has {launch}")
    if said.hosts is not None and said.hosts != hosts:
        found.append(f"the log names {said.hosts} hosts, the scenario has {hosts}")
    return found


def _launch(run: LogRun) -> str | None:
    """By processes and ranks, by the settings line, by the command."""
    if run.devices and len(run.devices) == run.listed_ranks:
        processes = {device.process for device in run.devices}
        several = len(processes) < len(run.devices)
        return "single_process" if several else "process_per_gpu"
    if run.gpus_per_process is not None:
        return "single_process" if run.gpus_per_process > 1 else "process_per_gpu"
    match = GPUS_A_PROCESS.search(run.command)
    if match:
        return "single_process" if int(match.group(1)) > 1 else "process_per_gpu"
    return None


def _variables(run: LogRun, notes: list[str]) -> tuple[tuple[str, str], ...]:
    """NCCL's variables of the log that mean something here."""
    found = []
    for name, value in run.variables.items():
        try:
            if is_known(name):
                settings_from({name: value}, NEWEST)
                found.append((name, value))
        except InputError as error:
            notes.append(f"left out: {error}")
    return tuple(found)


def _span(ranks: tuple[int, int]) -> str:
    return str(ranks[0]) if ranks[0] == ranks[1] else f"{ranks[0]} to {ranks[1]}"
