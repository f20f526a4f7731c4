"""Schedules at their real structure: channels, chunks, rings, trees, heads and NICs of machines.

Every algorithm and protocol that NCCL can run there, for every collective, is executed
symbolically and checked for races, channel by channel.
"""

from functools import cache

import pytest

from netsim.base.errors import InputError
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.nccl.choice import nccl_plan
from netsim.nccl.facts import ALGORITHMS, COLLECTIVES, PROTOCOLS
from netsim.scenario.cells import expand
from netsim.tasks.resolve import ResolvedCell, resolve
from tests.nccl.proof import prove

SHARP = ("cluster.fabric.sharp=true",)
ENABLED = ("NCCL_COLLNET_ENABLE=1",)
# machine, nodes, GPUs of each, and what else: even and odd, one GPU a node, part of a node.
SHAPES = {
    "alone": ("dgx-h100", 1, 8, False),
    "part": ("dgx-h100", 1, 3, False),
    "pair": ("dgx-h100", 2, 4, True),
    "odd": ("dgx-h100", 3, 2, True),
    "lone": ("dgx-h100", 5, 1, True),
    "ampere": ("dgx-a100", 3, 3, True),
    "cube": ("dgx-1-v100", 2, 4, False),
}
SENDS = ("alltoall", "gather", "scatter", "sendrecv")


@cache
def resolved(shape: str, collective: str, algorithm: str, protocol: str) -> ResolvedCell | None:
    """A question with one algorithm forced; nothing where NCCL's rules refuse it."""
    machine, nodes, gpus, sharp = SHAPES[shape]
    flags = {"nodes": nodes, "gpus_per_node": gpus, "algo": algorithm, "proto": protocol}
    given = QuestionOptions(
        **{name: value for name, value in flags.items() if value},
        sizes="40K",
        env=ENABLED if sharp else (),
        settings=SHARP if sharp else (),
    )
    try:
        return resolve(expand(source_of_question(machine, collective, given).source)[0])
    except InputError:
        return None


def check(ready: ResolvedCell, size: int) -> None:
    """Execute what NCCL does at a size, unfolded."""
    collective = ready.collective(size)
    plan = nccl_plan(ready.jobs[0], collective, "float")
    prove(collective, plan)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_all_that_nccl_can_run_is_right(shape, collective):
    ran = set()
    for algorithm in ALGORITHMS:
        for protocol in PROTOCOLS:
            ready = resolved(shape, collective, algorithm, protocol)
            if ready is not None:
                ran.add(algorithm)
                for size in (4, 40_004):
                    check(ready, size)
    assert "Ring" in ran
    if collective == "all_reduce":
        assert "Tree" in ran
        _, nodes, _, sharp = SHAPES[shape]
        assert ("CollNetChain" in ran) == sharp
        assert ("CollNetDirect" in ran) == sharp
        assert nodes > 1 or shape == "cube" or "NVLS" in ran
    if shape == "lone" and collective in ("all_gather", "reduce_scatter"):
        assert "PAT" in ran


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("collective", SENDS)
def test_sends_are_right(shape, collective):
    ready = resolved(shape, collective, "", "")
    assert ready is not None
    for size in (512, 1_000_000):
        check(ready, size)
