"""What commands say, write and draw over small inputs, by verb (see `tests.pins`).

A command runs in this process and in an empty folder: pinned are its exit code, what it prints, the
texts that it writes, and what it draws (lines, bars, words and fixed ticks, no pixels). Versions,
clocks, paths and speeds are left out; numbers in texts count to six digits."""

import contextlib
import gzip
import io
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator

from netsim.cli import main
from tests.pins import Found, family, with_library

ROOT = Path(__file__).parents[1]
NUMBER = re.compile(r"-?\d+\.\d{5,}(e[-+]?\d+)?")
# What is of a machine or an hour: seconds that passed, versions, memory, folders, checksums.
OF_TODAY = re.compile(
    r"\d+(\.\d+)? s(?![a-z/])|\d+(\.\d+)? ?[MG]B(?!/)|netsim \d[\w.+-]*|\d{4}-\d\d-\d\dT[\d:.+Z-]*"
    r"|(?<=</dt><dd>)\d+\.\d[\w.+-]*(?=</dd>)"
)


def steady(text: str, folder: str) -> str:
    """A text without what is of a machine or an hour, its numbers with six digits."""
    text = text.replace(folder, ".").replace(os.path.realpath(folder), ".")
    text = NUMBER.sub(lambda found: f"{float(found.group()):.6g}", text.replace(str(ROOT), "/"))
    return OF_TODAY.sub("_", text)


# **** What is drawn ****


def numbers(values: Any) -> list[float]:
    """Coordinates to six digits, what is next to nothing as nothing."""
    flat = np.ma.filled(np.ma.asarray(values, float), np.nan).ravel()
    large = np.abs(flat[np.isfinite(flat)]).max(initial=0.0)
    return [float(f"{0.0 if abs(one) < 1e-9 * large else one + 0.0:.6g}") for one in flat]


def words(parts: Sequence[Any]) -> list[object]:
    """Texts that can be seen, and where they stand."""
    seen = [one for one in parts if one.get_visible() and one.get_text()]
    return [[one.get_text(), numbers(one.get_position()), str(one.get_color())] for one in seen]


def ticks(axis: Any) -> list[object]:
    """Where ticks were put, and what they say; not those that matplotlib chooses."""
    place, told = axis.get_major_locator(), axis.get_major_formatter()
    if not isinstance(place, FixedLocator):
        return [axis.get_scale()]
    at = list(place.locs)
    names = told.seq if isinstance(told, FixedFormatter) else [told(one, 0) for one in at]
    return [axis.get_scale(), numbers(at), list(names)]


def label(one: Any) -> str:
    """What the legend may call it; not what matplotlib calls what has no name."""
    name = str(one.get_label())
    return "" if name.startswith("_") else name


def panel(axes: Axes) -> list[object]:
    """All that one panel shows."""
    lines = [
        [
            numbers(one.get_xdata()),
            numbers(one.get_ydata()),
            label(one),
            numbers(to_rgba(one.get_color())),
            str(one.get_linestyle()),
            str(one.get_marker()),
            one.get_linewidth(),
            one.get_markersize(),
        ]
        for one in axes.lines
    ]
    bars = [
        [
            numbers(one.get_path().transformed(one.get_patch_transform()).vertices),
            numbers(one.get_facecolor()),
            label(one),
        ]
        for one in axes.patches
    ]
    many = [
        [
            [numbers(path.vertices) for path in one.get_paths()],
            numbers(one.get_offsets()),
            numbers(one.get_facecolor()),
            label(one),
        ]
        for one in axes.collections
    ]
    images = [numbers(one.get_array()) for one in axes.images]
    legend = axes.get_legend()
    key = [one.get_text() for one in legend.get_texts()] if legend else []
    said = [axes.get_title(), axes.get_title("left"), axes.get_xlabel(), axes.get_ylabel()]
    ends = [numbers(axes.get_xlim()), numbers(axes.get_ylim())]
    return [
        said,
        key,
        ends,
        ticks(axes.xaxis),
        ticks(axes.yaxis),
        words(axes.texts),
        lines,
        bars,
        many,
        images,
    ]


def picture(figure: Figure) -> list[object]:
    """All that a figure shows."""
    legends = [[one.get_text() for one in each.get_texts()] for each in figure.legends]
    size = numbers(figure.get_size_inches())
    return [figure.get_suptitle(), size, words(figure.texts), legends, *map(panel, figure.axes)]


@contextlib.contextmanager
def drawings() -> Iterator[dict[str, object]]:
    """Pictures that are saved meanwhile, by name; no pixel is made."""
    kept: dict[str, object] = {}

    def save(figure: Figure, stem: Path, *_: object) -> list[Path]:
        kept[stem.name] = picture(figure)
        path = stem.parent / f"{stem.name}.svg"
        path.write_text("<svg/>", encoding="utf-8")
        return [path]

    with mock.patch("netsim.plots.style.save", save), mock.patch("netsim.report.report.save", save):
        yield kept


# **** Commands ****


def says(*arguments: str, drawn: bool = False) -> list[object]:
    """What a command does, in the folder that one is in: code, words, files, pictures."""
    here, out, err, code = os.getcwd(), io.StringIO(), io.StringIO(), 0
    wide = mock.patch.dict(os.environ, COLUMNS="118")  # whatever terminal this runs in
    with (
        wide,
        drawings() as pictures,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(list(arguments))
        except SystemExit as end:
            code = int(end.code or 0)
    told = [steady(text.getvalue(), here) for text in (out, err)]
    return [code, *told, pictures]


def written(folder: Path) -> dict[str, str]:
    """The texts in a folder, by name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".png", ".svg") and path.name not in SKIPPED:
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
            found[path.relative_to(folder).as_posix()] = steady(text, str(folder))
    return found


SKIPPED = ("run.json", "timings.csv", "journal.jsonl")  # versions, hours and seconds


def session(*commands: str, files: dict[str, str] | None = None) -> Found:
    """Commands one after another in a folder of their own, and what it holds in the end."""
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, text in (files or {}).items():
            Path(name).write_text(text, encoding="utf-8")
        given = set(files or {})
        for command in commands:
            yield command, says(*shlex.split(command))
        for name, text in written(Path(folder)).items():
            if name not in given:
                yield f"{commands[0]}: {name}", text


EXPECTED = (
    "dgx-h100 all_reduce --sizes 8,64K,1M,64M",
    "dgx-h100 all_reduce --nodes 2 --sizes 1K,1M,16M --why 1M",
    "dgx-h100 alltoall --nodes 2 --sizes 64K,4M --format csv",
    "dgx-a100 reduce_scatter --sizes 64K --format json",
    "dgx-a100 broadcast --nodes 2 --sizes 64K --exact",
    "dgx-a100 all_reduce --sizes 64K,1M --noise quiet --samples 5",
    "dgx-a100 all_reduce --nodes 2 --sizes 64K,1M --algo Tree --proto LL --dtype half",
    "dgx-h100 all_reduce --sizes 64K --launch cuda_graph --gpus-per-node 4",
    "dgx-h100 all_reduce --nodes 2 --sizes 1M --fabric leaf-spine --transport roce --nic 200Gbps "
    "--nics-per-node 4",
    "dgx-a100 all_reduce --nodes 2 --sizes 1M --env NCCL_ALGO=Ring --env NCCL_MAX_NCHANNELS=4",
    "dgx-a100 all_reduce --nodes 2 --sizes 64K,1M,64M --acceptance 90%",
    "dgx-a100 all_reduce --sizes 1M --set cluster.gpus_per_node=2",
    "gb200-nvl72 all_reduce --nodes 2 --sizes 64K,4M",
    "mi300x all_reduce --sizes 64K,4M",
    "l40s-pcie-x8 sendrecv --sizes 64K,4M",
    "dgx-1-v100 reduce --sizes 64K --algo ring",
)


@family
def expects() -> Found:
    """Tables of `netsim expect`, with each of its switches."""
    yield from session(*(f"expect {line}" for line in EXPECTED))
    tuned = "expect dgx-a100 all_reduce --nodes 2 --sizes 64K"
    yield from session(
        f"{tuned} --tuner-out t.csv",
        f"{tuned} --tuner t.csv",
        f"{tuned} --graph-out g.xml",
        f"{tuned} --graph g.xml",
    )


STEP = """\
name: step
cluster: {machine: dgx-h100, nodes: 2, gpus_per_node: 4}
workload:
  model: {layers: 4, hidden: 512, heads: 8, kv_heads: 4, ffn: 1024, vocabulary: 1000, sequence: 256}
  batch: 16
  parallelism: {tp: 2, pp: 2, dp: 2, sequence_parallel: true}
"""
SWEEP = """\
name: sweep
cluster: {machine: dgx-a100, nodes: 2, gpus_per_node: 4}
workload: {collective: all_reduce, sizes: [4KiB, 64KiB]}
sweep: {workload.algorithm: [ring, Tree], cluster.fabric.kind: [rail-optimized, leaf-spine]}
prices: default
outputs: [csv, plots, trace]
"""
JOBS = """\
name: jobs
cluster: {machine: dgx-h100, nodes: 4, gpus_per_node: 2,
          fabric: {kind: leaf-spine, nodes_per_leaf: 2, oversubscription: 2}}
jobs:
  - {name: gradients, nodes: 2, workload: {collective: all_reduce, sizes: [1MiB]}}
  - {name: experts, nodes: 2, workload: {collective: alltoall, sizes: [1MiB]}}
sweep:
  variants:
    hosts:
      a leaf each:
      mixed: {jobs.0.placement: [0, 2], jobs.1.placement: [1, 3]}
outputs: [csv, plots, trace]
"""
MIXED = """\
name: mixed
cluster: {machine: dgx-h100, nodes: 3, gpus_per_node: 2, fabric: {kind: leaf-spine}}
jobs:
  - name: train
    nodes: 2
    workload:
      model: {layers: 1, hidden: 256, heads: 4, ffn: 512, vocabulary: 1000, sequence: 64}
      batch: 8
      parallelism: {dp: 4}
  - {name: sync, nodes: 1, repeat: 2, workload: {collective: all_reduce, sizes: [64KiB]}}
background:
  - {pattern: uniform, load: 10%, size: 64KiB}
noise: quiet
samples: 3
outputs: [csv]
"""
NOISY = """\
name: noisy
cluster: {machine: dgx-h100, gpus_per_node: 4}
workload: {collective: all_reduce, sizes: [64KiB, 1MiB]}
sweep: {seed: [1, 2, 3]}
noise: quiet
samples: 4
outputs: [csv, plots]
"""
SMALL = STEP.replace("nodes: 2, ", "").replace("layers: 4", "layers: 2").replace("pp: 2, ", "")
PLANS = {
    "step.yaml": STEP,
    "small.yaml": SMALL,
    "sweep.yaml": SWEEP,
    "jobs.yaml": JOBS,
    "noisy.yaml": NOISY,
    "mixed.yaml": MIXED,
}


RUNS = (
    "run sweep.yaml --jobs 1 -o a",
    "report a --jobs 1",
    "diff 'a#ring, rail-optimized' 'a#Tree, leaf-spine'",
    "run sweep.yaml --jobs 1 --shard 1/2 -o b",
    "run sweep.yaml --jobs 1 --shard 2/2 -o c",
    "merge b c -o d",
)


@family
def runs() -> Found:
    """Whole runs: tables, files, pictures; put together, compared, reported, drawn again."""
    yield from session(*RUNS, files=PLANS)
    yield from session("run step.yaml --jobs 1 -o a", "report a --jobs 1", files=PLANS)
    yield from session("run jobs.yaml --jobs 1 -o a", "report a --jobs 1", files=PLANS)
    yield from session("run mixed.yaml --jobs 1 -o a", files=PLANS)
    yield from session("run noisy.yaml --jobs 1 -o a", "plot a", files=PLANS)


@family
def searches() -> Found:
    """What `netsim optimize` finds, of how many."""
    never = (
        "algorithm=='PAT'",
        "kind=='torus'",
        "cost_usd<1 and algorithm=='ring'",
        "power_w<1",
        "workload.algorithm=='x'",
    )
    asked = (
        "-o a",
        "--objective cost_usd -o b",
        "--subject-to 'cost_usd<1' -o c",
        *(f'--subject-to "{one}" -o c{n}' for n, one in enumerate(never)),
    )
    yield from session(*(f"optimize sweep.yaml --jobs 1 {one}" for one in asked), files=PLANS)


@with_library("optuna")
def searches_by_trials() -> Found:
    """What is found where not all is tried."""
    yield from session("optimize sweep.yaml --jobs 1 --trials 2 -o d", files=PLANS)


EXPLAINED = (
    "dgx-h100 all_reduce --size 1M",
    "dgx-a100 all_reduce --nodes 2 --size 1M --algo Ring -o x",
    "dgx-h100 alltoall --nodes 2 --gpus-per-node 2 --size 64K --format csv",
    "dgx-a100 all_gather --gpus-per-node 4 --size 64K --format json",
    "ring-of-five --state",
    "small.yaml -o y",
    "jobs.yaml",
    "mi300x all_reduce --size 1M",
    "l40s-pcie-x8 broadcast --size 1M",
)


@family
def explanations() -> Found:
    """Where the time goes, in words, tables and pictures."""
    yield from session(*(f"explain {line}" for line in EXPLAINED), files=PLANS)


SHOWN = (
    "list",
    "show dgx-h100",
    "show dgx-h100 --nodes 16 --fabric leaf-spine --routes --set cluster.fabric.oversubscription=2",
    "show dgx-a100 --nodes 4 --fabric fat-tree --sources",
    "show gb200-nvl72 --nodes 20",
    "show mi300x --nodes 2",
    "show l40s-pcie-x8",
    "show sweep.yaml",
    "show dgx-1-v100 --nodes 2",
    "plot dgx-a100 --nodes 4 -o p",
    "plot gb200-nvl72 --nodes 2 -o q",
    "plot mi300x -o r",
    "lint dgx-h100 --nodes 4",
    "lint l40s-pcie-x8",
    "export dgx-a100 --format nccl",
    "export dgx-h100 --format json",
    "export mi300x --nodes 2 --format custom",
)


MATRICES = {"a100_hgx": "A100", "dgx1v": "V100", "mi300x_rocm": "MI300X", "gh200": "GH200",
            "rtx4090_sys": "RTX4090", "h100_spaces": "H100"}  # fmt: skip


@family
def topologies() -> Found:
    """What `netsim topo` says of machines and fabrics, and what it draws."""
    yield from session(*(f"topo {line}" for line in SHOWN), files=PLANS)
    for name, gpu in MATRICES.items():
        text = (ROOT / "tests" / "data" / "smi" / f"{name}.txt").read_text(encoding="utf-8")
        imported = f"topo import {name}.txt --gpu {gpu} -o made.yaml"
        yield from session(imported, files={f"{name}.txt": text})


@with_library("infragraph")
def graphs_of_infrastructure() -> Found:
    """A topology as InfraGraph has it."""
    yield from session("topo export gb200-nvl72 --format infragraph", files=PLANS)


@family
def tables() -> Found:
    """Constants, invariants, schemas and options, as they are told."""
    yield from session(
        "doctor --constants",
        "doctor --invariants",
        "schema",
        "check sweep.yaml",
        "check step.yaml jobs.yaml noisy.yaml",
        files=PLANS,
    )


@family
def differences() -> Found:
    """Two machines, releases and logs beside one another, and a log beside its simulation."""
    logs = (
        "a100_superbench_8_all_reduce_1",
        "a100_superbench_8_all_gather_1",
        "dgx2_v100_12_all_reduce_1",
    )
    texts = {
        f"{name}.txt": (ROOT / "tests/data/logs" / f"{name}.txt").read_text(encoding="utf-8")
        for name in logs
    }
    few = {name: "\n".join(kept(text)) for name, text in texts.items()}
    first, second, _ = few
    yield from session(
        "diff dgx-h100 dgx-a100 --collective all_reduce --sizes 64K,1M,64M",
        "diff dgx-h100 hgx-h200 --collective alltoall --nodes 2 --gpus-per-node 2 --sizes 64K,4M",
        "diff dgx-a100 dgx-a100 --nccl 2.18,2.27 --nodes 2 --collective all_gather --sizes 1M",
        f"diff {first} dgx-a100",
        f"diff {first} {second}",
        f"compare {first} --topology dgx-a100 -o o",
        f"calibrate {first} --topology dgx-a100 --jobs 1 -o mine.yaml",
        files=few,
    )


def kept(log: str) -> list[str]:
    """Every fifth line of the table of a log."""
    lines = log.splitlines()
    figures = [one for one in lines if re.match(r"\s+\d", one)]
    return [
        one
        for one in lines
        if one not in figures[1::5] + figures[2::5] + figures[3::5] + figures[4::5]
    ]
