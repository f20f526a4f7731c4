"""`nvidia-smi topo -m` as a machine: its matrix as text, places from it, speeds from models.

Tabs or blanks, colours, broken lines, NIC legends: whatever a terminal or a chat makes of it. No
speeds in it.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from netsim.base.errors import ScenarioError
from netsim.base.values import dataclass
from netsim.topology.foreign.nccl import BoxShape, joined_by, machine_like, most_links, nvlink_rate
from netsim.topology.machine import Machine, Nics, Pcie, ScaleUp

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
    starts = [n for n, word in enumerate(words) if word.text in devices]
    rows: dict[str, _Row] = {}
    for start, end in pairwise([*starts, len(words)]):
        name, line = words[start].text, words[start].line
        if name in rows:
            raise ScenarioError(f"a second row for {name}", source=source, line=line)
        rows[name] = _Row(name, tuple(words[start + 1 : end]), line)
    return rows


def _cells(row: _Row, devices: tuple[str, ...], source: str) -> tuple[str, ...]:
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


SOCKETS = 16e9  # bytes/s between two domains where the preset has only one
USUAL_RATE = 12.5e9  # bytes/s of a NIC where the preset has none
_LAST = 2**31  # untold domains (-1) come after all others
MULTICAST = 90  # compute capability from which NVSwitches reduce and multicast


def read_smi(text: str, source: str, gpu: str, nic_rate: float | None = None) -> Machine:
    """The machine that a matrix shows, with the figures of the preset that is most like it."""
    matrix = parse_matrix(text, source)
    like = preset_of(matrix, gpu, nic_rate)
    places = _Places(matrix)
    link = like.cpu.link or SOCKETS
    gpus = tuple(places.of[n] for n in matrix.gpus)
    cpu = {"domains": places.domains, "link": link if places.domains > 1 else None}
    return Machine(
        description=f"imported from {source} (nvidia-smi topo -m)",
        gpu=like.gpu.model_copy(update={"count": len(gpus), "at": gpus, "pcie": None}),
        scale_up=_scale_up(matrix, like),
        c2c=like.c2c,
        pcie=Pcie(generation=like.pcie.generation, switches=tuple(places.switches)),
        cpu=like.cpu.model_copy(update=cpu),
        nics=_nics(matrix, [places.of[n] for n in matrix.nics], like, nic_rate),
        p2p=like.p2p,
        transport=like.transport,
    )


def preset_of(matrix: Matrix, gpu: str, nic_rate: float | None = None) -> Machine:
    """The preset with GPUs of this name that is most like the matrix."""
    pairs = _pairs(matrix)
    usual = machine_like(gpu, BoxShape(len(matrix.gpus), ("nothing", 0)))
    links = _most(pairs, len(matrix.gpus))
    switched = links > most_links(usual.gpu.sm)
    joined = ("switch", min(pairs.values())) if switched else ("peers", links)
    shape = BoxShape(
        len(matrix.gpus), joined if pairs else ("nothing", 0), nics=len(matrix.nics), rate=nic_rate
    )
    return machine_like(gpu, shape)


def _nics(
    matrix: Matrix, places: Sequence[str], like: Machine, nic_rate: float | None
) -> Nics | None:
    if not places:
        return None
    first = matrix.devices[matrix.nics[0]]
    return Nics.model_construct(
        model=dict(matrix.legend).get(first, first).rstrip("0123456789").rstrip("_") or "NIC",
        count=len(places),
        rate=nic_rate or (like.nics.rates[0] if like.nics else USUAL_RATE),
        at=tuple(places),
        gpudirect=like.nics.gpudirect if like.nics else False,
    )


class _Places:
    """The place of every device in a PCIe tree that gives the cells of the matrix. Devices that are
    PIX share a switch; groups that are PXB share one above theirs; groups that are PHB share a host
    bridge.
    """

    def __init__(self, matrix: Matrix) -> None:
        domain = _domains(matrix)
        self.domains = max(domain, default=0) + 1
        self.switches: list[str] = []
        self._made: dict[int, str] = {}
        self._inner = _groups(matrix, ("PIX",))
        self._outer = _groups(matrix, ("PIX", "PXB"))
        roots = self._roots(_groups(matrix, ("PIX", "PXB", "PHB")), domain)
        tops = {one: self._top(one, roots[one]) for one in dict.fromkeys(self._outer)}
        self.of = [self._place(number, tops) for number in range(len(matrix.devices))]

    def _roots(self, bridged: list[int], domain: list[int]) -> dict[int, str]:
        """The CPU, or host bridge, that each group of the outer kind hangs on."""
        found: dict[int, str] = {}
        bridges: dict[int, dict[int, int]] = {}
        for device, outer in enumerate(self._outer):
            bridge, cpu = bridged[device], f"cpu{domain[device]}"
            sharing = {o for o, b in zip(self._outer, bridged, strict=True) if b == bridge}
            numbers = bridges.setdefault(domain[device], {})
            shared = f"{cpu}.{numbers.setdefault(bridge, len(numbers))}"
            found.setdefault(outer, shared if len(sharing) > 1 else cpu)
        return found

    def _top(self, outer: int, root: str) -> str:
        """The switch above several groups that are PXB to each other, else what they hang on."""
        members = {i for i, o in zip(self._inner, self._outer, strict=True) if o == outer}
        return self._switch(root) if len(members) > 1 else root

    def _switch(self, above: str) -> str:
        self.switches.append(above)
        return f"pcie{len(self.switches) - 1}"

    def _place(self, device: int, tops: dict[int, str]) -> str:
        """The switch of the group that is PIX; a device alone below nothing needs none."""
        inner, top = self._inner[device], tops[self._outer[device]]
        if inner not in self._made:
            alone = self._inner.count(inner) == 1 and not top.startswith("pcie")
            self._made[inner] = top if alone else self._switch(top)
        return self._made[inner]


def _groups(matrix: Matrix, cells: Sequence[str]) -> list[int]:
    """A number for each device, the same for those that are joined so directly or over others."""
    group = list(range(len(matrix.devices)))
    for a, row in enumerate(matrix.cells):
        for b, cell in enumerate(row):
            if cell in cells and group[a] != group[b]:
                old, new = max(group[a], group[b]), min(group[a], group[b])
                group = [new if one == old else one for one in group]
    return group


def _domains(matrix: Matrix) -> list[int]:
    """The NUMA domain of every device, from 0: groups that are near each other stay together, and
    so do those (joined by NVLink only) for which neither a cell nor the affinity says otherwise.
    """
    group = _groups(matrix, ("PIX", "PXB", "PHB", "NODE"))
    numa = dict.fromkeys(group, -1) | {
        group[device]: domain for device, domain in enumerate(matrix.numa) if domain >= 0
    }
    apart = {
        (group[a], group[b])
        for a, row in enumerate(matrix.cells)
        for b, cell in enumerate(row)
        if cell == "SYS"
    }
    domains: list[list[int]] = []
    for one in numa:
        fitting = (
            domain
            for domain in domains
            if all((one, other) not in apart for other in domain)
            and len({numa[each] for each in (one, *domain)} - {-1}) < 2
        )
        home = next(fitting, None)
        if home is None:
            domains.append([one])
        else:
            home.append(one)
    domains.sort(key=lambda domain: max(numa[one] for one in domain) % _LAST)
    return [next(n for n, domain in enumerate(domains) if one in domain) for one in group]


def _pairs(matrix: Matrix) -> dict[tuple[int, int], int]:
    gpus = matrix.gpus
    return {
        (a, b): int(matrix.cells[gpus[a]][gpus[b]].removeprefix("NV"))
        for b in range(len(gpus))
        for a in range(b)
        if matrix.cells[gpus[a]][gpus[b]].startswith("NV")
    }


def _most(pairs: dict[tuple[int, int], int], gpus: int) -> int:
    return max((sum(n for ends, n in pairs.items() if g in ends) for g in range(gpus)), default=0)


def _scale_up(matrix: Matrix, like: Machine) -> ScaleUp | None:
    """NVLinks: over a switch where the links to all peers together are more than a GPU has, or
    where the preset has a switch with as many.
    """
    pairs, usual = _pairs(matrix), like.scale_up
    if not pairs:
        return None
    rate = usual.link_bandwidth if usual else nvlink_rate(like.gpu.sm)
    fewest, gpus = min(pairs.values()), len(matrix.gpus)
    complete = len(pairs) == gpus * (gpus - 1) // 2
    alike = complete and joined_by(usual, like.gpu.count) == ("switch", fewest)
    if _most(pairs, gpus) <= most_links(like.gpu.sm) and not alike:
        peers = tuple((a, b, count) for (a, b), count in sorted(pairs.items()))
        return ScaleUp.model_construct(kind="nvlink", link_bandwidth=rate, peers=peers)
    return ScaleUp.model_construct(
        kind="nvlink",
        link_bandwidth=rate,
        links=fewest,
        switches=usual.switches or 1 if usual else 1,
        hosts=usual.hosts if usual else 1,
        multicast=like.gpu.sm >= MULTICAST,
    )
