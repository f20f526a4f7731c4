"""The report of `netsim localize`: its answer and its picture as one HTML page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from netsim.base.errors import InputError
from netsim.base.files import text_of, write_text
from netsim.localize.answer import percent, shortened
from netsim.report.report import REPORT, page_part, picture_uri
from netsim.report.words import pages

SUSPECTS = "suspects.json"
PICTURE = "suspects.svg"
MOST_SUSPECTS = 12


def write_suspects_report(folder: Path, target: Path) -> Path:
    """Write the report of a folder that `netsim localize -o` has written, to `target`."""
    answer = answer_of(folder)
    environment = pages()
    environment.filters["percent"] = percent
    environment.filters["few"] = shortened
    page = environment.get_template("suspects.html").render(
        answer=answer,
        headline=headline_of(answer),
        wrong=percent(1 - answer["healthy_probability"]),
        most=MOST_SUSPECTS,
        file=SUSPECTS,
        picture=picture_uri(folder / PICTURE),
        style=Markup(page_part("report.css")),
    )
    return write_text(target / REPORT, page)


def answer_of(folder: Path) -> dict[str, Any]:
    """The answer in a folder; an InputError if it cannot be read."""
    path = folder / SUSPECTS
    try:
        answer = json.loads(text_of(path))
    except ValueError as error:
        raise InputError(f"{path}: this JSON cannot be read: {error}") from None
    if not isinstance(answer, dict) or "suspects" not in answer or "tests" not in answer:
        raise InputError(f"{path}: expected the answer of netsim localize; write it anew with -o")
    return answer


def headline_of(answer: Mapping[str, Any]) -> str:
    """The answer in a sentence.

    >>> headline_of({"suspects": []})
    'Nothing is wrong'
    """
    suspects: Sequence[Mapping[str, Any]] = answer["suspects"]
    if not suspects:
        return "Nothing is wrong"
    first = suspects[0]
    hosts = f" ({shortened(first['hosts'])})" if first["hosts"] else ""
    return f"{first['part']}{hosts}: {first['fault']}"
