"""The language of NCCL_ALGO and NCCL_PROTO: comma lists, `^` for all but these, one a function.

`ring,tree;allreduce:^nvls` is two lists: one for all functions, one for AllReduce.
"""

from collections.abc import Sequence

from netsim.errors import shown, suggest
from netsim.nccl.facts import Facts
from netsim.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS, Function


def algorithm_lists(text: str, facts: Facts) -> dict[Function, tuple[str, ...]]:
    """The algorithms that a value of NCCL_ALGO admits, by function."""
    return choice_lists(text, ALGORITHMS, facts.algorithms, facts)


def protocol_lists(text: str, facts: Facts) -> dict[Function, tuple[str, ...]]:
    """The protocols that a value of NCCL_PROTO admits, by function."""
    return choice_lists(text, PROTOCOLS, PROTOCOLS, facts)


def choice_lists(
    text: str, names: Sequence[str], available: Sequence[str], facts: Facts
) -> dict[Function, tuple[str, ...]]:
    """What a value admits, by function; functions without a list are left out."""
    lists = text.split(";")
    if len(lists) > 1 and not lists[-1].strip():
        lists.pop()
    admitted: dict[Function, tuple[str, ...]] = {}
    for number, part in enumerate(lists):
        prefix, colon, rest = part.rpartition(":")
        if colon and not facts.function_lists:
            raise ValueError("lists by function need NCCL 2.24 or newer")
        if not colon and number:
            raise ValueError(f"only the first list may be without a function, got {shown(part)}")
        functions = (_function(prefix),) if colon else FUNCTIONS
        choices = _names(rest if colon else part, names, available)
        admitted.update(dict.fromkeys(functions, choices))
    return admitted


def _function(text: str) -> Function:
    by_name = {function.casefold(): function for function in FUNCTIONS}
    name = text.strip().casefold()
    if name not in by_name:
        hint = suggest(text.strip(), FUNCTIONS)
        raise ValueError(f"{shown(text.strip())} is no function of NCCL{hint}")
    return by_name[name]


def _names(text: str, names: Sequence[str], available: Sequence[str]) -> tuple[str, ...]:
    listed = text.strip()
    excluded = listed.startswith("^")
    by_name = {name.casefold(): name for name in names}
    by_name["collnet"] = "CollNetDirect"  # its name before 2.14
    chosen: list[str] = []
    for word in listed.removeprefix("^").split(","):
        name = by_name.get(word.strip().casefold())
        if name is None or name not in names:
            expected = f"expected one of {', '.join(names)}"
            raise ValueError(f"{expected}, got {shown(word.strip())}{suggest(word.strip(), names)}")
        if name not in available and not excluded:
            raise ValueError(f"this NCCL version has no {name}")
        chosen.append(name)
    return tuple(name for name in available if (name in chosen) != excluded)
