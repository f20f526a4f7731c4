"""The matrix of `nvidia-smi topo -m` as text: devices, how each pair is joined, NUMA domains.

Tabs or blanks, colours, broken lines, NIC legends: whatever a terminal or a chat makes of it. No
speeds in it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netsim.errors import ScenarioError

# Colours and underlines: whole, as `cat -v` shows them, and as web pages leave them.
ANSI = re.compile(r"(?:\x1b|\^\[)\[[0-9;?]*[ -/]*[@-~]|\[[0-9;]{0,5}m(?=[A-Z\s]|$)")
CELL = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")
LEGEND = re.compile(r"\s*(NIC\d+):\s*(\S+)\s*$")
DEVICE = re.compile(r"GPU\d+|NIC\d+|(?:mlx|bnxt|rdma|efa|hsn|cxi|irdma|qedr|ib|roce|eth)\w*")
ROCM = re.compile(r"ROCm System Management|\(Topology\)|Weight between two GPUs|LINK TYPE TABLE")
LONGEST = 2**20
EXPECTED = "expected X, NV4, PIX, PXB, PHB, NODE or SYS"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Names of GPUs and NICs, the cell of every pair, and the NUMA domain of each GPU (or -1)."""

    devices: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    numa: tuple[int, ...]
    legend: tuple[tuple[str, str], ...] = ()

    @property
    def gpus(self) -> tuple[int, ...]:
        """The numbers of the devices that are GPUs."""
        return tuple(n for n, name in enumerate(self.devices) if name.startswith("GPU"))

    @property
    def nics(self) -> tuple[int, ...]:
        """The numbers of the devices that are NICs."""
        return tuple(n for n, name in enumerate(self.devices) if not name.startswith("GPU"))


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class _Row:
    """The words after the name of a device: as many cells as there are devices, then affinity."""

    name: str
    words: tuple[_Word, ...]
    line: int


def parse_matrix(text: str, source: str) -> Matrix:
    """The matrix in a text; what does not fit is refused with its line."""
    if len(text) > LONGEST:
        raise ScenarioError(f"larger than {LONGEST >> 20} MiB", source=source)
    plain = ANSI.sub("", text).replace("|", " ")
    if ROCM.search(plain):
        raise ScenarioError(
            "this is a table of rocm-smi or amd-smi, of which netsim reads none; take a preset, "
            "such as mi300x, or write the machine down",
            source=source,
        )
    words = list(_words(plain))
    start = next((n for n in range(len(words)) if _starts(words, n)), None)
    if start is None:
        message = "no matrix of nvidia-smi topo -m: no line with GPU0 and further devices"
        raise ScenarioError(message, source=source)
    devices, rest = _header(words[start:])
    rows = _rows(devices, rest, source)
    top = words[start].line
    for name in devices:
        if name not in rows:
            message = f"no row for {name}, which the first line names"
            raise ScenarioError(message, source=source, line=top)
    cells = {name: _cells(rows[name], devices, source) for name in devices}
    _check_symmetry(devices, cells, source, top)
    legend = (match.groups() for line in plain.splitlines() if (match := LEGEND.fullmatch(line)))
    return Matrix(
        devices,
        tuple(cells[name] for name in devices),
        tuple(_numa(rows[name], len(devices)) for name in devices),
        tuple((str(nic), str(name)) for nic, name in legend),
    )


def _words(text: str) -> Iterator[_Word]:
    """All words up to the legend, with their lines."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().lower().startswith(("legend", "nic legend")):
            return
        yield from (_Word(word, number) for word in line.split())


def _starts(words: Sequence[_Word], place: int) -> bool:
    """Whether the first line of the matrix starts here: GPU0, and no cell after it."""
    following = words[place + 1].text if place + 1 < len(words) else "X"
    return words[place].text == "GPU0" and not CELL.fullmatch(following)


def _header(words: Sequence[_Word]) -> tuple[tuple[str, ...], list[_Word]]:
    """The devices of the first line, which may be broken, and the words from the first row on."""
    names: list[str] = []
    for word in words:
        ends = word.text in ("CPU", "NUMA", "GPU") or word.text in names
        if ends or not (DEVICE.fullmatch(word.text) or word.line == words[0].line):
            break
        names.append(word.text)
    rows = (n for n in range(len(names), len(words)) if words[n].text == "GPU0")
    return tuple(names), list(words[next(rows, len(words)) :])


def _rows(devices: tuple[str, ...], words: list[_Word], source: str) -> dict[str, _Row]:
    """The words of every row: from the name of a device to the next one."""
    starts = [n for n, word in enumerate(words) if word.text in devices]
    rows: dict[str, _Row] = {}
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        name, line = words[start].text, words[start].line
        if name in rows:
            raise ScenarioError(f"a second row for {name}", source=source, line=line)
        rows[name] = _Row(name, tuple(words[start + 1 : end]), line)
    return rows


def _cells(row: _Row, devices: tuple[str, ...], source: str) -> tuple[str, ...]:
    """How a device is joined to every other."""
    cells = row.words[: len(devices)]
    for name, cell in zip(devices, cells, strict=False):
        if not CELL.fullmatch(cell.text):
            message = f"{row.name} to {name}: {EXPECTED}, got '{cell.text}'"
            raise ScenarioError(message, source=source, line=cell.line)
    if len(cells) < len(devices):
        message = f"{row.name}: expected {len(devices)} cells, got {len(cells)}"
        raise ScenarioError(message, source=source, line=row.line)
    if cells[devices.index(row.name)].text != "X":
        raise ScenarioError(f"{row.name} to itself is not X", source=source, line=row.line)
    return tuple(cell.text.replace("SOC", "SYS") for cell in cells)


def _numa(row: _Row, devices: int) -> int:
    """The NUMA domain after the CPU affinity; -1 where there is none."""
    rest: list[str] = []
    for word in row.words[devices:]:
        if rest and rest[-1].endswith(","):  # a list of CPUs with blanks
            rest[-1] += word.text
        else:
            rest.append(word.text)
    first = re.split(r"[-,]", rest[1])[0] if len(rest) > 1 else ""
    return int(first) if first.isdigit() else -1


def _check_symmetry(
    devices: tuple[str, ...], cells: dict[str, tuple[str, ...]], source: str, line: int
) -> None:
    for a, one in enumerate(devices):
        for b, other in enumerate(devices[:a]):
            there, back = cells[one][b], cells[other][a]
            if there != back:
                message = f"{one} to {other} is {there}, but {other} to {one} is {back}"
                raise ScenarioError(message, source=source, line=line)
