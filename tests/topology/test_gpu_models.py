"""GPUs that no preset has: imported hosts have their figures, and names mean what they say."""

import pytest

from netsim.base.errors import InputError
from netsim.topology.foreign.nccl import MODELS, BoxShape, machine_like
from netsim.topology.foreign.smi import read_smi

CELLS = [["X", "NV4", "SYS", "SYS"], ["NV4", "X", "SYS", "SYS"]]
CELLS += [["SYS", "SYS", "X", "NV4"], ["SYS", "SYS", "NV4", "X"]]
ROWS = [["", *(f"GPU{n}" for n in range(4))], *([f"GPU{n}", *row] for n, row in enumerate(CELLS))]
PAIRS = "".join("\t".join(row) + "\n" for row in ROWS)
NOTHING = BoxShape(8, ("nothing", 0))


@pytest.mark.parametrize(
    ("asked", "model"),
    [
        ("A10", "A10 24GB"),
        ("A40", "A40 48GB"),
        ("A6000", "RTX A6000 48GB"),
        ("L40", "L40 48GB"),
        ("l40s", "L40S 48GB"),
        ("NVIDIA H100 NVL", "H100 NVL 94GB"),
        ("RTX4090", "GeForce RTX 4090 24GB"),
        ("P100", "P100 SXM2 16GB"),
        ("T4", "T4 16GB"),
    ],
)
def test_a_name_means_the_model_that_bears_it(asked: str, model: str) -> None:
    assert machine_like(asked, NOTHING).gpu.model == model


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_found_by_its_own_name(name: str) -> None:
    machine = machine_like(name, NOTHING)
    assert (machine.gpu.model, machine.gpu.sms) == (name, MODELS[name].sms)
    assert machine.gpu.memory == MODELS[name].memory * 10**9
    assert machine.p2p == MODELS[name].p2p


def test_pairs_of_a40_have_nvlinks_of_their_generation() -> None:
    machine = read_smi(PAIRS, "a40.txt", "A40")
    assert machine.scale_up is not None
    assert machine.scale_up.peers == ((0, 1, 4), (2, 3, 4))
    assert machine.scale_up.link_bandwidth == 12e9
    assert machine.gpu.memory_bandwidth == 696e9


def test_a_compute_capability_without_preset_is_that_of_a_known_model() -> None:
    machine = machine_like("", BoxShape(8, ("peers", 4)), sm=60)
    assert (machine.gpu.model, machine.gpu.sm) == ("P100 SXM2 16GB", 60)
    assert machine.scale_up is not None
    assert machine.scale_up.link_bandwidth == 18e9


def test_an_unknown_name_is_told_what_is_known() -> None:
    with pytest.raises(InputError, match=r"unknown GPU 'A41'.*; known: .*A40 48GB"):
        machine_like("A41", NOTHING)
