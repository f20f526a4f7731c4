"""Every relation of the table holds for every draw."""

import random

import pytest

from tests.relations.relation import Relation
from tests.relations.table import RELATIONS

MORE_DRAWS = 20  # of each relation, with `pytest -m full`


def check(relation: Relation, number: int) -> None:
    """Draw a scenario and fail with it where the relation does not hold."""
    if relation.package:
        pytest.importorskip(relation.package)
    scenario = relation.draw(random.Random(f"{relation.claim} {number}"))
    wrong = relation.holds(relation.left(scenario), relation.right(scenario))
    assert not wrong, f"{relation.claim}: {wrong}\n{scenario}"


def cases(first: int, more: int) -> list:
    """Return each relation with the numbers of its draws from `first` on."""
    return [
        pytest.param(
            relation,
            number,
            id=f"{relation.claim}-{number}",
            marks=[pytest.mark.xfail(reason=relation.fails, strict=True)] if relation.fails else [],
        )
        for relation in RELATIONS
        for number in range(
            first * relation.draws, first * relation.draws + (more or relation.draws)
        )
        if not (first and relation.fails)
    ]


@pytest.mark.parametrize(("relation", "number"), cases(0, 0))
def test_relation(relation: Relation, number: int) -> None:
    check(relation, number)


@pytest.mark.full
@pytest.mark.parametrize(("relation", "number"), cases(1, MORE_DRAWS))
def test_relation_with_more_draws(relation: Relation, number: int) -> None:
    check(relation, number)


def test_claims_are_different() -> None:
    assert len({relation.claim for relation in RELATIONS}) == len(RELATIONS)
