"""Which algorithms there are: a table of collectives, and how one is built.

An algorithm is a function of a Collective and of keyword parameters that returns a Schedule.
"""

from collections.abc import Callable
from inspect import signature

from netsim.base.errors import suggest
from netsim.collectives import direct, halving, hierarchical, ring, tree
from netsim.collectives.collective import Collective, CollectiveError
from netsim.collectives.writing import Folding
from netsim.schedule.schedule import Schedule

Algorithm = Callable[..., Schedule]


ALGORITHMS: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        "ring": ring.all_reduce,
        "tree": tree.binomial_all_reduce,
        "double-binary-tree": tree.double_tree_all_reduce,
        "halving-doubling": halving.all_reduce,
        "direct": direct.all_reduce,
        "hierarchical": hierarchical.all_reduce,
        "parameter-server": direct.server_all_reduce,
    },
    "all_gather": {
        "ring": ring.all_gather,
        "recursive-doubling": halving.all_gather,
        "bruck": halving.bruck_all_gather,
        "direct": direct.all_gather,
    },
    "reduce_scatter": {
        "ring": ring.reduce_scatter,
        "recursive-halving": halving.reduce_scatter,
        "direct": direct.reduce_scatter,
    },
    "broadcast": {
        "ring": ring.broadcast,
        "binomial": tree.broadcast,
        "scatter-allgather": hierarchical.broadcast,
    },
    "reduce": {
        "ring": ring.reduce,
        "binomial": tree.reduce,
        "reduce-scatter-gather": hierarchical.reduce,
    },
    "gather": {"linear": direct.linear_gather, "binomial": direct.binomial_gather},
    "scatter": {"linear": direct.linear_scatter, "binomial": direct.binomial_scatter},
    "alltoall": {
        "linear-shift": direct.linear_shift,
        "pairwise": direct.pairwise,
        "bruck": halving.bruck_alltoall,
        "hierarchical": hierarchical.alltoall,
    },
    "alltoallv": {
        "linear-shift": direct.linear_shift,
        "pairwise": direct.pairwise,
        "bruck": halving.bruck_alltoall,
        "hierarchical": hierarchical.alltoallv,
    },
    "sendrecv": {"ring": direct.sendrecv},
    "p2p": {"direct": direct.pairs},
    "barrier": {"dissemination": direct.barrier},
}


class AlgorithmError(CollectiveError):
    """An algorithm that does not exist, does not fit, or has no such parameter."""


def build(
    collective: Collective, algorithm: str, *, fold: "Folding" = None, **parameters: object
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
