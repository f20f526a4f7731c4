"""Try mutants, and print which test kills each.

python -m tests.mutants                      # all of tests/data/mutants_to_kill.yaml
python -m tests.mutants NAME ...             # some of them
python -m tests.mutants --count N --seed S   # draw others; --packages nccl,timing: of these only
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.mutants.draw import ROOT, argument, drawn_from, every_mutant, known_survivors
from tests.mutants.trial import chosen_tests, copy_of, first_failure, listed_mutants, try_mutant


def try_listed(names: list[str], copy: Path) -> int:
    """Try mutants of the list and print what becomes of each; return how many survive."""
    mutants = [mutant for mutant in listed_mutants() if not names or mutant.name in names]
    unknown = set(names) - {mutant.name for mutant in mutants}
    if unknown:
        raise SystemExit(f"no mutant is named {', '.join(sorted(unknown))}")
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    if failure := first_failure(tests, copy):
        raise SystemExit(f"{failure} fails without any mutant")
    survivors = 0
    for mutant in mutants:
        killer = try_mutant(mutant, mutant.tests, copy)
        survivors += not killer
        print(f"{mutant.name}: {f'killed by {killer}' if killer else 'SURVIVED'}", flush=True)
    print(f"{len(mutants) - survivors} of {len(mutants)} killed")
    return survivors


def try_drawn(count: int, seed: int, packages: list[str], copy: Path) -> int:
    """Try drawn mutants and print what becomes of each; return how many survive unargued."""
    arguments = known_survivors()
    drawn = drawn_from(every_mutant(packages), count, seed)
    killed = 0
    equivalent = 0
    for mutant in drawn:
        why = argument(mutant, arguments)
        killer = "" if why else try_mutant(mutant, chosen_tests(mutant), copy)
        if why:
            outcome = f"changes nothing: {why}"
        else:
            outcome = f"killed by {killer}" if killer else "SURVIVED"
        equivalent += bool(why)
        killed += bool(killer)
        print(f"{mutant}: {outcome}", flush=True)
    print(f"{killed} of {len(drawn)} killed, {equivalent} change nothing for a stated reason")
    return len(drawn) - killed - equivalent


def main() -> int:
    """Try what is asked for; 1 if a mutant survives."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--count", type=int, default=0, help="draw this many mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", default="", help="of which mutants are drawn")
    options = parser.parse_args()
    packages = list(filter(None, options.packages.split(",")))
    with tempfile.TemporaryDirectory(prefix="netsim-mutants-") as folder:
        copy = copy_of(ROOT, Path(folder))
        if options.count:
            return int(try_drawn(options.count, options.seed, packages, copy) > 0)
        return int(try_listed(options.names, copy) > 0)


if __name__ == "__main__":
    sys.exit(main())
