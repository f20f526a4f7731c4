"""Every NCCL variable that is said to have an effect has one, asked as a user would ask."""

import pytest

from netsim.nccl.environment import EFFECTS
from tests.cli.command import Outcome, netsim

A100, H100, PCIE = "dgx-a100", "dgx-h100", "l40s-pcie-x8"
TWO = ("--nodes", 2)
RING = ("--algo", "Ring", "--proto", "LL")
CROSSED = ("--env", "NCCL_CROSS_NIC=0")
SHARP = ("--set", "cluster.fabric={kind: leaf-spine, sharp: true}")
SHARED = (
    "--set",
    "cluster.fabric={kind: leaf-spine, nodes_per_leaf: 1, oversubscription: 2, transport: roce}",
)

FLAP = ("--set", 'cluster.faults=[{link: "node0.nic0-*", bandwidth: 0%, at: 5us, for: 2ms}]')

# Variable, value: the question that it changes.
TIMES: dict[tuple[str, str], tuple[object, ...]] = {
    ("NCCL_ALGO", "Tree"): (A100, "all_reduce", "1M"),
    ("NCCL_PROTO", "^LL"): (A100, "all_reduce", "1M"),
    ("NCCL_MIN_NCHANNELS", "32"): (A100, "all_reduce", "64M"),
    ("NCCL_MIN_NRINGS", "32"): (A100, "all_reduce", "64M"),
    ("NCCL_MIN_CTAS", "32"): (A100, "all_reduce", "64M"),
    ("NCCL_MAX_NCHANNELS", "4"): (A100, "all_reduce", "64M"),
    ("NCCL_MAX_NRINGS", "4"): (A100, "all_reduce", "64M"),
    ("NCCL_MAX_CTAS", "4"): (A100, "all_reduce", "64M"),
    ("NCCL_MIN_P2P_NCHANNELS", "64"): ("a10-pcie-x4", "alltoall", "64M"),
    ("NCCL_MAX_P2P_NCHANNELS", "2"): (A100, "sendrecv", "64M"),
    ("NCCL_NCHANNELS_PER_NET_PEER", "1"): (A100, "sendrecv", "64M", *TWO),
    ("NCCL_NVLS_ENABLE", "0"): (H100, "all_reduce", "64M"),
    ("NCCL_NVLS_NCHANNELS", "4"): (H100, "all_reduce", "64M"),
    ("NCCL_NVLS_CHUNKSIZE", "16384"): (H100, "all_reduce", "64M"),
    ("NCCL_NVLSTREE_MAX_CHUNKSIZE", "16384"): (H100, "all_reduce", "64M", *TWO),
    ("NCCL_MNNVL_ENABLE", "0"): ("gb200-nvl72", "all_reduce", "64M", *TWO),
    ("FI_CXI_RX_MATCH_MODE", "software"): ("a100-x4", "all_reduce", "1M", "--nodes", 4, *RING),
    ("FI_CXI_RDZV_PROTO", "alt_read"): ("a100-x4", "all_reduce", "1M", "--nodes", 4, *RING),
    ("NCCL_NTHREADS", "64"): (A100, "all_reduce", "64K"),
    ("NCCL_LL128_NTHREADS", "160"): (
        A100, "all_reduce", "64K", "--proto", "LL128", "--nccl", "2.20"),
    ("NCCL_BUFFSIZE", "65536"): (A100, "all_reduce", "64M"),
    ("NCCL_LL_BUFFSIZE", "65536"): (A100, "all_reduce", "4M", "--proto", "LL"),
    ("NCCL_LL128_BUFFSIZE", "614400"): (A100, "all_reduce", "16M", "--proto", "LL128"),
    ("NCCL_P2P_DISABLE", "1"): (A100, "all_reduce", "64M"),
    ("NCCL_P2P_LEVEL", "NVL"): (PCIE, "all_reduce", "64M"),
    ("NCCL_P2P_DIRECT_DISABLE", "1"): (
        A100, "all_gather", "64M", "--launch", "single_process", "--nccl", "2.22"),
    ("NCCL_NVB_DISABLE", "1"): ("dgx-1-v100", "alltoall", "64M"),
    ("NCCL_NET_GDR_LEVEL", "LOC"): (A100, "all_reduce", "64M", *TWO),
    ("NCCL_P2P_PXN_LEVEL", "0"): (A100, "alltoall", "64M", *TWO),
    ("NCCL_NET", "Socket"): (A100, "all_reduce", "64M", *TWO),
    ("NCCL_IB_DISABLE", "1"): (A100, "all_reduce", "64M", *TWO),
    ("NCCL_IB_HCA", "mlx5_0"): (A100, "all_reduce", "64M", *TWO),
    ("NCCL_SOCKET_IFNAME", "eth0"): (A100, "all_reduce", "64M", *TWO, "--transport", "tcp"),
    ("NCCL_IB_QPS_PER_CONNECTION", "8"): (A100, "all_reduce", "1M", "--nodes", 4, *SHARED),
    ("NCCL_IB_TIMEOUT", "14"): (H100, "all_reduce", "1M", *TWO, *FLAP),
    ("NCCL_IB_RETRY_CNT", "1"): (H100, "all_reduce", "1M", *TWO, *FLAP,
        "--env", "NCCL_IB_TIMEOUT=8"),
    ("NCCL_IB_SPLIT_DATA_ON_QPS", "1"): (A100, "all_reduce", "1M", "--nodes", 4, *SHARED,
        "--env", "NCCL_IB_QPS_PER_CONNECTION=4"),
    ("NCCL_P2P_SCHEDULE_GROUP_SIZE", "4"): (A100, "alltoall", "16M", *TWO),
    ("NCCL_P2P_LL_THRESHOLD", "0"): (A100, "sendrecv", "16K"),
    ("NCCL_ALLOC_P2P_NET_LL_BUFFERS", "1"): (A100, "sendrecv", "4K", *TWO),
    ("NCCL_P2P_NVL_CHUNKSIZE", "65536"): (A100, "sendrecv", "64M"),
    ("NCCL_P2P_NET_CHUNKSIZE", "32768"): (A100, "sendrecv", "16M", *TWO),
    ("NCCL_P2P_PCI_CHUNKSIZE", "32768"): (PCIE, "sendrecv", "16M"),
    ("NCCL_TESTS_SPLIT", "MOD 2"): (A100, "all_reduce", "1M"),
}  # fmt: skip
CHOICES: dict[tuple[str, str], tuple[object, ...]] = {
    ("NCCL_COLLNET_ENABLE", "1"): (H100, "all_reduce", "1M", *TWO, *SHARP),
    ("NCCL_COLLNET_NODE_THRESHOLD", "9"): (
        H100, "all_reduce", "1M", *TWO, *SHARP, "--env", "NCCL_COLLNET_ENABLE=1"),
    ("NCCL_PAT_ENABLE", "0"): (H100, "all_gather", "1M", *TWO, "--gpus-per-node", 1),
    ("NCCL_LL128_C2C", "0"): (H100, "all_reduce", "1M", *TWO, *CROSSED),
    ("NCCL_NET_OVERHEAD", "50000"): (H100, "all_reduce", "1M", *TWO),
    ("NCCL_NET_GDR_C2C", "0"): ("gh200-x4", "all_reduce", "1M", *TWO),
    ("NCCL_PXN_DISABLE", "1"): (H100, "all_reduce", "1M", *TWO, *CROSSED),
    ("NCCL_CROSS_NIC", "0"): (H100, "all_reduce", "1M", *TWO),
}  # fmt: skip
# Files and the ports of a GPU (test_nccl_ports) have tests of their own; refusals are below.
ELSEWHERE = {
    *("NCCL_TUNER_CONFIG_FILE", "NCCL_GRAPH_FILE", "NCCL_NETDEVS_POLICY", "NCCL_SHM_DISABLE")
}


def test_no_variable_is_forgotten() -> None:
    assert {name for name, _ in (*TIMES, *CHOICES)} | ELSEWHERE == set(EFFECTS)


PLAIN: dict[tuple[object, ...], Outcome] = {}  # what many variables change is answered once


def both(capsys, variable: tuple[str, str], *command: object) -> tuple[Outcome, Outcome]:
    """The answer to a question, and that with a variable."""
    if command not in PLAIN:
        PLAIN[command] = netsim(capsys, *command)
    found = PLAIN[command], netsim(capsys, *command, "--env", "=".join(variable))
    assert [one.code for one in found] == [0, 0], found[1].err
    return found


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(("variable", "question"), TIMES.items(), ids=lambda one: one[0])
def test_it_changes_what_is_simulated(capsys, variable, question) -> None:
    topology, collective, size, *options = question
    command = ("expect", topology, collective, "--sizes", size, *options, "--format", "csv")
    plain, changed = both(capsys, variable, *command)
    assert answer(plain.out) != answer(changed.out)
    assert "has no effect" not in changed.err


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(("variable", "question"), CHOICES.items(), ids=lambda one: one[0])
def test_it_changes_what_is_searched_or_compared(capsys, variable, question) -> None:
    topology, collective, size, *options = question
    command = ("expect", topology, collective, "--why", size, *options)
    plain, changed = both(capsys, variable, *command)
    assert plain.out != changed.out


def answer(text: str) -> list[str]:
    """Algorithm, protocol, channels and time of the only row."""
    names, values = (line.split(",") for line in text.splitlines())
    row = dict(zip(names, values, strict=True))
    assert row["status"] in ("ok", "failed")
    return [row[name] for name in ("ranks", "algorithm", "protocol", "channels", "time_us")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("rtx2080ti-x2", "all_reduce", "--env", "NCCL_SHM_DISABLE=1"),
            "1 x rtx2080ti-x2: node0.gpu0 to node0.gpu1: no fabric joins them",
        ),
        (
            (A100, "all_reduce", *TWO, "--env", "NCCL_IB_HCA=bnxt"),
            "--env NCCL_IB_HCA=bnxt: "
            "nccl.env.NCCL_IB_HCA: it names none of the NICs mlx5_0, mlx5_1, mlx5_2, "
            "mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_7",
        ),
        (
            (A100, "all_reduce", "--env", "NCCL_NTHREADS=100"),
            "--env NCCL_NTHREADS=100: nccl.env.NCCL_NTHREADS: expected a multiple of 32, got '100'",
        ),
    ],
)
def test_values_that_leave_nothing(capsys, options, message) -> None:
    outcome = netsim(capsys, "expect", *options, "--sizes", "1M")
    assert (outcome.code, outcome.out) == (2, "")
    assert [line for line in outcome.err.splitlines() if "assumed:" not in line] == [message]


def test_why_a_known_variable_changes_nothing(capsys) -> None:
    err = netsim(
        capsys,
        "expect",
        A100,
        "all_reduce",
        "--why",
        "1M",
        "--env",
        "NCCL_P2P_READ_ENABLE=1",
        "--env",
        "NCCL_DEBUG=INFO",
    ).err
    assert (
        "warning: NCCL_P2P_READ_ENABLE is known to NCCL but has no effect here: ranks always write "
        "over NVLink and PCIe here, at the same cost"
    ) in err
    assert "NCCL_DEBUG is known to NCCL but has no effect here: it changes nothing of" in err
