"""`netsim localize`: which part makes tests of subsets of nodes slow, and what to test next."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from netsim.base.errors import InputError
from netsim.base.files import text_of, write_text
from netsim.base.units import parse_cli_size
from netsim.cli import (
    check_outputs,
    parsed,
    print_lines,
    refuse_output_as_input,
    with_options,
    wrote,
)
from netsim.cli.questions import Given, Text, asked
from netsim.localize.answer import LocalizeResult, as_values, text_lines
from netsim.localize.next_test import propose
from netsim.localize.node_tests import HostNumbers, HostTest, host_test_of, number_hosts
from netsim.localize.predictions import Predictor
from netsim.localize.search import Search
from netsim.localize.tables import is_table, read_table
from netsim.measured.logs import LogRun, read_log
from netsim.plots.suspects import plot_suspects
from netsim.results.workspace import OutputFolder
from netsim.yamlio.read import Source

NOT_HERE = ("sizes", "dtype", "algo", "proto", "tuner", "graph", "exact", "noise", "samples",
            "nccl_env", "gpu", "nics")  # fmt: skip
SUSPECTS = "suspects.json"


@with_options(Given, *NOT_HERE)
def command(
    logs: list[Path],
    given: Given,
    topology: Text = None,
    hosts: Path | None = None,
    collective: Text = None,
    size: Text = None,
    output: Path | None = None,
    json_file: Path | None = None,
) -> None:
    """Print which part makes LOG… slow: suspects with their probabilities, and the next test."""
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
    tests, runs = read_tests(logs, collective, size_bytes)
    source, notes = asked(topology, "all_reduce", given)
    print_lines(notes, err=True)
    result = localize(source, tests, runs, hosts_of_file(hosts))
    print_lines(text_lines(result))
    values = as_values(result)
    if json_file is not None:
        write_text(json_file, json.dumps(values, indent=1) + "\n")
        wrote(json_file)
    if folder is not None:
        wrote(*_write(result, values, folder))
    if result.verdict.faults:
        raise typer.Exit(1)


def read_tests(
    paths: Sequence[Path], collective: Text, size_bytes: int | None
) -> tuple[list[HostTest], list[LogRun]]:
    """The tests of all files: logs of nccl-tests, matrices of pairs, step times of ranks; and the
    runs of the logs."""
    tests: list[HostTest] = []
    runs: list[LogRun] = []
    for path in paths:
        if path.suffix in (".csv", ".json") and is_table(text_of(path)):
            tests += read_table(path, collective, size_bytes)
            continue
        for run in read_log(path, collective):
            tests.append(host_test_of(run))
            runs.append(run)
    if not tests:
        raise InputError("no log has a time")
    return tests, runs


def hosts_of_file(path: Path | None) -> list[str] | None:
    """The hosts of a host file in the order of the nodes: the first word of each line."""
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
    runs: Sequence[LogRun] = (),
    host_list: Sequence[str] | None = None,
    predictor: Predictor | None = None,
) -> LocalizeResult:
    """What makes tests slow on the cluster of a scenario. `predictor` is one of the same cluster
    whose simulations are taken over."""
    named = {host for test in tests for host in test.hosts}
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
    search = Search(predictor, timed)
    verdict = search.verdict()
    return LocalizeResult(search, verdict, numbers, propose(search, verdict))


def _write(result: LocalizeResult, values: dict[str, Any], folder: OutputFolder) -> list[Path]:
    def write(place: Path) -> list[Path]:
        written = write_text(place / SUSPECTS, json.dumps(values, indent=1) + "\n")
        return [written, *plot_suspects(result, place)]

    return folder.write(write)
