"""The explanation of an operation, and of the paths of its connections, as text and as CSV.

`values` is everywhere the dictionary that `netsim/tasks/explained.py` makes, the content of
explain.json.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isclose
from statistics import median
from typing import Any

from netsim.base.files import csv_of
from netsim.base.units import format_time

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
    time = time_text(values["time_us"])
    yield f"{title}: {time} from an idle cluster, bound by {values['bound_by']}"
    limit = values.get("limit")
    if limit and limit["of_limit_pct"] is not None:
        best = limit["best_known_us"] or 0.0  # of some collectives none is known
        is_farther = best > limit["limit_us"] * 1.001
        remark = f" (the best known one takes {time_text(best)})" if is_farther else ""
        yield (
            f"{limit['who']} reaches {limit['of_limit_pct']:.0f} % of what these links allow: no "
            f"algorithm takes less than {time_text(limit['limit_us'])}{remark}"
        )
        yield f"the limit is set by {limit['binds']}"
    for section in (cause_lines, _sharing, _links, _answers, _slack, _path):
        lines = list(section(values))
        if lines:
            yield ""
            yield from lines


def cause_lines(values: Mapping[str, Any], unit: str = "rows", least: float = 0.0) -> Iterator[str]:
    """Yield the causes of the time along the critical path, each with its time and fraction.

    Causes below the fraction `least` of the time are left out. `unit` names the steps of the path.
    """
    yield f"Where the time goes, along the critical path of {len(values['path'])} {unit}"
    total_us = values["time_us"] or 1.0
    for cause, spent in values["causes_us"].items():
        if spent > least * total_us:
            bar = "#" * max(1, round(_BAR * spent / total_us))
            label = CAUSES.get(cause, cause)
            yield f"  {label:<36}{time_text(spent):>12}{spent / total_us:>8.1%}  {bar}"


def _sharing(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the transfers that slow the critical path down because they use the same links."""
    shown = [sharer for sharer in values["shared_with"] if sharer["us"] > 1e-3 * values["time_us"]]
    if not shown:
        return
    yield "Which transfers share the links that slow it down"
    for sharer in shown[:_MOST]:
        yield f"  {time_text(sharer['us']):>12}  {sharer['who']}, on {sharer['link']}"


def _links(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the links that are saturated longest, with the fraction of time and the utilization."""
    yield "Links that are full for longest"
    yield f"  {'':<44}{'full for':>12}{'of time':>10}{'in use':>10}"
    for link in values["links"][:_MOST]:
        full = link["full_us"] / values["time_us"] if values["time_us"] else 0.0
        use = f"{full:>10.1%}{link['utilisation']:>10.1%}"
        yield f"  {link['link']:<44}{time_text(link['full_us']):>12}{use}"


def _answers(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of how the time changes with each parameter (1 %, 10 % worse or
    better, ideal).
    """
    yield "What would change it"
    yield (
        f"  {'':<28}{'now':>12}{'+1 % of it':>13}{'10 % worse':>13}{'10 % better':>13}{'ideal':>13}"
    )
    marks = set()
    for parameter in values["parameters"]:
        simulated = parameter["per_percent_simulated_us"]
        slope = parameter["per_percent_us"] if simulated is None else simulated
        now = values["time_us"]
        tried = [parameter[key] for key in _TRIED if parameter[key] is not None]
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
    """The line of one parameter: its value now, and the time if it changes.

    `slope` is the change of the time in µs if the parameter grows by 1 %; `mark` refers to a note
    (MARKS).
    """
    now = "" if parameter["value"] is None else f"{parameter['value']:.3g} {parameter['unit']}"
    shown = ["" if parameter[key] is None else time_text(parameter[key]) for key in _TRIED]
    change = f"{'-' if slope < 0 else '+'}{time_text(abs(slope))}"
    return (
        f"  {parameter['label']:<28}{now:>12}{change:>13}"
        + "".join(f"{t:>13}" for t in shown)
        + mark
    )


def _slack(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kinds of rows and the GPUs that could finish later without changing the
    total time.
    """
    total_us = values["time_us"] or 1.0
    kinds = {k: v for k, v in values["slack_us"]["by_kind"].items() if v > 1e-3 * total_us}
    gpus = {k: v for k, v in values["slack_us"]["by_gpu"].items() if v > 1e-3 * total_us}
    if kinds or gpus:
        yield "What could end later without changing the time (the least slack of its rows)"
    for name, spare in sorted({**kinds, **gpus}.items(), key=lambda pair: -pair[1])[:_MOST]:
        yield f"  {name:<36}{time_text(spare):>12}{spare / total_us:>8.1%}"


def _path(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the critical path, a line for each hop; long paths are shortened."""
    hops = _hops(values["path"])
    if not hops:
        return
    width = max(len(hop["name"]) for hop in hops) + 1
    yield from path_ends([_hop(hop, width) for hop in hops], _HOPS, "more steps")


def path_ends(lines: Sequence[str], most: int, more: str) -> Iterator[str]:
    """Yield the lines of a critical path; if there are more than `most`, the first and last of
    them.

    `more` is the noun for the lines left out.
    """
    yield "The critical path, first to last"
    left_out = len(lines) - most
    half = most // 2
    if left_out <= 0:
        yield from lines
        return
    yield from (*lines[:half], f"  ... {left_out} {more}", *lines[-half:])


def _hop(hop: Mapping[str, Any], width: int) -> str:
    """The line of one hop of the critical path: start, duration, name (`width` characters), number
    of rows, main cause.
    """
    rows = f"{hop['rows']} rows" if hop["rows"] > 1 else "1 row"
    most = max(hop["causes"], key=hop["causes"].get) if hop["causes"] else ""
    cause = CAUSES.get(most, "")
    where = f" on {hop['limit']}" if hop["limit"] and most in ("transfer", "sharing") else ""
    return (
        f"  {time_text(hop['begin']):>10} {time_text(hop['end'] - hop['begin']):>10}"
        f"  {hop['name']:<{width}}{rows:>9}  mostly {cause}{where}"
    )


def _hops(path: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the critical path, with consecutive rows of the same kind and route joined to one
    hop.

    A hop has `name`, `begin` and `end` in µs, the number of `rows`, the µs by cause in `causes`,
    and the `limit`, the link that bounds it.
    """
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
        last["rows"] = last["rows"] + 1
        last["end"] = row["end_us"]
        last["limit"] = row["limited_by"] or last["limit"]
        for cause in CAUSES:
            spent = row.get(f"{cause}_us", 0.0)
            if spent:
                last["causes"][cause] = last["causes"].get(cause, 0.0) + spent
    return hops


def explain_csv(explained: Mapping[str, Any]) -> str:
    """The explanation of an operation as CSV, one value in each line: section, name, quantity,
    value.
    """
    lines = total_rows(explained, "operation")
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
        lines += value_rows(section, explained[section], names, quantities)
    for group, values in explained["slack_us"].items():
        lines += [("slack", name, group, spare) for name, spare in values.items()]
    return csv_of(lines)


def total_rows(values: Mapping[str, Any], unit: str) -> list[Sequence[object]]:
    """The first lines of the CSV: the header, the total time, and a line for each cause, in µs.

    `unit` names what was explained: "operation" or "step".
    """
    causes = [("cause", cause, "us", spent) for cause, spent in values["causes_us"].items()]
    total = ("total", unit, "time_us", values["time_us"])
    return [("section", "name", "quantity", "value"), total, *causes]


def value_rows(
    section: str, rows: Iterable[Mapping[str, Any]], names: Sequence[str], quantities: Sequence[str]
) -> Iterator[Sequence[object]]:
    """Yield a CSV line (section, name, quantity, value) for each quantity that an entry of `rows`
    has.

    `names` are the keys whose values make up the name, `quantities` the keys of the values.
    """
    for entry in rows:
        name = " ".join(str(entry[key]) for key in names)
        for quantity in quantities:
            if entry.get(quantity) not in (None, ""):
                yield section, name, quantity, entry[quantity]


def time_text(us: float) -> str:
    """A time of `us` µs as text with a fitting unit and three digits."""
    return format_time(us * 1e-6, digits=3) if us > 1e-9 else "0"


def paths_lines(values: Mapping[str, Any], title: str) -> Iterator[str]:
    """Yield how many connections share each kind of link, the time over seeds, and the changes that
    were tried.
    """
    now = values["tried"][0]
    queues = f", {values['qps']} queue pairs" if values["qps"] > 1 else ""
    yield f"{title}: {time_text(now['median_us'])}, {values['routing']} routing{queues}"
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
            f"  least {time_text(times[0])}, median {time_text(median(times))}, "
            f"p90 {time_text(tenth)}, most {time_text(times[-1])}"
        )
    yield ""
    yield "What would help, each tried (bytes of the fullest link over the mean of all)"
    yield f"  {'':<24}{'median':>12}{'from':>12}{'to':>12}{'of now':>9}{'fullest':>9}"
    for link_kind in values["tried"]:
        if "refused" in link_kind:
            yield f"  {link_kind['what']:<24}  refused: {link_kind['refused']}"
            continue
        texts = [
            time_text(value)
            for value in (link_kind["median_us"], link_kind["us"][0], link_kind["us"][-1])
        ]
        part = link_kind["median_us"] / now["median_us"] if now["median_us"] else 0.0
        ends = "".join(f"{text:>12}" for text in texts)
        yield f"  {link_kind['what']:<24}{ends}{part:>9.0%}{link_kind['fullest_over_mean']:>9.3g}"


def paths_csv(values: Mapping[str, Any]) -> str:
    """A CSV table with a line for each time that was simulated: one change of settings with one
    seed.
    """
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
