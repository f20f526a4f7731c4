"""Pictures of the tutorials, made by the commands that the pages show.

`python -m tests.site --pictures` writes them to docs/tutorials/pictures/."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from tests.site.pages import DOCS, blocks_of, run_command

FOLDER = DOCS / "tutorials" / "pictures"

# Picture: page whose files are needed, command, file that the command writes.
PICTURES = {
    "ring-all-reduce": (
        "ring-all-reduce.md",
        "netsim explain ring.yaml --state -o out",
        "out/state.svg",
    ),
    "all-gather": (
        "collectives.md",
        "netsim explain four-gpus.yaml --set sweep={} --set workload.collective=all_gather "
        "--state -o out",
        "out/state.svg",
    ),
    "alltoall": (
        "collectives.md",
        "netsim explain four-gpus.yaml --set sweep={} --set workload.collective=alltoall "
        "--set workload.algorithm=pairwise --state -o out",
        "out/state.svg",
    ),
    "data-parallel": (
        "data-parallelism.md",
        "netsim run small-model.yaml --set 'outputs=[csv,plots]' -o out",
        "out/breakdown.svg",
    ),
    "pipeline": (
        "model-parallelism.md",
        "netsim run split.yaml --set 'workload.parallelism={pp: 4, dp: 1}' "
        "--set 'outputs=[csv,plots,trace]' -o out",
        "out/timeline.svg",
    ),
}


def make() -> None:
    """Make all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        make_picture(name)


def make_picture(name: str) -> None:
    """Make one picture, in a folder with the files that its page shows."""
    page, command, written = PICTURES[name]
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(work):
        for block in blocks_of((DOCS / "tutorials" / page).read_text(encoding="utf-8")):
            if block.title:
                Path(block.title).write_text(block.text, encoding="utf-8")
        run_command(command)
        shutil.copyfile(Path(os.curdir) / written, FOLDER / f"{name}.svg")
