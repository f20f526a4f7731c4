"""The matrix of `nvidia-smi topo -m` as text: devices, how each pair is joined, NUMA domains.

Tabs or blanks, colours, NIC legends: whatever a terminal or a chat makes of it. No speeds in it.
"""

import re
from dataclasses import dataclass

from netsim.errors import ScenarioError

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
CELL = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")
LEGEND = re.compile(r"\s*(NIC\d+):\s*(\S+)\s*$")
LONGEST = 2**20


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


def parse_matrix(text: str, source: str) -> Matrix:
    """The matrix in a text; what does not fit is refused with its line."""
    if len(text) > LONGEST:
        raise ScenarioError(f"larger than {LONGEST >> 20} MiB", source=source)
    lines = ANSI.sub("", text).splitlines()
    start = next((n for n, line in enumerate(lines) if _header(line)), None)
    if start is None:
        message = "no matrix of nvidia-smi topo -m: no line with GPU0 and further devices"
        raise ScenarioError(message, source=source)
    devices = _header(lines[start])
    rows: dict[str, tuple[tuple[str, ...], int]] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        words = line.split()
        if words and words[0] in devices:
            if words[0] in rows:
                raise ScenarioError(f"a second row for {words[0]}", source=source, line=number)
            rows[words[0]] = _row(words, devices, source, number)
    missing = [name for name in devices if name not in rows]
    if missing:
        message = f"no row for {missing[0]}, which the first line names"
        raise ScenarioError(message, source=source, line=start + 1)
    _check_symmetry(devices, rows, source, start + 1)
    legend = tuple(m.groups() for line in lines if (m := LEGEND.fullmatch(line)))
    return Matrix(
        devices,
        tuple(rows[name][0] for name in devices),
        tuple(rows[name][1] for name in devices),
        tuple((str(nic), str(name)) for nic, name in legend),
    )


def _header(line: str) -> tuple[str, ...]:
    """The devices of the first line of the matrix; empty if it is another line."""
    words = line.split()
    names = []
    for word in words:
        if word in ("CPU", "NUMA", "GPU"):
            break
        names.append(word)
    cells = any(CELL.fullmatch(word) for word in words)
    return tuple(names) if names[:1] == ["GPU0"] and not cells else ()


def _row(
    words: list[str], devices: tuple[str, ...], source: str, line: int
) -> tuple[tuple[str, ...], int]:
    """The cells of one device, and its NUMA domain."""
    cells = tuple(words[1 : 1 + len(devices)])
    for name, cell in zip(devices, cells, strict=False):
        if not CELL.fullmatch(cell):
            message = (
                f"{words[0]} to {name}: expected X, NV4, PIX, PXB, PHB, NODE or SYS, got '{cell}'"
            )
            raise ScenarioError(message, source=source, line=line)
    if len(cells) < len(devices):
        message = f"{words[0]}: expected {len(devices)} cells, got {len(cells)}"
        raise ScenarioError(message, source=source, line=line)
    if cells[devices.index(words[0])] != "X":
        raise ScenarioError(f"{words[0]} to itself is not X", source=source, line=line)
    rest = [re.split(r"[-,]", word)[0] for word in words[1 + len(devices) :]]
    return cells, int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else -1


def _check_symmetry(
    devices: tuple[str, ...], rows: dict[str, tuple[tuple[str, ...], int]], source: str, line: int
) -> None:
    for a, one in enumerate(devices):
        for b, other in enumerate(devices[:a]):
            there, back = rows[one][0][b], rows[other][0][a]
            if there != back:
                message = f"{one} to {other} is {there}, but {other} to {one} is {back}"
                raise ScenarioError(message, source=source, line=line)
