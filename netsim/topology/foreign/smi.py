"""Make a machine of the tables that nvidia-smi, rocm-smi and amd-smi print.

The tables show how devices are linked, but no speeds: those come from the GPU model. Tables may
have been copied from a terminal or chat: with tabs or blanks, colors, broken lines.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Literal

import numpy as np

from netsim.base.errors import InputError, ScenarioError, suggest
from netsim.base.values import dataclass
from netsim.topology.foreign.nccl import BoxShape, joined_by, machine_like, most_links, nvlink_rate
from netsim.topology.machine import Machine, Nics, Pcie, ScaleUp

# Terminal sequences for colors and underlines: complete, as `cat -v` shows them, and as web pages
# leave them.
ANSI = re.compile(r"(?:\x1b|\^\[)\[[0-9;?]*[ -/]*[@-~]|\[[0-9;]{0,5}m(?=[A-Z\s]|$)")
CELL = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")
LEGEND = re.compile(r"\s*(NIC\d+):\s*(\S+)\s*$")
# The kinds of links that the legend below a matrix explains. The legend of `nvidia-smi topo -m`
# ends with NV#, that of `nvidia-smi topo -mp` (PCIe only) lacks it. Drivers that print SOC are
# older than NVLink.
EXPLAINED = re.compile(r"^\s*(X|SYS|SOC|NODE|PHB|PXB|PIX|NV#)\s*=\s", re.MULTILINE)
DEVICE = re.compile(r"GPU\d+|NIC\d+|(?:mlx|bnxt|rdma|efa|hsn|cxi|irdma|qedr|ib|roce|eth)\w*")
# Titles of the tables of `rocm-smi --showtopo…` and `amd-smi topology`; below, the keys of its JSON
# output for the same tables.
AMD = re.compile(
    r"(Weight|Hops|Link Type|Bandwidth) between two GPUs|(WEIGHT|HOPS|LINK TYPE|NUMA BW) TABLE"
)
KEYS = {"weight": "weight", "num_hops": "hops", "link_type": "link type", "bandwidth": "bandwidth"}
ROCM = re.compile(rf'ROCm System Management|\(Topology\)|{AMD.pattern}|"link_type"\s*:')
AMD_GPU = re.compile(r"GPU\d+|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")
AMD_NUMA = re.compile(r"^GPU\[(\d+)\]\s*:\s*\(Topology\) Numa Node:\s*(\d+)", re.MULTILINE)
NEAR = ("PIX", "PXB")  # both devices are below the same PCIe switch
LONGEST = 2**20
EXPECTED = "expected X, NV4, PIX, PXB, PHB, NODE or SYS"


@dataclass(frozen=True, slots=True)
class Matrix:
    """How every two devices of a host are linked.

    Args:
        devices: names of GPUs and NICs.
        cells: a row and a column for each device: `NV4`, `PIX`, `SYS` and so on.
        numa: NUMA domain of each device, or -1.
        legend: names of the NICs in the legend, as (`NIC0`, `mlx5_0`).
        amd: whether links (NV1 …) are xGMI; the matrix then has no NICs.
        pcie_only: whether the legend is that of `nvidia-smi topo -mp`, which shows no NVLinks.
    """

    devices: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    numa: tuple[int, ...]
    legend: tuple[tuple[str, str], ...] = ()
    amd: bool = False
    pcie_only: bool = False

    @property
    def gpus(self) -> tuple[int, ...]:
        """The numbers of the devices that are GPUs."""
        return tuple(n for n, name in enumerate(self.devices) if name.startswith("GPU"))

    @property
    def nics(self) -> tuple[int, ...]:
        """The numbers of the devices that are NICs."""
        return tuple(n for n, name in enumerate(self.devices) if not name.startswith("GPU"))

    def computing(self, nics: str = "") -> "Matrix":
        """Return the matrix without the NICs that do not serve computing.

        With `nics` (names separated by commas, or `all`) only these stay. Else those below a PCIe
        switch of a GPU stay: other NICs are usually for storage and management. If no NIC is below
        such a switch, all stay.
        """
        names = [self.devices[n] for n in self.nics]
        near = [n for n in self.nics if any(self.cells[n][gpu] in NEAR for gpu in self.gpus)]
        kept_names = {self.devices[n] for n in near} or set(names)
        if nics:
            device_of_name = {dict(self.legend).get(name, name): name for name in names}
            device_of_name |= {name: name for name in names}
            wanted = (
                names if nics == "all" else [wanted_name.strip() for wanted_name in nics.split(",")]
            )
            for wanted_name in wanted:
                if wanted_name not in device_of_name:
                    known_names = ", ".join(device_of_name)
                    hint = f"{suggest(wanted_name, device_of_name)}; known: all, {known_names}"
                    raise InputError(f"--nics {nics}: there is no NIC '{wanted_name}'{hint}")
            kept_names = {device_of_name[wanted_name] for wanted_name in wanted}
        places = [n for n, name in enumerate(self.devices) if n in self.gpus or name in kept_names]
        cells = tuple(tuple(self.cells[a][b] for b in places) for a in places)
        numa = tuple(self.numa[n] for n in places)
        devices = tuple(self.devices[n] for n in places)
        return replace(self, devices=devices, cells=cells, numa=numa)

    def with_nics(self) -> "Matrix":
        """Return a matrix of AMD GPUs with one more NIC for each GPU, below the same PCIe switch,
        as hosts with AMD's GPUs usually have.
        """
        size = len(self.devices)
        nics = tuple(f"NIC{n}" for n in range(size))
        numa_cells = [["NODE" if a == b else "SYS" for b in self.numa] for a in self.numa]
        gpu_to_nic = [
            ["PIX" if a == b else way for b, way in enumerate(row)]
            for a, row in enumerate(numa_cells)
        ]
        nic_cells = [
            ["X" if a == b else way for b, way in enumerate(row)]
            for a, row in enumerate(numa_cells)
        ]
        top = [(*row, *gpu_to_nic[n]) for n, row in enumerate(self.cells)]
        below = [(*gpu_to_nic[n], *nic_cells[n]) for n in range(size)]
        return Matrix((*self.devices, *nics), (*top, *below), self.numa * 2, amd=self.amd)


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class _Row:
    """The words of a row after the name of its device: one cell per device, then CPU and NUMA
    affinity.
    """

    name: str
    words: tuple[_Word, ...]
    line: int


def parse_matrix(text: str, source: str) -> Matrix:
    """Return the matrix in a text; errors state the line. `source` is the name of the file."""
    if len(text) > LONGEST:
        raise ScenarioError(f"larger than {LONGEST >> 20} MiB", source=source)
    plain = ANSI.sub("", text).replace("|", " ")
    if ROCM.search(plain):
        return _amd_matrix(plain, source)
    words = list(_split_words(plain))
    start = next((n for n in range(len(words)) if _is_start(words, n)), None)
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
    for (b, second), (a, first) in combinations(enumerate(devices), 2):
        if (there := cells[first][b]) != (back := cells[second][a]):
            message = f"{first} to {second} is {there}, but {second} to {first} is {back}"
            raise ScenarioError(message, source=source, line=top)
    legend = (match.groups() for line in plain.splitlines() if (match := LEGEND.fullmatch(line)))
    explained = set(EXPLAINED.findall(plain))
    return Matrix(
        devices,
        tuple(cells[name] for name in devices),
        tuple(_numa(rows[name], len(devices)) for name in devices),
        tuple((str(nic), str(name)) for nic, name in legend),
        pcie_only="PIX" in explained and not explained & {"NV#", "SOC"},
    )


_Cells = dict[tuple[str, str], str]


def _amd_matrix(text: str, source: str) -> Matrix:
    """Return the matrix of a text with AMD's tables between two GPUs.

    Cells are direct xGMI links (as NV1 …), else NODE or SYS by NUMA nodes if the tables show these.
    """
    read = _json_tables if text.lstrip().startswith("[") else _amd_tables
    tables = dict(read(text, source))
    kinds = tables.get("link type")
    if not kinds:
        message = (
            "no table of link types; expected what rocm-smi --showtopo or amd-smi topology say"
        )
        raise ScenarioError(message, source=source)
    names = list(dict.fromkeys(a for a, _ in kinds))
    for pair in ((a, b) for a in names for b in names):
        if kinds.get(pair) is None or kinds[pair] != kinds.get(pair[::-1]):
            message = (
                f"link type of {pair[0]} to {pair[1]}: missing, or different in the other direction"
            )
            raise ScenarioError(message, source=source)
    numa = {int(gpu): int(node) for gpu, node in AMD_NUMA.findall(text)}
    direct = _xgmi_links(kinds, tables, source)

    def cell(a: int, b: int) -> str:
        """Return how GPU a is linked with GPU b, in the terms of `nvidia-smi topo -m`."""
        if a == b:
            return "X"
        if (names[a], names[b]) in direct:
            return f"NV{direct[names[a], names[b]]}"
        return "NODE" if numa.get(a) == numa.get(b) else "SYS"

    gpus = range(len(names))
    cells = tuple(tuple(cell(a, b) for b in gpus) for a in gpus)
    return Matrix(
        tuple(f"GPU{n}" for n in gpus), cells, tuple(numa.get(n, -1) for n in gpus), amd=True
    )


def _xgmi_links(
    kinds: _Cells, tables: dict[str, _Cells], source: str
) -> dict[tuple[str, str], int]:
    """Return the number of links of each pair of GPUs with direct xGMI links.

    The least bandwidth of a pair counts as one link; the number of links of a pair is its bandwidth
    over this one.

    Args:
        kinds: cells of the table of link types by (GPU, GPU).
        tables: all tables by title.
        source: name of the file.
    """
    far = {
        pair: _last_number(text)
        for pair, text in (tables.get("hops") or tables.get("weight") or {}).items()
    }
    pairs = [pair for pair, kind in kinds.items() if kind == "XGMI" and pair[0] != pair[1]]
    least = min((far.get(pair, 1) for pair in pairs), default=1)
    near = [pair for pair in pairs if far.get(pair, 1) <= least]
    rates = {pair: _last_number(text) for pair, text in tables.get("bandwidth", {}).items()}
    shown = {pair: rates[pair] for pair in near if rates.get(pair, 0)}
    one_link = min(shown.values(), default=0)
    if shown:
        _check_xgmi_rates(shown, one_link, source)
    links = {pair: round(shown[pair] / one_link) if pair in shown else 1 for pair in near}
    for (a, b), count in links.items():
        if links.get((b, a)) != count:
            message = f"{a} to {b} has another number of xGMI links than {b} to {a}"
            raise ScenarioError(message, source=source)
    return links


def _check_xgmi_rates(rates: dict[tuple[str, str], int], one_link: int, source: str) -> None:
    """Refuse bandwidths of pairs from which the number of links cannot be derived.

    Otherwise a host with one slow GPU would be read as if that GPU had single links, and all others
    several. `one_link` is the least bandwidth of a pair.
    """
    slow = [pair for pair, rate in rates.items() if rate == one_link]
    shared = set.intersection(*map(set, slow))  # GPUs of all pairs with the least rate
    gpus = {gpu for pair in rates for gpu in pair}
    uneven = [pair for pair, rate in rates.items() if abs(rate / one_link % 1 - 0.5) < 0.45]
    if uneven or (shared and len(slow) < len(rates) and len(gpus) > 3):
        which = " and ".join(sorted(shared)) or f"{slow[0][0]} to {slow[0][1]}"
        raise ScenarioError(
            f"the xGMI bandwidth of {which} is {one_link}, of other pairs up to "
            f"{max(rates.values())}: links of different rates in one host cannot be imported",
            source=source,
        )


def _last_number(text: str) -> int:
    """Return the last number of a cell such as 50000-200000; 0 if it has none."""
    return int((re.findall(r"\d+", text) or ["0"])[-1])


def _amd_tables(text: str, source: str) -> Iterator[tuple[str, _Cells]]:
    """Yield (title, cells by (GPU, GPU)) of each table in a text: a line of names, then a line for
    each name.
    """
    names: list[str] = []
    cells: _Cells = {}
    title = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if title_match := AMD.search(line):
            title = (title_match[1] or title_match[2]).casefold().replace("numa bw", "bandwidth")
            names = []
            cells = {}
            yield title, cells
        elif "TABLE" in line or set(line.strip()) == {"="}:
            title = ""
        elif title and not names and words and all(map(AMD_GPU.fullmatch, words)):
            names = words
        elif title and names and words and words[0] in names:
            if len(words) != len(names) + 1:
                message = f"{words[0]}: expected {len(names)} cells, got {len(words) - 1}"
                raise ScenarioError(message, source=source, line=number)
            cells |= {(words[0], b): cell for b, cell in zip(names, words[1:], strict=True)}


def _json_tables(text: str, source: str) -> Iterator[tuple[str, _Cells]]:
    """Yield (title, cells by (GPU, GPU)) of each table in the output of `amd-smi topology
    --json`.
    """
    try:
        values = json.loads(text)
        ends = [(one["bdf"], link["bdf"], link) for one in values for link in one["links"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        message = f"not what amd-smi topology --json writes: {error}"
        raise ScenarioError(message, source=source) from None
    for key, title in KEYS.items():
        yield title, {(a, b): str(link[key]) for a, b, link in ends if key in link}


def _split_words(text: str) -> Iterator[_Word]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().lower().startswith(("legend", "nic legend")):
            return
        yield from (_Word(word, number) for word in line.split())


def _is_start(words: Sequence[_Word], place: int) -> bool:
    """Whether the header of the matrix starts at word number `place`: it is GPU0, and no cell
    follows.
    """
    following = words[place + 1].text if place + 1 < len(words) else "X"
    return words[place].text == "GPU0" and not CELL.fullmatch(following)


def _header(words: Sequence[_Word]) -> tuple[tuple[str, ...], list[_Word]]:
    """Return the devices of the header, which may be broken into several lines, and the words from
    the first row on.
    """
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
        name = words[start].text
        line = words[start].line
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
    """Return the NUMA domain at the end of a row, after the CPU affinity; -1 if there is none.
    `devices` is the number of cells.
    """
    rest: list[str] = []
    for word in row.words[devices:]:
        if rest and rest[-1].endswith(","):  # a list of CPUs with blanks
            rest[-1] += word.text
        else:
            rest.append(word.text)
    first = re.split(r"[-,]", rest[1])[0] if len(rest) > 1 else ""
    return int(first) if first.isdigit() else -1


SOCKETS = 16e9  # bytes/s between two domains where the preset has only one
USUAL_RATE = 12.5e9  # bytes/s of a NIC where the preset has none
_LAST = 2**31  # modulus by which unknown domains (-1) are sorted after all others
MULTICAST = 90  # compute capability from which NVSwitches reduce and multicast


def read_smi(
    text: str, source: str, gpu: str, nic_rate: float | None = None, nics: str = ""
) -> Machine:
    """Return the machine that a matrix of nvidia-smi or amd-smi shows, with the values of the most
    similar preset.

    Args:
        text: the output of the tool.
        source: name of the file.
        gpu: model of the GPU.
        nic_rate: line rate of each NIC in bytes per second; None: that of the preset.
        nics: see `Matrix.computing`.
    """
    matrix = parse_matrix(text, source).computing(nics)
    like = preset_of(matrix, gpu, nic_rate)
    if matrix.amd is not (like.scale_up is not None and like.scale_up.kind == "xgmi"):
        maker = "AMD" if matrix.amd else "NVIDIA"
        raise InputError(f"--gpu {gpu}: {source} is of GPUs of {maker}")
    _check_links_shown(matrix, like, source)
    if matrix.amd and like.nics is not None and like.nics.count == len(matrix.gpus):
        matrix = matrix.with_nics()
    places = _Places(matrix)
    link = like.cpu.link or SOCKETS
    gpus = tuple(places.of[n] for n in matrix.gpus)
    cpu = {"domains": places.domains, "link": link if places.domains > 1 else None}
    return Machine(
        description=f"imported from {source} ({'amd' if matrix.amd else 'nvidia'}-smi topology)",
        gpu=like.gpu.model_copy(update={"count": len(gpus), "at": gpus, "pcie": None}),
        scale_up=_scale_up(matrix, like, source),
        c2c=like.c2c,
        pcie=Pcie(generation=like.pcie.generation, switches=tuple(places.switches)),
        cpu=like.cpu.model_copy(update=cpu),
        nics=_nics(matrix, [places.of[n] for n in matrix.nics], like, nic_rate),
        p2p=like.p2p,
        transport=like.transport,
    )


def _check_links_shown(matrix: Matrix, like: Machine, source: str) -> None:
    """Refuse NVLinks of a GPU model that has none, and output of `nvidia-smi topo -mp` (without
    NVLinks) of a model that may have some.

    Without NVLink, both commands print the same.
    """
    if matrix.amd or len(matrix.gpus) < 2:
        return
    pairs = _pairs(matrix)
    most = most_links(like.gpu.sm)
    if pairs and not most:
        a, b = (matrix.devices[matrix.gpus[gpu]] for gpu in next(iter(pairs)))
        raise InputError(
            f"{source}: {a} to {b} has NVLinks, but a GPU of model {like.gpu.model} has none",
            hint="name the GPU model of this host with --gpu",
        )
    if matrix.pcie_only and most and not pairs:
        raise InputError(
            f"{source}: its legend explains no NV#, so it is of nvidia-smi topo -mp, which shows "
            f"PCIe only and no NVLinks; a {like.gpu.model} may have up to {most}",
            hint="import the output of nvidia-smi topo -m, with its legend",
        )


def preset_of(matrix: Matrix, gpu: str, nic_rate: float | None = None) -> Machine:
    """Return the preset with GPUs of the model `gpu` that is most similar to the matrix; `nic_rate`
    is the line rate of its NICs in bytes per second.
    """
    pairs = _pairs(matrix)
    usual = machine_like(gpu, BoxShape(len(matrix.gpus), ("nothing", 0)))
    links = _most_links_of_gpu(pairs, len(matrix.gpus))
    switched = links > most_links(usual.gpu.sm) and not matrix.amd
    joined = ("switch", max(pairs.values())) if switched else ("peers", links)
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
    """Derives a PCIe tree that agrees with the cells of the matrix.

    Devices that are PIX to each other share a switch. Groups of devices that are PXB share a
    further switch above theirs. Groups that are PHB share a host bridge. Afterwards `of` is the
    place of each device in the tree, `switches` the place above each switch, `domains` the number
    of NUMA domains.
    """

    def __init__(self, matrix: Matrix) -> None:
        domain = _domains(matrix)
        self.domains = max(domain, default=0) + 1
        self.switches: list[str] = []
        self._made: dict[int, str] = {}
        self._inner = _groups(matrix, ("PIX",))
        self._outer = _groups(matrix, ("PIX", "PXB"))
        roots = self._roots(_groups(matrix, ("PIX", "PXB", "PHB")), domain)
        tops: dict[int, str] = {}  # by outer group, a switch of its own or the root above it
        for outer_group in dict.fromkeys(self._outer):
            below = {i for i, o in zip(self._inner, self._outer, strict=True) if o == outer_group}
            tops[outer_group] = (
                self._switch(roots[outer_group]) if len(below) > 1 else roots[outer_group]
            )
        self.of = [self._place(number, tops) for number in range(len(matrix.devices))]

    def _roots(self, bridged: list[int], domain: list[int]) -> dict[int, str]:
        """Return the CPU, or host bridge, above each group of devices that are PIX or PXB to each
        other.

        Args:
            bridged: number of the PIX, PXB or PHB group of each device.
            domain: NUMA domain of each device.
        """
        roots: dict[int, str] = {}
        bridges: dict[int, dict[int, int]] = {}
        for device, outer in enumerate(self._outer):
            bridge = bridged[device]
            cpu = f"cpu{domain[device]}"
            sharing = {o for o, b in zip(self._outer, bridged, strict=True) if b == bridge}
            numbers = bridges.setdefault(domain[device], {})
            shared = f"{cpu}.{numbers.setdefault(bridge, len(numbers))}"
            roots.setdefault(outer, shared if len(sharing) > 1 else cpu)
        return roots

    def _switch(self, above: str) -> str:
        self.switches.append(above)
        return f"pcie{len(self.switches) - 1}"

    def _place(self, device: int, tops: dict[int, str]) -> str:
        """Return the place of a device: the switch of its PIX group, made if new. A device that is
        alone below a CPU needs no switch. `tops` is the place above each PXB group.
        """
        inner = self._inner[device]
        top = tops[self._outer[device]]
        if inner not in self._made:
            alone = self._inner.count(inner) == 1 and not top.startswith("pcie")
            self._made[inner] = top if alone else self._switch(top)
        return self._made[inner]


def _groups(matrix: Matrix, cells: Sequence[str]) -> list[int]:
    """Return a group number for each device: equal for devices that are connected by pairs with one
    of these `cells`, directly or over other devices.
    """
    from scipy.sparse.csgraph import connected_components

    groups: list[int] = connected_components(np.isin(matrix.cells, cells))[1].tolist()
    return groups


def _domains(matrix: Matrix) -> list[int]:
    """Return the NUMA domain of every device, numbered from 0.

    Devices that are nearer to each other than SYS are in one domain. Such groups (joined by NVLink
    only) are put into one domain if neither a cell SYS nor different affinities contradict.
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
    for member in numa:
        fitting = (
            domain
            for domain in domains
            if all((member, another) not in apart for another in domain)
            and len({numa[group_number] for group_number in (member, *domain)} - {-1}) < 2
        )
        fitting_domain = next(fitting, None)
        if fitting_domain is None:
            domains.append([member])
        else:
            fitting_domain.append(member)
    domains.sort(key=lambda domain: max(numa[member] for member in domain) % _LAST)
    return [next(n for n, domain in enumerate(domains) if member in domain) for member in group]


def _pairs(matrix: Matrix) -> dict[tuple[int, int], int]:
    """Return the number of NVLinks of each pair of GPUs that has some, by (GPU, GPU)."""
    return {
        (a, b): int(cell.removeprefix("NV"))
        for (a, first), (b, second) in combinations(enumerate(matrix.gpus), 2)
        if (cell := matrix.cells[first][second]).startswith("NV")
    }


def _most_links_of_gpu(pairs: dict[tuple[int, int], int], gpus: int) -> int:
    """Return the largest sum of links that one of `gpus` GPUs has to all others; `pairs` as from
    `_pairs`.
    """
    return max((sum(n for ends, n in pairs.items() if g in ends) for g in range(gpus)), default=0)


def _is_switched(matrix: Matrix, like: Machine) -> bool:
    """Whether NVLinks lead to a switch.

    They do if the links of a GPU to all peers are more than a GPU of this model has, or if the
    preset `like` has a switch with the same number of links. xGMI links always join two GPUs.
    """
    pairs = _pairs(matrix)
    gpus = len(matrix.gpus)
    if matrix.amd or not pairs:
        return False
    if _most_links_of_gpu(pairs, gpus) > most_links(like.gpu.sm):
        return True
    is_complete = len(pairs) == gpus * (gpus - 1) // 2
    return is_complete and joined_by(like.scale_up, like.gpu.count) == (
        "switch",
        min(pairs.values()),
    )


def links_to_switch(matrix: Matrix, source: str) -> tuple[int, ...]:
    """Return the number of NVLinks of every GPU to the switch; 0 for a GPU that has lost all of
    them.

    The cell of two GPUs on a switch shows the links of the GPU with fewer. So the links of a GPU
    are the largest number in its cells. Cells that contradict these numbers are refused: for
    example two halves of a host that do not reach each other over NVLink.
    """
    pairs = _pairs(matrix)
    gpus = range(len(matrix.gpus))
    links = tuple(max((n for ends, n in pairs.items() if g in ends), default=0) for g in gpus)
    for a, b in combinations(gpus, 2):
        shown = pairs.get((a, b), 0)
        expected = min(links[a], links[b])
        if shown != expected:
            first, second = (matrix.devices[matrix.gpus[gpu]] for gpu in (a, b))
            cell = matrix.cells[matrix.gpus[a]][matrix.gpus[b]]
            raise ScenarioError(
                f"{first} to {second} is {cell}, but by their other cells {first} has {links[a]} "
                f"and {second} has {links[b]} NVLinks to the switch, so NV{expected} was expected: "
                "NVLinks that differ by pair cannot be imported",
                source=source,
            )
    return links


def _scale_up(matrix: Matrix, like: Machine, source: str) -> ScaleUp | None:
    """Return the NVLinks of the matrix (over a switch, or between two GPUs each) or its xGMI links;
    None without any. Rates are those of the preset `like`.
    """
    pairs = _pairs(matrix)
    usual = like.scale_up
    if not pairs:
        return None
    rate = usual.link_bandwidth if usual else nvlink_rate(like.gpu.sm)
    if _is_switched(matrix, like):
        links = links_to_switch(matrix, source)
        return ScaleUp.model_construct(
            kind="nvlink",
            link_bandwidth=rate,
            links=max(links),
            links_each=links if min(links) < max(links) else None,
            switches=usual.switches or 1 if usual else 1,
            hosts=usual.hosts if usual else 1,
            multicast=like.gpu.sm >= MULTICAST,
        )
    gpus = len(matrix.gpus)
    is_complete = len(pairs) == gpus * (gpus - 1) // 2
    if matrix.amd and is_complete and len(set(pairs.values())) == 1:
        return ScaleUp.model_construct(
            kind="xgmi", link_bandwidth=rate, links=next(iter(pairs.values()))
        )
    peers = tuple((a, b, count) for (a, b), count in sorted(pairs.items()))
    kind: Literal["xgmi", "nvlink"] = "xgmi" if matrix.amd else "nvlink"
    return ScaleUp.model_construct(kind=kind, link_bandwidth=rate, peers=peers)
