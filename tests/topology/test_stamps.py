"""Where figures are from: every machine says it, wrong stamps are refused, `topo show` tells."""

from pathlib import Path

import pytest

from netsim.base.errors import NetsimError
from netsim.topology.load import load_machine, with_figures
from netsim.topology.machine import WORDS
from tests.cli.command import netsim

MACHINES = sorted(path.stem for path in Path("topologies").glob("*.yaml"))


@pytest.mark.parametrize("name", MACHINES)
def test_every_figure_of_every_machine_has_one_stamp(name: str) -> None:
    machine = load_machine(name)
    sources = machine.sources
    assert len({one.path for one in sources}) == len(sources)
    assert {one.stamp for one in sources} <= set(WORDS)
    assert machine.stamps, "no source is known of any figure"


def test_the_longest_path_counts_and_a_calibration_before_all(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = Path("topologies/hgx-h800.yaml").read_text()
    path.write_text(
        text + "calibration:\n  scale_up.link_bandwidth: {value: 19GB/s, stamp: measured}\n"
    )
    found = {one.path: one.stamp for one in load_machine(path).sources}
    assert found["gpu.flops.double"] == "vendor"
    assert found["gpu.flops.float"] == "transferred"
    assert found["scale_up.link_bandwidth"] == "measured"
    assert found["p2p"] == "assumed"


def test_overrides_may_take_away_what_was_stamped() -> None:
    machine = with_figures(load_machine("dgx-h100"), {"nics": None})
    assert not [one for one in machine.sources if one.path.startswith("nics")]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{vendro: [gpu.sms]}", "vendor"),
        ("{vendor: [gpu.smss]}", "did you mean gpu.sms?"),
        ("{vendor: [gpu.model]}", "no figure 'gpu.model'"),
        ("{vendor: [c2c.bandwidth]}", "no figure 'c2c.bandwidth'"),
        ("{vendor: [gpu.sms], measured: [gpu.sms]}", "stamped vendor already"),
        ("[gpu.sms]", "stamps"),
    ],
)
def test_wrong_stamps_are_refused_with_their_line(
    tmp_path: Path, section: str, message: str
) -> None:
    text = Path("topologies/r9700.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text[: text.index("stamps:")] + f"stamps: {section}\n")
    line = path.read_text().count("\n")
    with pytest.raises(NetsimError, match=rf"mine\.yaml:{line}:") as caught:
        load_machine(path)
    assert message in str(caught.value)


def test_show_tells_each_figure(capsys: pytest.CaptureFixture[str]) -> None:
    shown = netsim(capsys, "topo", "show", "mi350x", "--sources").out
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines()}
    assert rows["scale_up.link_bandwidth"] == ["transferred", "57.6GB/s"]
    assert rows["gpu.flops.double"] == ["vendor", "72.1TFLOPS"]
    assert rows["cpu.memory_bandwidth"] == ["assumed", "370GB/s"]
    summary = netsim(capsys, "topo", "show", "mi350x").out
    assert "1 transferred" in summary
    graph = netsim(capsys, "topo", "show", "ring-of-five", "--sources")
    assert graph.code == 2
    assert "no machine" in graph.err


def test_another_figure_of_a_calibration_leaves_the_others() -> None:
    both_ways = {"calibration": {"pcie.both_ways": {"value": 1.93}}}
    machine = with_figures(load_machine("rtx6000d-x8"), both_ways, "machine")
    more = with_figures(machine, {"calibration": {"launch.host": {"value": "4us"}}}, "machine")
    assert {name: one.value for name, one in more.calibration.items()} == {
        "pcie.both_ways": 1.93,
        "launch.host": "4us",
    }
