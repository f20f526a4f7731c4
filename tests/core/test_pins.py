"""What small calls write down is as it was."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests import pins

pins.fill()
BEFORE = pins.written()


@pytest.mark.parametrize("name", pins.FAMILIES)
def test_nothing_moves_unseen(name: str) -> None:
    if not pins.is_there(name):
        pytest.skip(f"needs {pins.NEEDS[name]}")
    moved = pins.moved(BEFORE[name], pins.found(name))
    assert not moved, "python -m tests.pins --write, if that is meant: " + "; ".join(moved[:9])


def test_all_families_are_written_down() -> None:
    assert set(BEFORE) == set(pins.FAMILIES)


@dataclass
class Some:
    """A value with parts."""

    number: float
    parts: tuple[object, ...] = ()


def test_values_are_spelled_in_full_and_alike_on_every_machine() -> None:
    some = pins.spelled(Some(0.1 + 0.2, (1, "a", None)))
    assert some == "Some{'number': 0.3, 'parts': [1, 'a', None]}"
    assert pins.spelled({2, 1}) == "{1, 2}"
    assert pins.spelled(-0.0) == "0"
    assert pins.digest(np.array([0.3, 1.0])) == pins.digest(np.array([0.1 + 0.2, 1.0]))
    assert pins.digest(np.array([1e-17, 1.0])) == pins.digest(np.array([0.0, 1.0]))
    assert pins.digest(np.array([1, 2])) != pins.digest(np.array([[1, 2]]))
    assert pins.digest(np.array([1, 2], np.int32)) == pins.digest(np.array([1, 2]))
    with pytest.raises(TypeError, match="not a value"):
        pins.spelled(object())


def test_what_moved_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pins.moved({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b", "c"]
    monkeypatch.setattr(pins, "WRITTEN", tmp_path / "pins.yaml")
    pins.write({"one": {'a "b"': "1", "c": "0012"}})
    assert pins.written() == {"one": {'a "b"': "1", "c": "0012"}}
