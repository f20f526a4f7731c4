"""Constants are estimated again from the runs that they were fitted to, and from no others."""

from dataclasses import replace
from math import log
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from netsim.base.constants import TABLE
from netsim.base.errors import InputError
from netsim.measured import estimate
from netsim.measured.accuracy import _estimates_without
from netsim.measured.estimate import best_of, estimate_of, tried_values, with_figures
from netsim.measured.index import read_index
from netsim.tasks.answer import checked_cells
from netsim.tasks.outcome import simulate_one
from netsim.tasks.resolve import resolve
from netsim.yamlio.read import Source
from tests.bench.constants import estimated

ENTRIES = read_index(Path("scenarios/measured/index.yaml"))
KIB = 1024
MOST_RUNS = {"sm_80.step_cost.ll": 3}  # of 13, all of which take seconds


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("constant", "within"),
    [
        ("launch.host", 0.02),
        ("launch.each_send", 0.1),
        ("launch.each_channel.2_10", 0.1),
        ("cxi.eager_bytes", 1e-9),
        ("efa.usable", 0.005),
        ("tcp.nic_cap", 0.01),
        ("sm_80.step_cost.ll", 0.25),
    ],
)
def test_runs_give_what_the_table_has(constant: str, within: float) -> None:
    runs = TABLE[constant].fitted.runs[: MOST_RUNS.get(constant)]
    found = estimated(TABLE[constant], [entry for entry in ENTRIES if entry.id in runs])
    assert found.value == pytest.approx(TABLE[constant].value, rel=within)
    assert found.points >= 1
    assert not found.at_edge


def test_a_run_can_be_left_out() -> None:
    one = TABLE["launch.host"]
    others = [entry for entry in ENTRIES if not entry.id.startswith("h100")]
    left = estimated(one, others)
    assert 0 < left.points < estimated(one, ENTRIES).points
    with pytest.raises(InputError, match=r"launch\.host: none of its runs is given: h100_sxm"):
        estimated(one, [])
    with pytest.raises(InputError, match=r"launch\.gap is given by a source"):
        estimated(TABLE["launch.gap"], ENTRIES)


def test_the_best_value_leaves_least_of_most_points() -> None:
    one = replace(TABLE["network.notice"], value=2e-6)
    values = tried_values(one)
    assert one.value in values
    assert values[[0, -1]] == pytest.approx([0.5e-6, 8e-6])
    agreeing = [np.log((10e-6 + values) / 13e-6) for _ in range(3)]  # measured with 3 us
    stray = np.log((10e-6 + values) / 30e-6)
    found = best_of(one, values, np.array([*agreeing, stray]))
    assert found.value == pytest.approx(3e-6, rel=0.02)
    assert found.before == pytest.approx(log(13 / 12), rel=0.02)
    assert (found.points, found.at_edge) == (4, False)
    assert best_of(one, values, np.array([stray])).at_edge


def test_no_value_is_tried_that_is_physically_impossible() -> None:
    """Both directions of a link move at most twice what one does."""
    for generation in (3, 4, 5):
        constant = TABLE[f"pcie.both_ways.gen{generation}"]
        values = tried_values(constant)
        assert values.max() == 2.0
        assert constant.value in values


def seconds(cluster: dict, collective: str, size: int, figures: dict, **more: object) -> float:
    work = {"collective": collective, "sizes": [size]}
    source = Source("one", {"cluster": cluster, "workload": work, **more})
    changed = with_figures(source, figures)
    return simulate_one(resolve(checked_cells(changed)[0]), size).seconds


BELOW_A_SWITCH = {"machine": "l40s-pcie-x8", "gpus_per_node": 2}
THROUGH_A_CPU = {"machine": "rtx4090-x8", "gpus_per_node": 2, "p2p": True}
PAIR = {"machine": "dgx-h100", "nodes": 2}
HOST, ONE_PROCESS = {"machine": "dgx-h100"}, {"launch": "single_process"}
EFA = {**PAIR, "fabric": {"kind": "rail-optimized", "transport": "efa"}}
TCP = {**PAIR, "fabric": {"kind": "rail-optimized", "transport": "tcp"}}


def test_a_hop_below_a_switch_has_another_cost_than_one_through_a_cpu() -> None:
    of_switch = {"pcie.sync.simple": 9e-6}
    of_cpu = {"phb.sync.simple": 9e-6}
    for cluster, figures in ((BELOW_A_SWITCH, of_cpu), (THROUGH_A_CPU, of_switch)):
        usual = seconds(cluster, "all_reduce", 1 << 20, {})
        assert seconds(cluster, "all_reduce", 1 << 20, figures) == usual


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("figure", "now", "then", "case"),
    [
        ("transport.latency", 20e-6, 30e-6, (EFA, "all_reduce", 8, {})),
        ("transport.nic_cap", 4.7e9, 2.35e9, (TCP, "all_reduce", 1 << 26, {})),
        ("pcie.both_ways", 1.52, 0.76, ({"machine": "v100-pcie-x4"}, "all_reduce", 1 << 26, {})),
        ("pcie.sync.simple", 0.5e-6, 9e-6, (BELOW_A_SWITCH, "all_reduce", 1 << 20, {})),
        ("phb.sync.simple", 2.75e-6, 9e-6, (THROUGH_A_CPU, "all_reduce", 1 << 20, {})),
        ("latencies.nvlink", 350e-9, 700e-9, ({"machine": "gh200-x4"}, "all_reduce", 8, {})),
        ("launch.each_channel", 0.035e-6, 2e-6, (HOST, "all_reduce", 64 * KIB, ONE_PROCESS)),
        ("launch.each_send", 0.2e-6, 2e-6, (HOST, "alltoall", 64 * KIB, ONE_PROCESS)),
    ],
)
def test_a_figure_is_replaced_for_one_simulation(
    figure: str, now: float, then: float, case: tuple
) -> None:
    cluster, collective, size, more = case
    usual = seconds(cluster, collective, size, {}, **more)
    assert seconds(cluster, collective, size, {figure: now}, **more) == pytest.approx(usual)
    assert seconds(cluster, collective, size, {figure: then}, **more) > 1.02 * usual
    assert seconds(cluster, collective, size, {}, **more) == usual


def test_only_constants_that_were_fitted_to_what_is_asked_are_estimated_again() -> None:
    """Of no system none is, whatever was given by sources; of one those that its runs made."""
    assert _estimates_without((), ENTRIES, 1) == []
    system = next(entry.system for entry in ENTRIES if entry.id in TABLE["efa.usable"].fitted.runs)
    few = [entry for entry in ENTRIES if entry.id in TABLE["efa.usable"].fitted.runs]
    assert "efa.usable" in {one.constant for one in _estimates_without((system,), few, 1)}


def test_what_one_constant_explains_is_not_explained_again(monkeypatch) -> None:
    """Two costs enter the same times, of which one system has 3 us more than the other: without
    the system that has not, the first of both takes them, and none is left for the second."""
    entries = [SimpleNamespace(id=id, system=id) for id in ("usual", "slower")]
    some = replace(TABLE["network.notice"], value=2e-6)
    fitted = replace(some.fitted, runs=("usual", "slower"), estimator="by_simulation")
    first, second = (replace(some, id=id, fitted=fitted) for id in ("first", "second"))
    sizes, ours = np.array([8.0, 64.0, 512.0]), 10e-6 + tried_values(first)
    measured = {"usual": np.full(3, 12e-6), "slower": np.full(3, 15e-6)}
    monkeypatch.setattr(estimate, "_points", lambda _, one: (sizes, measured[one.id]))
    told = {id: np.log(ours / seconds[:, None]) for id, seconds in measured.items()}
    found = estimate.without(
        "usual", [first, second], entries, dict.fromkeys(("first", "second"), told)
    )
    ratios = {one.constant: one.ratio for one in found}
    alone = estimate.without("usual", [second], entries, {"second": told})
    every = estimate_of(first, [told["usual"], told["slower"]]).value
    assert ratios["first"] == pytest.approx(5e-6 / every, rel=0.05)
    assert next(alone).ratio == pytest.approx(ratios["first"])
    assert ratios["second"] == pytest.approx(2e-6 / every, rel=0.05)
