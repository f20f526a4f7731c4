"""What is kept is found once; of so many the last are kept, and room is made before the next."""

import gc
import weakref

from netsim.base.memo import Memo, cached_per_object


def test_each_question_is_answered_once() -> None:
    memo, asked = Memo(), list[int]()

    def square(number: int) -> int:
        return memo.of(number, lambda: asked.append(number) or number * number)

    assert [square(number) for number in (3, 4, 3, 4)] == [9, 16, 9, 16]
    assert asked == [3, 4]
    assert len(memo) == 2


def test_the_last_ones_asked_for_are_kept() -> None:
    memo, asked = Memo(2), list[str]()
    for name in "abacab":
        memo.of(name, lambda name=name: asked.append(name) or name)
    assert asked == ["a", "b", "c", "b"]


def test_room_is_made_before_the_next_is_found() -> None:
    memo = Memo(1)
    memo.of("one", lambda: 1)
    assert memo.of("two", lambda: len(memo)) == 0


def test_what_is_not_worth_it_is_found_again() -> None:
    memo = Memo()
    for _ in range(2):
        memo.of(1, lambda: "large", lambda found: found != "large")
    assert not len(memo)
    assert memo.of(1, lambda: "small") == memo.of(1, lambda: "large") == "small"


def test_objects_keep_their_own_answers() -> None:
    class Squares:
        asked = 0

        @cached_per_object
        def of(self, number: int, *, less: int = 0) -> int:
            self.asked += 1
            return number * number - less

    one, other = Squares(), Squares()
    assert [one.of(3), one.of(3), one.of(3, less=1), other.of(3)] == [9, 9, 8, 9]
    assert (one.asked, other.asked) == (2, 1)


def test_answers_are_forgotten_with_their_object() -> None:
    class Lists:
        @cached_per_object
        def of(self, number: int) -> set[int]:
            return {number}

    subject = Lists()
    answer = weakref.ref(subject.of(3))
    assert answer() is subject.of(3)
    assert not vars(subject)
    del subject
    gc.collect()
    assert answer() is None
