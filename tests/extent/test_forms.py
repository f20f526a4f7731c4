"""Forms of tasks: what follows from them is remembered, and forgotten with them."""

import gc
import weakref

import pytest

from netsim.extent.forms import Form
from netsim.extent.sketches import sketched
from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from netsim.yamlio.read import parse_source

TEXT = """\
cluster: {machine: dgx-h100, nodes: 3, fabric: {kind: rail-optimized}}
workload: {collective: all_reduce, algorithm: %s, sizes: [8MiB]}
"""


@pytest.mark.parametrize("algorithm", ["Ring", "Tree", "NVLSTree", "ring"])
def test_a_form_is_forgotten_although_answers_about_it_were_remembered(algorithm: str) -> None:
    resolved = resolve(expand(parse_source(TEXT % algorithm, "x.yaml"))[0])
    form = Form(resolved.task(8 << 20), may_fold=True)
    assert form.loop_schedule is form.loop_schedule
    assert form.with_fewer_channels is None
    sketched(form)
    if form.plans:
        assert form.with_representatives is form.with_representatives
        assert form.with_equal_heads is form.with_equal_heads
        assert form.without_empty_chunks[0] is form
    assert len(form.loop_schedule.shortest)
    reference = weakref.ref(form)
    del form
    gc.collect()
    assert reference() is None
