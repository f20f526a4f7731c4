"""Explain the time of a cell at one size: the operation that traces, pictures and explanations
show.

It is one operation from an idle cluster, with all of its rows or, if these are too many, with
representatives or only the first steps of long rings.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from netsim.base.errors import InputError, NetsimError
from netsim.base.startup import at, on
from netsim.base.units import format_size
from netsim.base.values import dataclass, grouped
from netsim.engines.engine import simulate
from netsim.explain.explanation import as_values, explain
from netsim.explain.what_if import MOST_ROWS, Case
from netsim.extent.invariants import Answer, check
from netsim.extent.shown import shown_schedule
from netsim.nccl.communicator import Communicator
from netsim.program.distinct_routes import connections_on_links
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.results.row import Row
from netsim.scenario.cells import expand
from netsim.scenario.models import node_count
from netsim.schedule.schedule import Schedule
from netsim.tasks.limits import limit_columns
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.row import row_of_size
from netsim.topology.graph import LINK_KINDS
from netsim.topology.load import SHARED
from netsim.topology.network import Fabric, Policy, Selection
from netsim.topology.router import ClusterRouter
from netsim.yamlio.models import override


@dataclass(frozen=True, slots=True)
class ShownOperation:
    """The schedule of the operation that is shown, and notes on what it leaves out."""

    schedule: Schedule
    notes: tuple[str, ...] = ()


def shown_of(resolved: ResolvedCell, size: int) -> ShownOperation:
    """The operation of a cell at a size that is shown: one operation, out of place."""
    schedule, note = shown_schedule(resolved.task(size), resolved.budget)
    return ShownOperation(schedule, (note,) if note else ())


# **** Explanation **** The explanation of one cell at one size: one operation from an idle cluster.


def explained_run(
    resolved: ResolvedCell, size: int, *, engine: str = "auto", most_rows: int = MOST_ROWS
) -> tuple[dict[str, Any], Program, Timeline]:
    """The causes of the time of a cell at a size as plain values in µs; with the program that was
    simulated and its timeline.

    The runs that answer "what if" simulate at most `most_rows` rows together.
    """
    title = explained_title(resolved, size)
    on(title)
    shown = shown_of(resolved, size)
    program = place(shown.schedule, resolved.topology, resolved.gpus.tolist())
    timeline = simulate(program, engine)
    program = program.as_run(timeline)
    launch = resolved.launch(size)
    case = Case(program, launch.host + launch.kernel)
    values = as_values(explain(case, timeline, engine=engine, most_rows=most_rows))
    plan = resolved.planned(size)
    name = f"NCCL's {plan.algorithm}" if plan else resolved.cell.scenario.collective.algorithm
    limit: dict[str, Any] | None = None
    if not shown.notes:  # the complete operation is shown, and not only some loops of it
        limit = {"who": name, **limit_columns(resolved, size, timeline.makespan, is_single=True)}
        check(Answer(timeline.makespan, limit=limit["limit_us"] * 1e-6), title)
    title = resolved.cell.title(title, *shown.notes)
    return {"title": title, **values, "limit": limit}, program, timeline


def explained_title(resolved: ResolvedCell, size: int) -> str:
    """The operation in words: collective, size, number of GPUs, algorithm and protocol."""
    work = resolved.cell.scenario.collective
    plan = resolved.planned(size)
    algorithm_text = f"{plan.algorithm} {plan.protocol}" if plan else work.algorithm
    ranks = len(resolved.groups[0])
    return f"{work.collective} of {format_size(size)} on {ranks} GPUs, {algorithm_text}"


# **** Paths **** How the connections of an operation spread over the links between switches, how
# its time depends on the seed of hashes, and which settings would change its time; each change is
# simulated.

MOST_KINDS = 8  # with more kinds of links between switches, all are counted together


def explained_paths(
    resolved: ResolvedCell, size: int, *, seeds: int, engine: str = "auto"
) -> dict[str, Any]:
    """The paths of a cell at one size, and its time with other settings, as plain values in µs;
    each setting is simulated with `seeds` seeds.
    """
    selection = _selection(resolved)
    if selection is None or not len(selection.built.core):
        raise InputError("--paths: no links between switches", hint="it takes a fabric of several")
    policy = selection.policy
    tried = []
    on_trial = {"now": {}, **_changes(resolved, selection.fabric, policy)}
    on(explained_title(resolved, size))
    for number, (label, changes) in enumerate(on_trial.items()):
        at(label, number, len(on_trial))
        tried.append(_times_with(resolved, size, label, changes, seeds, engine))
    return {
        "routing": policy.routing,
        "qps": policy.qps,
        "spread": list(_connections_by_kind(resolved, size)),
        "tried": tried,
    }


def _selection(resolved: ResolvedCell) -> Selection | None:
    """The Selection (routing policy and fabric) by which a cell's paths are chosen; None without a
    fabric.
    """
    router = resolved.topology.router
    return router.selection if isinstance(router, ClusterRouter) else None


def _connections_by_kind(resolved: ResolvedCell, size: int) -> Iterator[dict[str, Any]]:
    """Yield a mapping for each kind of link between switches: how many links there are and are
    used, how many connections are on them in all, on average and at most, and which link has most.

    If there are more than `MOST_KINDS` kinds, all links are counted together.
    """
    topology = resolved.topology
    links = topology.links
    flows = connections_on_links(shown_of(resolved, size).schedule, topology, resolved.gpus)
    between = np.flatnonzero(links.kind == LINK_KINDS.index("fabric"))
    kind = [str(name).rstrip("0123456789") for name in topology.nodes]
    kinds = grouped(
        between.tolist(), lambda link: f"{kind[links.tail[link]]} -> {kind[links.head[link]]}"
    )
    if len(kinds) > MOST_KINDS:
        kinds = {"switch -> switch": between.tolist()}
    for name, members in kinds.items():
        carried = flows[members]
        fullest = int(np.argmax(carried))
        yield {
            "links": name,
            "count": len(members),
            "used": int((carried > 0).sum()),
            "connections": float(carried.sum()),
            "mean": float(carried.mean()),
            "most": float(carried[fullest]),
            "fullest": topology.link_name(members[fullest]),
        }


def _changes(resolved: ResolvedCell, made: Fabric, policy: Policy) -> dict[str, dict[str, Any]]:
    """By name, changes of settings that may shorten the time of a cell. Each is a mapping from the
    key of the scenario to the new value.

    - `made`: the fabric of the cell.
    - `policy`: its routing policy.
    """
    data = resolved.cell.source.data["cluster"]
    fabric = "cluster.fabric"
    inner = data.get("fabric") or {}
    fabric_change: dict[str, Any] = {} if inner else {fabric: {"kind": made.kind}}
    if inner.get("between"):
        fabric = f"{fabric}.between"
        inner = inner["between"]
    comm = resolved.jobs[0].comm if resolved.is_nccl else None
    settings = comm.settings if comm else None
    trials = _queue_pairs(comm, policy, fabric) if policy.hashed else {}
    for routing in ("static", "adaptive", "spray"):
        if routing != policy.routing:
            trials[f"{routing} routing"] = {f"{fabric}.routing": routing}
    if made.kind == "leaf-spine" and made.ports > node_count(resolved.cell.scenario.cluster):
        shared_keys = {key: inner[key] for key in SHARED if key in inner}
        trials["rails"] = {
            fabric: {"kind": "rail-optimized", "routing": policy.routing, **shared_keys}
        }
    if settings is not None:
        off = settings.pxn_disabled
        trials[f"PXN {'on' if off else 'off'}"] = {"nccl.env.NCCL_PXN_DISABLE": 0 if off else 1}
    if resolved.cell.scenario.cluster.placement != "random":
        trials["hosts in random order"] = {"cluster.placement": "random"}
    return {name: {**fabric_change, **changes} for name, changes in trials.items()}


def _queue_pairs(
    comm: Communicator | None, policy: Policy, fabric: str
) -> dict[str, dict[str, Any]]:
    """By name, changes of the use of queue pairs, each as a mapping from the key of the scenario to
    the new value.

    Some have more queue pairs for each connection. One also exchanges how they are used: a message
    is split over the queue pairs, or messages are sent on the queue pairs in turn.

    - `comm`: NCCL's communicator; None for a textbook algorithm.
    - `policy`: the routing policy of the cell.
    - `fabric`: the key of the fabric in the scenario.
    """
    keys = [f"{fabric}.qps", f"{fabric}.split_on_qps"]
    if comm is not None:
        keys = ["nccl.env.NCCL_IB_QPS_PER_CONNECTION", "nccl.env.NCCL_IB_SPLIT_DATA_ON_QPS"]
    split = policy.split if comm is None or policy.qps > 1 else comm.facts.split_on_qps
    counts = [count for count in (2, 4, 8) if count > policy.qps]
    changes = {f"{count} queue pairs": {keys[0]: count} for count in counts}
    count = max(4, policy.qps)
    mode = "in turn" if split else "split"
    return {**changes, f"{count} queue pairs, {mode}": {keys[0]: count, keys[1]: int(not split)}}


def _times_with(
    resolved: ResolvedCell, size: int, label: str, changes: dict[str, Any], seeds: int, engine: str
) -> dict[str, Any]:
    """The times (µs, sorted) and other figures of the cell with `changes` of its settings, as plain
    values; `label` names them.

    There is a time for each of `seeds` seeds, or a single one if it does not depend on the seed. If
    the settings are refused, the values say why.
    """
    rows: list[Row] = []
    try:
        for seed in range(seeds):
            changed = _with_changes(resolved, changes, seed if seeds > 1 else None)
            rows.append(row_of_size(changed, size, engine=engine))
            if not _depends_on_seed(changed):
                break
    except NetsimError as error:
        return {"what": label, "settings": changes, "refused": str(error).splitlines()[0]}
    times = sorted(row.time_us or 0.0 for row in rows)
    fullest = [row.fullest_over_mean or 0.0 for row in rows]
    return {
        "what": label,
        "settings": changes,
        "us": times,
        "median_us": median(times),
        "fullest_over_mean": median(fullest),
    }


def _depends_on_seed(resolved: ResolvedCell) -> bool:
    """Whether the time of a cell depends on a seed: of hashes, or of the placement of hosts."""
    selection = _selection(resolved)
    hashed = selection is not None and selection.policy.hashed
    return hashed or resolved.cell.scenario.cluster.placement == "random"


def _with_changes(
    resolved: ResolvedCell, changes: dict[str, Any], seed: int | None
) -> ResolvedCell:
    """The cell with `changes` of its settings, and with another seed if one is given."""
    source = resolved.cell.source
    for key, value in changes.items():
        source = override(source, key, value, f"--set {key}")
    fabric = source.data["cluster"].get("fabric")
    if seed is not None and isinstance(fabric, dict):
        inner = "cluster.fabric.between" if fabric.get("between") else "cluster.fabric"
        source = override(source, f"{inner}.seed", seed, "--seeds")
    if seed is not None:
        source = override(source, "cluster.seed", seed, "--seeds")
    return resolve(expand(source)[0])
