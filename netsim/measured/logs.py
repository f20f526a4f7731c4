"""Files with measured runs, of any kind that is read: text, JSON, CSV; and what was timed in them.

What a file does not say of itself is inferred from its name and its figures, or asked for.
"""

import re
from dataclasses import replace
from pathlib import Path

from netsim.errors import InputError
from netsim.measured.csv_table import parse_csv
from netsim.measured.log_json import parse_json
from netsim.measured.log_run import LogRun
from netsim.measured.log_text import parse_text
from netsim.scenario.names import collective_name

LARGEST_FILE = 256 * 2**20
WHOLE, PART, DOUBLE = "1", "(n-1)/n", "2(n-1)/n"
FACTOR = {
    "all_reduce": DOUBLE, "all_gather": PART, "reduce_scatter": PART, "alltoall": PART,
    "gather": PART, "scatter": PART, "alltoallv": PART, "broadcast": WHOLE, "reduce": WHOLE,
    "sendrecv": WHOLE,
}  # fmt: skip
IN_NAME = re.compile(
    r"(?<![a-z])(all[_-]?reduce|all[_-]?gather|reduce[_-]?scatter|broadcast|bcast|alltoall|"
    r"all[_-]to[_-]all|send[_-]?recv|reduce|gather|scatter)(?![a-z])",
    re.IGNORECASE,
)


def read_log(
    path: Path, collective: str | None = None, presumed: str | None = None
) -> tuple[LogRun, ...]:
    """All runs of a file, each with its collective: the one given, where the file names none, or
    the one presumed, where nothing else tells and the figures allow it.
    """
    runs = parse_log(_text(path), str(path))
    return tuple(_named(run, collective, presumed) for run in runs)


def parse_log(text: str, name: str) -> tuple[LogRun, ...]:
    """All runs of a text, of whatever kind it is."""
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith(("{", "[{")):
        return parse_json(start, name)
    if start.split("\n", 1)[0].startswith("size_bytes,"):
        rows = parse_csv(start, name)

        return (LogRun(name, rows=rows),)
    return parse_text(start, name)


def true_ranks(run: LogRun) -> tuple[int, int] | None:
    """The fewest and most ranks that busbw over algbw allows; None where it tells nothing."""
    kind, factor = FACTOR.get(run.collective), run.bus_factor
    if kind in (None, WHOLE) or factor is None:
        return None
    part = factor / 2 if kind == DOUBLE else factor
    if not 0 < part < 1:
        return None
    fastest = max(alg for alg, _ in run.ratios)
    slack = 0.5 * 0.01 * (1 + factor) / fastest / (2 if kind == DOUBLE else 1)
    low, high = 1 / (1 - max(part - slack, 0.01)), 1 / max(1 - part - slack, 1e-6)
    return max(2, round(low)), max(2, min(round(high), 10**6))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: expected a log, got a directory") from None
    if len(content) > LARGEST_FILE:
        raise InputError(f"{path}: larger than {LARGEST_FILE // 2**20} MiB")
    if b"\0" in content[:4096]:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):  # as Windows shells redirect
            return content.decode("utf-16", errors="replace")
        raise InputError(f"{path}: expected a log as text, got a binary file")
    text = content.decode("utf-8", errors="replace")
    if not text.strip():
        raise InputError(f"{path}: the file is empty")
    return text


def _named(run: LogRun, given: str | None, presumed: str | None = None) -> LogRun:
    """The run with its collective: as it says, as given, by its file's name, by its figures."""
    if run.collective and given and run.collective != given:
        raise InputError(f"{run.file}: this is {run.collective}, not {given}")
    found, why = run.collective or given or "", ""
    possible = _by_figures(run)
    if not found:
        match = IN_NAME.search(Path(run.file).stem)
        if match:
            word = match.group(1).casefold().replace("bcast", "broadcast")
            found = collective_name(re.sub(r"[_-]to[_-]", "to", word))
            why = f"taken as {found}, by the name of the file"
        elif len(possible) == 1:
            found = possible[0]
            why = f"taken as {found}, by its columns"
        elif presumed in possible:
            found, why = str(presumed), f"taken as {presumed}, which is simulated"
    if not found:
        several = " or ".join(possible) if possible else "unknown"
        raise InputError(
            f"{run.file}: the log does not say what it timed ({several})",
            hint="name it with --collective",
        )
    if found not in FACTOR:
        raise InputError(f"{run.file}: {found} is not simulated; known: {', '.join(FACTOR)}")
    if possible and found not in possible:
        why = f"{found} is said, but its columns are those of {' or '.join(possible)}"
    return replace(run, collective=found, notes=(*run.notes, *([why] if why else [])))


def _by_figures(run: LogRun) -> list[str]:
    """What it may be by its operation, root, and bus bandwidth over algorithm bandwidth."""
    if not run.rows:
        return []
    first = run.rows[-1]
    names = list(FACTOR)
    names.remove("alltoallv")
    factor = run.bus_factor
    if factor is not None:
        # 2(n-1)/n is 1 for two ranks, and (n-1)/n is never 1
        kinds = {DOUBLE} if factor > 1.01 else {WHOLE, DOUBLE} if factor > 0.99 else {PART}
        names = [name for name in names if FACTOR[name] in kinds]
    if first.redop:
        summed = first.redop != "none"
        reduces = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")
        names = [name for name in names if (name in reduces) is summed]
    if first.redop or first.root >= 0:
        rooted = ("broadcast", "reduce", "gather", "scatter")
        names = [name for name in names if (name in rooted) is (first.root >= 0)]
    return names
