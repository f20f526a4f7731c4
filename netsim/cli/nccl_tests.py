"""The run of nccl-tests that a cell stands for: what the header of its log and its JSON say."""

import json
from collections.abc import Sequence
from pathlib import Path

from netsim.files import write_text
from netsim.nccl.version import parse_version
from netsim.results import Row
from netsim.results.nccl_json import document
from netsim.results.nccl_tests import Device, TestRun
from netsim.simulate import Prepared
from netsim.topology.nccl_view import gpu_bus


def run_of(prepared: Prepared) -> TestRun:
    """The header of a cell; processes are numbered from 1, for nothing of the kind runs."""
    scenario, work = prepared.cell.scenario, prepared.cell.scenario.collective
    style = scenario.launch_costs().style
    variables = dict(scenario.nccl.env)
    if work.split is not None:
        variables["NCCL_TESTS_SPLIT"] = work.split
    return TestRun(
        collective=work.collective,
        sizes=tuple(work.size_list()),
        devices=_devices(prepared, one_process=style == "single_process"),
        n_gpus=prepared.gpus_per_node if style == "single_process" else 1,
        nccl_code=parse_version(scenario.nccl.version).code if prepared.jobs else None,
        cuda_graph=style == "cuda_graph",
        root=work.root,
        dtype=work.dtype,
        variables=tuple(variables.items()),
    )


def write_json(path: Path, run: TestRun, rows: Sequence[Row]) -> Path:
    """Write the file of -J; as nccl-tests does, leave a file that exists alone and add a number."""
    found, number = path, 0
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}.{number}")
    return write_text(found, json.dumps(document(run, rows), indent=1) + "\n")


def _devices(prepared: Prepared, *, one_process: bool) -> tuple[Device, ...]:
    """The ranks in order, with host and device as the topology names them (node0.gpu3)."""
    group = {rank: number for number, ranks in enumerate(prepared.groups) for rank in ranks}
    hosts: dict[str, int] = {}
    found = []
    models = _models(prepared)
    for rank, gpu in enumerate(prepared.gpus.tolist()):
        host, _, name = str(prepared.topology.gpus[gpu]).rpartition(".")
        number = hosts.setdefault(host, len(hosts))
        digits = name.removeprefix("gpu")
        device = int(digits) if digits.isdecimal() else gpu
        process = number + 1 if one_process else rank + 1
        found.append(
            Device(
                rank, group[rank], process, host or "graph", device, gpu_bus(device), models[gpu]
            )
        )
    return tuple(found)


def _models(prepared: Prepared) -> list[str]:
    """The model of every GPU of the cluster."""
    if not prepared.jobs:
        return ["GPU"] * len(prepared.topology)
    cluster = prepared.jobs[0].cluster
    return [cluster.machine_of(host).gpu.model for host in cluster.gpu_host.tolist()]
