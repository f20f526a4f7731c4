"""Collectives and the algorithms that implement them, as checkable schedules.

One row of the table below is one algorithm: a function of a Collective and of keyword parameters
that returns a Schedule. Nothing here knows links or times.
"""

from collections.abc import Callable
from inspect import signature

from netsim.collectives import (
    binomial,
    bruck,
    chain,
    composed,
    direct,
    double_tree,
    exchange,
    exchange_groups,
    halving,
    hierarchical,
    point,
    ring,
    server,
    spread,
)
from netsim.collectives.collective import NAMES, Collective, CollectiveError
from netsim.collectives.lanes import Folding
from netsim.collectives.memory import VerificationError
from netsim.collectives.races import RaceError, check_races
from netsim.collectives.ranges import Expectation
from netsim.collectives.sizes import collective_of
from netsim.collectives.sketch import Sketch
from netsim.collectives.stands import Stands
from netsim.collectives.state import States, render_text, states
from netsim.collectives.verify import verify
from netsim.collectives.volumes import volumes
from netsim.errors import suggest
from netsim.schedule import Schedule

Algorithm = Callable[..., Schedule]

ALGORITHMS: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        "ring": ring.all_reduce,
        "tree": binomial.all_reduce,
        "double-binary-tree": double_tree.all_reduce,
        "halving-doubling": halving.all_reduce,
        "direct": direct.all_reduce,
        "hierarchical": hierarchical.all_reduce,
        "parameter-server": server.all_reduce,
    },
    "all_gather": {
        "ring": ring.all_gather,
        "recursive-doubling": halving.all_gather,
        "bruck": bruck.all_gather,
        "direct": direct.all_gather,
    },
    "reduce_scatter": {
        "ring": ring.reduce_scatter,
        "recursive-halving": halving.reduce_scatter,
        "direct": direct.reduce_scatter,
    },
    "broadcast": {
        "ring": chain.broadcast,
        "binomial": binomial.broadcast,
        "scatter-allgather": composed.broadcast,
    },
    "reduce": {
        "ring": chain.reduce,
        "binomial": binomial.reduce,
        "reduce-scatter-gather": composed.reduce,
    },
    "gather": {"linear": spread.linear_gather, "binomial": spread.binomial_gather},
    "scatter": {"linear": spread.linear_scatter, "binomial": spread.binomial_scatter},
    "alltoall": {
        "linear-shift": exchange.linear_shift,
        "pairwise": exchange.pairwise,
        "bruck": bruck.alltoall,
        "hierarchical": exchange_groups.hierarchical,
    },
    "alltoallv": {
        "linear-shift": exchange.linear_shift,
        "pairwise": exchange.pairwise,
        "bruck": bruck.alltoall,
        "hierarchical": exchange_groups.uneven,
    },
    "sendrecv": {"ring": point.sendrecv},
    "p2p": {"direct": point.pairs},
    "barrier": {"dissemination": point.barrier},
}


class AlgorithmError(CollectiveError):
    """An algorithm that does not exist, does not fit, or has no such parameter."""


def build(
    collective: Collective, algorithm: str, *, fold: Folding = None, **parameters: object
) -> Schedule:
    """The schedule of an algorithm for a collective; with a Sketch or Stands where it `folds`.

    >>> len(build(Collective("all_reduce", ranks=5, count=10), "ring"))  # 8 steps, then a mark each
    45
    """
    table = ALGORITHMS[collective.name]
    if algorithm not in table:
        raise AlgorithmError("algorithm", _unknown_algorithm(collective.name, algorithm))
    function = table[algorithm]
    known = parameters_of(collective.name, algorithm)
    for name in parameters:
        if name not in known:
            choice = f"one of {', '.join(known)}" if known else "no parameter"
            message = f"{algorithm} {collective.name} has {choice}, got {name!r}"
            raise AlgorithmError(name, message + suggest(name, known))
    if fold is not None:
        parameters["fold"] = fold
    return function(collective, **parameters)


def parameters_of(collective: str, algorithm: str) -> list[str]:
    """The names of an algorithm's parameters; none for an algorithm that does not exist."""
    return [name for name in _arguments(collective, algorithm)[1:] if name != "fold"]


def folds(collective: str, algorithm: str) -> bool:
    """Whether an algorithm can be written down once for all that is alike."""
    return "fold" in _arguments(collective, algorithm)


def _arguments(collective: str, algorithm: str) -> list[str]:
    function = ALGORITHMS[collective].get(algorithm)
    return [] if function is None else list(signature(function).parameters)


def _unknown_algorithm(collective: str, algorithm: str) -> str:
    choices = list(ALGORITHMS[collective])
    others = [name for name, table in ALGORITHMS.items() if algorithm in table]
    message = f"expected one of {', '.join(choices)} for {collective}, got {algorithm!r}"
    if others:
        return f"{message} (it exists for {', '.join(others)})"
    return message + suggest(algorithm, choices)


__all__ = [
    "ALGORITHMS",
    "NAMES",
    "Algorithm",
    "AlgorithmError",
    "Collective",
    "CollectiveError",
    "Expectation",
    "RaceError",
    "Sketch",
    "Stands",
    "States",
    "VerificationError",
    "build",
    "check_races",
    "collective_of",
    "folds",
    "parameters_of",
    "render_text",
    "states",
    "verify",
    "volumes",
]
