"""The explanation of a training step as text and as CSV."""

from collections.abc import Iterator, Mapping
from typing import Any

from netsim.base.files import csv_of
from netsim.base.units import format_size
from netsim.cli.explain_text import cause_lines, path_ends, time_text, total_rows, value_rows

LEAST = 1e-3  # of the step: less is not worth a line
CALLS = 10
HOPS = 16


def step_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """The explanation of a training step as text, one section after the other."""
    yield f"{values['title']}: {time_text(values['time_us'])}, bound by {values['bound_by']}\n"
    yield from cause_lines(values, "passes and calls", LEAST)
    for section in (_gpus, _calls, _step_answers, _step_path):
        yield ""
        yield from section(values)
    yield f"# approximate: {values['approximation']}"


def _gpus(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table: how much of the step each kind of GPU computes, communicates and waits."""
    total_us = values["time_us"] or 1.0
    names = [name for name in values["gpus_us"][0] if name != "gpus"]
    shown = [n for n in names if max(gpu[n] for gpu in values["gpus_us"]) > LEAST * total_us]
    yield "How GPUs spend the step (means; exposed: communication while nothing is computed)"
    yield f"  {'':<12}" + "".join(f"{name:>16}" for name in shown)
    for gpu in values["gpus_us"]:
        parts = "".join(f"{time_text(gpu[n]):>9} {gpu[n] / total_us:>5.1%} " for n in shown)
        yield f"  {gpu['gpus']:<12}{parts}".rstrip()


def _calls(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of the calls of collectives that take most time of the critical path."""
    total_us = values["time_us"] or 1.0
    yield "The calls that cost most"
    yield (f"  {'':<52}{'size':>11}{'on path':>9}{'of the path':>18}{'sharing':>10}{'exposed':>10}")
    shown = [
        call
        for call in values["calls"]
        if max(call["path_us"], call["exposed_us"]) > LEAST * total_us
    ]
    for call in shown[:CALLS]:
        name = f"{call['kind']} {call['collective']} ({call['name']}, {call['phase']})"
        yield (
            f"  {name:<52}{format_size(call['size_bytes']):>11}{call['on_path']:>7} x"
            f"{time_text(call['path_us']):>11}{call['path_us'] / total_us:>7.1%}"
            f"{time_text(call['sharing_us']):>10}{time_text(call['exposed_us']):>10}"
        )
    if not shown:
        yield "  none takes a thousandth of the step"


def _step_answers(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table: the time of the step if one part of it were 10 % faster, or took no time."""
    now = values["time_us"]
    yield "What would change it"
    yield f"  {'':<28}{'10 % faster':>22}{'free':>22}"
    for answer in values["answers"]:
        faster = _time_and_change(answer["faster_10pct_us"], now)
        free = _time_and_change(answer["free_us"], now)
        yield f"  {answer['what']:<28}{faster:>22}{free:>22}"


def _time_and_change(us: float | None, now_us: float) -> str:
    """A time with its change against `now_us`, as `12.3 us (-4.0%)`; empty if there is no time."""
    if us is None:
        return ""
    change = us / now_us - 1 if now_us else 0.0
    return f"{time_text(us)} ({change:+.1%})"


def _step_path(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the critical path of the step: begin, duration, name and rank of each hop."""
    lines = []
    for hop in values["path"]:
        spent = hop["end_us"] - hop["begin_us"]
        share = hop["communicating_us"] / spent if spent else 0.0
        note = f"{share:.0%} communicating" if 0 < share < 0.995 else ""
        lines.append(
            f"  {time_text(hop['begin_us']):>10} {time_text(spent):>10}  {hop['what']:<30}"
            f" rank {hop['rank']:<6}{note}".rstrip()
        )
    return path_ends(lines, HOPS, "more")


def step_csv(values: Mapping[str, Any]) -> str:
    """The explanation of a training step as CSV, one value in each line: section, name, quantity,
    value.
    """
    spent = [
        ("gpus", one["gpus"], f"{name} us", value)
        for one in values["gpus_us"]
        for name, value in one.items()
        if name != "gpus"
    ]
    path = [{"number": number, **hop} for number, hop in enumerate(values["path"])]
    lists = (
        ("call", values["calls"], ("kind", "collective", "name", "phase", "size_bytes"),
         ("ranks", "on_path", "path_us", "sharing_us", "exposed_us")),
        ("answer", values["answers"], ("what",), ("faster_10pct_us", "free_us")),
        ("path", path, ("number", "what"), ("rank", "begin_us", "end_us", "communicating_us")),
    )  # fmt: skip
    listed = [line for one in lists for line in value_rows(*one)]
    return csv_of([*total_rows(values, "step"), *spent, *listed])
