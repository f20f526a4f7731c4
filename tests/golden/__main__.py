"""Write golden texts anew, or show what is different from them.

python -m tests.golden                        # unified diffs; exit code 1 where there are any
python -m tests.golden --write                # write all texts anew, remove those without a writer
python -m tests.golden --write schedules/nccl-ring-all_reduce    # one, or a folder: schedules/
"""

import argparse
import sys

from tests.golden.table import WRITERS, difference, files, path_of, text_of


def main() -> int:
    """Compare or write; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the texts anew")
    parser.add_argument("names", nargs="*", help="beginnings of names; all texts by default")
    arguments = parser.parse_args()
    beginnings = tuple(arguments.names) or ("",)
    chosen = [name for name in WRITERS if name.startswith(beginnings)]
    if not chosen:
        parser.error(f"no golden text begins with {' or '.join(beginnings)}")
    texts = {name: text_of(name) for name in chosen}
    differences = [diff for name, text in texts.items() if (diff := difference(name, text))]
    print("\n\n".join(differences) or "no golden text differs")
    if arguments.write:
        for name, text in texts.items():
            path_of(name).parent.mkdir(exist_ok=True)
            path_of(name).write_text(text, encoding="utf-8")
        if not arguments.names:
            for name in set(files()) - set(WRITERS):
                path_of(name).unlink()
        return 0
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
