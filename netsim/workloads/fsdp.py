"""Fully sharded data parallelism (FSDP, FSDP2, ZeRO-3): weights are gathered layer by layer.

A unit is one layer. Its weights are gathered before its forward pass and, if they were given up
after it, again before its backward pass; its gradients are reduced and scattered. All of it shares
one stream, so gathers and scatters wait for each other.
"""

from dataclasses import dataclass, field

from netsim.workloads.emit import Emitted
from netsim.workloads.grid import Ranks
from netsim.workloads.replicas import Alone
from netsim.workloads.tape import Deps

AHEAD = 2  # units gathered and not yet given up, that limit_all_gathers allows


@dataclass
class Fsdp(Alone):
    """Units of one stage: which are gathered, and the kernels after which each was given up."""

    gathered: dict[int, Deps] = field(default_factory=dict)
    freed: list[int] = field(default_factory=list)
    scattered: list[int] = field(default_factory=list)
    turn: int = -1

    @property
    def root(self) -> set[int]:
        """What belongs to the outermost unit: gathered first, never given up."""
        kinds = [layer.kind for layer in self.replica.layers]
        return {number for number, kind in enumerate(kinds) if kind in ("embedding", "head")}

    def before_forward(self, layer: int) -> Deps:
        """Gather the unit; the gather runs as far ahead as the limit allows."""
        if layer not in self.gathered:
            self._gather(layer, self._limit())
        return self.gathered[layer]

    def after_forward(self, layer: int, done: Emitted) -> None:
        """Give the unit up."""
        if self.replica.setting.reshard and layer not in self.root:
            self.gathered.pop(layer, None)
        self.freed.append(done.last)

    def before_backward(self, layer: int) -> Deps:
        """Gather the unit if need be, and the next one ahead of this one's kernels."""
        if layer not in self.gathered:
            self._gather(layer, tuple(self.freed[-1:]))
        mine = self.gathered[layer]
        if self.replica.setting.backward_prefetch == "pre":
            self._prefetch(layer)
        return mine

    def after_backward(self, layer: int, done: Deps, *, last: bool) -> None:
        """Give the unit up and scatter its gradients."""
        s = self.replica.setting
        self.freed += done[:1]
        if s.reshard and layer not in self.root:
            self.gathered.pop(layer, None)
        if s.backward_prefetch == "post":
            self._prefetch(layer)
        if last or not s.no_sync:
            self._scatter(layer, done)

    def finish(self) -> Deps:
        """The optimizer waits for all gradients."""
        return tuple(self.scattered)

    def shard(self) -> int:
        """Every rank updates what it holds."""
        return self.replica.setting.shard or self.replica.groups[False].shape[1]

    def _prefetch(self, layer: int) -> None:
        before = layer - 1
        if before >= 0 and before not in self.gathered:
            self._gather(before, tuple(self.freed[-1:]))

    def _limit(self) -> Deps:
        """What must have been given up before one more unit may be gathered."""
        if not self.replica.setting.limit_all_gathers or len(self.freed) < AHEAD:
            return ()
        return (self.freed[-AHEAD],)

    def _gather(self, layer: int, after: Deps) -> None:
        s, made = self.replica.setting, []
        for expert, count in self._padded(layer).items():
            found = self.replica.exchange(
                "weights", "all_gather", count * s.element, after,
                expert=expert, groups=self._inner(expert), dtype=s.dtype,
            )  # fmt: skip
            made += [] if found is None else [found]
        self.gathered[layer] = tuple(made)

    def _scatter(self, layer: int, after: Deps) -> None:
        s = self.replica.setting
        for expert, count in self._padded(layer).items():
            inner = self._inner(expert)
            found = self.replica.exchange(
                "gradients", "reduce_scatter", count * s.gradient_element, after,
                expert=expert, groups=inner,
            )  # fmt: skip
            part = count // inner.shape[1] * s.gradient_element
            outer = self.replica.exchange(
                "gradients across", "all_reduce", part,
                after if found is None else (found,), expert=expert, groups=self._outer(expert),
            )  # fmt: skip
            self.scattered += [one for one in (found, outer) if one is not None]

    def _padded(self, layer: int) -> dict[bool, int]:
        """Elements of a unit, rounded up so that all ranks have as many."""
        held = self.replica.held(self.replica.layers[layer : layer + 1])
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
