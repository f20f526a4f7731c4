"""Ways through switches of a fabric that reduce (SHARP): trees of links in place of one route.

Names of such ways begin with `sharp:` (from a group to one GPU, or from one to a group) or
`sharp-all:` (from a group to all of it in one stream, which is the reducing row's; handing out then
takes nothing); the way from GPU to NIC follows, see `topology.ways`.

The search for trees, and the library that it needs, are imported only where there are some: that
takes as long as simulating a million rows.
"""

from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from netsim.topology import Topology

if TYPE_CHECKING:
    from netsim.topology.reduction import ReductionTree, SwitchReduction

Ints = NDArray[np.int32]
ONE_WAY, BOTH_WAYS = "sharp", "sharp-all"


def through_fabric(route: str) -> bool:
    """Whether a way leads through switches of a fabric that reduce."""
    return route.partition(":")[0] in (ONE_WAY, BOTH_WAYS)


@dataclass
class FabricTrees:
    """The trees of one topology, each found once."""

    topology: Topology
    _trees: dict[tuple[tuple[int, ...], str, int], "ReductionTree"] = field(default_factory=dict)

    @cached_property
    def _reduction(self) -> "SwitchReduction":
        found: SwitchReduction = import_module("netsim.topology.reduction").SwitchReduction(
            self.topology
        )
        return found

    def links(
        self, one: int, group: Ints, route: str, channel: int, *, down: bool
    ) -> tuple[Ints, float]:
        """Links and latency between device `one` and a group: `down` to the group, else from it."""
        kind, _, way = route.partition(":")
        if kind == BOTH_WAYS and down:
            return np.zeros(0, np.int32), 0.0
        tree = self._tree(group, way, channel)
        if kind == BOTH_WAYS:
            return np.concatenate([tree.up, tree.down]), tree.up_latency + tree.down_latency
        seconds = self.topology.links.latency
        if down:
            alone = self._branch(one, tree.up, tree.root, up=True)
            return np.concatenate([alone, tree.down]), float(
                seconds[alone].sum()
            ) + tree.down_latency
        alone = self._branch(one, tree.down, tree.root, up=False)
        return np.concatenate([tree.up, alone]), tree.up_latency + float(seconds[alone].sum())

    def _tree(self, group: Ints, way: str, channel: int) -> "ReductionTree":
        key = (tuple(group.tolist()), way, channel)
        if key not in self._trees:
            self._trees[key] = self._reduction.tree(group, way, channel)
        return self._trees[key]

    def _branch(self, device: int, tree: Ints, root: int, *, up: bool) -> Ints:
        """The links of a tree between a device and its root."""
        links = self.topology.links
        near, far = (links.tail, links.head) if up else (links.head, links.tail)
        onward = dict(zip(near[tree].tolist(), tree.tolist(), strict=True))
        node, found = int(self.topology.gpu_nodes[device]), []
        while node != root:
            found.append(onward[node])
            node = int(far[found[-1]])
        return np.array(found, np.int32)
