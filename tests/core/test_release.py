"""A release is consistent: one version, a short changelog, a citation, hooks, CI and packages."""

import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import netsim
from netsim.base import startup

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
MOST_LINES = 40  # of one release in CHANGELOG.md


def release_sections() -> dict[str, list[str]]:
    """The lines of CHANGELOG.md below each heading of a release, by the release's number."""
    sections: dict[str, list[str]] = {}
    for section in re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]:
        heading, *lines = section.splitlines()
        sections[heading.split()[0]] = [line for line in lines if line]
    return sections


def test_the_version_is_stated_in_one_file_which_the_build_reads() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert source == Path(startup.__file__)
    assert netsim.__version__ == startup.__version__
    assert source.read_text().count(f'"{startup.__version__}"') == 1


def test_the_changelog_begins_with_this_version() -> None:
    numbers = [number for number in release_sections() if number != "Unreleased"]
    assert numbers[0] == netsim.__version__


@pytest.mark.parametrize("number", release_sections())
def test_a_release_has_at_most_40_lines_in_the_changelog(number: str) -> None:
    assert 0 < len(release_sections()[number]) <= MOST_LINES


def test_every_change_in_the_changelog_has_a_kind() -> None:
    entries = re.findall(r"^- (.*)", CHANGELOG, re.MULTILINE)
    assert entries
    for entry in entries:
        assert re.match(r"\[(FEATURE|CHANGE|FIX)\] ", entry), entry


def test_the_citation_names_this_version_and_license() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == netsim.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert f"## {netsim.__version__} ({citation['date-released']})" in CHANGELOG


def test_the_workflow_of_public_ci_calls_the_script_that_exists() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    commands = [step.get("run") for step in workflow["jobs"]["check"]["steps"]]
    assert ".ci/run" in commands
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_ci_builds_both_packages_and_checks_them() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "-m build --outdir" in script
    assert 'twine" check' in script


def test_hooks_before_a_commit_run_the_tools_of_ci() -> None:
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repository,) = configuration["repos"]
    assert repository["repo"] == "local"
    entries = [hook["entry"] for hook in repository["hooks"]]
    script = (ROOT / ".ci" / "run").read_text()
    for tool in ("ruff check", "ruff format", "mypy netsim"):
        assert any(entry.startswith(tool) for entry in entries), tool
        assert tool in script


def test_classifiers_name_the_versions_of_python_that_are_allowed() -> None:
    pattern = re.compile(r"Programming Language :: Python :: 3\.(\d+)")
    classifiers = PROJECT["project"]["classifiers"]
    minors = [int(match[1]) for text in classifiers if (match := pattern.fullmatch(text))]
    first, end = re.fullmatch(
        r">=3\.(\d+),<3\.(\d+)", PROJECT["project"]["requires-python"]
    ).groups()
    assert minors == list(range(int(first), int(end)))


def test_the_package_has_type_hints_for_its_users() -> None:
    assert (Path(netsim.__file__).parent / "py.typed").exists()
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]


def test_the_source_distribution_has_what_the_tests_read() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    for path in included:
        assert (ROOT / path.lstrip("/")).exists(), path
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE", "docs"):
        assert f"/{name}" in included


def test_the_page_for_contributors_is_one_page() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    for topic in ("Set up", "Test", "Where to change what", "Propose a measured run"):
        assert f"## {topic}" in text
    for target in re.findall(r"\]\(([^)#:]+)", text):
        assert (ROOT / target).exists(), target


def test_the_linter_takes_the_notebook_which_prints() -> None:
    """CI runs `ruff check .`, which reads notebooks as well."""
    ignored = PROJECT["tool"]["ruff"]["lint"]["per-file-ignores"]
    assert "T20" in ignored["docs/**"]
