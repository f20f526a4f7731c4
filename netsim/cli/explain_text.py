"""An explanation as text, and as CSV: one value a line, with its section, name and unit."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

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
    "*": "the critical path alone says otherwise: others are as long, or sharing shifts",
    "!": "an anomaly of sharing: better is slower, or 1 % changes more than 1 %: read no slope",
}
_BAR = 30
_MOST = 8  # lines of a section
_HOPS = 14  # steps of the path
_DIFFERS = 0.2  # from which the simulated slope and that of the path are told apart


def explain_lines(found: Mapping[str, Any], title: str) -> Iterator[str]:
    """All sections."""
    yield f"{title}: {time(found['time_us'])} from standstill, bound by {found['bound_by']}"
    sections = (_causes, _sharing, _links, _answers, _slack, _path)
    for section in sections:
        lines = list(section(found))
        if lines:
            yield ""
            yield from lines


def _causes(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"Where the time goes, along the critical path of {len(found['path'])} rows"
    whole = found["time_us"] or 1.0
    for cause, label in CAUSES.items():
        spent = found["causes_us"][cause]
        if spent > 0:
            bar = "#" * max(1, round(_BAR * spent / whole))
            yield f"  {label:<36}{time(spent):>12}{spent / whole:>8.1%}  {bar}"


def _sharing(found: Mapping[str, Any]) -> Iterator[str]:
    shown = [one for one in found["shared_with"] if one["us"] > 1e-3 * found["time_us"]]
    if not shown:
        return
    yield "Who shares the links that slow it"
    for one in shown[:_MOST]:
        yield f"  {time(one['us']):>12}  {one['who']}, on {one['link']}"


def _links(found: Mapping[str, Any]) -> Iterator[str]:
    yield "Links that are full for longest (of all time; and how much of them is used on average)"
    for one in found["links"][:_MOST]:
        full = one["full_us"] / found["time_us"] if found["time_us"] else 0.0
        yield f"  {one['link']:<44}{time(one['full_us']):>12}{full:>8.1%}{one['utilisation']:>8.1%}"


def _answers(found: Mapping[str, Any]) -> Iterator[str]:
    yield "What would change it"
    yield (
        f"  {'':<28}{'now':>12}{'+1 % of it':>13}{'10 % worse':>13}{'10 % better':>13}{'ideal':>13}"
    )
    marks = set()
    for one in found["parameters"]:
        simulated = one["per_percent_simulated_us"]
        slope = one["per_percent_us"] if simulated is None else simulated
        if abs(slope) < 1e-6 * found["time_us"] and _same(one, found["time_us"]):
            continue
        near = simulated is None or _near(simulated, one["per_percent_us"])
        marks.add(mark := "!" if one["anomalous"] else "" if near else "*")
        yield _answer(one, slope, f"  {mark}".rstrip())
    yield "  (ideal: infinitely fast, or without any latency; the rest as it is)"
    yield from (f"  ({mark} {MARKS[mark]})" for mark in MARKS if mark in marks)
    left = len(found["parameters"]) - found["confirmed"]
    if left:
        yield f"  (by the critical path alone, not simulated again: {left} parameters)"


def _same(one: Mapping[str, Any], now: float) -> bool:
    """Whether no change of a parameter that was tried changed the time."""
    tried = (one["worse_10pct_us"], one["better_10pct_us"], one["infinitely_fast_us"])
    return all(value is None or abs(value - now) <= 1e-4 * now for value in tried)


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _DIFFERS * max(abs(one), abs(other))


def _answer(one: Mapping[str, Any], slope: float, mark: str) -> str:
    now = "" if one["value"] is None else f"{one['value']:.4g} {_unit(one['unit'])}"
    shown = [
        "" if value is None else time(value)
        for value in (one["worse_10pct_us"], one["better_10pct_us"], one["infinitely_fast_us"])
    ]
    change = f"{'-' if slope < 0 else '+'}{time(abs(slope))}"
    return f"  {one['label']:<28}{now:>12}{change:>13}" + "".join(f"{t:>13}" for t in shown) + mark


def _slack(found: Mapping[str, Any]) -> Iterator[str]:
    whole = found["time_us"] or 1.0
    kinds = {k: v for k, v in found["slack_us"]["by_kind"].items() if v > 1e-3 * whole}
    gpus = {k: v for k, v in found["slack_us"]["by_gpu"].items() if v > 1e-3 * whole}
    if kinds or gpus:
        yield "What could be later without any harm (least slack of its rows)"
    for name, spare in sorted({**kinds, **gpus}.items(), key=lambda one: -one[1])[:_MOST]:
        yield f"  {name:<36}{time(spare):>12}{spare / whole:>8.1%}"


def _path(found: Mapping[str, Any]) -> Iterator[str]:
    hops = _hops(found["path"])
    if not hops:
        return
    yield "The critical path, first to last"
    left_out = len(hops) - _HOPS
    width = max(len(hop["name"]) for hop in hops) + 1
    for number, hop in enumerate(hops):
        if left_out > 0 and number == _HOPS // 2:
            yield f"  ... {left_out} more steps"
        if left_out > 0 and _HOPS // 2 <= number < len(hops) - _HOPS // 2:
            continue
        rows = f"{hop['rows']} rows" if hop["rows"] > 1 else "1 row"
        most = max(hop["causes"], key=hop["causes"].get) if hop["causes"] else ""
        cause = CAUSES.get(most, "")
        where = f" on {hop['limit']}" if hop["limit"] and most in ("transfer", "sharing") else ""
        yield (
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
            hops.append({"name": name, "begin": row["begin_us"], "rows": 0, "causes": {},
                         "limit": ""})  # fmt: skip
        last = hops[-1]
        last["rows"], last["end"] = last["rows"] + 1, row["end_us"]
        last["limit"] = row["limited_by"] or last["limit"]
        for cause in CAUSES:
            spent = row.get(f"{cause}_us", 0.0)
            if spent:
                last["causes"][cause] = last["causes"].get(cause, 0.0) + spent
    return hops


def explain_csv(found: Mapping[str, Any]) -> str:
    """Every value in a line of its own: section, name, quantity, value."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["section", "name", "quantity", "value"])
    writer.writerow(["total", "operation", "time_us", repr(found["time_us"])])
    for cause, spent in found["causes_us"].items():
        writer.writerow(["cause", cause, "us", repr(spent)])
    lists = (
        ("shared_with", ("link", "who"), ("us",)),
        ("links", ("link",), ("full_us", "utilisation")),
        ("parameters", ("parameter",), (
            "value", "on_path_us", "per_percent_us", "per_percent_simulated_us", "per_unit",
            "per_unit_simulated", "worse_10pct_us", "better_10pct_us", "infinitely_fast_us")),
        ("gpus", ("gpu",), ("communicating_us", "computing_us", "waiting_us")),
        ("path", ("row", "hop"), (
            "begin_us", "end_us", *(f"{cause}_us" for cause in CAUSES), "limited_by")),
    )  # fmt: skip
    for section, names, quantities in lists:
        for one in found[section]:
            name = " ".join(str(one[key]) for key in names)
            for quantity in quantities:
                if one.get(quantity) not in (None, ""):
                    writer.writerow([section, name, quantity, one[quantity]])
    for group, values in found["slack_us"].items():
        for name, spare in values.items():
            writer.writerow(["slack", name, group, repr(spare)])
    return text.getvalue()


def time(us: float) -> str:
    """A time with its unit."""
    for unit, factor in (("s", 1e6), ("ms", 1e3), ("us", 1.0)):
        if us >= factor:
            return f"{us / factor:.4g} {unit}"
    return f"{us * 1e3:.4g} ns" if us > 1e-9 else "0"


def _unit(text: str) -> str:
    return {"us": "us", "GB/s": "GB/s"}.get(text, text)
