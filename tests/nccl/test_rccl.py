"""RCCL's rings over full meshes."""

from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace

import pytest

from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.nccl.node import COPIES, over_all_links, rings_of_mesh
from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from tests.cli.test_expect import netsim
from tests.nccl.nccl_nodes import searched_communicator


@pytest.mark.parametrize("gpus", [3, 5, 7, 8, 9])
def test_rings_use_every_link_of_a_mesh_once_in_each_direction(gpus: int) -> None:
    rings = rings_of_mesh(gpus)
    hops = [hop for ring in rings for hop in zip(ring, (*ring[1:], ring[0]), strict=True)]
    assert sorted(hops) == sorted(permutations(range(gpus), 2))
    assert all(sorted(ring) == list(range(gpus)) for ring in rings)


@pytest.mark.parametrize("gpus", [4, 6])
def test_meshes_of_four_and_six_have_no_such_rings(gpus: int) -> None:
    assert rings_of_mesh(gpus) == ()


@pytest.mark.parametrize("gpus", [2, 3, 5])
def test_meshes_of_three_and_more_take_the_place_of_what_was_found(gpus: int) -> None:
    links = [SimpleNamespace(target=other) for other in range(gpus - 1)]
    mesh = [SimpleNamespace(gcn="gfx942", rank=rank, nvlinks=links) for rank in range(gpus)]
    found = replace(searched_communicator("h100_8nic", 1).ring, n_channels=1)
    used = over_all_links(SimpleNamespace(gpus=lambda: mesh), found)
    if gpus < 3:
        assert used is found
    else:
        assert used.n_channels == COPIES * (gpus - 1)
        assert used.n_channels * used.bw_intra == (gpus - 1) * found.bw_intra


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "channels"), [(8, 56), (4, None)])
def test_amd_meshes_of_eight_run_on_all_links(capsys, gpus: int, channels: int | None) -> None:
    options = ["--gpus-per-node", str(gpus), "--sizes", "64M", "--format", "csv"]
    row = netsim(capsys, "expect", "mi300x", "all_reduce", *options).out.splitlines()[1]
    used = int(row.split(",")[10])
    assert used == channels if channels else used < 56


def test_blocks_of_rccl_have_256_threads():
    """So that twice as many channels share a call: measured times stay flat from 8 to 128 KiB."""
    asked_for = QuestionOptions(sizes="32K,128K,1M")
    ready = resolve(expand(source_of_question("mi300x", "all_reduce", asked_for).source)[0])
    plans = [ready.planned(size) for size in (32768, 131072, 2**20)]
    assert [plan.n_channels for plan in plans if plan] == [2, 8, 52]
    assert ready.jobs[0].mechanism.grain.ll == 2048
