"""`netsim explain` of a training step: as text, CSV, JSON and pictures."""

import csv
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import typer

from netsim.cli.explain_output import print_values, write_values
from netsim.cli.explain_text import time
from netsim.plots import plot_explained_step
from netsim.training.explained import explained_step
from netsim.training.prepare import PreparedStep
from netsim.training.run import simulate_step
from netsim.units import format_size

BAR = 30
LEAST = 1e-3  # of the step: less is not worth a line
CALLS, HOPS = 10, 16


def explain_step(prepared: PreparedStep, form: str, output: Path | None, engine: str) -> None:
    """Explain the step of a cell; print it, and write it where a folder is given."""
    step = simulate_step(prepared, engine=engine)
    found = explained_step(step, engine=engine)
    print_values(found, form, as_csv(found), as_lines(found))
    if output is not None:
        for path in _write(found, output):
            typer.echo(f"wrote {path}", err=True)


def _write(found: Mapping[str, Any], folder: Path) -> list[Path]:
    files = write_values(found, as_csv(found), folder)
    return [*files, *plot_explained_step(found, folder)]


def as_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """All sections."""
    yield f"{found['title']}: {time(found['time_us'])}, most of it {found['bound_by']}"
    for section in (_causes, _gpus, _calls, _answers, _path):
        yield ""
        yield from section(found)
    yield f"# approximated: {found['approximation']}"


def _causes(found: Mapping[str, Any]) -> Iterator[str]:
    whole = found["time_us"] or 1.0
    yield f"Where the time goes, along the critical path of {len(found['path'])} passes and calls"
    for name, spent in found["causes_us"].items():
        if spent > LEAST * whole:
            bar = "#" * max(1, round(BAR * spent / whole))
            yield f"  {name:<36}{time(spent):>12}{spent / whole:>8.1%}  {bar}"


def _gpus(found: Mapping[str, Any]) -> Iterator[str]:
    whole = found["time_us"] or 1.0
    names = [name for name in found["gpus_us"][0] if name != "gpus"]
    shown = [n for n in names if max(one[n] for one in found["gpus_us"]) > LEAST * whole]
    yield "How GPUs spend the step (means; exposed: nothing is computed meanwhile)"
    yield f"  {'':<12}" + "".join(f"{name:>16}" for name in shown)
    for one in found["gpus_us"]:
        parts = "".join(f"{time(one[n]):>9} {one[n] / whole:>5.1%} " for n in shown)
        yield f"  {one['gpus']:<12}{parts}".rstrip()


def _calls(found: Mapping[str, Any]) -> Iterator[str]:
    whole = found["time_us"] or 1.0
    yield "The calls that cost most"
    yield (f"  {'':<52}{'size':>11}{'on path':>9}{'of the path':>18}{'sharing':>10}{'exposed':>10}")
    shown = [
        one for one in found["calls"] if max(one["path_us"], one["exposed_us"]) > LEAST * whole
    ]
    for one in shown[:CALLS]:
        name = f"{one['kind']} {one['collective']} ({one['name']}, {one['phase']})"
        yield (
            f"  {name:<52}{format_size(one['size_bytes']):>11}{one['on_path']:>7} x"
            f"{time(one['path_us']):>11}{one['path_us'] / whole:>7.1%}"
            f"{time(one['sharing_us']):>10}{time(one['exposed_us']):>10}"
        )
    if not shown:
        yield "  none takes a thousandth of the step"


def _answers(found: Mapping[str, Any]) -> Iterator[str]:
    now = found["time_us"]
    yield "What would change it"
    yield f"  {'':<28}{'10 % faster':>22}{'free':>22}"
    for one in found["answers"]:
        parts = [_answer(one[key], now) for key in ("faster_10pct_us", "free_us")]
        yield f"  {one['what']:<28}" + "".join(f"{part:>22}" for part in parts)


def _answer(us: float | None, now: float) -> str:
    return "" if us is None else f"{time(us)} ({(us / now - 1) if now else 0.0:+.1%})"


def _path(found: Mapping[str, Any]) -> Iterator[str]:
    hops = found["path"]
    yield "The critical path, first to last"
    left_out = len(hops) - HOPS
    for number, hop in enumerate(hops):
        if left_out > 0 and number == HOPS // 2:
            yield f"  ... {left_out} more"
        if left_out > 0 and HOPS // 2 <= number < len(hops) - HOPS // 2:
            continue
        spent = hop["end_us"] - hop["begin_us"]
        share = hop["communicating_us"] / spent if spent else 0.0
        note = f"{share:.0%} communicating" if 0 < share < 0.995 else ""
        yield (
            f"  {time(hop['begin_us']):>10} {time(spent):>10}  {hop['what']:<30}"
            f" rank {hop['rank']:<6}{note}".rstrip()
        )


def as_csv(found: Mapping[str, Any]) -> str:
    """Every value in a line of its own: section, name, quantity, value."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["section", "name", "quantity", "value"])
    writer.writerow(["total", "step", "time_us", repr(found["time_us"])])
    for cause, spent in found["causes_us"].items():
        writer.writerow(["cause", cause, "us", repr(spent)])
    for one in found["gpus_us"]:
        for name, value in one.items():
            if name != "gpus":
                writer.writerow(["gpus", one["gpus"], f"{name} us", repr(value)])
    for one in found["calls"]:
        words = (one["kind"], one["collective"], one["name"], one["phase"], one["size_bytes"])
        for name in ("ranks", "on_path", "path_us", "sharing_us", "exposed_us"):
            writer.writerow(["call", " ".join(map(str, words)), name, one[name]])
    for one in found["answers"]:
        for name in ("faster_10pct_us", "free_us"):
            if one[name] is not None:
                writer.writerow(["answer", one["what"], name, repr(one[name])])
    for number, hop in enumerate(found["path"]):
        for name in ("rank", "begin_us", "end_us", "communicating_us"):
            writer.writerow(["path", f"{number} {hop['what']}", name, hop[name]])
    return text.getvalue()
