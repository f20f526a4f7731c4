"""What else `netsim expect` answers: why NCCL chooses so, its graph file, a table for its tuner."""

import json
from pathlib import Path

import typer

from netsim.base.errors import InputError
from netsim.base.files import csv_of, write_text
from netsim.cell.prepare import Prepared
from netsim.cell.tune import Tuned, Tuner, merged, rules_of
from netsim.cli.shown import MANY_SIZES, Engine, Format
from netsim.engines.engine import choose_for_many
from netsim.nccl.choice import cost_table
from netsim.nccl.facts import COLLECTIVES
from netsim.nccl.graph_xml import write_graphs
from netsim.nccl.tuning import parse_tuner, tuner_text
from netsim.nccl.why import (
    COST_COLUMNS,
    channel_lines,
    cost_lines,
    cost_rows,
    count_line,
    rate_lines,
    search_lines,
)
from netsim.results.row import Row


def explain(prepared: Prepared, size: int, form: Format) -> None:
    """Print it as text, or the cost table alone as CSV or JSON."""
    plan = prepared.planned(size)
    if plan is None:
        algorithm = prepared.cell.scenario.collective.algorithm
        raise InputError(f"--why: {algorithm} is a textbook algorithm, which nobody chose")
    job, collective = prepared.jobs[0], prepared.collective(size)
    costs = cost_table(job, collective, prepared.cell.scenario.collective.dtype)
    if form in ("csv", "json"):
        _candidates(cost_rows(costs, plan), form)
        return
    by = " (by the tuner)" if plan.tuned else ""
    typer.echo(
        f"{collective.name} of {collective.size_bytes} B on {collective.ranks} ranks, "
        f"{job.comm.n_nodes} node{'s' * (job.comm.n_nodes > 1)}: {plan.algorithm} "
        f"{plan.protocol}{by}, {plan.n_channels} of {job.comm.n_channels} channels\n"
    )
    for text in (
        *cost_lines(costs, plan),
        "",
        *search_lines(job),
        "",
        *rate_lines(job),
        count_line(job),
        "",
        *channel_lines(job),
    ):
        typer.echo(text)


def _candidates(rows: list[dict[str, object]], form: Format) -> None:
    if form == "json":
        typer.echo(json.dumps(rows, indent=1))
        return
    lines = ([row.get(column) for column in COST_COLUMNS] for row in rows)
    typer.echo(csv_of([COST_COLUMNS, *lines]), nl=False)


def write_graph(prepared: Prepared, path: Path) -> None:
    """Write the graphs of the node with rank 0, as NCCL_GRAPH_DUMP_FILE does."""
    if not prepared.jobs:
        algorithm = prepared.cell.scenario.collective.algorithm
        raise InputError(f"--graph-out: {algorithm} is a textbook algorithm without channels")
    nodes = prepared.jobs[0].nodes
    write_text(path, write_graphs(nodes[0].view))
    kinds = len({id(node.view) for node in nodes})
    more = f" of the node with rank 0; there are {kinds} kinds of node" if kinds > 1 else ""
    typer.echo(f"wrote {path}{more} (NCCL_GRAPH_FILE)", err=True)


def write_tuner(prepared: Prepared, path: Path, engine: Engine) -> None:
    """Try everything at every size, print what won, and write the table."""
    work = prepared.cell.scenario.collective
    if work.collective not in COLLECTIVES:
        raise InputError(
            f"--tuner-out: NCCL runs {work.collective} as sends and receives, without a choice"
        )
    if not prepared.jobs:
        raise InputError(f"--tuner-out: {work.algorithm} is a textbook algorithm, not NCCL's")
    old = parse_tuner(path.read_text(encoding="utf-8"), str(path)) if path.exists() else ()
    sizes = sorted(size for size in work.size_list() if prepared.collective(size).size_bytes)
    if not sizes:
        raise InputError("--tuner-out: none of the sizes has any data")
    tuner = Tuner(prepared, choose_for_many(engine) if len(sizes) >= MANY_SIZES else engine)
    typer.echo(f"{'size (B)':>12}  {'NCCL chooses':<36}{'fastest simulated':<36}{'tried':>5}")
    found = []
    for size in sizes:
        found.append(tuner.best(size))
        typer.echo(_line(found[-1]))
    write_text(path, tuner_text(merged(old, rules_of(prepared, found))))
    typer.echo(f"wrote {path} (NCCL_TUNER_CONFIG_FILE of NCCL's example tuner plugin)", err=True)
    variables = prepared.cell.scenario.nccl.env
    if variables:
        listed = " ".join(f"{name}={value}" for name, value in variables.items())
        typer.echo(f"found with {listed}: set them there as well", err=True)


def _line(one: Tuned) -> str:
    gain = (one.usual.time_us or 0.0) / (one.best.time_us or 1.0) - 1
    same = one.candidate.n_channels is None and _words(one.usual) == _words(one.best)
    better = "the same" if same else f"{_words(one.best)}  {gain:+.1%}"
    return f"{one.best.size_bytes:>12}  {_words(one.usual):<36}{better:<36}{one.tried:>5}"


def _words(row: Row) -> str:
    return f"{row.algorithm} {row.protocol} x{row.channels}  {row.time_us:.2f} us"
