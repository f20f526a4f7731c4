"""`netsim diff`: two results, scenarios, topologies or logs: who wins by size, and why."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import exp, log
from typing import Annotated

import typer

from netsim.cli.diff_cells import STEP, Side
from netsim.cli.diff_sides import sides_of
from netsim.cli.expect_question import Given
from netsim.errors import InputError
from netsim.results.nccl_tests import microseconds
from netsim.units import format_size

Text = str | None
EQUAL = 0.005  # by which two times may differ and be called equal


def command(
    a: Annotated[
        str,
        typer.Argument(
            help="Results or a scenario (each with #CELL), a topology, or a log.", metavar="A"
        ),
    ],
    b: Annotated[str, typer.Argument(help="The other.", metavar="B")],
    collective: Annotated[
        Text, typer.Option(help="Of topologies: what is timed; else what B is of.", metavar="C")
    ] = None,
    sizes: Annotated[
        Text, typer.Option(help="Of topologies; else those of B.", metavar="SIZES")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Of topologies: hosts.", metavar="N")] = None,
    launch: Annotated[
        Text, typer.Option(help="Of topologies: process_per_gpu, …", metavar="L")
    ] = None,
    nccl: Annotated[Text, typer.Option(help="Of topologies: NCCL's version.", metavar="V")] = None,
) -> None:
    """Print by size which of A and B is faster, where that changes, and what differs there."""
    given = Given({"nodes": nodes, "launch": launch, "nccl": nccl}, sizes or "")
    one, other = sides_of(a, b, collective, given)
    if one.collective and other.collective and one.collective != other.collective:
        typer.echo(f"warning: A is of {one.collective}, B of {other.collective}", err=True)
    common = sorted(set(one.times) & set(other.times))
    if not common:
        raise InputError(f"{one.name} and {other.name} have no size in common")
    for line in _lines(one, other, common):
        typer.echo(line)
    alone = len(one.times) + len(other.times) - 2 * len(common)
    if alone:
        have = "size that only one of them has is" if alone == 1 else "sizes that only one has are"
        typer.echo(f"{alone} {have} left out", err=True)


def _lines(one: Side, other: Side, common: Sequence[int]) -> Iterator[str]:
    yield f"# A: {one.name}"
    yield f"# B: {other.name}"
    yield f"# {'size':>11}  {'A (us)':>9}  {'B (us)':>9}  {'B / A':>6}  faster  A is | B is"
    for size in common:
        a, b = one.times[size], other.times[size]
        why = f"{one.why.get(size, '')} | {other.why.get(size, '')}"
        yield (
            f"{size or 'step':>13}  {microseconds(a):>9}  {microseconds(b):>9}  {b / a:>6.2f}  "
            f"{_faster(a, b):<6}  {why}"
        )
    wins = [_faster(one.times[size], other.times[size]) for size in common]
    for (left, right), (before, after) in zip(pairwise(common), pairwise(wins), strict=True):
        if before != after:
            places = f"{format_size(left)} and {format_size(right)}"
            what = _change(one, other, left, right)
            yield f"# between {places}: {_won(before)}, then {_won(after)}; there {what}"
    ratios = {size: other.times[size] / one.times[size] for size in common}
    most = max(common, key=lambda size: abs(log(ratios[size])))
    mean = exp(sum(map(log, ratios.values())) / len(ratios))
    if len(common) > 1 and wins.count("=") < len(wins):
        far = f"{ratios[most]:.3g} at {format_size(most)}"
        yield f"# B takes {mean:.3g} times as long on average (geometric), {far}"
    counts = [wins.count(who) for who in "AB="]
    if common != [STEP]:
        sizes = "size" if counts[0] == 1 else "sizes"
        yield f"# A faster at {counts[0]} {sizes}, B at {counts[1]}, equal at {counts[2]}"


def _won(who: str) -> str:
    return "they were equal" if who == "=" else f"{who} was faster"


def _faster(a: float, b: float) -> str:
    if abs(b / a - 1) <= EQUAL:
        return "="
    return "A" if a < b else "B"


def _change(one: Side, other: Side, left: int, right: int) -> str:
    """What changes between two sizes on either side."""
    changed = [
        f"{name} goes from {side.why[left]} to {side.why[right]}"
        for name, side in (("A", one), ("B", other))
        if side.why.get(left) != side.why.get(right)
    ]
    return "; ".join(changed) or "neither changes its algorithm nor what bounds it"
