"""python -m tests.bench.memory [CASE…]: what cells are expected to need, and what they have taken.

A line a case: the estimate (`memory_needed`), the most that a process had that simulated it, and
the one divided by the other, which is to lie between 1 and `AT_MOST`.
"""

import subprocess
import sys
from pathlib import Path

from netsim.scenario.cells import expand_all, with_settings
from netsim.tasks.answer import answer, find_scenario, load_source, resolve_any
from netsim.yamlio.read import parse_source

AT_MOST = 12  # times as much as is needed is expected at most
# A scenario, or machine, collective, hosts, size, algorithm; and further settings.
CASES = (
    "dgx-h100 all_reduce 1 8MiB auto",
    "dgx-h100 all_reduce 16 1GiB auto",
    "dgx-h100 all_reduce 64 1GiB Ring",
    "dgx-h100 all_reduce 64 1GiB Tree",
    "dgx-a100 all_reduce 128 256MiB Tree",
    "dgx-h100 broadcast 32 1GiB auto",
    "gb200-nvl72 all_gather 36 256MiB auto",
    "gb200-nvl72 alltoall 54 256MiB auto",
    "dgx-h100 alltoall 128 64MiB auto",
    "a100-x4 alltoall 64 64MiB auto",
    "dgx-h100 alltoall 64 64MiB auto fold=off",
    "dgx-h100 all_gather 32 256MiB auto fold=off",
    "dgx-a100 sendrecv 32 512MiB auto",
    "mi300x all_reduce 16 1GiB auto",
    "dgx-h100 reduce 16 512MiB auto",
    "dgx-h100 all_reduce 256 8GiB auto",
    'dgx-h100 all_gather 512 1GiB auto cluster.fabric={"kind":"leaf-spine","oversubscription":2}',
    'a100-x4 alltoall 540 64KiB auto cluster.fabric={"kind":"dragonfly"}',
    'a100-x4 alltoall 540 4GiB auto cluster.fabric={"kind":"dragonfly"}',
    "dgx-h100 alltoall 32 1MiB pairwise",
    "dgx-h100 all_reduce 32 1MiB ring fold=off",
    "layouts-70b",
    "pp-schedules",
    "moe-fabrics",
    "claim-fsdp-growth",
    "fabrics-1024",
)
TEXT = """\
cluster: {{machine: {0}, nodes: {2}}}
workload: {{collective: {1}, sizes: [{3}], algorithm: {4}}}
"""


def needed_and_taken(case: str) -> tuple[int, int]:
    """The bytes that a case is expected to need, and those that a process of its own has taken."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.memory", "--one", case],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    needed, taken = map(int, done.stdout.split())
    return needed, taken


def one(case: str) -> None:
    """Simulate one case here."""
    words = case.split()
    settings = [word for word in words if "=" in word]
    if len(words) > 1:
        source = with_settings(parse_source(TEXT.format(*words), case), settings)
    else:
        source = load_source(find_scenario(case).path)
    cell = expand_all(source).cells[-1]
    size = max(cell.scenario.workload.size_list())
    resolved = resolve_any(cell)
    needed = resolved.memory_needed(size)
    answer(resolved, size, engine="compiled")
    print(needed, most_taken())


def most_taken() -> int:
    """The most bytes that this process had; not those of the one that started it, which the
    figure of `getrusage` begins with.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    """All cases, or those that are named; exit code 1 where an estimate is out of bounds."""
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2])
        return
    wrong = 0
    print(f"{'case':<45}{'needed':>9}{'taken':>9}{'ratio':>7}")
    for case in sys.argv[1:] or CASES:
        needed, taken = needed_and_taken(case)
        wrong += not taken <= needed <= AT_MOST * taken
        print(
            f"{case:<45}{needed / 1e6:>9.0f}{taken / 1e6:>9.0f}{needed / taken:>7.1f}", flush=True
        )
    sys.exit(f"{wrong} are out of bounds" if wrong else 0)


if __name__ == "__main__":
    main()
