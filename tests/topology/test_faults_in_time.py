"""Faults in time: what a pause and a loss cost, by hand and on both engines; retries; bad input."""

from math import inf

import pytest

from netsim.base.errors import InputError, StalledError
from netsim.report.rows import run
from netsim.topology.fault_times import Retries, spans_of
from netsim.topology.faults import Fault
from tests.cli.command import netsim

LINK = 'link: "node0.nic0-*", bandwidth: 0%, '
FILE = """
cluster: {machine: dgx-h100, nodes: 2, gpus_per_node: 1, nics_per_node: 1,
          fabric: {kind: rail-optimized, transport: %s}}
workload: {collective: all_reduce, sizes: [4MiB], algorithm: %s, timing: single}
outputs: [csv]
"""


@pytest.fixture
def timed(tmp_path):
    """The row of a ring on two GPUs with faults."""

    def found(faults, *more, engine="compiled", algorithm="ring", transport="infiniband"):
        path = tmp_path / "faults.yaml"
        path.write_text(FILE % (transport, algorithm))
        return run(path, [f"cluster.faults=[{faults}]", *more], engine=engine)[0]

    return found


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["simpy", "compiled"])
@pytest.mark.parametrize("algorithm", ["ring", "Ring"])
def test_a_pause_costs_its_length(timed, engine, algorithm):
    how = {"engine": engine, "algorithm": algorithm}
    plain = timed("", **how).time_us
    for length in (50, 3000):
        paused = timed(f"{{{LINK}at: 20us, for: {length}us, loss: false}}", **how).time_us
        chunk = 12 if algorithm == "Ring" else 0.001  # that may be on its way elsewhere meanwhile
        assert plain + length - chunk < paused < plain + length + 0.001


@pytest.mark.slow
def test_half_of_a_link_and_pauses_that_come_again(timed):
    """A ring that a link bounds: half of it for 100 us costs 50 us; 10 us of 40, again and again,
    take away a quarter.
    """
    plain = timed("").time_us
    half = f"{{{LINK.replace('0%', '50%')}at: 20us, for: 100us}}"
    assert timed(half).time_us == pytest.approx(plain + 50, abs=1)
    flaps = timed(f"{{{LINK}at: 20us, for: 10us, every: 40us, loss: false}}").time_us
    assert flaps == pytest.approx(20 + (plain - 20) * 4 / 3, abs=11)


def test_a_fault_after_the_end_changes_nothing(timed):
    assert timed("{nic: node0.nic0, at: 1s}").time_us == pytest.approx(timed("").time_us)


def test_a_loss_waits_for_the_timer(timed):
    """4.096 us times 2 to NCCL_IB_TIMEOUT: 14, 18 or 20, by version."""
    plain = timed("", algorithm="Ring").time_us
    lost = f"{{{LINK}at: 20us, for: 1ms}}"
    for setting, power in (
        ("nccl.version=2.12", 14),
        ("nccl.version=2.19", 18),
        ("nccl.version=2.27", 20),
        ("nccl.env.NCCL_IB_TIMEOUT=10", 10),
    ):
        waited = timed(lost, setting, algorithm="Ring").time_us
        assert waited == pytest.approx(4.096 * 2**power + plain, abs=0.2 * plain + 20)


@pytest.mark.parametrize(
    ("times", "silence"),
    [
        ({"for": "2.5s"}, 3),
        ({"for": "7s"}, 7),
        ({"for": "7.1s"}, inf),
        ({"for": "1.5s", "every": "2s"}, inf),
        ({"for": "1.5s", "every": "2.5s"}, 2),
    ],
)
def test_a_loss_waits_for_the_first_of_seven_tries_that_finds_the_link_up(times, silence):
    outages = list(spans_of(Fault(link="a-b", bandwidth="0%", at="1s", **times)))
    assert Retries(1.0, 7).answer_time(1.0, outages) == 1 + silence


def test_a_job_is_given_up_one_timeout_after_the_last_try():
    assert Retries(1.0, 7).give_up_time(1.0) == 1 + 8


def test_a_nic_that_dies_ends_the_job_as_nccl_does(timed, tmp_path, capsys):
    row = timed("{nic: node0.nic0, at: 20us}", "nccl.env.NCCL_IB_TIMEOUT=14", algorithm="Ring")
    assert row.status == "failed"
    assert row.time_us == pytest.approx(20 + 8 * 4.096 * 2**14)
    assert "IBV_WC_RETRY_EXC_ERR" in row.error
    again = ["run", tmp_path / "faults.yaml", "--output", tmp_path / "out"]
    told = netsim(capsys, *again, "--set", "cluster.faults=[{nic: node0.nic0, at: 20us}]")
    assert "after 34.36 s: NET/IB" in told.out
    assert ",failed," in (tmp_path / "out" / "results.csv").read_text()
    with pytest.raises(StalledError):
        timed("{nic: node0.nic0, at: 20us}", transport="efa")


@pytest.mark.slow
def test_a_run_shows_the_cells_that_came_to_an_end(tmp_path, capsys):
    path = tmp_path / "jobs.yaml"
    path.write_text(
        "cluster: {machine: dgx-h100, nodes: 2, faults: [{nic: node0.nic0, at: 20us}]}\n"
        "workload: {collective: all_reduce, sizes: [1MiB], algorithm: Ring}\n"
        "sweep: {cluster.faults: [[{nic: node0.nic0, at: 20us}], []]}\n"
    )
    done = netsim(capsys, "run", path, "-o", tmp_path / "out")
    assert (done.code, "1 of 2 cells ended with an error" in done.err) == (0, True), done.err
    assert (tmp_path / "out/trace.json.gz").exists()


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_a_gpu_that_slows_for_a_time(tmp_path, engine):
    """Kernels of a step take four times as long for 400 us on one of two GPUs."""
    path = tmp_path / "step.yaml"
    path.write_text(
        "cluster: {machine: dgx-h100, gpus_per_node: 2}\noutputs: [csv]\n"
        "workload: {model: [{name: a, parameters: 1000, flops: 1e12}], batch: 2}\n"
    )
    plain = run(path, engine=engine)[0].step_time_us
    slow = "cluster.faults=[{gpu: node0.gpu0, slowdown: 4, at: 100us, for: 400us}]"
    assert run(path, [slow], engine=engine)[0].step_time_us == pytest.approx(plain + 300, rel=1e-3)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (f"{{{LINK}at: -1us}}", "faults.0.at: expected a time"),
        (f"{{{LINK}for: 1us}}", "faults.0.for: needs at"),
        (f"{{{LINK}at: 1us, latency: 2us}}", "a latency does not change in time"),
        ("{nic: node0.nic9, at: 1us}", "there is no NIC 'node0.nic9'"),
        ("{gpu: node0.gpu0, slowdown: 2, at: 1us, loss: true}", "only what is down loses"),
        ("{gpu: node0.gpu7, slowdown: 2, at: 1us}", "there is no GPU 'node0.gpu7'"),
        ("{nic: node0.nic0, at: 1us, evry: 4us}", "did you mean every?"),
        ("{nic: node0.nic0, at: 1us, for: 2us, every: 1us}", "expected a time longer than for"),
        ('{link: "node0.nic5-*", bandwidth: 0%, at: 1us}', "there is no 'node0.nic5'"),
    ],
)
def test_bad_input(timed, faults, message):
    with pytest.raises(InputError, match=r"faults") as error:
        timed(faults)
    assert message in str(error.value)


def test_losses_need_a_transport_that_sends_again(timed):
    with pytest.raises(InputError, match="only InfiniBand and RoCE"):
        timed("{nic: node0.nic0, at: 1us, for: 1ms, loss: true}", transport="efa")
