"""`netsim explain`: why something takes as long as it does, or (`--state`) how it works."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isclose
from pathlib import Path
from statistics import median
from typing import Any, Literal

import typer

from netsim.base.errors import InputError
from netsim.base.files import csv_of, made_folder, write_text
from netsim.base.startup import on
from netsim.base.units import format_size, format_time, parse_cli_size
from netsim.cli import (
    check_outputs,
    parsed,
    print_lines,
    refuse_output_as_input,
    with_options,
    wrote,
)
from netsim.cli.questions import NOT_EXPLAIN, Given, Text, questioned
from netsim.cli.shown import Engine
from netsim.collectives.table import ALGORITHMS, build
from netsim.collectives.verify import ChunkStates, render_text, states
from netsim.plots.explanation import plot_explained_step, plot_explanation
from netsim.plots.timeline import plot_states
from netsim.results.workspace import OutputFolder
from netsim.scenario.names import DTYPES
from netsim.tasks.explained import explained_paths, explained_run, explained_title
from netsim.tasks.jobs import ResolvedJobs, row_of_job
from netsim.tasks.resolve import ResolvedCell
from netsim.training.explain import explained_messages, explained_step
from netsim.training.resolve import ResolvedStep
from netsim.training.run import simulate_step

CAUSES = {
    "launch": "launch of kernels",
    "wire": "hop latency: wires and switches",
    "protocol": "hop latency: protocol and start-up",
    "transfer": "transfer at full rate",
    "sharing": "slow-down by sharing",
    "waiting": "waiting for a peer",
    "compute": "compute",
}
MARKS = {
    "*": "the critical path predicts another change: other paths are as long, or sharing shifts",
    "!": "an anomaly of sharing: better is slower, or 1 % changes more than 1 %; read no trend",
}
_BAR = 30
_MOST = 8  # lines of a section
_HOPS = 14  # steps of the path
_TRIED = ("worse_10pct_us", "better_10pct_us", "infinitely_fast_us")  # changes of a parameter
_DIFFERS = 0.2  # relative difference of the simulated change and that of the path that is marked


def explain_lines(values: Mapping[str, Any], title: str) -> Iterator[str]:
    """The explanation of an operation as text, one section after the other."""
    yield f"{title}: {time(values['time_us'])} from an idle cluster, bound by {values['bound_by']}"
    limit = values.get("limit")
    if limit and limit["of_limit_pct"] is not None:
        best = limit["best_known_us"] or 0.0  # of some collectives none is known
        is_farther = best > limit["limit_us"] * 1.001
        remark = f" (the best known one takes {time(best)})" if is_farther else ""
        yield (
            f"{limit['who']} reaches {limit['of_limit_pct']:.0f} % of what these links allow: no "
            f"algorithm takes less than {time(limit['limit_us'])}{remark}"
        )
        yield f"the limit is set by {limit['binds']}"
    for section in (_causes, _sharing, _links, _answers, _slack, _path):
        lines = list(section(values))
        if lines:
            yield ""
            yield from lines


def _causes(values: Mapping[str, Any], unit: str = "rows", least: float = 0.0) -> Iterator[str]:
    yield f"Where the time goes, along the critical path of {len(values['path'])} {unit}"
    total_us = values["time_us"] or 1.0
    for cause, spent in values["causes_us"].items():
        if spent > least * total_us:
            bar = "#" * max(1, round(_BAR * spent / total_us))
            label = CAUSES.get(cause, cause)
            yield f"  {label:<36}{time(spent):>12}{spent / total_us:>8.1%}  {bar}"


def _sharing(values: Mapping[str, Any]) -> Iterator[str]:
    shown = [sharer for sharer in values["shared_with"] if sharer["us"] > 1e-3 * values["time_us"]]
    if not shown:
        return
    yield "Which transfers share the links that slow it down"
    for sharer in shown[:_MOST]:
        yield f"  {time(sharer['us']):>12}  {sharer['who']}, on {sharer['link']}"


def _links(values: Mapping[str, Any]) -> Iterator[str]:
    yield "Links that are full for longest"
    yield f"  {'':<44}{'full for':>12}{'of time':>10}{'in use':>10}"
    for link in values["links"][:_MOST]:
        full = link["full_us"] / values["time_us"] if values["time_us"] else 0.0
        use = f"{full:>10.1%}{link['utilisation']:>10.1%}"
        yield f"  {link['link']:<44}{time(link['full_us']):>12}{use}"


def _answers(values: Mapping[str, Any]) -> Iterator[str]:
    yield "What would change it"
    yield (
        f"  {'':<28}{'now':>12}{'+1 % of it':>13}{'10 % worse':>13}{'10 % better':>13}{'ideal':>13}"
    )
    marks = set()
    for parameter in values["parameters"]:
        simulated = parameter["per_percent_simulated_us"]
        slope = parameter["per_percent_us"] if simulated is None else simulated
        now, tried = (
            values["time_us"],
            [parameter[key] for key in _TRIED if parameter[key] is not None],
        )
        if abs(slope) < 1e-6 * now and all(abs(each - now) <= 1e-4 * now for each in tried):
            continue
        near = simulated is None or isclose(
            simulated, parameter["per_percent_us"], rel_tol=_DIFFERS
        )
        if parameter["anomalous"]:
            mark = "!"
        else:
            mark = "" if near else "*"
        marks.add(mark)
        yield _answer(parameter, slope, f"  {mark}".rstrip())
    yield "  (ideal: infinitely fast, or without any latency; everything else unchanged)"
    yield from (f"  ({mark} {MARKS[mark]})" for mark in MARKS if mark in marks)
    left = len(values["parameters"]) - values["confirmed"]
    if left:
        yield f"  (computed from the critical path, not simulated again: {left} parameters)"


def _answer(parameter: Mapping[str, Any], slope: float, mark: str) -> str:
    now = "" if parameter["value"] is None else f"{parameter['value']:.3g} {parameter['unit']}"
    shown = ["" if parameter[key] is None else time(parameter[key]) for key in _TRIED]
    change = f"{'-' if slope < 0 else '+'}{time(abs(slope))}"
    return (
        f"  {parameter['label']:<28}{now:>12}{change:>13}"
        + "".join(f"{t:>13}" for t in shown)
        + mark
    )


def _slack(values: Mapping[str, Any]) -> Iterator[str]:
    total_us = values["time_us"] or 1.0
    kinds = {k: v for k, v in values["slack_us"]["by_kind"].items() if v > 1e-3 * total_us}
    gpus = {k: v for k, v in values["slack_us"]["by_gpu"].items() if v > 1e-3 * total_us}
    if kinds or gpus:
        yield "What could end later without changing the time (the least slack of its rows)"
    for name, spare in sorted({**kinds, **gpus}.items(), key=lambda pair: -pair[1])[:_MOST]:
        yield f"  {name:<36}{time(spare):>12}{spare / total_us:>8.1%}"


def _path(values: Mapping[str, Any]) -> Iterator[str]:
    hops = _hops(values["path"])
    if not hops:
        return
    width = max(len(hop["name"]) for hop in hops) + 1
    yield from _ends([_hop(hop, width) for hop in hops], _HOPS, "more steps")


def _ends(lines: Sequence[str], most: int, more: str) -> Iterator[str]:
    """The steps of a critical path; of many, the first and the last."""
    yield "The critical path, first to last"
    left_out, half = len(lines) - most, most // 2
    if left_out <= 0:
        yield from lines
        return
    yield from (*lines[:half], f"  ... {left_out} {more}", *lines[-half:])


def _hop(hop: Mapping[str, Any], width: int) -> str:
    rows = f"{hop['rows']} rows" if hop["rows"] > 1 else "1 row"
    most = max(hop["causes"], key=hop["causes"].get) if hop["causes"] else ""
    cause = CAUSES.get(most, "")
    where = f" on {hop['limit']}" if hop["limit"] and most in ("transfer", "sharing") else ""
    return (
        f"  {time(hop['begin']):>10} {time(hop['end'] - hop['begin']):>10}"
        f"  {hop['name']:<{width}}{rows:>9}  mostly {cause}{where}"
    )


def _hops(path: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the path that follow each other on the same way, put together."""
    hops: list[dict[str, Any]] = []
    for row in path:
        if row["kind"] == "mark" and not row.get("launch_us"):
            continue
        name = f"{row['kind'].replace('_', ' ')} {row['hop']}"
        if not hops or hops[-1]["name"] != name:
            hops.append(
                {"name": name, "begin": row["begin_us"], "rows": 0, "causes": {}, "limit": ""}
            )
        last = hops[-1]
        last["rows"], last["end"] = last["rows"] + 1, row["end_us"]
        last["limit"] = row["limited_by"] or last["limit"]
        for cause in CAUSES:
            spent = row.get(f"{cause}_us", 0.0)
            if spent:
                last["causes"][cause] = last["causes"].get(cause, 0.0) + spent
    return hops


def explain_csv(explained: Mapping[str, Any]) -> str:
    """Every value in a line of its own: section, name, quantity, value."""
    lines = _totals(explained, "operation")
    lists = (
        ("shared_with", ("link", "who"), ("us",)),
        ("links", ("link",), ("full_us", "utilisation")),
        (
            "parameters",
            ("parameter",),
            (
                "value",
                "on_path_us",
                "per_percent_us",
                "per_percent_simulated_us",
                "per_unit",
                "per_unit_simulated",
                *_TRIED,
            ),
        ),
        ("gpus", ("gpu",), ("communicating_us", "computing_us", "waiting_us")),
        (
            "path",
            ("row", "hop"),
            ("begin_us", "end_us", *(f"{cause}_us" for cause in CAUSES), "limited_by"),
        ),
    )
    for section, names, quantities in lists:
        lines += _values(section, explained[section], names, quantities)
    for group, values in explained["slack_us"].items():
        lines += [("slack", name, group, spare) for name, spare in values.items()]
    return csv_of(lines)


def _totals(values: Mapping[str, Any], unit: str) -> list[Sequence[object]]:
    """The names of columns, the time, and its causes."""
    causes = [("cause", cause, "us", spent) for cause, spent in values["causes_us"].items()]
    total = ("total", unit, "time_us", values["time_us"])
    return [("section", "name", "quantity", "value"), total, *causes]


def _values(
    section: str, rows: Iterable[Mapping[str, Any]], names: Sequence[str], quantities: Sequence[str]
) -> Iterator[Sequence[object]]:
    """A line for each quantity that a row has, under the names of the row."""
    for entry in rows:
        name = " ".join(str(entry[key]) for key in names)
        for quantity in quantities:
            if entry.get(quantity) not in (None, ""):
                yield section, name, quantity, entry[quantity]


def time(us: float) -> str:
    """A time with its unit, to three digits."""
    return format_time(us * 1e-6, digits=3) if us > 1e-9 else "0"


def print_values(values: Mapping[str, Any], form: str, table: str, lines: Iterable[str]) -> None:
    """The values as JSON, as CSV (`table`) or as text (`lines`)."""
    if form == "json":
        typer.echo(json.dumps(values, indent=1))
    elif form == "csv":
        typer.echo(table, nl=False)
    else:
        print_lines(lines)


def write_values(values: Mapping[str, Any], table: str, folder: Path) -> list[Path]:
    """explain.json and explain.csv in a folder, which is made."""
    made_folder(folder)
    return [
        write_text(folder / "explain.json", json.dumps(values)),
        write_text(folder / "explain.csv", table),
    ]


def paths_lines(values: Mapping[str, Any], title: str) -> Iterator[str]:
    """How connections meet, the time over seeds, and what was tried."""
    now = values["tried"][0]
    queues = f", {values['qps']} queue pairs" if values["qps"] > 1 else ""
    yield f"{title}: {time(now['median_us'])}, {values['routing']} routing{queues}"
    yield ""
    yield "Connections on links between switches (those of one seed)"
    yield f"  {'links':<20}{'in use':>14}{'mean':>8}{'most':>8}  fullest"
    for link_kind in values["spread"]:
        used = f"{link_kind['used']} of {link_kind['count']}"
        yield (
            f"  {link_kind['links']:<20}{used:>14}{link_kind['mean']:>8.3g}"
            f"{link_kind['most']:>8.3g}  {link_kind['fullest']}"
        )
    if len(times := now["us"]) > 1:
        tenth = times[min(len(times) - 1, -(-9 * len(times) // 10) - 1)]
        yield ""
        yield f"Time over {len(times)} seeds of the hashes"
        yield (
            f"  least {time(times[0])}, median {time(median(times))}, p90 {time(tenth)}, "
            f"most {time(times[-1])}"
        )
    yield ""
    yield "What would help, each tried (bytes of the fullest link over the mean of all)"
    yield f"  {'':<24}{'median':>12}{'from':>12}{'to':>12}{'of now':>9}{'fullest':>9}"
    for link_kind in values["tried"]:
        if "refused" in link_kind:
            yield f"  {link_kind['what']:<24}  refused: {link_kind['refused']}"
            continue
        texts = [
            time(value)
            for value in (link_kind["median_us"], link_kind["us"][0], link_kind["us"][-1])
        ]
        part = link_kind["median_us"] / now["median_us"] if now["median_us"] else 0.0
        ends = "".join(f"{text:>12}" for text in texts)
        yield f"  {link_kind['what']:<24}{ends}{part:>9.0%}{link_kind['fullest_over_mean']:>9.3g}"


def paths_csv(values: Mapping[str, Any]) -> str:
    """A line for each time that was simulated."""
    lines: list[list[object]] = [
        ["what", "settings", "time_us", "median_us", "fullest_over_mean", "refused"]
    ]
    for trial in values["tried"]:
        settings = " ".join(f"{key}={value}" for key, value in trial["settings"].items())
        if "refused" in trial:
            lines.append([trial["what"], settings, "", "", "", trial["refused"]])
        for us in trial.get("us", ()):
            end = [repr(trial["median_us"]), repr(trial["fullest_over_mean"]), ""]
            lines.append([trial["what"], settings, repr(us), *end])
    return csv_of(lines)


MOST_RANKS = 64


def show_states(resolved: ResolvedCell, size: int | None, output: OutputFolder | None) -> None:
    """Print what the ranks of one communicator hold, and draw it where a folder is given."""
    value = _states(resolved, size)
    typer.echo(render_text(value), nl=False)
    if output is not None:
        work = resolved.cell.scenario.collective
        title = f"{work.algorithm} {work.collective}, {len(resolved.groups[0])} ranks"
        labels = [chunk.label for chunk in value.chunks]
        wrote(
            *output.write(
                lambda place: plot_states(value.states, labels, place / "state", title=title)
            )
        )


def _states(resolved: ResolvedCell, size: int | None) -> ChunkStates:
    work, ranks = resolved.cell.scenario.collective, len(resolved.groups[0])
    if ranks > MOST_RANKS:
        raise InputError(f"explain --state: at most {MOST_RANKS} ranks can be read, got {ranks}")
    # By default, a few elements in every chunk, whatever the algorithm divides the data into.
    nbytes = size or ranks * ranks * 16 * DTYPES[work.dtype]
    collective = resolved.collective(nbytes)
    if resolved.is_nccl:
        names = ", ".join(ALGORITHMS[work.collective])
        raise InputError(
            "explain --state: shows textbook algorithms, not NCCL's own",
            hint=f"choose one with --set workload.algorithm=…: {names}",
        )
    return states(build(collective, work.built_by, **resolved.parameters), collective)


LEAST = 1e-3  # of the step: less is not worth a line
CALLS, HOPS = 10, 16


def beside_lines(resolved: ResolvedJobs, size: int | None, engine: str) -> Iterator[str]:
    """How much longer a job takes beside each other one, before it is explained alone."""
    sizes = resolved.cell.scenario.workload.size_list()
    if size is not None and size not in sizes:
        raise InputError(f"--size: expected one of the job's, {', '.join(map(str, sizes))}")
    row = row_of_job(resolved, sizes[-1] if size is None else size, engine)
    took, alone = row.step_time_us or row.time_us or 0.0, row.alone_us or 0.0
    name = resolved.jobs[resolved.number].name
    yield (
        f"{name}: {time(took)} beside the other jobs, {time(alone)} without them: "
        f"{row.slowdown:.3g} times as long"
    )
    for neighbor in [key[3:] for key in row.neighbours if key.startswith("by:")]:
        times, link = row.neighbours[f"by:{neighbor}"], row.neighbours[f"on:{neighbor}"]
        where = f"they meet most on {link}" if link else "they share no link"
        yield f"  beside {neighbor} only: {times:.3g} times as long; {where}"
    yield "Without the other jobs:\n"


def explain_step(
    resolved: ResolvedStep, form: str, output: OutputFolder | None, engine: str
) -> None:
    """Explain the step of a cell; print it, and write it where a folder is given."""
    on(f"a step of {resolved.work.label}")
    step = simulate_step(resolved, engine=engine)
    values = explained_step(step, engine=engine)
    table = as_csv(values)
    print_values(values, form, table, as_lines(values))
    if output is not None:
        wrote(
            *output.write(
                lambda place: [
                    *write_values(values, table, place),
                    *plot_explained_step(values, place),
                ]
            )
        )


def as_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """The explanation of a training step as text, one section after the other."""
    yield f"{values['title']}: {time(values['time_us'])}, bound by {values['bound_by']}\n"
    yield from _causes(values, "passes and calls", LEAST)
    for section in (_gpus, _calls, _step_answers, _step_path):
        yield ""
        yield from section(values)
    yield f"# approximate: {values['approximation']}"


def _gpus(values: Mapping[str, Any]) -> Iterator[str]:
    total_us = values["time_us"] or 1.0
    names = [name for name in values["gpus_us"][0] if name != "gpus"]
    shown = [n for n in names if max(gpu[n] for gpu in values["gpus_us"]) > LEAST * total_us]
    yield "How GPUs spend the step (means; exposed: communication while nothing is computed)"
    yield f"  {'':<12}" + "".join(f"{name:>16}" for name in shown)
    for gpu in values["gpus_us"]:
        parts = "".join(f"{time(gpu[n]):>9} {gpu[n] / total_us:>5.1%} " for n in shown)
        yield f"  {gpu['gpus']:<12}{parts}".rstrip()


def _calls(values: Mapping[str, Any]) -> Iterator[str]:
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
            f"{time(call['path_us']):>11}{call['path_us'] / total_us:>7.1%}"
            f"{time(call['sharing_us']):>10}{time(call['exposed_us']):>10}"
        )
    if not shown:
        yield "  none takes a thousandth of the step"


def _step_answers(values: Mapping[str, Any]) -> Iterator[str]:
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
    return f"{time(us)} ({change:+.1%})"


def _step_path(values: Mapping[str, Any]) -> Iterator[str]:
    lines = []
    for hop in values["path"]:
        spent = hop["end_us"] - hop["begin_us"]
        share = hop["communicating_us"] / spent if spent else 0.0
        note = f"{share:.0%} communicating" if 0 < share < 0.995 else ""
        lines.append(
            f"  {time(hop['begin_us']):>10} {time(spent):>10}  {hop['what']:<30}"
            f" rank {hop['rank']:<6}{note}".rstrip()
        )
    return _ends(lines, HOPS, "more")


def as_csv(values: Mapping[str, Any]) -> str:
    """Every value in a line of its own: section, name, quantity, value."""
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
    listed = [line for one in lists for line in _values(*one)]
    return csv_of([*_totals(values, "step"), *spent, *listed])


def explain_rows(
    values: dict[str, Any], form: str, output: OutputFolder | None, title: str
) -> None:
    """Print what explains rows, of a collective or of messages, and write it to a folder."""
    table = explain_csv(values)
    print_values(values, form, table, explain_lines(values, title))
    if output is not None:
        wrote(
            *output.write(
                lambda place: [
                    *write_values(values, table, place),
                    *plot_explanation(values, place),
                ]
            )
        )


USUAL_SIZE = "64M"


@with_options(Given, "sizes", *NOT_EXPLAIN)
def command(
    subject: str,
    given: Given,
    collective: Text = None,
    state: bool = False,
    paths: bool = False,
    seeds: int = 10,
    size: str | None = None,
    output: Path | None = None,
    form: Literal["table", "csv", "json"] = "table",
    engine: Engine = "auto",
) -> None:
    """Explain the time of SCENARIO (a training step as well), or of a collective on a topology."""
    check_outputs({}, output=output)
    folder = None
    if output is not None:
        refuse_output_as_input(output, [Path(subject)])
        folder = OutputFolder(output, "explain", (subject, collective or ""))
        folder.check()
    nbytes = None if size is None else parsed(parse_cli_size, "--size", size)
    resolved, notes = questioned(subject, collective, replace(given, sizes=size or USUAL_SIZE))
    print_lines(notes, err=True)
    if isinstance(resolved, ResolvedJobs):
        print_lines(beside_lines(resolved, nbytes, engine), err=form != "table")
        resolved = resolved.alone[resolved.number]
    if isinstance(resolved, ResolvedStep):
        for flag, asked in (("--size", size), ("--state", state), ("--paths", paths)):
            if asked:
                raise InputError(f"{flag}: goes with a collective, not with a training step")
        if resolved.lowered is None:
            explain_step(resolved, form, folder, engine)
            return
        found = explained_messages(simulate_step(resolved, engine=engine), engine=engine)
        explain_rows(found, form, folder, found["title"])
        return
    if state:
        show_states(resolved, nbytes, folder)
        return
    chosen = nbytes or max(resolved.cell.scenario.collective.size_list())
    title = explained_title(resolved, chosen)
    if paths:
        found = explained_paths(resolved, chosen, seeds=seeds, engine=engine)
        print_values(found, form, paths_csv(found), paths_lines(found, title))
        return
    explain_rows(explained_run(resolved, chosen, engine=engine)[0], form, folder, title)
