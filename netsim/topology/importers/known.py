"""Figures that foreign files lack, taken from the presets: GPUs by model, CPUs by maker."""

from netsim.errors import InputError, suggest
from netsim.presets import preset_names
from netsim.topology.load import FOLDER, load_machine
from netsim.topology.machine import Gpu, Machine

# The preset whose GPU stands for a compute capability where no model is named.
BY_SM = {
    60: "dgx-1-v100",
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
# Memory bandwidth of one NUMA domain, as in the presets with such CPUs, and the link between two
# (NCCL 2.30, src/graph/topo.h), by vendor and least model number.
CPUS: dict[str, dict[int, tuple[float, float]]] = {
    "intel": {0: (55e9, 6e9), 85: (100e9, 10e9), 143: (245e9, 22e9), 207: (285e9, 40e9)},
    "amd": {0: (160e9, 16e9)},
    "arm": {0: (410e9, 100e9)},
    "": {0: (100e9, 6e9)},
}


def machine_with(model: str) -> Machine:
    """The preset whose GPU has this name in its model, such as `H100` or `RTX 4090`."""
    wanted = _plain(model)
    known = [load_machine(name) for name in preset_names(FOLDER)]
    fitting = [one for one in known if _plain(one.gpu.model).startswith(wanted)]
    fitting += [one for one in known if wanted in _plain(one.gpu.model)]
    if wanted and fitting:
        return fitting[0]
    models = sorted({one.gpu.model for one in known})
    raise InputError(f"unknown GPU '{model}'{suggest(model, models)}; known: {', '.join(models)}")


def gpu_named(model: str) -> Gpu:
    """The GPU with this name in its model."""
    return machine_with(model).gpu


def gpu_of_sm(sm: int) -> Gpu:
    """The GPU that stands for a compute capability."""
    return load_machine(BY_SM[max((s for s in BY_SM if s <= sm), default=60)]).gpu


def nvlink_rate(sm: int) -> float:
    """Usable bytes/s of one NVLink of a GPU."""
    return NVLINK[max((s for s in NVLINK if s <= sm), default=70)]


def cpu_figures(vendor: str, model: int) -> tuple[float, float]:
    """Bytes/s of a domain's memory, and between two domains."""
    table = CPUS.get(vendor, CPUS[""])
    return table[max(least for least in table if least <= model)]


def _plain(name: str) -> str:
    words = name.casefold().replace("nvidia", "").replace("geforce", "").replace("amd", "")
    return "".join(filter(str.isalnum, words))
