"""The handful of physical parameters that a calibration may fit, and what each of them changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp

from netsim.expect.launching import HOST, KERNEL
from netsim.nccl.calibrated import constant, names_of
from netsim.prepared import Prepared
from netsim.topology.machine import Machine
from netsim.topology.stamped import USABLE, Figure, kind_of, written
from netsim.topology.transports import TRANSPORTS

# Factors within which a parameter may lie: of rates, of latencies, of messages (where a plugin
# posts and polls them in software, Slingshot's take ten times those of InfiniBand).
SURE, LOOSE, FOREIGN = 1.6, 3.0, 10.0


@dataclass(frozen=True)
class Parameter:
    """One parameter: the constants that it scales together, each with its usual value.

    A fit moves x, the logarithm of the factor; `low` and `high` bound that factor.
    """

    name: str
    usual: Mapping[str, float]
    low: float
    high: float
    only: str = ""  # the protocol or algorithm of the points that it can change; empty: all

    @property
    def is_rate(self) -> bool:
        """Whether it is one of rates or a part of one; else of latencies."""
        return all(kind_of(name) != "time" for name in self.usual)

    def figures(self, x: float) -> dict[str, float]:
        """The constants at a factor of exp(x)."""
        return {name: value * exp(x) for name, value in self.usual.items()}


def parameters_of(prepared: Prepared) -> list[Parameter]:
    """What can be fitted on a system; what its runs do not show is sorted out by the fit."""
    job = prepared.jobs[0]
    machine = job.cluster.machine_of(0)
    found = [
        Parameter("launch by the host", {"launch.host": HOST}, 1 / LOOSE, LOOSE),
        Parameter("launch on the GPU", {"launch.kernel": KERNEL}, 1 / LOOSE, LOOSE),
    ]

    def scaled(name: str, *constants: str, factor: float = LOOSE, only: str = "") -> None:
        usual = {one: constant(job.mechanism, one) for one in constants if one in known}
        if usual:
            found.append(Parameter(name, usual, 1 / factor, factor, only))

    known = names_of(job.mechanism)

    for name in ("LL", "LL128", "Simple"):
        kind, key = _link_kind(machine), name.casefold()
        scaled(f"hop of {name}", f"step_cost.{key}", f"{kind}.sync.{key}", only=name)
        scaled(f"channel rate of {name}", f"rate.{key}", factor=SURE, only=name)
    if job.comm.nvls_channels and machine.scale_up is not None and machine.scale_up.multicast:
        scaled("part of NVLink's rate in NVLS", "nvls_efficiency", factor=1.3, only="NVLS")
        hops = [one for one in known if one.startswith("nvls_") and kind_of(one) == "time"]
        scaled("hop of NVLS", *hops, only="NVLS")
        scaled("rate of NVLS's copies", "nvls_copy_rate", factor=SURE, only="NVLS")
    if job.comm.n_nodes > 1:
        ways = [f"network.delivery.{key}" for key in ("ll", "ll128", "simple")]
        scaled("transport latency", "network.notice", *ways, "network.credit", factor=FOREIGN)
        scaled(
            "time of a post", "network.post.ll", "network.post.ll128", "network.post.simple",
            factor=FOREIGN,
        )  # fmt: skip
        busy = [one for one in known if one.startswith("network.path.handling.")]
        if any(constant(job.mechanism, one) for one in busy):
            scaled("handling of a message", *busy)
        now = machine.calibration.get(USABLE)
        transport = job.cluster.transport or TRANSPORTS[machine.transport]
        usable = transport.usable if now is None else float(now.value)
        found.append(Parameter("usable part of the NICs' rate", {USABLE: usable}, 0.4, 1 / usable))
    up = machine.scale_up
    if up is not None and up.fitted:
        rate = {"scale_up.link_bandwidth": up.link_bandwidth}
        found.append(Parameter("rate of a link between GPUs", rate, 0.5, 1.3))
    if not machine.p2p or up is None:
        memory = {"cpu.memory_bandwidth": machine.cpu.memory_bandwidth}
        found.append(Parameter("bandwidth of the hosts' memory", memory, 0.3, 2.5))
    return found


def concerns(parameter: Parameter, algorithm: str, protocol: str) -> bool:
    """Whether a parameter can change points of an algorithm and protocol at all."""
    only = parameter.only
    return not only or only == protocol or (only == "NVLS" and algorithm.startswith("NVLS"))


def _link_kind(machine: Machine) -> str:
    """What joins its GPUs: nvlink, pcie, or shared memory of the host."""
    if machine.scale_up is not None and machine.scale_up.fitted:
        return "nvlink"
    return "pcie" if machine.p2p else "shm"


def calibration(figures: Mapping[str, float]) -> dict[str, dict[str, str]]:
    """Figures as a `calibration` section has them."""
    return {name: {"value": written(name, value)} for name, value in figures.items()}


def figure(name: str, value: float, low: float, high: float) -> Figure:
    """A fitted figure with its interval."""
    texts = [written(name, one) for one in (value, low, high)]
    return Figure(value=texts[0], stamp="calibrated", low=texts[1], high=texts[2])
