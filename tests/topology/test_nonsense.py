"""Figures that no cluster has are refused where they stand; files say what they are."""

import pytest
from pydantic import ValidationError

from netsim.base.errors import InputError
from netsim.cli.files import check_file
from netsim.topology.config import MOST_NICS_A_GPU, Override, check_gpus, check_nics, loaded
from netsim.yamlio.models import FieldError

CLUSTER = "cluster:\n  machine: dgx-h100\n  nodes: 4\n  {}\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nics_per_node: 99", "x.yaml:4:18: cluster.nics_per_node: expected at most 32 (4 a GPU)"),
        ("fabric: {kind: leaf-spine, oversubscription: 0.5}", "expected at least 1, got 0.5"),
        ("fabric: {kind: rail-only, oversubscription: '1:2'}", "expected at least 1, got '1:2'"),
        ("faults: [{link: node0.nic0-leaf0, bandwidth: 200%}]", "at most 100%, got '200%'"),
        ("faults: [{link: node0.nic0-leaf0, bandwidth: 800Gbps}]", "than the link has (50 GB/s)"),
        ("overrides: [{machine: {gpu: {arch: hopper}}}]", "such as sm_90 or gfx942, got 'hopper'"),
        ("overrides: [{machine: {cpu: {link: 3}}}]", "machine.cpu.link: expected a bandwidth"),
        ("overrides: [{machine: {gpu: {pcie: {width: 8}}}}]", "missing key 'generation'"),
    ],
)
def test_nonsense_is_refused(tmp_path, line, told):
    file = tmp_path / "x.yaml"
    file.write_text(CLUSTER.format(line))
    with pytest.raises(InputError) as caught:
        check_file(file)
    assert told in str(caught.value)
    assert "x.yaml:4:" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CLUSTER.format("nics_per_node: 4"), "a cluster of 4 hosts with 32 GPUs (no workload"),
        (
            CLUSTER.format("faults: [{link: node0.nic0-leaf0, bandwidth: 400Gbps}]"),
            "a cluster of 4 hosts",
        ),
        ("cluster: {graph: {kind: ring, gpus: 5, bandwidth: 1GB/s}}\n", "a graph with 5 GPUs"),
        (
            "cluster:\n  graph:\n    kind: inline\n    nodes: [{name: a}, {name: b}]\n"
            "    links: [{from: a, to: b, bandwidth: 1GB/s}]\n",
            "a graph with 2 GPUs",
        ),
        ("topology: [Ring]\nnpus_count: [4]\nbandwidth: [1]\nlatency: [1]\n", "a graph with 4"),
    ],
)
def test_files_without_a_workload_are_checked(tmp_path, text, found):
    file = tmp_path / "x.yaml"
    file.write_text(text)
    assert check_file(file).startswith(found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "cluster: {graph: {gpus: 8, bandwidth: 1GB/s}}\n",
            "x.yaml:1:18: cluster.graph: missing key 'kind' (one of switch, ring, full-mesh, "
            "torus), or nodes and links",
        ),
        ("cluster: {machine: dgx-h100}\nworkloda: 3\n", "did you mean workload?"),
        ("cluster: {graph: {kind: rign, gpus: 4}}\n", "did you mean ring?"),
    ],
)
def test_what_is_missing_is_told(tmp_path, text, told):
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        check_file(file)
    assert told in str(caught.value)


def test_figures_of_hosts_are_taken_up_to_the_last_that_makes_sense() -> None:
    """At the edge: as many NICs and GPUs as there may be, and one more."""
    machine = loaded("dgx-h100").machine
    most = MOST_NICS_A_GPU * machine.gpu.count
    for count in (None, 1, most):
        check_nics(machine, count)
    with pytest.raises(FieldError, match=f"expected at most {most} .*, got {most + 1}"):
        check_nics(machine, most + 1)
    check_gpus(machine, 8, None)
    with pytest.raises(FieldError, match="the machine has 8 GPUs, got 9"):
        check_gpus(machine, 9, None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bandwidth": "1GB/s"}, "has no meaning without a link"),
        ({"latency": "1us", "node": 1}, "has no meaning without a link"),
        ({"link": "a-b"}, "a link needs bandwidth or latency"),
        ({"link": "a-b", "latency": "1us", "nics": [1]}, "has no meaning beside link"),
        ({"link": "a-b", "latency": "1us"}, ""),
        ({"node": [1, 2], "nics": [0]}, ""),
        ({}, ""),
    ],
)
def test_an_override_is_of_hosts_or_of_a_link(given: dict[str, object], told: str) -> None:
    if told:
        with pytest.raises(ValidationError, match=told):
            Override.model_validate(given)
        return
    made = Override.model_validate(given)
    assert [host for host in range(4) if made.applies(host)] == given.get("node", [0, 1, 2, 3])
