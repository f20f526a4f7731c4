"""`nvidia-smi topo -m` as a machine: places from the matrix, speeds from GPU model and NIC rate."""

from collections import Counter
from collections.abc import Callable, Sequence

from netsim.topology.importers.known import machine_with
from netsim.topology.importers.matrix import Matrix, parse_matrix
from netsim.topology.machine import Machine, Nics, Pcie, ScaleUp

SOCKETS = 16e9  # bytes/s between two domains where the preset has only one
USUAL_RATE = 12.5e9  # bytes/s of a NIC where the preset has none
MOST_LINKS = {60: 4, 70: 6, 80: 12, 86: 4, 90: 18, 100: 18}  # NVLinks of one GPU


def read_smi(text: str, source: str, gpu: str, nic_rate: float | None = None) -> Machine:
    """The machine that a matrix shows, with the figures of the preset that has such GPUs."""
    matrix, like = parse_matrix(text, source), machine_with(gpu)
    domain = _domains(matrix)
    switches, place = _switches(matrix, domain)
    domains = max(domain, default=0) + 1
    link = like.cpu.link or (SOCKETS if domains > 1 else None)
    gpus = tuple(place[n] for n in matrix.gpus)
    return Machine(
        description=f"imported from {source} (nvidia-smi topo -m)",
        gpu=like.gpu.model_copy(update={"count": len(gpus), "at": gpus, "pcie": None}),
        scale_up=_scale_up(matrix, like),
        pcie=Pcie(generation=like.pcie.generation, switches=tuple(switches)),
        cpu=like.cpu.model_copy(update={"domains": domains, "link": link}),
        nics=_nics(matrix, [place[n] for n in matrix.nics], like, nic_rate),
        p2p=like.p2p,
        transport=like.transport,
    )


def _nics(
    matrix: Matrix, places: Sequence[str], like: Machine, nic_rate: float | None
) -> Nics | None:
    """The NICs of the matrix; rate and GPUDirect as told, or as in the preset."""
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


def _groups(matrix: Matrix, joined: Callable[[str], bool]) -> list[int]:
    """A number for each device, the same for those that are joined directly or over others."""
    group = list(range(len(matrix.devices)))
    for a, row in enumerate(matrix.cells):
        for b, cell in enumerate(row):
            if joined(cell) and group[a] != group[b]:
                old, new = max(group[a], group[b]), min(group[a], group[b])
                group = [new if one == old else one for one in group]
    return group


def _domains(matrix: Matrix) -> list[int]:
    """The NUMA domain of every device, from 0: as told for GPUs, by nearness for the others."""
    group = _groups(matrix, lambda cell: cell in ("PIX", "PXB", "PHB", "NODE"))
    told = {group[n]: numa for n, numa in enumerate(matrix.numa) if numa >= 0}
    keys = [(0, told[one]) if one in told else (1, one) for one in group]
    order = {key: number for number, key in enumerate(sorted(set(keys)))}
    return [order[key] for key in keys]


def _switches(matrix: Matrix, domain: Sequence[int]) -> tuple[list[str], list[str]]:
    """What each switch hangs on, and the place of every device.

    Devices that are PIX share a switch; groups that are PXB share one above theirs.
    """
    inner = _groups(matrix, lambda cell: cell == "PIX")
    outer = _groups(matrix, lambda cell: cell in ("PIX", "PXB"))
    switches: list[str] = []
    above: dict[int, str] = {}
    for one in sorted(set(outer)):
        members = {inner[n] for n in range(len(outer)) if outer[n] == one}
        above[one] = f"cpu{domain[outer.index(one)]}"
        if len(members) > 1:
            switches.append(above[one])
            above[one] = f"pcie{len(switches) - 1}"
    own: dict[int, str] = {}
    sizes = Counter(inner)
    for device, one in enumerate(inner):
        parent = above[outer[device]]
        if one not in own and (sizes[one] > 1 or parent.startswith("pcie")):
            switches.append(parent)
            own[one] = f"pcie{len(switches) - 1}"
        own.setdefault(one, parent)
    return switches, [own[one] for one in inner]


def _scale_up(matrix: Matrix, like: Machine) -> ScaleUp | None:
    """NVLinks: a switch where the links to all peers together are more than a GPU has."""
    gpus = matrix.gpus
    pairs = {
        (a, b): int(matrix.cells[gpus[a]][gpus[b]].removeprefix("NV"))
        for b in range(len(gpus))
        for a in range(b)
        if matrix.cells[gpus[a]][gpus[b]].startswith("NV")
    }
    if not pairs:
        return None
    most = MOST_LINKS[max((sm for sm in MOST_LINKS if sm <= like.gpu.sm), default=70)]
    usual = like.scale_up
    rate = usual.link_bandwidth if usual else 20e9
    total = sum(count for pair, count in pairs.items() if 0 in pair)
    if total <= most:
        peers = tuple((a, b, count) for (a, b), count in sorted(pairs.items()))
        return ScaleUp.model_construct(kind="nvlink", link_bandwidth=rate, peers=peers)
    return ScaleUp.model_construct(
        kind="nvlink",
        link_bandwidth=rate,
        links=min(pairs.values()),
        switches=usual.switches or 1 if usual else 1,
        multicast=usual.multicast if usual else like.gpu.sm >= 90,
    )
