"""Sensitivities of whole scenarios: the critical path against simulating again, and the program
that is scaled against the scenario file with another figure.
"""

from functools import cache
from typing import Any

import pytest

from netsim.cli.explain_text import explain_lines
from netsim.explain.what_if import ParameterAnswer
from netsim.scenario.cells import expand
from netsim.tasks.explained import explained_run
from netsim.tasks.resolve import resolve
from netsim.yamlio.read import parse_source

SCENES = {
    "ring": """
cluster: {machine: dgx-h100, nodes: 2, gpus_per_node: 4, nic: 400Gbps}
workload: {collective: all_reduce, algorithm: Ring, protocol: Simple, sizes: [16MiB]}
launch: {host: 2us, kernel: 3us}
""",
    "ring-ll": """
cluster: {machine: dgx-a100, nodes: 2, gpus_per_node: 4}
workload: {collective: all_reduce, algorithm: Ring, protocol: LL, sizes: [64KiB]}
""",
    "cards": """
cluster: {machine: rtx4090-x8}
workload: {collective: all_reduce, sizes: [2MiB]}
""",
    "across-sockets": """
cluster: {machine: l40s-pcie-x8, nodes: 2}
workload: {collective: reduce_scatter, sizes: [4MiB]}
""",
    "torus": """
cluster: {graph: {kind: torus, dims: [4, 4], bandwidth: 50GB/s, latency: 1us}}
workload: {collective: alltoall, algorithm: linear-shift, sizes: [4MiB]}
""",
    "dragonfly": """
cluster: {machine: dgx-a100, nodes: 8, gpus_per_node: 1, fabric: {kind: dragonfly}}
workload: {collective: all_gather, algorithm: ring, sizes: [4MiB]}
""",
    "switch": """
cluster: {graph: {kind: switch, gpus: 8, bandwidth: 100GB/s, latency: 500ns}}
workload: {collective: all_reduce, algorithm: halving-doubling, sizes: [1MiB]}
""",
    "hierarchical": """
cluster: {machine: dgx-a100, nodes: 2}
workload: {collective: all_reduce, algorithm: hierarchical, sizes: [4MiB]}
""",
    # Of these, several paths are nearly as long as the critical one, or rows share by turns.
    "tree": """
cluster: {machine: dgx-a100, nodes: 4, gpus_per_node: 2}
workload: {collective: all_reduce, algorithm: Tree, protocol: LL128, sizes: [1MiB]}
""",
    "nvls": """
cluster: {machine: dgx-h100}
workload: {collective: all_reduce, algorithm: NVLS, sizes: [4MiB]}
""",
    "nvls-tree": """
cluster: {machine: dgx-h100, nodes: 2}
workload: {collective: all_reduce, algorithm: NVLSTree, sizes: [4MiB]}
""",
    "two-to-one": """
cluster:
  machine: dgx-h100
  nodes: 4
  gpus_per_node: 2
  fabric: {kind: leaf-spine, oversubscription: 2, nodes_per_leaf: 2, nic: 400Gbps, link: 400Gbps}
workload: {collective: alltoall, sizes: [4MiB]}
""",
    "two-hops": """
cluster:
  machine: dgx-h100
  nodes: 2
  gpus_per_node: 1
  fabric: {kind: single-switch, latency: 500ns}
workload: {collective: all_reduce, algorithm: Ring, protocol: LL, sizes: [64KiB]}
""",
    "both-ways": """
cluster:
  machine: v100-pcie-x4
  overrides: [{machine: {pcie: {bandwidth: 12.0GB/s}}}]
workload: {collective: reduce_scatter, algorithm: Ring, protocol: Simple, sizes: [4MiB]}
""",
}
PLAIN = list(SCENES)[:8]  # one path is the longest by far, so that it tells the slopes


@cache
def found(name: str) -> dict[str, Any]:
    return explain_text(SCENES[name])


def explain_text(text: str, most_rows: int = 10**9) -> dict[str, Any]:
    cell = resolve(expand(parse_source(text, "scene.yaml"))[0])
    return explained_run(cell, max(cell.cell.scenario.collective.size_list()), most_rows=most_rows)[
        0
    ]


@pytest.mark.sample(7)
@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_the_split_adds_up_to_the_time(name: str) -> None:
    values = found(name)
    assert sum(values["causes_us"].values()) == pytest.approx(values["time_us"], rel=1e-9)
    assert min(values["causes_us"].values()) >= 0
    assert values["path"][-1]["end_us"] <= values["time_us"] * (1 + 1e-9)
    parts = sum(one["on_path_us"] for one in values["parameters"])
    assert parts >= values["time_us"] * (1 - 1e-9)  # three kinds that are full alike count thrice
    assert min(values["slack_us"]["by_gpu"].values()) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", PLAIN)
def test_the_path_tells_the_slopes_that_simulating_again_shows(name: str) -> None:
    values = found(name)
    assert values["confirmed"] == len(values["parameters"])
    for one in values["parameters"]:
        near = pytest.approx(
            one["per_percent_simulated_us"], rel=0.05, abs=1e-5 * values["time_us"]
        )
        assert one["per_percent_us"] == near, one["parameter"]


@pytest.mark.parametrize("name", SCENES)
def test_better_is_never_after_worse_for_what_matters(name: str) -> None:
    """Sharing has anomalies of a few percent; what matters most has none of that size."""
    values = found(name)
    most = max(values["parameters"], key=lambda one: abs(one["per_percent_simulated_us"]))
    assert most["better_10pct_us"] < most["worse_10pct_us"]
    assert most["infinitely_fast_us"] < values["time_us"]


OTHERS = [
    ("ring", "nic: 400Gbps", "nic: {}Gbps", 400, "nic.rate"),
    ("ring", "kernel: 3us", "kernel: {}us", None, "launch"),
    ("torus", "bandwidth: 50GB/s", "bandwidth: {}GB/s", 50, "fabric.rate"),
    ("torus", "latency: 1us", "latency: {}us", 1, "fabric.latency"),
    ("switch", "bandwidth: 100GB/s", "bandwidth: {}GB/s", 100, "fabric.rate"),
    ("switch", "latency: 500ns", "latency: {}ns", 500, "fabric.latency"),
    ("two-to-one", "link: 400Gbps", "link: {}Gbps", 400, "fabric.rate"),
    # The only switch is a hop, and both ways together follow from the rate of a PCIe link.
    ("two-hops", "latency: 500ns", "latency: {}ns", 500, "fabric.latency"),
    ("both-ways", "bandwidth: 12.0GB/s", "bandwidth: {}GB/s", 12, "pcie.rate"),
]


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "old", "new", "value", "key"), OTHERS)
def test_a_scaled_program_is_that_of_the_scenario_with_another_figure(
    name: str, old: str, new: str, value: float | None, key: str
) -> None:
    assert old in SCENES[name]
    one = next(p for p in found(name)["parameters"] if p["parameter"] == key)
    rate = key.endswith(".rate")

    def time(factor: float) -> float:
        text = SCENES[name].replace(old, new.format(round(value * factor, 9)))
        return float(explain_text(text, most_rows=0)["time_us"])

    if value is None:  # host 2 us and kernel 3 us, both a tenth less
        text = SCENES[name].replace("host: 2us, kernel: 3us", "host: 1.8us, kernel: 2.7us")
        assert one["better_10pct_us"] == pytest.approx(explain_text(text, 0)["time_us"], rel=1e-9)
        return
    for factor, word in ((1.1, "better"), (0.9, "worse")):
        changed = time(factor if rate else 2 - factor)
        assert one[f"{word}_10pct_us"] == pytest.approx(changed, rel=1e-6), word
    ideal = time(1e6 if rate else 1e-9)
    assert one["infinitely_fast_us"] == pytest.approx(ideal, rel=1e-4)


ANOMALOUS = """
cluster: {machine: dgx-h100, nodes: 2}
workload: {collective: alltoall, algorithm: linear-shift, sizes: [4MiB]}
"""


def test_where_sharing_has_anomalies_no_slope_is_offered() -> None:
    """Nobody waits for anybody in a linear shift: NVLink without limit lets convoys form."""
    values = explain_text(ANOMALOUS)
    by_key = {one["parameter"]: one for one in values["parameters"]}
    assert by_key["nvlink.rate"]["infinitely_fast_us"] > 1.5 * values["time_us"]
    assert by_key["nvlink.rate"]["anomalous"]
    lines = list(explain_lines(values, "an alltoall"))
    assert any(line.lstrip().startswith("NVLink rate") and line.endswith("!") for line in lines)
    assert any("(! an anomaly of sharing" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_plain_scenes_have_no_anomalies(name: str) -> None:
    assert not any(one["anomalous"] for one in found(name)["parameters"])


USUAL = {"better": 0.995, "worse": 1.005, "swing": (0.95, 1.05), "ideal": 0.5}


@pytest.mark.parametrize(
    ("changed", "anomalous"),
    [
        ({}, False),
        ({"better": 1.002, "worse": 1.003}, True),
        ({"swing": (1.002, 1.05)}, True),
        ({"ideal": 1.002}, True),
        ({"better": 0.9985, "worse": 0.998}, True),
        ({"swing": (0.95, 0.998)}, True),
        ({"better": 0.98}, True),
        ({"swing": (0.95, 1.13)}, True),
        ({"worse": None}, False),
        ({"better": 1.0005, "worse": 0.9995, "ideal": 1.0005}, False),
    ],
)
def test_what_no_single_path_answers_is_an_anomaly(changed: dict, anomalous: bool) -> None:
    answer = ParameterAnswer(None, 0.5, **USUAL | changed)  # type: ignore[arg-type]
    assert answer.anomalous(1.0) is anomalous
