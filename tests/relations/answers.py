"""What entries of the table ask beyond times: columns, sums, other spellings, other verbs."""

import contextlib
import copy
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import yaml

import netsim
from netsim.cli import main
from netsim.measured.calibrate import calibrate
from netsim.measured.compare import resolved_for, times_of
from netsim.measured.logs import LogRun, MeasuredRow
from netsim.scenario.cells import expand
from netsim.tasks.explained import explained_run
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.yamlio.read import Source, parse_source
from tests.relations import draws
from tests.relations.relation import Draw, Scenario, Values, after, rows, setting, times, without

SPRAYED_LEAVES = {
    "kind": "leaf-spine",
    "nodes_per_leaf": 1,
    "routing": "spray",
    "delivery": "out-of-order",
}
OVERSUBSCRIBED = [
    {"kind": "leaf-spine", "nodes_per_leaf": 1, "oversubscription": ratio, "routing": "spray"}
    for ratio in (1, 2, 4)
]
SWITCH_BY_HAND = {
    "kind": "custom",
    "switches": ["only"],
    "links": [{"from": "node*.nic*", "to": "only"}],
}
TWO_AXES = {"cluster.nodes": [1, 2], "workload.dtype": ["half", "float"]}

# **** Draws with some keys set ****


def drawn(
    draw_scenario: Callable[[Draw], Scenario],
    settings: dict[str, Any],
    *,
    nccl: bool = False,
    moves: bool = False,
) -> Callable[[Draw], Scenario]:
    """Draw a scenario and set some of its keys. `nccl` leaves the algorithm to NCCL, on hosts;
    `moves` takes a large size, at which bandwidth counts."""

    def draw_and_set(draw: Draw) -> Scenario:
        scenario = draw_scenario(draw)
        while nccl and "graph" in scenario["cluster"]:
            scenario = draw_scenario(draw)
        if moves:
            scenario["workload"]["sizes"] = ["4MiB"]
        return setting(settings)(scenario)

    return draw_and_set


def drawn_for_expect(draw: Draw) -> Scenario:
    """A collective of NCCL on hosts that options of `expect` can describe."""
    scenario = draws.hosts(draw)
    scenario["workload"]["sizes"] = ["4KiB", "1MiB"]
    return scenario


def drawn_to_approximate(draw: Draw) -> Scenario:
    """A call so large that some of it is extrapolated."""
    cluster = {
        "machine": draw.choice(("dgx-h100", "dgx-a100")),
        "nodes": draw.choice((4, 8, 16)),
        "gpus_per_node": draw.choice((2, 4)),
    }
    work = {
        "collective": "all_reduce",
        "algorithm": draw.choice(("Tree", "Ring")),
        "sizes": [draw.choice(("16MiB", "64MiB"))],
    }
    return {"cluster": cluster, "workload": work}


# **** Changes of scenarios ****


def _ranks(scenario: Scenario) -> int:
    return scenario["cluster"]["graph"]["gpus"]


def with_shuffled_ranks(scenario: Scenario) -> Scenario:
    """Number the ranks from the last GPU to the first, after a rotation by one."""
    order = list(range(_ranks(scenario)))[::-1]
    return setting({"workload.ranks": [*order[1:], order[0]]})(scenario)


def with_every_rank_named(scenario: Scenario) -> Scenario:
    """Name all ranks in their order."""
    return setting({"workload.ranks": list(range(_ranks(scenario)))})(scenario)


def slower_graph(latency: float, rate: float) -> Callable[[Scenario], Scenario]:
    """Return a change that multiplies latencies and divides bandwidths of a plain graph."""

    def change(scenario: Scenario) -> Scenario:
        graph = scenario["cluster"]["graph"]
        nanoseconds = _nanoseconds(graph["latency"]) * latency
        graph["latency"] = f"{nanoseconds!r}ns"
        graph["bandwidth"] = f"{float(graph['bandwidth'].removesuffix('GB/s')) / rate!r}GB/s"
        return scenario

    return change


def _nanoseconds(text: str) -> float:
    if text.endswith("us"):
        return 1e3 * float(text.removesuffix("us"))
    return float(text.removesuffix("ns"))


def switch_by_hand(scenario: Scenario) -> Scenario:
    """Write the nodes and links of a switch out."""
    graph = scenario["cluster"]["graph"]
    names = [f"g{rank}" for rank in range(graph["gpus"])]
    # A transfer crosses two links: the latency of the preset is of both together.
    latency = f"{_nanoseconds(graph['latency']) / 2!r}ns"
    settings = {"bandwidth": graph["bandwidth"], "latency": latency}
    scenario["cluster"]["graph"] = {
        "nodes": [*({"name": name} for name in names), {"name": "s", "kind": "switch"}],
        "links": [{"from": name, "to": "s", **settings} for name in names],
    }
    return scenario


def ring_by_hand(scenario: Scenario) -> Scenario:
    """Write the nodes and links of a ring out."""
    graph = scenario["cluster"]["graph"]
    count = graph["gpus"]
    settings = {"bandwidth": graph["bandwidth"], "latency": graph["latency"]}
    pairs = [(rank, (rank + 1) % count) for rank in range(count if count > 2 else 1)]
    scenario["cluster"]["graph"] = {
        "nodes": [{"name": f"g{rank}", "forwards": True} for rank in range(count)],
        "links": [{"from": f"g{tail}", "to": f"g{head}", **settings} for tail, head in pairs],
    }
    return scenario


def _grouped(scenario: Scenario, node_counts: list[int]) -> Scenario:
    cluster = scenario["cluster"]
    group = {"machine": cluster.pop("machine"), "gpus_per_node": cluster.pop("gpus_per_node")}
    del cluster["nodes"]
    cluster["groups"] = [{**group, "nodes": count} for count in node_counts]
    return scenario


def as_one_group(scenario: Scenario) -> Scenario:
    """Write a cluster as one group of hosts."""
    return _grouped(scenario, [scenario["cluster"]["nodes"]])


def as_two_groups(scenario: Scenario) -> Scenario:
    """Write a cluster as a group of one host and a group of the others."""
    return _grouped(scenario, [1, scenario["cluster"]["nodes"] - 1])


def first_job_alone(scenario: Scenario) -> Scenario:
    """Leave the second job out."""
    return setting({"jobs": scenario["jobs"][:1]})(scenario)


def first_job_as_workload(scenario: Scenario) -> Scenario:
    """Run the first job's workload on its two hosts, without jobs."""
    first = scenario["jobs"][0]
    cluster = {**scenario["cluster"], "nodes": first["nodes"]}
    return {"cluster": cluster, "workload": first["workload"]}


# **** Columns and sums ****


def column(name: str) -> Callable[[Scenario], list[float]]:
    """Return a function that gives a column of all rows."""
    return lambda scenario: [getattr(row, name) for row in rows(scenario)]


def detail(
    name: str, change: Callable[[Scenario], Scenario] | None = None
) -> Callable[[Scenario], list[float]]:
    """Return a function that gives an entry of the breakdown of all rows, after a change."""

    def answer(scenario: Scenario) -> list[float]:
        scenario = copy.deepcopy(scenario)
        return [row.details[name] for row in rows(change(scenario) if change else scenario)]

    return answer


PARTS_OF_STEP = ("computing_us", "idle_us")


def sum_of_breakdown(scenario: Scenario) -> list[float]:
    """Return the sum of computing, exposed communication and idle time of each row."""
    return [
        sum(
            value
            for name, value in row.details.items()
            if name in PARTS_OF_STEP or name.startswith("exposed_")
        )
        for row in rows(scenario)
    ]


def tokens_of_step(scenario: Scenario) -> list[float]:
    """Return tokens in a second times the seconds of a step."""
    return [
        row.details["tokens_per_s"] * row.details["step_time_us"] / 1e6 for row in rows(scenario)
    ]


def tokens_of_batch(scenario: Scenario) -> list[float]:
    """Return the tokens of a batch: sequences times their length."""
    work = scenario["workload"]
    return [float(work["batch"] * work["model"]["sequence"])]


def sum_over(key: str, values: list[Any]) -> Callable[[Scenario], list[float]]:
    """Return a function that gives the sum of the times with each value of a key."""
    return lambda scenario: [sum(after(setting({key: value}))(scenario)[0] for value in values)]


def sorted_times(change: Callable[[Scenario], Scenario]) -> Callable[[Scenario], list[float]]:
    """Return a function that gives all times after a change, the least first."""
    return lambda scenario: sorted(after(change)(scenario))


def forced_choice(scenario: Scenario) -> list[float]:
    """Return the times with the algorithm and protocol that NCCL chose named in the scenario."""
    chosen = rows(scenario)[0]
    forced = {"workload.algorithm": chosen.algorithm, "workload.protocol": chosen.protocol}
    return after(setting(forced))(scenario)


def bus_bandwidth_from_time(scenario: Scenario) -> list[float]:
    """Return GB/s of an all_reduce from its size, ranks and time: 2 (n - 1) / n of size / time."""
    bandwidths = []
    for row in rows(scenario):
        assert row.ranks
        assert row.size_bytes
        assert row.time_us
        factor = 2 * (row.ranks - 1) / row.ranks
        bandwidths.append(factor * row.size_bytes / row.time_us / 1e3)
    return bandwidths


def slowdown_from_times(scenario: Scenario) -> list[float]:
    """Return each job's time beside the others over its time alone."""
    ratios = []
    for row in rows(scenario):
        assert row.time_us
        assert row.alone_us
        ratios.append(row.time_us / row.alone_us)
    return ratios


def over_left_of_nic(fractions: list[str]) -> Callable[[Scenario], list[float]]:
    """Return a function that gives the time for each fraction that is left of a NIC's rate."""

    def answer(scenario: Scenario) -> list[float]:
        faults = [[{"nic": "node0.nic0", "bandwidth": left}] for left in fractions]
        return [after(setting({"cluster.faults": fault}))(scenario)[0] for fault in faults]

    return answer


def median_plus(microseconds: float) -> Callable[[Scenario], list[float]]:
    """Return a function that gives the time without noise, and so much more."""

    def answer(scenario: Scenario) -> list[float]:
        quiet = after(without("noise", "samples"))
        return [time + microseconds for time in quiet(scenario)]

    return answer


def apart_by_at_most(microseconds: float) -> Callable[[Values, Values], str]:
    """Return a check that answers differ by at most so many microseconds."""

    def check(left: Values, right: Values) -> str:
        for one, other in zip(left, right, strict=True):
            if abs(one - other) > microseconds:
                return f"{one!r} and {other!r} are more than {microseconds:g} us apart"
        return ""

    return check


def later_by(least: float, most: float) -> Callable[[Values, Values], str]:
    """Return a check that the right answer is more than the left one by a number of us."""

    def check(left: Values, right: Values) -> str:
        for one, other in zip(left, right, strict=True):
            if not least <= other - one <= most:
                return f"{other!r} is not {least:g} to {most:g} us after {one!r}"
        return ""

    return check


def distance_from_exact(scenario: Scenario) -> list[float]:
    """Return by how many percent the default answer is from the exact one."""
    (usual,) = times(scenario)
    (exact,) = after(setting({"exact": True}))(scenario)
    return [100 * abs(usual - exact) / exact]


def stated_error(scenario: Scenario) -> list[float]:
    """Return the error that the default answer states, in percent, and rounding."""
    return [(row.approximation_pct or 0.0) + 1e-7 for row in rows(scenario)]


# **** Explanations ****


def resolved_of(scenario: Scenario) -> ResolvedCell:
    """Return the only cell of a scenario, ready to be simulated."""
    text = yaml.safe_dump(copy.deepcopy(scenario))
    return resolve(expand(parse_source(text, "relation.yaml"))[0])


def explained(scenario: Scenario) -> dict[str, Any]:
    """Return the explanation of a scenario at its only size."""
    resolved = resolved_of(scenario)
    (size,) = resolved.cell.scenario.collective.size_list()
    return explained_run(resolved, size)[0]


def explained_time(scenario: Scenario) -> list[float]:
    """Return the time that an explanation is about."""
    return [explained(scenario)["time_us"]]


def sum_of_causes(scenario: Scenario) -> list[float]:
    """Return the sum of the times by cause."""
    return [sum(explained(scenario)["causes_us"].values())]


def time_without_fold(scenario: Scenario) -> list[float]:
    """Return the time from standstill with every rank simulated."""
    return after(setting({"fold": "off", "workload.timing": "single"}))(scenario)


def _rate_parameter(scenario: Scenario) -> dict[str, Any]:
    parameters = explained(scenario)["parameters"]
    return next(one for one in parameters if one["parameter"] == "fabric.rate")


def explained_with_faster_links(scenario: Scenario) -> list[float]:
    """Return the time that an explanation gives for links that are 10 % faster."""
    return [_rate_parameter(scenario)["better_10pct_us"]]


def graph_with_faster_links(scenario: Scenario) -> list[float]:
    """Return the time of the scenario with links that are 10 % faster."""
    return after(slower_graph(1.0, 1 / 1.1))(scenario)


def explained_without_parts(scenario: Scenario) -> list[float]:
    """Return the times that an explanation gives where one parameter is infinitely fast."""
    ideal = [one["infinitely_fast_us"] for one in explained(scenario)["parameters"]]
    return [time for time in ideal if time is not None]


def explained_time_for_each_part(scenario: Scenario) -> list[float]:
    """Return the time itself, as often as parameters have an ideal."""
    return explained_time(scenario) * len(explained_without_parts(scenario))


# **** Logs ****


def drawn_log(draw: Draw) -> Scenario:
    """A system and a collective of which a log is made."""
    cluster = {"machine": draw.choice(("dgx-a100", "dgx-h100")), "gpus_per_node": 4}
    return {
        "cluster": cluster,
        "workload": {"collective": draw.choice(("all_reduce", "all_gather", "broadcast"))},
    }


LOG_SIZES = tuple(1 << power for power in (10, 14, 18, 20, 24, 28))
LOG_DIGITS = 4


def _source(scenario: Scenario) -> Source:
    return parse_source(yaml.safe_dump(scenario), "system")


def log_of(scenario: Scenario) -> LogRun:
    """Return the log that the system would write without noise, of four digits."""
    collective = scenario["workload"]["collective"]
    run = LogRun(
        "made.log", collective, tuple(MeasuredRow(size, out_of_place=1.0) for size in LOG_SIZES)
    )
    seconds = times_of(resolved_for(_source(scenario), run), run.rows, collective)
    printed = [float(f"{time:.{LOG_DIGITS}g}") for time in seconds.tolist()]
    timed = [replace(row, out_of_place=time) for row, time in zip(run.rows, printed, strict=True)]
    return replace(run, rows=tuple(timed))


def calibrated_ratios(scenario: Scenario) -> list[float]:
    """Return the largest factor by which calibration to the own log changes a figure."""
    found = calibrate([(_source(scenario), log_of(scenario))], 1)
    changes = [abs(one.value) for one in found.fitted if not one.left]
    return [exp(max(changes, default=0.0))]


def compared_with_itself(scenario: Scenario) -> list[float]:
    """Return predicted over measured times of the own log."""
    run = log_of(scenario)
    seconds = times_of(resolved_for(_source(scenario), run), run.rows, run.collective)
    return [
        time / (row.out_of_place or 0.0)
        for time, row in zip(seconds.tolist(), run.rows, strict=True)
    ]


def ones(_: Scenario) -> list[float]:
    """Return one for every size of a log."""
    return [1.0] * len(LOG_SIZES)


# **** Command lines and files ****


def printed_by(*words: object) -> str:
    """Return what a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            code: object = main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
    assert not code, words
    return out.getvalue()


def expect_prints(scenario: Scenario, sizes: str, *options: Any) -> str:
    """Return what `netsim expect` prints of a scenario's question at other sizes."""
    cluster = scenario["cluster"]
    return printed_by(
        "expect",
        cluster["machine"],
        scenario["workload"]["collective"],
        "--nodes",
        cluster["nodes"],
        "--gpus-per-node",
        cluster["gpus_per_node"],
        "--fabric",
        cluster["fabric"]["kind"],
        "--sizes",
        sizes,
        *options,
    )


def expected_times(scenario: Scenario) -> list[float]:
    """Return the times that `netsim expect` prints as JSON for the same question."""
    text = expect_prints(scenario, "4K,1M", "--format", "json")
    return [row["time_us"] for row in json.loads(text)]


def with_settings(*settings: str) -> Callable[[Scenario], list[float]]:
    """Return a function that gives the times with values replaced as `--set` replaces them."""
    return lambda scenario: [row.time_us for row in netsim.run(scenario, list(settings))]


def exported_fabric(scenario: Scenario) -> list[float]:
    """Return the times on the cluster that `topo export --format custom` writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        file.write_text(yaml.safe_dump(scenario), encoding="utf-8")
        text = printed_by("topo", "export", file, "--format", "custom")
    return after(setting({"cluster": yaml.safe_load(text)["cluster"]}))(scenario)


def exported_graph(scenario: Scenario) -> list[float]:
    """Return the times on the graph that is exported as node-link JSON and imported."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        file.write_text(yaml.safe_dump(scenario), encoding="utf-8")
        written = Path(folder) / "graph.json"
        printed_by("topo", "export", file, "--format", "json", "-o", written)
        read = Path(folder) / "read.yaml"
        printed_by("topo", "import", written, "-o", read)
        cluster = yaml.safe_load(read.read_text(encoding="utf-8"))["cluster"]
    return after(setting({"cluster": cluster}))(scenario)
