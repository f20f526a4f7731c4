"""What NCCL would run on a cluster: from hosts and NCCL's settings to communicators and choices.

Knows topologies and NCCL's rules, but no scenarios, no schedules of its own and no times.
"""

from netsim.lazy import promised

__getattr__ = promised(__name__, "choice", "job", "launching", "network", "plans", "settings")
