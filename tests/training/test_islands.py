"""Replicas that exchange gradients at their own site, and weights across sites now and then."""

import pytest

from netsim.base.errors import InputError
from netsim.tasks.answer import checked_cells, resolve_any
from netsim.training.resolve import ResolvedStep
from netsim.training.run import details_of, folded_step, simulate_step, step_row
from netsim.workloads.memory import memory_of
from netsim.yamlio.read import parse_source

PARAMETERS, LINE = 100_000_000, 12.5e9 * 0.982
SITES = ", sites: {distance: 100km, bandwidth: 100Gbps}"


def resolved(data: str, replicas: str = "", *, nodes: int = 4, sites: str = SITES) -> ResolvedStep:
    """A step of one layer on hosts of one GPU, whose rate does not depend on how many there are."""
    text = f"""cluster:
  {{machine: dgx-h100, nodes: {nodes}, gpus_per_node: 1, nics_per_node: 1{sites}}}
workload:
  model: [{{name: a, parameters: {PARAMETERS}, flops: 1e12}}]
  batch: {nodes}
  parallelism: {{dp: {nodes}, data: {data}}}
  replicas: {{{replicas}}}
  compute: {{gemm_efficiency: 0.7}}
"""
    (cell,) = checked_cells(parse_source(text, "x.yaml"))
    ready = resolve_any(cell)
    assert isinstance(ready, ResolvedStep)
    return ready


@pytest.mark.slow
@pytest.mark.parametrize("data", ["ddp", "zero1", "fsdp"])
def test_a_step_has_its_part_of_what_islands_exchange(data: str) -> None:
    alone = simulate_step(resolved(data, nodes=2, sites="")).seconds
    part = {every: resolved(data, f"sync_every: {every}") for every in (10, 100)}
    more = {every: simulate_step(one).seconds - alone for every, one in part.items()}
    assert more[10] == pytest.approx(10 * more[100], rel=1e-6)
    # Of two islands of two hosts each host sends half of the weights across the line, both at once.
    exchange = PARAMETERS * 2 / LINE + 490e-6
    inside = 0.0 if data == "fsdp" else PARAMETERS * 2 / 2 / (50e9 * 0.982)
    assert more[10] * 10 == pytest.approx(exchange + inside, rel=0.03)
    assert simulate_step(resolved(data)).seconds > alone + exchange


def test_both_engines_and_the_search_tell_the_same_and_the_breakdown_adds_up() -> None:
    ready = resolved("ddp", "sync_every: 20")
    step = simulate_step(ready)
    assert simulate_step(ready, engine="simpy").seconds == pytest.approx(step.seconds, rel=1e-9)
    assert folded_step(ready).seconds == pytest.approx(step.seconds, rel=0.05)
    found = details_of(step)
    assert found["exposed_dp_us"] > step.sync * 1e6
    spent = found["computing_us"] + found["idle_us"]
    spent += sum(value for name, value in found.items() if name.startswith("exposed_"))
    assert spent == pytest.approx(found["step_time_us"], rel=1e-9)
    assert "1/20 of the exchange of islands" in step_row(step).approximation


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 20])
def test_an_exchange_beside_the_next_steps_is_waited_for_where_it_is_longer(every: int) -> None:
    usual = simulate_step(resolved("ddp", f"sync_every: {every}"))
    step = simulate_step(resolved("ddp", f"sync_every: {every}, overlap_sync: true"))
    assert step.sync == usual.sync > 0
    assert step.seconds == pytest.approx(max(step.spans.makespan, step.sync), rel=1e-12)
    assert step.seconds < usual.seconds
    found = details_of(step)
    hidden = found["hidden_us"] - details_of(usual)["hidden_us"]
    assert hidden == pytest.approx((usual.seconds - step.seconds) * 1e6, rel=1e-9)
    spent = found["computing_us"] + found["idle_us"]
    spent += sum(value for name, value in found.items() if name.startswith("exposed_"))
    assert spent == pytest.approx(found["step_time_us"], rel=1e-9)


def test_what_is_sharded_is_sharded_in_an_island() -> None:
    states = [memory_of(resolved("fsdp", more).setting, 0).states for more in ("", "sync_every: 5")]
    assert states[1] == 2 * states[0]


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ("islands: 2", "has no meaning without sync_every"),
        ("overlap_sync: true", "overlap_sync: has no meaning without sync_every"),
        ("sync_every: 0", "sync_every"),
        ("sync_every: 2, islands: 3", "dp 4 is not divisible by 3 islands"),
        ("sync_every: 2, delayed: true", "goes with no sync_every"),
    ],
)
def test_what_cannot_be_is_refused(replicas: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        resolved("ddp", replicas)
    assert message in str(caught.value)
    assert "replicas" in str(caught.value)
