"""Runs what a page of the documentation shows, in the order in which a reader would.

A page has fenced blocks of these kinds:

- a block with `title="NAME"` is the content of a file, which is written into the current folder;
- `sh` has commands, one a line. Those of `netsim` are run; `> FILE` writes their standard output to
  a file, and a comment `# exit code N` at the end says that N is expected instead of 0;
- `python` without a title is executed, with the names of the earlier blocks of the page;
- `text` after one of these is output: every line must be in what the block before it printed.
  Runs of blanks count as one blank. A line that is `…` means that lines are left out, and `…`
  within a line that a part of it is.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netsim.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("tutorials", "how-to")
FENCED = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="([^"]+)"')
EXIT_CODE = re.compile(r"# exit code (\d+)\s*$")
NOT_RUN = ("pip", "python", "mkdocs", "cd", "mpirun", "dask", "for", "done")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is the content of, and its text."""

    language: str
    title: str
    text: str


def page_names() -> list[str]:
    """The pages whose blocks are run, as paths below docs/."""
    paths = [path for folder in FOLDERS for path in sorted((DOCS / folder).glob("*.md"))]
    first = [DOCS / "index.md", DOCS / "gallery.md"]
    return [str(path.relative_to(DOCS)) for path in [*first, *paths]]


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for language, attributes, content in FENCED.findall(text):
        title = TITLE.search(attributes)
        yield Block(language, title[1] if title else "", content)


def commands_of(text: str) -> list[str]:
    """The commands of an `sh` block; a backslash at the end of a line continues it."""
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def run_page(text: str) -> None:
    """Run a page in the current folder; an AssertionError says what is not as the page shows."""
    names: dict[str, object] = {}
    output = ""
    for block in blocks_of(text):
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            output = "".join(run_command(command) for command in commands_of(block.text))
        elif block.language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text, "page", "exec"), names)
            output = printed.getvalue()
        elif block.language == "text":
            missing = missing_lines(block.text, output)
            assert not missing, f"not printed: {missing}\nprinted was:\n{output}"


def run_command(command: str) -> str:
    """Run a command line of a page; returns standard output and standard error as one text."""
    expected = EXIT_CODE.search(command)
    words = shlex.split(command, comments=True)
    if words[0] in NOT_RUN:
        return ""
    assert words[0] == "netsim", f"a page shows a command that no test can run: {command}"
    target = ""
    if ">" in words:
        target = words[words.index(">") + 1]
        words = words[: words.index(">")]
    standard_output = io.StringIO()
    standard_error = io.StringIO()
    code: object = 0
    with (
        contextlib.redirect_stdout(standard_output),
        contextlib.redirect_stderr(standard_error),
    ):
        try:
            main(words[1:])
        except SystemExit as end:
            code = end.code or 0
    printed = standard_output.getvalue() + standard_error.getvalue()
    wanted = int(expected[1]) if expected else 0
    assert code == wanted, f"{command}: exit code {code}, expected {wanted}\n{printed}"
    if target:
        Path(target).write_text(standard_output.getvalue(), encoding="utf-8")
        return standard_error.getvalue()
    return printed


def missing_lines(shown: str, output: str) -> list[str]:
    """The lines of a `text` block that the output lacks."""
    printed = "\n".join(" ".join(line.split()) for line in output.splitlines())
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    return [line for line in lines if line and not is_printed(line, printed)]


def is_printed(line: str, printed: str) -> bool:
    """Whether an output has a line; `…` within the line is any text."""
    pattern = r"[^\n]*".join(re.escape(part.strip()) for part in line.split("…"))
    return re.search(f"^{pattern}$", printed, re.MULTILINE) is not None


def paragraphs_of(text: str) -> list[str]:
    """The paragraphs of a page, without blocks, tables, lists' markers and headings."""
    plain = FENCED.sub("\n\n", text)
    parts = [part.strip() for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", plain)]
    return [part for part in parts if part and not part.startswith(("|", "#", "<", "!"))]
