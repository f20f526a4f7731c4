"""Journals: what is appended is read again, and what is damaged is named and left out."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from netsim.base.errors import InputError
from netsim.results.journal import Journal, line_count, sealed


def lines_of(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The mappings of a journal, and the messages about its damaged lines."""
    mappings: list[dict[str, Any]] = []
    with Journal.open_to_read(path) as journal:
        journal.read(mappings.append)
        return mappings, journal.damage


def test_a_journal_reads_what_was_appended_to_it_in_several_runs(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path) as journal:
        journal.append({"number": 1})
        journal.sync()
    with Journal.open(path) as journal:
        journal.append({"number": 2})
    assert lines_of(path) == ([{"number": 1}, {"number": 2}], [])
    assert line_count(path) == 2
    assert line_count(tmp_path / "missing.jsonl") == 0


def test_a_journal_is_open_in_only_one_process(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path), pytest.raises(BlockingIOError):
        Journal.open(path)
    Journal.open(path).close()


def test_a_line_of_a_killed_process_is_cut_off_and_the_next_line_is_complete(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(sealed({"number": 1}) + sealed({"number": 2})[:-5])
    assert lines_of(path) == ([{"number": 1}], [])
    assert line_count(path) == 1
    with Journal.open(path) as journal:
        journal.remove_unfinished_line()
        journal.append({"number": 3})
    assert lines_of(path) == ([{"number": 1}, {"number": 3}], [])


def test_a_line_without_a_checksum_is_read(tmp_path: Path) -> None:
    """As older versions wrote them."""
    path = tmp_path / "journal.jsonl"
    path.write_text('{"number": 1}\n')
    assert lines_of(path) == ([{"number": 1}], [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (sealed({"number": 1}).replace("1", "2", 1).encode(), "its checksum is that of another"),
        (b"[1]\n", "not a mapping"),
        (b"{\n", "not JSON"),
        (b"\xff\n", "byte 1 is not UTF-8"),
        (b'{"letter": 1}\n', "not a line of a journal"),
        (b'{"number": -1}\n', "expected a number above 0"),
    ],
)
def test_a_damaged_line_is_named_with_its_number_and_the_others_are_read(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(sealed({"number": 7}).encode() + line + sealed({"number": 8}).encode())
    numbers: list[int] = []

    def take(values: dict[str, Any]) -> None:
        if values["number"] < 0:
            raise InputError("expected a number above 0")
        numbers.append(values["number"])

    with Journal.open_to_read(path) as journal:
        journal.shown_path = Path("elsewhere.jsonl")
        journal.read(take)
        (message,) = journal.damage
    assert numbers == [7, 8]
    assert message.startswith(f"elsewhere.jsonl:2: damaged: {reason}")


def test_a_line_for_which_there_is_no_room_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    write = os.write

    def write_half(file: int, data: memoryview) -> int:
        if len(data) < 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[: len(data) // 2])

    with Journal.open(path) as journal:
        journal.append({"number": 1})
        before = path.read_bytes()
        monkeypatch.setattr(os, "write", write_half)
        with pytest.raises(InputError, match=r"journal\.jsonl: cannot be written: No space left"):
            journal.append({"number": 2})
        monkeypatch.undo()
        assert path.read_bytes() == before


def test_a_journal_that_was_deleted_or_replaced_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path) as journal:
        assert not journal.is_gone()
        journal.delete()
        assert journal.is_gone()
        path.write_text("")
        assert journal.is_gone()
