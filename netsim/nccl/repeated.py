"""Repeated: a sequence that turns in a circle, whose values are made when they are asked for."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class Repeated(Sequence[T], Generic[T]):
    """`count` values of which no more than `period` differ: `make(number)` with number < period.

    What nobody looks at is not made: a tree over very many ranks where only rings run.
    """

    def __init__(self, count: int, period: int, make: Callable[[int], T]) -> None:
        self.length, self.period, self.make = count, period, make
        self._made: dict[int, T] = {}

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        places = range(self.length)
        if isinstance(index, slice):
            return tuple(self[number] for number in places[index])
        number = places[index] % self.period
        if number not in self._made:
            self._made[number] = self.make(number)
        return self._made[number]
