"""Examples in docstrings are run: what they print is what they say."""

import doctest
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
