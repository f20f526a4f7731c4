"""The notebook of the tutorials: run it, keep its outputs, and show it as a page of the site.

`python -m tests.site --notebook` runs docs/tutorials/notebook.ipynb, keeps the outputs in it, and
writes the page docs/tutorials/notebook.md with its pictures. Tests run it again and compare.
"""

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "tutorials"
NOTEBOOK = FOLDER / "notebook.ipynb"
PAGE = FOLDER / "notebook.md"
HEAD = (
    "<!-- written by `python -m tests.site --notebook` from notebook.ipynb; do not edit -->\n\n"
    "This page shows a Jupyter notebook. Download [the notebook](notebook.ipynb) to run and change "
    "it.\n\n"
)

Cell = dict[str, Any]


def read_notebook() -> dict[str, Any]:
    """The notebook as it is kept."""
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def run_notebook(folder: Path) -> dict[str, Any]:
    """The notebook after all cells have run in a new kernel, with `folder` as current folder.

    A cell that raises ends it with an error. The kernel imports the netsim of this tree.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}})
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))})
    executed = json.loads(nbformat.writes(notebook))
    for cell in executed["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = join_streams(cell["outputs"])
    return executed


def join_streams(outputs: list[Cell]) -> list[Cell]:
    """Outputs with printed text that follows printed text as one: kernels cut it at random."""
    joined: list[Cell] = []
    for output in outputs:
        is_text = output["output_type"] == "stream"
        if is_text and joined and joined[-1]["output_type"] == "stream":
            text = lines_of(joined[-1]["text"]) + lines_of(output["text"])
            joined[-1] = {**output, "text": text.splitlines(keepends=True)}
        else:
            joined.append(output)
    return joined


def lines_of(value: str | list[str]) -> str:
    """A text of a notebook, which is kept as one string or as a list of lines."""
    return value if isinstance(value, str) else "".join(value)


def printed_texts(notebook: dict[str, Any]) -> list[str]:
    """What the code cells print and return as text, in order."""
    texts = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if output["output_type"] == "stream":
                texts.append(lines_of(output["text"]))
            elif "image/png" not in output["data"]:
                texts.append(lines_of(output["data"]["text/plain"]))
    return texts


def pictures_of(notebook: dict[str, Any]) -> list[bytes]:
    """The pictures that code cells show, as PNG files."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    encoded = [output.get("data", {}).get("image/png") for output in outputs]
    return [base64.b64decode(lines_of(text)) for text in encoded if text]


def page_text(notebook: dict[str, Any]) -> str:
    """The notebook as a page of the site."""
    title, *cells = notebook["cells"]
    heading, _, introduction = lines_of(title["source"]).partition("\n")
    parts = [heading + "\n\n" + HEAD + introduction.strip()]
    picture_numbers = iter(range(1, 100))
    for cell in cells:
        source = lines_of(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += output_parts(cell, picture_numbers)
    return "\n\n".join(parts) + "\n"


def output_parts(cell: Cell, picture_numbers: Iterator[int]) -> list[str]:
    """The outputs of a cell as parts of the page."""
    parts = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            parts.append(f"```text\n{lines_of(output['text']).rstrip()}\n```")
        elif "image/png" in output["data"]:
            parts.append(f"![What the cell above shows](pictures/{picture(next(picture_numbers))})")
        else:
            parts.append(f"```text\n{lines_of(output['data']['text/plain']).rstrip()}\n```")
    return parts


def picture(number: int) -> str:
    """The file name of a picture of the notebook."""
    return f"notebook-{number}.png"


def write() -> None:
    """Run the notebook; keep its outputs, the page and its pictures."""
    notebook = run_notebook(FOLDER)
    for cell in notebook["cells"]:
        cell["metadata"] = {}  # when it ran, which differs each time
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    NOTEBOOK.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page_text(notebook), encoding="utf-8")
    for number, content in enumerate(pictures_of(notebook), start=1):
        (FOLDER / "pictures" / picture(number)).write_bytes(content)
