"""Which algorithms there are: a table of collectives, and how one is built.

An algorithm is a function of a Collective and of keyword parameters that returns a Schedule. Its
module is imported when it is asked for.
"""

from collections import UserDict
from collections.abc import Callable
from importlib import import_module
from inspect import signature

from netsim.collectives.collective import Collective, CollectiveError
from netsim.errors import suggest
from netsim.schedule import Schedule

TYPE_CHECKING = False

if TYPE_CHECKING:
    from netsim.collectives.lanes import Folding

Algorithm = Callable[..., Schedule]


class Algorithms(UserDict[str, Algorithm]):
    """The algorithms of a collective by name; here written as `module.function`."""

    def __init__(self, homes: dict[str, str]) -> None:
        super().__init__()
        self.homes = homes
        self.data = dict.fromkeys(homes, _nothing)

    def __getitem__(self, name: str) -> Algorithm:
        if self.data[name] is _nothing:
            module, _, function = self.homes[name].partition(".")
            self.data[name] = getattr(import_module(f"netsim.collectives.{module}"), function)
        return self.data[name]


def _nothing(*_: object) -> Schedule:
    """Stands where nobody has asked for the algorithm yet."""
    raise NotImplementedError


ALGORITHMS: dict[str, Algorithms] = {
    "all_reduce": Algorithms(
        {
            "ring": "ring.all_reduce",
            "tree": "binomial.all_reduce",
            "double-binary-tree": "double_tree.all_reduce",
            "halving-doubling": "halving.all_reduce",
            "direct": "direct.all_reduce",
            "hierarchical": "hierarchical.all_reduce",
            "parameter-server": "server.all_reduce",
        }
    ),
    "all_gather": Algorithms(
        {
            "ring": "ring.all_gather",
            "recursive-doubling": "halving.all_gather",
            "bruck": "bruck.all_gather",
            "direct": "direct.all_gather",
        }
    ),
    "reduce_scatter": Algorithms(
        {
            "ring": "ring.reduce_scatter",
            "recursive-halving": "halving.reduce_scatter",
            "direct": "direct.reduce_scatter",
        }
    ),
    "broadcast": Algorithms(
        {
            "ring": "chain.broadcast",
            "binomial": "binomial.broadcast",
            "scatter-allgather": "composed.broadcast",
        }
    ),
    "reduce": Algorithms(
        {
            "ring": "chain.reduce",
            "binomial": "binomial.reduce",
            "reduce-scatter-gather": "composed.reduce",
        }
    ),
    "gather": Algorithms(
        {
            "linear": "spread.linear_gather",
            "binomial": "spread.binomial_gather",
        }
    ),
    "scatter": Algorithms(
        {
            "linear": "spread.linear_scatter",
            "binomial": "spread.binomial_scatter",
        }
    ),
    "alltoall": Algorithms(
        {
            "linear-shift": "exchange.linear_shift",
            "pairwise": "exchange.pairwise",
            "bruck": "bruck.alltoall",
            "hierarchical": "exchange_groups.hierarchical",
        }
    ),
    "alltoallv": Algorithms(
        {
            "linear-shift": "exchange.linear_shift",
            "pairwise": "exchange.pairwise",
            "bruck": "bruck.alltoall",
            "hierarchical": "exchange_groups.uneven",
        }
    ),
    "sendrecv": Algorithms(
        {
            "ring": "point.sendrecv",
        }
    ),
    "p2p": Algorithms(
        {
            "direct": "point.pairs",
        }
    ),
    "barrier": Algorithms(
        {
            "dissemination": "point.barrier",
        }
    ),
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
