"""The ways of messages over Slingshot: by their bytes on the wire, and by what came before them."""

import pytest

from netsim.base.constants import value
from netsim.base.errors import InputError
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.engines.engine import simulate
from netsim.nccl.constants import CXI, VERBS, cxi, mechanism_of, plugin_of
from netsim.nccl.environment import settings_from
from netsim.nccl.schedules.primitives import RowKind
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.schedule.schedule import Style
from netsim.tasks.resolve import resolve
from tests.extent.cells import form_at

MICRO = 1e-6
SOFTWARE = {"FI_CXI_RX_MATCH_MODE": "software"}


def message(protocol: str, wire: float, *, follows: bool = False, **env: str) -> RowKind:
    path = cxi(settings_from(env)).path
    costs = (("proxy", "src", 1e-6), ("nic_msg", "src", 1e-7))
    return RowKind(Style(wire=wire), costs, path=path, protocol=protocol, follows=follows)


def nic_seconds(kind: RowKind, nbytes: float) -> float:
    weights = [use.weight for use in kind.of(nbytes).uses if use.resource == "nic_msg"]
    return sum(weights) * nbytes


def test_bytes_on_the_wire_decide_the_way_of_a_message():
    assert message("LL", 2.0).of(4096).latency == 0.0  # the NIC matches receives
    asked_for = message("LL", 2.0, **SOFTWARE)
    assert asked_for.of(2048).latency == 0.0
    assert asked_for.of(2049).latency == pytest.approx(4.5 * MICRO)
    assert message("Simple", 1.0, **SOFTWARE).of(4096).latency == 0.0


def test_a_message_after_another_keeps_the_nic():
    assert nic_seconds(message("LL", 2.0), 4096) == pytest.approx(0.1 * MICRO)
    later = message("LL", 2.0, follows=True)
    assert later.of(4096).latency == 0.0
    assert nic_seconds(later, 4096) == pytest.approx(0.1 * MICRO + CXI.handling.lines)
    assert nic_seconds(later, 2048) == pytest.approx(0.1 * MICRO)  # sent at once
    simple = message("Simple", 1.0, follows=True, FI_CXI_RDZV_PROTO="alt_read")
    assert nic_seconds(simple, 65536) == pytest.approx(0.1 * MICRO + CXI.handling.large + 5e-6)


def test_the_first_message_is_copied_by_its_bytes_where_receives_are_matched_in_software():
    first, rate = message("LL", 2.0, **SOFTWARE), value("cxi.software.copy_rate")
    most = value("cxi.software.copied_bytes")
    copied = {
        wire: nic_seconds(first, wire / 2) - 0.1 * MICRO for wire in (4096, 8192, 16384, 65536)
    }
    assert copied[4096] == pytest.approx(0.0)  # sent at once
    assert copied[8192] == pytest.approx(8192 / rate)
    assert copied[16384] == copied[65536] == pytest.approx(most / rate)
    assert nic_seconds(message("LL", 2.0), 8192) == pytest.approx(0.1 * MICRO)
    assert nic_seconds(message("Simple", 1.0, **SOFTWARE), 8192) == pytest.approx(0.1 * MICRO)


def test_slices_up_to_some_size_keep_the_nic_longer():
    simple, most = message("Simple", 1.0, follows=True), CXI.handling.small_bytes
    assert nic_seconds(simple, most) == pytest.approx(0.1 * MICRO + CXI.handling.small)
    assert nic_seconds(simple, most + 1) == pytest.approx(0.1 * MICRO + CXI.handling.large)
    lines = message("LL", 2.0, follows=True)
    assert nic_seconds(lines, most) == pytest.approx(0.1 * MICRO + CXI.handling.lines)


def test_before_hopper_the_nic_reads_after_every_slice():
    """A read that orders data before its flag goes through the NIC, too."""
    hopper, ampere = (
        mechanism_of(sm, plugin=plugin_of("slingshot", settings_from({}))) for sm in (90, 80)
    )
    new, old = (one.network.path.handling for one in (hopper, ampere))
    assert old.small - new.small == pytest.approx(value("cxi.flush"))
    assert old.large - new.large == pytest.approx(value("cxi.flush"))
    assert old.lines == new.lines


def test_other_networks_have_one_way_for_all_sizes():
    assert plugin_of("infiniband", settings_from(SOFTWARE)) is VERBS
    plain = mechanism_of(90)
    assert plain == mechanism_of(90, plugin=VERBS)
    network = mechanism_of(90, plugin=plugin_of("slingshot", settings_from(SOFTWARE))).network
    assert network.delivery.ll == pytest.approx(
        plain.network.delivery.ll + value("cxi.software.match")
    )
    assert network.receive == plain.network.receive


def test_efa_costs_the_proxy_more_to_send_and_to_receive():
    plain, efa = (
        mechanism_of(90, plugin=plugin_of(one, settings_from({}))).network
        for one in ("infiniband", "efa")
    )
    more = value("efa.post")
    assert efa.receive - plain.receive == pytest.approx(more)
    for protocol in ("LL", "LL128", "Simple"):
        assert efa.post.of(protocol) - plain.post.of(protocol) == pytest.approx(more)
    assert (efa.path, efa.notice, efa.delivery) == (plain.path, plain.notice, plain.delivery)


def test_one_thread_serves_what_a_rank_sends_and_receives():
    """A rank of 22 rings over 2 x 8 H100 has the sends and receives of 3 in each of 15 steps."""
    variables = ["NCCL_ALGO=Ring", "NCCL_PROTO=LL128", "NCCL_MIN_CTAS=24"]
    given = QuestionOptions(nodes=2, sizes="4194304", env=variables)
    ready = resolve(expand(source_of_question("dgx-h100", "all_gather", given).source)[0])
    made = place(
        form_at(ready, 4194304).loop_schedule.schedule(),
        ready.topology,
        ready.gpus.tolist(),
    )
    network = ready.jobs[0].mechanism.network
    busiest = 15 * 3 * (network.post.ll128 + network.receive)
    assert busiest < simulate(made).makespan < 1.4 * busiest
    amd = mechanism_of(80, cpu_vendor="AMD").network
    assert amd.receive == 2 * network.receive == 2 * value("network.receive")


def test_only_the_words_that_libfabric_knows():
    message = "FI_CXI_RX_MATCH_MODE: expected one of hardware, hybrid, software, got 'sofware'"
    with pytest.raises(InputError, match=message):
        settings_from({"FI_CXI_RX_MATCH_MODE": "sofware"})
    assert settings_from({"FI_CXI_RX_MATCH_MODE": "Hybrid"}).cxi_software_match is False


def seconds(collective: str, size: int, *variables: str, nodes: int = 2, **nccl: str) -> float:
    flags = {"nodes": nodes, "nccl": "2.21", **nccl}
    given = QuestionOptions(**flags, sizes=str(size), transport="slingshot", env=list(variables))
    ready = resolve(expand(source_of_question("a100-x4", collective, given).source)[0])
    made = place(
        form_at(ready, size).loop_schedule.schedule(),
        ready.topology,
        ready.gpus.tolist(),
    )
    return simulate(made).makespan


def test_rings_wait_for_nics_and_trees_do_not():
    """A ring of 32 GPUs sends 31 messages a connection one after another, a tree one."""
    ring, tree = (seconds("all_gather", 262144, nodes=8), seconds("all_reduce", 16384, nodes=8))
    assert ring > 30 * CXI.handling.lines
    assert tree < 7 * CXI.handling.lines
    small = seconds("all_gather", 16384, nodes=8)  # 512 bytes of each rank, 1 KiB on the wire
    assert small < 10 * CXI.handling.lines


def test_matching_in_software_shows_in_every_hop_of_a_tree():
    fast, slow = (
        seconds("all_reduce", 64, *env) for env in ((), ["FI_CXI_RX_MATCH_MODE=software"])
    )
    assert slow - fast == pytest.approx(2 * value("cxi.software.match"))  # up and down
