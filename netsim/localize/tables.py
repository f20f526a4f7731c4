"""Tables of measured times of many hosts: matrices of pairs and step times of ranks."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError
from netsim.base.files import text_of
from netsim.base.units import format_size, parse_cli_size
from netsim.localize.node_tests import COMPUTE, HostTest, SizeQuestion
from netsim.measured.logs import FACTOR, LARGEST_FILE, PART, WHOLE

PAIR_COLUMNS = (
    ("host_a", "host_b"), ("host1", "host2"), ("src", "dst"), ("source", "destination"),
    ("node_a", "node_b"),
)  # fmt: skip
"""Names of the two columns that name the hosts of a pair."""
STEP_COLUMNS = {"step_time_s": 1.0, "step_time_ms": 1e-3, "step_s": 1.0, "step_ms": 1e-3,
                "seconds": 1.0, "compute_s": 1.0, "compute_ms": 1e-3}  # fmt: skip
"""Names of the column of a step time, and its unit in seconds."""
EMPTY = ("", "-", "x", "n/a", "nan")
STEP = SizeQuestion(1)
FEWEST_IN_MATRIX = 2


def is_table(text: str) -> bool:
    """Whether a text is a matrix of pairs or a table of step times, judged by its first
    characters.
    """
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith(("{", "[")):
        return '"busbw_gbps"' in start[:65536] and '"hosts"' in start[:65536]
    header = _columns(start.split("\n", 1)[0])
    if len(header) < FEWEST_IN_MATRIX or header[0] == "size_bytes":
        return False
    return bool(_pair_columns(header) or _step_column(header) or _is_square(header, start))


def read_table(path: Path, collective: str | None, size: int | None) -> list[HostTest]:
    """Return the tests of a matrix of pairs or of a table of step times.

    `collective` and `size` (bytes) apply if the file does not state what was timed; the default
    collective is sendrecv.
    """
    text = text_of(path, LARGEST_FILE).lstrip("\ufeff \t\r\n")
    if text.startswith(("{", "[")):
        return _json_matrix(path, text, collective, size)
    header = _columns(text.split("\n", 1)[0])
    rows = [
        line for line in csv.reader(text.splitlines()[1:]) if any(cell.strip() for cell in line)
    ]
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise InputError(f"{path}:{number}: expected {len(header)} values, got {len(row)}")
    if not rows:
        raise InputError(f"{path}: has no rows below its header")
    if _pair_columns(header):
        return _pairs(path, header, rows, collective)
    if _step_column(header):
        return _steps(path, header, rows)
    return _square(path, header[1:], rows, collective, size)


def _columns(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line]), [])]


def _pair_columns(header: Sequence[str]) -> tuple[str, str] | None:
    return next((pair for pair in PAIR_COLUMNS if set(pair) <= set(header)), None)


def _step_column(header: Sequence[str]) -> str | None:
    return next((name for name in STEP_COLUMNS if name in header and "rank" in header), None)


def _is_square(header: Sequence[str], text: str) -> bool:
    """Whether the first cells of the rows are the names of the header, in any order."""
    lines = [line for line in text.splitlines()[1:] if line.strip()]
    names = [_columns(line)[0] for line in lines[: len(header)]]
    return len(names) >= FEWEST_IN_MATRIX and set(names) <= set(header[1:])


def _number(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{place}: expected a number above 0, got {text!r}") from None
    if not 0 < value < float("inf"):
        raise InputError(f"{place}: expected a number above 0, got {text}")
    return value


def _count(text: str, place: str) -> int:
    """Return a cell as a whole number above 0 (`2.0` is accepted); `place` is its position for
    errors.
    """
    value = _number(text, place)
    if value != int(value):
        raise InputError(f"{place}: expected a whole number above 0, got {text}")
    return int(value)


def _size(text: str, place: str) -> int:
    """Return a cell as a size in bytes, given as a number or as `1G`; `place` is its position for
    errors.
    """
    try:
        return parse_cli_size(text)
    except (InputError, ValueError):
        raise InputError(
            f"{place}: expected a size such as 1073741824 or 1G, got {text!r}"
        ) from None


def _collective(name: str, place: str) -> str:
    """Return the name of a collective that nccl-tests times, in its usual form."""
    if name not in FACTOR and name != "sendrecv":
        names = ", ".join(dict.fromkeys(["sendrecv", *FACTOR]))
        raise InputError(f"{place}: expected one of {names}, got {name!r}")
    return name


def _pairs(
    path: Path, header: Sequence[str], rows: Sequence[Sequence[str]], collective: str | None
) -> list[HostTest]:
    """Return the tests of a table with one line for each pair and size."""
    columns = _pair_columns(header)
    assert columns is not None
    for name in ("size_bytes",):
        if name not in header:
            raise InputError(f"{path}: there is no column {name}, the size of the message")
    rate = next((name for name in ("time_us", "busbw_gbps", "algbw_gbps") if name in header), None)
    if rate is None:
        raise InputError(f"{path}: there is no column time_us, busbw_gbps or algbw_gbps")
    times: dict[tuple[str, str, str, int], dict[SizeQuestion, float]] = {}
    for number, cells in enumerate(rows, 2):
        values = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        if values[rate].casefold() in EMPTY:
            continue
        name = values.get("collective") or collective or "sendrecv"
        name = _collective(name, f"{path}:{number}: collective")
        size = _size(values["size_bytes"], f"{path}:{number}: size_bytes")
        gpus = values.get("gpus_per_node") or "1"
        value = _number(values[rate], f"{path}:{number}: {rate}")
        gpu_count = _count(gpus, f"{path}:{number}: gpus_per_node")
        ranks = 2 * gpu_count
        seconds = value * 1e-6 if rate == "time_us" else _seconds(name, size, value, ranks, rate)
        key = (values[columns[0]], values[columns[1]], name, gpu_count)
        if key[0] != key[1]:
            times.setdefault(key, {}).setdefault(SizeQuestion(size), seconds)
    return [
        HostTest(f"{path}: {a} {b}", (a, b), name, by_size, gpus)
        for (a, b, name, gpus), by_size in times.items()
    ]


def _seconds(collective: str, size: int, rate: float, ranks: int, column: str) -> float:
    """Return the seconds of an operation, given its bandwidth `rate` in GB/s; `column` says whether
    this is a bus or an algorithm bandwidth.
    """
    if column == "algbw_gbps":
        return size / rate / 1e9
    kind = FACTOR.get(collective, WHOLE)
    part = (ranks - 1) / ranks
    factor = {WHOLE: 1.0, PART: part}.get(kind, 2 * part)
    return size * factor / rate / 1e9


def _square(
    path: Path,
    hosts: Sequence[str],
    rows: Sequence[Sequence[str]],
    collective: str | None,
    size: int | None,
) -> list[HostTest]:
    """Return the tests of a square of bus bandwidths in GB/s, with a row and a column for each
    host.

    The two directions of a pair are two tests, unless one of them is empty.
    """
    values = {
        (row[0].strip(), column): cell.strip()
        for row in rows
        for column, cell in zip(hosts, row[1:], strict=True)
    }
    return _matrix_tests(path, values, collective or "sendrecv", size, 1)


def _matrix_tests(
    path: Path, values: Mapping[tuple[str, str], Any], collective: str, size: int | None, gpus: int
) -> list[HostTest]:
    if size is None:
        raise InputError(
            f"{path}: the matrix does not say which size was timed", hint="give --size, such as 1G"
        )
    tests = []
    for (first, second), text in values.items():
        if first == second or str(text).casefold() in (*EMPTY, "none"):
            continue
        rate = _number(str(text), f"{path}: {first}, {second}")
        seconds = _seconds(collective, size, rate, 2 * gpus, "busbw_gbps")
        label = f"{path}: {first} {second}"
        tests.append(
            HostTest(label, (first, second), collective, {SizeQuestion(size): seconds}, gpus)
        )
    if not tests:
        raise InputError(f"{path}: the matrix has no bandwidth of two hosts")
    return tests


def _json_matrix(path: Path, text: str, collective: str | None, size: int | None) -> list[HostTest]:
    """Return the tests of `{"hosts": […], "busbw_gbps": [[…], …], "size_bytes": N, "collective":
    …}`.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: this JSON cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise InputError(
            f"{path}: expected one object with hosts and busbw_gbps, got {type(value).__name__}"
        )
    hosts = value.get("hosts")
    rates = value.get("busbw_gbps")
    if not isinstance(hosts, list) or not isinstance(rates, list) or len(hosts) != len(rates):
        raise InputError(
            f"{path}: expected hosts, a list, and busbw_gbps with one list for each host"
        )
    for number, host in enumerate(hosts):
        if not isinstance(host, str) or not host:
            raise InputError(f"{path}: hosts.{number}: expected the name of a host, got {host!r}")
        if hosts.index(host) != number:
            raise InputError(f"{path}: hosts.{number}: names {host} twice")
    for number, row in enumerate(rates):
        if not isinstance(row, list) or len(row) != len(hosts):
            raise InputError(f"{path}: busbw_gbps.{number}: expected {len(hosts)} numbers")
    values = {
        (str(first), str(second)): rates[i][j]
        for i, first in enumerate(hosts)
        for j, second in enumerate(hosts)
    }
    name = str(value.get("collective") or collective or "sendrecv")
    name = _collective(name, f"{path}: collective")
    gpus = _count(str(value.get("gpus_per_node") or 1), f"{path}: gpus_per_node")
    if value.get("size_bytes"):
        size = _size(str(value["size_bytes"]), f"{path}: size_bytes")
    return _matrix_tests(path, values, name, size, gpus)


def _steps(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[HostTest]:
    """Return tests of step times by rank: the mean of each rank is the time of its GPU."""
    column = _step_column(header)
    assert column is not None
    unit = STEP_COLUMNS[column]
    seconds: dict[tuple[str, int], list[float]] = {}
    numbers: dict[str, list[int]] = {}
    if "host" not in header:
        raise InputError(f"{path}: there is no column host, so ranks have no node")
    for line, cells in enumerate(rows, 2):
        values = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        if not values["rank"].isdecimal():
            raise InputError(f"{path}:{line}: rank: expected a number, got {values['rank']!r}")
        rank = int(values["rank"])
        host = values["host"]
        if rank not in numbers.setdefault(host, []):
            numbers[host].append(rank)
        value = _number(values[column], f"{path}:{line}: {column}")
        seconds.setdefault((host, rank), []).append(value * unit)
    tests = []
    for (host, rank), times in seconds.items():
        gpu = sorted(numbers[host]).index(rank)
        mean = sum(times) / len(times)
        label = f"{path}: rank {rank}"
        tests.append(HostTest(label, (host,), COMPUTE, {STEP: mean}, 1, (gpu,)))
    return tests


def size_words(question: SizeQuestion) -> str:
    """Return a size as text: `1 GiB`, `1 GiB in place`."""
    return format_size(question.size_bytes) + (" in place" if question.is_in_place else "")
