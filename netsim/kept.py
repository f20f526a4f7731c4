"""Methods whose last answers are kept, for those who ask for the same things again and again."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
KEPT = 4  # answers that each object keeps to the last questions


def kept(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method of which every object keeps its last answers."""

    @wraps(method)
    def answer(found: Any, /, *args: P.args, **given: P.kwargs) -> R:
        known: dict[object, R] = vars(found).setdefault(f"last of {method.__name__}", {})
        asked = (args, *given.items())
        if asked in known:
            return known[asked]
        made = known[asked] = method(found, *args, **given)
        if len(known) > KEPT:
            known.pop(next(iter(known)), None)
        return made

    return answer
