"""`netsim expect --why`: what NCCL compares for one size, and the channels it would log."""

import csv
import json
from io import StringIO

import typer

from netsim.cli.expect_table import Format
from netsim.errors import InputError
from netsim.expect.choice import cost_table
from netsim.expect.why import (
    COST_COLUMNS,
    channel_lines,
    cost_lines,
    cost_rows,
    count_line,
    rate_lines,
    search_lines,
)
from netsim.simulate import Prepared


def explain(prepared: Prepared, size: int, form: Format) -> None:
    """Print it as text, or the cost table alone as CSV or JSON."""
    plan = prepared.planned(size)
    if plan is None:
        algorithm = prepared.cell.scenario.collective.algorithm
        raise InputError(f"--why: {algorithm} is a textbook algorithm, which nobody chose")
    job, collective = prepared.jobs[0], prepared.collective(size)
    costs = cost_table(job, collective, prepared.cell.scenario.collective.dtype)
    if form in ("csv", "json"):
        _table(cost_rows(costs, plan), form)
        return
    by = " (by the tuner)" if plan.tuned else ""
    typer.echo(
        f"{collective.name} of {collective.size_bytes} B on {collective.ranks} ranks, "
        f"{job.comm.n_nodes} node{'s' * (job.comm.n_nodes > 1)}: {plan.algorithm} "
        f"{plan.protocol}{by}, {plan.n_channels} of {job.comm.n_channels} channels\n"
    )
    for line in (
        *cost_lines(costs, plan),
        "",
        *search_lines(job),
        "",
        *rate_lines(job),
        count_line(job),
        "",
        *channel_lines(job),
    ):
        typer.echo(line)


def _table(rows: list[dict[str, object]], form: Format) -> None:
    if form == "json":
        typer.echo(json.dumps(rows, indent=1))
        return
    text = StringIO()
    writer = csv.DictWriter(text, COST_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    typer.echo(text.getvalue(), nl=False)
