"""Reduction inside the fabric (SHARP): the tree of switches that adds up what some GPUs send.

Each GPU sends its data once towards a root switch. Switches add up what comes from below and send
the sum upwards; the result comes down the same tree. This module knows links and switches, but no
schedule.
"""

import numpy as np

from netsim.base.values import dataclass
from netsim.topology.graph import NODE_KINDS, Floats, Ints, Topology, TopologyError


@dataclass(frozen=True, slots=True)
class ReductionTree:
    """A tree of switches and its links, over which a reduction runs.

    Args:
        root: node number of the root switch.
        switches: node numbers of all its switches.
        up: links from GPUs over NICs to the root; each carries the data once.
        down: links from the root back to the GPUs; each carries the result once.
        up_latency: seconds of the longest branch upwards.
        down_latency: seconds of the longest branch downwards.
    """

    root: int
    switches: Ints
    up: Ints
    down: Ints
    up_latency: float
    down_latency: float


class SwitchReduction:
    """The reduction trees of a topology whose fabric has `sharp: true`. Trees are cached."""

    def __init__(self, topology: Topology) -> None:
        from scipy.sparse import csr_array

        self.topology = topology
        self._trees: dict[tuple[bytes, str, int], ReductionTree] = {}
        layout = topology.layout
        links = topology.links
        able = layout.reduces & (layout.kinds == NODE_KINDS.index("switch"))
        self.switches = np.flatnonzero(able).astype(np.int32)
        self._number = np.full(len(layout.nodes), -1, np.int32)
        self._number[self.switches] = np.arange(len(self.switches))
        tail = self._number[links.tail]
        head = self._number[links.head]
        usable = np.flatnonzero((tail >= 0) & (head >= 0) & (links.bandwidth > 0))
        key = tail[usable].astype(np.int64) * len(self.switches) + head[usable]
        order = np.argsort(key, kind="stable")
        self._link = usable[order].astype(np.int32)
        self._key = key[order]
        shape = (len(self.switches),) * 2
        steps = csr_array((np.ones(len(usable)), (tail[usable], head[usable])), shape=shape)
        self._joined = steps.multiply(steps.T).tocsr()  # what is alive in both directions

    def links(
        self, device: int, question: tuple[Ints, str, int], *, down: bool, all_at_once: bool
    ) -> tuple[Ints, float]:
        """Return the links between a device and a group of devices, and their latency in seconds.

        Args:
            device: the device.
            question: the arguments of `tree`: the group, its route, its channel.
            down: True for data that goes from the device to the root and down to the group; False
                for data that goes from the group up to the root and down to the device.
            all_at_once: data goes up and down in one stream; the links of the whole tree are then
                returned for `down=False`, and none for `down=True`.
        """
        if all_at_once and down:
            return np.zeros(0, np.int32), 0.0
        key = (question[0].tobytes(), *question[1:])
        tree = self._trees[key] = self._trees.get(key) or self.tree(*question)
        if all_at_once:
            return np.concatenate([tree.up, tree.down]), tree.up_latency + tree.down_latency
        branch = self._branch(device, tree.up if down else tree.down, tree.root, up=down)
        seconds = float(self.topology.links.latency[branch].sum())
        if down:
            return np.concatenate([branch, tree.down]), seconds + tree.down_latency
        return np.concatenate([tree.up, branch]), tree.up_latency + seconds

    def _branch(self, device: int, tree: Ints, root: int, *, up: bool) -> Ints:
        links = self.topology.links
        near, far = (links.tail, links.head) if up else (links.head, links.tail)
        onward = dict(zip(near[tree].tolist(), tree.tolist(), strict=True))
        node = int(self.topology.gpu_nodes[device])
        branch = []
        while node != root:
            branch.append(onward[node])
            node = int(far[branch[-1]])
        return np.array(branch, np.int32)

    def tree(self, gpus: Ints, way: str = "net", channel: int = 0) -> ReductionTree:
        """Return the tree for the devices `gpus`, whose NICs are on one rail.

        `way` is the name of the route from GPUs to the fabric (see RouteOptions). Different
        channels use the equally good roots, and parallel cables, in turn.
        """
        if not len(self.switches):
            raise TopologyError(
                f"{self.topology.name}: no switch of its fabric reduces (cluster.fabric.sharp)"
            )
        if len(gpus) < 2:
            raise TopologyError("a reduction in switches needs at least two GPUs")
        up, down, leaf, latency = self._access(np.asarray(gpus, np.int32), way, channel)
        root, above, cable_number = self._choose_root(np.unique(leaf), channel)
        climbs = [self._climb(int(one), root, above, cable_number) for one in leaf]
        seconds = self.topology.links.latency
        rise = max(a + seconds[c[0]].sum() for a, c in zip(latency[0], climbs, strict=True))
        fall = max(a + seconds[c[1]].sum() for a, c in zip(latency[1], climbs, strict=True))
        up = np.unique(np.concatenate([up, *(c[0] for c in climbs)]))
        down = np.unique(np.concatenate([down, *(c[1] for c in climbs)]))
        ends = self.topology.links.head[up]
        inner = np.unique(ends[self._number[ends] >= 0])
        return ReductionTree(int(self.switches[root]), inner, up, down, float(rise), float(fall))

    def _access(
        self, gpus: Ints, way: str, channel: int
    ) -> tuple[Ints, Ints, Ints, tuple[Floats, Floats]]:
        topology, links = self.topology, self.topology.links
        channels = np.full(len(gpus), channel, np.int32)
        routes = topology.routes(gpus, np.roll(gpus, -1), channels, way)
        is_switch = topology.node_kinds == NODE_KINDS.index("switch")
        ups = []
        downs = []
        leaf = np.zeros(len(gpus), np.int32)
        for pair in range(len(gpus)):
            row = routes.link[routes.ptr[pair] : routes.ptr[pair + 1]]
            enters = is_switch[links.head[row]]
            leaves = is_switch[links.tail[row]]
            outside = np.flatnonzero(enters | leaves)
            if not len(outside):
                raise TopologyError(f"{topology.name}: {way!r} leads past the fabric's switches")
            first = row[enters & ~leaves]
            leaf[pair] = self._number[links.head[first[0]]]
            ups.append(np.concatenate([row[: outside[0]], first]))
            downs.append(np.concatenate([row[leaves & ~enters], row[outside[-1] + 1 :]]))
        downs = downs[-1:] + downs[:-1]  # each route ends at the next GPU
        latency = [np.array([links.latency[p].sum() for p in parts]) for parts in (ups, downs)]
        return np.concatenate(ups), np.concatenate(downs), leaf, (latency[0], latency[1])

    def _choose_root(self, leaves: Ints, channel: int) -> tuple[int, Ints, int]:
        """Choose the root switch above the switches `leaves` for a channel.

        Returns (number of the root among the switches, for each switch the next switch towards the
        root, number of the parallel cable to use). The root is the switch with the least distance
        to the farthest leaf; of several, those with the least sum of distances. If r switches are
        equally good, channel c takes number c % r of them, and parallel cable number c // r.
        """
        from scipy.sparse.csgraph import dijkstra

        hops = dijkstra(self._joined, indices=leaves, unweighted=True)
        farthest = hops.max(axis=0)
        total = hops.sum(axis=0)
        if not np.isfinite(farthest).any():
            raise TopologyError(
                f"{self.topology.name}: no switch is above all of these NICs (other rails or "
                "planes, or dead links)"
            )
        nearest = np.flatnonzero(farthest == farthest.min())
        roots = nearest[total[nearest] == total[nearest].min()]
        cable_number, place = divmod(channel, len(roots))
        root = int(roots[place])
        start = np.array([root])
        above = dijkstra(self._joined, indices=start, unweighted=True, return_predecessors=True)[1]
        return root, above[0].astype(np.int32), cable_number

    def _climb(self, leaf: int, root: int, above: Ints, cable_number: int) -> tuple[Ints, Ints]:
        up = []
        down = []
        while leaf != root:
            over = int(above[leaf])
            up.append(self._cable(leaf, over, cable_number))
            down.append(self._cable(over, leaf, cable_number))
            leaf = over
        return np.array(up, np.int32), np.array(down, np.int32)

    def _cable(self, tail: int, head: int, cable_number: int) -> int:
        key = tail * len(self.switches) + head
        first, last = np.searchsorted(self._key, [key, key + 1])
        return int(self._link[first + cable_number % (last - first)])
