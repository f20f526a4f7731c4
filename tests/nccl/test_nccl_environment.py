"""NCCL's variables: what they mean, what they refuse, and what they change in search and choice."""

import re
from functools import lru_cache

import pytest

from netsim.base.errors import InputError
from netsim.nccl.environment import (
    EFFECTS,
    KNOWN_VARIABLES,
    NO_SETTINGS,
    READERS,
    WITHOUT_EFFECT,
    Settings,
    known_and_unknown,
    nic_names,
    settings_from,
    without_effect,
)
from netsim.nccl.facts import FUNCTIONS, NEWEST, Version
from netsim.nccl.node import communicator, search_node
from netsim.nccl.tuning import TunedCall, choose, cost_entry, timed_costs
from tests.environment_table import PAGE, page
from tests.nccl.nccl_nodes import node_of, system_of

KIB, MIB, GIB = 2**10, 2**20, 2**30


def test_nothing_set_is_nothing_asked():
    assert settings_from({}) == NO_SETTINGS
    assert settings_from({"NCCL_ALGO": " ", "NCCL_DEBUG": "INFO"}) == NO_SETTINGS


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("NCCL_MIN_NCHANNELS", "16", "min_channels", 16),
        ("NCCL_MAX_CTAS", "0x8", "max_channels", 8),
        ("NCCL_NVLS_ENABLE", "0", "nvls", 0),
        ("NCCL_COLLNET_ENABLE", "1", "collnet", True),
        ("NCCL_P2P_LEVEL", "sys", "p2p_level", "SYS"),
        ("NCCL_P2P_LEVEL", "3", "p2p_level", "PHB"),
        ("NCCL_NET", "socket", "sockets", True),
        ("NCCL_NET_OVERHEAD", "1500", "net_overhead_us", 1.5),
        ("NCCL_NETDEVS_POLICY", "all", "nics_policy", "ALL"),
        ("NCCL_IB_QPS_PER_CONNECTION", "4", "qps", 4),
        ("NCCL_CROSS_NIC", "1", "cross_nic", 1),
    ],
)
def test_values(name, text, field, value):
    assert settings_from({name: text}) == Settings(**{field: value})


def test_values_that_share_a_field():
    found = settings_from({"NCCL_BUFFSIZE": "1048576", "NCCL_LL_BUFFSIZE": "65536"})
    assert found.buffer_bytes == {"Simple": MIB, "LL": 64 * KIB}
    found = settings_from({"NCCL_NETDEVS_POLICY": "MAX:2"})
    assert (found.nics_policy, found.nics_at_most) == ("MAX", 2)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"NCCL_ALG": "ring"}, "NCCL_ALG is no NCCL variable (did you mean NCCL_ALGO?)"),
        ({"FOO": "1"}, "FOO is no NCCL variable"),
        (
            {"NCCL_BUFFSIZE": "2147483649"},
            "NCCL_BUFFSIZE: expected a whole number from 1 to 2147483648, got '2147483649'",
        ),
        (
            {"NCCL_ALGO": "ring,tre"},
            "NCCL_ALGO: expected one of Tree, Ring, CollNetDirect, CollNetChain, NVLS, NVLSTree, "
            "PAT, got 'tre' (did you mean Tree?)",
        ),
        (
            {"NCCL_ALGO": "ring;tree"},
            "NCCL_ALGO: only the first list may be without a function, got 'tree'",
        ),
        (
            {"NCCL_ALGO": "allreduse:tree"},
            "NCCL_ALGO: 'allreduse' is no function of NCCL (did you mean AllReduce?)",
        ),
        ({"NCCL_PROTO": "LL,"}, "NCCL_PROTO: expected one of LL, LL128, Simple, got ''"),
        (
            {"NCCL_MIN_NCHANNELS": "many"},
            "NCCL_MIN_NCHANNELS: expected a whole number from 1 to 64, got 'many'",
        ),
        (
            {"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "8"},
            "NCCL_MIN_NCHANNELS 16 is larger than NCCL_MAX_NCHANNELS 8",
        ),
        ({"NCCL_NTHREADS": "100"}, "NCCL_NTHREADS: expected a multiple of 32, got '100'"),
        (
            {"NCCL_IB_HCA": "mlx5_0:x"},
            "NCCL_IB_HCA: expected names such as mlx5_0,mlx5_1 or mlx5_0:1, after ^ or =, "
            "got 'mlx5_0:x'",
        ),
        ({"NCCL_CROSS_NIC": "3"}, "NCCL_CROSS_NIC: expected a whole number from 0 to 2, got '3'"),
        (
            {"NCCL_P2P_LEVEL": "PCI"},
            "NCCL_P2P_LEVEL: expected one of LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS or "
            "0 to 5, got 'PCI' (did you mean PIX?)",
        ),
        (
            {"NCCL_NETDEVS_POLICY": "MAX"},
            "NCCL_NETDEVS_POLICY: expected AUTO, ALL or MAX:<number>, got 'MAX'",
        ),
        (
            {"NCCL_PROTO": "collnet"},  # an older name of an algorithm
            "NCCL_PROTO: expected one of LL, LL128, Simple, got 'collnet'",
        ),
    ],
)
def test_what_nccl_would_refuse(variables, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        settings_from(variables)


def test_process_environments_are_warned_about():
    known, warnings = known_and_unknown(
        {"PATH": "/bin", "NCCL_DEBUG": "INFO", "NCCL_MAX_NCHANELS": "4", "NCCL_FASTRAK_X": "1"}
    )
    assert known == {"NCCL_DEBUG": "INFO", "NCCL_FASTRAK_X": "1"}
    assert warnings == ("NCCL_MAX_NCHANELS is no NCCL variable (did you mean NCCL_MAX_NCHANNELS?)",)
    assert list(without_effect(known)) == ["NCCL_DEBUG", "NCCL_FASTRAK_X"]
    assert without_effect({"NCCL_ALGO": "Ring", "NCCL_SHM_LOCALITY": "1"}) == {
        "NCCL_SHM_LOCALITY": "the data crosses host memory once on either side"
    }


def test_every_variable_is_known_and_either_read_or_explained():
    assert set(EFFECTS) | set(WITHOUT_EFFECT) <= KNOWN_VARIABLES
    assert not set(EFFECTS) & set(WITHOUT_EFFECT)
    assert set(READERS) <= set(EFFECTS) | set(WITHOUT_EFFECT)
    read = {name for name, (field, _) in READERS.items() if field}
    elsewhere = {"NCCL_TUNER_CONFIG_FILE", "NCCL_GRAPH_FILE", "NCCL_TESTS_SPLIT"}
    assert set(EFFECTS) - elsewhere == read


def test_names_of_nics():
    every = nic_names("mlx5")
    assert every.admit("mlx5_0", 1)
    some = nic_names("^=mlx5_1,mlx5_2:2")
    admitted = [some.admit(f"mlx5_{nic}", port) for nic, port in [(0, 1), (1, 1), (2, 1), (2, 2)]]
    assert admitted == [True, False, True, False]
    assert nic_names("mlx5_1").admit("mlx5_10", 1)
    assert not nic_names("=mlx5_1").admit("mlx5_10", 1)


def test_lists():
    found = settings_from({"NCCL_ALGO": "Ring,TREE"}).algorithms
    assert found == dict.fromkeys(FUNCTIONS, ("Tree", "Ring"))
    found = settings_from({"NCCL_ALGO": "ring,tree;allreduce:tree;broadcast:ring"}).algorithms
    assert found["AllReduce"] == ("Tree",)
    assert found["Broadcast"] == ("Ring",)
    assert found["Reduce"] == ("Tree", "Ring")
    assert settings_from({"NCCL_ALGO": "allreduce:^nvls,nvlstree"}).algorithms == {
        "AllReduce": ("Tree", "Ring", "CollNetDirect", "CollNetChain", "PAT")
    }
    assert settings_from({"NCCL_PROTO": "^LL128"}).protocols["Reduce"] == ("LL", "Simple")


def test_lists_of_older_versions():
    old = Version(2, 20)
    with pytest.raises(InputError, match="lists by function need NCCL"):
        settings_from({"NCCL_ALGO": "allreduce:tree"}, old)
    with pytest.raises(InputError, match="this NCCL version has no PAT"):
        settings_from({"NCCL_ALGO": "PAT"}, old)


@lru_cache
def node_with(config: str, networked: bool, version: Version, *variables: tuple[str, str]):
    if not variables and version == NEWEST:
        return node_of(config, networked=networked)
    settings = settings_from(dict(variables), version)
    return search_node(system_of(config), networked=networked, version=version, settings=settings)


def comm_with(config: str, nodes: int, version: Version = NEWEST, **variables: str):
    """A communicator whose settings differ where variables say so; choice lists cost no search."""
    settings = settings_from(variables, version)
    searched = {k: v for k, v in variables.items() if k not in ("NCCL_ALGO", "NCCL_PROTO")}
    node = node_with(config, nodes > 1, version, *searched.items())
    return communicator(node, nodes, version=version, settings=settings)


def test_cross_nic_0_keeps_rings_on_their_rail():
    comm = comm_with("h100_8nic", 4, NCCL_CROSS_NIC="0")
    assert (comm.ring.n_channels, comm.ring.bw_inter, comm.ring.type_inter) == (8, 45, "PXN")
    assert (comm.tree.n_channels, comm.tree.bw_inter, comm.tree.pattern) == (8, 48, 3)
    assert (comm.nvls.bw_intra, comm.nvls.bw_inter, comm.n_channels) == (40, 48, 16)


def test_pxn_disable_reaches_far_ports_by_the_cpu():
    assert comm_with("a100_8nic", 2).ring.type_inter == "PXN"
    assert comm_with("a100_8nic", 2, NCCL_PXN_DISABLE="1").ring.type_inter in ("PIX", "PHB", "SYS")


def test_channel_limits():
    assert comm_with("h100_8nic", 1, NCCL_MAX_NCHANNELS="8").n_channels == 8
    assert comm_with("h100_8nic", 1, NCCL_MIN_CTAS="32").n_channels == 32
    assert comm_with("h100_8nic", 1, NCCL_MAX_NCHANNELS="8").nvls_channels == 8


def test_p2p_level_opens_pcie():
    closed = comm_with("l40s8sw", 1).ring
    opened = comm_with("l40s8sw", 1, NCCL_P2P_LEVEL="SYS").ring
    assert closed.type_intra == opened.type_intra == "SYS"
    shut = comm_with("h100_8nic", 1, NCCL_P2P_DISABLE="1").ring
    assert shut.type_intra == "SYS"


def test_nvls_can_be_switched_off():
    comm = comm_with("h100_8nic", 1, NCCL_NVLS_ENABLE="0")
    assert comm.nvls is None
    assert choose(comm, TunedCall("AllReduce", GIB)).algorithm == "Ring"
    cost = cost_entry(comm, "AllReduce", "NVLS", "Simple")
    assert cost.disabled == "NVLink SHARP is off (NCCL_NVLS_ENABLE)"


def test_forced_algorithms_and_protocols():
    comm = comm_with("h100_8nic", 4, NCCL_ALGO="tree", NCCL_PROTO="simple")
    choice = choose(comm, TunedCall("AllReduce", GIB))
    assert (choice.algorithm, choice.protocol) == ("Tree", "Simple")


def test_an_impossible_choice_is_refused_with_the_rule():
    comm = comm_with("h100_8nic", 1, NCCL_ALGO="NVLSTree")
    with pytest.raises(InputError) as error:
        choose(comm, TunedCall("AllReduce", GIB))
    assert str(error.value) == (
        "no algorithm available for AllReduce (NVLSTree needs at least 2 nodes)"
    )
    with pytest.raises(InputError, match="Tree exists for AllReduce only"):
        choose(comm_with("h100_8nic", 1, NCCL_ALGO="tree"), TunedCall("AllGather", GIB))


def test_before_2_24_an_impossible_choice_fell_back_to_rings():
    comm = comm_with("h100_8nic", 1, Version(2, 20), NCCL_ALGO="nvlstree")
    assert choose(comm, TunedCall("AllReduce", GIB)).algorithm == "Ring"
    old = comm_with("a100_8nic", 1, Version(2, 12), NCCL_ALGO="tree")
    assert choose(old, TunedCall("AllGather", GIB)).algorithm == "Ring"
    assert choose(old, TunedCall("AllReduce", GIB)).algorithm == "Tree"


def test_forcing_ll128_passes_over_its_rules():
    comm = comm_with("l40s8sw", 1)
    assert cost_entry(comm, "AllReduce", "Ring", "LL128").disabled == (
        "LL128 inside a node needs paths up to NVB, found SYS"
    )
    forced = comm_with("l40s8sw", 1, NCCL_PROTO="LL128")
    assert choose(forced, TunedCall("AllReduce", MIB)).protocol == "LL128"


def test_every_disabled_entry_says_why():
    for config, nodes in (("h100_8nic", 4), ("a100_8nic", 1), ("l40s8sw", 2)):
        comm = comm_with(config, nodes)
        for entry in timed_costs(comm, TunedCall("AllGather", MIB)):
            assert (entry.time_us is None) == bool(entry.disabled)


def test_data_types_that_the_switch_cannot_reduce():
    comm = comm_with("h100_8nic", 1)
    assert choose(comm, TunedCall("AllReduce", GIB)).algorithm == "NVLS"
    assert choose(comm, TunedCall("AllReduce", GIB, "bfloat16")).algorithm == "NVLS"
    assert choose(comm, TunedCall("AllReduce", GIB, "int8")).algorithm == "Ring"


def test_collnet_is_off_until_asked_for():
    comm = comm_with("h100_8nic", 4)
    rule = cost_entry(comm, "AllReduce", "CollNetChain", "Simple").disabled
    assert rule == "collective networks are off (NCCL_COLLNET_ENABLE)"
    asked = comm_with("h100_8nic", 4, NCCL_COLLNET_ENABLE="1")
    rule = cost_entry(asked, "AllReduce", "CollNetChain", "Simple").disabled
    assert rule == "the switches of the network do not reduce (cluster.fabric.sharp)"


def test_pat_needs_one_gpu_a_node():
    system = system_of("h100_1nic")
    node = search_node(system, networked=True, devices=[0])
    comm = communicator(node, 8)
    assert cost_entry(comm, "AllGather", "PAT", "Simple").disabled == ""
    assert choose(comm, TunedCall("AllGather", 8 * KIB)).algorithm in ("PAT", "Ring")
    full = comm_with("h100_1nic", 8)
    assert cost_entry(full, "AllGather", "PAT", "Simple").disabled == (
        "PAT needs exactly one rank a node"
    )


def test_one_rank_needs_no_choice():
    node = search_node(system_of("h100_1nic"), networked=False, devices=[3])
    assert choose(communicator(node), TunedCall("AllReduce", MIB)).algorithm == "Ring"


def test_the_page_of_docs_is_what_the_package_says():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.environment_table"
