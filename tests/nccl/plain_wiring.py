"""Rings, trees, links and ways rank by rank, in the plainest code: what Wiring is held to."""

from collections import Counter
from itertools import pairwise

from netsim.nccl.communicator import BALANCED_TREE, SPLIT_TREE
from netsim.nccl.connect import double_binary_tree
from netsim.nccl.job import link_kinds


def plain_rings(nodes, n_channels):
    """Every channel's ring: the nodes' orders end to end."""
    graphs = [node.view.ring for node in nodes]
    searched = searched_channels(nodes)
    crossed = max(graph.cross_nic for graph in graphs) == 2 and searched % 2 == 0
    rings = []
    for channel in range(searched):
        ring = []
        for number, node in enumerate(nodes):
            own = channel ^ 1 if crossed and number % 2 else channel
            ring += [node.ranks[gpu] for gpu in node.view.ring.channels[own].gpus]
        rings.append(tuple(ring))
    return [rings[channel % searched] for channel in range(n_channels)]


def searched_channels(nodes):
    return min(graph.n_channels for node in nodes for graph in (node.view.ring, node.view.tree))


def plain_trees(nodes, n_channels):
    """Every channel's tree, as (parents, children)."""
    searched = searched_channels(nodes)
    pattern = max(node.view.tree.pattern for node in nodes)
    trees = []
    for places in double_binary_tree(len(nodes)):
        for channel in range(searched):
            orders = [
                [node.ranks[gpu] for gpu in node.view.tree.channels[channel].gpus] for node in nodes
            ]
            trees.append(plain_tree(orders, pattern, places))
    return [trees[channel % len(trees)] for channel in range(n_channels)]


def plain_tree(orders, pattern, places):
    total = sum(map(len, orders))
    up, down = [-1] * total, [[] for _ in range(total)]
    for order in orders:
        for above, below in pairwise(order):
            up[below] = above
            down[above].append(below)
    for node, place in enumerate(places):
        for number, child in enumerate(place.down):
            if child >= 0:
                parent = orders[node][door(pattern, number, len(orders[node]))]
                up[orders[child][0]] = parent
                down[parent].append(orders[child][0])
    return tuple(up), tuple(map(tuple, down))


def door(pattern, number, local):
    balanced = 1 if number == 0 else 0
    if pattern == BALANCED_TREE:
        chosen = balanced
    else:
        chosen = 1 if pattern == SPLIT_TREE else 0
    return min(chosen, local - 1)


def plain_ways(nodes, kind, hops):
    """The way of every hop (channel, from, to) between nodes."""
    home = {rank: (n, i) for n, node in enumerate(nodes) for i, rank in enumerate(node.ranks)}
    found = {}
    for channel, src, dst in hops:
        if home[src][0] != home[dst][0]:
            leave, relayed = nic(nodes, kind, *home[src], channel)
            arrive, _ = nic(nodes, kind, *home[dst], channel)
            way = f"{'pxn' if relayed else 'nic'}:{leave}:{arrive}"
            found[channel, src, dst] = "pxn" if relayed and leave == arrive else way
    return found


def nic(nodes, kind, node, gpu, channel):
    view = nodes[node].view
    graph, table = getattr(view, kind), view.table
    own = graph.channels[channel % min(getattr(one.view, kind).n_channels for one in nodes)]
    net = table.nets[own.nics[0 if own.gpus[0] == gpu else 1]]
    relayed = table.type_of(table.gpus[table.graph.local_ranks.index(gpu)], net) == "PXN"
    return table.graph.net(net).dev, relayed


def plain_links(comm, nodes):
    """The usual link, and the pairs of ranks with another."""
    views = {id(node.view): link_kinds(comm, node.view) for node in nodes}
    count = Counter(kind for pairs in views.values() for kind in pairs.values())
    usual = count.most_common(1)[0][0] if count else "nvlink"
    others = {
        (node.ranks[one], node.ranks[other]): kind
        for node in nodes
        for (one, other), kind in views[id(node.view)].items()
        if kind != usual
    }
    return usual, others


def plain_heads(nodes, kind):
    """By node, the first GPU of every channel, as many as all nodes have."""
    found = []
    for node in nodes:
        graph = getattr(node.view, kind)
        firsts = dict.fromkeys(channel.gpus[0] for channel in (graph.channels if graph else ()))
        found.append([node.ranks[gpu] for gpu in firsts])
    return tuple(tuple(own[: min(map(len, found))]) for own in found)
