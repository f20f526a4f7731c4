"""Files of other programs that netsim writes or is given, and what it answers with them."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from netsim.engines.engine import simulate
from netsim.explain.what_if import Case, parameters_of
from netsim.measured.logs import read_log
from netsim.tasks.explained import explained_run
from tests.relations import draws
from tests.relations.answers import expect_prints, printed_by, resolved_of
from tests.relations.relation import Draw, Scenario, after, setting, times

LOGGED_SIZES = ("4KiB", "1MiB", "16MiB")
NO_SCHEDULE_FILE = ("gather", "scatter")  # collectives that MSCCL's formats cannot state


def in_a_folder(answer: Callable[[Scenario, Path], list[float]]) -> Callable[..., list[float]]:
    """Return an answer that has a temporary folder for its files."""

    def answer_in_a_folder(scenario: Scenario) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            return answer(scenario, Path(folder))

    return answer_in_a_folder


def written(scenario: Scenario, folder: Path) -> Path:
    """Write a scenario as a file."""
    file = folder / "scenario.yaml"
    file.write_text(yaml.safe_dump(scenario), encoding="utf-8")
    return file


def outputs_of(scenario: Scenario, output: str, pattern: str, folder: Path) -> Path:
    """Run a scenario with an output and return the first file of a pattern."""
    file = written({**scenario, "name": "made", "outputs": ["csv", output]}, folder)
    printed_by("run", file, "-q", "-o", folder / "results")
    return min((folder / "results").glob(pattern))


# **** Topologies ****


@in_a_folder
def read_as_nccl_topology(scenario: Scenario, folder: Path) -> list[float]:
    """Return the times on the machine that is exported as NCCL's XML and imported."""
    machine = scenario["cluster"]["machine"]
    system = folder / "system.xml"
    printed_by("topo", "export", machine, "--format", "nccl", "-o", system)
    printed_by("topo", "import", system, "-o", folder / "read.yaml")
    return after(setting({"cluster.machine": str(folder / "read.yaml")}))(scenario)


@in_a_folder
def with_graphs_of_the_search(scenario: Scenario, folder: Path) -> list[float]:
    """Return the times with the channels that `expect` writes as NCCL's graph XML."""
    cluster = scenario["cluster"]
    options: list[Any] = ["--sizes", "4K", "--graph-out", folder / "graph.xml"]
    for option in ("nodes", "gpus_per_node"):
        options += [f"--{option.replace('_', '-')}", cluster[option]]
    options += ["--fabric", cluster["fabric"]["kind"]]
    printed_by("expect", cluster["machine"], "all_reduce", *options)
    return after(setting({"nccl": {"graph": str(folder / "graph.xml")}}))(scenario)


def drawn_for_tuner(draw: Draw) -> Scenario:
    """A collective of which NCCL chooses the algorithm."""
    scenario = draws.hosts(draw)
    scenario["workload"] = {
        "collective": draw.choice(("all_reduce", "all_gather", "reduce_scatter")),
        "sizes": ["4KiB", "1MiB"],
    }
    return scenario


@in_a_folder
def with_tuner_of_expect(scenario: Scenario, folder: Path) -> list[float]:
    """Return the times with the fastest choices, which `expect` writes as a tuner's table."""
    cluster = scenario["cluster"]
    options: list[Any] = ["--nodes", cluster["nodes"], "--gpus-per-node", cluster["gpus_per_node"]]
    options += ["--fabric", cluster["fabric"]["kind"], "--tuner-out", folder / "tuner.csv"]
    collective = scenario["workload"]["collective"]
    printed_by("expect", cluster["machine"], collective, "--sizes", "4K,1M", *options)
    return after(setting({"nccl": {"tuner": str(folder / "tuner.csv")}}))(scenario)


@in_a_folder
def read_as_infragraph(scenario: Scenario, folder: Path) -> list[float]:
    """Return the times on the graph that is exported as InfraGraph and imported."""
    graph = folder / "graph.yaml"
    printed_by("topo", "export", written(scenario, folder), "--format", "infragraph", "-o", graph)
    printed_by("topo", "import", graph, "-o", folder / "read.yaml")
    cluster = yaml.safe_load((folder / "read.yaml").read_text(encoding="utf-8"))["cluster"]
    return after(setting({"cluster": cluster}))(scenario)


@in_a_folder
def read_as_astra_network(scenario: Scenario, folder: Path) -> list[float]:
    """Return the times on ASTRA-sim's spelling of the switch: GiB/s, and ns of each link."""
    graph = scenario["cluster"]["graph"]
    gibibytes = float(graph["bandwidth"].removesuffix("GB/s")) * 1e9 / 2**30
    nanoseconds = {"500ns": 500.0, "3us": 3000.0}[graph["latency"]] / 2  # two links a transfer
    lines = {
        "topology": ["Switch"],
        "npus_count": [graph["gpus"]],
        "bandwidth": [gibibytes],
        "latency": [nanoseconds],
    }
    (folder / "network.yml").write_text(yaml.safe_dump(lines, default_flow_style=None))
    printed_by("topo", "import", folder / "network.yml", "-o", folder / "read.yaml")
    cluster = yaml.safe_load((folder / "read.yaml").read_text(encoding="utf-8"))["cluster"]
    return after(setting({"cluster": cluster}))(scenario)


# **** Schedules ****


def drawn_schedule(draw: Draw) -> Scenario:
    """A textbook algorithm that MSCCL's formats can state, from standstill."""
    scenario = draws.switch(draw)
    while scenario["workload"]["collective"] in NO_SCHEDULE_FILE:
        scenario = draws.switch(draw)
    sizes = [draw.choice(("64KiB", "1MiB"))]  # of which every rank has a part
    scenario["workload"].update(timing="single", sizes=sizes)
    return scenario


def read_as(output: str, pattern: str) -> Callable[[Scenario], list[float]]:
    """Return a function that gives the times of the algorithm that is written and read back."""

    @in_a_folder
    def answer(scenario: Scenario, folder: Path) -> list[float]:
        file = outputs_of(scenario, output, pattern, folder)
        return after(setting({"workload.algorithm": str(file)}))(scenario)

    return answer


def replayed_as(output: str, pattern: str, *kept: str) -> Callable[[Scenario], list[float]]:
    """Return a function that gives the time of the trace that is written and read back, on the same
    cluster, with some keys of the scenario."""

    @in_a_folder
    def answer(scenario: Scenario, folder: Path) -> list[float]:
        file = outputs_of(scenario, output, pattern, folder)
        settings = {key: scenario[key] for key in ("cluster", *kept)}
        return times({**settings, "workload": {"trace": str(file)}})

    return answer


# **** Logs ****


def drawn_table(draw: Draw) -> Scenario:
    """A collective of NCCL at the sizes of a log."""
    scenario = draws.hosts(draw)
    scenario["workload"]["sizes"] = list(LOGGED_SIZES)
    scenario["workload"]["collective"] = draw.choice(("all_reduce", "all_gather", "alltoall"))
    return scenario


LOG_SIZES = "4K,1M,16M"


def times_of_log(file: Path, collective: str) -> list[float]:
    """Return the times out of place of a log, in microseconds."""
    runs = read_log(file, collective)
    return [1e6 * (row.out_of_place or 0.0) for run in runs for row in run.rows]


@in_a_folder
def read_from_printed_log(scenario: Scenario, folder: Path) -> list[float]:
    """Return the times of the table of nccl-tests that `expect` prints."""
    file = folder / "log.txt"
    file.write_text(expect_prints(scenario, LOG_SIZES, "--format", "nccl-tests"), encoding="utf-8")
    return times_of_log(file, scenario["workload"]["collective"])


@in_a_folder
def read_from_json_log(scenario: Scenario, folder: Path) -> list[float]:
    """Return the times of the JSON of nccl-tests that `expect` writes."""
    file = folder / "log.json"
    expect_prints(scenario, LOG_SIZES, "-J", file)
    return times_of_log(file, scenario["workload"]["collective"])


# **** What-ifs ****


def _case(scenario: Scenario) -> Case:
    resolved = resolved_of(scenario)
    (size,) = resolved.cell.scenario.collective.size_list()
    return Case(explained_run(resolved, size, most_rows=0)[1])


def time_for_each_parameter(scenario: Scenario) -> list[float]:
    """Return the time of the explained operation, as often as it has parameters."""
    case = _case(scenario)
    return [simulate(case.program).makespan] * len(parameters_of(case))


def time_with_each_parameter_times_one(scenario: Scenario) -> list[float]:
    """Return the time of the explained operation with each parameter scaled by 1."""
    case = _case(scenario)
    scaled = [parameter.scaled(case, 1.0) for parameter in parameters_of(case)]
    return [simulate(changed.program).makespan for changed in scaled]
