"""Warnings about a training step: options that have no effect, and groups that are placed badly."""

from collections.abc import Iterator

import numpy as np

from netsim.scenario.training import Training
from netsim.topology.cluster import Cluster
from netsim.workloads.data_parallel import Replica, Zero
from netsim.workloads.setting import Grid, Setting
from netsim.workloads.step import DATA
from netsim.workloads.tape import Tape, stage_ranks

NEAR_AXES = ("tp", "cp", "ep")  # whose groups exchange within layers, and so belong on NVLink


def step_warnings(work: Training, setting: Setting, cluster: Cluster) -> Iterator[str]:
    """The warnings about a step before it runs, a sentence each."""
    yield from _idle_overlap(work, setting)
    yield from _straddling_groups(setting.grid, cluster)


def _idle_overlap(work: Training, setting: Setting) -> Iterator[str]:
    """Yield a warning if `overlap` of a sharded optimizer (ZeRO-1, ZeRO-2, Megatron's distributed
    optimizer) has no effect: in every stage all gradient buckets complete at the same layer, so no
    backward computation is left to overlap their exchange.
    """
    if not work.replicas.overlap or DATA[setting.data] is not Zero or setting.copies == 1:
        return
    elements = 0
    for number, chunks in enumerate(setting.stages()):
        layers = tuple(layer for chunk in chunks for layer in chunk)
        stage = stage_ranks(setting.grid, number)
        replica = Replica(Tape(), setting, stage, layers)
        if len({bucket.layer for bucket in Zero(replica).buckets}) > 1:
            return
        elements = max(elements, sum(replica.elements.values()))
    megabytes = elements * setting.gradient_element / 1e6
    yield (
        f"workload.replicas.overlap changes nothing: the {megabytes:.3g} MB of gradients of a GPU "
        f"fit into one bucket of {setting.data}, which is full only when backward ends; a smaller "
        "workload.replicas.bucket (such as 100MiB) makes several"
    )


def _straddling_groups(grid: Grid, cluster: Cluster) -> Iterator[str]:
    """Yield a warning for groups that would fit into one NVLink domain but span two, because the
    GPUs of a domain are not a multiple of the group's footprint (its degree times those of all
    faster axes).
    """
    domains = cluster.domain[cluster.gpu_host]
    gpus_of_domain = int(np.bincount(domains).max())
    for axis in NEAR_AXES:
        place = grid.order.index(axis)
        footprint = int(np.prod([grid.degrees[name] for name in grid.order[: place + 1]]))
        if grid.degrees[axis] == 1 or footprint > gpus_of_domain:
            continue
        groups = domains[grid.groups((axis,))]
        straddling = int((groups.min(axis=1) != groups.max(axis=1)).sum())
        if straddling:
            remedy = _remedy(grid, axis, footprint, cluster, gpus_of_domain)
            yield (
                f"{straddling} of {len(groups)} {axis} groups lie in two NVLink domains and "
                f"exchange over the network: {gpus_of_domain} GPUs of a domain are no multiple of "
                f"{_product(grid, axis)}; {remedy}"
            )


def _product(grid: Grid, axis: str) -> str:
    """The GPUs that a group of an axis and of all faster axes (earlier in `grid.order`) takes, as a
    product: `tp 2 x ep 32 = 64`.
    """
    faster = grid.order[: grid.order.index(axis) + 1]
    parts = [f"{name} {grid.degrees[name]}" for name in faster if grid.degrees[name] > 1]
    if len(parts) == 1:
        return parts[0]
    return f"{' x '.join(parts)} = {int(np.prod([grid.degrees[name] for name in faster]))}"


def _remedy(grid: Grid, axis: str, footprint: int, cluster: Cluster, gpus_of_domain: int) -> str:
    """Advice how to align groups with domains: use fewer hosts of each domain, or a
    smaller degree.
    """
    remedies = []
    host_gpus = int(np.bincount(cluster.gpu_host).max())
    hosts = gpus_of_domain // host_gpus
    aligned = [count for count in range(1, hosts) if count * host_gpus % footprint == 0]
    if aligned:
        remedies.append(
            f"use {max(aligned)} of the {hosts} hosts of a domain (cluster.fabric: "
            f"{{kind: nvlink-domain, hosts: {max(aligned)}}})"
        )
    faster = footprint // grid.degrees[axis]
    degrees = [
        degree
        for degree in range(2, grid.degrees[axis])
        if grid.degrees[axis] % degree == 0 and gpus_of_domain % (faster * degree) == 0
    ]
    if degrees:
        remedies.append(f"have {axis} {max(degrees)}")
    if not remedies:
        return "no smaller degree or domain aligns them"
    return f"to align them, {', or '.join(remedies)}"
