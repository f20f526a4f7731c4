"""Which test functions have a marker, read from the files of the tests."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


def function_of(nodeid: str) -> str:
    """The function of a test case: `tests/cli/test_run.py::test_outputs`."""
    return nodeid.partition("[")[0]


def functions_of_tests() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every test function by its name, as `function_of` has it."""
    for file in sorted(TESTS.rglob("test_*.py")):
        place = file.relative_to(TESTS.parent).as_posix()
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"{place}::{node.name}", node


def marked_with(names: Collection[str]) -> set[str]:
    """The test functions that have one of these markers, such as `slow` or `full`."""
    marked = set()
    for function, node in functions_of_tests():
        texts = {ast.unparse(decorator) for decorator in node.decorator_list}
        if texts & {f"pytest.mark.{name}" for name in names}:
            marked.add(function)
    return marked
