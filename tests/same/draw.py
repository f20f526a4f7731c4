"""Random choices that depend on a text alone, so that two commits are asked the same."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

Value = TypeVar("Value")


class Draw:
    """Choices in a row, the same for the same key on every machine and version of Python."""

    def __init__(self, *key: object) -> None:
        self._random = random.Random(" ".join(map(str, key)))

    def choose(self, values: Sequence[Value]) -> Value:
        """Return one of the values, each equally likely; list a value twice to double its weight.

        >>> Draw("example", 1).choose("abc") == Draw("example", 1).choose("abc")
        True
        """
        return values[int(self._random.random() * len(values))]

    def happens(self, probability: float) -> bool:
        """Return True with a probability between 0 and 1."""
        return self._random.random() < probability

    def integer(self, least: int, most: int) -> int:
        """Return an integer from `least` to `most`, both included."""
        return least + int(self._random.random() * (most - least + 1))

    def sample(self, values: Sequence[Value], count: int) -> list[Value]:
        """Return `count` different values in a random order."""
        remaining = list(values)
        places = (int(self._random.random() * (len(values) - done)) for done in range(count))
        return [remaining.pop(place) for place in places]

    def maybe_set(
        self, target: dict[str, Any], probability: float, key: str, values: Sequence[Any]
    ) -> None:
        """Set a key of a mapping to one of the values with a probability, or leave it out."""
        if self.happens(probability):
            target[key] = self.choose(values)

    def maybe_update(
        self, target: dict[str, Any], probability: float, values: Sequence[Mapping[str, Any]]
    ) -> None:
        """Set the keys of one of several mappings with a probability, or none."""
        if self.happens(probability):
            target.update(self.choose(values))
