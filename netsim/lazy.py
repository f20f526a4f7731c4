"""Modules that are imported when something of them is first used, because most runs never do.

A package names them in its `__init__`; `from netsim.training import run` is then only a promise of
that module, and `run.simulate_step(...)` imports it.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


class Promised(ModuleType):
    """Stands for a module until it is there, and passes every question on to it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def promised(package: str, *modules: str, **names: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package that promises these of its modules, and these names of others:
    `ends="senders receivers"` are imported from its module `ends` when they are asked for.
    """
    home = {name: module for module, inside in names.items() for name in inside.split()}

    def promise(name: str) -> Any:
        if name in home:
            return getattr(import_module(f"{package}.{home[name]}"), name)
        if name in modules:
            return Promised(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return promise
