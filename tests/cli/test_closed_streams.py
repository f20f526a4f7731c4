"""Files are written though nobody reads what is printed; they may be pipes, or of any bytes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import netsim

SWEEP = """\
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, sizes: [1KiB, 1MiB]}
sweep: {workload.algorithm: [ring, tree]}
"""
ROOT = str(Path(__file__).parents[2])
NETSIM = f"{sys.executable} -m netsim"
FILES = 17  # of a sweep with all outputs


@pytest.fixture(autouse=True)
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SWEEP)
    Path("dangling.yaml").symlink_to("nowhere")
    return tmp_path


def shell(command: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """A command of a shell, in which `netsim` is ours."""
    words = ["bash", "-o", "pipefail", "-c", command.replace("netsim ", f"{NETSIM} ")]
    given = {**os.environ, "PYTHONPATH": ROOT, **env}
    return subprocess.run(words, capture_output=True, timeout=120, env=given, check=False)


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "netsim run s.yaml -o out | head -1",
        "netsim run s.yaml -o out 2>&-",
        "netsim run s.yaml -o out 2>/dev/full",
        "netsim run s.yaml -o out >&- 2>&-",
        "MPLBACKEND=of_a_notebook netsim run s.yaml -o out",
    ],
)
def test_files_are_written_whoever_reads(command: str) -> None:
    assert shell(command).returncode == 0
    assert len(list(Path("out").iterdir())) == FILES
    assert len(Path("out/results.csv").read_text().splitlines()) == 1 + 4


@pytest.mark.slow
def test_help_that_nobody_can_read_is_told_in_a_line() -> None:
    done = shell("netsim run --help >/dev/full")
    assert (done.returncode, done.stderr) == (
        2,
        b"netsim: standard output: No space left on device\n",
    )


@pytest.mark.full
@pytest.mark.slow
def test_scenarios_come_through_pipes() -> None:
    os.mkfifo("pipe.yaml")
    done = shell("cat s.yaml > pipe.yaml & timeout 60 netsim run pipe.yaml -o out")
    assert done.returncode == 0
    assert '"text": "cluster:' in Path("out/run.json").read_text()
    assert b"2 cells, 4 sizes" in shell("cat s.yaml | netsim check -").stdout


@pytest.mark.full
def test_names_of_files_may_be_any_bytes_or_none_that_a_system_has() -> None:
    odd = os.fsdecode(b"caf\xe9.yaml")
    Path(odd).write_text(SWEEP)
    assert shell("netsim run $'caf\\xe9.yaml' -o out && netsim report out").returncode == 0
    assert "caf" in Path("out/report.html").read_text(encoding="utf-8")
    Path("s.yaml").write_text(f"name: été\n{SWEEP}", encoding="utf-8")
    ascii = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = shell("netsim run s.yaml", **ascii)
    assert done.returncode == 2
    assert b"names of files (ascii)" in done.stderr
    assert shell("netsim run s.yaml -o named", **ascii).returncode == 0


@pytest.mark.slow
def test_a_closed_terminal_keeps_what_was_finished() -> None:
    long = SWEEP.replace("1MiB]", "1MiB, 1GiB]").replace("gpus: 4", "gpus: 640")
    Path("s.yaml").write_text(long.replace("[ring, tree]", "[tree, ring]"))  # what takes long, last
    asked, ours = (
        [*NETSIM.split(), "run", "s.yaml", "-o", "out"],
        {**os.environ, "PYTHONPATH": ROOT},
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup
    run = subprocess.Popen(asked, stderr=subprocess.PIPE, env=ours)
    signal.signal(signal.SIGHUP, before)
    journal = Path("out/.partial/journal.jsonl")
    while not (journal.is_file() and journal.stat().st_size):
        time.sleep(0.02)
    run.send_signal(signal.SIGHUP)
    _, said = run.communicate(timeout=60)
    assert (run.returncode, b"interrupted" in said) == (130, True)
    assert Path("out/.partial/results.csv").is_file()


@pytest.mark.slow
def test_a_report_goes_when_a_run_that_goes_on_has_other_rows(capsys) -> None:
    report = Path("out/report.html")
    assert netsim(capsys, "run", "s.yaml", "-o", "out").code == 0
    assert netsim(capsys, "report", "out").code == 0
    assert netsim(capsys, "run", "s.yaml", "-o", "out", "--resume").code == 0
    assert report.exists()
    Path("s.yaml").write_text(SWEEP.replace("1MiB", "2MiB"))
    assert netsim(capsys, "run", "s.yaml", "-o", "out", "--resume").code == 0
    assert not report.exists()
    assert netsim(capsys, "run", "s.yaml", "-o", "out").code == 0
    assert not Path("out/pictures").exists()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["expect", "dgx-h100", "all_reduce", "-J", "."], "-J .: this is a folder"),
        (["expect", "dgx-h100", "all_reduce", "--tuner-out", "/"], "-out /: this is a folder"),
        (
            ["expect", "dgx-h100", "all_reduce", "--nodes", "3", "--set", "cluster.nodes=2"],
            "--set cluster.nodes=2: --nodes 3 says something else",
        ),
        (["expect", "dgx-h100", "all_reduce", "--sizes", "8,1PiB"], "expected at most 16 TiB"),
        (["explain", "dgx-h100"], "expected a scenario, got the machine 'dgx-h100' (expect and"),
        (["expect", "quickstart", "all_reduce"], "expected a machine, got the scenario"),
        (["diff", "nosuch#tree", "s.yaml#ring"], "nosuch: no such file or folder"),
        (["explain", "s.yaml", "-o", "s.yaml"], "s.yaml: this is a file, expected a folder"),
        (["check", "dangling.yaml"], "dangling.yaml: no such file\n"),
        (
            ["run", "s.yaml", "--set", "cluster.graph.bandwidth=1e-320GB/s"],
            "(that is too small to be meant)",
        ),
    ],
)
def test_what_is_meant_is_told(asked: list[str], message: str, capsys) -> None:
    done = netsim(capsys, *asked)
    assert done.code == 2
    assert message in done.err


@pytest.mark.slow
def test_files_that_a_scenario_names_are_beside_it_or_here(sweep: Path, capsys) -> None:
    (sweep / "sub").mkdir()
    machine = Path(__file__).parents[2] / "topologies" / "h100-x4.yaml"
    for place in (sweep / "sub" / "mine.yaml", sweep / "here.yaml"):
        place.write_bytes(machine.read_bytes())
    work = "workload: {collective: all_reduce, sizes: [1MiB]}\noutputs: [csv]\n"
    cells = []
    for folder, scenario, named in (
        (".", "sub/s.yaml", "mine.yaml"),
        ("sub", "s.yaml", "mine.yaml"),
        (".", "sub/s.yaml", "here.yaml"),
        (".", str(sweep / "sub/s.yaml"), "mine.yaml"),
    ):
        (sweep / "sub" / "s.yaml").write_text(f"cluster: {{machine: {named}}}\n{work}")
        os.chdir(sweep / folder)
        assert netsim(capsys, "run", scenario, "-o", sweep / "out").code == 0
        cells.append((sweep / "out" / "results.csv").read_text().splitlines()[1].split(",")[1])
    assert len({*cells}) == 1  # a cell is what its machine is, wherever that lies
