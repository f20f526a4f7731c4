"""A GPU that a fault slows: NCCL's kernels on it are slower, and so is whoever waits for it."""

import pytest

from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from netsim.yamlio.read import parse_source
from tests.extent.cells import simulate_size

SCENE = """
cluster: {{machine: dgx-a100, nodes: 2, gpus_per_node: 4, faults: [{faults}]}}
workload: {{collective: all_reduce, algorithm: {algorithm}, protocol: {protocol}, sizes: [{size}]}}
"""
SLOW = "{gpu: node0.gpu2, slowdown: 1.5}"


def time(algorithm: str, protocol: str, size: str, faults: str = "") -> float:
    text = SCENE.format(algorithm=algorithm, protocol=protocol, size=size, faults=faults)
    resolved = resolve(expand(parse_source(text, "slow.yaml"))[0])
    row, _ = simulate_size(resolved, resolved.cell.scenario.collective.size_list()[0])
    assert row.time_us is not None
    return row.time_us


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "protocol", "size"), [("Ring", "LL", "32KiB"), ("Tree", "LL128", "4MiB")]
)
def test_a_slow_gpu_slows_what_its_blocks_do(algorithm: str, protocol: str, size: str) -> None:
    usual, slow = time(algorithm, protocol, size), time(algorithm, protocol, size, SLOW)
    assert 1.005 * usual < slow < 1.5 * usual
