"""A block of a 22B model on 8 A100 against what was measured (Korthikanti et al. 2022, table 4).

Forward and backward, in ms; exchanges that hide a product count as far as they outlast it.
"""

import numpy as np
import pytest

from netsim.scenario.cells import expand
from netsim.training.resolve import ResolvedStep, resolve_step
from netsim.workloads.model import layers_of
from netsim.workloads.parts import PassPart
from netsim.workloads.passes import PassTable
from netsim.workloads.tape import TapeEntry
from netsim.yamlio.read import parse_source

TEXT = """\
cluster: {{machine: dgx-a100}}
workload:
  model: {{layers: 48, hidden: 6144, heads: 64, ffn: 24576, vocabulary: 51200, gated: false}}
  batch: 4
  micro_batch: 4
  dtype: half
  attention: unfused
  recompute: {recompute}
  parallelism: {{tp: 8, sequence_parallel: {sequence}}}
  allow_oom: true
"""
ALL = np.arange(8, dtype=np.int32)[None]


@pytest.mark.parametrize(
    ("recompute", "sequence", "forward", "backward"),
    [
        ("none", "false", 7.7, 11.9),
        ("none", "true", 7.2, 11.8),
        ("full", "false", 7.7, 19.5),
        ("selective", "false", 7.7, 13.2),
        ("selective", "true", 7.2, 13.1),
    ],
)
def test_a_block_takes_what_was_measured(recompute, sequence, forward, backward) -> None:
    text = TEXT.format(recompute=recompute, sequence=sequence)
    resolved = resolve_step(expand(parse_source(text, "x.yaml"))[0])
    passes = PassTable(resolved.setting).of(layers_of(resolved.setting.model)[1])
    assert _milliseconds(resolved, passes.forward) == pytest.approx(forward, rel=0.08)
    assert _milliseconds(resolved, passes.backward) == pytest.approx(backward, rel=0.15)


def _milliseconds(resolved: ResolvedStep, parts: tuple[PassPart, ...]) -> float:
    """One stream of kernels, one of collectives, as emit() writes them."""
    kernels = collectives = 0.0
    done: dict[str, float] = {}
    blocked = 0.0
    for part in parts:
        if part.collective:
            task = TapeEntry(
                name=part.name,
                kind="tp",
                phase="forward",
                stream="tp",
                groups=ALL,
                after=(),
                collective=part.collective,
                nbytes=part.nbytes,
                dtype=part.dtype or "half",
            )
            took = resolved.costs(task, tuple(range(8))).seconds
            collectives = done[part.name] = max(kernels, collectives, blocked) + took
            blocked = collectives if part.blocks else blocked
        else:
            waits = [done[name] for name in part.needs if name in done]
            kernels = max([kernels, blocked, *waits]) + part.seconds
    return max(kernels, collectives) * 1e3
