"""The page on architecture is true: what it names is there, and changes are made where it says.

Changes in code are made in one copy of the package, each below the name that the page tells to look
for, and asked for as a user would.
"""

import ast
import csv
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

import netsim
from netsim.collectives.table import ALGORITHMS
from netsim.engines.engine import ENGINES
from tests.cli.command import netsim as netsim_command
from tests.house import File, files_of

PACKAGE = Path(netsim.__file__).parent
ROOT = PACKAGE.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
FILES = files_of(PACKAGE)
OUTSIDE = ("docs/", "scenarios/", "tests/", "topologies/")  # all else lies in the package
IS_PATH = re.compile(r"[\w./-]+(\.py|\.yaml|\.md|/)")


def block(title: str) -> list[str]:
    """The lines that are set apart below a title."""
    found = re.search(rf"^## {title}\n+```\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1].splitlines()


def changes() -> list[tuple[str, list[str], list[str]]]:
    """What can be changed, the words to open and look for, and the tests, as the table has them."""
    table = PAGE[PAGE.index("| to change | open | proved by |") :].splitlines()[2:]
    rows = [row.split("|")[1:4] for row in table if row.startswith("|")]
    words = re.compile(r"`([^`]+)`")
    return [(what.strip(), words.findall(a), words.findall(b)) for what, a, b in rows]


def statements(file: File) -> dict[str, ast.stmt]:
    """What a module defines, by name."""
    found: dict[str, ast.stmt] = {}
    for node in file.tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (name for target in targets for name in ast.walk(target))
            found |= {name.id: node for name in names if isinstance(name, ast.Name)}
    return found


def missing(words: list[str]) -> list[str]:
    """Of paths, each with the names that it should define, those that are not there."""
    found, path = [], ""
    for word in words:
        if IS_PATH.fullmatch(word):
            path = word
            place = (ROOT if word.startswith(OUTSIDE) else PACKAGE) / word
            found += [] if place.exists() else [word]
        elif re.fullmatch(r"\w+", word):
            there = path in FILES and word in statements(FILES[path])
            found += [] if there or not path.endswith(".py") else [f"{path}: {word}"]
    return found


def test_the_page_has_a_table_of_changes() -> None:
    assert len(changes()) >= 15
    assert len({what for what, _, _ in changes()}) == len(changes())
    assert all(opened and proofs for _, opened, proofs in changes())


@pytest.mark.slow
def test_files_and_names_of_the_table_are_there() -> None:
    assert not {what: gone for what, opened, _ in changes() if (gone := missing(opened))}


def test_tests_of_the_table_are_there() -> None:
    assert not [proof for _, _, proofs in changes() for proof in proofs if missing([proof])]
    assert all(proof.startswith("tests/") for _, _, proofs in changes() for proof in proofs)


@pytest.mark.parametrize("verb", ["run", "expect"])
def test_the_ways_of_calls_are_short_and_name_what_is_there(verb: str) -> None:
    lines = block(f"The way of `netsim {verb}`")
    assert len(lines) <= 10
    words = []
    for line in lines:
        path, name, told = line.split(None, 2)
        words += [path, name]
        for other, inside in re.findall(r"([\w/]+\.py)(?:: (\w+))?", told):
            words += [other, inside] if inside else [other]
    assert not missing(words)


def test_what_is_missing_is_found() -> None:
    words = ["errors/", "nowhere.py", "cli/__init__.py", "VERBS", "nothing", "docs/no.md"]
    assert missing(words) == ["errors/", "nowhere.py", "cli/__init__.py: nothing", "docs/no.md"]


# What follows makes changes: first those that need no other code of ours.


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(text.splitlines()))


def usual(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """The only row that `expect` has as it is."""
    (row,) = rows_of(netsim_command(capsys, "expect", *arguments, "--format", "csv").out)
    return row


def test_a_machine_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("topologies").mkdir()
    Path("topologies/mine.yaml").write_text((ROOT / "topologies/dgx-a100.yaml").read_text())
    assert re.search(r"^mine +8 ", netsim_command(capsys, "topo", "list").out, re.MULTILINE)
    assert usual(capsys, "mine", "all_reduce", "--sizes", "8")["topology"] == "mine"


SWITCH = """cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: broadcast, algorithm: %s, sizes: [1MiB]}
"""


def test_an_algorithm_is_added_as_the_page_on_extending_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extending = (ROOT / "docs" / "extending.md").read_text()
    names: dict[str, object] = {}
    exec(re.findall(r"```python\n(.*?)```", extending, re.DOTALL)[0], names)
    monkeypatch.setitem(ALGORITHMS["broadcast"], "mine", names["broadcast"])
    (tmp_path / "mine.yaml").write_text(SWITCH % "mine")
    (row,) = netsim.run(tmp_path / "mine.yaml")
    assert row.algorithm == "mine"
    assert row.time_us == pytest.approx(3 * 2**20 / 50e3, rel=0.05)  # one after the other


ENGINE = """
from netsim.engines.engine import simulate

asked = []

def run(program, **options):
    asked.append(program)
    return simulate(program, "simpy")
"""


def test_an_engine_is_added_as_the_page_on_extending_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine_of_a_test.py").write_text(ENGINE)
    (tmp_path / "ring.yaml").write_text(SWITCH % "ring")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(ENGINES, "mine", "engine_of_a_test")
    (mine,), (plain,) = (
        netsim.run(tmp_path / "ring.yaml", engine=engine) for engine in ("mine", "simpy")
    )
    assert (mine.engine, mine.time_us) == ("mine", plain.time_us)
    assert import_module("engine_of_a_test").asked


# And those in code, in a copy of it.

LARGE = ("all_reduce", "--sizes", "64M")


@dataclass(frozen=True)
class Edit:
    """In the statement that defines a name, and has a pattern: what comes in the pattern's place.
    There is one such statement in the package, wherever it is.
    """

    name: str
    pattern: str
    new: str

    def made(self, root: Path) -> None:
        """Make it in a copy of the package."""
        found = [path for path, file in FILES.items() if self.has(file)]
        assert len(found) == 1, f"{self.name} with {self.pattern}: expected one file, got {found}"
        file = File(found[0], (root / found[0]).read_text())
        begin, text, end = self.parts(file)
        new = re.sub(self.pattern, self.new, text, count=1)
        (root / found[0]).write_text(begin + new + end)

    def has(self, file: File) -> bool:
        """Whether it can be made in a file."""
        return self.name in statements(file) and bool(re.search(self.pattern, self.parts(file)[1]))

    def parts(self, file: File) -> tuple[str, str, str]:
        """What is before the statement, itself, and what is behind it."""
        node, lines = statements(file)[self.name], file.text.splitlines(keepends=True)
        edges = (0, node.lineno - 1, node.end_lineno, len(lines))
        before, text, behind = ("".join(lines[a:b]) for a, b in pairwise(edges))
        return before, text, behind


END = r"[)}]\s*\Z"  # the last bracket of a table
EDITS = (
    Edit("NEWEST", r"= Version.+", "= Version(2, 31)"),
    Edit("LeafSpine", '"leaf-spine"', '"leaf-spine", "mine"'),
    Edit("BUILDERS", END, '    "mine": kinds.leaf_spine,\n}\n'),
    Edit("TransportName", r"Literal\[", 'Literal["mine", '),
    Edit("FORMATS", r"FORMATS = \{(?=\s+.*re\.)",
         r'from netsim.topology.routing import switch\n\g<0>"mine": re.compile("^mine"),'),
    Edit("FORMATS", '"nccl": "', '"mine": "made for a test", "nccl": "'),
    Edit("READERS", '"astra-sim":', '"mine": lambda *_: switch(4, 50e9, 1e-6), "astra-sim":'),
    Edit("Pipeline", r"Literal\[", 'Literal["mine", '),
    Edit("SCHEDULES", '"gpipe":', '"mine": gpipe, "gpipe":'),
    Edit("Row", "    axes:", '    mood: str = "glad"\n    axes:'),
    Edit("RunOptions", r"(?=    output: Path)", '    mood: str = ""\n'),
    Edit("command", r'(?=\) -> Callable.*\n    """Simulate all cells)',
         '    mood: Annotated[str, option("--mood", metavar="M", text="For a test.")] = "",\n'),
    Edit("command", r"(?=    \)\n    return partial\(run_scenario)", "        mood=mood,\n"),
    Edit("run_scenario", r'(    """Simulate all cells of .*"""\n)', r"\1    print(options.mood)\n"),
    Edit("VERBS", r'(?=    "doctor": )', '    "mine": "Made for a test.",\n'),
)  # fmt: skip

# And in tables of data: what is added at the end.
DATA = {
    "base/constants.csv": "mine.hop,1,us,mine,made for a test,,,,,,\n"
    "mine.usable,0.4,1,mine,made for a test,,,,,,\n",
    "nccl/facts.toml": '\n["2.31"]\nalgorithms = ["Tree", "Ring"]\n',
    "nccl/variables.csv": "NCCL_MINE,channels,max_channels,whole 1 64,most channels,\n",
    "workloads/models.toml": "\n[mine]\nlayers = 2\nhidden = 256\nheads = 4\nkv_heads = 4\n"
    "ffn = 512\nvocabulary = 1000\nsequence = 128\n",
}


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with all of these, and with a verb more; the presets beside it."""
    root = tmp_path_factory.mktemp("changed")
    shutil.copytree(PACKAGE, root / "netsim")
    for presets in ("topologies", "scenarios"):
        (root / presets).symlink_to(ROOT / presets)
    for edit in EDITS:
        edit.made(root / "netsim")
    for name, more in DATA.items():
        with (root / "netsim" / name).open("a") as file:
            file.write(more)
    verb = 'import typer\n\n\ndef command():\n    """Made for a test."""\n'
    (root / "netsim/cli/verbs/mine.py").write_text(verb + '    return lambda: typer.echo("glad")\n')
    return root


class Changed:
    """Runs the command line with the changes, in a folder of its own."""

    def __init__(self, code: Path, folder: Path) -> None:
        self.code, self.folder = code, folder

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "netsim", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.code)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def expected(self, *arguments: str) -> dict[str, str]:
        """The only row that `expect` has."""
        (row,) = rows_of(self("expect", *arguments, "--format", "csv"))
        return row


@pytest.fixture
def run(changed: Path, tmp_path: Path) -> Changed:
    return Changed(changed, tmp_path)


@pytest.mark.slow
def test_a_version_of_nccl_is_an_entry_of_changes(
    run: Changed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert usual(capsys, "dgx-h100", *LARGE)["algorithm"] == "NVLS"
    assert run.expected("dgx-h100", *LARGE, "--nccl", "2.31")["algorithm"] in ("Tree", "Ring")


@pytest.mark.slow
def test_a_variable_of_nccl_is_a_reader(run: Changed) -> None:
    row = run.expected("dgx-a100", *LARGE, "--env", "NCCL_MINE=2")
    assert row["channels"] == "2"


@pytest.mark.slow
def test_a_fabric_and_a_transport_are_entries_of_tables(
    run: Changed, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = (
        "dgx-a100",
        "all_reduce",
        "--sizes",
        "4M",
        "--nodes",
        "2",
        "--gpus-per-node",
        "2",
        "--algo",
        "Ring",
        "--fabric",
    )
    known = usual(capsys, *ring, "leaf-spine")
    assert run.expected(*ring, "mine")["time_us"] == known["time_us"]
    slower = run.expected(*ring, "mine", "--transport", "mine")
    assert float(slower["time_us"]) > 1.5 * float(known["time_us"])


@pytest.mark.slow
def test_a_foreign_format_is_a_sign_and_a_reader(run: Changed) -> None:
    (run.folder / "four.txt").write_text("mine\n")
    assert "4 GPUs" in run("topo", "show", "four.txt")


STEP = """cluster: {machine: dgx-h100}
workload: {model: mine, batch: 8, parallelism: {pp: 2, dp: 4}, pipeline: {schedule: mine}}
outputs: [csv]
"""


@pytest.mark.slow
def test_a_model_and_a_pipeline_schedule_are_entries_of_tables(run: Changed) -> None:
    (run.folder / "step.yaml").write_text(STEP)
    assert "training mine" in run("run", "step.yaml", "-q", "--format", "csv", "-o", "out")


@pytest.mark.slow
def test_columns_options_and_verbs_are_added_in_one_place_each(run: Changed) -> None:
    (run.folder / "ring.yaml").write_text(f"{SWITCH % 'ring'}outputs: [csv]\n")
    told = run("run", "ring.yaml", "-q", "--mood", "sunny", "--format", "csv", "-o", "out")
    assert "sunny" in told
    (row,) = rows_of((run.folder / "out/results.csv").read_text())
    assert row["mood"] == "glad"
    assert run("mine") == "glad\n"
