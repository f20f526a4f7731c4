"""HTML stands in the templates of `report/page/` alone, so that one place says how pages look."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path("netsim")
TAGS = "a|body|br|code|dd|div|dl|dt|h[1-6]|head|html|img|li|main|nav|ol|p|pre|script|section|span"
TAGS += "|strong|style|summary|details|table|tbody|td|th|thead|title|tr|ul"
TAG = re.compile(rf"</?(?:{TAGS})(?:\s[^<>]*)?/?>|&(?:nbsp|lt|gt);", re.IGNORECASE)


def html_in(source: str) -> Iterator[str]:
    """Texts of a Python file, docstrings apart, that hold an element or an entity of HTML."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings and TAG.search(node.value):
            yield f"{node.lineno}: {node.value}"


def test_no_python_file_of_the_package_holds_html() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 300
    assert not [f"{file}:{text}" for file in files for text in html_in(file.read_text())]


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('x = "<td>"', 1),
        ('x = f"<td class={name}>{value}</td>"', 1),
        ('x = "a<br>b"', 1),
        ('def f():\n    """Return <td>."""', 0),
        ('x = "<system version=1>"', 0),  # XML of NCCL
        ('x = "a < b and c > d"', 0),
        ('x = "MAX:<number>"', 0),
    ],
)
def test_html_in_strings_is_recognized(source: str, count: int) -> None:
    assert len(list(html_in(source))) == count
