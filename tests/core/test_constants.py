"""Every constant of execution, launches and transports is in one table, and says where it is from.

Modules that compute with them hold no figure of their own: what they define is looked through, so
that a number that somebody adds there without an origin fails here.
"""

import ast
import csv
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import netsim
from netsim.base.constants import TABLE, UNITS, Constant, Fitted
from netsim.measured.estimate import ESTIMATORS
from netsim.measured.index import read_index
from netsim.topology.machine import TRANSPORTS
from tests.cli.command import netsim as netsim_command

ROOT = Path(netsim.__file__).parent
MEASURED = Path("scenarios/measured")
RUNS = {entry.id for entry in read_index(MEASURED / "index.yaml")}
STEPS = {entry.id for entry in read_index(MEASURED / "training.yaml", ())}

# What is written of a schedule, or left out; nothing there takes time.
UNTIMED = ("channels.py", "equal_sends.py", "loops.py", "partitions.py", "skeletons.py")
# The modules that hold what execution, launches and transports cost.
HOLDERS = [
    "nccl/constants.py",
    "nccl/split.py",
    "topology/host.py",
    "topology/cluster.py",
    *sorted(
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("nccl/schedules/*.py")
        if path.name not in UNTIMED
    ),
]
# Others of whose names at the top some are such costs; their classes say what files may hold.
BESIDE = ["topology/fabrics/config.py", "topology/machine.py"]
NEUTRAL = (0, 1)  # no cost, all of it
# Numbers that these modules may define, each for a reason.
OTHERS = {
    "GENERATIONS": "names of GPU generations",
    "HOST_EACH_CHANNEL": "versions of NCCL",
    "HOST_EACH_SEND": "versions of NCCL",
    "ANY": "more bytes than any message has",
    "FREE": "next to nothing: the engine wants a part of something",
    "GRAIN": "bytes to which NCCL rounds chunks: a rule, which takes no time",
    "SLOW_NVLS": "by which NCCL chooses chunks",
    "RING_STEPS": "slots of NCCL's chunks and slices",
    "LAST_ALIGNMENT": "bytes to which NCCL rounds chunks",
    "LEAST_TRAFFIC": "bytes from which NCCL gives work another channel",
    "ALIGNMENT": "bytes to which NCCL rounds parts of work",
    "MAX_CACHED_ROWS": "when rows are kept for other sizes",
    "MAX_CHILDREN": "children of a rank in NCCL's trees",
    "NVLINK_WIRE": "wires of a hop over NVLink",
    "PCIE_WIRE": "wires of a hop over PCIe",
    "PASS": "columns of a table of rows",
    "COLUMNS": "columns of a table of rows",
    "FURTHER_STORE": "keys are architectures",
    "PCIE_MEASURED": "generations of PCIe",
    "PCIE_LANE": "rates of lanes by the base specifications of PCI-SIG",
    "_halvings": "by which NCCL chooses chunks",
    "_moves": "passes over memory: an operation reads and writes",
}


def tree_of(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text())


def numbers(node: ast.AST, *, whole: bool = True) -> list[float]:
    """Numbers that stand for something; those in brackets choose one of several."""
    if isinstance(node, ast.Constant):
        kinds = (int, float) if whole else (float,)
        return [node.value] * (type(node.value) in kinds and node.value not in NEUTRAL)
    skipped = [node.slice] if isinstance(node, ast.Subscript) else []
    inside = (one for one in ast.iter_child_nodes(node) if one not in skipped)
    return [number for one in inside for number in numbers(one, whole=whole)]


def defined(tree: ast.Module) -> Iterator[tuple[str, list[float]]]:
    """The figures that a module defines, by name: those of the module and of classes, defaults of
    parameters, and whatever is no whole number inside functions.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            defaults = [*node.args.defaults, *(one for one in node.args.kw_defaults if one)]
            yield node.name, [number for one in defaults for number in numbers(one)]
            yield node.name, [n for one in node.body for n in numbers(one, whole=False)]
    for scope in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        for node in scope.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if not isinstance(target, ast.Name):
                    continue  # several at once: names of regions and kinds, which are no figures
                name = scope.name if isinstance(scope, ast.ClassDef) else target.id
                yield name, numbers(node.value)


def bare(tree: ast.Module) -> list[tuple[str, float]]:
    return [(name, n) for name, found in defined(tree) if name not in OTHERS for n in found]


@pytest.mark.slow
@pytest.mark.parametrize("module", HOLDERS)
def test_modules_take_their_figures_from_the_table(module: str) -> None:
    assert not bare(tree_of(module)), (
        "give it an entry in netsim/base/constants.csv, with its origin"
    )


@pytest.mark.parametrize("module", BESIDE)
def test_others_define_none_at_their_top(module: str) -> None:
    tree = tree_of(module)
    tree.body = [node for node in tree.body if isinstance(node, ast.Assign)]
    assert not bare(tree), "give it an entry in netsim/base/constants.csv, with its origin"


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "NEW = 3e-6",
        "NEW: float = 3e-6",
        "NEW = {90: (2.5, 7)}",
        "@dataclass\nclass New:\n    cost: float = 0.3e-6",
        "def new(sync: float = 2e-6) -> float:\n    return sync",
        "def new(sync: float) -> float:\n    return sync + 0.4e-6",
        'NEW = Transport("new", hop=1e-6, usable=0.9)',
    ],
)
@pytest.mark.parametrize("module", ["nccl/constants.py", "topology/host.py"])
def test_a_figure_without_an_origin_is_noticed(module: str, line: str) -> None:
    assert bare(ast.parse((ROOT / module).read_text() + "\n" + line))


def test_evidence_stands_in_the_table_alone() -> None:
    for module in [*HOLDERS, *BESIDE]:
        text = (ROOT / module).read_text()
        named = [run for run in RUNS if run in text]
        assert not named, f"{module} names {named}: say it in netsim/base/constants.csv"


def test_nobody_says_otherwise() -> None:
    pages = [*ROOT.rglob("*.py"), *Path("docs").glob("*.md"), Path("README.md")]
    for path in pages:
        text = " ".join(path.read_text().split()).casefold()
        assert "nothing here is fitted" not in text, path
        assert "comments in `netsim/" not in text, path


@pytest.mark.parametrize("one", TABLE.values(), ids=lambda one: one.id)
def test_every_constant_says_where_it_is_from(one: Constant) -> None:
    assert one.unit in UNITS
    assert one.belongs
    if one.fitted is None:
        assert len(one.source) > 10
        return
    known = STEPS if one.fitted.estimator.endswith("by_steps") else RUNS
    assert set(one.fitted.runs) <= known, "runs are those of scenarios/measured"
    assert one.fitted.evidence
    module, _, name = one.fitted.estimator.partition(":")
    assert getattr(import_module(module), name) is ESTIMATORS[name]


@pytest.mark.parametrize(
    "origin", [{}, {"source": "a source", "fitted": Fitted(("a_run",), "shows it")}]
)
def test_a_constant_has_one_origin(origin: dict) -> None:
    with pytest.raises(ValueError, match="expected either a source or the runs of a fit"):
        Constant("new", 1.0, "s", "blocks", **origin)


def test_other_units_and_fits_to_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a unit of s, bytes/s, bytes, 1, got 'us'"):
        Constant("new", 1.0, "us", "blocks", source="a source")
    with pytest.raises(ValueError, match="expected at least one run"):
        Constant("new", 1.0, "s", "blocks", fitted=Fitted((), "shows it"))


def read() -> Iterator[str]:
    """What is asked of the table, as patterns of ids."""
    for path in ROOT.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            name = getattr(call.func, "id", "") if isinstance(call, ast.Call) else ""
            if name == "_own" and isinstance(call.args[1], ast.Constant):
                yield rf"(.+\.)?{re.escape(str(call.args[1].value))}"
            if name not in ("value", "_part", "_by_protocol") or not call.args:
                continue
            parts = getattr(call.args[0], "values", [call.args[0]])
            told = [getattr(part, "value", None) for part in parts]
            if any(isinstance(part, str) and (len(part) > 1 or part == ".") for part in told):
                text = "".join(re.escape(p) if isinstance(p, str) else ".+" for p in told)
                yield text + (r"\.(ll|ll128|simple)" if name == "_by_protocol" else "")


@pytest.mark.full
def test_every_constant_is_used() -> None:
    patterns = [re.compile(pattern) for pattern in set(read())]
    assert not [id for id in TABLE if not any(one.fullmatch(id) for one in patterns)]


def test_transports_are_what_the_table_says() -> None:
    for one in TRANSPORTS.values():
        stated = TABLE[f"{one.name}.hop"].value, TABLE[f"{one.name}.usable"].value
        assert (one.hop, one.usable) == stated


def test_doctor_shows_them_all(capsys) -> None:
    lines = netsim_command(capsys, "doctor", "--constants").out.splitlines()
    assert lines[0].split()[:3] == ["constant", "value", "unit"]
    shown = {line.split()[0]: line for line in lines[1:-1]}
    assert set(shown) == set(TABLE)
    assert "4.55" in shown["launch.host"]
    assert "fitted to h100_sxm_8_all_reduce_1" in shown["launch.host"]
    assert shown["sm_90.rate.simple"].split()[1:3] == ["46", "GB/s"]
    assert "given: libfabric" in shown["cxi.software.copied_bytes"]
    assert lines[-1].startswith(f"{len(TABLE)} constants: ")


SYSTEMS = {entry.id: entry.system for entry in read_index(MEASURED / "index.yaml")}
# Constants that a single figure of one system shows, so that there is no interval.
OF_ONE_FIGURE = {"cxi.eager_bytes", "efa.usable", "slingshot.usable", "tcp.nic_cap"}


def test_a_constant_known_from_one_system_has_an_interval() -> None:
    for one in TABLE.values():
        if one.fitted is None or one.fitted.estimator.endswith("by_steps"):
            continue
        systems = {SYSTEMS[run] for run in one.fitted.runs}
        expected = len(systems) == 1 and one.id not in OF_ONE_FIGURE
        assert (one.interval is not None) == expected, one.id


def test_a_value_lies_in_its_interval() -> None:
    with pytest.raises(ValueError, match=r"2\.0 is not between 3\.0 and 4\.0"):
        Constant("new", 2.0, "s", "blocks", source="a source", interval=(3.0, 4.0))


def test_doctor_says_what_is_known_from_one_system(capsys) -> None:
    lines = netsim_command(capsys, "doctor", "--constants").out.splitlines()
    (line,) = (line for line in lines if line.startswith("pcie.both_ways.gen3"))
    assert line.endswith("known from one system, between 1.46 and 1.63")


def test_every_constant_that_was_fitted_to_runs_has_its_line_of_evidence() -> None:
    with Path("docs/evidence.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    runs = {entry.id for entry in read_index(Path("scenarios/measured/index.yaml"))}
    fitted = {one.id for one in TABLE.values() if one.fitted and runs & {*one.fitted.runs}}
    assert {one["id"] for one in lines} == fitted
    for one in lines:
        errors = [float(value) for key, value in one.items() if " " in key]
        assert len(errors) == 16
        assert all(error >= 0 for error in errors)
        assert int(one["changed_runs"]) >= 1
