"""The table of algorithms by collective, and the functions that build their schedules.

An algorithm is a function of a Collective and of keyword parameters that returns a Schedule. It may
also be in a user's file: a Python file is run, and the schedule that it writes is checked.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from hashlib import sha256
from inspect import signature
from itertools import product
from traceback import walk_tb
from types import FrameType, FunctionType, ModuleType
from typing import Any

from netsim.base.errors import InputError, LostError, suggest
from netsim.base.values import dataclass
from netsim.collectives import direct, forest, halving, hierarchical, ring
from netsim.collectives.collective import (
    HAS_IN_PLACE,
    ROOTED,
    Collective,
    CollectiveError,
    collective_of,
)
from netsim.collectives.row_writer import RowWriter
from netsim.collectives.verify import RaceError, VerificationError, check_races, verify
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Schedule

Algorithm = Callable[..., Schedule]

ALGORITHMS: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        "ring": ring.all_reduce,
        "tree": halving.binomial_all_reduce,
        "double-binary-tree": forest.double_tree_all_reduce,
        "halving-doubling": halving.all_reduce,
        "direct": direct.all_reduce,
        "hierarchical": hierarchical.all_reduce,
        "parameter-server": direct.server_all_reduce,
        **ring.on_tori("all_reduce"),
        **forest.ON_LINKS,
    },
    "all_gather": {
        "ring": ring.all_gather,
        "recursive-doubling": halving.all_gather,
        "bruck": halving.bruck_all_gather,
        "direct": direct.all_gather,
        **ring.on_tori("all_gather"),
        **forest.ON_LINKS,
    },
    "reduce_scatter": {
        "ring": ring.reduce_scatter,
        "recursive-halving": halving.reduce_scatter,
        "direct": direct.reduce_scatter,
        **ring.on_tori("reduce_scatter"),
        **forest.ON_LINKS,
    },
    "broadcast": {
        "ring": forest.chain,
        "binomial": halving.broadcast,
        "scatter-allgather": hierarchical.broadcast,
        "forest": forest.packed,
    },
    "reduce": {
        "ring": forest.chain,
        "binomial": halving.reduce,
        "reduce-scatter-gather": hierarchical.reduce,
        "forest": forest.packed,
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
    """The error for an algorithm that does not exist, does not fit the collective, or has no such
    parameter.
    """


class TooLargeError(AlgorithmError, MemoryError):
    """The error for a schedule that does not fit into memory."""

    exit_code = LostError.exit_code


def build(
    collective: Collective, algorithm: str, *, writer: RowWriter | None = None, **parameters: object
) -> Schedule:
    """The schedule of a textbook algorithm for a collective.

    `algorithm` is a name of `ALGORITHMS[collective.name]` or FILE:FUNCTION; `parameters` are its
    keyword parameters. `writer` selects the rows that are written (default: all). Wrong names and
    parameters raise an AlgorithmError (an InputError).

    >>> len(build(Collective("all_reduce", ranks=5, count=10), "ring"))  # 8 steps, then a mark each
    45
    """
    function = _function(collective.name, algorithm)
    if function is None:
        raise AlgorithmError("algorithm", _unknown_algorithm(collective.name, algorithm))
    names = parameters_of(collective.name, algorithm)
    for name in parameters:
        if name not in names:
            choices = [one for one in names if one != "links"]
            choice = f"one of {', '.join(choices)}" if choices else "no parameter"
            message = f"{shown_name(algorithm)} {collective.name} has {choice}, got {name!r}"
            raise AlgorithmError(name, message + suggest(name, names))
    if writer is not None:
        parameters["writer"] = writer
    own_algorithm = _OWN.get(algorithm)
    try:
        if own_algorithm is None:
            return function(collective, **parameters)
        if own_algorithm.is_python:
            return own_algorithm(collective, parameters)
        return _built_from_file(algorithm, own_algorithm, collective)
    except MemoryError:
        raise TooLargeError(
            "ranks",
            f"{shown_name(algorithm)} {collective.name} on {collective.ranks:,} ranks has more "
            "transfers than there is memory for; fewer ranks or chunks need less",
        ) from None


MOST_KEPT_ROWS = 1_000_000  # of the schedules that are kept: some 100 MB
_BUILT: dict[tuple[str, Collective], Schedule] = {}  # of files of MSCCL, the latest last


def _built_from_file(algorithm: str, own_algorithm: "Own", collective: Collective) -> Schedule:
    """The schedule of an algorithm in a file of MSCCL or MSCCL++.

    A run builds the schedule of every size about six times (to verify it, to prepare it, to
    simulate it and to draw it), at about 0.3 ms for each step of the file. As the schedule depends
    only on file and collective, the latest schedules are kept.
    """
    key = algorithm, collective
    kept_schedule = _BUILT.pop(key, None)
    made = own_algorithm(collective, {}) if kept_schedule is None else kept_schedule
    _BUILT[key] = made
    while len(_BUILT) > 1 and sum(map(len, _BUILT.values())) > MOST_KEPT_ROWS:
        del _BUILT[next(iter(_BUILT))]
    return made


def parameters_of(collective: str, algorithm: str) -> list[str]:
    """The names of an algorithm's parameters; empty for an algorithm that does not exist."""
    return [name for name in _arguments(collective, algorithm)[1:] if name != "writer"]


def folds(collective: str, algorithm: str) -> bool:
    """Whether an algorithm takes a `RowWriter`, so that only one lane of each class of equal lanes
    need be written.
    """
    return "writer" in _arguments(collective, algorithm)


def _arguments(collective: str, algorithm: str) -> list[str]:
    function = _function(collective, algorithm)
    return [] if function is None else list(signature(function).parameters)


def _function(collective: str, algorithm: str) -> Algorithm | None:
    """The function of an algorithm, of netsim or of a user; None if there is none."""
    own_algorithm = _OWN.get(algorithm)
    return (
        ALGORITHMS[collective].get(algorithm) if own_algorithm is None else own_algorithm.function
    )


def _unknown_algorithm(collective: str, algorithm: str) -> str:
    """The message for an algorithm that does not exist for a collective."""
    choices = list(ALGORITHMS[collective])
    others = [name for name, table in ALGORITHMS.items() if algorithm in table]
    message = f"expected one of {', '.join(choices)} for {collective}, got {algorithm!r}"
    if others:
        return f"{message} (it exists for {', '.join(others)})"
    return message + suggest(algorithm, choices)


# **** Algorithms of users **** `my_file.py:swing` is the function swing of a Python file. The file
# may change while this process runs, so an algorithm is known by its name together with a digest of
# the file's text.

_OWN: dict[str, "Own"] = {}
_DEFINED: dict[tuple[str, str], str] = {}
_SOUND: set[tuple[str, Collective, str]] = set()
OTHERS = (".xml", ".json")  # files of MSCCL and MSCCL++; reading them takes imports
MOST_CHECKED = 5_000_000  # rows times ranks of a schedule that is verified: some seconds
RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)


def is_own(algorithm: str) -> bool:
    """Whether the name of an algorithm names a file: of Python, MSCCL or MSCCL++."""
    return algorithm.partition(":")[0].endswith((".py", *OTHERS))


def shown_name(algorithm: str) -> str:
    """The name of an algorithm as the user wrote it, without the digest of its file."""
    return algorithm.partition("#")[0] if algorithm in _OWN else algorithm


def stamp(collective: str, algorithm: str) -> str:
    """A name of an algorithm that is unique in this process: different for each function that the
    decorator `algorithm` has defined under the same name.
    """
    return _DEFINED.get((collective, algorithm), algorithm)


@dataclass(frozen=True)
class Own:
    """An algorithm of a user's file.

    - `file`: the path of the file.
    - `function`: the function of the Python file, or the BlockPlan of a file of MSCCL or MSCCL++.
    """

    file: str
    function: Any

    @property
    def is_python(self) -> bool:
        """Whether the algorithm is a function of a Python file, rather than a file of MSCCL or
        MSCCL++.
        """
        return isinstance(self.function, FunctionType)

    def __call__(self, collective: Collective, parameters: Mapping[str, Any]) -> Schedule:
        """The schedule that the algorithm builds. Its exceptions become AlgorithmErrors that name
        the line.
        """
        try:
            result: object = self.function(collective, **parameters)
        except CollectiveError:
            raise
        except Exception as error:
            raise _error_with_line(error, self.file) from error
        if isinstance(result, Schedule) and result.ranks == collective.ranks:
            return result
        got = f"one of {result.ranks}" if isinstance(result, Schedule) else f"{result!r:.40}"
        expected = f"a schedule of {collective.ranks} ranks, as b.finish() makes it"
        line = self.function.__code__.co_firstlineno
        raise AlgorithmError("algorithm", f"{self.file}:{line}: expected {expected}, got {got}")

    def place_of(self, row: int, collective: Collective, parameters: Mapping[str, Any]) -> str:
        """The place that wrote a row, for messages: "FILE.py:LINE", or file and step of MSCCL. If
        no line is known, the first line of the function.
        """
        if not self.is_python:
            return ", ".join(filter(None, (self.file, self.function.place_of(row, collective))))
        lines: list[tuple[int, int]] = [(-1, self.function.__code__.co_firstlineno)]

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code is Builder.rows.__code__:
                first = len(frame.f_locals["self"])
                above = frame.f_back
                while above is not None and above.f_code.co_filename != self.file:
                    above = above.f_back
                lines.extend([(first, above.f_lineno)] if above else [])

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            self.function(collective, **parameters)
        finally:
            sys.setprofile(before)
        line = next(line for first, line in reversed(lines) if first <= row)
        return f"{self.file}:{line}"


def own_algorithm_key(name: str, text: str) -> str:
    """The name by which `build` knows the algorithm of a user's file; the file is read (a Python
    file is run) if it is new.

    `name` is FILE.py:FUNCTION, FILE.xml or FILE.json, `text` the content of the file.
    """
    file, _, wanted = name.partition(":")
    key = f"{name}#{sha256(text.encode()).hexdigest()[:8]}"
    if key not in _OWN and file.endswith(OTHERS):
        from netsim.collectives import msccl  # with a reader of XML

        _OWN[key] = Own(file, msccl.algorithm(file, text))
    elif key not in _OWN:
        names = _run(file, text)
        defined_names = [
            key for key, value in names.items() if getattr(value, "__module__", "") == file
        ]
        if wanted not in defined_names or not isinstance(names[wanted], FunctionType):
            hint = (
                suggest(wanted, defined_names) or f" (it has {', '.join(defined_names) or 'none'})"
            )
            message = f"expected FILE.py:FUNCTION with a function of {file}, got {name!r}{hint}"
            raise AlgorithmError("algorithm", message)
        _OWN[key] = Own(file, names[wanted])
    return key


def refuse_wrong(collective: Collective, algorithm: str, parameters: Mapping[str, Any]) -> int:
    """Verify the schedule of a user's algorithm and check it for races; return its number of rows.

    A wrong schedule raises an AlgorithmError that names the line. Schedules with more than
    `MOST_CHECKED` rows times ranks are not checked.
    """
    made = build(collective, algorithm, **parameters)
    key = algorithm, collective, repr(parameters)
    if key in _SOUND or len(made) * collective.ranks > MOST_CHECKED:
        return len(made)
    try:
        verify(made, collective)
        check_races(made, collective)
    except (VerificationError, RaceError) as error:
        own_algorithm = _OWN[algorithm]
        row = re.search(r"\brow (\d+) \(", str(error))
        at = own_algorithm.place_of(int(row[1]) if row else -1, collective, parameters)
        where = f"{collective.name} of {collective.count} elements on {collective.ranks} ranks"
        where += ", in place" if collective.in_place else ""
        raise AlgorithmError("algorithm", f"{at}: {where}: {error}") from None
    _SOUND.add(key)
    return len(made)


def algorithm(collective: str, ranks: Sequence[int] = RANKS) -> Callable[[Algorithm], Algorithm]:
    """A decorator that adds a function to the algorithms of a collective, under the function's
    name.

    The function takes a Collective and returns a Schedule. It is verified and checked for races on
    each number of `ranks`, at several counts, in place and out of place; state `ranks` for an
    algorithm that works on certain numbers of ranks only. The name is known in this process only.

    >>> from netsim.collectives import ring
    >>> @algorithm("all_reduce", ranks=[2, 4, 8])
    ... def my_ring(collective):
    ...     return build(collective, "ring")
    >>> "my_ring" in ALGORITHMS["all_reduce"]
    True
    >>> del ALGORITHMS["all_reduce"]["my_ring"]

    `netsim.run("quickstart", ["workload.algorithm=my_ring"])` would run it.
    """

    def defined(function: Any) -> Algorithm:
        key = f"{function.__name__}#{len(_OWN)}"
        _OWN[key] = Own(function.__code__.co_filename, function)
        for n, per_rank, in_place in product(ranks, (0, 1, 7), (False, True)):
            if not in_place or collective in HAS_IN_PLACE:
                size = 16 * n * per_rank + 4 * (per_rank > 1)
                pairs = [(r, r * 3 % n) for r in range(n)] if collective == "p2p" else []
                root = n // 2 if collective in ROOTED else 0
                example = collective_of(
                    collective, n, size, root=root, in_place=in_place, pairs=pairs
                )
                linked = "links" in parameters_of(collective, key)
                refuse_wrong(example, key, {"links": forest.mesh(n)} if linked else {})
        ALGORITHMS[collective][function.__name__] = function
        _DEFINED[collective, function.__name__] = key
        return function  # type: ignore[no-any-return]

    return defined


class UntrustedCodeError(InputError):
    """The error for Python code of an algorithm that was not run because its source is not
    trusted.
    """


_CODE_MAY_RUN = ContextVar("code_may_run", default=True)


@contextmanager
def without_python_files() -> Iterator[None]:
    """Within the block, raise an UntrustedCodeError instead of running a Python file of an
    algorithm.
    """
    before = _CODE_MAY_RUN.set(False)
    try:
        yield
    finally:
        _CODE_MAY_RUN.reset(before)


@lru_cache(maxsize=64)
def _run(file: str, text: str) -> dict[str, Any]:
    """The names that a user's Python file defines, after running it."""
    if not _CODE_MAY_RUN.get():
        raise UntrustedCodeError(f"the Python file of the algorithm {file} was not run")
    module = sys.modules[file] = ModuleType(file)  # dataclasses look for it there
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    except SyntaxError as error:
        raise AlgorithmError("algorithm", f"{file}:{error.lineno}: {error.msg}") from None
    except Exception as error:
        raise _error_with_line(error, file) from error
    return module.__dict__


def _error_with_line(error: Exception, file: str) -> AlgorithmError:
    """An AlgorithmError for an exception of a user's file, with its line, class and message."""
    lines = [n for frame, n in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    where = f"{file}:{lines[-1]}" if lines else file
    return AlgorithmError("algorithm", f"{where}: {type(error).__name__}: {error}")
