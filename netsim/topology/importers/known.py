"""Figures that foreign files lack, taken from the preset that is most like what they describe."""

import re
from dataclasses import dataclass

from netsim.errors import InputError, suggest
from netsim.presets import preset_names
from netsim.topology.importers.gpus import MODELS, USUAL
from netsim.topology.load import FOLDER, load_machine
from netsim.topology.machine import Cpu, Machine, ScaleUp

# The preset that stands for a compute capability where nothing tells its like apart.
BY_SM = {
    70: "dgx-1-v100",
    75: "rtx2080ti-x2",
    80: "dgx-a100",
    86: "a10-pcie-x4",
    89: "l40s-pcie-x8",
    90: "dgx-h100",
    100: "dgx-b200",
    103: "hgx-b300",
    120: "rtx5090-x4",
}
# Usable bytes/s of an NVLink in one direction, by compute capability (NCCL 2.30, graph/topo.h).
NVLINK = {60: 18e9, 70: 20e9, 80: 20e9, 86: 12e9, 90: 20.6e9, 100: 40.1e9}
MOST_LINKS = {60: 4, 70: 6, 80: 12, 86: 4, 90: 18, 100: 18}  # NVLinks of one GPU
# Memory bandwidth of one NUMA domain, as in the presets with such CPUs, and the link between two
# (NCCL 2.30, src/graph/topo.h), by vendor and least model number.
CPUS: dict[str, dict[int, tuple[float, float]]] = {
    "intel": {0: (55e9, 6e9), 85: (100e9, 10e9), 143: (245e9, 22e9), 207: (285e9, 40e9)},
    "amd": {0: (160e9, 16e9)},
    "arm": {0: (410e9, 100e9)},
    "ibm": {0: (136e9, 32e9)},  # POWER9: 8 channels DDR4-2666 = 170 GB/s, of which about 80 %
    "": {0: (100e9, 6e9)},
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a file tells of a host, as far as it tells it (None: it does not).

    `joined`: how its GPUs are, see `joined_by`; `cpu`: vendor, family and model; `pairs`:
    how many pairs of GPUs have links of their own.
    """

    gpus: int
    joined: tuple[str, int]
    p2p: bool | None = None
    arch: str | None = None
    cpu: tuple[str, int, int] | None = None
    nics: int | None = None
    rate: float | None = None
    pairs: int | None = None


def machine_like(gpu: str, shape: Shape, *, sm: int = 0, gcn: str = "") -> Machine:
    """The preset most like a host whose GPUs are of a model, a compute capability or `gcn` arch."""
    gpu = gpu or USUAL.get(sm, "")
    names = _of_model(gpu) if gpu else _of_arch(sm, gcn)
    return max(names, key=lambda one: _alike(one, shape))


def joined_by(scale_up: ScaleUp | None, gpus: int) -> tuple[str, int]:
    """How GPUs are joined: by a switch, each other or nothing, and with how many links a GPU."""
    if scale_up is None or not scale_up.fitted:
        return "nothing", 0
    if scale_up.switches is not None:
        return "switch", scale_up.links or 0
    mine = [sum(count for *pair, count in scale_up.peers if gpu in pair) for gpu in range(gpus)]
    return "peers", max(mine) if scale_up.peers else (scale_up.links or 0) * (gpus - 1)


def nvlink_rate(sm: int) -> float:
    """Usable bytes/s of one NVLink of a GPU."""
    return NVLINK[max((s for s in NVLINK if s <= sm), default=70)]


def most_links(sm: int) -> int:
    """The NVLinks of one GPU."""
    return MOST_LINKS[max((s for s in MOST_LINKS if s <= sm), default=70)]


def cpu_figures(vendor: str, model: int) -> tuple[float, float]:
    """Bytes/s of a domain's memory, and between two domains."""
    table = CPUS.get(vendor, CPUS[""])
    return table[max(least for least in table if least <= model)]


def same_cpu(cpu: Cpu, wanted: tuple[str, int, int]) -> bool:
    """Whether a CPU is of this vendor, family and model."""
    return (cpu.vendor, cpu.family, cpu.model_id) == wanted


def _of_model(gpu: str) -> list[Machine]:
    """The machines whose GPUs have this name in their model, such as `H100` or `RTX 4090`: presets,
    else hosts of the same compute capability with GPUs of a known model.
    """
    known = [load_machine(name) for name in preset_names(FOLDER)]
    for fits in (_begins, _has_words, _holds):  # so that L40 is not L40S, nor A10 A100
        if presets := [one for one in known if fits(one.gpu.model, gpu)]:
            return presets
        if name := next((name for name in MODELS if fits(name, gpu)), ""):
            return [_with_gpu(one, name) for one in _of_arch(MODELS[name].sm, "")]
    models = sorted({one.gpu.model for one in known} | set(MODELS))
    raise InputError(f"unknown GPU '{gpu}'{suggest(gpu, models)}; known: {', '.join(models)}")


def _with_gpu(like: Machine, name: str) -> Machine:
    """A machine with GPUs of another model."""
    gpu = MODELS[name].filled(name, like.gpu)
    scale_up = like.scale_up
    if scale_up is not None and like.gpu.sm != gpu.sm:
        scale_up = scale_up.model_copy(update={"link_bandwidth": nvlink_rate(gpu.sm)})
    told = {"gpu": gpu, "scale_up": scale_up, "p2p": MODELS[name].p2p}
    return like.model_copy(update=told)


def _of_arch(sm: int, gcn: str) -> list[Machine]:
    """The presets with GPUs of an architecture, the usual one first."""
    known = [load_machine(name) for name in preset_names(FOLDER)]
    if gcn:
        of_maker = [one for one in known if not one.gpu.sm]
        return [one for one in of_maker if one.gpu.arch == gcn] or of_maker
    usual = load_machine(BY_SM[max((s for s in BY_SM if s <= sm), default=min(BY_SM))])
    return [usual, *(one for one in known if one.gpu.sm == usual.gpu.sm)]


def _alike(one: Machine, shape: Shape) -> tuple[bool, ...]:
    """What a preset has in common with a host, the weightiest first."""
    joined = joined_by(one.scale_up, one.gpu.count)
    rate = one.nics.rates[0] if one.nics else None
    return (
        shape.p2p is None or one.p2p == shape.p2p,
        shape.arch is None or one.cpu.arch == shape.arch,
        joined[0] == shape.joined[0],
        joined == shape.joined,
        shape.pairs is None or _pairs(one) == shape.pairs,
        shape.cpu is not None and same_cpu(one.cpu, shape.cpu),
        one.gpu.count == shape.gpus,
        rate == shape.rate,
        (one.nics.count if one.nics else 0) == shape.nics,
    )


def _pairs(one: Machine) -> int:
    """How many pairs of GPUs have links of their own."""
    if one.scale_up is None or not one.scale_up.fitted or one.scale_up.switches is not None:
        return 0
    return len(one.scale_up.peers) or one.gpu.count * (one.gpu.count - 1) // 2


def _begins(model: str, wanted: str) -> bool:
    mine, words = _words(model), _words(wanted)
    return bool(words) and mine[: len(words)] == words


def _has_words(model: str, wanted: str) -> bool:
    words = _words(wanted)
    return bool(words) and set(words) <= set(_words(model))


def _holds(model: str, wanted: str) -> bool:
    plain = "".join(_words(wanted))
    return bool(plain) and plain in "".join(_words(model))


def _words(name: str) -> list[str]:
    words = re.findall(r"[a-z0-9]+", name.casefold())
    return [word for word in words if word not in ("nvidia", "geforce", "amd")]
