"""The documentation as a site: its pages run, generated pages are current, and all are in `nav`."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.site import drawings, pictures, reference
from tests.site.pages import (
    DOCS,
    blocks_of,
    missing_lines,
    page_names,
    paragraphs_of,
    run_command,
    run_page,
)

ROOT = Path(__file__).parents[2]
LONGEST_PARAGRAPH = 120  # words

# Pages that take ten seconds and more, as they start processes or simulate many causes.
LONG_PAGES = {
    "gallery.md",
    "how-to/calibrate.md",
    "how-to/ci-gate.md",
    "how-to/dask.md",
    "how-to/own-measurements.md",
    "how-to/read-a-report.md",
    "how-to/my-job-is-slow.md",
    "how-to/regression.md",
    "how-to/slow-node.md",
}


@pytest.fixture
def drawn_figures() -> None:
    """Asks tests/conftest.py to let figures be drawn: pages write them to files."""


def page_case(name: str) -> object:
    """A page as a case of a test; long ones run with `pytest -m full`."""
    return pytest.param(name, marks=[pytest.mark.full] if name in LONG_PAGES else [])


def page_label(path: Path) -> str:
    """The name of a page in the names of tests."""
    return str(path.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_figures")
@pytest.mark.parametrize("name", [page_case(name) for name in page_names()])
def test_commands_and_code_of_a_page_print_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page((DOCS / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", [*sorted(DOCS.rglob("*.md")), *ROOT.glob("*.md")], ids=page_label)
def test_no_paragraph_of_the_documentation_has_more_than_120_words(path: Path) -> None:
    for paragraph in paragraphs_of(path.read_text(encoding="utf-8")):
        assert len(paragraph.split()) <= LONGEST_PARAGRAPH, paragraph


@pytest.mark.slow
@pytest.mark.parametrize("name", reference.pages())
def test_a_generated_page_is_what_the_package_says(name: str) -> None:
    text = (reference.REFERENCE / name).read_text(encoding="utf-8")
    expected = reference.GENERATED + reference.pages()[name]()
    assert text == expected, "not current: python -m tests.site --write"


def test_every_column_of_results_has_a_meaning() -> None:
    from netsim.results.row import COLUMNS

    assert [row["column"] for row in reference.column_meanings()] == list(COLUMNS)


def pages_of(entries: object) -> list[str]:
    """The pages that an entry of `nav` names, with those below it."""
    if isinstance(entries, str):
        return [entries]
    values = entries.values() if isinstance(entries, dict) else entries
    return [page for value in values for page in pages_of(value)]


def test_every_page_of_docs_is_in_the_navigation_once() -> None:
    named = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    present = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    assert sorted(named) == sorted(present)


@pytest.mark.parametrize("name", [*page_names(), "reference/index.md"])
def test_links_and_pictures_of_a_page_exist(name: str) -> None:
    page = DOCS / name
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.full
@pytest.mark.usefixtures("drawn_figures")
@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_of_the_tutorials_can_be_made_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = pictures.FOLDER / f"{name}.svg"
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    pictures.make_picture(name)
    made = tmp_path / f"{name}.svg"
    assert made.read_bytes() == shown.read_bytes(), "not current: python -m tests.site --pictures"


def test_ci_builds_the_site_with_the_extra_that_it_needs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = extras["optional-dependencies"]["docs"]
    assert any(requirement.startswith("mkdocs-material") for requirement in needed)
    commands = (ROOT / ".ci" / "run").read_text()
    assert "mkdocs build --strict" in commands
    assert ",docs]" in commands


# The machinery itself: a page that is wrong is found.


def test_paragraphs_are_split_at_blank_lines_lists_and_blocks() -> None:
    text = "# A\n\none two\nthree\n\n- four\n- five\n\n```sh\nls\n```\nsix\n\n| a | b |\n"
    assert paragraphs_of(text) == ["one two\nthree", "- four", "- five", "six"]


def test_a_line_that_was_not_printed_is_missing() -> None:
    assert missing_lines("a  b\n…\nc\n", "x\na b\n") == ["c"]


def test_a_part_of_a_line_may_be_left_out() -> None:
    assert not missing_lines("a … d\n", "x\na b c d\n")
    assert missing_lines("a … e\na … d e\n", "a b c d\ne\n") == ["a … e", "a … d e"]


def test_a_page_whose_output_differs_fails() -> None:
    page = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n"
    with pytest.raises(AssertionError, match="not printed"):
        run_page(page)
    run_page(page.replace("3", "2"))


def test_a_command_with_another_exit_code_fails() -> None:
    run_command("netsim check no-such-file.yaml  # exit code 2")
    with pytest.raises(AssertionError, match="exit code 2, expected 0"):
        run_command("netsim check no-such-file.yaml")


def test_a_command_that_no_test_runs_is_refused() -> None:
    with pytest.raises(AssertionError, match="no test can run"):
        run_command("make everything")


def test_blocks_have_language_title_and_text() -> None:
    (block,) = blocks_of('```yaml title="a.yaml"\nx: 1\n```\n')
    assert (block.language, block.title, block.text) == ("yaml", "a.yaml", "x: 1\n")


def test_every_machine_and_fabric_has_a_drawing() -> None:
    from netsim.topology.fabrics.config import BUILDERS

    expected = {f"{name}.svg" for name in drawings.clusters()}
    assert {path.name for path in drawings.FOLDER.iterdir()} == expected
    kinds = {name.removeprefix("fabric-") for name in drawings.clusters()}
    assert set(BUILDERS) <= kinds
    assert sum(path.stat().st_size for path in drawings.FOLDER.iterdir()) < 1_500_000


@pytest.mark.full
@pytest.mark.usefixtures("drawn_figures")
@pytest.mark.parametrize("name", drawings.clusters())
def test_a_drawing_of_the_reference_can_be_made_again(name: str) -> None:
    drawn = (drawings.FOLDER / f"{name}.svg").read_bytes()
    assert drawings.drawing(name) == drawn, "not current: python -m tests.site --drawings"
