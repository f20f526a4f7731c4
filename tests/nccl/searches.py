"""NCCL's searches of channels, kept on disk: many tests ask for the same few hundred nodes, which
each worker of each session would search anew. What is kept is of the code as it is, byte for byte;
tests whose subject is the search call `search_node`, of which nothing is kept.
"""

import hashlib
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netsim
from netsim.base.memo import digest
from netsim.nccl import job, node

CODE = ("base", "nccl", "topology", "yamlio")  # all that a search is made of


def code() -> str:
    """A few digits that stand for the code and the tables that searches are made of."""
    found, base = hashlib.sha256(), Path(netsim.__file__).parent
    for file in sorted(one for part in CODE for one in (base / part).rglob("*.*")):
        if file.suffix in (".py", ".csv", ".toml"):
            found.update(file.read_bytes())
    return found.hexdigest()[:12]


def keep(folder: Path) -> None:
    """From now on a job's nodes are searched once for all processes that keep what they find in a
    folder."""
    here = folder / code()
    for other in [one for one in folder.iterdir() if one != here]:
        shutil.rmtree(other, ignore_errors=True)  # of code that is no more
    job.search_node = kept(here, node.search_node)


def kept(folder: Path, search: Callable[..., Any]) -> Callable[..., Any]:
    """A search that looks into a folder first."""
    folder.mkdir(parents=True, exist_ok=True)

    def found(system: Any, *, graphs_of_file: Any = None, **asked: Any) -> Any:
        if graphs_of_file is not None:
            return search(system, graphs_of_file=graphs_of_file, **asked)
        path = folder / digest((system, *asked.items())).hex()
        if path.is_file():
            return pickle.loads(path.read_bytes())
        view = search(system, **asked)
        half = path.with_suffix(f".{os.getpid()}")
        half.write_bytes(pickle.dumps(view, pickle.HIGHEST_PROTOCOL))
        half.replace(path)
        return view

    return found
