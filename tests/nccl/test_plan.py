"""What a call becomes: algorithm, protocol and channels, for functions and for sends."""

import numpy as np
import pytest

from netsim.nccl.choice import plan_call, plan_sends
from netsim.nccl.environment import settings_from
from netsim.nccl.facts import Version
from netsim.nccl.node import communicator
from netsim.nccl.p2p import rounds_of, sends_of
from netsim.nccl.schedules.plan import SEND_RECV, Plan
from netsim.nccl.tuning import TunedCall
from tests.nccl.nccl_nodes import node_of, searched_communicator


# nccl-model.md §2.4: channels by size, fp32.
@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [
        (1024, ("Ring", "LL", 1)),
        (2**18, ("Ring", "LL", 8)),
        (2**20, ("Ring", "LL", 24)),
        (2**21, ("NVLS", "Simple", 16)),
    ],
)
def test_channels_of_the_examples_in_the_fact_sheet(nbytes: int, expected: object) -> None:
    comm = searched_communicator("h100_8nic", 1)
    plan = plan_call(comm, TunedCall("AllReduce", nbytes), nbytes // 4, 4)
    assert (plan.algorithm, plan.protocol, plan.n_channels) == expected


def test_before_2_22_all_channels_of_the_launch_work() -> None:
    node = node_of("h100_8nic", networked=False)
    version = Version(2, 20)
    settings = settings_from({"NCCL_ALGO": "Ring"}, version)
    comm = communicator(node, 1, version=version, settings=settings)
    plan = plan_call(comm, TunedCall("AllReduce", 2**30), 2**28, 4)
    assert plan.n_channels == comm.n_channels


def test_sends_of_a_rank_share_the_channels() -> None:
    comm, table = searched_communicator("h100_8nic", 1), node_of("h100_8nic", networked=False).table
    sends = sends_of(comm, [table])
    rounds = rounds_of([range(8)], comm.facts)

    def planned(peers: list[int], nbytes: int) -> Plan:
        return plan_sends(sends, rounds, 0, np.array(peers), np.full(len(peers), nbytes))

    one = planned([1], 64)
    assert one == Plan(SEND_RECV, "LL", n_channels=1)
    large = planned([1], 2**24)
    assert (large.protocol, large.n_channels) == ("Simple", sends.channels.fewest)
    everyone = planned(list(range(8)), 2**24)
    assert everyone.n_channels == sends.channels.total
