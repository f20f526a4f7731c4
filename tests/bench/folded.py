"""Folded runs as whole processes: `fold-PATTERN-RANKS`, from the shell to the table.

`fold-ring-4096` is a ring all-reduce on one switch, `fold-hierarchical-alltoall-131072` an
all-to-all of 16,384 hosts of 8 H100 on one switch, 1 MiB a rank; `-rails` and `-fattree` are hosts
on rail-optimized fabrics and fat trees, which have three levels from 1,024 hosts on.
`fold-nccl-1024` is what NCCL chooses on rails at 31 sizes from 8 B to 8 GiB, `fold-nccl-tree-1024`
and `fold-nccl-ring-1024` its trees at 1 MiB and its rings at 64 MiB, `fold-nccl-alltoall-1024` its
sends and receives at 64 MiB.
"""

import csv
import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.processes import Cost, netsim

SWITCH = "graph: {{kind: switch, gpus: {ranks}, bandwidth: 50GB/s, latency: 1us}}"
HOSTS, RAILS, FATTREE = (
    f"machine: dgx-h100, nodes: {{nodes}}, fabric: {{{{kind: {kind}}}}}"
    for kind in ("single-switch", "rail-optimized", "fat-tree")
)
PATTERNS = {
    "ring": (SWITCH, "all_reduce", "ring"),
    "tree": (SWITCH, "all_reduce", "tree"),
    "hierarchical": (HOSTS, "all_reduce", "hierarchical"),
    "hierarchical-alltoall": (HOSTS, "alltoall", "hierarchical"),
    "ring-rails": (RAILS, "all_reduce", "ring"),
    "ring-fattree": (FATTREE, "all_reduce", "ring"),
    "tree-rails": (RAILS, "all_reduce", "tree"),
    "hierarchical-rails": (RAILS, "all_reduce", "hierarchical"),
    "hierarchical-fattree": (FATTREE, "all_reduce", "hierarchical"),
    "hierarchical-alltoall-rails": (RAILS, "alltoall", "hierarchical"),
    "nccl": (RAILS, "all_reduce", "auto"),
    "nccl-tree": (RAILS, "all_reduce", "Tree"),
    "nccl-ring": (RAILS, "all_reduce", "Ring"),
    "nccl-alltoall": (RAILS, "alltoall", "auto"),
}
RANKS = {
    "ring": (1024, 4096, 32768, 131072),
    "nccl": (128, 1024),
    "nccl-tree": (128, 1024, 4096, 16384),
    "nccl-ring": (4096, 16384),
    "nccl-alltoall": (128, 512, 1024, 4096, 16384),
    "hierarchical-alltoall-rails": (1024, 8192, 32768, 131072),
}
SIZES = {
    "nccl": "{from: 8B, to: 8GiB, factor: 2}",
    "nccl-tree": "[1MiB]",
    "nccl-ring": "[64MiB]",
    "nccl-alltoall": "[64MiB]",
}
FOLDED = tuple(
    f"fold-{pattern}-{ranks}"
    for pattern in PATTERNS
    for ranks in RANKS.get(pattern, (8192, 32768, 131072))
)


@dataclass(frozen=True, slots=True)
class Folded:
    """What one case took (medians), and the rows that it had after folding."""

    case: str
    ranks: int
    rows: int
    wall_s: float
    cpu_s: float
    peak_mb: float


def is_folded(name: str) -> bool:
    """Whether a case is one of these."""
    return name.startswith("fold-")


def measured(name: str, runs: int) -> Folded:
    """Run one case some times; the first, which compiles, does not count."""
    pattern, ranks = _parsed(name)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "scene.yaml").write_text(_scene(pattern, ranks))
        costs = [netsim(Path(folder), *_command()) for _ in range(runs + 1)][1:]
    return Folded(name, ranks, _rows(costs[-1]), *_medians(costs))


def table(figures: Iterator[Folded]) -> Iterator[str]:
    """The lines of all cases, and how their time grows with ranks."""
    yield f"{'case':<36}{'ranks':>9}{'rows':>12}{'wall':>10}{'CPU':>10}{'largest':>12}"
    families: dict[str, list[Folded]] = {}
    for one in figures:
        families.setdefault(_parsed(one.case)[0], []).append(one)
        yield (
            f"{one.case:<36}{one.ranks:>9}{one.rows:>12,}{one.wall_s:>8.2f} s{one.cpu_s:>8.2f} s"
            f"{one.peak_mb:>9.0f} MB"
        )
    for family, members in families.items():
        if len(members) > 1:
            yield f"fold-{family}-*: CPU ~ ranks^{_slope(members):.2f}"


def _parsed(name: str) -> tuple[str, int]:
    pattern, _, ranks = name.removeprefix("fold-").rpartition("-")
    if pattern not in PATTERNS or not ranks.isdigit() or int(ranks) % 8:
        raise SystemExit(
            f"unknown case {name!r}: expected fold-PATTERN-RANKS with {', '.join(PATTERNS)} and a "
            "multiple of 8 ranks"
        )
    return pattern, int(ranks)


def _scene(pattern: str, ranks: int) -> str:
    cluster, collective, algorithm = PATTERNS[pattern]
    size = ranks << 20 if collective == "alltoall" else 1 << 30
    where = cluster.format(ranks=ranks, nodes=ranks // 8)
    sizes = SIZES.get(pattern, f"[{size}B]")
    work = f"collective: {collective}, algorithm: {algorithm}, sizes: {sizes}"
    return f"cluster: {{{where}}}\nworkload: {{{work}}}\noutputs: [csv]\n"


def _command() -> Sequence[str]:
    return "run", "scene.yaml", "-q", "--format", "csv", "-o", "out"


def _rows(cost: Cost) -> int:
    """Of all sizes."""
    return sum(int(row["rows"]) for row in csv.DictReader(cost.output.splitlines()))


def _medians(costs: Sequence[Cost]) -> tuple[float, float, float]:
    columns = [[getattr(c, name) for c in costs] for name in ("wall_s", "cpu_s", "peak_mb")]
    wall, cpu, peak = (statistics.median(column) for column in columns)
    return wall, cpu, peak


def _slope(members: Sequence[Folded]) -> float:
    """Between the smallest and the largest."""
    few, many = min(members, key=lambda m: m.ranks), max(members, key=lambda m: m.ranks)
    return math.log(many.cpu_s / few.cpu_s) / math.log(many.ranks / few.ranks)
