"""What equal calls took is recalled in other cells; what differs in anything never is."""

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.base.errors import NetsimError
from netsim.base.memo import Memo, digest, spelled
from netsim.nccl.schedules.plan import Plan
from netsim.results.row import Row, csv_text
from netsim.scenario.cells import expand_all
from netsim.scenario.models import LaunchCosts, Nccl, Scenario, Workload
from netsim.tasks import outcome
from netsim.tasks.resolve import ResolvedCell, may_fold, resolve
from netsim.tasks.row import row_of_size
from netsim.topology.config import ClusterConfig
from netsim.yamlio.read import Source, parse_source
from tests.extent.cells import simulate_size

SIZE = 1 << 15
HOSTS: dict[str, Any] = {
    "cluster": {"machine": "a100-x4", "nodes": 2, "fabric": {"kind": "rail-optimized"}},
    "workload": {"collective": "all_reduce", "sizes": [SIZE], "algorithm": "Ring"},
}
SWITCH: dict[str, Any] = {
    "cluster": {"graph": {"kind": "switch", "gpus": 4, "bandwidth": "50GB/s", "latency": "1us"}},
    "workload": {"collective": "all_reduce", "sizes": [SIZE], "algorithm": "ring"},
}
NOISY = HOSTS | {"noise": "quiet", "samples": 2}
GROUP = {"machine": "a100-x4", "nodes": 1}
SLOW_LINK = {"link": "node0.gpu3->node0.gpu2", "bandwidth": "50%"}

# What a cell may change of one of the two scenarios, by the path of its key.
CHANGES: list[tuple[dict[str, Any], str, Any]] = [
    *((HOSTS, "cluster.machine", name) for name in ("gh200-x4",)),
    *((HOSTS, "cluster.nodes", nodes) for nodes in (1, 3)),
    (HOSTS, "cluster", {"groups": [GROUP, GROUP | {"machine": "gh200-x4"}]}),
    (HOSTS, "cluster.gpus_per_node", 2),
    (HOSTS, "cluster.gpus", [0, 2]),
    (HOSTS, "cluster.nics_per_node", 1),
    (HOSTS, "cluster.nic", "200Gbps"),
    (HOSTS, "cluster.p2p", False),
    (HOSTS, "cluster.fabric.kind", "single-switch"),
    (HOSTS, "cluster.fabric.latency", "2us"),
    (HOSTS, "cluster.fabric.seed", 3),
    *((HOSTS, "cluster.placement", how) for how in ("random", [1, 0])),
    (HOSTS, "cluster.seed", 5),
    (HOSTS, "cluster.sites", {"count": 2, "distance": "100km", "bandwidth": "100Gbps"}),
    (HOSTS, "cluster.overrides", [{"node": 1, "nics": [0]}]),
    (HOSTS, "cluster.overrides", [{"machine": {"scale_up": {"link_bandwidth": "20GB/s"}}}]),
    (HOSTS, "cluster.overrides", [{"machine": {"calibration": {}}}]),
    (HOSTS, "cluster.faults", [SLOW_LINK]),
    (HOSTS, "cluster.faults", [{"gpu": "node1.gpu2", "slowdown": 2.0}]),
    (HOSTS, "cluster.faults", [{"nic": "node1.nic1"}]),
    *(
        (HOSTS, "workload.collective", name)
        for name in ("all_gather", "reduce_scatter", "broadcast")
    ),
    *(
        (HOSTS, "workload", {"collective": name, "sizes": [SIZE]})
        for name in ("alltoall", "sendrecv", "gather")
    ),
    (HOSTS, "workload", {"collective": "broadcast", "sizes": [SIZE], "root": 3}),
    (HOSTS, "workload", {"collective": "p2p", "sizes": [SIZE], "pairs": [[0, 1], [2, 5]]}),
    (HOSTS, "workload", {"collective": "p2p", "sizes": [SIZE], "pairs": [[0, 5]]}),
    *((HOSTS, "workload.dtype", name) for name in ("half", "double")),
    *((HOSTS, "workload.algorithm", name) for name in ("auto", "Tree", "ring")),
    *((HOSTS, "workload.protocol", name) for name in ("LL", "LL128", "Simple")),
    (HOSTS, "workload.ranks", [0, 1, 4, 5]),
    *((HOSTS, "workload.split", split) for split in ("MOD2", "AND0x3", "DIV4")),
    (HOSTS, "workload.timing", "single"),
    *((HOSTS, "nccl.version", version) for version in ("2.18", "2.21", "2.23", "2.26")),
    *(
        (HOSTS, "nccl.env", {name: value})
        for name, value in (
            ("NCCL_MAX_NCHANNELS", "4"),
            ("NCCL_BUFFSIZE", "1048576"),
            ("NCCL_P2P_DISABLE", "1"),
            ("NCCL_IB_QPS_PER_CONNECTION", "4"),
            ("NCCL_NTHREADS", "256"),
            ("NCCL_IB_DISABLE", "1"),
            ("NCCL_NET_GDR_LEVEL", "LOC"),
            ("NCCL_DEBUG", "INFO"),
        )
    ),
    (HOSTS, "nccl.registration", "local"),
    *((HOSTS, "launch", style) for style in ("single_process", "cuda_graph")),
    (HOSTS, "launch", {"style": "process_per_gpu", "host": "50us"}),
    (HOSTS, "launch", {"style": "process_per_gpu", "kernel": "7us"}),
    (HOSTS, "seed", 9),
    (HOSTS, "fold", "off"),
    (HOSTS, "exact", True),
    (HOSTS, "limits", True),
    (HOSTS, "noise", "quiet"),
    (NOISY, "samples", 3),
    (NOISY, "noise", "production"),
    (HOSTS, "cluster.faults", [SLOW_LINK | {"at": "5us"}]),
    (HOSTS, "cluster.faults", [SLOW_LINK | {"at": "5us", "for": "5us"}]),
    (SWITCH, "cluster.graph.gpus", 6),
    (SWITCH, "cluster.graph.bandwidth", "60GB/s"),
    (SWITCH, "cluster.graph.latency", "2us"),
    (SWITCH, "workload.algorithm", "halving-doubling"),
    (
        SWITCH,
        "workload",
        {
            "collective": "broadcast",
            "sizes": [SIZE],
            "algorithm": "ring",
            "parameters": {"chunks": 3},
        },
    ),
    (
        SWITCH,
        "workload",
        {
            "collective": "alltoallv",
            "sizes": [SIZE],
            "algorithm": "pairwise",
            "matrix": [[0, 9, 9, 9], [9, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]],
        },
    ),
    (SWITCH, "workload.timing", "single"),
    (SWITCH, "launch", {"style": "process_per_gpu", "host": "500us"}),
    (SWITCH, "fold", "off"),
]
CHANGED = [(base, (path, value)) for base, path, value in CHANGES]
# What makes no difference to a cell's numbers, or is only read before (sizes are asked one by one).
NOT_ASKED = {
    *("name", "sweep", "outputs", "measured", "prices", "sizes", "workload", "cluster"),
    *("jobs", "job", "background", "report"),  # cells that recall nothing; what reports compare
}
IN_FILES = {"tuner", "graph", "code"}  # tested by themselves


def changed(base: dict[str, Any], *changes: tuple[str, Any]) -> ResolvedCell:
    """A cell with some changes."""
    data = dict(base)
    for path, value in changes:
        *above, last = path.split(".")
        place = data
        for key in above:
            place[key] = dict(place.get(key, {}))
            place = place[key]
        place[last] = value
    return ready(data)


def ready(data: dict[str, Any]) -> ResolvedCell:
    (cell,) = expand_all(Source("test.yaml", {"name": "test", **data})).cells
    return resolve(cell)


def test_every_key_of_a_scenario_is_among_the_changes() -> None:
    told = {part for _, path, value in CHANGES for part in (*path.split("."), *keys(value))}
    for model in (Scenario, ClusterConfig, Workload, Nccl, LaunchCosts):
        left = set(model.model_fields) - told - NOT_ASKED - IN_FILES
        assert not left, f"{model.__name__}: no change of {left}"


def keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


@pytest.mark.slow
def test_no_cell_recalls_what_it_would_not_find_itself() -> None:
    outcome.OUTCOMES.clear()
    cells = [ready(HOSTS), ready(SWITCH), *(changed(base, change) for base, change in CHANGED)]
    expected = [simulate_size(cell, SIZE, engine="compiled")[0] for cell in cells]
    for _ in range(2):  # the second time all are recalled, if any may be
        for cell, row in zip(cells, expected, strict=True):
            assert row_of_size(cell, SIZE, engine="compiled") == row, cell.cell.source.data


@pytest.mark.slow
@given(st.data())
@settings(max_examples=20, deadline=None)
def test_nor_with_two_changes_after_one_of_them(data: st.DataObject) -> None:
    outcome.OUTCOMES.clear()
    mine = [(path, value) for base, path, value in CHANGES if base is HOSTS and "." in path]
    one, other = data.draw(st.sampled_from(mine)), data.draw(st.sampled_from(mine))
    for changes in ([], [one], [other], [one, other]):
        try:
            cell = changed(HOSTS, *changes)
            expected = simulate_size(cell, SIZE, engine="compiled")[0]
        except NetsimError:  # they do not fit together
            continue
        assert row_of_size(cell, SIZE, engine="compiled") == expected, changes


SWEEP: dict[str, Any] = {
    "cluster": {"machine": "dgx-h100"},
    "workload": {"collective": "all_reduce", "sizes": ["64KiB", "4MiB"]},
    "sweep": {
        "nccl.version": ["2.20", "2.21", "2.27"],
        "workload.algorithm": ["auto", "Ring", "ring"],
        "launch": ["process_per_gpu", "single_process", "cuda_graph"],
    },
}


def swept(monkeypatch: pytest.MonkeyPatch, *, forgetful: bool) -> tuple[str, int]:
    """The CSV of a sweep, and how many sizes were simulated."""
    runs: list[int] = []
    timings = outcome._timings

    def counted(resolved: ResolvedCell, size: int, *how: Any) -> object:
        runs.append(size)
        return timings(resolved, size, *how)

    outcome.OUTCOMES.clear()
    with monkeypatch.context() as patch:
        patch.setattr(outcome, "_timings", counted)
        expansion, rows = expand_all(Source("test.yaml", {"name": "test", **SWEEP})), list[Row]()
        for cell in expansion.cells:
            if forgetful:
                outcome.OUTCOMES.clear()
            resolved = resolve(cell)
            rows += [row_of_size(resolved, size) for size in (1 << 16, 1 << 22)]
    return csv_text(rows, expansion.sweep.names), len(runs)


@pytest.mark.slow
def test_a_sweep_is_the_same_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory, few = swept(monkeypatch, forgetful=False)
    without, all_of_them = swept(monkeypatch, forgetful=True)
    assert with_memory == without
    assert all_of_them == 54
    # The textbook's ring knows no versions, forced rings are those that small sizes run anyway,
    # and 2.20 and 2.21 plan alike.
    assert few <= 24


def test_every_part_of_a_plan_tells_calls_apart() -> None:
    assert set(outcome.STANDING) <= {f.name for f in fields(Plan)}
    plan = Plan("Ring", "Simple", (0, 0), rings=[(0, 1)])
    seen = [outcome.plan_key(plan)]
    other = {
        "algorithm": "Tree", "protocol": "LL", "node": (0, 1), "work": (1,), "rings": [(1, 0)],
        "trees": (1,), "heads": ((1,),), "chains": (((1,),),), "nic_routes": ("a",), "transfers": 1,
        "mechanism": 1, "link": "pcie", "links": {(0, 1): "shm"}, "routes": {(0, 0, 1): "pxn"},
        "direct": True, "registered": True, "slots": 4, "slot_bytes": 9, "far": "pxn",
        "n_channels": 3, "cached": True, "crowded": True,
    }  # fmt: skip
    assert set(other) == {f.name for f in fields(Plan) if f.compare}
    for name, value in other.items():
        changed = replace(plan, memo=Memo(), **{name: value})  # type: ignore[arg-type]
        found = outcome.plan_key(changed)
        assert found not in seen, name
        seen.append(found)
    assert outcome.plan_key(replace(plan, memo=Memo())) == seen[0]


def test_very_many_ranks_are_not_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = ready(HOSTS)
    assert outcome.key_of(cell, SIZE, "auto") is not None
    monkeypatch.setattr(outcome, "MOST_RANKS", 7)
    assert outcome.key_of(cell, SIZE, "auto") is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(VALUES, VALUES)
def test_what_is_spelled_alike_is_equal(one: object, other: object) -> None:
    assert spelled(one) == spelled(one)
    if spelled(one) == spelled(other):
        assert one == other


def test_arrays_are_spelled_in_full() -> None:
    long = np.zeros(5000)
    other = long.copy()
    other[2500] = 1.0
    assert digest(long) == digest(np.zeros(5000))
    assert len({digest(x) for x in (long, other, long.astype(int), long.reshape(50, 100))}) == 4
    assert spelled({2, 1}) == spelled({1, 2}) != spelled({1, 3})


def test_what_has_no_value_is_not_spelled() -> None:
    with pytest.raises(TypeError, match="function has no text"):
        spelled([1, lambda: 2])


def test_in_place_is_asked_of_all_but_what_nccl_moves_alike(monkeypatch) -> None:
    asked: list[str] = []

    def are_same(task: Any, in_place: Any, budget: Any) -> bool:
        asked.append(in_place.collective.name)
        return True

    monkeypatch.setattr(outcome, "are_same", are_same)
    switch = "{graph: {kind: switch, gpus: 4, bandwidth: 50GB/s}}"
    host, ring = "{machine: h100-x4}", "all_reduce, algorithm: ring"
    for cluster, work in [(host, "all_reduce"), (host, "all_gather"), (switch, ring)]:
        text = f"cluster: {cluster}\nworkload: {{collective: {work}, sizes: [64KiB]}}\n"
        simulate_size(resolve(expand_all(parse_source(text, "x.yaml")).cells[0]), 65536)
    assert asked == ["all_gather", "all_reduce"]


@pytest.mark.parametrize(("turns", "folds"), [(1, True), (2, False)])
def test_what_has_two_ways_from_message_to_message_is_not_folded(turns: int, folds: bool) -> None:
    scenario = SimpleNamespace(noise=None, timed=False, fold="auto")
    topology = SimpleNamespace(router=SimpleNamespace(queue_pairs_in_turn=turns, by_load=False))
    assert may_fold(scenario, topology) is folds
