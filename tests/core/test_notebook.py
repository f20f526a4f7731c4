"""The notebook of the tutorials runs, prints what it shows, and is a page of the site."""

import tomllib
from pathlib import Path

import pytest

from tests.site import notebook

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of Jupyter's packages, which are not ours
def test_the_notebook_prints_in_a_kernel_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    executed = notebook.run_notebook(tmp_path)
    kept = notebook.read_notebook()
    assert notebook.printed_texts(executed) == notebook.printed_texts(kept)
    assert len(notebook.pictures_of(executed)) == len(notebook.pictures_of(kept)) == 1


def test_the_extra_of_the_tests_brings_what_runs_the_notebook() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [text.partition(">")[0] for text in project["optional-dependencies"]["test"]]
    assert {"nbclient", "ipykernel"} <= set(names)


def test_the_page_shows_the_notebook_as_it_is_kept() -> None:
    kept = notebook.read_notebook()
    text = notebook.page_text(kept)
    assert notebook.PAGE.read_text(encoding="utf-8") == text, (
        "not current: python -m tests.site --notebook"
    )
    for number, content in enumerate(notebook.pictures_of(kept), start=1):
        picture = notebook.FOLDER / "pictures" / notebook.picture(number)
        assert picture.read_bytes() == content


def test_printed_text_that_a_kernel_sends_in_parts_is_joined() -> None:
    first = {"output_type": "stream", "name": "stdout", "text": ["a\n"]}
    second = {**first, "text": ["b\n"]}
    picture = {"output_type": "execute_result", "data": {"image/png": ""}}
    joined = notebook.join_streams([first, second, picture, first])
    assert joined == [{**first, "text": ["a\n", "b\n"]}, picture, first]
