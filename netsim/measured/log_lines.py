"""Single lines of nccl-tests output: what kind a line is, whatever launchers wrote before it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

TYPES = (
    "int8|uint8|int32|uint32|int64|uint64|half|float|double|bfloat16|float16|float32|float64|"
    "bf16|fp16|fp32|fp64|fp8_e4m3|fp8_e5m2|f8e4m3|f8e5m2|fp8"
)
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CORE = re.compile(rf"(?<![\w.,\-])(\d+)\s+(\d+)\s+({TYPES})(?![\w.])(.*)", re.DOTALL)
HEADER = re.compile(r"#\s*(?:\S+\s+)*?size\s+count\s+(?:\(elements\)\s+)?type\b(.*)")
DEVICE = re.compile(
    r"#\s*Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s*"
    r"\[([^\]]*)\]\s*(.*)"
)
SETTINGS = re.compile(r"#\s*nThread\s+(\d+)\s+nGpus\s+(\d+)\b")
STARTING = re.compile(r"#\s*Collective test starting:\s*(\w+?)(?:_perf\w*)?\s*$")
LIBRARY = re.compile(r"nccl-library=(\d{4,6})")
VERSION = re.compile(r"\b[RN]CCL version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")
PERF = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|broadcast|reduce|alltoallv?|all_to_all|gather|"
    r"scatter|sendrecv|send_recv|hypercube)_perf",
    re.IGNORECASE,
)
COMMAND = re.compile(rf"{PERF.pattern}\w*\s+-\w", re.IGNORECASE)
ENVIRONMENT = re.compile(r"\b(NCCL_[A-Z0-9_]+) set by environment to (\S+)")
ASSIGNMENT = re.compile(r"(?:-x|export|--env|-e|^)\s+(NCCL_[A-Z0-9_]+)=(['\"]?)([^\s'\"]+)\2")
CHOICE = re.compile(r"(\d+) Bytes -> Algo (\w+) proto (\w+)")
INFO = re.compile(r"[A-Za-z][\w.\-]*:\d+:\d+ \[[-\d]+\] NCCL (?:INFO|WARN|TRACE)")
STAMP = re.compile(r"(?:\s+\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?)?Z?)+\s*$")
# What launchers write before a line: srun -l, mpirun --tag-output and --timestamp-output, dates.
PREFIX = re.compile(
    r"""^\s*(?:
        \d+:(?!\d) | \[[^\]]*\](?:<std(?:out|err)>)?:? |
        \[?\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}[\d.,]*(?:Z|[+-]\d{2}:?\d{2})?\]? |
        \d{2}:\d{2}:\d{2}[.,\d]* | [A-Z][a-z]{2}\s[A-Z][a-z]{2}\s+\d+\s\d{2}:\d{2}:\d{2}\s\d{4} |
        <std(?:out|err)>: | [A-Za-z][\w.\-/]*(?:\[\d+\])?\s?[:|](?=\s)
    )\s*""",
    re.VERBOSE,
)
NUMBERS = re.compile(r"^\s*-?\d[\d,]*\s+\d[\d,]*\s+\S")
LABELS = ("redop", "root")
OPS = frozenset(("sum", "prod", "max", "min", "avg", "mulsum", "none", "all"))
ALGORITHMS = {
    "RING": "Ring", "TREE": "Tree", "NVLS": "NVLS", "NVLS_TREE": "NVLSTree", "PAT": "PAT",
    "COLLNET_DIRECT": "CollNetDirect", "COLLNET_CHAIN": "CollNetChain",
    "0": "Tree", "1": "Ring", "2": "CollNetDirect", "3": "CollNetChain", "4": "NVLS",
    "5": "NVLSTree", "6": "PAT",
}  # fmt: skip
PROTOCOLS = {"LL": "LL", "LL128": "LL128", "SIMPLE": "Simple", "0": "LL", "1": "LL128",
             "2": "Simple"}  # fmt: skip
TWO_HALVES = ("time", "algbw", "busbw", "#wrong") * 2
BY_COUNT = {
    8: TWO_HALVES,
    6: ("time", "algbw", "busbw") * 2,
    4: TWO_HALVES[:4],
    3: TWO_HALVES[:3],
}


@dataclass(frozen=True)
class Cells:
    """The cells of a data row by the columns of its header; halves as (time, algbw, busbw)."""

    size: int
    count: int
    dtype: str
    redop: str
    root: str
    halves: tuple[tuple[str, ...], ...]
    cut: bool = False


def cleaned(line: str) -> str:
    """A line without terminal colours."""
    return ESCAPE.sub("", line).rstrip("\r\n")


def without_prefix(line: str) -> str:
    """A line without what launchers write before it."""
    for _ in range(4):
        match = PREFIX.match(line)
        if match is None or not match.end():
            return line
        line = line[match.end() :]
    return line


def header_columns(text: str) -> tuple[str, ...]:
    """The columns after `type`, from the rest of a header line."""
    names = [name.casefold() for name in text.split()]
    found: list[str] = []
    for name in names:
        if name in ("wrong", "error", "#wrong"):
            found.append("#wrong")
        elif name in ("time", "cputime", "gputime"):
            found.append("time")
        elif name != "#":
            found.append(name)
    return tuple(found)


def cells_of(match: re.Match[str], header: Sequence[str]) -> Cells | str:
    """The cells of a row, or why it is not understood."""
    size, count, dtype, rest = match.groups()
    tokens = STAMP.sub("", rest).split()
    labels: dict[str, str] = {}
    if tokens and tokens[0].casefold() in OPS:
        labels["redop"] = tokens.pop(0)
    columns = [name for name in header if name not in (*LABELS, "timestamp")]
    rooted = "root" in header or (not header and len(tokens) in (5, 7, 9))
    if tokens and rooted and _is_int(tokens[0]) and len(tokens) != len(columns):
        labels["root"] = tokens.pop(0)
    if not columns:
        if len(tokens) not in BY_COUNT:
            return f"{len(tokens)} values and no header above"
        columns = list(BY_COUNT[len(tokens)])
    if len(tokens) > len(columns):
        return f"expected {len(columns)} values after the type, got {len(tokens)}"
    halves = _halves(columns, tokens)
    if not halves:
        return "the row is cut before its first bandwidths"
    cut = len(tokens) < len(columns)
    return Cells(
        int(size), int(count), dtype, labels.get("redop", ""), labels.get("root", ""), halves, cut
    )


def _halves(columns: Sequence[str], tokens: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Time, algbw and busbw of every half that is whole; the last token of a cut row is not."""
    starts = [number for number, name in enumerate(columns) if name == "time"]
    whole = len(tokens) if len(tokens) == len(columns) else len(tokens) - 1
    found = []
    for first in starts:
        names = list(columns[first : first + 3])
        if names == ["time", "algbw", "busbw"] and first + 3 <= whole:
            found.append(tuple(tokens[first : first + 3]))
    return tuple(found)


def _is_int(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
