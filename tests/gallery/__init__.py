"""Re-creates `reports/gallery/` from the scenarios: `python -m tests.gallery [NAME…]`."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from netsim.cli import main

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "reports" / "gallery"

# Picture in the gallery: command, file that it writes.
PICTURES = {
    "quickstart-busbw": (["run", "quickstart"], "busbw"),
    "quickstart-timeline": (["run", "quickstart", "--set", "sweep={}", "--set",
                             "workload.algorithm=ring"], "timeline"),
    "ring-of-five": (["explain", "ring-of-five", "--state"], "state"),
    "two-hosts-busbw": (["run", "two-hosts"], "busbw"),
    "two-hosts-links": (["run", "two-hosts", "--set", "sweep={}", "--set",
                         "workload.algorithm=hierarchical"], "links-heatmap"),
    "nics-400-or-800": (["run", "nics-400-or-800"], "busbw"),
    "fabrics-1024": (["run", "fabrics-1024"], "busbw"),
    "one-dead-nic": (["run", "one-dead-nic"], "busbw"),
    "tree-or-ring": (["run", "tree-or-ring"], "busbw"),
    "packed-trees": (["run", "packed-trees"], "busbw"),
    "moe-nvl72-or-hgx": (["run", "moe-nvl72-or-hgx"], "busbw"),
    "torus-alltoall": (["run", "torus-alltoall"], "busbw"),
    "pp-schedules": (["run", "pp-schedules"], "breakdown"),
    "pp-timeline": (["run", "pp-schedules", "--set", "sweep={}", "--set", "workload.batch=8",
                     "--set", "workload.pipeline.schedule=zb-h1"], "timeline"),
    "pp-memory": (["run", "pp-schedules", "--set", "sweep={}", "--set", "workload.batch=8",
                   "--set", "workload.pipeline.schedule=1f1b"], "memory"),
    "moe-fabrics": (["run", "moe-fabrics"], "breakdown"),
    "dp-fsdp-zero": (["run", "dp-fsdp-zero"], "breakdown"),
    "layouts-70b": (["run", "layouts-70b"], "breakdown"),
}  # fmt: skip


def make(folder: Path, names: Sequence[str] = tuple(PICTURES)) -> None:
    """Run the commands of some pictures and keep these, as SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            command, picture = PICTURES[name]
            output = Path(work) / name
            try:
                main([*command, "-o", str(output)])
            except SystemExit as end:
                if end.code:
                    raise
            for suffix in (".svg", ".png"):
                shutil.copyfile(output / (picture + suffix), folder / (name + suffix))
