"""Mutants: one small fault in the code each, and whether the tests notice.

    python -m tests.mutants                        # try those of tests/data/mutants_to_kill.yaml
    python -m tests.mutants room-of-a-wire         # one of them, by its name
    python -m tests.mutants --count 20 --seed 7    # draw others from all of the package

`draw.py` makes mutants from the syntax of the package, `trial.py` tries them in a copy of it.
"""

from tests.mutants.draw import (
    Mutant,
    argument,
    drawn_from,
    every_mutant,
    known_survivors,
    mutants_of,
)
from tests.mutants.trial import copy_of

__all__ = [
    "Mutant",
    "argument",
    "copy_of",
    "drawn_from",
    "every_mutant",
    "known_survivors",
    "mutants_of",
]
