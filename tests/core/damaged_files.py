"""Files that netsim reads, the readers that read them, and how a file is damaged.

Real files (those of the repository, and those that runs write) are edited at random places. A
reader may take what it gets or refuse it with a `NetsimError`; anything else is a bug.
"""

import gzip
import re
import signal
import sqlite3
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

from hypothesis import strategies as st

import netsim.cli
from netsim.base.errors import NetsimError
from netsim.cli.files import check_file
from netsim.cli.topo_subject import TopologyOptions, find_subject
from netsim.costs.prices import load_prices
from netsim.measured.accuracy import read_accuracy
from netsim.measured.accuracy_records import AccuracyRecords
from netsim.measured.index import mapped, read_index
from netsim.measured.logs import read_log
from netsim.nccl.graph_xml import read_graph_file
from netsim.nccl.tuning import read_tuner
from netsim.plots.sizes import read_all, read_results
from netsim.plots.style import read_values
from netsim.plots.timeline import read_gantt, read_load
from netsim.results.folder import open_folder
from netsim.results.journal import Journal
from netsim.results.workspace import JOURNAL, MANIFEST, read_manifest
from netsim.scenario.cells import expand_all
from netsim.sweep.run import Cache
from netsim.tasks.answer import load_source
from netsim.topology.foreign.formats import read_foreign
from netsim.topology.load import load_machine
from netsim.trace.goal import read_goal, replayed
from netsim.training.recorded.chakra import read_rank
from netsim.training.recorded.kineto import read_profile

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 20  # after which a reader is taken for one that hangs
MOST_BYTES = 60_000  # of a file that is damaged; of larger ones the beginning
TOKENS = [
    b"\xef\xbb\xbf", b"\0", b"\xff\xfe", b"\r\n", b"\r", b"\n", b"\n\n", b"\t", b" ", b"'", b'"',
    b",", b"-", b"--", b"=", b":", b": ", b"#", b"{", b"}", b"[", b"]", b"[]", b"{}", b"<", b"</a>",
    b"<a>", b"&a ", b"*a", b"!!python/object:os.system ", b"<<: *a", b"| ", b"> ", b"? ", b"%",
    b"nan", b"NaN", b"inf", b"-inf", b"Infinity", b"1e999", b"-1e999", b"1e-400", b"0", b"-0",
    b"-1", b"0.5", b"1_000", b"99999999999999999999", b"9" * 5000, b"0x10", b"1e5", b"true",
    b"null", b"~", b"None", b"yes", b"2001-01-01", b"\xe2\x98\x83", "\u202e٣".encode(), b"\x1b[31m",
    b"..", b"/", b"\\", b"../../etc", b"x" * 3000, b"[" * 2000, b"{a: " * 500, b"<a>" * 500,
    b"- " * 500, b'{"a":' * 2000, b"GPU", b"B", b"GB", b"Gbps", b"us", b"KiB", b"&#0;", b"&lt;",
    b"<!DOCTYPE a>", b"<![CDATA[", b"ok", b"error",
]  # fmt: skip
NUMBERS = [
    b"0", b"-1", b"1e30", b"nan", b"1.5", b"18446744073709551616", b"x", b"", b"000", b"1e-9",
    b"1099511627776",
]  # fmt: skip


# **** Damage ****


@dataclass(frozen=True)
class Edit:
    """The bytes of a file from `start` to `stop` become others."""

    start: int
    stop: int
    replacement: bytes


def damaged(content: bytes, edits: Sequence[Edit], kept_of_gzip: int | None = None) -> bytes:
    """Return the content after the edits, the last place first; `kept_of_gzip` compresses it and
    keeps that number of bytes."""
    edited = content
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        edited = edited[: edit.start] + edit.replacement + edited[edit.stop :]
    return edited if kept_of_gzip is None else gzip.compress(edited)[:kept_of_gzip]


def spans_of(content: bytes, pattern: bytes) -> st.SearchStrategy[tuple[int, int]]:
    """Return a strategy for the places of a pattern, or for any place where there is none."""
    spans = [match.span() for match in re.finditer(pattern, content)]
    return st.sampled_from(spans) if spans else any_span(content)


def any_span(content: bytes) -> st.SearchStrategy[tuple[int, int]]:
    """Return a strategy for places of a few bytes, of many, or of all that follows."""
    lengths = st.sampled_from((0, 1, 4, 30, 1000, len(content)))
    starts = st.integers(0, len(content))
    return st.builds(lambda start, length: (start, start + length), starts, lengths)


@st.composite
def edits_of(draw: st.DrawFn, content: bytes, others: Sequence[bytes]) -> Edit:
    """Draw an edit: a span, a line or a number becomes a token, a part of a file, or nothing."""
    place = draw(st.sampled_from(("span", "line", "number")))
    if place == "number":
        start, stop = draw(spans_of(content, rb"[0-9]+"))
        return Edit(start, stop, draw(st.sampled_from(NUMBERS)))
    if place == "line":
        start, stop = draw(spans_of(content, rb"[^\n]*\n"))
        other_start, other_stop = draw(spans_of(content, rb"[^\n]*\n"))
        source = content
    else:
        start, stop = draw(any_span(content))
        source = draw(st.sampled_from(others))
        other_start, other_stop = draw(any_span(source))
    part = source[other_start : min(other_stop, other_start + 200)]
    replacement = draw(
        st.one_of(
            st.sampled_from(TOKENS),
            st.binary(min_size=1, max_size=1),
            st.sampled_from((b"", part, part + content[start:stop], 2 * content[start:stop])),
        )
    )
    return Edit(start, stop, replacement)


@st.composite
def damaged_files(draw: st.DrawFn, contents: Sequence[bytes]) -> tuple[int, list[Edit], int | None]:
    """Draw the number of a file, its edits, and of one in 30 what is kept of its gzip."""
    number = draw(st.integers(0, len(contents) - 1))
    edits = draw(st.lists(edits_of(contents[number], contents), min_size=1, max_size=4))
    is_compressed = draw(st.integers(0, 29)) == 29
    kept_of_gzip = draw(st.sampled_from((10, 40, 10**9))) if is_compressed else None
    return number, edits, kept_of_gzip


# **** Readers ****


def run_command(*arguments: str) -> int:
    """Run a command in this process; return its exit code: 0, or 1 or 2 with a message.

    Raises AssertionError if it ends otherwise, calls itself a bug or wants more memory.
    """
    errors = StringIO()
    code: object = 0
    with redirect_stderr(errors), redirect_stdout(StringIO()):
        try:
            netsim.cli.main(arguments)
        except SystemExit as end:
            code = end.code or 0
    message = errors.getvalue()
    is_bug = any(words in message for words in ("a bug in netsim", "out of memory", "Traceback"))
    is_refusal = code in (1, 2) and bool(message.strip())
    if is_bug or not (code == 0 or is_refusal):
        raise AssertionError(f"exit code {code}: {message}")
    assert isinstance(code, int)
    return code


def read_scenario(path: Path) -> None:
    expansion = expand_all(load_source(path))
    for point in expansion.points[:3]:
        str(getattr(point, "error", ""))


def read_measured_index(path: Path) -> None:
    for entry in read_index(path)[:3]:
        entry.rows()
        mapped(entry)


def results_with(path: Path, name: str) -> Path:
    """Return a results folder that holds a file in the place of one of its own."""
    source = path.parent.parent / "run"
    folder = path.parent / "folder"
    folder.mkdir(exist_ok=True)
    for file in (JOURNAL, MANIFEST, "results.csv"):
        content = (path if file == name else source / file).read_bytes()
        (folder / file).write_bytes(content)
    return folder


def read_journal(path: Path) -> None:
    made = results_with(path, JOURNAL)
    with open_folder(made, "fuzzed", resume=True) as folder:
        folder.write_results([*folder.finished.values()], ["cluster.nodes"])
        read_all([made / "results.csv"])


def read_accuracy_journal(path: Path) -> None:
    with Journal.open_to_read(path) as journal:
        journal.read(AccuracyRecords().take)


def read_results_manifest(path: Path) -> None:
    made = results_with(path, MANIFEST)
    with suppress(NetsimError):
        read_manifest(made)
    run_command("report", str(made), "--no-explain")


def read_cache(path: Path) -> None:
    file = path.parent / "rows.sqlite"
    database = sqlite3.connect(file)
    columns = "cell text, size integer, engine text, version text, row text"
    database.execute("drop table if exists rows")
    database.execute(f"create table rows ({columns})")
    row = (netsim.cli.__version__, path.read_bytes())
    database.execute("insert into rows values ('a', 8, 'simpy', ?, ?)", row)
    database.commit()
    database.close()
    cache_of_rows = Cache(file)
    cache_of_rows.find(("a", 8), "simpy")
    cache_of_rows.close()


def run_schedule(path: Path) -> None:
    """Read, verify and run a schedule of MSCCL's or MSCCL++'s."""
    file = path.with_name("planned.yaml")
    file.write_text(PLANNED.replace("ALGORITHM", path.name).replace(", OUTPUT", ""))
    run_command("run", str(file), "-q", "-o", str(path.with_name("ran")))


@dataclass(frozen=True)
class Kind:
    """A reader, the files that are damaged for it, and the name that a damaged one has."""

    read: Callable[[Path], object]
    patterns: tuple[str, ...]  # of the repository, or RUNS/ of the files that runs write
    name: str


KINDS = {
    "scenario": Kind(read_scenario, ("scenarios/*.yaml",), "x.yaml"),
    "machine": Kind(load_machine, ("topologies/*.yaml",), "x.yaml"),
    "check": Kind(
        check_file,
        (
            "scenarios/quickstart.yaml",
            "scenarios/two-hosts.yaml",
            "scenarios/tp-across-nodes.yaml",
            "topologies/a*.yaml",
        ),
        "x.yaml",
    ),
    "prices": Kind(lambda path: load_prices(str(path)), ("netsim/costs/prices.yaml",), "x.yaml"),
    "index": Kind(read_measured_index, ("scenarios/measured/index.yaml",), "index.yaml"),
    "log": Kind(
        read_log, ("tests/data/logs/*.txt", "tests/data/nccl_tests/*", "RUNS/*.log"), "x.log"
    ),
    "table": Kind(read_log, ("scenarios/measured/csv/*.csv",), "x.csv"),
    "json log": Kind(read_log, ("RUNS/log.json",), "x.json"),
    "xml": Kind(read_foreign, ("tests/data/nccl/topo/*.xml", "RUNS/*.xml"), "x.xml"),
    "subject": Kind(
        lambda path: find_subject(path.as_posix(), TopologyOptions()),
        ("tests/data/nccl/topo/*.xml", "RUNS/topo.*"),
        "x.xml",
    ),
    "graph": Kind(read_graph_file, ("RUNS/graph.xml",), "x.xml"),
    "smi": Kind(lambda path: read_foreign(path, gpu="H100"), ("tests/data/smi/*.txt",), "x.txt"),
    "network": Kind(read_foreign, ("RUNS/topo.json", "RUNS/topo.yml"), "x.json"),
    "tuner": Kind(read_tuner, ("RUNS/tuner.csv",), "x.csv"),
    "results": Kind(
        lambda path: (read_all([path]), read_results([path])),
        ("RUNS/run/results.csv",),
        "results.csv",
    ),
    "values": Kind(
        lambda path: read_values(path, (), "values"),
        ("RUNS/step/breakdown.csv", "RUNS/step/memory*.csv"),
        "x.csv",
    ),
    "timeline": Kind(read_gantt, ("RUNS/step/trace.csv", "RUNS/run/trace.csv"), "trace.csv"),
    "load": Kind(read_load, ("RUNS/run/links_over_time.csv",), "links_over_time.csv"),
    "trace": Kind(read_profile, ("RUNS/step/trace.json*",), "trace.json"),
    "goal": Kind(lambda path: replayed(read_goal(path), 99), ("tests/data/goal/*",), "x.goal"),
    "chakra": Kind(read_rank, ("RUNS/step/chakra/*.et",), "x.et"),
    "accuracy": Kind(read_accuracy, ("RUNS/accuracy.json",), "x.json"),
    "parts": Kind(read_accuracy_journal, ("RUNS/parts.jsonl",), "x.jsonl"),
    "journal": Kind(read_journal, ("RUNS/run/journal.jsonl",), JOURNAL),
    "manifest": Kind(read_results_manifest, ("RUNS/run/run.json",), MANIFEST),
    "msccl": Kind(run_schedule, ("RUNS/plan-msccl/*.xml",), "x.xml"),
    "mscclpp": Kind(run_schedule, ("RUNS/plan-mscclpp/plan.json",), "x.json"),
    "cache": Kind(read_cache, ("RUNS/row.json",), "row.json"),
}


@cache
def contents_of(name: str, runs: Path) -> list[bytes]:
    """Return the files that are damaged for a kind, unpacked and cut."""
    contents = []
    for pattern in KINDS[name].patterns:
        is_of_run = pattern.startswith("RUNS/")
        folder = runs if is_of_run else ROOT
        for path in sorted(folder.glob(pattern.removeprefix("RUNS/"))):
            content = path.read_bytes()
            unpacked = gzip.decompress(content) if path.suffix == ".gz" else content
            contents.append(unpacked[:MOST_BYTES])
    assert contents, name
    return contents


def failure_of(name: str, content: bytes, runs: Path) -> str:
    """Return how the reader of a kind fails on a content; "" if it takes or refuses it."""
    kind = KINDS[name]
    folder = runs / "damaged"
    folder.mkdir(exist_ok=True)
    path = folder / kind.name
    path.write_bytes(content)
    signal.signal(signal.SIGALRM, raise_timeout)
    signal.alarm(PATIENCE_SECONDS)
    try:
        with redirect_stderr(StringIO()), redirect_stdout(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.read(path)
    except NetsimError as error:
        return "" if str(error).strip() else "an error without words"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of whatever kind: it is a bug, and the test says where
        return "".join(traceback.format_exception(error, limit=-4))
    finally:
        signal.alarm(0)
    return ""


def raise_timeout(*_: object) -> None:
    raise TimeoutError(f"more than {PATIENCE_SECONDS} s")


# **** Files that only runs write ****

PLANNED = """\
name: planned
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ALGORITHM, sizes: [64KiB]}
outputs: [csv, OUTPUT]
"""
RUN = """\
name: fuzzed
cluster: {machine: dgx-h100, nodes: 2}
workload: {collective: all_reduce, sizes: [1KiB, 1MiB]}
sweep: {cluster.nodes: [1, 2]}
outputs: [csv, trace]
"""
STEP = """\
name: step
cluster: {machine: dgx-h100, nodes: 1}
workload:
  model: bert-base
  batch: 8
outputs: [csv, trace, chakra]
"""
ASTRA = """\
topology: [Ring, Switch]
npus_count: [4, 2]
bandwidth: [50.0, 25.0]
latency: [500.0, 700.0]
"""
INDEX = """\
- id: one
  file: run.csv
  collective: all_reduce
  healthy: 'yes'
  nccl: 2.20.3
  topology: {machine: rtx2080ti-x2, nodes: 1, gpus_per_node: 2}
"""
TABLE = (
    "size_bytes,count,dtype,redop,root,oop_time_us,oop_algbw_gbps,oop_busbw_gbps,"
    "ip_time_us,ip_algbw_gbps,ip_busbw_gbps\n8,2,float,sum,-1,20,,,19,,\n"
)
PART = '{"part": "ab", "answer": {"run": "one", "points": [], "failed": [], "notes": ["n"]}}\n'
FILES = {
    "run.yaml": RUN,
    "step.yaml": STEP,
    "index.yaml": INDEX,
    "run.csv": TABLE,
    "topo.yml": ASTRA,
    "parts.jsonl": 3 * PART,
}
PLANS = (("msccl", "ring"), ("mscclpp", "direct"))
COMMANDS = (
    "run AT/run.yaml -q -o AT/run",
    "run AT/step.yaml -q -o AT/step",
    "accuracy AT/index.yaml -q --jobs 1 --json AT/accuracy.json",
    "expect dgx-h100 all_reduce --nodes 2 --sizes 1K,1M -J AT/log.json",
    "expect dgx-h100 all_reduce --nodes 2 --sizes 1K,1M --graph-out AT/graph.xml",
    "expect dgx-h100 all_reduce --nodes 2 --sizes 1K,1M --tuner-out AT/tuner.csv",
    "topo export dgx-h100 --nodes 2 --format json -o AT/topo.json",
    "topo export dgx-h100 --format nccl -o AT/topo.xml",
    "topo export dgx-h100 --nodes 2 --format custom -o AT/topo.yaml",
)


def write_runs(folder: Path) -> None:
    """Write the files that only runs write."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for output, algorithm in PLANS:
        text = PLANNED.replace("ALGORITHM", algorithm).replace("OUTPUT", output)
        (folder / f"{output}.yaml").write_text(text)
        run_command("run", f"{folder}/{output}.yaml", "-q", "-o", f"{folder}/plan-{output}")
    for command in COMMANDS:
        run_command(*command.replace("AT/", f"{folder.as_posix()}/").split())
    first_row = (folder / "run" / JOURNAL).read_bytes().splitlines(keepends=True)[0]
    (folder / "row.json").write_bytes(first_row)
