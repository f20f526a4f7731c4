"""Nothing that a stranger's file or folder holds is run, read without end or overwritten."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netsim.base.errors import InputError, ScenarioError
from netsim.base.files import content_of, table_text
from netsim.cli.output import refuse_output_as_input
from netsim.results.folder import rows_of
from netsim.results.journal import sealed, unsealed
from netsim.results.workspace import read_manifest
from tests.cli.command import netsim

ROOT = str(Path(__file__).parents[2])
SCENARIO = """\
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: "own.py:ours", sizes: [1KiB]}
outputs: [csv]
"""
ALGORITHM = """\
from pathlib import Path
import netsim
Path("was-run").write_text("")
def ours(collective):
    return netsim.build(collective, "ring")
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def stranger(capsys) -> Path:
    """The results of an algorithm file, which has not been run in this process."""
    Path("own.py").write_text(ALGORITHM)
    Path("own.yaml").write_text(SCENARIO)
    assert netsim(capsys, "run", "own.yaml", "-o", "out", "-q").code == 0
    Path("own.py").write_text(f"{ALGORITHM}# {Path.cwd()}\n")  # another text: known to nobody
    Path("was-run").unlink(missing_ok=True)  # a text is run once in a process
    return Path("out")


@pytest.mark.slow
def test_a_report_runs_an_algorithm_file_only_if_it_is_trusted(capsys, stranger: Path) -> None:
    done = netsim(capsys, "report", stranger)
    assert (done.code, Path("was-run").exists()) == (2, False)
    assert "the Python file of the algorithm own.py was not run" in done.err
    assert "--trust" in done.err
    assert not (stranger / "report.html").exists()
    assert netsim(capsys, "report", stranger, "--no-explain").code == 0
    assert (stranger / "report.html").exists()
    assert not Path("was-run").exists()
    assert netsim(capsys, "report", stranger, "--trust").code == 0
    assert Path("was-run").exists()


def test_code_in_a_manifest_is_not_run_whatever_its_algorithm_is_called(
    capsys, stranger: Path
) -> None:
    manifest = unsealed((stranger / "run.json").read_bytes())
    code = "open('was-run', 'w')"
    manifest["text"] = SCENARIO.replace('"own.py:ours"', f'ring, code: "{code}"')
    (stranger / "run.json").write_text(sealed(manifest))
    assert netsim(capsys, "report", stranger).code == 2
    manifest["text"] = SCENARIO.replace('"own.py:ours"', "ring")
    manifest["settings"] = [f"workload.code={json.dumps(code)}"]
    (stranger / "run.json").write_text(sealed(manifest))
    assert netsim(capsys, "report", stranger).code == 2
    assert not Path("was-run").exists()


ENDLESS = {
    "a scenario": ("run", "zero.yaml"),
    "a machine": ("expect", "./zero.yaml", "all_reduce"),
    "a graph": ("expect", "h100-x4", "all_reduce", "--graph", "zero.xml"),
    "a tuner table": ("expect", "h100-x4", "all_reduce", "--tuner", "zero.csv"),
    "a log": ("compare", "zero.log", "--topology", "h100-x4"),
    "results": ("plot", "zero.csv"),
    "a matrix": ("topo", "show", "zero.txt"),
    "an index": ("accuracy", "zero.yaml"),
    "a manifest": ("report", "zero-manifest"),
    "a part": ("merge", "zero-manifest", "-o", "whole"),
    "a log to fit": ("calibrate", "zero.log", "--topology", "h100-x4"),
    "a second log": ("diff", "./zero.log", "./zero.log"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ENDLESS)
def test_a_file_without_an_end_is_refused(capsys, what: str) -> None:
    for suffix in ("yaml", "xml", "csv", "log", "txt"):
        Path(f"zero.{suffix}").symlink_to("/dev/zero")
    Path("zero-manifest").mkdir()
    Path("zero-manifest/run.json").symlink_to("/dev/zero")
    done = netsim(capsys, *ENDLESS[what])
    assert done.code == 2
    assert "larger than 4 MiB" in done.err


def test_a_large_file_that_is_no_text_is_refused_after_its_beginning(tmp_path: Path) -> None:
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(10**9)  # zeros, which take no room
    with pytest.raises(ScenarioError, match="larger than 4 MiB"):
        content_of(large)
    with pytest.raises(ScenarioError, match="expected text, got a binary file"):
        content_of(large, 2**30)
    with pytest.raises(ScenarioError, match="larger than 256 MiB"):
        content_of(large, 2**28)
    with pytest.raises(ScenarioError, match="expected text in lines"):
        table_text(large)
    (tmp_path / "journal.jsonl").symlink_to("/dev/zero")
    assert not rows_of(tmp_path, print).finished


def test_large_text_is_read_where_it_is_usual(tmp_path: Path) -> None:
    text = b"0123456789abcde\n" * 2**19  # 8 MiB
    (tmp_path / "large.log").write_bytes(text)
    assert content_of(tmp_path / "large.log", 2**28) == text
    with table_text(tmp_path / "large.log") as file:
        assert sum(1 for _ in file) == 2**19


def test_a_pipe_is_read_up_to_4_mib(tmp_path: Path) -> None:
    """One that goes on is refused while its writer still writes."""
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"exec yes > {pipe}"]) as writer:
        with pytest.raises(ScenarioError, match="larger than 4 MiB"):
            content_of(pipe)
        assert writer.wait(timeout=60) != 0


def test_an_output_that_is_an_input_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("a log")
    (tmp_path / "link.log").symlink_to(log)
    (tmp_path / "loop").symlink_to("loop")
    os.link(log, tmp_path / "hard.log")
    for output in (log, tmp_path / "link.log", tmp_path / "hard.log", tmp_path / "." / "a.log"):
        with pytest.raises(InputError, match="would be overwritten"):
            refuse_output_as_input(output, [tmp_path / "b.log", log])
    with pytest.raises(InputError, match="would be overwritten"):
        refuse_output_as_input(log, [tmp_path / "link.log"])
    for output in (None, tmp_path / "new.log", tmp_path / "loop", Path("/dev/null")):
        refuse_output_as_input(output, [log, Path("/dev/null"), tmp_path / "loop"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("optimize", "s.yaml", "--tuner-out", "s.yaml"),
        ("expect", "./m.yaml", "all_reduce", "-J", "m.yaml"),
        ("expect", "./m.yaml", "all_reduce", "--tuner-out", "m.yaml"),
        ("plot", "results.csv", "-o", "."),
    ],
)
def test_no_verb_overwrites_what_it_reads(capsys, arguments: tuple[str, ...]) -> None:
    machine = Path(ROOT, "topologies", "h100-x4.yaml").read_text(encoding="utf-8")
    Path("m.yaml").write_text(machine)
    Path("s.yaml").write_text(SCENARIO.replace('"own.py:ours"', "ring"))
    Path("s.yaml").write_text(Path("s.yaml").read_text() + "sweep: {cluster.graph.gpus: [2, 4]}\n")
    assert netsim(capsys, "run", "s.yaml", "-o", "out", "-q").code == 0
    Path("results.csv").write_bytes(Path("out/results.csv").read_bytes())
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    netsim(capsys, *arguments)
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before


@pytest.mark.slow
def test_a_closed_output_is_an_error_unless_files_are_written() -> None:
    def shell(command: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-c", command.replace("netsim ", f"{sys.executable} -m netsim ")]
        given = {**os.environ, "PYTHONPATH": ROOT}
        return subprocess.run(words, capture_output=True, text=True, env=given, check=False)

    done = shell("netsim expect h100-x4 all_reduce --sizes 8 >&-")
    assert done.returncode == 2
    assert done.stderr == "netsim: standard output is closed, and nothing else is written\n"
    Path("s.yaml").write_text(SCENARIO.replace('"own.py:ours"', "ring"))
    assert shell("netsim run s.yaml -o out >&-").returncode == 0
    assert read_manifest(Path("out"))["verb"] == "run"
