"""`netsim expect --tuner-out`: a tuner table for the real cluster, found by simulating."""

from pathlib import Path

import typer

from netsim.cli.expect_table import MANY_SIZES, Engine
from netsim.errors import InputError
from netsim.files import write_text
from netsim.nccl.names import COLLECTIVES
from netsim.nccl.tuner_csv import parse_tuner, tuner_text
from netsim.results import Row
from netsim.simulate import Prepared
from netsim.tune import Tuned, Tuner, merged, rules_of


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
    tuner = Tuner(prepared, "compiled" if engine == "auto" and len(sizes) >= MANY_SIZES else engine)
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
