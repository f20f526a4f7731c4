"""No option with a value that cannot be used changes a folder that has results.

Every option of every verb that writes a folder is given bad values; `NETSIM_ALL_VALUES=1` tries all
of them, otherwise each option gets two."""

import csv
import os
import shutil
import sys
from pathlib import Path
from zlib import crc32

import pytest

from netsim.cli import verb_command
from tests.cli.command import netsim

SCENARIO = """\
name: filled
cluster: {graph: {kind: switch, gpus: 2, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1KiB]}
sweep: {cluster.graph.latency: [1us, 2us]}
outputs: [csv]
"""
LOG = """\
# nThread 1 nGpus 1 minBytes 1024 maxBytes 1024 step: 4(factor) warmup: 5 iters: 20
#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong
        1024           256     float     sum      -1    20.00   0.05   0.05      0    20.00   0.05   0.05      0
"""  # noqa: E501
MACHINE = ("--topology", "h100-x4", "--tolerance", "1000%", "--collective", "all_reduce")
# How each verb fills the folder `out`.
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", "s.yaml", "-o", "out"),
    "optimize": ("optimize", "s.yaml", "-o", "out"),
    "merge": ("merge", "part", "-o", "out"),
    "compare": ("compare", "a.log", *MACHINE, "-o", "out"),
    "explain": ("explain", "part.yaml", "-o", "out"),
    "plot": ("plot", "part", "-o", "out"),
    "report": ("report", "out", "--no-explain"),
}
VALUES = (
    "0", "-1", "x", "", "8gb", "1e400", "nan", "nosuch.yaml", "/dev/null/x", "s.yaml", "out", "[",
    "a=b", "workload.sizes=[]", "9/2", "é☃",
)  # fmt: skip
SAMPLED = 2
SKIPPED = {("run", "dask"), ("optimize", "dask")}  # has a test of its own: most values wait long


def options_of(verb: str) -> dict[str, tuple[str, bool]]:
    """The first flag of every option of a verb, by parameter, and whether it takes a value."""
    return {
        parameter.name: (parameter.opts[0], not parameter.is_flag)
        for parameter in verb_command(verb).params
        if parameter.param_type_name == "option" and (verb, parameter.name) not in SKIPPED
    }


def cases() -> list[tuple[str, str, str]]:
    """Verb, flag and value of everything that is tried."""
    found = []
    for verb in COMMANDS:
        for name, (flag, takes_value) in options_of(verb).items():
            if not takes_value or name == "output":
                continue
            values = VALUES
            if not os.environ.get("NETSIM_ALL_VALUES"):
                first = crc32(f"{verb} {name}".encode())
                values = tuple(VALUES[(first + 7 * k) % len(VALUES)] for k in range(SAMPLED))
            found += [(verb, flag, value) for value in values]
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By verb, a folder in which that verb has left results in `out`."""
    places = {}
    with pytest.MonkeyPatch.context() as patch:
        for verb, command in COMMANDS.items():
            place = tmp_path_factory.mktemp(verb)
            patch.chdir(place)
            (place / "s.yaml").write_text(SCENARIO)
            (place / "part.yaml").write_text(SCENARIO.partition("sweep:")[0])
            (place / "a.log").write_text(LOG)
            run("run", "s.yaml", "-o", "part", "-q")
            if verb == "report":
                run("run", "s.yaml", "-o", "out", "-q")
            run(*command)
            assert (place / "out" / "run.json").is_file(), verb
            places[verb] = place
    return places


def run(*arguments: str) -> int:
    """Run a command, whatever it prints; returns its exit code."""
    from netsim.cli import main

    try:
        main(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def tried(place: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command in a filled folder: it is either refused and changes nothing, or answers."""
    monkeypatch.chdir(place)
    before = contents(place)
    code = run(*arguments)
    if code == 0:
        shutil.rmtree(place / "out")
        for name, content in before.items():
            if name.startswith("out/"):
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_bytes(content)
        return
    after = contents(place)
    assert after == before, (arguments, sorted(after.keys() ^ before.keys()))


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(("verb", "flag", "value"), cases())
def test_an_option_that_cannot_be_used_leaves_results(
    filled, verb: str, flag: str, value: str, monkeypatch, capsys
) -> None:
    if value in ("s.yaml", "out") and flag in ("--json", "--tuner-out"):
        pytest.skip("a file to be written")
    tried(filled[verb], [*COMMANDS[verb], flag, value], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "optimize"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--jobs", "0"), "--jobs"),
        (("--memory", "8gb"), "--memory 8gb"),
        (("--memory", "1kB"), "one process alone needs"),
        (("--dask", "X"), ""),
        (("--dask", "X", "--memory", "8GB"), "--memory: a Dask cluster"),
        (("--set", "workload.sizes=[]"), "at least one size"),
        (("--set", "nosuch=1"), "nosuch"),
    ],
)
def test_results_are_left_whatever_is_wrong_with_an_option(
    filled, verb, options, message, monkeypatch, capsys
) -> None:
    place = filled[verb]
    monkeypatch.chdir(place)
    before = contents(place)
    done = netsim(capsys, *COMMANDS[verb], *options)
    assert (done.code, contents(place)) == (2, before)
    assert message in done.err


@pytest.mark.slow
def test_a_cache_that_cannot_be_used_leaves_results(filled, monkeypatch, capsys) -> None:
    place = filled["run"]
    monkeypatch.chdir(place)
    monkeypatch.setenv("NETSIM_CACHE", "/dev/null/rows.sqlite")
    before = contents(place)
    done = netsim(capsys, *COMMANDS["run"], "--cache")
    assert (done.code, contents(place)) == (2, before)
    assert "cannot be used as a cache" in done.err


def test_a_search_without_its_package_leaves_results(filled, monkeypatch, capsys) -> None:
    place = filled["optimize"]
    monkeypatch.chdir(place)
    before = contents(place)
    monkeypatch.setitem(sys.modules, "optuna", None)  # importing it raises an ImportError
    done = netsim(capsys, *COMMANDS["optimize"], "--trials", "1")
    assert (done.code, contents(place)) == (2, before)
    assert "needs optuna" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("verb", COMMANDS)
@pytest.mark.parametrize("owner", COMMANDS)
def test_a_verb_does_not_write_into_the_folder_of_another(
    filled, verb: str, owner: str, monkeypatch, capsys
) -> None:
    if "report" in (verb, owner) or verb == owner:
        pytest.skip("a report belongs to the folder of a run")
    place = filled[owner]
    monkeypatch.chdir(place)
    before = contents(place)
    done = netsim(capsys, *COMMANDS[verb])
    assert (done.code, contents(place)) == (2, before)
    assert f"out: holds the results of netsim {owner}" in done.err


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("broken", ["missing", "mistyped", "a link to itself", "the whole"])
def test_a_merge_that_lacks_a_part_leaves_the_earlier_whole(
    filled, broken: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)
    for number in (1, 2):
        assert run("run", "s.yaml", "-o", f"part{number}", "--shard", f"{number}/2", "-q") == 0
    assert run("merge", "part1", "part2", "-o", "whole") == 0
    before = contents(tmp_path / "whole")
    os.symlink("loop", "loop")
    os.symlink("whole", "again")
    parts = {
        "missing": ("part1",),
        "mistyped": ("part1", "part3"),
        "a link to itself": ("part1", "loop"),
        "the whole": ("part1", "again"),
    }[broken]
    done = netsim(capsys, "merge", *parts, "-o", "whole")
    assert (done.code, contents(tmp_path / "whole")) == (2, before)
    assert "bug" not in done.err
    done = netsim(capsys, "merge", "part1", "part2", "-o", "loop")
    assert (done.code, "bug" in done.err) == (2, False)


def test_two_scenarios_of_one_name_do_not_share_a_folder(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, latency in (("a", "1us"), ("b", "3us")):
        Path(folder).mkdir()
        text = SCENARIO.replace("name: filled\n", "").replace("[1us", f"[{latency}")
        Path(folder, "sweep.yaml").write_text(text)
    assert netsim(capsys, "run", "a/sweep.yaml", "-q").code == 0
    before = contents(Path("reports"))
    done = netsim(capsys, "run", "b/sweep.yaml", "-q")
    assert (done.code, contents(Path("reports"))) == (2, before)
    assert done.err == (
        f"reports/sweep: holds the results of {tmp_path}/a/sweep.yaml, not of "
        f"{tmp_path}/b/sweep.yaml (choose another folder with -o)\n"
    )


@pytest.mark.slow
def test_best_yaml_of_another_question_goes(filled, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)
    assert netsim(capsys, "optimize", "s.yaml", "-o", "out").code == 0
    assert Path("out/best.yaml").is_file()
    done = netsim(capsys, "optimize", "s.yaml", "-o", "out", "--subject-to", "time_us < 0")
    assert (done.code, "no cell meets the constraints" in done.err) == (2, True)
    assert not Path("out/best.yaml").exists()
    with Path("out/results.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2
