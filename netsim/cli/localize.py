"""`netsim localize`: finds the part that makes tests of some nodes slow, and proposes the next
test.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from netsim.base.errors import InputError, ScenarioError
from netsim.base.files import text_of, write_text
from netsim.base.units import parse_cli_size
from netsim.base.values import dataclass
from netsim.cli.output import check_outputs, parsed, print_lines, refuse_output_as_input, wrote
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.localize.answer import LocalizeResult, as_values, text_lines
from netsim.localize.debug_log import DebugFacts, differences, read_debug_log
from netsim.localize.next_test import propose
from netsim.localize.node_tests import HostNumbers, HostTest, NodeTest, host_test_of, number_hosts
from netsim.localize.predictions import Predictor
from netsim.localize.search import FaultSearch
from netsim.localize.tables import is_table, read_table
from netsim.measured.logs import LARGEST_FILE, read_log
from netsim.plots.suspects import plot_suspects
from netsim.results.workspace import OutputFolder
from netsim.yamlio.read import Source

SUSPECTS = "suspects.json"


def localize_faults(
    logs: list[Path],
    options: QuestionOptions,
    *,
    topology: str | None = None,
    hosts: Path | None = None,
    collective: str | None = None,
    size: str | None = None,
    output: Path | None = None,
    json_file: Path | None = None,
) -> None:
    """Print which parts may make the tests in logs slow, with probabilities, and the next test to
    run.

    Exits with code 1 if a part is found to be at fault. `collective` and `size` apply to logs and
    tables that do not state them.
    """
    if topology is None:
        raise InputError("--topology is missing: the machine, or a scenario with the cluster")
    check_outputs({"--json": json_file}, output=output)
    outputs = [json_file, *([output / SUSPECTS] if output is not None else [])]
    for file in outputs:
        refuse_output_as_input(file, logs)
    folder = None
    if output is not None:
        folder = OutputFolder(output, "localize", tuple(map(str, logs)))
        folder.check()
    size_bytes = None if size is None else parsed(parse_cli_size, "--size", size)
    tests = read_tests(logs, collective, size_bytes)
    debug_logs = read_debug_logs(logs, collective)
    if not tests and not debug_logs:
        raise InputError("no log has a time, and none has messages of NCCL")
    source, notes = source_of_question(topology, "all_reduce", options)
    print_lines(notes, err=True)
    result = localize(source, tests, debug_logs, hosts_of_file(hosts))
    print_lines(text_lines(result))
    values = as_values(result)
    if json_file is not None:
        write_text(json_file, json.dumps(values, indent=1) + "\n")
        wrote(json_file)
    if folder is not None:
        wrote(*_write(result, values, folder))
    if result.verdict.faults:
        raise typer.Exit(1)


@dataclass(frozen=True)
class DebugLog:
    """A debug log of NCCL: its facts, the hosts in rank order, and (algorithm, protocol) by size in
    bytes.
    """

    label: str
    facts: DebugFacts
    hosts: tuple[str, ...]
    collective: str
    choices: Mapping[int, tuple[str, str]]


def read_tests(
    paths: Sequence[Path], collective: str | None, size_bytes: int | None
) -> list[HostTest]:
    """The tests in all files: logs of nccl-tests, tables of pairs of hosts, step times of ranks.

    Files that have only messages of NCCL are left out. `collective` and `size_bytes` apply to files
    that do not state them.
    """
    tests: list[HostTest] = []
    for path in paths:
        if path.suffix in (".csv", ".json") and is_table(text_of(path)):
            tests += read_table(path, collective, size_bytes)
            continue
        try:
            tests += [host_test_of(run) for run in read_log(path, collective)]
        except InputError:
            if read_debug_log(_text(path)).is_empty:
                raise
    return tests


def read_debug_logs(paths: Sequence[Path], collective: str | None) -> list[DebugLog]:
    """The debug logs among the files: those that have messages of NCCL, whether or not they have
    times.
    """
    logs = []
    for path in paths:
        facts = read_debug_log(_text(path))
        if facts.is_empty:
            continue
        hosts = tuple(facts.hosts)
        choices: Mapping[int, tuple[str, str]] = {}
        name = collective or "all_reduce"
        with suppress(InputError):
            run = read_log(path, collective)[0]
            hosts = tuple(run.hosts) or hosts
            choices = run.choices
            name = run.collective
        logs.append(DebugLog(str(path), facts, hosts, name, choices))
    return logs


def _text(path: Path) -> str:
    """The text of a file; empty if it is compressed or binary, because such a file has
    no messages.
    """
    try:
        return text_of(path, LARGEST_FILE)
    except ScenarioError:
        return ""


def hosts_of_file(path: Path | None) -> list[str] | None:
    """The names in a host file (the first word of each line), in the order of the nodes; None
    without a file.
    """
    if path is None:
        return None
    lines = [line.partition("#")[0].split() for line in text_of(path).splitlines()]
    names = [words[0] for words in lines if words]
    if not names:
        raise InputError(f"{path}: names no host; expected one on each line")
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(f"{path}: names {repeated} twice")
    return names


def localize(
    source: Source,
    tests: Sequence[HostTest],
    debug_logs: Sequence[DebugLog] = (),
    host_list: Sequence[str] | None = None,
    predictor: Predictor | None = None,
) -> LocalizeResult:
    """Find the parts that make tests slow on the cluster of a scenario, and the next test to run.

    Args:
        source: the scenario
        host_list: names of the hosts in the order of the nodes; None takes the order from the names
        predictor: simulations of the same cluster to reuse; None begins with none
    """
    named = {host for test in tests for host in test.hosts}
    named |= {host for log in debug_logs for host in log.hosts}
    in_file = source.data["cluster"].get("nodes") or 0
    if host_list is not None:
        numbers = HostNumbers(dict(enumerate(host_list)))
        node_count = max(in_file, len(host_list))
    else:
        numbers = number_hosts(named, in_file if in_file > 1 else None)
        node_count = max(in_file, max(numbers.names) + 1)
    if predictor is None or predictor.node_count != node_count:
        predictor = Predictor(source, node_count)
    timed = [test.on_nodes(numbers, predictor.gpus_per_node) for test in tests]
    search = FaultSearch(predictor, timed)
    verdict = search.verdict()
    log_differences = [
        difference
        for log in debug_logs
        for difference in differences(
            Path(log.label).name,
            log.facts,
            NodeTest(tuple(numbers.number_of(host) for host in log.hosts), log.collective),
            predictor,
            log.choices,
        )
    ]
    return LocalizeResult(
        search, verdict, numbers, propose(search, verdict), tuple(log_differences)
    )


def _write(result: LocalizeResult, values: dict[str, Any], folder: OutputFolder) -> list[Path]:
    def write(place: Path) -> list[Path]:
        written = write_text(place / SUSPECTS, json.dumps(values, indent=1) + "\n")
        return [written, *plot_suspects(result, place)]

    return folder.write(write)
