"""NCCL's decisions for a collective of nccl-tests on a job, and the schedule of its call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import accumulate, repeat
from typing import Any, cast

import numpy as np

from netsim.base.errors import InputError
from netsim.collectives.collective import Collective
from netsim.nccl import split, tuning
from netsim.nccl.communicator import Communicator
from netsim.nccl.constants import Mechanism
from netsim.nccl.facts import AUTO, COLLECTIVES, Function, Protocol
from netsim.nccl.job import NcclJob, Wishes
from netsim.nccl.p2p import Rounds, Sends, distinct_rows
from netsim.nccl.schedules.collnet import (
    collnet_chain,
    collnet_direct,
    network_blocks,
    nvls_network,
)
from netsim.nccl.schedules.loops import without_loops
from netsim.nccl.schedules.nvls import nvls, nvls_tree
from netsim.nccl.schedules.pat import pat
from netsim.nccl.schedules.plan import NET, SEND_RECV, Ints, Plan, Work
from netsim.nccl.schedules.ring import WALKS, ring
from netsim.nccl.schedules.send_recv import send_recv
from netsim.nccl.schedules.transfers import Transfers
from netsim.nccl.schedules.tree import chain, tree
from netsim.nccl.schedules.writing import Output
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.schedule import Schedule
from netsim.topology.graph import Topology

CROWDED = ("alltoall", "alltoallv", "gather")  # of which a rank receives from several at a time


def planned(job: NcclJob, collective: Collective, dtype: str) -> Plan:
    """Return NCCL's decisions for a collective; `nccl_plan` adds the ranks and routes."""
    if collective.name not in COLLECTIVES:
        return plan_sends(job.sends, job.rounds, *busiest_sender(collective))
    arguments = call_of(collective, dtype), collective.count, collective.element_bytes
    return job.memo.of(arguments, lambda: plan_call(job.comm, *arguments))


def plan_call(comm: Communicator, call: tuning.TunedCall, count: int, element_bytes: int) -> Plan:
    """Return NCCL's decisions for one call of an NCCL function, without ranks and routes.

    - `call`: function, bytes and data type, as NCCL's choice of algorithm sees them.
    - `count`: the number of elements as in the call (of one rank for AllGather and ReduceScatter).
    - `element_bytes`: bytes of an element.
    """
    choice = tuning.choose(comm, call)
    named = choice.algorithm, choice.protocol
    used = tuning.launch(comm, call.nbytes, *named, choice.n_channels)
    if not comm.facts.continuous_split or split.evenly_split(comm, choice.algorithm):
        work = _in_loops(comm, call.function, choice, used, count, element_bytes)
        return Plan(*named, (), work, used.n_channels, choice.tuned)
    counts = split.split_over_channels(
        call.function, choice.protocol, count, element_bytes, used.n_channels, comm.n_ranks
    )
    scale = _scale(comm, call.function) * element_bytes
    chunks = (split.chunk_bytes(comm, call.function, *named, own * scale) for own in counts)
    work = _works(counts, chunks)
    # Channels without a part of the data do not run.
    return Plan(*named, (), work, max(1, len(work)), choice.tuned)


def _scale(comm: Communicator, function: Function) -> int:
    """Return the factor from the count of a call to the elements that NCCL's rules compare.

    It is the number of ranks for AllGather and ReduceScatter, because their count is that of one
    rank; else 1.
    """
    return comm.n_ranks if function in ("AllGather", "ReduceScatter") else 1


def _in_loops(
    comm: Communicator,
    function: Function,
    choice: tuning.AlgorithmChoice,
    used: tuning.LaunchSize,
    count: int,
    element: int,
) -> tuple[Work, ...]:
    """Return the part of every channel, if all channels share the data equally.

    They do so if the network reduces, and in all calls before NCCL 2.22, where all channels share
    every loop over the data. The chunks that a channel has in all loops are joined to one part.

    - `used`: the channels and threads of the call.
    - `count`, `element`: the elements of the call, and the bytes of an element.
    """
    n = used.n_channels
    nbytes = count * element
    named = (choice.algorithm, choice.protocol)
    total = nbytes * _scale(comm, function)
    chunk = split.chunk_bytes(comm, function, *named, total, n_channels=n)
    if split.evenly_split(comm, choice.algorithm):
        return _works((each // element for each in split.split_evenly(nbytes, n)), repeat(chunk))
    heads = {"Ring": comm.n_ranks, "NVLS": comm.n_heads, "NVLSTree": comm.n_heads}
    spread = heads.get(choice.algorithm, 1) if function == "AllReduce" else 1
    loops = split.shared_loops(nbytes, chunk, n, used.n_threads, choice.protocol, spread=spread)
    ring = choice.algorithm == "Ring" and spread > 1
    in_turn = ring and choice.protocol != "Simple"  # runRing of NCCL's device/all_reduce.h
    parts = split.shared_parts(loops, nbytes, n, spread=spread, in_turn=in_turn)
    return _works((each // element for each in parts), repeat(chunk), loops.last if ring else 0)


def plan_sends(sends: Sends, rounds: Rounds, rank: int, peers: Ints, nbytes: Ints) -> Plan:
    """Return NCCL's decisions for the sends of one rank, grouped in one call.

    - `rounds`: the order in which ranks send to each other.
    - `peers`: the ranks that `rank` sends to; `nbytes`: the bytes to each of them.

    The plan has protocol and number of channels only; it states no messages.
    """
    total = sends.channels.total
    first = rounds.channels(rounds.numbers(rank, peers), total)
    kinds, _ = distinct_rows([nbytes, first, rounds.crosses(rank, peers), peers == rank])
    works = [
        (sends.work(size, base, rounds, over_network=bool(crosses)), bool(own))
        for size, base, crosses, own in kinds
    ]
    others = [work for work, own in works if not own] or [work for work, _ in works]
    protocol = cast("Protocol", "/".join(sorted({work.protocol for work in others})))
    channels = {channel for work, _ in works for channel in work.channels}
    return Plan(SEND_RECV, protocol, n_channels=max(1, len(channels)))


def call_of(collective: Collective, dtype: str) -> tuning.TunedCall:
    """Return a collective of nccl-tests as a call of NCCL's function for it."""
    return tuning.TunedCall(COLLECTIVES[collective.name], collective.size_bytes, dtype)


def cost_table(job: NcclJob, collective: Collective, dtype: str) -> tuple[tuning.TimedCost, ...]:
    """Return the cost table that NCCL compares for a collective; empty for sends and receives."""
    if collective.name not in COLLECTIVES:
        return ()
    return tuning.timed_costs(job.comm, call_of(collective, dtype))


def fallback(job: NcclJob, collective: Collective, dtype: str) -> str:
    """Return what NCCL runs instead if it cannot run what the user admits, as a text for messages.

    It is empty if NCCL can, and for versions from 2.24 on, which stop with an error instead.
    """
    if collective.name not in COLLECTIVES:
        return ""
    return tuning.fallback_reason(job.comm, call_of(collective, dtype))


def check_wishes(collective: str, wishes: Wishes) -> None:
    """Raise an InputError if an algorithm or protocol is forced that cannot be.

    It cannot be forced twice (as an option and as a variable), nor for a `collective` that NCCL
    runs as sends and receives, which have no algorithm.
    """
    wishes.settings()
    for kind, wish in (("algorithm", wishes.algorithm), ("protocol", wishes.protocol)):
        if wish != AUTO and collective not in COLLECTIVES:
            raise InputError(
                f"NCCL runs {collective} as sends and receives, without a choice of {kind}",
                hint=f"leave {kind} at auto",
            )


def busiest_sender(collective: Collective) -> tuple[int, Ints, Ints]:
    """Return the rank that sends most, the ranks that it sends to, and the bytes to each rank.

    Of a collective that lists its pairs of ranks, it is the sender of the first pair.
    """
    ranks = collective.ranks
    nbytes = collective.count * collective.element_bytes
    if collective.name == "barrier":
        raise InputError("NCCL has no barrier", hint="choose a textbook algorithm")
    if collective.name == "alltoallv":
        rows = np.array(collective.matrix) * collective.element_bytes
        rank = int(rows.sum(axis=1).argmax())
        peers = np.flatnonzero(rows[rank])
        return rank, peers, rows[rank, peers]
    rank = 0
    peers = np.arange(ranks)
    if collective.name == "sendrecv":
        peers = np.array([1 % ranks])
    elif collective.name == "gather":
        rank = (collective.root + 1) % ranks
        peers = np.array([collective.root])
    elif collective.name == "p2p":
        rank = collective.pairs[0][0]
        peers = np.array([target for source, target in collective.pairs if source == rank])
    elif collective.name == "scatter":
        rank = collective.root
    return rank, peers, np.full(len(peers), nbytes)


def operations(collective: Collective) -> int:
    """Return the number of sends and receives that a rank groups in one call.

    It is 0 if NCCL has a function for the collective.
    """
    if collective.name in COLLECTIVES:
        return 0
    return 2 * len(busiest_sender(collective)[1])


def nccl_plan(
    job: NcclJob,
    collective: Collective,
    dtype: str,
    *,
    registered: bool = False,
    direct: bool = False,
) -> Plan:
    """Return how NCCL runs a collective on a job: its decisions, ranks, routes and costs.

    - `dtype`: the data type, as nccl-tests names it.
    - `registered`: whether the user has registered the buffers.
    - `direct`: whether one process has all GPUs of a node.
    """
    comm, wiring, (link, links) = job.comm, job.wiring, job.wiring.links
    usual: dict[str, Any] = {"mechanism": job.mechanism, "memo": job.memo}
    usual |= {"node": wiring.node, "link": link, "links": links}
    usual["cached"] = 2 * collective.size_bytes <= job.mechanism.cache  # input and output
    chosen = planned(job, collective, dtype)
    if chosen.algorithm == SEND_RECV:
        # Since 2.12 the GPU beside the NIC on the receiver's rail relays sends between nodes (PXN),
        # unless the user has disabled PXN.
        pxn = "PXN" in comm.facts.path_types and comm.settings.pxn_level == 2
        usual["crowded"] = comm.nvswitch and collective.ranks > 2 and collective.name in CROWDED
        usual["far"] = "pxn" if pxn and not comm.settings.pxn_disabled else NET
        return replace(chosen, transfers=Transfers(collective, job.rounds, job.sends), **usual)
    # No routes are stated for heads of NVLSTree and ranks of PAT: each uses its own NIC, which the
    # topology chooses by default.
    ways = {"Ring": wiring.ring_routes, "Tree": wiring.tree_routes}
    heads = wiring.direct if chosen.algorithm == "CollNetDirect" else wiring.nvls
    direct = direct and chosen.protocol == "Simple" and comm.facts.direct
    return replace(
        chosen,
        rings=wiring.rings,
        trees=wiring.trees,
        heads=heads.ranks,
        chains=wiring.chains.ranks,
        nic_routes=wiring.chains.nic_routes
        if chosen.algorithm == "CollNetChain"
        else heads.nic_routes,
        routes=ways.get(chosen.algorithm, {}),
        direct=direct and not comm.settings.p2p_direct_disabled,
        registered=registered,
        slot_bytes=split.slot_bytes(chosen.protocol, comm.settings),
        **usual,
    )


def _works(counts: Iterable[int], chunks: Iterable[int], last: int = 0) -> tuple[Work, ...]:
    """Return the parts of consecutive channels; channels without elements are left out.

    - `counts`: the elements of each channel.
    - `chunks`: the bytes of a chunk of each channel.
    - `last`: the bytes of a chunk of the last loop, of all channels (see `Work`).
    """
    element_counts = list(counts)
    starts = accumulate(element_counts, initial=0)
    channels = range(len(element_counts))
    columns = zip(channels, starts, element_counts, chunks, strict=False)
    return tuple(Work(*part, last) for part in columns if part[2])


# **** Schedules ****

Generator = Callable[[Collective, Plan, Extent], Schedule]


def _ring(collective: Collective, plan: Plan, extent: Extent) -> Schedule:
    """Return the schedule of a collective on rings: around them, or along them (Broadcast,
    Reduce).
    """
    return (ring if collective.name in WALKS else chain)(collective, plan, extent)


def _nvls(collective: Collective, plan: Plan, extent: Extent) -> Schedule:
    """Return the schedule of a collective with NVLS, on one node or over several."""
    if len(plan.heads) == 1:
        return nvls(collective, plan, extent)
    over_network = nvls_network if collective.name == "all_reduce" else network_blocks
    return over_network(collective, plan, extent)


def _direct(collective: Collective, plan: Plan, extent: Extent) -> Schedule:
    """Return the schedule of a collective with CollNetDirect."""
    over_network = collnet_direct if collective.name == "all_reduce" else network_blocks
    return over_network(collective, plan, extent)


GENERATORS: dict[str, Generator] = {
    "Ring": _ring, "Tree": tree, "NVLS": _nvls, "NVLSTree": nvls_tree, "PAT": pat,
    "CollNetDirect": _direct, "CollNetChain": collnet_chain, "SendRecv": send_recv,
}  # fmt: skip


def schedule_of(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return the schedule of one call as NCCL runs it, or only the part that `extent` selects."""
    if len(plan.node) != collective.ranks:
        raise ValueError(f"node: expected {collective.ranks} ranks, got {len(plan.node)}")
    if plan.algorithm not in GENERATORS:
        names = ", ".join(GENERATORS)
        raise ValueError(f"algorithm: expected one of {names}, got {plan.algorithm!r}")
    if collective.ranks == 1:
        return Output(collective).close()
    shorter, shorter_plan = without_loops(collective, plan, extent.loops_left_out)
    return GENERATORS[plan.algorithm](shorter, shorter_plan, extent)


def with_blocks(topology: Topology, mechanism: Mechanism) -> Topology:
    """Return a topology whose GPUs have the resource `sm`: SMs as fast as a block of NCCL.

    Its capacity is the rate of a block (`Mechanism.rate` of Simple, bytes/s). If the capacity `sms`
    of a GPU is reduced, its SMs are slower by the same factor.
    """

    def made() -> Topology:
        """Return the topology with the resource `sm` added."""
        rate = np.full(len(topology), mechanism.rate.simple) * topology.capacities.get("sms", 1.0)
        return replace(topology, capacities={**topology.capacities, "sm": rate})

    return topology.memo.of(("with blocks", mechanism.rate.simple), made)
