"""Fully sharded data parallelism (FSDP, FSDP2, ZeRO-3): weights are gathered layer by layer.

A unit is one layer; embedding and head belong to the outermost one. A unit's weights are gathered
before its forward pass and, if they were given up after it, again before its backward pass; its
gradients are reduced and scattered. All of it is one communicator's and shares one stream: gathers
and scatters wait for each other.
"""

from dataclasses import dataclass, field
from functools import cached_property

from netsim.workloads.emit import Emitted
from netsim.workloads.grid import Ranks
from netsim.workloads.replicas import Alone
from netsim.workloads.tape import Deps

AHEAD = 2  # units gathered and not yet given up, that limit_all_gathers allows
OUTERMOST = "root"
ACROSS = "dp replicas"  # copies have a communicator of their own, and so a stream


@dataclass
class Fsdp(Alone):
    """Units of one stage, each known by its first layer; the outermost is kept until its end.

    `freed` are the kernels after which units were given up, `given_up` the last one of each unit.
    """

    gathered: dict[int, Deps] = field(default_factory=dict)
    freed: list[int] = field(default_factory=list)
    given_up: dict[int, int] = field(default_factory=dict)
    scattered: list[int] = field(default_factory=list)

    @cached_property
    def root(self) -> tuple[int, ...]:
        """The layers of the outermost unit."""
        kinds = [layer.kind for layer in self.replica.layers]
        return tuple(n for n, kind in enumerate(kinds) if kind in ("embedding", "head"))

    def before_forward(self, layer: int) -> Deps:
        """Gather the unit, the outermost before all others, as far ahead as the limit allows."""
        if self.root and layer == 0:
            self._gather(self.root[0])
        unit = self._unit(layer)
        self._gather(unit)
        return self.gathered[unit]

    def after_forward(self, layer: int, done: Emitted) -> None:
        """Give the unit up."""
        if self.replica.setting.reshard and layer not in self.root:
            self._give_up(layer, done.last)

    def before_backward(self, layer: int) -> Deps:
        """Gather the unit if need be, and the next one ahead of this one's kernels."""
        unit = self._unit(layer)
        self._gather(unit)
        if self.replica.setting.backward_prefetch == "pre":
            self._prefetch(layer)
        return self.gathered[unit]

    def after_backward(self, layer: int, done: Deps, *, last: bool) -> None:
        """Give the unit up and scatter its gradients, once all of its layers have theirs."""
        s, unit = self.replica.setting, self._unit(layer)
        if layer != unit:
            return
        if s.reshard or last or not s.no_sync:
            self._give_up(unit, done[0])
        if s.backward_prefetch == "post":
            self._prefetch(layer)
        if last or not s.no_sync:
            self._scatter(unit, done)

    def finish(self) -> Deps:
        """The optimizer waits for all gradients."""
        return tuple(self.scattered)

    def shard(self) -> int:
        """Every rank updates what it holds."""
        return self.replica.setting.shard or self.replica.groups[False].shape[1]

    def _unit(self, layer: int) -> int:
        return self.root[0] if layer in self.root else layer

    def _give_up(self, unit: int, kernel: int) -> None:
        if self.gathered.pop(unit, None) is not None and unit not in self.root:
            self.freed.append(kernel)
            self.given_up[unit] = kernel

    def _prefetch(self, layer: int) -> None:
        if layer > 0:
            self._gather(self._unit(layer - 1))

    def _limit(self) -> Deps:
        """What must have been given up before one more unit may be gathered."""
        if not self.replica.setting.limit_all_gathers or len(self.freed) < AHEAD:
            return ()
        return (self.freed[-AHEAD],)

    def _gather(self, unit: int) -> None:
        if unit in self.gathered:
            return
        s, made = self.replica.setting, list[int]()
        again = (self.given_up[unit],) if unit in self.given_up else ()
        after = (*self._limit(), *again)
        with self.replica.tape.naming(self._name(unit)):
            for expert, count in self._padded(unit).items():
                found = self.replica.exchange(
                    "weights", "all_gather", count * s.element, after,
                    expert=expert, groups=self._inner(expert), dtype=s.dtype,
                )  # fmt: skip
                made += [] if found is None else [found]
        self.gathered[unit] = tuple(made)

    def _scatter(self, unit: int, after: Deps) -> None:
        s = self.replica.setting
        with self.replica.tape.naming(self._name(unit)):
            for expert, count in self._padded(unit).items():
                inner = self._inner(expert)
                found = self.replica.exchange(
                    "gradients", "reduce_scatter", count * s.gradient_element, after,
                    expert=expert, groups=inner,
                )  # fmt: skip
                part = count // inner.shape[1] * s.gradient_element
                outer = self.replica.exchange(
                    "gradients across", "all_reduce", part,
                    after if found is None else (found,), expert=expert, groups=self._outer(expert),
                    stream=ACROSS,
                )  # fmt: skip
                self.scattered += [one for one in (found, outer) if one is not None]

    def _name(self, unit: int) -> str:
        return OUTERMOST if unit in self.root else self.replica.layers[unit].name

    def _padded(self, unit: int) -> dict[bool, int]:
        """Elements of a unit, rounded up so that all ranks have as many."""
        layers = self.root if unit in self.root else (unit,)
        held = self.replica.held(self.replica.layers[layer] for layer in layers)
        return {
            expert: -(-count // width) * width
            for expert, count in held.items()
            for width in [self._inner(expert).shape[1]]
            if count
        }

    def _width(self, expert: bool) -> int:
        members = int(self.replica.groups[expert].shape[1])
        return min(self.replica.setting.shard or members, members)

    def _inner(self, expert: bool) -> Ranks:
        """The ranks that share one copy of the weights."""
        groups = self.replica.groups[expert]
        return groups.reshape(-1, self._width(expert))

    def _outer(self, expert: bool) -> Ranks:
        """The ranks that hold the same part in different copies."""
        groups, width = self.replica.groups[expert], self._width(expert)
        parts = groups.reshape(len(groups), -1, width)
        return parts.transpose(0, 2, 1).reshape(-1, parts.shape[1])
