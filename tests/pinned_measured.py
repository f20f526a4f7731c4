"""What is read from indexes, logs and tables of measured runs, and what is told of them (see
`tests.pins`). Nothing is simulated: simulated times stand a known factor beside measured ones."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import sin
from pathlib import Path
from typing import Any

from netsim.base.errors import NetsimError
from netsim.base.startup import MODEL_VERSION
from netsim.measured import accuracy, compare, index, logs, training
from netsim.measured.index import Entry, read_index
from netsim.measured.logs import LogRun, parse_log, parse_text, read_csv
from netsim.nccl.facts import FUNCTIONS
from tests.pins import Found, family

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "scenarios" / "measured" / "index.yaml"
STEPS = ROOT / "scenarios" / "measured" / "training.yaml"
LOGS = sorted((ROOT / "tests" / "data" / "logs").glob("*.txt"))


def outcome(ask: Callable[..., Any], *given: Any) -> object:
    """What a question gives, or the words with which it is refused."""
    try:
        found = ask(*given)
        return list(found) if isinstance(found, Iterator) else found
    except (NetsimError, ValueError) as error:
        return str(error).replace(str(ROOT), "")


def by_name(found: Iterable[tuple[str, object]]) -> Found:
    """Values of several with one name together."""
    every: dict[str, list[object]] = {}
    for name, value in found:
        every.setdefault(name, []).append(value)
    yield from every.items()


# **** Training steps that others have published ****


@family
def published_steps() -> Found:
    """Every entry of the index of steps as a scenario, or why it is none."""
    yield from by_name(
        (str(one).partition(":")[0] if isinstance(one, str) else one.group, one)
        for one in (outcome(training.published, entry) for entry in read_index(STEPS, ()))
    )


CHANGED_STEPS = (
    "mosaic_110",
    "titan_a70_async_float8_rowise",
    "nemo_018",
    "nemo_036",
    "nemo_255",
    "mlperf_v30_NVIDIA_dgxh100_n64_nemo_gpt3",
)
OTHERS = ("", "none", "1", "2", "7", "96", "1,024 (each)", "GPT-3 175B", "MPT 7b", "MPT 99b", "fp8",
          "FP8-MX", "NVFP4", "bf16", "true", "full AC, 202412", "Interleaved AsyncTP",
          "A100", "H100 PCIe", "gpt-oss tokendrop", "deepseek w/o MTP", "qwen3_235", "lora",
          "26.06",
          "https://github.com/mlcommons/training_results_v3.0/",
          "https://github.com/mlcommons/training_results_v4.0/")  # fmt: skip


@family
def changed_steps() -> Found:
    """What becomes of entries where a key says something else, or nothing."""
    entries = {entry.id: entry for entry in read_index(STEPS, ())}
    yield from by_name(
        (path[-1], outcome(training.published, replace(entry, values=values)))
        for entry in (entries[name] for name in CHANGED_STEPS)
        for path in paths_of(entry.values)
        for values in (with_value(entry.values, path, value) for value in (None, *OTHERS))
    )


@family
def clusters_of_steps() -> Found:
    """The hosts of entries, on machines of hosts and of racks, in counts that fill them or not."""
    entries = {entry.id: entry for entry in read_index(STEPS, ())}
    for name in ("A100", "H100 PCIe", "B200", "GB200", "GB300", "GH200"):
        for count in (1, 2, 3, 4, 6, 8, 12, 36, 72, 76, 100, 108, 140, 144, 156, 288):
            for each in (None, 1, 2, 4, 8):
                values = {**entries["nemo_018"].values, "accelerator": name, "accelerators": count}
                asked = replace(entries["nemo_018"], values=with_value(values, ("per_node",), each))
                yield f"{name} {count} {each}", outcome(training._Rules(asked).cluster)


def paths_of(values: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Where values that rules may read stand."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from ((key, *rest) for rest in paths_of(value))
        elif key not in ("id", "note", "commit", "layers_note", "url"):
            yield (key,)


def with_value(values: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """The values with another one; of None, without it."""
    first, *rest = path
    if rest:
        return {**values, first: with_value(values[first], tuple(rest), value)}
    kept = {key: one for key, one in values.items() if key != first}
    return kept if value is None else {**kept, first: value}


def simulated_steps() -> training.Steps:
    """All published steps, each told to take some known factor as long."""
    told, failed = [], {}
    for number, entry in enumerate(read_index(STEPS, ())):
        try:
            one = training.published(entry)
            told.append(training.ComparedStep(one, one.seconds * factor(number), 0.4))
        except NetsimError as error:
            failed[entry.id] = str(error).partition(": ")[2]
    again = [replace(one, simulated=one.simulated * 1.1) for one in told]
    return training.Steps(tuple(told), failed, 0, tuple(again), ("one: launch.host 3",))


def factor(number: int) -> float:
    """A number about 1, another one for each."""
    return float(1 + 0.3 * sin(1.7 * number))


@family
def pages_of_steps() -> Found:
    """What is written of steps beside published ones."""
    found = simulated_steps()
    sources = {entry.id: entry.text("source") for entry in read_index(STEPS, ())}
    yield "json", json.loads(found.json())  # of texts every digit would count
    yield "page", training.page_of(found, sources)
    yield (
        "page of few",
        training.page_of(training.Steps(found.compared[:3], {"a": "why"}, 4), sources),
    )
    yield "tables", list(training.tables(found.compared))
    yield "notes", training.by_note(found.compared)
    yield "told", [(one.published.told, one.published.rate) for one in found.compared]


# **** Measured runs ****


@family
def measured_runs() -> Found:
    """Every entry of the index of runs as a scenario, and its rows."""
    entries = read_index(INDEX)
    yield from by_name((entry.system, about(entry)) for entry in entries)
    rows = ((entry.system + " rows", list(entry.rows())) for entry in entries)
    yield from by_name(rows)


def about(entry: Entry) -> list[object]:
    """What an entry is taken for."""
    asked = (index.mapped, index.joined_by, index.nics_gbps)
    facts = [entry.system, entry.machine, entry.healthy, entry.transport, entry.ranks]
    return [*facts, *(outcome(ask, entry) for ask in asked)]


RUNS = (
    "abci_a100_2x8_all_reduce_1",
    "coreweave_gb200_nvl72_18x4_all_reduce_1",
    "rtx2080ti_autodl_2_broadcast_1",
)
TOLD = ("", "unknown", "0", "1", "2", "3", "16", "yes", "no (slow)", "roce", "efa", "ib",
        "400", "8 x 400 Gb/s", "2.19.3", "2.9", "master", "2022-05", "dgx-h100", "h100", "half",
        "cuda_graph", "process_per_gpu", "single_process", "{NCCL_ALGO: Tree}")  # fmt: skip


@family
def changed_runs() -> Found:
    """What becomes of entries of runs where a key says something else, or nothing."""
    entries = {entry.id: entry for entry in read_index(INDEX)}
    yield from by_name(
        (path[-1], about(replace(entry, values=values)))
        for entry in (entries[name] for name in RUNS)
        for path in paths_of(entry.values)
        for values in (with_value(entry.values, path, value) for value in (None, *TOLD))
    )


VARIABLES = (
    "NCCL_ALGO=Tree",
    "NCCL_PROTO=LL",
    "NCCL_NVLS_ENABLE=0",
    "NCCL_P2P_DISABLE=1",
    "NCCL_MAX_NCHANNELS=x",
    "FI_PROVIDER=efa",
    "NCCL_IB_HCA=mlx5",
)


@family
def proposals() -> Found:
    """What logs say of the systems that they come from, also where parts of them are missing."""
    for file in LOGS:
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines()
        some = [text, "\n".join(lines[5:]), "\n".join(lines[:-6]), "\n".join(lines[::2])]
        some += ["\n".join((*VARIABLES[:4], text)), text.replace("float", "half")]
        some += [text.replace("rank", "Rank "), text.replace("  ", " ", 40)]
        yield file.name, [said(text) for text in some]
    for name in (
        "NVIDIA H100 80GB HBM3",
        "NVIDIA A100-SXM4-40GB",
        "Tesla V100-SXM2-32GB",
        "AMD Instinct MI300X",
        "NVIDIA GB200",
        "NVIDIA L40S",
        "Quadro K600",
    ):
        yield name, [index.machine_named(name, gpus) for gpus in (1, 4, 5, 8, 16)]


def said(text: str) -> object:
    """What a text is as a log, run by run."""

    def asked(run: LogRun) -> list[object]:
        checks = ((1, 1), (8, 1), (8, 2), (16, 2))
        told = [outcome(index.check_ranks, run, *one) for one in checks]
        against = [outcome(index.contradictions, run, how, 2) for how in ("single_process", "x")]
        return [run, outcome(index.proposal_of, run), told, against]

    try:
        return [asked(run) for run in parse_log(text, "a.txt")]
    except NetsimError as error:
        return str(error)


@family
def tables_of_runs() -> Found:
    """Tables of runs, also where they are damaged."""
    lines = (INDEX.parent / "csv" / "a100_superbench_8_all_reduce_1.csv").read_text().splitlines()
    for number, column in enumerate(lines[0].split(",")):
        told = []
        for other in ("", "0", "-1", "x", "1e9", "nan", "2.5"):
            cells = lines[1].split(",")
            cells[number] = other
            text = "\n".join([lines[0], ",".join(cells), *lines[2:5]])
            told += [outcome(logs.parse_csv, text, "a.csv", bus) for bus in (0.0, 1.75)]
        yield column, told
    yield "functions", [outcome(logs.collective_in, f"{name}_perf") for name in FUNCTIONS]
    yield "one", outcome(parse_text, "# nothing", "a.txt")
    alltoall = read_csv(INDEX.parent / "csv" / "a100_superbench_8_alltoall_1.csv")
    yield "rows", [row.seconds(name) for row in alltoall for name in ("alltoall", "sendrecv")]


# **** What is told of errors ****


def simulated_runs() -> tuple[accuracy.Accuracy, tuple[Entry, ...]]:
    """All runs of the index, each row told to take some known factor as long."""
    entries = read_index(INDEX)
    points = [
        compare.Point(
            entry.id,
            entry.machine,
            entry.collective,
            row.size_bytes,
            seconds * 1e6,
            seconds * 1e6 * factor(7 * number + place),
            "Ring",
            "LL",
            entry.healthy,
            entry.system,
        )
        for number, entry in enumerate(entries)
        for place, row in enumerate(entry.rows()[::3])
        if (seconds := row.seconds(entry.collective)) and row.size_bytes > 0
    ]
    left = [replace(one, simulated_us=one.simulated_us * 1.05) for one in points[::2]]
    failed = (compare.Failed("a", "why"), compare.Failed("b", "too large", 64))
    notes = {entries[0].id: ("taken as dgx-h100",)}
    return accuracy.Accuracy(tuple(points), failed, notes, 1, 2, tuple(left)), entries


@family
def pages_of_runs() -> Found:
    """What is written of runs: bands, classes, intervals, forecasts and the page."""
    found, entries = simulated_runs()
    known = {point.run for point in found.points}
    entries = tuple(entry for entry in entries if entry.id in known)
    page = accuracy.page_text(found, entries, {"dgx-h100": ["a.svg", "b.svg"]})
    yield "page", page.replace(MODEL_VERSION, "")
    yield "bands", accuracy.bands(found.points)
    yield "classes", accuracy.classes_of(found.points, entries)
    yield "intervals", accuracy.intervals_text(found.points, entries)
    yield "json", json.loads(found.json())  # of texts every digit would count
    forecast = accuracy.forecast_text(found, entries)
    yield "forecast", forecast.replace(MODEL_VERSION, "")
    yield "compared", accuracy.compared(found.points, found.left_out)
    yield "weighted", [compare.few(range(n), most) for n in (1, 2, 7, 9) for most in (1, 2, 5)]
