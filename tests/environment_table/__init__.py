"""The page of docs about NCCL's variables, from what the package says of each.

`python -m tests.environment_table` writes it anew.
"""

from pathlib import Path

from netsim.nccl.environment import EFFECTS, WITHOUT_EFFECT

PAGE = Path(__file__).parents[2] / "docs" / "environment.md"
HEAD = """\
# NCCL's variables

`--env NAME=VALUE` of `expect`, `nccl.env` of a scenario; `--nccl-env` takes those of the process.
A name that no release of NCCL, nccl-tests or a vendor's plugin knows is an error with a suggestion
(from the process: a warning), and so is a value that NCCL would refuse. This page is written by
`python -m tests.environment_table`; every effect is a test.

| variable | effect |
|---|---|
"""
MIDDLE = """
Known, and without effect; `expect` says so:

| variable | because |
|---|---|
"""
END = """
All others that NCCL knows change nothing of what is simulated: debugging, bootstrap, retries,
memory pools, profilers, plugins. `expect` says so for each that is set.
"""


def page() -> str:
    """The text of the page."""
    return HEAD + _rows(EFFECTS) + MIDDLE + _rows(WITHOUT_EFFECT) + END


def _rows(table: dict[str, str]) -> str:
    return "".join(f"| `{name}` | {text} |\n" for name, text in table.items())
