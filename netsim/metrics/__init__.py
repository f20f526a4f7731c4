"""Metrics of a run: what passed over links, how GPUs spent their time, and what bounds it."""

from netsim.lazy import promised

TYPE_CHECKING = False

if TYPE_CHECKING:
    from netsim.metrics.bound import Causes, bound_by, link_label
    from netsim.metrics.critical import CriticalPath, critical_path, narrowest
    from netsim.metrics.ends import receivers, senders
    from netsim.metrics.gpus import GpuTime, arrivals, gpu_time
    from netsim.metrics.links import IN_SECONDS, LinkUse, link_amounts, link_use
    from netsim.metrics.load import LinkLoad, load_over_time

__getattr__ = promised(
    __name__,
    bound="Causes bound_by link_label",
    critical="CriticalPath critical_path narrowest",
    ends="receivers senders",
    gpus="GpuTime arrivals gpu_time",
    links="IN_SECONDS LinkUse link_amounts link_use",
    load="LinkLoad load_over_time",
)

__all__ = [
    "IN_SECONDS",
    "Causes",
    "CriticalPath",
    "GpuTime",
    "LinkLoad",
    "LinkUse",
    "arrivals",
    "bound_by",
    "critical_path",
    "gpu_time",
    "link_amounts",
    "link_label",
    "link_use",
    "load_over_time",
    "narrowest",
    "receivers",
    "senders",
]
