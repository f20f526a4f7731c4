"""Every golden text is what the code writes now: schedules, programs, traces, topologies, choices
of NCCL and training steps that a person can review as a diff."""

import pytest

from tests.golden.layout import MOST_LINES
from tests.golden.table import WRITERS, difference, files, path_of, text_of


@pytest.mark.parametrize("name", WRITERS)
def test_golden_text_is_what_the_code_writes(name: str) -> None:
    diff = difference(name, text_of(name))
    assert not diff, f"{diff}\n\nif that is meant: python -m tests.golden --write {name}"


def test_every_golden_file_has_a_writer() -> None:
    assert files() == sorted(WRITERS)


@pytest.mark.parametrize("name", WRITERS)
def test_golden_text_is_short_and_begins_with_a_heading(name: str) -> None:
    lines = path_of(name).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES
    assert len(lines[0]) > 20
    assert lines[0][0].isalpha()
