"""Examples in docstrings are run: what they print is what they say."""

import doctest
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import netsim

ROOT = Path(netsim.__file__).parent
WITH_EXAMPLES = sorted(path for path in ROOT.rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_examples_of_a_module_print_what_they_say(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


# Values and types that have no behavior of their own to show.
WITHOUT_EXAMPLE = {"Program"}


def public_objects() -> dict[str, object]:
    """The public classes and functions of netsim by name."""
    objects = {name: getattr(netsim, name) for name in netsim.__all__}
    return {name: value for name, value in objects.items() if callable(value)}


@pytest.mark.parametrize("name", public_objects())
def test_the_docstring_of_a_public_object_has_an_example(name: str) -> None:
    text = inspect.getdoc(public_objects()[name]) or ""
    assert (">>> " in text) != (name in WITHOUT_EXAMPLE)


@pytest.mark.parametrize("name", public_objects())
def test_the_docstring_of_a_public_function_names_its_parameters(name: str) -> None:
    value = public_objects()[name]
    if inspect.isclass(value):
        return
    text = inspect.getdoc(value) or ""
    parameters = inspect.signature(value).parameters
    missing = [each for each in parameters if each not in text]
    assert not missing, f"{name} does not mention {missing}"
