"""python -m tests.fuzz [--count N] [--seed S] [--kind KIND…]: every reader, given damaged files.

Real files (those of the repository, and those that runs write) are changed at random; a reader may
take what it gets or refuse it with an error of ours. Anything else is a bug, printed with the seed
that makes it again (`--seed S --count 1 --kind KIND`), and so is what takes more than `PATIENCE`.
"""

import argparse
import gzip
import random
import signal
import sqlite3
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import netsim.cli
from netsim.base.errors import NetsimError
from netsim.cli.files import check_file
from netsim.cli.topo_subject import TopologyOptions, find_subject
from netsim.costs.prices import load_prices
from netsim.measured.accuracy import Journal, read_accuracy
from netsim.measured.index import mapped, read_index
from netsim.measured.logs import read_log
from netsim.nccl.graph_xml import read_graph_file
from netsim.nccl.tuning import read_tuner
from netsim.plots.sizes import read_all, read_results
from netsim.plots.style import read_values
from netsim.plots.timeline import read_gantt, read_load
from netsim.results.folder import open_folder
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
PATIENCE = 20  # seconds
LARGEST = 60_000  # bytes of a file that is changed; of larger ones the beginning
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

NUMBERS = (
    b"0",
    b"-1",
    b"1e30",
    b"nan",
    b"1.5",
    b"18446744073709551616",
    b"x",
    b"",
    b"000",
    b"1e-9",
    b"1099511627776",
)


def changed(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """The content after one to four changes."""
    data = bytearray(content[:LARGEST])
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        at, until = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        until = min(until, at + rng.choice((1, 4, 30, 1000)))
        kind = rng.randrange(12)
        lines = data.splitlines(keepends=True)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:until]
        elif kind == 2:
            data[at:at] = data[at:until]
        elif kind in (3, 4, 5):
            data[at : at if kind == 3 else until] = rng.choice(TOKENS)
        elif kind == 6:
            del data[at:]
        elif kind == 7 and lines:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
            data = bytearray(b"".join(lines))
        elif kind == 8 and lines:
            lines.pop(rng.randrange(len(lines)))
            data = bytearray(b"".join(lines))
        elif kind == 9:
            other = rng.choice(others)[:LARGEST]
            start = rng.randrange(len(other) + 1)
            data[at:until] = other[start : start + rng.choice((10, 200))]
        elif kind in (10, 11):
            data = number_changed(data, rng)
    return bytes(data)


def number_changed(data: bytearray, rng: random.Random) -> bytearray:
    """The data with a run of digits replaced."""
    places = [n for n, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return data
    at = rng.choice(places)
    end = at
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    data[at:end] = rng.choice(NUMBERS)
    return data


def scenario(path: Path) -> None:
    expansion = expand_all(load_source(path))
    for point in expansion.points[:3]:
        str(getattr(point, "error", ""))


def index(path: Path) -> None:
    for entry in read_index(path)[:3]:
        entry.rows()
        mapped(entry)


def folder_of(path: Path, name: str) -> Path:
    """A results folder that holds a file in the place of one of its own."""
    whole = RUNS[0] / "run"
    made = path.parent / "folder"
    made.mkdir(exist_ok=True)
    for file in (JOURNAL, MANIFEST, "results.csv"):
        (made / file).write_bytes((path if file == name else whole / file).read_bytes())
    return made


def journal(path: Path) -> None:
    made = folder_of(path, JOURNAL)
    with open_folder(made, "fuzzed", resume=True) as folder:
        folder.write_results([*folder.finished.values()], ["cluster.nodes"])
        for file in (made / "results.csv",):
            read_all([file])


def manifest(path: Path) -> None:
    made = folder_of(path, MANIFEST)
    with suppress(NetsimError):
        read_manifest(made)
    command("report", str(made), "--no-explain")


def cache(path: Path) -> None:
    base = sqlite3.connect(path.parent / "rows.sqlite")
    base.execute("drop table if exists rows")
    base.execute("create table rows (cell text, size integer, engine text, version text, row text)")
    base.execute(
        "insert into rows values ('a', 8, 'simpy', ?, ?)",
        (netsim.cli.__version__, path.read_bytes()),
    )
    base.commit()
    base.close()
    known = Cache(path.parent / "rows.sqlite")
    known.find(("a", 8), "simpy")
    known.close()


def planned(path: Path) -> None:
    """A schedule of MSCCL's or MSCCL++'s is read, verified and run."""
    file = path.with_name("planned.yaml")
    file.write_text(PLANNED.replace("ALGORITHM", path.name).replace(", OUTPUT", ""))
    command("run", str(file), "-q", "-o", str(path.with_name("ran")))


def accuracy_journal(path: Path) -> None:
    Journal(path).read()


def command(*arguments: str) -> None:
    """A command in this process, whose text must not call itself a bug or want more memory."""
    said = StringIO()
    with redirect_stderr(said), redirect_stdout(StringIO()), suppress(SystemExit):
        netsim.cli.main(arguments)
    if any(words in said.getvalue() for words in ("a bug in netsim", "out of memory")):
        raise AssertionError(said.getvalue())


# Reader by kind, with the files that are changed and how these are called.
Reader = Callable[[Path], object]
KINDS: dict[str, tuple[Reader, tuple[str, ...], str]] = {
    "scenario": (scenario, ("scenarios/*.yaml",), "x.yaml"),
    "machine": (load_machine, ("topologies/*.yaml",), "x.yaml"),
    "check": (
        check_file,
        (
            "scenarios/quickstart.yaml",
            "scenarios/two-hosts.yaml",
            "scenarios/tp-across-nodes.yaml",
            "topologies/a*.yaml",
        ),
        "x.yaml",
    ),
    "prices": (lambda path: load_prices(str(path)), ("netsim/costs/prices.yaml",), "x.yaml"),
    "index": (index, ("scenarios/measured/index.yaml",), "index.yaml"),
    "log": (read_log, ("tests/data/logs/*.txt", "tests/data/nccl_tests/*", "RUNS/*.log"), "x.log"),
    "table": (read_log, ("scenarios/measured/csv/*.csv",), "x.csv"),
    "json log": (read_log, ("RUNS/log.json",), "x.json"),
    "xml": (read_foreign, ("tests/data/nccl/topo/*.xml", "RUNS/*.xml"), "x.xml"),
    "subject": (
        lambda path: find_subject(path.as_posix(), TopologyOptions()),
        ("tests/data/nccl/topo/*.xml", "RUNS/topo.*"),
        "x.xml",
    ),
    "graph": (read_graph_file, ("RUNS/graph.xml",), "x.xml"),
    "smi": (lambda path: read_foreign(path, gpu="H100"), ("tests/data/smi/*.txt",), "x.txt"),
    "network": (read_foreign, ("RUNS/topo.json", "RUNS/topo.yml"), "x.json"),
    "tuner": (read_tuner, ("RUNS/tuner.csv",), "x.csv"),
    "results": (
        lambda path: (read_all([path]), read_results([path])),
        ("RUNS/run/results.csv",),
        "results.csv",
    ),
    "values": (
        lambda path: read_values(path, (), "values"),
        ("RUNS/step/breakdown.csv", "RUNS/step/memory*.csv"),
        "x.csv",
    ),
    "timeline": (read_gantt, ("RUNS/step/trace.csv", "RUNS/run/trace.csv"), "trace.csv"),
    "load": (read_load, ("RUNS/run/links_over_time.csv",), "links_over_time.csv"),
    "trace": (read_profile, ("RUNS/step/trace.json*",), "trace.json"),
    "goal": (lambda path: replayed(read_goal(path), 99), ("tests/data/goal/*",), "x.goal"),
    "chakra": (read_rank, ("RUNS/step/chakra/*.et",), "x.et"),
    "earlier": (read_accuracy, ("RUNS/accuracy.json",), "x.json"),
    "parts": (accuracy_journal, ("RUNS/parts.jsonl",), "x.jsonl"),
    "journal": (journal, ("RUNS/run/journal.jsonl",), JOURNAL),
    "manifest": (manifest, ("RUNS/run/run.json",), MANIFEST),
    "msccl": (planned, ("RUNS/plan-msccl/*.xml",), "x.xml"),
    "mscclpp": (planned, ("RUNS/plan-mscclpp/plan.json",), "x.json"),
    "cache": (cache, ("RUNS/row.json",), "row.json"),
}
RUNS: list[Path] = []  # where the files are that runs have written

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


def make_runs(folder: Path) -> None:
    """Files that only runs write."""
    RUNS[:] = [folder]
    for name, text in {
        "run.yaml": RUN,
        "step.yaml": STEP,
        "index.yaml": INDEX,
        "run.csv": TABLE,
    }.items():
        (folder / name).write_text(text)
    at = folder.as_posix()
    command("run", f"{at}/run.yaml", "-q", "-o", f"{at}/run")
    command("run", f"{at}/step.yaml", "-q", "-o", f"{at}/step")
    for form, made in (("msccl", "ring"), ("mscclpp", "direct")):
        text = PLANNED.replace("ALGORITHM", made).replace("OUTPUT", form)
        (folder / "plan.yaml").write_text(text)
        command("run", f"{at}/plan.yaml", "-q", "-o", f"{at}/plan-{form}")
    command("accuracy", f"{at}/index.yaml", "-q", "--jobs", "1", "--json", f"{at}/accuracy.json")
    expect = ("expect", "dgx-h100", "all_reduce", "--nodes", "2", "--sizes", "1K,1M")
    command(*expect, "-J", f"{at}/log.json")
    command(*expect, "--graph-out", f"{at}/graph.xml")
    command(*expect, "--tuner-out", f"{at}/tuner.csv")
    for form, name, hosts in (
        ("json", "topo.json", "2"),
        ("nccl", "topo.xml", "1"),
        ("custom", "topo.yaml", "2"),
    ):
        nodes = ("--nodes", hosts) if hosts != "1" else ()
        command("topo", "export", "dgx-h100", *nodes, "--format", form, "-o", f"{at}/{name}")
    (folder / "topo.yml").write_text(ASTRA)
    line = (folder / "run" / JOURNAL).read_bytes().splitlines(keepends=True)[0]
    (folder / "row.json").write_bytes(line)
    answer = (
        b'{"part": "ab", "answer": {"run": "one", "points": [], "failed": [], "notes": ["n"]}}\n'
    )
    (folder / "parts.jsonl").write_bytes(answer * 3)


def seeds_of(kind: str, folder: Path) -> list[bytes]:
    """The files that are changed for a kind."""
    found = []
    for pattern in KINDS[kind][1]:
        root, rest = (folder, pattern[5:]) if pattern.startswith("RUNS/") else (ROOT, pattern)
        for path in sorted(root.glob(rest)):
            content = path.read_bytes()
            found.append(gzip.decompress(content) if path.suffix == ".gz" else content)
    return found


def late(*_: object) -> None:
    raise TimeoutError(f"more than {PATIENCE} s")


def broken(kind: str, content: bytes, folder: Path) -> str:
    """How a reader fails on a content; empty where it takes or refuses it as it should."""
    reader, _, name = KINDS[kind]
    path = folder / name
    path.write_bytes(content)
    signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE)
    try:
        with redirect_stderr(StringIO()), redirect_stdout(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader(path)
    except NetsimError as error:
        return "" if str(error).strip() else "an error without words"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{Path(one.filename).name}:{one.lineno}" for one in frames[-4:]]
        return f"{type(error).__name__}: {str(error)[:150]} ({' '.join(where)})"
    finally:
        signal.alarm(0)
    return ""


def content_of(kind: str, seed: int, seeds: list[bytes]) -> bytes:
    """The changed file of a seed."""
    rng = random.Random(f"{kind} {seed}")
    made = changed(rng.choice(seeds), seeds, rng)
    if rng.random() < 0.03:
        made = gzip.compress(made)[: rng.choice((10, 40, 10**9))]
    return made


def bugs(kinds: list[str], count: int, seed: int, folder: Path) -> list[str]:
    """What readers of some kinds fail on, in so many tries in all; what fails alike once."""
    found: dict[str, str] = {}
    place = folder / "place"
    place.mkdir(exist_ok=True)
    seeds = {kind: seeds_of(kind, folder) for kind in kinds}
    assert all(seeds.values()), [kind for kind, some in seeds.items() if not some]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        which = seed + number // len(kinds)
        why = broken(kind, content_of(kind, which, seeds[kind]), place)
        if why and why.rpartition("(")[2] not in found:
            found[why.rpartition("(")[2]] = f"{kind}, seed {which}: {why}"
            print(f"{kind}, seed {which}: {why}", flush=True)
    return list(found.values())


def main() -> None:
    """All tries; exit code 1 where a reader failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--kind", nargs="+", default=list(KINDS), choices=list(KINDS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_runs(Path(folder))
        found = bugs(given.kind, given.count, given.seed, Path(folder))
    print(f"{given.count} files, {len(found)} ways to fail")
    sys.exit(1 if found else 0)
